//! A module that counts messages and bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::identifiers::Side;
use crate::message::{Message, Seen};
use crate::module::{Module, Q};
use crate::{Chain, Kind};

/// Counts messages and bytes in both directions and passes everything on.
///
/// The counters can be read through [`Counter::counts`] while the module is pushed, or with [`Counter::GET_COUNTS`].
#[derive(Debug, Default)]
pub struct Counter {
    counts: Arc<Counts>,
}

/// Counters of a [`Counter`].
#[derive(Debug, Default)]
pub struct Counts {
    messages_down: AtomicU64,
    bytes_down: AtomicU64,
    messages_up: AtomicU64,
    bytes_up: AtomicU64,
}

impl Counts {
    /// Returns the number of messages that went down.
    pub fn messages_down(&self) -> u64 {
        self.messages_down.load(Ordering::Relaxed)
    }

    /// Returns the bytes of data that went down.
    pub fn bytes_down(&self) -> u64 {
        self.bytes_down.load(Ordering::Relaxed)
    }

    /// Returns the number of messages that went up.
    pub fn messages_up(&self) -> u64 {
        self.messages_up.load(Ordering::Relaxed)
    }

    /// Returns the bytes of data that went up.
    pub fn bytes_up(&self) -> u64 {
        self.bytes_up.load(Ordering::Relaxed)
    }

    /// Encodes the four counters in native byte order: messages and bytes down, messages and bytes up.
    fn encode(&self) -> Vec<u8> {
        [self.messages_down(), self.bytes_down(), self.messages_up(), self.bytes_up()]
            .iter()
            .flat_map(|count| count.to_ne_bytes())
            .collect()
    }
}

impl Counter {
    /// Ioctl that returns four 64-bit counters in native byte order: messages and bytes down, messages and bytes up. Its messages
    /// are counted in neither direction.
    pub const GET_COUNTS: u32 = 0x434e_5401;

    /// Returns a counter at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the counters, which can be read while the module is pushed.
    pub fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }

    fn count(&self, side: Side, bytes: usize) {
        let (messages, all_bytes) = match side {
            Side::Write => (&self.counts.messages_down, &self.counts.bytes_down),
            Side::Read => (&self.counts.messages_up, &self.counts.bytes_up),
        };
        add(messages, 1);
        add(all_bytes, bytes as u64);
    }
}

/// Adds without a locked instruction: only the module writes, under the perimeter of its stream.
#[inline]
fn add(count: &AtomicU64, n: u64) {
    count.store(count.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

impl Module for Counter {
    fn name(&self) -> &str {
        "counter"
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        let counts = &self.counts;
        vec![
            ("messages down", counts.messages_down()),
            ("bytes down", counts.bytes_down()),
            ("messages up", counts.messages_up()),
            ("bytes up", counts.bytes_up()),
        ]
    }

    fn observes(&self) -> bool {
        true
    }

    fn observe(&mut self, side: Side, _now: Instant, m: &Seen<'_>) -> bool {
        if matches!(m.kind, Kind::Ioctl(_)) {
            return false;
        }
        self.count(side, m.len());
        true
    }

    fn wput(&mut self, q: &mut Q<'_>, m: Message) {
        if let Kind::Ioctl(ioctl) = &m.kind
            && ioctl.command == Self::GET_COUNTS
        {
            return q.ack(ioctl, 0, Chain::from(self.counts.encode()));
        }
        self.count(Side::Write, m.data.len());
        q.pass(m);
    }

    fn rput(&mut self, q: &mut Q<'_>, m: Message) {
        self.count(Side::Read, m.data.len());
        q.pass(m);
    }
}
