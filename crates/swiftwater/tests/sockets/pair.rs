//! Two ends on loopback, and content that can be checked.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use swiftwater::{Association, Listener, StackOptions};

/// Time limit of a test, far longer than any takes.
const HANGS_AFTER: Duration = Duration::from_secs(60);

/// Runs a test that would block without end if it failed.
pub(crate) fn must_end(test: impl FnOnce() + Send + 'static) {
    let (done, is_done) = mpsc::channel();
    let worker = thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    if is_done.recv_timeout(HANGS_AFTER) == Err(mpsc::RecvTimeoutError::Timeout) {
        panic!("the test hangs");
    }
    if let Err(panic) = worker.join() {
        std::panic::resume_unwind(panic);
    }
}

pub(crate) fn listen() -> Listener {
    listen_with(&StackOptions::default())
}

pub(crate) fn listen_with(options: &StackOptions) -> Listener {
    Listener::bind_with("127.0.0.1:0/udp:0", options).unwrap()
}

/// Returns the same association for tasks, as the calls for the daemon take it.
pub(crate) fn for_tasks(association: &Association) -> swiftwater::tokio::Association {
    association.clone().into()
}

/// Returns a client and a server, each with sockets of its own.
pub(crate) fn pair() -> (Association, Association) {
    pair_with(&StackOptions::default())
}

pub(crate) fn pair_with(options: &StackOptions) -> (Association, Association) {
    let listener = listen_with(options);
    let client = Association::connect_with(listener.address(), options).unwrap();
    (client, listener.accept().unwrap().0)
}

/// Returns content that identifies its message and the position in it.
pub(crate) fn pattern(message: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i.wrapping_mul(31) ^ (i >> 8) ^ message.wrapping_mul(97)) as u8).collect()
}

/// Compares content without printing a megabyte.
pub(crate) fn assert_pattern(message: usize, bytes: usize, got: &[u8]) {
    assert_eq!(got.len(), bytes, "length of message {message}");
    let wrong = got.iter().zip(pattern(message, bytes)).position(|(got, want)| *got != want);
    assert_eq!(wrong, None, "first wrong byte of message {message}");
}

/// Returns the next message in one piece, however it was delivered.
pub(crate) fn recv_whole(association: &Association) -> Option<Vec<u8>> {
    let mut whole = Vec::new();
    loop {
        let part = association.recv().unwrap()?;
        whole.extend_from_slice(&part.to_vec());
        if !part.info.more {
            return Some(whole);
        }
    }
}
