//! ERROR and ABORT chunks with one cause, and the evaluation of received ones.

use sctp_wire::cause::{Cause, Causes};
use sctp_wire::chunk::{Abort, Error, RawChunk};

use crate::error::CloseReason;

/// Maximum length of the text of a peer's ABORT that is kept.
const TEXT_CHARS_MAX: usize = 256;

/// Returns an ERROR chunk with this cause.
pub(crate) fn error_chunk(cause: &Cause<'_>) -> Vec<u8> {
    let mut causes = Vec::new();
    cause.write(&mut causes);
    let mut out = Vec::new();
    Error { causes: Causes::new(&causes) }.write(&mut out);
    out
}

/// Returns an ABORT chunk with this cause.
pub(crate) fn abort_chunk(cause: &Cause<'_>) -> Vec<u8> {
    let mut causes = Vec::new();
    cause.write(&mut causes);
    let mut out = Vec::new();
    Abort { reflected_tag: false, causes: Causes::new(&causes) }.write(&mut out);
    out
}

/// Appends an ABORT without causes. `reflected_tag`: the T bit (RFC 9260 §8.4).
pub(crate) fn write_abort(reflected_tag: bool, out: &mut Vec<u8>) {
    Abort { reflected_tag, causes: Causes::default() }.write(out);
}

/// Returns whether an ERROR chunk reports a stale cookie.
pub(crate) fn reports_stale_cookie(raw: &RawChunk<'_>) -> bool {
    Causes::new(raw.value).flatten().any(|cause| matches!(cause, Cause::StaleCookie(_)))
}

/// Returns why the peer aborted, according to its ABORT chunk. In reply to an INIT, no cause means that there is no listener.
pub(super) fn abort_reason(raw: &RawChunk<'_>, setting_up: bool) -> CloseReason {
    match Causes::new(raw.value).flatten().next() {
        None if setting_up => CloseReason::Refused,
        None => CloseReason::PeerAborted { cause: None, text: String::new() },
        Some(cause) => {
            let text = match &cause {
                Cause::UserInitiatedAbort(cause) => String::from_utf8_lossy(cause.reason),
                cause => cause.to_string().into(),
            };
            let text = text.chars().filter(|c| !c.is_control()).take(TEXT_CHARS_MAX).collect();
            CloseReason::PeerAborted { cause: Some(cause.kind()), text }
        }
    }
}
