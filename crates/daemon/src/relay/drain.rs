//! Moves records from the channel of a one-to-many socket into the send queues of its associations.
//!
//! The channel is always read, so that one association whose peer is slow keeps none of the others waiting. The page tells the
//! program how much waits for each, and it sends no more than there is room for.

use bytes::Bytes;
use carrier::record::{Flags, Header};
use rustix::io::Errno;

use super::{BROKEN, Departure, abort};
use crate::channel::endpoint::Intake;
use crate::state::association::SocketAssociation;
use crate::state::socket::Socket;
use crate::system::journal::log;
use crate::system::quantum::RECORDS_PER_TURN;

/// Takes what the program has sent before it asks for something, so that this comes first. Records sent meanwhile do not count:
/// a program that sends without pause would never be answered.
pub(crate) struct Drain {
    left_bytes: u64,
}

impl Drain {
    pub(crate) fn new(socket: &Socket) -> Drain {
        Drain { left_bytes: socket.channel.endpoint.waiting_bytes() }
    }

    /// Takes as much as one turn allows. Returns true if all was taken, false if records stay because the user's memory is used
    /// up, and `None` if there is more.
    pub(crate) fn step(&mut self, socket: &Socket) -> Option<bool> {
        if self.left_bytes == 0 {
            return Some(true);
        }
        let taken = take_several(socket);
        // The end is there for every reader, again and again, as is a broken carrier: the task of the socket takes it.
        if matches!(taken.departure, Some(Departure::Unread)) {
            socket.channel.endpoint.tell_reset_again();
        }
        if taken.records == 0 || taken.departure.is_some() {
            return Some(!taken.stalled);
        }
        self.left_bytes = self.left_bytes.saturating_sub(taken.bytes);
        None
    }
}

/// What was taken from a carrier in one turn.
#[derive(Default)]
pub(crate) struct Taken {
    pub(crate) records: usize,
    /// What these records count for in a turn.
    pub(crate) weight: usize,
    /// The length of these records.
    pub(crate) bytes: u64,
    /// More records wait, but the user's memory is used up.
    pub(crate) stalled: bool,
    /// How the program has left, if it has.
    pub(crate) departure: Option<Departure>,
}

/// Takes what the program has sent, at most as much as one turn allows.
pub(crate) fn take_several(socket: &Socket) -> Taken {
    let mut several = Taken::default();
    while several.weight < RECORDS_PER_TURN && several.departure.is_none() {
        let taken = match socket.channel.endpoint.try_take() {
            Ok(taken) => taken,
            Err(Errno::AGAIN) => break,
            Err(Errno::NOBUFS) => {
                several.stalled = true;
                break;
            }
            Err(_) => {
                several.departure = Some(Departure::Closed);
                break;
            }
        };
        several.records += 1;
        several.weight += taken.weight();
        several.bytes += taken.record_bytes();
        several.departure = sort(socket, taken);
    }
    several
}

/// Gives a record to the association that it is for. Returns how the program has left, if it has.
fn sort(socket: &Socket, taken: Intake) -> Option<Departure> {
    match taken {
        Intake::Filler | Intake::Empty => None,
        Intake::Message(header, content) => {
            let assoc = socket.inner().associations.get(&header.association).cloned();
            // What is sent into an association that is gone is lost, as in the kernel.
            if let Some(assoc) = assoc {
                enqueue(socket, &assoc, header, content);
            }
            None
        }
        Intake::Malformed => {
            log(format_args!("a program writes something else than records to its socket"));
            Some(Departure::Abort(Bytes::from_static(BROKEN)))
        }
        Intake::Unread => socket.channel.has_unread_data().then_some(Departure::Unread),
        Intake::End => Some(Departure::Closed),
    }
}

