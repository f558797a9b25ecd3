//! Ctrl-C ends a test early and prints the totals so far; a second one ends the program at once.

use std::process;
use std::sync::atomic::{AtomicBool, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// What a shell reports of a program that SIGINT ended.
const EXIT_CODE: i32 = 130;

/// Listens for Ctrl-C and SIGTERM from now on.
pub(crate) fn listen() -> Result<(), ctrlc::Error> {
    ctrlc::set_handler(|| {
        if INTERRUPTED.swap(true, Ordering::SeqCst) {
            process::exit(EXIT_CODE);
        }
    })
}

/// Whether the user wants it to end.
pub(crate) fn requested() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}
