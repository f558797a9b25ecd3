//! Ends an association after an internal fault, so that the endpoint continues.
//!
//! A caller that catches a panic learns here which association was being handled. Its state cannot be trusted any more, so none
//! of its procedures is called again.

use sctp_wire::cause::{Cause, UserInitiatedAbort};

use super::{AssociationId, Endpoint};
use crate::association::abort_chunk;
use crate::error::CloseReason;
use crate::event::{Event, Host};
use crate::reply::Reply;

impl Endpoint {
    /// Takes the association that was being handled when a call panicked.
    pub fn take_in_progress(&mut self) -> Option<AssociationId> {
        self.in_progress.take()
    }

    /// Ends an association in any state. The peer gets an ABORT, the host [`Event::Closed`].
    pub fn abandon<H: Host + ?Sized>(&mut self, id: AssociationId, host: &mut H) {
        let Some(association) = self.associations.get(id) else { return };
        let identity = association.identity();
        let route = association.return_route();
        let mut association = self.forget(id);
        self.keep_trace(id, association.take_tracer());
        if let Some((remote, local)) = route.filter(|_| identity.peer_tag.is_some()) {
            let cause = Cause::UserInitiatedAbort(UserInitiatedAbort { reason: b"internal fault" });
            let chunk = abort_chunk(&cause);
            self.push_final_packet(Reply::new(
                remote,
                local,
                &identity.header(),
                self.config.checksum,
                |out| {
                    out.extend_from_slice(&chunk);
                },
            ));
        }
        host.event(id, Event::Closed(CloseReason::Fault));
    }
}
