//! The division of the daemon's descriptors among their uses, and among users.

use shared_memory::Pins;

/// Maximum number of descriptors in one message (`SCM_MAX_FD` of the kernel).
pub(crate) const MESSAGE_DESCRIPTORS_MAX: usize = 253;
/// Number of descriptors of each socket: its end of the pair, and the two pages.
pub(crate) const DESCRIPTORS_PER_SOCKET: usize = 3;
/// Number of descriptors of a pipe.
const DESCRIPTORS_PER_PIPE: usize = 2;
/// The parts of each use but sockets, in 32nds of all descriptors. Sockets get the rest, with the pipes that pin their pages.
const RINGS: usize = 2;
const REQUESTS: usize = 6;
const FROM_PAIRS: usize = 1;
const LONG_MESSAGES: usize = 1;
const PARTS: usize = 32;
/// Maximum number of quarters of a part for one user, so that other users always get some.
const QUARTERS_OF_A_USER: usize = 3;

/// A use of descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Sockets of programs, [`DESCRIPTORS_PER_SOCKET`] each.
    Sockets,
    /// Connections of requests, and what comes and goes with requests.
    Requests,
    /// What comes by pairs, such as memfds of long messages.
    FromPairs,
    /// Memfds of long messages to programs.
    LongMessages,
}

impl Use {
    pub(crate) const ALL: [Use; 4] = [Use::Sockets, Use::Requests, Use::FromPairs, Use::LongMessages];
}

/// The division of descriptors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Division {
    /// Maximum number of sockets.
    pub(crate) sockets: usize,
    /// Maximum number of pipes that pin pages of sockets.
    pub(crate) pipes_of_pages: usize,
    /// Maximum number of pipes that pin rings. A program without a ring sends records.
    pub(crate) pipes_of_rings: usize,
    requests: usize,
    from_pairs: usize,
    long_messages: usize,
}

impl Division {
    /// Divides this number of descriptors. Those of one message have no use: they must be free whenever a message comes.
    pub(crate) fn new(descriptors: usize) -> Division {
        let part = |part: usize| descriptors * part / PARTS;
        let pipes_of_rings = part(RINGS) / DESCRIPTORS_PER_PIPE;
        let (requests, from_pairs, long_messages) = (part(REQUESTS), part(FROM_PAIRS), part(LONG_MESSAGES));
        let others = pipes_of_rings * DESCRIPTORS_PER_PIPE + requests + from_pairs + long_messages;
        let room = descriptors.saturating_sub(others + MESSAGE_DESCRIPTORS_MAX);
        let fit = |sockets: usize| {
            sockets * DESCRIPTORS_PER_SOCKET + Pins::pipes_for(sockets) * DESCRIPTORS_PER_PIPE <= room
        };
        let sockets = most(room / DESCRIPTORS_PER_SOCKET + 1, fit);
        let pipes_of_pages = Pins::pipes_for(sockets);
        Division { sockets, pipes_of_pages, pipes_of_rings, requests, from_pairs, long_messages }
    }

    /// Returns the number of descriptors of all pipes.
    pub(crate) fn of_pipes(&self) -> usize {
        (self.pipes_of_pages + self.pipes_of_rings) * DESCRIPTORS_PER_PIPE
    }

    /// Returns how many descriptors a use has in all, and for one user.
    pub(crate) fn part(&self, of: Use) -> (usize, usize) {
        let both = |descriptors| (descriptors, part_of_user(descriptors));
        match of {
            Use::Sockets => {
                let all = self.sockets * DESCRIPTORS_PER_SOCKET;
                (all, part_of_user(self.sockets) * DESCRIPTORS_PER_SOCKET)
            }
            Use::Requests => both(self.requests),
            Use::FromPairs => both(self.from_pairs),
            Use::LongMessages => both(self.long_messages),
        }
    }
}

/// Returns how many of these items one user may have, which leaves a quarter of them to other users.
pub(crate) fn part_of_user(items: usize) -> usize {
    (items * QUARTERS_OF_A_USER / 4).max(1)
}

/// Returns the greatest number below `end` that fits; smaller ones fit, too.
pub(crate) fn most(end: usize, fits: impl Fn(usize) -> bool) -> usize {
    // The result is at least `few` and less than `many`.
    let (mut few, mut many) = (0, end);
    while few + 1 < many {
        let middle = few.midpoint(many);
        if fits(middle) {
            few = middle;
        } else {
            many = middle;
        }
    }
    few
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_get_all_descriptors_that_nothing_else_needs() {
        for descriptors in 600..3000 {
            let division = Division::new(descriptors);
            assert_eq!(division.pipes_of_pages, Pins::pipes_for(division.sockets));
            let parts: usize = Use::ALL.map(|of| division.part(of).0).iter().sum();
            let needs = parts + division.of_pipes() + MESSAGE_DESCRIPTORS_MAX;
            let pipes = |sockets| Pins::pipes_for(sockets) * DESCRIPTORS_PER_PIPE;
            let one_more = DESCRIPTORS_PER_SOCKET + pipes(division.sockets + 1) - pipes(division.sockets);
            assert!(needs <= descriptors && needs + one_more > descriptors, "{descriptors}");
        }
    }

    #[test]
    fn one_user_leaves_a_quarter_of_each_part() {
        let division = Division::new(1000);
        // 1,000 less 62, 187, 31, 31 and 253 are 436: enough for 134 sockets, and for 17 pipes with their pages.
        let parts = Use::ALL.map(|of| division.part(of));
        assert_eq!(parts, [(402, 300), (187, 140), (31, 23), (31, 23)]);
    }
}
