//! Programs that have both ends of an association.
//!
//! On the kernel's loopback a message is there when the call that sent it returns. Here it takes the daemon a moment, and a
//! program that plays both ends without waiting may count on there being none. So before it is told that nothing has come, the
//! daemon is asked to settle. Other programs are not held up by that.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use carrier::page::Page;

use crate::setup;

const CONNECTS: u32 = 1;
const LISTENS: u32 = 1 << 1;
/// It has sent something that may not have come through.
const SENT: u32 = 1 << 2;

/// What this process has done.
static DONE: AtomicU32 = AtomicU32::new(0);

/// It sets an association up.
pub(crate) fn connects() {
    DONE.fetch_or(CONNECTS, Relaxed);
}

/// It listens.
pub(crate) fn listens() {
    DONE.fetch_or(LISTENS, Relaxed);
}

/// It has sent a message.
pub(crate) fn sends(page: &Page) {
    let is_here = || page.peer().is_none_or(|peer| peer.ip().to_canonical().is_loopback());
    if DONE.load(Relaxed) == CONNECTS | LISTENS && is_here() {
        DONE.fetch_or(SENT, Relaxed);
    }
}

/// Whether it is worth looking again where nothing had come: what was sent has come through.
pub(crate) fn something_came() -> bool {
    let was_sent = DONE.load(Relaxed) & SENT != 0;
    if was_sent {
        DONE.fetch_and(!SENT, Relaxed);
        setup::settle();
    }
    was_sent
}
