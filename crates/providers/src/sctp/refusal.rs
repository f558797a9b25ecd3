//! Refusals of requests of the transport provider interface.

use streams::Errno;
use tpi::TError;

/// Reason why a request was refused.
pub(super) struct Refusal(pub(super) TError, pub(super) Errno);

impl Refusal {
    pub(super) const OUT_OF_STATE: Refusal = Refusal(TError::OutOfState, Errno(0));
    pub(super) const NOT_SUPPORTED: Refusal = Refusal(TError::NotSupported, Errno(0));
    pub(super) const BAD_DATA: Refusal = Refusal(TError::BadData, Errno(0));

    pub(super) fn system(errno: Errno) -> Self {
        Refusal(TError::System, errno)
    }
}
