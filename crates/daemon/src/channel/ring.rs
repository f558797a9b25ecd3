//! The daemon's side of the ring through which a program sends messages.
//!
//! While the daemon is awake for a ring, it looks there for the next message, and in the carrier only where the ring is empty. Once it
//! sleeps, the next writer puts a [`Kind::Wake`](carrier::record::Kind::Wake) into the carrier; what lies in front of that was sent
//! before what the ring holds.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use carrier::record::{Flags, HEADER_BYTES, Header, Kind};
use ring::{Broken, Reader, Ring};
use zerocopy::IntoBytes;

use super::shared_page::Memory;
use crate::users::closer::Closer;

/// Memory that a ring without messages keeps.
const KEPT_BYTES: usize = 32 * 1024;

/// The reader of a socket's ring.
pub(crate) struct OutboundRing {
    memory: Arc<Memory>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    reader: Reader,
    /// The ring was found empty, and marked: the carrier says when there is more.
    is_asleep: bool,
    /// A message was taken since the ring was marked last.
    is_busy: bool,
    /// No process has the socket any more: messages behind this position came too late.
    end: Option<u64>,
}

/// A message at the front of the ring.
pub(super) struct Front {
    pub(super) header: Header,
    /// Length of the record.
    bytes: usize,
}

/// The content of a message, copied from the ring.
pub(crate) struct Content {
    words: Vec<u64>,
    bytes: usize,
}

impl AsRef<[u8]> for Content {
    fn as_ref(&self) -> &[u8] {
        &self.words.as_bytes()[..self.bytes]
    }
}

impl Front {
    /// Returns the length of the content.
    pub(super) fn content_bytes(&self) -> usize {
        self.bytes - HEADER_BYTES
    }
}

impl OutboundRing {
    pub(crate) fn new(memory: Arc<Memory>) -> OutboundRing {
        OutboundRing { memory, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) -> Ring<'_> {
        self.memory.ring()
    }

    /// Returns the message at the front; `None` if there is none, or the daemon sleeps.
    pub(super) fn front(&self) -> Result<Option<Front>, Broken> {
        let (ring, mut state) = (self.ring(), self.state());
        let Some(bytes) = state.next(ring)? else { return Ok(None) };
        let mut header = [0; HEADER_BYTES];
        if bytes < HEADER_BYTES {
            return Err(Broken);
        }
        state.reader.read(ring, &mut header);
        let header = Header::parse(&header).filter(|header| header.kind == Kind::Data).ok_or(Broken)?;
        let content_bytes = if header.flags.contains(Flags::IN_MEMFD) { 0 } else { header.bytes as usize };
        if HEADER_BYTES + content_bytes != bytes {
            return Err(Broken);
        }
        Ok(Some(Front { header, bytes }))
    }

    /// Takes the content of the message that [`OutboundRing::front`] has returned. Returns, too, whether a writer waits for room
    /// that there is now.
    pub(super) fn take(&self, front: &Front) -> (Content, bool) {
        let (ring, mut state) = (self.ring(), self.state());
        let bytes = front.content_bytes();
        let content = Content { words: state.reader.words(ring, HEADER_BYTES, bytes), bytes };
        state.is_busy = true;
        (content, state.reader.taken(ring, front.bytes))
    }

    /// Discards all messages, but for those that are sent meanwhile. Returns whether there were any.
    pub(super) fn discard(&self) -> bool {
        let (tail, begin) = (self.tail(), self.position());
        let (ring, mut state) = (self.ring(), self.state());
        while state.reader.position() < tail
            && let Ok(Some(bytes)) = state.reader.next(ring)
        {
            state.reader.taken(ring, bytes);
        }
        state.reader.position() > begin
    }

    /// Notes that a wake record has come.
    pub(super) fn wake(&self) {
        self.state().is_asleep = false;
    }

    /// Looks whether a writer has removed the mark, whose wake record found no room in the carrier. Returns whether the daemon is
    /// awake because of that.
    pub(super) fn wakes_without_record(&self) -> bool {
        let (ring, mut state) = (self.ring(), self.state());
        let wakes = state.is_asleep && !state.reader.is_marked_asleep(ring);
        state.is_asleep &= !wakes;
        wakes
    }

    /// Returns whether there is a message, or something that no writer writes.
    pub(super) fn is_filled(&self) -> bool {
        !matches!(self.state().next(self.ring()), Ok(None))
    }

    /// Returns whether messages have come since the last sleep.
    pub(super) fn is_busy(&self) -> bool {
        self.state().is_busy
    }

    /// Sleeps, so that the next writer puts a wake record into the carrier. Returns false if there is a message.
    pub(super) fn sleep(&self) -> bool {
        let (ring, mut state) = (self.ring(), self.state());
        if !state.is_asleep || !state.reader.is_marked_asleep(ring) {
            state.is_asleep = state.reader.sleep(ring);
        }
        state.is_busy &= !state.is_asleep;
        state.is_asleep
    }

    /// Returns whether so much memory was in use that a ring without messages should return it.
    pub(super) fn holds_much(&self) -> bool {
        self.state().reader.reach() > KEPT_BYTES
    }

    /// Returns the memory of a ring for which the daemon sleeps, on the thread of a closer: the call waits for the lock of the inode,
    /// which a program can hold. Meanwhile programs send without the ring.
    pub(super) fn rest(&self, closer: &Arc<Closer>) {
        if self.state().reader.rest(self.ring()) {
            let memory = Arc::clone(&self.memory);
            closer.run(move || {
                memory.return_ring();
                memory.ring().end_rest();
            });
        }
    }

    /// Notes that no process has the socket any more; returns whether no message is left.
    pub(super) fn end(&self) -> bool {
        let (ring, mut state) = (self.ring(), self.state());
        if state.end.is_none() {
            state.is_asleep = false;
            let position = state.reader.position();
            state.end = state.reader.waiting(ring).ok().map(|waiting| position + waiting);
        }
        matches!(state.next(ring), Ok(None))
    }

    /// Returns the position behind the last message of the program.
    pub(super) fn tail(&self) -> u64 {
        let (ring, state) = (self.ring(), self.state());
        state.reader.position() + state.reader.waiting(ring).unwrap_or(0)
    }

    /// Returns the position behind the last message that was taken.
    pub(super) fn position(&self) -> u64 {
        self.state().reader.position()
    }
}

impl State {
    fn next(&mut self, ring: Ring<'_>) -> Result<Option<usize>, Broken> {
        let is_over = self.end.is_some_and(|end| self.reader.position() >= end);
        if self.is_asleep || is_over { Ok(None) } else { self.reader.next(ring) }
    }
}
