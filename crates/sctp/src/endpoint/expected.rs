//! The packets that the link is to expect while it separates strays.

use std::net::{Ipv4Addr, SocketAddr};

use super::strays::Update;
use super::{Endpoint, PeerKey};
use crate::cookie::CookieMark;
use crate::time::Time;

/// The packets that an endpoint expects during a flood. The default expects every packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpectedPackets {
    /// The verification tags of associations. `None`: every tag.
    pub tags: Option<Vec<u32>>,
    /// The ports to which an INIT may come, sorted. `None`: every port.
    pub init_ports: Option<Vec<u16>>,
    /// The mark of cookies. `None`: every cookie.
    pub cookies: Option<CookieMark>,
}

impl Endpoint {
    /// Returns an update of the packets that the link is to expect, if there is one. Call this after packets were handled, and
    /// before some are sent.
    #[inline]
    pub fn poll_expected(&mut self, now: Time) -> Option<ExpectedPackets> {
        let update = self.strays.poll(now)?;
        Some(self.expected_packets(update))
    }

    fn expected_packets(&self, update: Update) -> ExpectedPackets {
        if update == Update::Everything {
            return ExpectedPackets::default();
        }
        let mut init_ports: Vec<u16> = self.listeners.ports().collect();
        init_ports.extend(self.by_peer.keys().map(|key| key.local_port));
        init_ports.sort_unstable();
        init_ports.dedup();
        let tags = || self.by_tag.keys().map(|tag| tag.0).collect();
        ExpectedPackets {
            tags: (update == Update::TagsAndPorts).then(tags),
            init_ports: Some(init_ports),
            cookies: Some(self.cookies.mark()),
        }
    }

    /// Records that the link cannot use the tags of [`Endpoint::poll_expected`]. The next update has none.
    pub fn expected_tags_refused(&mut self, now: Time) {
        self.strays.on_tags_refused(now);
    }

    /// Returns whether a listener uses this port, or an association whose peer may send an INIT.
    pub(super) fn is_port_in_use(&self, port: u16) -> bool {
        self.listeners.has(port) || self.has_association_at(port)
    }

    fn has_association_at(&self, port: u16) -> bool {
        let lowest = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let first = PeerKey { local_port: port, peer_port: 0, remote: lowest };
        self.by_peer.range(first..).next().is_some_and(|(key, _)| key.local_port == port)
    }
}
