//! Programs that have both ends of an association.
//!
//! On the kernel's loopback, a message is readable when the call that sent it returns. Here the daemon first has to pass it on,
//! and a program that plays both ends without waiting would find nothing. So before the shim reports that nothing has come, it
//! asks the daemon to catch up. Other programs pay nothing for that.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use crate::ask;
use crate::pages::Pages;

const CONNECTS: u32 = 1;
const LISTENS: u32 = 1 << 1;
/// The process has sent a message that the daemon may not have passed on yet.
const SENT: u32 = 1 << 2;

/// The roles that this process has played.
static DONE: AtomicU32 = AtomicU32::new(0);

/// Notes that the process sets up an association.
pub(crate) fn connects() {
    DONE.fetch_or(CONNECTS, Relaxed);
}

/// Notes that the process listens.
pub(crate) fn listens() {
    DONE.fetch_or(LISTENS, Relaxed);
}

/// Notes that the process has sent a message.
pub(crate) fn sends(page: Pages<'_>) {
    let is_here = || page.status.peer().is_none_or(|peer| peer.ip().to_canonical().is_loopback());
    if DONE.load(Relaxed) == CONNECTS | LISTENS && is_here() {
        DONE.fetch_or(SENT, Relaxed);
    }
}

/// Returns whether this process has sent anything to itself that the daemon may not have passed on.
pub(crate) fn has_sent() -> bool {
    DONE.load(Relaxed) & SENT != 0
}

/// Makes the daemon pass on what this process has sent since the last call. Returns whether it had sent anything, so that a
/// message may have come.
pub(crate) fn let_daemon_catch_up() -> bool {
    let was_sent = has_sent();
    if was_sent {
        DONE.fetch_and(!SENT, Relaxed);
        ask::barrier();
    }
    was_sent
}
