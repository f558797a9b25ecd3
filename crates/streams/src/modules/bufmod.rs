//! A module that queues every message.

use crate::message::{Kind, Message};
use crate::module::{Module, ModuleInfo, Q};
use crate::queue::QueueInfo;

/// Queues every message and sends it on from its service procedures (`bufmod`): a buffer of a given size in each direction, with
/// flow control.
#[derive(Clone, Copy, Debug)]
pub struct BufMod {
    info: ModuleInfo,
}

impl BufMod {
    /// Default size of the buffer.
    const HIWAT_BYTES: usize = 64 * 1024;

    /// Returns a buffer of this many bytes in each direction; the low-water mark is a quarter.
    pub fn new(hiwat_bytes: usize) -> Self {
        let served = QueueInfo::served(hiwat_bytes, hiwat_bytes / 4);
        Self { info: ModuleInfo { read: served, write: served } }
    }

    fn put(q: &mut Q<'_>, m: Message) {
        match m.kind {
            Kind::Flush(_) => q.pass(m),
            _ if m.kind.is_high_priority() => q.putnext(m),
            _ => q.putq(m),
        }
    }
}

impl Default for BufMod {
    fn default() -> Self {
        Self::new(Self::HIWAT_BYTES)
    }
}

impl Module for BufMod {
    fn name(&self) -> &str {
        "bufmod"
    }

    fn info(&self) -> ModuleInfo {
        self.info
    }

    fn wput(&mut self, q: &mut Q<'_>, m: Message) {
        Self::put(q, m);
    }

    fn rput(&mut self, q: &mut Q<'_>, m: Message) {
        Self::put(q, m);
    }
}
