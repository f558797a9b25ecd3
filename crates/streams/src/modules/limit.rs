//! A module that limits the rate of user data.

mod buckets;

use std::time::{Duration, Instant};

use super::arguments;
use crate::Errno;
use crate::identifiers::Side;
use crate::memory::StateCharge;
use crate::message::{Kind, Message, UserData};
use crate::module::{Module, ModuleInfo, Q};
use crate::queue::{QueueInfo, SERVED_MAX};
use crate::timers::TimerId;
use buckets::Buckets;

/// Limits messages and bits of user data per second, in each direction, over all streams of an association together or for each
/// stream (`limit`).
///
/// Each bucket knows when its next message may go (the generic cell rate algorithm). A bucket that is checked late may catch up
/// by [`Limit::BURST`], so the rate holds even if the executive is given the time rarely.
///
/// With a limit for each stream, messages of one stream pass those of another that wait. Primitives, such as a release, pass no
/// message and are not passed, and nothing comes between the parts of a record. While messages wait for the end of a record, the
/// primitives behind them pass them, because the end may come behind these; but a primitive after which no part comes, such as a
/// release or the report of a restart, ends the record itself.
///
/// Streams whose numbers differ by a multiple of [`Limit::STREAMS_MAX`] share a bucket. The memory of the buckets is charged when
/// the module is pushed ([`Q::charge_state`]); if there is none, all streams share one bucket.
///
/// Arguments: `bits=RATE` and `messages=RATE` per second, with k, M or G; `per-stream=yes`.
#[derive(Debug)]
pub struct Limit {
    bits_per_s: Option<f64>,
    messages_per_s: Option<f64>,
    /// Number of buckets, in each direction.
    buckets: usize,
    /// Time from which buckets count.
    epoch: Option<Instant>,
    /// Memory of the buckets.
    charge: Option<StateCharge>,
    down: Direction,
    up: Direction,
}

/// The state of one direction.
#[derive(Debug, Default)]
struct Direction {
    buckets: Buckets,
    /// The timer that runs, and when it expires.
    timer: Option<(TimerId, u64)>,
}

impl Limit {
    /// Lateness that a bucket makes up for.
    pub const BURST: Duration = Duration::from_millis(10);
    /// Number of buckets in each direction, with a limit for each stream: a peer may use 65,536 streams.
    pub const STREAMS_MAX: usize = 256;
    /// Longest time for which one message stops its bucket.
    const COST_MAX: Duration = Duration::from_secs(24 * 60 * 60);
    /// Bytes that may wait in each direction before their sender must wait.
    const HIWAT_BYTES: usize = 64 * 1024;
    /// Number of waiting messages that the queue moves in a pass for those that pass them.
    const MOVED_MAX: usize = 4096;

    /// Memory of the buckets of both directions.
    const STATE_BYTES: usize = 2 * Buckets::bytes_of(Self::STREAMS_MAX);

    /// Returns a module with a limit of bits and of messages per second, if given.
    pub fn new(bits_per_s: Option<f64>, messages_per_s: Option<f64>, per_stream: bool) -> Self {
        let buckets = if per_stream { Self::STREAMS_MAX } else { 1 };
        Self {
            bits_per_s,
            messages_per_s,
            buckets,
            epoch: None,
            charge: None,
            down: Direction::default(),
            up: Direction::default(),
        }
    }

    pub(super) fn parse(words: &[String]) -> Result<Self, String> {
        let (mut bits, mut messages, mut per_stream) = (None, None, false);
        for word in words {
            match arguments::split(word)? {
                ("bits", value) => bits = Some(arguments::rate("bits", value)?),
                ("messages", value) => messages = Some(arguments::rate("messages", value)?),
                ("per-stream", "yes") => per_stream = true,
                ("per-stream", "no") => per_stream = false,
                _ => return Err(format!("{word} is not one of bits=, messages=, per-stream=yes|no")),
            }
        }
        match (bits, messages) {
            (None, None) => Err("set bits=RATE, messages=RATE or both, such as bits=10M".into()),
            _ => Ok(Self::new(bits, messages, per_stream)),
        }
    }

    /// Returns the time that a message takes of its bucket.
    fn cost(&self, bytes: usize) -> Duration {
        let bits = self.bits_per_s.map_or(0.0, |rate| bytes as f64 * 8.0 / rate);
        let message = self.messages_per_s.map_or(0.0, |rate| 1.0 / rate);
        Duration::try_from_secs_f64(bits.max(message)).unwrap_or(Self::COST_MAX).min(Self::COST_MAX)
    }

