//! Handles ICMP reports about our packets (RFC 9260 §10).

use std::net::SocketAddr;

use sctp_wire::chunk::Init;
use sctp_wire::packet::{HEADER_BYTES, Header};
use sctp_wire::{Packet, VerificationTag};

use super::{AssociationId, Endpoint, PeerKey};
use crate::association::Association;
use crate::error::CloseReason;
use crate::event::Host;
use crate::identity::Identity;
use crate::time::Time;

/// Maximum number of associations of one peer that are compared with a report; a report about a further one is ignored.
const COMPARED_MAX: usize = 64;

/// Why the network returned a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unreachable {
    /// No socket has the UDP port.
    Port,
    /// The host does not support the protocol.
    Protocol,
    /// No route leads to the host.
    Host,
    /// The packet exceeds the MTU of a link on the path.
    TooBig {
        /// Size of the largest SCTP packet that fits.
        mtu_bytes: usize,
    },
}

impl Endpoint {
    /// Handles the report that the network returned a packet of ours which begins with `quoted`. A connect continues with the
    /// next address at once, and fails after the last; an association that waits for SHUTDOWN COMPLETE ends. An established
    /// association ends if the peer's host does not support SCTP (ICMP8). Otherwise the association is unchanged: its own timers
    /// decide.
    pub fn handle_unreachable<H: Host + ?Sized>(
        &mut self,
        now: Time,
        remote: SocketAddr,
        why: Unreachable,
        quoted: &[u8],
        host: &mut H,
    ) {
        let Ok(packet) = Packet::parse(quoted) else {
            self.statistics.reports_ignored += 1;
            return;
        };
        let header = packet.header();
        // The quoted packet is ours, so its source is the local end.
        let key = PeerKey { remote, local_port: header.source_port, peer_port: header.destination_port };
        let genuine = |(_, a): &(_, &Association)| is_genuine(&header, quoted, &a.identity());
        // RFC 9260 §10, ICMP5 and ICMP6.
        let Some((id, association)) = self.with_peer(&key, COMPARED_MAX).find(genuine) else {
            self.statistics.reports_ignored += 1;
            return;
        };
        let setting_up = !association.is_set_up();
        match why {
            // ICMP7
            Unreachable::TooBig { mtu_bytes } => {
                let mut believed = false;
                self.with_open(id, now, host, |association, cx| {
                    believed = association.handle_too_big(cx.now, remote, mtu_bytes);
                });
                self.statistics.reports_ignored += u64::from(!believed);
            }
            Unreachable::Port | Unreachable::Protocol if setting_up => {
                self.abandon_address(id, now, remote, CloseReason::Refused, host);
            }
            Unreachable::Host if setting_up => {
                self.abandon_address(id, now, remote, CloseReason::Unreachable, host);
            }
            // ICMP8: as an ABORT with the T bit.
            Unreachable::Protocol => {
                self.with_open(id, now, host, |association, cx| {
                    association.close(cx, CloseReason::NoProtocol)
                });
            }
            // A peer that has sent its SHUTDOWN COMPLETE may be gone, and does not repeat a lost one.
            Unreachable::Port => {
                self.with_open(id, now, host, |association, cx| association.handle_shutdown_complete(cx));
            }
            // ICMP9 leaves the choice; the path's error counters decide.
            Unreachable::Host => self.statistics.reports_ignored += 1,
        }
    }

    fn abandon_address<H: Host + ?Sized>(
        &mut self,
        id: AssociationId,
        now: Time,
        remote: SocketAddr,
        reason: CloseReason,
        host: &mut H,
    ) {
        self.with_open(id, now, host, |association, cx| association.abandon_address(cx, remote, reason));
        if self.associations.get_mut(id).is_some_and(|association| association.take_paths_changed()) {
            self.register(id);
        }
    }
}

/// Returns whether a report is genuine (RFC 9260 §10, ICMP6): it must quote a tag of the association, that is, the peer's tag, or
/// our own in the INIT, which the quote then includes.
fn is_genuine(header: &Header, quoted: &[u8], identity: &Identity) -> bool {
    if header.verification_tag.0 != 0 {
        return Some(header.verification_tag) == identity.peer_tag;
    }
    match quoted.get(HEADER_BYTES..) {
        Some(&[Init::KIND, _, _, _, t0, t1, t2, t3, ..]) => {
            VerificationTag(u32::from_be_bytes([t0, t1, t2, t3])) == identity.local_tag
        }
        _ => false,
    }
}
