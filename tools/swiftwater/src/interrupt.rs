//! SIGINT (Ctrl-C), SIGTERM and SIGHUP: the first asks the command to end, which then prints the totals so far; the second ends
//! it at once. Either way the command first ends its associations, so that no peer keeps waiting.
//!
//! A signal that the process ignores when it starts, as under `nohup` or in the background of a script, stays ignored.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use std::{fs, io, process, thread};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use swiftwater::Stack;
use thiserror::Error;

/// Signals that ask a command to end.
const SIGNALS: [c_int; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Time after a signal in which further signals count as the same. A supervisor may signal a process and then its group, and the
/// process that waits for a laboratory passes its signal on.
const SAME_SIGNAL: Duration = Duration::from_millis(200);

/// The first signal that asked the command to end; 0 before.
static SIGNALLED: AtomicI32 = AtomicI32::new(0);
/// Set when the command itself found that continuing is pointless.
static GIVEN_UP: AtomicBool = AtomicBool::new(false);
/// Stacks that this process has bound and still uses.
static STACKS: Mutex<Vec<Weak<Stack>>> = Mutex::new(Vec::new());
/// Time for remaining associations to shut down when the command ends.
const END_WAIT: Duration = Duration::from_secs(2);
/// Reason in the ABORT to peers whose associations take longer.
const REASON: &str = "the program was stopped";

/// Error of listening for signals.
#[derive(Debug, Error)]
#[error(transparent)]
pub(crate) struct ListenError(#[from] io::Error);

/// Starts to handle signals.
pub(crate) fn listen() -> Result<(), ListenError> {
    let mut last: Option<Instant> = None;
    on_signals(move |signal| {
        if last.replace(Instant::now()).is_some_and(|last| last.elapsed() < SAME_SIGNAL) {
            return;
        }
        if SIGNALLED.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            take_stacks().iter().for_each(|stack| stack.abort_all(REASON));
            process::exit(exit_status_of(signal).into());
        }
    })
}

/// Returns the exit status that a shell reports of a program that a signal ended.
pub(crate) fn exit_status_of(signal: c_int) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// Calls a function for each signal of [`SIGNALS`] that this process does not ignore, in a thread for them.
pub(crate) fn on_signals(mut handle: impl FnMut(c_int) + Send + 'static) -> Result<(), ListenError> {
    let ignored = ignored_signals();
    let mut signals = Signals::new(SIGNALS.into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0))?;
    let work = move || signals.forever().for_each(&mut handle);
    thread::Builder::new().name("signals".into()).spawn(work)?;
    Ok(())
}

/// Returns the signals that this process ignores, from the lowest bit on; none where the system does not tell.
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bits = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0)
}

/// Returns whether the running operation should end.
pub(crate) fn requested() -> bool {
    SIGNALLED.load(Ordering::SeqCst) != 0 || GIVEN_UP.load(Ordering::SeqCst)
}

/// Ends the running operation as Ctrl-C would.
pub(crate) fn give_up() {
    GIVEN_UP.store(true, Ordering::SeqCst);
}

/// Returns the exit status of a command that a signal has ended early.
pub(crate) fn exit_status() -> Option<u8> {
    Some(SIGNALLED.load(Ordering::SeqCst)).filter(|signal| *signal != 0).map(exit_status_of)
}

/// Remembers a stack while it is in use.
pub(crate) fn remember(stack: &Arc<Stack>) {
    let mut stacks = STACKS.lock().unwrap_or_else(PoisonError::into_inner);
    stacks.retain(|stack| stack.strong_count() > 0);
    stacks.push(Arc::downgrade(stack));
}

/// Ends the remaining associations, within [`END_WAIT`]. The process may end then.
pub(crate) fn end_all() {
    let deadline = Instant::now() + END_WAIT;
    for stack in take_stacks() {
        // Associations that do not end in time are aborted with this reason.
        stack.close(deadline.saturating_duration_since(Instant::now()), REASON);
    }
}

fn take_stacks() -> Vec<Arc<Stack>> {
    let stacks = std::mem::take(&mut *STACKS.lock().unwrap_or_else(PoisonError::into_inner));
    stacks.iter().filter_map(Weak::upgrade).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use swiftwater::StackOptions;

    #[test]
    fn remaining_associations_are_shut_down_at_the_end_of_the_command() {
        let local = StackOptions::default()
            .with_udp_port(0)
            .with_local_addresses(vec![std::net::Ipv4Addr::LOCALHOST.into()]);
        let bind = || Stack::bind(&local).expect("a free port");
        let (own, peer_stack) = (Arc::new(bind()), bind());
        remember(&own);
        let listener = peer_stack.listen(7).expect("a free port");
        let _left = own.connect(listener.address()).expect("it listens");
        let (peer, _) = listener.accept().expect("it is there");
        end_all();
        assert_eq!(own.statistics().associations, 0);
        assert!(peer.recv().expect("a regular end").is_none());
    }
}
