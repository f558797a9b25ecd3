//! A module that limits the rate of user data.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::arguments;
use crate::Which;
use crate::identifiers::Side;
use crate::message::{Kind, Message, UserData};
use crate::module::{Module, ModuleInfo, Q};
use crate::queue::QueueInfo;
use crate::timers::TimerId;

/// Limits messages and bits of user data per second, in each direction, over all streams of an association together or for each
/// stream (`limit`).
///
/// Each bucket knows when its next message may go (the generic cell rate algorithm). A bucket that is checked late may catch up
/// by [`Limit::BURST`], so the rate holds even if the executive is given the time rarely.
///
/// With a limit for each stream, messages of one stream pass those of another that wait. Primitives, such as a release, pass no
/// message and are not passed, and nothing comes between the parts of a record.
///
/// At most [`Limit::STREAMS_MAX`] streams are limited at a time: messages of further ones wait until one of these may send.
///
/// Arguments: `bits=RATE` and `messages=RATE` per second, with k, M or G; `per-stream=yes`.
#[derive(Debug)]
pub struct Limit {
    bits_per_s: Option<f64>,
    messages_per_s: Option<f64>,
    per_stream: bool,
    down: Buckets,
    up: Buckets,
}

/// The buckets of one direction.
#[derive(Debug, Default)]
struct Buckets {
    /// The time at which the next message may go, by stream. Without a limit for each stream all use stream 0's.
    next: HashMap<u16, Instant>,
    /// The streams of records that were sent on in part, by association.
    in_record: HashMap<Which, u16>,
    timer: Option<TimerId>,
}

impl Limit {
    /// Lateness that a bucket makes up for.
    pub const BURST: Duration = Duration::from_millis(10);
    /// Number of streams that have a bucket of their own at a time, in each direction: a peer may use 65,536.
    pub const STREAMS_MAX: usize = 256;
    /// Longest time for which one message stops its bucket.
    const COST_MAX: Duration = Duration::from_secs(24 * 60 * 60);
    /// Bytes that may wait in each direction before their sender must wait.
    const HIWAT_BYTES: usize = 64 * 1024;
    /// Number of waiting messages that are searched for one whose stream may send.
    const LOOKED_AT_MAX: usize = 1024;

    /// Returns a module with a limit of bits and of messages per second, if given.
    pub fn new(bits_per_s: Option<f64>, messages_per_s: Option<f64>, per_stream: bool) -> Self {
        Self { bits_per_s, messages_per_s, per_stream, down: Buckets::default(), up: Buckets::default() }
    }

    pub(super) fn parse(words: &[String]) -> Result<Self, String> {
        let mut limit = Self::new(None, None, false);
        for word in words {
            match arguments::split(word)? {
                ("bits", value) => limit.bits_per_s = Some(arguments::rate("bits", value)?),
                ("messages", value) => limit.messages_per_s = Some(arguments::rate("messages", value)?),
                ("per-stream", "yes") => limit.per_stream = true,
                ("per-stream", "no") => limit.per_stream = false,
                _ => return Err(format!("{word} is not one of bits=, messages=, per-stream=yes|no")),
            }
        }
        match (limit.bits_per_s, limit.messages_per_s) {
            (None, None) => Err("set bits=RATE, messages=RATE or both, such as bits=10M".into()),
            _ => Ok(limit),
        }
    }

    /// Returns the time that a message takes of its bucket.
    fn cost(&self, bytes: usize) -> Duration {
        let bits = self.bits_per_s.map_or(0.0, |rate| bytes as f64 * 8.0 / rate);
        let message = self.messages_per_s.map_or(0.0, |rate| 1.0 / rate);
        Duration::try_from_secs_f64(bits.max(message)).unwrap_or(Duration::MAX)
    }

    /// Returns the stream whose bucket user data uses.
    fn bucket_of(&self, data: UserData) -> u16 {
        if self.per_stream { data.stream } else { 0 }
    }

    fn put(&mut self, q: &mut Q<'_>, m: Message) {
        if matches!(m.kind, Kind::Flush(_)) {
            return q.pass(m);
        }
        if m.kind.is_high_priority() {
            return q.putnext(m);
        }
        if q.queue().is_empty() && q.canputnext(m.band) && self.take(q, m.user_data(), m.data.len()).is_ok() {
            return q.putnext(m);
        }
        q.putq(m);
    }

