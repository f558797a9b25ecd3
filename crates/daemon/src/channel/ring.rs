//! The daemon's side of the ring through which a program sends messages.
//!
//! A program announces a ring by a [`Kind::Ring`] with its memory, which the program has made and sealed, so that
//! it can take none of it away. A thread of the user checks and maps it. Then the daemon sleeps in it, and shows its number:
//! the program uses the ring from then on. Records in front of the first [`Kind::Wake`](channel_protocol::record::Kind::Wake)
//! were sent before the messages in it.
//!
//! While the daemon is awake for a ring, it looks there for the next message, and in the pair only where the ring
//! is empty. Once it sleeps, the next writer puts a wake record into the pair; records in front of that were
//! sent before the messages in the ring.
//!
//! Another program that has the socket, for instance after an `exec`, may announce another ring. The daemon takes all
//! messages of the old one first.

use std::cell::{RefCell, RefMut};
use std::os::fd::AsFd;
use std::sync::Arc;

use channel_protocol::record::{HEADER_BYTES, Header, Kind};
use links::AlignedBuffer;
use ring::{Broken, Reader, Ring};
use rustix::io::Errno;
use swiftwater::internals::SHORT_BYTES_MAX;
use tokio::sync::Notify;
use zerocopy::IntoBytes;

use super::shared_pages::Memory;
use crate::users::closer::ReceivedDescriptor;
use crate::users::owner::{RingMemory, Rings};
use crate::users::quantum;
use crate::users::worker::{Job, Worker};

/// The reader of a socket's ring.
pub(crate) struct OutboundRing {
    memory: Arc<Memory>,
    rings: Arc<Rings>,
    /// The user of the socket, for whom its ring counts.
    user: u32,
    state: RefCell<State>,
    /// Notified when the daemon wakes: a task may wait for a wake record that another one has taken.
    woken: Notify,
}

#[derive(Default)]
struct State {
    /// The memory of the writers, if there is a ring.
    words: Option<RingMemory>,
    reader: Reader,
    /// Added to positions of the reader, so that they increase over all rings.
    earlier: u64,
    /// The ring was found empty, and the writers know: the pair says when there is more.
    is_asleep: bool,
    /// A message was taken since the last sleep.
    is_busy: bool,
    /// No process has the socket any more: messages behind this position came too late.
    end: Option<u64>,
    next: Next,
}

/// The ring that was announced last.
#[derive(Default)]
enum Next {
    #[default]
    None,
    /// Its memory has come.
    Announced(u32, ReceivedDescriptor),
    /// A thread checks and maps it.
    Checked(u32, Arc<Job<Result<RingMemory, Errno>>>),
}

thread_local! {
    /// The copy of a short message with its header, for the rings of all sockets: the ring may change while the message is
    /// checked.
    static COPY: RefCell<AlignedBuffer> = RefCell::new(AlignedBuffer::new(HEADER_BYTES + SHORT_BYTES_MAX));
}

/// The short messages that were taken from the front of the ring.
pub(super) struct Passed {
    /// Number of messages that were removed.
    pub(super) messages: usize,
    /// Number of records of a turn that they count as.
    pub(super) weight: usize,
    /// Whether a writer waits for room that there is now.
    pub(super) has_room_again: bool,
}

/// A message at the front of the ring.
pub(super) struct FrontRecord {
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

impl FrontRecord {
    /// Returns the length of the content.
    pub(super) fn content_bytes(&self) -> usize {
        self.bytes - HEADER_BYTES
    }
}

impl OutboundRing {
    /// Returns the reader of no ring. `memory` has its words.
    pub(crate) fn new(memory: Arc<Memory>, rings: Arc<Rings>, user: u32) -> OutboundRing {
        OutboundRing { memory, rings, user, state: RefCell::default(), woken: Notify::new() }
    }

    /// Returns the pages of the socket.
    pub(super) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    fn state(&self) -> RefMut<'_, State> {
        self.state.borrow_mut()
    }

    /// Notes a ring that the program has announced. Messages in the earlier ring come first.
    pub(super) fn announce(&self, number: u32, memfd: ReceivedDescriptor) {
        let mut state = self.state();
        // The next sleep gets a number of its own: the wake record of this one may have been left out.
        self.wake_in(&mut state);
        state.next = Next::Announced(number, memfd);
    }

    /// Begins to check an announced ring if the earlier one is empty. Returns whether one is being checked: nothing else is taken
    /// before [`OutboundRing::checked`].
    pub(super) fn is_checked(&self, worker: &Worker) -> bool {
        let mut state = self.state();
        match std::mem::take(&mut state.next) {
            Next::None => return false,
            announced @ Next::Announced(..) if state.waiting(&self.memory) > 0 => {
                state.next = announced;
                return false;
            }
            Next::Announced(number, memfd) => {
                let (rings, user) = (Arc::clone(&self.rings), self.user);
                let check = move || rings.map(user, memfd.as_fd());
                state.next = Next::Checked(number, Job::begin(worker, check));
            }
            checked => state.next = checked,
        }
        true
    }

