//! Messages that have no TSN yet, in the order in which they will get one.
//!
//! A stream scheduler (RFC 8260 §3) belongs here: it selects the next message. This one serves streams in the order of
//! arrival. The fragments of a message stay together, because their TSNs must be consecutive (RFC 9260 §6.9).
//!
//! Short messages wait in wire form ([`Short`]), longer ones as blocks.

use std::collections::VecDeque;

use bytes::Bytes;
use sctp_message::{PathId, SendInfo};

use super::blocks::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, Block, FreeBlocks, SpentBlocks};
use super::message::Message;
#[cfg(feature = "testing")]
use super::run::Taken;
use super::run::{Run, wire_bytes};
use super::short::{NewChunks, NextSsn, RunLimits, Short};
use crate::send_pool::{BlockCharge, SendPool};
use crate::time::Time;

#[derive(Debug)]
pub(super) enum Waiting {
    Short(Short),
    Message(Message),
}

/// The message that is sent next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Next {
    pub(super) payload_bytes: usize,
    /// The message is short, and lies in wire form.
    pub(super) is_short: bool,
}

#[derive(Debug, Default)]
pub(super) struct Pending {
    queue: VecDeque<Waiting>,
    /// The short messages behind the queue.
    tail: Short,
    /// Memory that is charged for blocks.
    pool: Option<SendPool>,
    /// Size of their block.
    block_bytes: usize,
    spent: SpentBlocks,
    /// Wire bytes of all messages, as if none were fragmented.
    wire_bytes: usize,
    /// Number of entries that have left the queue.
    gone: u64,
    /// Lifetimes of messages that have not begun to be sent, in the order of the queue.
    expiries: VecDeque<Expiry>,
}

#[derive(Debug)]
struct Expiry {
    /// Index of the message's entry among all that were ever queued.
    before: u64,
    at: Time,
}

impl Pending {
    pub(super) fn new(pool: Option<SendPool>) -> Self {
        Pending { pool, ..Pending::default() }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.tail.messages == 0 && self.queue.is_empty()
    }

    #[inline]
    pub(super) fn wire_bytes(&self) -> usize {
        self.wire_bytes
    }

    /// Queues a short message. `buffered_bytes` are those of the association.
    #[inline]
    pub(super) fn push_short<B: AsRef<[u8]>>(
        &mut self,
        info: &SendInfo,
        bytes: usize,
        blocks: impl IntoIterator<Item = B>,
        buffered_bytes: usize,
        free: &mut FreeBlocks,
    ) {
        let wire = wire_bytes(bytes);
        let (context, path) = (info.context, info.path);
        let joins = self.tail.context == context && self.tail.path == path;
        if !joins || self.tail.wire.capacity() - self.tail.wire.len() < wire {
            self.begin_short(context, path, wire, buffered_bytes, free);
        }
        self.wire_bytes += wire;
        self.tail.push(info, bytes, blocks);
    }

    /// Copies the bytes of the message that is pushed next into the block for short messages. Returns them with the charge of the
    /// block.
    pub(super) fn copy(
        &mut self,
        bytes: &[u8],
        buffered_bytes: usize,
        free: &mut FreeBlocks,
    ) -> (Bytes, Option<BlockCharge>) {
        self.close_tail();
        if self.tail.wire.capacity() < bytes.len() {
            let (context, path) = (self.tail.context, self.tail.path);
            self.begin_short(context, path, bytes.len(), buffered_bytes, free);
        }
        self.tail.wire.extend_from_slice(bytes);
        (self.tail.wire.split().freeze(), self.tail.charge.clone())
    }

    /// Lends the short messages behind the queue, and their block. Until they return, nothing else may be done with the queue.
    #[inline]
    pub(super) fn lend_tail(&mut self) -> Short {
        std::mem::take(&mut self.tail)
    }

    /// Takes the short messages behind the queue back, longer by `appended_bytes`.
    #[inline]
    pub(super) fn return_tail(&mut self, tail: Short, appended_bytes: usize) {
        self.wire_bytes += appended_bytes;
        self.tail = tail;
    }

    /// Queues short messages that were written elsewhere.
    pub(super) fn push_batch(&mut self, mut short: Short) {
        self.close_tail();
        if short.charge.is_none() {
            short.charge = self.pool.as_ref().map(|pool| pool.charge(short.wire.len()));
        }
        self.wire_bytes += short.wire.len();
        self.queue.push_back(Waiting::Short(short));
    }