    /// Takes a message of this many bytes out of its bucket, or returns when it may go. Only user data has a bucket.
    fn take(&mut self, q: &Q<'_>, data: Option<UserData>, bytes: usize) -> Result<(), Instant> {
        let Some(data) = data else { return Ok(()) };
        let (now, cost, bucket) = (q.now(), self.cost(bytes), self.bucket_of(data));
        let buckets = self.buckets(q.side());
        // Lateness beyond the burst is forgotten.
        let earliest = now.checked_sub(Self::BURST).unwrap_or(now);
        let next = buckets.next.get(&bucket).map_or(earliest, |next| (*next).max(earliest));
        if next > now {
            return Err(next);
        }
        if let Some(next) = buckets.room_at(bucket, earliest) {
            return Err(next);
        }
        buckets.next.insert(bucket, next + cost.min(Self::COST_MAX));
        match data.more {
            true => buckets.in_record.insert(data.association, data.stream),
            false => buckets.in_record.remove(&data.association),
        };
        Ok(())
    }

    /// Returns whether user data has to wait although messages behind it may go.
    fn is_held_up(&mut self, side: Side, data: UserData, blocked: &[u16]) -> bool {
        let in_record = self.buckets(side).in_record.get(&data.association);
        in_record.is_some_and(|stream| *stream != data.stream) || blocked.contains(&self.bucket_of(data))
    }

    /// Sends the messages that may go. With a bucket for each stream, a waiting message holds up its own stream only.
    fn serve(&mut self, q: &mut Q<'_>) {
        let mut place = 0;
        let mut blocked: Vec<u16> = Vec::new();
        let mut wake: Option<Instant> = None;
        while place < Self::LOOKED_AT_MAX {
            let Some(m) = q.queue().iter().nth(place) else { break };
            let (data, band, bytes) = (m.user_data(), m.band, m.data.len());
            let is_held_up = match data {
                Some(data) => self.per_stream && self.is_held_up(q.side(), data, &blocked),
                None if place == 0 => false,
                // A primitive comes behind all that was sent before it.
                None => break,
            };
            if is_held_up {
                place += 1;
                continue;
            }
            if !q.canputnext(band) {
                break;
            }
            match self.take(q, data, bytes) {
                Ok(()) => {
                    let Some(m) = q.rmvq(place) else { break };
                    q.putnext(m);
                }
                Err(next) => {
                    wake = Some(wake.map_or(next, |wake| wake.min(next)));
                    blocked.extend(data.map(|data| self.bucket_of(data)));
                    place += if self.per_stream { 1 } else { Self::LOOKED_AT_MAX };
                }
            }
        }
        if let Some(at) = wake {
            self.wake_at(q, at);
        }
    }

    fn wake_at(&mut self, q: &mut Q<'_>, at: Instant) {
        let after = at.saturating_duration_since(q.now());
        let buckets = self.buckets(q.side());
        if let Some(timer) = buckets.timer.take() {
            q.untimeout(timer);
        }
        buckets.timer = Some(q.timeout(after));
    }

    fn buckets(&mut self, side: Side) -> &mut Buckets {
        match side {
            Side::Write => &mut self.down,
            Side::Read => &mut self.up,
        }
    }
}

impl Buckets {
    /// Returns when there is room for this bucket; `None`: now.
    fn room_at(&mut self, bucket: u16, earliest: Instant) -> Option<Instant> {
        let is_full = |next: &HashMap<_, _>| next.len() >= Limit::STREAMS_MAX && !next.contains_key(&bucket);
        if is_full(&self.next) {
            // A bucket whose message may go as early as that of a new one says nothing.
            self.next.retain(|_, next| *next > earliest);
        }
        let first = is_full(&self.next).then(|| self.next.values().min().copied())?;
        first.map(|next| next + Limit::BURST)
    }
}

impl Module for Limit {
    fn name(&self) -> &str {
        "limit"
    }

    fn info(&self) -> ModuleInfo {
        let served = QueueInfo::served(Self::HIWAT_BYTES, Self::HIWAT_BYTES / 2);
        ModuleInfo { read: served, write: served }
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
        self.buckets(q.side()).timer = None;
        self.serve(q);
    }
}