    fn put(&mut self, q: &mut Q<'_>, m: Message) {
        if let Kind::Flush(flush) = &m.kind {
            let flush = *flush;
            q.pass(m);
            self.down.buckets.on_flush(flush.write);
            return self.up.buckets.on_flush(flush.read);
        }
        if m.kind.is_high_priority() {
            return q.putnext(m);
        }
        if !q.queue().is_empty() {
            return self.queue(q, m);
        }
        let data = m.user_data();
        if q.canputnext(m.band) && self.take(q, data, m.data.len()).is_ok() {
            if self.has_buckets() {
                self.direction(q.side()).buckets.note_record(&m);
            }
            q.putnext(m);
        } else {
            self.queue(q, m);
        }
    }

    /// Queues a message, and enables the service procedure if that may have something to do. Otherwise something will enable it
    /// for those in front.
    fn queue(&mut self, q: &mut Q<'_>, m: Message) {
        let mut is_first = q.queue().is_empty();
        if self.has_buckets() {
            self.follow(q);
            let bucket = self.bucket_of_message(&m);
            let buckets = &mut self.direction(q.side()).buckets;
            if m.band > 0 {
                // It passes those of lower bands.
                buckets.on_changed();
                is_first = true;
            } else {
                is_first |= buckets.push(bucket) || buckets.passes_held(&m);
            }
        }
        q.putq(m);
        if is_first {
            q.qenable();
        }
    }

    /// Takes a message of this many bytes out of its bucket, or returns when it may go. Only user data has a bucket.
    fn take(&mut self, q: &Q<'_>, data: Option<UserData>, bytes: usize) -> Result<(), u64> {
        let Some(data) = data else { return Ok(()) };
        let (now_ns, cost, bucket) = (self.now_ns(q), self.cost(bytes), self.bucket_of(data));
        let buckets = &mut self.direction(q.side()).buckets;
        // Lateness beyond the burst is forgotten.
        let earliest_ns = now_ns.saturating_sub(nanoseconds(Self::BURST));
        let next_ns = buckets.next_ns(bucket).max(earliest_ns);
        if next_ns > now_ns {
            return Err(next_ns);
        }
        buckets.set_next_ns(bucket, next_ns + nanoseconds(cost));
        Ok(())
    }

    /// Sends the messages that may go, some of many.
    fn serve(&mut self, q: &mut Q<'_>) {
        if self.has_buckets() {
            self.follow(q);
            self.serve_buckets(q);
        } else {
            self.serve_in_order(q);
        }
    }

    fn serve_in_order(&mut self, q: &mut Q<'_>) {
        for _ in 0..SERVED_MAX {
            if !self.send_first(q) {
                return;
            }
        }
        q.qenable();
    }

    /// Sends the first message on the queue. Returns false if there is none, or it may not go yet.
    fn send_first(&mut self, q: &mut Q<'_>) -> bool {
        let Some(m) = q.queue().front() else { return false };
        let (data, band, bytes) = (m.user_data(), m.band, m.data.len());
        if !q.canputnext(band) {
            return false;
        }
        if let Err(at_ns) = self.take(q, data, bytes) {
            self.wake_at(q, at_ns);
            return false;
        }
        let Some(m) = q.getq() else { return false };
        q.putnext(m);
        true
    }

    /// Sends the messages whose buckets are free, in the order of the queue. A waiting message holds up its own bucket only.
    fn serve_buckets(&mut self, q: &mut Q<'_>) {
        let now_ns = self.now_ns(q);
        self.direction(q.side()).buckets.begin_pass(now_ns);
        let mut moved_in_pass = 0;
        for sent in 0..SERVED_MAX {
            let Some(found) = self.direction(q.side()).buckets.next(q, now_ns) else {
                if sent > 0 && q.queue().len() > Buckets::PASSED_MAX {
                    // Others may be far enough in front now.
                    q.qenable();
                }
                return self.wake(q);
            };
            let Some(m) = q.queue().iter().nth(found.place) else { return };
            let (data, band, bytes) = (m.user_data(), m.band, m.data.len());
            if !q.canputnext(band) || self.take(q, data, bytes).is_err() {
                return self.wake(q);
            }
            let moved = q.queue().cost_of_rmvq(found.place);
            let Some(m) = q.rmvq(found.place) else { return };
            self.direction(q.side()).buckets.on_sent(found, &m, now_ns);
            q.putnext(m);
            moved_in_pass += moved;
            if moved_in_pass >= Self::MOVED_MAX {
                break;
            }
        }
        q.qenable();
        self.wake(q);
    }

    /// Starts the timer for the bucket that admits a message next.
    fn wake(&mut self, q: &mut Q<'_>) {
        let now_ns = self.now_ns(q);
        if let Some(at_ns) = self.direction(q.side()).buckets.wake_ns(now_ns) {
            self.wake_at(q, at_ns);
        }
    }

