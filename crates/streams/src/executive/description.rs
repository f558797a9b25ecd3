//! Descriptions of streams for display.

use crate::Executive;
use crate::head::HeadStats;
use crate::identifiers::StreamId;
use crate::queue::Queue;

/// State of a stream at one moment, from its head downward.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamDescription {
    /// Counters of the head.
    pub head: HeadStats,
    /// The queue of the head, which the program reads.
    pub head_queue: QueueDescription,
    /// The modules, from the head downward.
    pub modules: Vec<PartDescription>,
    /// The driver. Its queues are this stream's.
    pub driver: PartDescription,
}

/// A module, or the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartDescription {
    /// Its name.
    pub name: String,
    /// The read queue.
    pub read: QueueDescription,
    /// The write queue.
    pub write: QueueDescription,
    /// Counters of the module ([`Module::counts`](crate::Module::counts)).
    pub counts: Vec<(&'static str, u64)>,
}

/// State of a queue at one moment. Bytes, marks and `is_full` are those of the normal band.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueDescription {
    /// Messages of all bands.
    pub messages: usize,
    /// Bytes that count for flow control.
    pub bytes: usize,
    /// High-water mark: at or above it the queue is full.
    pub hiwat_bytes: usize,
    /// Low-water mark: a full queue has room again at or below it.
    pub lowat_bytes: usize,
    /// Whether senders must wait.
    pub is_full: bool,
}

impl QueueDescription {
    fn of(queue: &Queue) -> Self {
        let (hiwat_bytes, lowat_bytes) = queue.marks(0);
        Self {
            messages: queue.messages(),
            bytes: queue.count_bytes(0),
            hiwat_bytes,
            lowat_bytes,
            is_full: queue.has_service() && queue.is_full(0),
        }
    }
}

impl Executive {
    /// Returns the parts of a stream with their marks and counters; `None` if the stream is closed.
    pub fn describe(&self, s: StreamId) -> Option<StreamDescription> {
        let stream = self.streams.get(s)?;
        let modules = stream.visible_modules().map(|slot| PartDescription {
            name: slot.module.name().to_owned(),
            read: QueueDescription::of(&slot.queues.read),
            write: QueueDescription::of(&slot.queues.write),
            counts: slot.module.counts(),
        });
        Some(StreamDescription {
            head: stream.head.stats(),
            head_queue: QueueDescription::of(&stream.head.queue),
            modules: modules.collect(),
            driver: PartDescription {
                name: self.driver_name(stream.driver()).unwrap_or_default().to_owned(),
                read: QueueDescription::of(&stream.device().read),
                write: QueueDescription::of(&stream.device().write),
                counts: Vec::new(),
            },
        })
    }
}