    /// Waits until an announced ring was checked, and moves to it; returns at once if none is being checked. A
    /// malformed ring is not used: the program continues without it.
    pub(super) async fn checked(&self) {
        let (number, job) = match &self.state().next {
            Next::Checked(number, job) => (*number, Arc::clone(job)),
            Next::None | Next::Announced(..) => return,
        };
        job.done().await;
        // Another task may have moved to it already.
        let Some(checked) = job.take() else { return };
        let mut state = self.state();
        state.next = Next::None;
        if let Ok(words) = checked {
            state.move_to(words, &self.memory, number);
        }
    }

    #[cfg(test)]
    pub(super) fn join(&self, memfd: impl AsFd) {
        let words = self.rings.map(self.user, memfd).expect("a ring");
        let mut state = self.state();
        state.move_to(words, &self.memory, 1);
        state.wake(&self.memory);
    }

    /// Returns the message at the front; `None` if there is none, or the daemon sleeps.
    pub(super) fn front(&self) -> Result<Option<FrontRecord>, Broken> {
        let mut state = self.state();
        let Some(bytes) = state.next_record(&self.memory)? else { return Ok(None) };
        let Some((ring, reader)) = state.parts(&self.memory) else { return Ok(None) };
        let mut header = [0; HEADER_BYTES];
        if bytes < HEADER_BYTES {
            return Err(Broken);
        }
        reader.read(ring, &mut header);
        let header = Header::parse(&header).filter(|header| header.kind == Kind::Data).ok_or(Broken)?;
        if header.record_bytes() != bytes {
            return Err(Broken);
        }
        Ok(Some(FrontRecord { header, bytes }))
    }

    /// Takes the content of the message that [`OutboundRing::front`] has returned. Returns, too, whether a writer waits for room
    /// that there is now. `None`: the host has no memory for the content, and the message stays.
    pub(super) fn take(&self, front: &FrontRecord) -> Option<(Content, bool)> {
        let mut state = self.state();
        state.is_busy = true;
        let bytes = front.content_bytes();
        let (ring, reader) = state.parts(&self.memory)?;
        let content = Content { words: reader.words(ring, HEADER_BYTES, bytes)?, bytes };
        Some((content, reader.taken(ring, front.bytes)))
    }

    /// Returns whether the first message is short.
    pub(super) fn has_short(&self) -> bool {
        let first = self.state().next_record(&self.memory);
        matches!(first, Ok(Some(bytes)) if bytes <= HEADER_BYTES + SHORT_BYTES_MAX)
    }

    /// Passes short messages at the front of the ring to `accept`, until they count as `weight` records of a turn, and removes
    /// those that it accepts. Stops at the first other message, and at one with another count of earlier records than `before`.
    pub(super) fn pass_short(
        &self,
        weight: usize,
        before: u32,
        mut accept: impl FnMut(&Header, &[u8]) -> bool,
    ) -> Passed {
        let mut state = self.state();
        let mut passed = Passed { messages: 0, weight: 0, has_room_again: false };
        COPY.with_borrow_mut(|copy| {
            while passed.weight < weight
                && let Ok(Some(bytes)) = state.next_record(&self.memory)
                && let Some((ring, reader)) = state.parts(&self.memory)
                && let Some(record) = copy.get_mut(..bytes)
            {
                reader.read(ring, record);
                let Some((header, content)) = Header::split(record) else { break };
                if header.kind != Kind::Data
                    || header.records_before() != Some(before)
                    || !accept(&header, content)
                {
                    break;
                }
                passed.has_room_again |= reader.taken(ring, bytes);
                passed.messages += 1;
                passed.weight += quantum::weight(content.len());
                state.is_busy = true;
            }
        });
        passed
    }

    /// Discards all messages, but for those that are sent meanwhile. Returns whether there were any.
    pub(super) fn discard(&self) -> bool {
        let mut state = self.state();
        let (begin, waiting) = (state.position(), state.waiting(&self.memory));
        let Some((ring, reader)) = state.parts(&self.memory) else { return false };
        let end = reader.position() + waiting;
        while reader.position() < end
            && let Ok(Some(bytes)) = reader.next(ring)
        {
            reader.taken(ring, bytes);
        }
        state.position() != begin
    }

    /// Notes that a wake record has come.
    pub(super) fn wake(&self) {
        self.wake_in(&mut self.state());
    }

    /// Wakes the daemon for the ring, and the tasks that wait for records.
    fn wake_in(&self, state: &mut State) {
        state.wake(&self.memory);
        self.woken.notify_waiters();
    }

