//! Our side of the interoperability tests, on the public API.

use std::thread::{self, JoinHandle};

use swiftwater::{Association, Listener, RecvError, SendInfo};

use crate::peers::messages::TestMessage;
use crate::process::PATIENCE;

/// Sends a test message with its stream and order.
///
/// # Panics
/// If it cannot be sent.
pub fn send(association: &Association, message: &TestMessage) {
    let TestMessage { stream, unordered, ppid, .. } = *message;
    let info = SendInfo { stream, ppid, unordered, ..SendInfo::default() };
    association
        .send_with(&message.payload, &info)
        .unwrap_or_else(|error| panic!("{} bytes on stream {stream}: {error}", message.payload.len()));
}

/// Receives one whole message; `None` when the peer has shut down.
///
/// # Panics
/// If nothing comes in time, or the association is lost.
#[must_use]
pub fn receive(association: &Association) -> Option<TestMessage> {
    let mut payload = Vec::new();
    loop {
        let part = match association.recv_timeout(PATIENCE) {
            Ok(part) => part?,
            Err(RecvError::TimedOut) => panic!("no message came in time: {:?}", association.statistics()),
            Err(error) => panic!("{error}"),
        };
        for block in part.blocks() {
            payload.extend_from_slice(block);
        }
        let info = part.info;
        if !info.more {
            return Some(TestMessage {
                stream: info.stream,
                unordered: info.unordered,
                ppid: info.ppid,
                payload,
            });
        }
    }
}

/// Accepts one association, returns every message unchanged, and shuts down after the peer.
/// The thread returns the number of messages.
#[must_use]
pub fn echo_once(listener: Listener) -> JoinHandle<usize> {
    thread::spawn(move || {
        let association = accept(&listener);
        let mut count = 0;
        while let Some(message) = receive(&association) {
            send(&association, &message);
            count += 1;
        }
        association.close().unwrap_or_else(|error| panic!("the echo server's end: {error}"));
        count
    })
}

/// Sends a message of `message_bytes` that begins with its number.
///
/// # Panics
/// If it cannot be sent.
pub fn send_number(association: &Association, number: u64, message_bytes: usize) {
    let mut message = vec![0; message_bytes];
    message[..8].copy_from_slice(&number.to_be_bytes());
    association.send(&message).unwrap_or_else(|error| panic!("message {number}: {error}"));
}

/// Accepts one association, receives numbered messages to its end and checks that each number comes once, in order. `received`
/// gets the number so far after each; the return value is the total.
///
/// # Panics
/// If another message comes, or the association is lost.
pub fn count_numbers(listener: &Listener, message_bytes: usize, mut received: impl FnMut(u64)) -> u64 {
    let (association, _) = listener.accept().unwrap_or_else(|error| panic!("nobody connects: {error}"));
    let mut message = vec![0; message_bytes];
    let mut next = 0u64;
    while let Some((bytes, _)) = association.recv_into(&mut message).unwrap_or_else(|error| panic!("{error}"))
    {
        assert_eq!(bytes, message_bytes);
        assert_eq!(message[..8], next.to_be_bytes());
        next += 1;
        received(next);
    }
    next
}

/// Accepts one association.
///
/// # Panics
/// If none comes in time.
#[must_use]
pub fn accept(listener: &Listener) -> Association {
    listener.accept_timeout(PATIENCE).unwrap_or_else(|error| panic!("nobody connects: {error}")).0
}
