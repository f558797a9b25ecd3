//! Ctrl-C ends a test early and prints the totals so far; a second one ends the program at once.

use std::process;
use std::sync::atomic::{AtomicBool, Ordering};

/// A signal asked the command to end.
static SIGNALLED: AtomicBool = AtomicBool::new(false);
/// The command itself found that going on is of no use.
static GIVEN_UP: AtomicBool = AtomicBool::new(false);
/// The exit status that a shell reports of a program that SIGINT ended.
const EXIT_INTERRUPTED: u8 = 130;

/// Listens for Ctrl-C and SIGTERM from now on.
pub(crate) fn listen() -> Result<(), ctrlc::Error> {
    ctrlc::set_handler(|| {
        if SIGNALLED.swap(true, Ordering::SeqCst) {
            process::exit(EXIT_INTERRUPTED.into());
        }
    })
}

/// Returns whether what runs should end.
pub(crate) fn requested() -> bool {
    SIGNALLED.load(Ordering::SeqCst) || GIVEN_UP.load(Ordering::SeqCst)
}

/// Ends what runs as Ctrl-C would.
pub(crate) fn give_up() {
    GIVEN_UP.store(true, Ordering::SeqCst);
}

/// Returns the exit status of a command that a signal has ended early.
pub(crate) fn exit_status() -> Option<u8> {
    SIGNALLED.load(Ordering::SeqCst).then_some(EXIT_INTERRUPTED)
}