    /// Waits until the daemon wakes.
    pub(super) async fn woken(&self) {
        self.woken.notified().await;
    }

    /// Returns whether a message is in the ring of the sleeping daemon.
    pub(super) fn waits_for_wake(&self) -> bool {
        let mut state = self.state();
        state.is_asleep && state.waiting(&self.memory) > 0
    }

    /// Looks whether a writer has put a message into the ring of the sleeping daemon, whose wake record found no room in
    /// the pair. Returns whether the daemon is awake because of that.
    pub(super) fn wakes_without_record(&self) -> bool {
        let mut state = self.state();
        let wakes = state.is_asleep && state.waiting(&self.memory) > 0;
        if wakes {
            self.wake_in(&mut state);
        }
        wakes
    }

    /// Returns whether there is a message, or something that no writer writes.
    pub(super) fn is_filled(&self) -> bool {
        !matches!(self.state().next_record(&self.memory), Ok(None))
    }

    /// Returns whether messages have come since the last sleep.
    pub(super) fn is_busy(&self) -> bool {
        self.state().is_busy
    }

    /// Sleeps, so that the next writer puts a wake record into the pair. Returns false if there is a message.
    pub(super) fn sleep(&self) -> bool {
        let mut state = self.state();
        // Asleep already: a message that has come meanwhile has its turn behind the records in front of its wake record.
        if !state.is_asleep {
            state.is_asleep = state.parts(&self.memory).is_none_or(|(ring, reader)| reader.sleep(ring));
        }
        state.is_busy &= !state.is_asleep;
        state.is_asleep
    }

    /// Fixes the end of the messages, because no process has the socket any more; returns whether no message is left.
    pub(super) fn fix_end(&self) -> bool {
        let mut state = self.state();
        if state.end.is_none() {
            state.is_asleep = false;
            state.end = Some(state.position().wrapping_add(state.waiting(&self.memory)));
        }
        matches!(state.next_record(&self.memory), Ok(None))
    }

    /// Returns whether there is a ring, and its writers know the daemon awake.
    pub(super) fn is_awake(&self) -> bool {
        let state = self.state();
        state.words.is_some() && !state.is_asleep
    }

    /// Returns whether half of the ring is free.
    pub(super) fn is_half_free(&self) -> bool {
        self.state().waiting(&self.memory) <= ring::ROOM_BYTES as u64 / 2
    }

    /// Returns the position behind the last message of the program.
    pub(super) fn tail(&self) -> u64 {
        let mut state = self.state();
        state.position().wrapping_add(state.waiting(&self.memory))
    }

    /// Returns the position behind the last message that was taken.
    pub(super) fn position(&self) -> u64 {
        self.state().position()
    }
}

