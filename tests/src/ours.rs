//! Our side of the interoperability tests, on the public API.

use std::thread::{self, JoinHandle};

use swiftwater::{Association, Listener, RecvError, SendInfo};

use crate::peers::messages::TestMessage;
use crate::process::PATIENCE;

/// Sends a test message as it says.
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
            Err(RecvError::WouldBlock) => panic!("no message came in time: {:?}", association.statistics()),
            Err(error) => panic!("{error}"),
        };
        for block in part.blocks() {
            payload.extend_from_slice(block);
        }
        let info = part.info;
        if info.end_of_record {
            return Some(TestMessage {
                stream: info.stream,
                unordered: info.unordered,
                ppid: info.ppid,
                payload,
            });
        }
    }
}

/// Accepts one association, gives every message back as it came, and shuts down after the peer.
/// The thread returns how many messages there were.
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

/// Accepts one association.
///
/// # Panics
/// If none comes in time.
#[must_use]
pub fn accept(listener: &Listener) -> Association {
    listener.accept_timeout(PATIENCE).unwrap_or_else(|error| panic!("nobody connects: {error}"))
}