fn enqueue(socket: &Socket, assoc: &SocketAssociation, header: Header, content: Bytes) {
    if header.flags.contains(Flags::ABORT) {
        if let Some(association) = assoc.association() {
            abort(association, &String::from_utf8_lossy(&content));
            drop(socket.remove(assoc));
        }
        return;
    }
    let send_queue = assoc.send_queue().clone();
    if send_queue.is_some_and(|send_queue| !send_queue.push(header, content))
        && let Some(association) = assoc.association()
    {
        log(format_args!("a program sends more than there is room for"));
        abort(association, "the program has sent more than there is room for");
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use carrier::record::Kind;
    use rustix::net::SendFlags;

    use super::*;
    use crate::channel::style::Style;
    use crate::system::quantum::BYTES_PER_TURN;
    use crate::testing::{opened, registry, send, send_long, soon};

    /// The number of an association that the socket does not have.
    const NONE: u32 = 77;

    fn send_one(theirs: &OwnedFd) {
        send(theirs, NONE, b"");
    }

    #[tokio::test(flavor = "local")]
    async fn what_a_program_sends_meanwhile_does_not_prolong_a_drain() {
        let registry = registry();
        let (socket, theirs) = opened(&registry, Style::OneToMany);
        (0..4 * RECORDS_PER_TURN).for_each(|_| send_one(&theirs));
        let mut drain = Drain::new(&socket);
        for _ in 0..4 {
            assert_eq!(drain.step(&socket), None, "others have their turn");
            // As many as were taken: the carrier is never empty.
            (0..RECORDS_PER_TURN).for_each(|_| send_one(&theirs));
        }
        assert_eq!(drain.step(&socket), Some(true));
        assert!(socket.channel.endpoint.waiting_bytes() > 0);
    }

    #[tokio::test(flavor = "local")]
    async fn requests_that_take_from_a_carrier_together_find_its_end() {
        let registry = registry();
        let (socket, theirs) = opened(&registry, Style::OneToMany);
        (0..2 * RECORDS_PER_TURN).for_each(|_| send_one(&theirs));
        rustix::net::shutdown(&theirs, rustix::net::Shutdown::Write).expect("it is open");
        let (mut first, mut second) = (Drain::new(&socket), Drain::new(&socket));
        assert_eq!((first.step(&socket), second.step(&socket)), (None, None));
        // Each has taken records that the other was to take. It must not wait for them for ever.
        assert_eq!((first.step(&socket), second.step(&socket)), (Some(true), Some(true)));
    }

    #[tokio::test(flavor = "local")]
    async fn a_request_before_which_a_program_breaks_its_carrier_hides_nothing_from_its_task() {
        let registry = registry();
        let (socket, theirs) = opened(&registry, Style::OneToMany);
        // It begins as a record does, and ends before its header does.
        let broken = &Header::new(Kind::Data).encode()[..8];
        rustix::net::send(&theirs, broken, SendFlags::DONTWAIT).expect("room in the carrier");
        while Drain::new(&socket).step(&socket).is_none() {}
        let endpoint = &socket.channel.endpoint;
        soon(endpoint.readable()).await;
        let found = endpoint.try_take();
        assert!(matches!(found, Ok(Intake::Malformed)), "{found:?}");
    }

    #[tokio::test(flavor = "local")]
    async fn a_turn_ends_after_so_many_bytes_too() {
        let registry = registry();
        let (socket, theirs) = opened(&registry, Style::OneToMany);
        (0..3).for_each(|_| send_long(&theirs, NONE, BYTES_PER_TURN));
        let records = [(); 4].map(|()| take_several(&socket).records);
        assert_eq!(records, [1, 1, 1, 0]);
    }

    #[tokio::test(flavor = "local")]
    async fn one_turn_takes_so_many_records() {
        let registry = registry();
        let (socket, theirs) = opened(&registry, Style::OneToMany);
        (0..2 * RECORDS_PER_TURN).for_each(|_| send_one(&theirs));
        let records = [(); 3].map(|()| take_several(&socket).records);
        assert_eq!(records, [RECORDS_PER_TURN, RECORDS_PER_TURN, 0]);
    }

    #[tokio::test(flavor = "local")]
    async fn a_record_of_no_bytes_is_not_the_end() {
        let registry = registry();
        let (socket, theirs) = opened(&registry, Style::OneToMany);
        let send_nothing =
            || rustix::net::send(&theirs, &[], SendFlags::DONTWAIT).expect("room in the carrier");
        send_nothing();
        send_one(&theirs);
        let taken = take_several(&socket);
        assert_eq!((taken.records, taken.departure.is_none()), (2, true));
        send_nothing();
        assert!(socket.channel.endpoint.discard() && !socket.channel.endpoint.discard());
        // Nor is it if the end is behind it.
        send_nothing();
        send_one(&theirs);
        drop(theirs);
        let taken = take_several(&socket);
        assert_eq!((taken.records, matches!(taken.departure, Some(Departure::Closed))), (3, true));
    }
}
