//! What a link that has no ports of its own is told of ours.

use std::collections::{BTreeSet, VecDeque};

use streams::Errno;

use super::SctpDriver;

/// Ports that are passed on for a while after their last user: a peer that has missed our SHUTDOWN COMPLETE asks again
/// (RFC 9260 §8.4, 5).
const RECENT_PORTS_MAX: usize = 64;

/// The SCTP ports that the link knows of.
#[derive(Debug, Default)]
pub(super) struct Ports {
    used: BTreeSet<u16>,
    recent: VecDeque<u16>,
}

impl Ports {
    /// Takes note of the ports that are in use now and gives those to pass on.
    fn update(&mut self, used: BTreeSet<u16>) -> Vec<u16> {
        self.recent.extend(self.used.difference(&used));
        self.recent.retain(|port| !used.contains(port));
        while self.recent.len() > RECENT_PORTS_MAX {
            self.recent.pop_front();
        }
        self.used = used;
        self.used.iter().chain(&self.recent).copied().collect()
    }
}

impl SctpDriver {
    /// A port has come into use or gone out of it.
    pub(super) fn tell_ports(&mut self) -> Result<(), Errno> {
        if self.link.has_ports() {
            return Ok(());
        }
        let ports = self.ports.update(self.endpoint.ports().collect());
        self.link.set_ports(&ports).map_err(|_| Errno::ENOMEM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_stays_for_a_while_after_its_last_user() {
        let mut ports = Ports::default();
        assert_eq!(ports.update([5, 7].into()), [5, 7]);
        assert_eq!(ports.update([7].into()), [7, 5]);
        assert_eq!(ports.update([5].into()), [5, 7]);
    }

    #[test]
    fn not_more_than_the_limit_stay() {
        let mut ports = Ports::default();
        for port in 0..1000 {
            ports.update([port].into());
        }
        assert_eq!(ports.update([].into()), (936..1000).collect::<Vec<u16>>());
    }
}
