//! Tells a link without ports of its own which SCTP ports are in use.

use std::collections::{BTreeSet, VecDeque};

use streams::Errno;

use super::SctpDriver;

/// Maximum number of ports that the link keeps after their last use: a peer that has missed our SHUTDOWN COMPLETE asks
/// again (RFC 9260 §8.4, 5).
const RECENT_PORTS_MAX: usize = 64;

/// The SCTP ports that the link must pass to us.
#[derive(Debug, Default)]
pub(super) struct Ports {
    used: BTreeSet<u16>,
    recent: VecDeque<u16>,
}

impl Ports {
    /// Records the ports in use and returns the ports that the link must pass to us.
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
    /// Tells the link the ports after a change of the ports in use.
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
