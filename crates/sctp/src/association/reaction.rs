//! The effects of the packet that is being handled.

use sctp_wire::cause::Cause;

/// Maximum number of bytes of error causes that one packet can cause.
const REPORTS_BYTES_MAX: usize = 1024;
/// Maximum number of error causes of the peer that are reported to the user for one packet.
const REMOTE_ERRORS_MAX: usize = 32;

#[derive(Debug, Default)]
pub(super) struct Reaction {
    has_sack: bool,
    has_shutdown: bool,
    /// Error causes of the peer that were reported to the user.
    remote_errors: usize,
    /// Error causes to report to the peer.
    causes: Vec<u8>,
}

impl Reaction {
    /// Begins with another packet.
    #[inline]
    pub(super) fn begin(&mut self) {
        (self.has_sack, self.has_shutdown, self.remote_errors) = (false, false, 0);
        self.causes.clear();
    }

    /// Records a SACK. Returns whether it is the first of the packet.
    #[inline]
    pub(super) fn take_first_sack(&mut self) -> bool {
        !std::mem::replace(&mut self.has_sack, true)
    }

    /// Records a SHUTDOWN whose acknowledgement counts. Returns whether it is the first of the packet.
    pub(super) fn take_first_shutdown(&mut self) -> bool {
        !std::mem::replace(&mut self.has_shutdown, true)
    }

    /// Records an error cause for the user. Returns false if the packet has had too many.
    pub(super) fn take_remote_error(&mut self) -> bool {
        let has_room = self.remote_errors < REMOTE_ERRORS_MAX;
        self.remote_errors += usize::from(has_room);
        has_room
    }

    /// Adds a cause to the report to the peer. Returns false and drops the cause if the report is too long.
    pub(super) fn report(&mut self, cause: &Cause<'_>) -> bool {
        let has_room = self.causes.len() + cause.wire_bytes() <= REPORTS_BYTES_MAX;
        if has_room {
            cause.write(&mut self.causes);
        }
        has_room
    }

    /// Takes the causes to report to the peer, if there are any.
    #[inline]
    pub(super) fn take_causes(&mut self) -> Option<Vec<u8>> {
        if self.causes.is_empty() { None } else { Some(std::mem::take(&mut self.causes)) }
    }
}
