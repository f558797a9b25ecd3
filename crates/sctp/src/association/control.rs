//! Control chunks that wait for the next packet.

use std::collections::VecDeque;

use sctp_message::PathId;
use sctp_wire::chunk::{CookieEcho, Init};

use crate::config::CONTROL_CHUNKS_MAX;

/// A control chunk, serialized.
#[derive(Debug)]
pub(super) struct Control {
    /// The chunk type.
    kind: u8,
    bytes: Vec<u8>,
    /// The path to use; the data path if none.
    path: Option<PathId>,
}

impl Control {
    /// Returns the chunk of type `kind` that `write` appends to a buffer.
    pub(super) fn new(kind: u8, path: Option<PathId>, write: impl FnOnce(&mut Vec<u8>)) -> Self {
        let mut bytes = Vec::new();
        write(&mut bytes);
        Control::of(kind, path, bytes)
    }

    /// Returns the chunk of type `kind` with these bytes.
    pub(super) fn of(kind: u8, path: Option<PathId>, bytes: Vec<u8>) -> Self {
        debug_assert_eq!(bytes.first(), Some(&kind));
        Control { kind, bytes, path }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the path to use; `None` for the data path.
    pub(super) fn path(&self) -> Option<PathId> {
        self.path
    }

    /// Returns whether the chunk is an INIT: it is alone in its packet, which has verification tag 0 (RFC 9260 §8.5.1 A).
    pub(super) fn is_init(&self) -> bool {
        self.kind == Init::KIND
    }
}

/// The chunks in the order in which they leave.
#[derive(Debug, Default)]
pub(super) struct ControlQueue(VecDeque<Control>);

impl ControlQueue {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub(super) fn next(&self) -> Option<&Control> {
        self.0.front()
    }

    pub(super) fn pop(&mut self) -> Option<Control> {
        self.0.pop_front()
    }

    /// Appends a chunk. Returns false and drops the chunk if too many wait.
    pub(super) fn push(&mut self, chunk: Control) -> bool {
        let has_room = self.0.len() < CONTROL_CHUNKS_MAX;
        if has_room {
            self.0.push_back(chunk);
        }
        has_room
    }

    /// Puts a chunk of the handshake in front of all others, in place of a waiting one of its type.
    pub(super) fn push_first(&mut self, chunk: Control) {
        self.remove(chunk.kind);
        self.0.push_front(chunk);
    }

    /// Removes the chunks of a type, which are out of date.
    pub(super) fn remove(&mut self, kind: u8) {
        self.0.retain(|chunk| chunk.kind != kind);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Sends all chunks on another path.
    pub(super) fn redirect(&mut self, path: PathId) {
        self.0.iter_mut().for_each(|chunk| chunk.path = Some(path));
    }

    /// Returns whether the next packet begins with a COOKIE ECHO.
    #[inline]
    pub(super) fn begins_with_cookie_echo(&self) -> bool {
        self.0.front().is_some_and(|chunk| chunk.kind == CookieEcho::KIND)
    }

    /// Returns the total length of the chunks of a type.
    pub(super) fn bytes_of(&self, kind: u8) -> usize {
        self.0.iter().filter(|chunk| chunk.kind == kind).map(|chunk| chunk.bytes.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use sctp_wire::chunk::{CookieAck, ShutdownAck};

    use super::*;

    fn cookie_ack(path: u8) -> Control {
        Control::new(CookieAck::KIND, Some(PathId(path)), |out| CookieAck.write(out))
    }

    fn shutdown_ack() -> Control {
        Control::new(ShutdownAck::KIND, None, |out| ShutdownAck.write(out))
    }

    #[test]
    fn each_chunk_counts_against_the_limit() {
        let mut queue = ControlQueue::default();
        let taken = (0..CONTROL_CHUNKS_MAX + 3).filter(|_| queue.push(shutdown_ack())).count();
        assert_eq!(taken, CONTROL_CHUNKS_MAX);
        assert_eq!(queue.bytes_of(ShutdownAck::KIND), 4 * CONTROL_CHUNKS_MAX);
        queue.remove(ShutdownAck::KIND);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_chunk_of_the_handshake_goes_first_and_once() {
        let mut queue = ControlQueue::default();
        assert!(queue.push(shutdown_ack()));
        (0..20).for_each(|path| queue.push_first(cookie_ack(path)));
        assert_eq!(queue.pop().and_then(|chunk| chunk.path()), Some(PathId(19)));
        assert_eq!(queue.pop().map(|chunk| chunk.kind), Some(ShutdownAck::KIND));
        assert!(queue.is_empty());
    }
}