impl State {
    /// Returns the ring and its reader, if there is a ring.
    fn parts<'a>(&'a mut self, memory: &'a Memory) -> Option<(Ring<'a>, &'a mut Reader)> {
        let words = self.words.as_ref()?.words().words_u64();
        Some((Ring::new(words, memory.reader_words()), &mut self.reader))
    }

    fn move_to(&mut self, words: RingMemory, memory: &Memory, number: u32) {
        let (before, old) = (self.position(), self.words.replace(words));
        let moved = self.parts(memory).is_some_and(|(ring, reader)| reader.move_to(ring).is_ok());
        if moved {
            self.earlier = before.wrapping_sub(self.reader.position());
            self.is_asleep = true;
            memory.set_ring_number(number);
        } else {
            self.words = old;
        }
    }

    fn next_record(&mut self, memory: &Memory) -> Result<Option<usize>, Broken> {
        let is_over = self.end.is_some_and(|end| self.position() == end);
        if self.is_asleep || is_over {
            return Ok(None);
        }
        self.parts(memory).map_or(Ok(None), |(ring, reader)| reader.next(ring))
    }

    fn wake(&mut self, memory: &Memory) {
        self.is_asleep = false;
        if let Some((ring, reader)) = self.parts(memory) {
            reader.wake(ring);
        }
    }

    /// Returns the number of bytes that the messages take which were not taken; 0 if the writers have broken the ring.
    fn waiting(&mut self, memory: &Memory) -> u64 {
        self.parts(memory).and_then(|(ring, reader)| reader.waiting(ring).ok()).unwrap_or(0)
    }

    fn position(&self) -> u64 {
        self.earlier.wrapping_add(self.reader.position())
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use channel_protocol::assoc_id::AssocId;
    use ring::{PutOutcome, Writer};
    use shared_memory::OfferedMapping;

    use super::*;
    use crate::channel::style::Style;
    use crate::state::registry::Registry;
    use crate::state::socket::Socket;
    use crate::testing::{header, opened, registry};

    /// A ring of a socket's program, and its reader.
    struct Pair {
        reader: OutboundRing,
        offered: OfferedMapping,
        _socket: Rc<Socket>,
    }

    impl Pair {
        fn new(registry: &Registry) -> Pair {
            let (socket, _program_end) = opened(registry, Style::OneToOne);
            let memory = socket.channel().shared_pages().memory();
            let reader = OutboundRing::new(memory, Arc::clone(registry.resources().rings()), 1);
            let offered = OfferedMapping::new("ring", ring::WORDS).expect("memory");
            assert!(!reader.is_awake(), "there is no ring");
            reader.join(&offered);
            Pair { reader, offered, _socket: socket }
        }

        fn put_record(&self, header: &Header, content: &[u8]) {
            let ring = Ring::new(self.offered.words_u64(), self.reader.memory().reader_words());
            let done = Writer::new(ring).put(HEADER_BYTES + content.len(), |record| {
                record.push(&header.encode());
                record.push(content);
            });
            assert!(matches!(done, PutOutcome::Done { .. }), "the ring is full");
        }

        fn put(&self, bytes: usize) {
            self.put_record(&header(AssocId::FIRST, bytes), &vec![7; bytes]);
        }

        fn take(&self) {
            let front = self.reader.front().expect("a record").expect("a message");
            assert!(self.reader.take(&front).is_some());
        }

        fn pass(&self, weight: usize) -> usize {
            let before = header(AssocId::FIRST, 1).records_before().expect("it is not in a turn");
            self.reader.pass_short(weight, before, |_, _| true).messages
        }
    }

    #[tokio::test(flavor = "local")]
    async fn so_many_short_messages_are_passed_and_no_other_records() {
        let registry = registry();
        let pair = Pair::new(&registry);
        for bytes in [1, 1, 1, SHORT_BYTES_MAX] {
            pair.put(bytes);
        }
        pair.put_record(&Header { bytes: 1, ..Header::new(Kind::Wake) }, &[7]);
        assert_eq!(pair.pass(1), 1);
        assert!(pair.reader.is_busy());
        assert_eq!(pair.pass(2), 2);
        assert!(pair.reader.has_short());
        assert_eq!(pair.pass(usize::MAX), 1);
        assert_eq!(pair.pass(usize::MAX), 0, "it is no message");
        assert!(pair.reader.front().is_err());
        let pair = Pair::new(&registry);
        pair.put(SHORT_BYTES_MAX + 1);
        assert!(!pair.reader.has_short());
    }

    #[tokio::test(flavor = "local")]
    async fn the_daemon_sleeps_while_there_is_no_message() {
        let registry = registry();
        let pair = Pair::new(&registry);
        pair.put(1);
        pair.take();
        assert!(pair.reader.is_awake() && pair.reader.is_busy());
        pair.put(1);
        assert!(!pair.reader.sleep() && pair.reader.is_busy(), "a message waits");
        assert!(!pair.reader.waits_for_wake() && !pair.reader.wakes_without_record(), "it is awake");
        pair.take();
        assert!(pair.reader.sleep());
        assert!(!pair.reader.is_awake() && !pair.reader.is_busy());
        assert!(!pair.reader.waits_for_wake() && !pair.reader.wakes_without_record(), "nothing waits");
        pair.put(1);
        assert!(pair.reader.waits_for_wake());
        assert!(matches!(pair.reader.front(), Ok(None)), "it sleeps");
        assert!(pair.reader.wakes_without_record());
        pair.take();
    }

    #[tokio::test(flavor = "local")]
    async fn a_message_behind_the_end_came_too_late() {
        let registry = registry();
        let pair = Pair::new(&registry);
        pair.put(1);
        assert!(!pair.reader.fix_end(), "a message is left");
        pair.put(1);
        assert!(!pair.reader.fix_end());
        pair.take();
        assert!(pair.reader.fix_end());
        assert!(matches!(pair.reader.front(), Ok(None)));
    }

    #[tokio::test(flavor = "local")]
    async fn positions_go_on_in_the_next_ring() {
        let registry = registry();
        let pair = Pair::new(&registry);
        pair.put(100);
        pair.take();
        let position = pair.reader.position();
        assert!(position > 0);
        let next = OfferedMapping::new("ring", ring::WORDS).expect("memory");
        pair.reader.join(&next);
        assert_eq!((pair.reader.position(), pair.reader.tail()), (position, position));
    }

    #[tokio::test(flavor = "local")]
    async fn a_ring_is_half_free_until_messages_take_more() {
        const MESSAGE_BYTES: usize = ring::ROOM_BYTES / 16;
        let registry = registry();
        let pair = Pair::new(&registry);
        for n in 1..10 {
            pair.put(MESSAGE_BYTES);
            assert_eq!(pair.reader.is_half_free(), n < 8, "{n} messages and their headers");
        }
        pair.take();
        pair.take();
        assert!(pair.reader.is_half_free());
    }
}
