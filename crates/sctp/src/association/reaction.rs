//! The effects of the packet that is being handled.

use sctp_wire::cause::Cause;

/// Maximum number of bytes of error causes that one packet can cause.
const REPORTS_BYTES_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Reaction {
    has_sack: bool,
    has_shutdown: bool,
    has_error: bool,
    /// Error causes to report to the peer.
    causes: Vec<u8>,
}

impl Reaction {
    /// Begins with another packet.
    #[inline]
    pub(super) fn begin(&mut self) {
        (self.has_sack, self.has_shutdown, self.has_error) = (false, false, false);
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

    /// Records an ERROR for the user. Returns whether it is the first of the packet.
    pub(super) fn take_first_error(&mut self) -> bool {
        !std::mem::replace(&mut self.has_error, true)
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
