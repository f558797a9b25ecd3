//! The packets that the link is to expect while it separates strays.

use std::net::{Ipv4Addr, SocketAddr};

use super::strays::Update;
use super::{Endpoint, PeerKey};
use crate::cookie::CookieMark;
use crate::time::Time;

/// Maximum numbers of tags and of ports that an update names, which are those that a filter of the kernel has room for. An update
/// costs no more than these, however many associations there are.
const TAGS_MAX: usize = 1024;
const INIT_PORTS_MAX: usize = 128;

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
        let mut update = self.strays.poll(now)?;
        if update == Update::TagsAndPorts && self.by_tag.len() > TAGS_MAX {
            self.strays.on_tags_refused(now);
            update = self.strays.poll(now)?;
        }
        Some(self.expected_packets(update))
    }

    fn expected_packets(&self, update: Update) -> ExpectedPackets {
        if update == Update::Everything {
            return ExpectedPackets::default();
        }
        let tags = || self.by_tag.keys().map(|tag| tag.0).collect();
        ExpectedPackets {
            tags: (update == Update::TagsAndPorts).then(tags),
            init_ports: self.init_ports(),
            cookies: Some(self.cookies.mark()),
        }
    }

    /// Returns the ports in use; `None` if there are too many.
    fn init_ports(&self) -> Option<Vec<u16>> {
        let mut ports: Vec<u16> = self.listeners.ports().take(INIT_PORTS_MAX + 1).collect();
        let mut from = Some(0);
        while let Some(port) =
            from.filter(|_| ports.len() <= INIT_PORTS_MAX).and_then(|from| self.next_port(from))
        {
            if !self.listeners.has(port) {
                ports.push(port);
            }
            from = port.checked_add(1);
        }
        ports.sort_unstable();
        (ports.len() <= INIT_PORTS_MAX).then_some(ports)
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
        self.next_port(port) == Some(port)
    }

    /// Returns the lowest port of an association from this one on.
    fn next_port(&self, from: u16) -> Option<u16> {
        let lowest = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let first = PeerKey { local_port: from, peer_port: 0, remote: lowest };
        self.by_peer.range(first..).next().map(|(key, _)| key.local_port)
    }
}