    fn wake_at(&mut self, q: &mut Q<'_>, at_ns: u64) {
        let after = Duration::from_nanos(at_ns.saturating_sub(self.now_ns(q)));
        let timer = &mut self.direction(q.side()).timer;
        match timer.take_if(|(_, other_ns)| *other_ns != at_ns) {
            Some((other, _)) => {
                q.untimeout(other);
            }
            None if timer.is_some() => return,
            None => {}
        }
        *timer = Some((q.timeout(after), at_ns));
    }

    /// Makes the index of the queue again if it is not that of the queue.
    fn follow(&mut self, q: &Q<'_>) {
        let mut buckets = std::mem::take(&mut self.direction(q.side()).buckets);
        buckets.follow(q.queue(), |m| self.bucket_of_message(m));
        self.direction(q.side()).buckets = buckets;
    }

    /// Returns whether there is more than one bucket.
    fn has_buckets(&self) -> bool {
        self.buckets > 1
    }

    /// Returns the bucket of user data.
    fn bucket_of(&self, data: UserData) -> usize {
        usize::from(data.stream) % self.buckets
    }

    /// Returns the bucket for which a message waits; `None` if it keeps its place among the others.
    fn bucket_of_message(&self, m: &Message) -> Option<usize> {
        m.user_data().filter(|_| m.band == 0).map(|data| self.bucket_of(data))
    }

    /// Returns the time in nanoseconds since a moment before the first message.
    fn now_ns(&mut self, q: &Q<'_>) -> u64 {
        let now = q.now();
        let epoch = *self.epoch.get_or_insert_with(|| now.checked_sub(Self::BURST).unwrap_or(now));
        nanoseconds(now.saturating_duration_since(epoch))
    }

    fn direction(&mut self, side: Side) -> &mut Direction {
        match side {
            Side::Write => &mut self.down,
            Side::Read => &mut self.up,
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Module for Limit {
    fn name(&self) -> &str {
        "limit"
    }

    fn info(&self) -> ModuleInfo {
        let served = QueueInfo::served(Self::HIWAT_BYTES, Self::HIWAT_BYTES / 2);
        ModuleInfo { read: served, write: served }
    }

    fn open(&mut self, q: &mut Q<'_>) -> Result<(), Errno> {
        // Most messages wait behind others, and a timer enables the service procedure for these.
        q.noenable();
        q.other().noenable();
        if self.has_buckets() {
            self.charge = q.charge_state(Self::STATE_BYTES);
            self.buckets = if self.charge.is_some() { self.buckets } else { 1 };
        }
        Ok(())
    }

    fn close(&mut self, _q: &mut Q<'_>) {
        self.charge = None;
    }

    fn wput(&mut self, q: &mut Q<'_>, m: Message) {
        self.put(q, m);
    }

    fn rput(&mut self, q: &mut Q<'_>, m: Message) {
        self.put(q, m);
    }

    fn wsrv(&mut self, q: &mut Q<'_>) {
        self.serve(q);
    }

    fn rsrv(&mut self, q: &mut Q<'_>) {
        self.serve(q);
    }

    fn timeout(&mut self, q: &mut Q<'_>, _timer: TimerId) {
        self.direction(q.side()).timer = None;
        self.serve(q);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::drivers::Nuls;
    use crate::{Executive, Primitive, SendInfo, Which};

    thread_local! {
        /// Number of messages on queues that were looked at.
        pub(super) static LOOKED_AT: Cell<usize> = const { Cell::new(0) };
    }

    #[test]
    fn a_pass_looks_only_at_messages_that_may_go() {
        const STREAMS: u16 = 1024;
        const MESSAGES: usize = 1900;
        let start = Instant::now();
        let mut executive = Executive::new(start);
        let driver = executive.add_driver("nuls", Box::new(Nuls));
        let s = executive.open(driver).unwrap();
        executive.push(s, Box::new(Limit::new(None, Some(1.0), true))).unwrap();
        for i in 0..MESSAGES {
            let info = SendInfo { stream: i as u16 % STREAMS, ..SendInfo::default() };
            let request = Primitive::OptdataReq { association: Which::Only, info };
            let m = Message { data: b"x"[..].into(), ..Message::proto(request) };
            executive.at(start + Duration::from_millis(i as u64 / 2)).putmsg(s, m).unwrap();
        }
        let mut at = start + Duration::from_secs(1);
        executive.at(at).close(s);
        while executive.is_busy() {
            executive.timeout(at);
            executive.at(at).run();
            at += Duration::from_millis(1);
        }
        let looked_at = LOOKED_AT.get();
        assert!((MESSAGES / 2..3 * MESSAGES).contains(&looked_at), "{looked_at} for {MESSAGES}");
    }
}
