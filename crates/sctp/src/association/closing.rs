//! The end of an association: the report to its user, and its final packet.

use std::net::{IpAddr, SocketAddr};

use super::control::Control;
use super::{Association, Context, State};
use crate::config::Checksum;
use crate::error::CloseReason;
use crate::event::Host;
use crate::inbound::ReceiveContext;
use crate::reply::Reply;
use crate::trace;

impl Association {
    /// Ends the association without a packet to the peer.
    pub(crate) fn close<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, reason: CloseReason) {
        self.close_with(cx, reason, None, &[]);
    }

    /// Ends the association. `last_chunk` is sent to the peer; `causes` are those of the peer's ABORT, for a user who
    /// subscribes to events.
    pub(super) fn close_with<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        reason: CloseReason,
        last_chunk: Option<Control>,
        causes: &[u8],
    ) {
        if self.is_closed() {
            return;
        }
        self.end_open_record(cx);
        self.tell_loss(cx, &reason, causes);
        // Waiting control chunks are obsolete.
        self.control.clear();
        self.orphan = None;
        self.state = State::Closed { unreported: Some(reason.clone()), last_chunk };
        if let Some(tracer) = &mut self.trace {
            tracer.push(cx.now, None, trace::Event::Closed(reason.clone()));
        }
        match reason {
            CloseReason::Shutdown => cx.statistics.shut_down += 1,
            CloseReason::Aborted
            | CloseReason::PeerAborted { .. }
            | CloseReason::ProtocolViolation { .. } => {
                cx.statistics.aborted += 1;
            }
            _ => {}
        }
        self.give_up_all(cx, reason.cause());
        self.tell_closed(cx);
    }

    /// Delivers what has arrived of a record that was delivered in part, whose end will not arrive.
    pub(super) fn end_open_record<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>) {
        if let Some(inbound) = self.inbound.as_mut() {
            let mut receiving =
                ReceiveContext { id: self.id, statistics: &mut self.statistics, host: &mut *cx.host };
            inbound.deliver_open_record(&mut receiving);
        }
        self.tell_end_of_partial_delivery(cx);
    }

    /// Returns the addresses for a packet that reports the end to the peer: the peer's and our own.
    pub(crate) fn return_route(&self) -> Option<(SocketAddr, Option<IpAddr>)> {
        let path = self.paths.get(self.paths.primary())?;
        Some((path.remote(), path.local()))
    }

    /// Takes the final packet of a closed association: ABORT or SHUTDOWN COMPLETE.
    pub(crate) fn take_final_packet(&mut self, checksum: Checksum) -> Option<Reply> {
        let State::Closed { last_chunk, .. } = &mut self.state else { return None };
        let chunk = last_chunk.take()?;
        let path_id = chunk.path().unwrap_or(self.data_path());
        let path = &self.paths[path_id];
        let mut reply = Reply::new(path.remote(), path.local(), &self.identity.header(), checksum, |out| {
            out.extend_from_slice(chunk.bytes())
        });
        reply.dscp = self.dscp(path_id);
        if let Some(tracer) = &mut self.trace {
            tracer.record_final_packet(path_id.index(), &reply.packet);
        }
        Some(reply)
    }
}