    /// Exchanges a block that is used up for one of at least `bytes`, which is charged.
    #[cold]
    pub(super) fn exchange_block(&mut self, spent: Block, bytes: usize, free: &mut FreeBlocks) -> Block {
        self.spent.push(spent);
        if let Some(block) = self.spent.take(bytes, free) {
            return block;
        }
        let mut block = free.take(bytes).unwrap_or_else(|| Block::allocate(bytes));
        // The smallest block waits for the next message in every association, so that only larger ones are charged.
        let pool = self.pool.as_ref().filter(|_| block.bytes > BLOCK_BYTES_MIN);
        block.charge = pool.map(|pool| pool.charge(block.bytes));
        block
    }

    /// Closes the tail and begins another one with room for `wire` bytes.
    #[cold]
    fn begin_short(
        &mut self,
        context: u32,
        path: Option<PathId>,
        wire: usize,
        buffered_bytes: usize,
        free: &mut FreeBlocks,
    ) {
        self.close_tail();
        (self.tail.context, self.tail.path) = (context, path);
        if !self.tail.wire.try_reclaim(wire) {
            let bytes = buffered_bytes.clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX).next_power_of_two();
            let spent = self.take_block();
            let block = self.exchange_block(spent, bytes.max(wire), free);
            self.set_block(block);
        }
    }

    fn take_block(&mut self) -> Block {
        Block {
            wire: std::mem::take(&mut self.tail.wire),
            charge: self.tail.charge.take(),
            bytes: std::mem::take(&mut self.block_bytes),
        }
    }

    fn set_block(&mut self, block: Block) {
        (self.tail.wire, self.tail.charge, self.block_bytes) = (block.wire, block.charge, block.bytes);
    }

    /// Moves the tail into the queue. The rest of its block stays.
    #[inline]
    fn close_tail(&mut self) {
        let Short { messages, context, path, .. } = self.tail;
        if messages > 0 {
            let (wire, charge) = (self.tail.wire.split(), self.tail.charge.clone());
            self.queue.push_back(Waiting::Short(Short { wire, charge, messages, context, path }));
            self.tail.messages = 0;
        }
    }

    /// Frees the block for short messages. The caller has seen that nothing waits.
    #[inline]
    pub(super) fn free_block(&mut self) {
        drop(self.take_block());
    }

    /// Gives the blocks for short messages away, except for one of the smallest size, which the next message needs. The caller
    /// has seen that nothing waits or is outstanding.
    #[inline]
    pub(super) fn give_blocks(&mut self, free: &mut FreeBlocks) {
        if self.block_bytes > BLOCK_BYTES_MIN || !self.spent.is_empty() {
            self.give_blocks_away(free);
        }
    }

    #[cold]
    fn give_blocks_away(&mut self, free: &mut FreeBlocks) {
        let smallest = self.spent.give_all(free);
        if self.block_bytes > BLOCK_BYTES_MIN {
            free.give(self.take_block());
            self.set_block(smallest.unwrap_or_default());
        }
    }

    #[inline]
    pub(super) fn push(&mut self, message: Message) {
        self.close_tail();
        self.wire_bytes += message.wire_bytes();
        self.queue.push_back(Waiting::Message(message));
    }

    /// Sets the end of the lifetime of the message that is pushed next.
    #[cold]
    pub(super) fn expect_expiry(&mut self, at: Time) {
        self.close_tail();
        self.expiries.push_back(Expiry { before: self.gone.wrapping_add(self.queue.len() as u64), at });
    }

    /// Returns when the lifetime of the next message ends.
    #[inline]
    pub(super) fn expires_at(&self) -> Option<Time> {
        self.expiries.front().filter(|expiry| expiry.before == self.gone).map(|expiry| expiry.at)
    }

    /// Drops the lifetime of the next message, because a part of it is sent.
    #[cold]
    fn forget_expiry(&mut self) {
        if self.expires_at().is_some() {
            self.expiries.pop_front();
        }
    }

    /// Removes up to `limit` messages at the front whose lifetime has ended. With `keeps` they stay and lose their lifetimes.
    pub(super) fn take_expired(&mut self, now: Time, keeps: bool, limit: usize) -> Vec<Message> {
        let (mut expired, mut left) = (Vec::new(), limit);
        while left > 0 && self.expires_at().is_some_and(|at| at <= now) {
            left -= 1;
            self.expiries.pop_front();
            let mut goes_on = !keeps;
            while goes_on && let Some(message) = self.pop_message() {
                goes_on = !message.flags.ending;
                expired.push(message);
            }
        }
        expired
    }

    /// Removes the first entry if it is a message of its own.
    fn pop_message(&mut self) -> Option<Message> {
        let Some(Waiting::Message(_)) = self.queue.front() else { return None };
        let Some(Waiting::Message(message)) = self.queue.pop_front() else { return None };
        self.gone = self.gone.wrapping_add(1);
        self.wire_bytes -= message.wire_bytes();
        Some(message)
    }

    /// Returns the message that is sent next.
    #[inline]
    pub(super) fn next(&self) -> Option<Next> {
        let short = match self.queue.front() {
            Some(Waiting::Message(message)) => {
                return Some(Next { payload_bytes: message.payload.len(), is_short: false });
            }
            Some(Waiting::Short(short)) => short,
            None => &self.tail,
        };
        short.first().map(|header| Next { payload_bytes: header.payload_bytes, is_short: true })
    }

    /// Returns the path that the next message names.
    #[inline]
    pub(super) fn named_path(&self) -> Option<PathId> {
        match self.queue.front() {
            Some(Waiting::Message(message)) => message.path,
            Some(Waiting::Short(short)) => short.path,
            None if self.tail.messages > 0 => self.tail.path,
            None => None,
        }
    }

    /// Removes as many short messages from the front as fit, as a run from TSN `first` on.
    #[inline]
    pub(super) fn take_short(
        &mut self,
        first: u64,
        mut limits: RunLimits,
        ssn: &mut NextSsn,
    ) -> Option<(Run, NewChunks)> {
        limits.immediate &= self.queue.len() + usize::from(self.tail.messages > 0) == 1;
        let taken = match self.queue.front_mut() {
            Some(Waiting::Message(_)) => None,
            Some(Waiting::Short(short)) => {
                let taken = short.take(first, &limits, ssn);
                if short.messages == 0 {
                    self.queue.pop_front();
                    self.gone = self.gone.wrapping_add(1);
                }
                taken
            }
            None => self.tail.take(first, &limits, ssn),
        }?;
        self.wire_bytes -= taken.0.wire_bytes();
        Some(taken)
    }

    /// Takes the first message out of the short ones, so that it can be fragmented.
    pub(super) fn separate_first(&mut self) {
        let message = match self.queue.front_mut() {
            Some(Waiting::Message(_)) => None,
            Some(Waiting::Short(short)) => {
                let message = Message::take_first(short);
                if short.messages == 0 {
                    self.queue.pop_front();
                } else {
                    // One entry becomes two; those behind them keep their indices.
                    self.gone = self.gone.wrapping_sub(1);
                }
                message
            }
            None => Message::take_first(&mut self.tail),
        };
        if let Some(message) = message {
            self.queue.push_front(Waiting::Message(message));
        }
    }

    /// Removes the message at the front, or its first `payload_bytes`, as a run of one chunk. With `immediate`, the last chunk of
    /// all asks for a SACK at once; in a record that continues, the bit also says that the reader need not wait for more.
    #[inline]
    pub(super) fn take(
        &mut self,
        payload_bytes: usize,
        first: u64,
        immediate: bool,
        ssn: &mut NextSsn,
    ) -> Option<(Run, NewChunks)> {
        if !self.expiries.is_empty() {
            self.forget_expiry();
        }
        let Some(Waiting::Message(front)) = self.queue.front_mut() else { return None };
        let whole = front.wire_bytes();
        let message = if payload_bytes >= front.payload.len() {
            let mut message = self.pop_message()?;
            message.flags.immediate |= self.is_empty() && (immediate || !message.flags.ending);
            message
        } else {
            let piece = front.split_front(payload_bytes);
            self.wire_bytes = self.wire_bytes + front.wire_bytes() - whole;
            piece
        };
        let flags = message.flags;
        let new = NewChunks {
            unordered: u64::from(flags.unordered),
            fragmented: u64::from(flags.beginning & !flags.ending),
            immediate: flags.immediate,
        };
        let ssn = ssn.take(flags, message.stream);
        Some((message.into_run(first, ssn), new))
    }

    /// Removes the messages that name this stream or a higher one.
    pub(super) fn take_streams_from(&mut self, stream: u16) -> Vec<Message> {
        let any = |short: &Short| short.iter().any(|(header, _)| header.stream.0 >= stream);
        let queued = self.queue.iter().any(|waiting| match waiting {
            Waiting::Short(short) => any(short),
            Waiting::Message(message) => message.stream.0 >= stream,
        });
        if !queued && !any(&self.tail) {
            return Vec::new();
        }
        self.close_tail();
        let mut taken = Vec::new();
        let mut expiries = std::mem::take(&mut self.expiries).into_iter().peekable();
        for (at, waiting) in std::mem::take(&mut self.queue).into_iter().enumerate() {
            let expiry = expiries.next_if(|expiry| expiry.before == self.gone.wrapping_add(at as u64));
            match waiting {
                Waiting::Message(message) if message.stream.0 >= stream => taken.push(message),
                Waiting::Short(mut short) if any(&short) => {
                    while let Some(message) = Message::take_first(&mut short) {
                        match message.stream.0 >= stream {
                            true => taken.push(message),
                            false => self.queue.push_back(Waiting::Message(message)),
                        }
                    }
                }
                waiting => {
                    let before = self.gone.wrapping_add(self.queue.len() as u64);
                    self.expiries.extend(expiry.map(|expiry| Expiry { before, ..expiry }));
                    self.queue.push_back(waiting);
                }
            }
        }
        self.wire_bytes -= taken.iter().map(Message::wire_bytes).sum::<usize>();
        taken
    }

    /// Returns everything that waits, in order.
    pub(super) fn into_queue(mut self) -> VecDeque<Waiting> {
        if self.tail.messages > 0 {
            self.queue.push_back(Waiting::Short(self.tail));
        }
        self.queue
    }

    /// Returns what everything that waits takes, and its wire bytes; for tests.
    #[cfg(feature = "testing")]
    pub(super) fn recount(&self) -> (Taken, usize) {
        let of_short = |short: &Short| {
            let taken = Taken { buffered_bytes: short.buffered_bytes(), owned_bytes: 0 };
            (taken, short.wire.len())
        };
        let queued = self.queue.iter().map(|waiting| match waiting {
            Waiting::Short(short) => of_short(short),
            Waiting::Message(message) => (message.taken(), message.wire_bytes()),
        });
        queued.fold(of_short(&self.tail), |mut sum, entry| {
            sum.0 += entry.0;
            (sum.0, sum.1 + entry.1)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDE: RunLimits = RunLimits {
        wire_bytes: usize::MAX,
        window_bytes: usize::MAX,
        payload_bytes_max: usize::MAX,
        chunks: usize::MAX,
        immediate: false,
    };

    fn queue(pending: &mut Pending, info: &SendInfo, payload: &[u8]) {
        pending.push_short(info, payload.len(), [payload], 0, &mut FreeBlocks::default());
    }

    fn take(pending: &mut Pending, limits: RunLimits) -> Option<(u32, usize)> {
        let run = pending.take_short(1, limits, &mut NextSsn::default())?.0;
        Some((run.chunks, run.payload_bytes))
    }

    #[test]
    fn a_run_ends_where_path_or_context_change() {
        let mut pending = Pending::default();
        let plain = SendInfo::default();
        let context = SendInfo { context: 1, ..plain };
        let path = SendInfo { path: Some(PathId(1)), ..context };
        for info in [plain, plain, context, path, path, path] {
            queue(&mut pending, &info, b"abc");
        }
        assert_eq!(pending.wire_bytes(), 6 * 20);
        let runs: Vec<_> = std::iter::from_fn(|| {
            let path = pending.named_path();
            take(&mut pending, WIDE).map(|run| (run, path))
        })
        .collect();
        assert_eq!(runs, [((2, 6), None), ((1, 3), None), ((3, 9), Some(PathId(1)))]);
        assert!(pending.is_empty() && pending.wire_bytes() == 0);
    }

    #[test]
    fn a_run_takes_no_more_than_packet_window_and_count_allow() {
        for (limits, expected) in [
            (RunLimits { wire_bytes: 59, ..WIDE }, Some((2, 6))),
            (RunLimits { window_bytes: 8, ..WIDE }, Some((2, 6))),
            (RunLimits { chunks: 1, ..WIDE }, Some((1, 3))),
            (RunLimits { payload_bytes_max: 2, ..WIDE }, None),
            (RunLimits { wire_bytes: 19, ..WIDE }, None),
            (WIDE, Some((3, 9))),
        ] {
            let mut pending = Pending::default();
            (0..3).for_each(|_| queue(&mut pending, &SendInfo::default(), b"abc"));
            assert_eq!(take(&mut pending, limits), expected, "{limits:?}");
        }
    }

    #[test]
    fn only_the_last_of_all_that_wait_asks_for_its_sack() {
        let asks = RunLimits { immediate: true, ..WIDE };
        let mut pending = Pending::default();
        queue(&mut pending, &SendInfo::default(), b"abc");
        queue(&mut pending, &SendInfo { context: 1, ..SendInfo::default() }, b"abc");
        let immediate = |pending: &mut Pending| {
            pending.take_short(1, asks, &mut NextSsn::default()).map(|(_, new)| new.immediate)
        };
        assert_eq!(immediate(&mut pending), Some(false));
        assert_eq!(immediate(&mut pending), Some(true));
    }

    #[test]
    fn a_short_message_that_is_cut_keeps_its_place_and_the_lifetimes_of_others() {
        let mut pending = Pending::default();
        let later = Time::ZERO + std::time::Duration::from_secs(1);
        for n in 0..2 {
            queue(&mut pending, &SendInfo::default(), &[n; 10]);
        }
        pending.expect_expiry(later);
        let mut mortal = Message::new(Bytes::from_static(b"mortal"), &SendInfo::default(), true);
        mortal.end(&SendInfo::default());
        pending.push(mortal);
        let mut ssn = NextSsn::default();
        for n in 0..2 {
            assert_eq!(pending.expires_at(), None);
            pending.separate_first();
            let (front, new) = pending.take(4, 1, false, &mut ssn).unwrap();
            assert_eq!((front.body, new.fragmented), (Bytes::from(vec![n; 4]), 1));
            let (rest, _) = pending.take(10, 2, false, &mut ssn).unwrap();
            assert_eq!(rest.body, vec![n; 6]);
            assert_eq!(rest.charged, 1);
        }
        assert_eq!(pending.expires_at(), Some(later));
        assert_eq!(pending.take_expired(later, false, 9).len(), 1);
        assert!(pending.is_empty() && pending.wire_bytes() == 0);
    }

    #[test]
    fn taking_the_messages_of_some_streams_keeps_order_and_lifetimes_of_the_others() {
        let mut pending = Pending::default();
        let at = |seconds| Time::ZERO + std::time::Duration::from_secs(seconds);
        let on = |stream| SendInfo { stream, ..SendInfo::default() };
        let mortal = |pending: &mut Pending, stream, seconds| {
            pending.expect_expiry(at(seconds));
            let mut message = Message::new(Bytes::from_static(b"mortal"), &on(stream), true);
            message.end(&on(stream));
            pending.push(message);
        };
        for stream in [2, 1, 3, 0] {
            queue(&mut pending, &on(stream), &[stream as u8; 4]);
        }
        mortal(&mut pending, 2, 1);
        mortal(&mut pending, 1, 2);
        queue(&mut pending, &on(0), b"tail");
        let streams = |messages: Vec<Message>| messages.iter().map(|m| m.stream.0).collect::<Vec<_>>();
        assert_eq!(streams(pending.take_streams_from(4)), []);
        assert_eq!(streams(pending.take_streams_from(2)), [2, 3, 2]);
        assert_eq!(pending.wire_bytes(), 3 * 20 + 24);
        for stream in [1, 0] {
            assert_eq!(pending.expires_at(), None);
            let (run, _) = pending.take(9, 1, false, &mut NextSsn::default()).unwrap();
            assert_eq!(run.body, vec![stream; 4]);
        }
        assert_eq!(pending.expires_at(), Some(at(2)));
        assert_eq!(streams(pending.take_expired(at(2), false, 9)), [1]);
        assert_eq!(take(&mut pending, WIDE), Some((1, 4)));
        assert!(pending.is_empty() && pending.wire_bytes() == 0);
    }

    #[test]
    fn the_parts_of_a_message_that_is_cut_keep_the_charge_of_its_block() {
        let pool = SendPool::with_limit(1 << 20);
        let free_bytes = || pool.buffer_bytes_max();
        let before = free_bytes();
        let mut pending = Pending::new(Some(pool.clone()));
        pending.push_short(&SendInfo::default(), 2000, [&[7; 2000][..]], 100_000, &mut FreeBlocks::default());
        pending.separate_first();
        let mut ssn = NextSsn::default();
        let runs = [1000, 1000].map(|bytes| pending.take(bytes, 1, false, &mut ssn).expect("a part").0);
        pending.free_block();
        drop(pending);
        assert!(free_bytes() < before, "the block exists");
        let [first, second] = runs;
        drop(first);
        assert!(free_bytes() < before, "the block exists");
        drop(second);
        assert_eq!(free_bytes(), before);
    }

    /// Queues messages until their blocks have this size together, and takes them as runs of one message.
    fn fill(pending: &mut Pending, buffered_bytes: usize, free: &mut FreeBlocks) -> Vec<Run> {
        let (message, limits) = ([7; 1000], RunLimits { chunks: 1, ..WIDE });
        let mut runs = Vec::new();
        for n in 0..buffered_bytes / 1000 {
            pending.push_short(&SendInfo::default(), 1000, [&message[..]], 1000 * n, free);
            runs.extend(pending.take_short(1, limits, &mut NextSsn::default()).map(|(run, _)| run));
        }
        runs
    }

    /// Returns the addresses of the messages.
    fn places(runs: &[Run]) -> Vec<*const u8> {
        runs.iter().map(|run| run.body.as_ptr()).collect()
    }

    #[test]
    fn blocks_are_used_again_when_their_messages_are_acknowledged() {
        let (mut pending, mut free) = (Pending::default(), FreeBlocks::default());
        let runs = fill(&mut pending, 1_000_000, &mut free);
        let before = places(&runs);
        drop(runs);
        let after = places(&fill(&mut pending, 900_000, &mut free));
        let of_large_blocks = &after[2 * BLOCK_BYTES_MAX / 1000..];
        assert!(of_large_blocks.iter().all(|place| before.contains(place)));
    }

    #[test]
    fn blocks_are_used_again_after_all_messages_were_acknowledged() {
        let (mut pending, mut free) = (Pending::default(), FreeBlocks::default());
        let [_, second, third] = [0; 3].map(|_| {
            let places = places(&fill(&mut pending, 60_000, &mut free));
            pending.give_blocks(&mut free);
            assert_eq!(pending.tail.wire.capacity(), BLOCK_BYTES_MIN);
            places
        });
        assert_eq!(second, third);
    }

    #[test]
    fn a_block_that_is_not_of_the_smallest_size_is_given_away_when_nothing_waits() {
        for (buffered_bytes, kept) in [(0, true), (100_000, false)] {
            let (mut pending, mut free) = (Pending::default(), FreeBlocks::default());
            pending.push_short(&SendInfo::default(), 3, [b"abc".as_slice()], buffered_bytes, &mut free);
            take(&mut pending, WIDE);
            pending.give_blocks(&mut free);
            assert_eq!(pending.tail.wire.capacity() > 0, kept, "{buffered_bytes}");
            assert_eq!(free.take(BLOCK_BYTES_MAX).is_some(), !kept);
            pending.free_block();
            assert_eq!(pending.tail.wire.capacity(), 0);
        }
    }

    #[test]
    fn the_pool_is_charged_for_a_block_until_it_is_given_away() {
        let pool = SendPool::with_limit(64 << 20);
        let free_bytes = || pool.buffer_bytes_max();
        let before = free_bytes();
        let (mut pending, mut free) = (Pending::new(Some(pool.clone())), FreeBlocks::default());
        for _ in 0..3 {
            let runs = fill(&mut pending, 1_000_000, &mut free);
            let charged = before - free_bytes();
            assert!((1_000_000..1_300_000).contains(&charged), "{charged}");
            drop(runs);
            pending.give_blocks(&mut free);
            assert_eq!(free_bytes(), before);
        }
    }
}
