//! A module on a stream.

use std::fmt;

use crate::module::Module;
use crate::queue::QueuePair;

/// A pushed module with its queues.
pub(crate) struct Slot {
    pub(crate) module: Box<dyn Module>,
    pub(crate) queues: QueuePair,
    /// Tells the module from earlier ones at its position.
    pub(crate) serial: u32,
    /// Whether the module observes messages.
    pub(crate) observes: bool,
    /// An anchor (`I_ANCHOR`): only a privileged user may pop the module.
    pub(crate) anchored: bool,
    /// The module was popped; the slot stays until the messages on its queues have gone on. No program sees it.
    pub(crate) popped: bool,
}

/// Stands in the place of a module that was popped, and passes everything on behind the messages that it has left.
struct Popped;

impl Module for Popped {
    fn name(&self) -> &str {
        "popped"
    }
}

impl Slot {
    /// Returns a slot for a module that was just pushed.
    pub(crate) fn new(module: Box<dyn Module>, serial: u32) -> Slot {
        let (info, observes) = (module.info(), module.observes());
        let queues = QueuePair::of_module(info.read, info.write);
        Slot { module, queues, serial, observes, anchored: false, popped: false }
    }

    /// Takes the module out, and leaves the messages on its queues to service procedures.
    pub(crate) fn take_module(&mut self, serial: u32) -> Box<dyn Module> {
        self.queues.read.begin_service();
        self.queues.write.begin_service();
        (self.serial, self.observes, self.anchored, self.popped) = (serial, false, false, true);
        std::mem::replace(&mut self.module, Box::new(Popped))
    }

    /// Returns the number of messages on both queues.
    pub(crate) fn queued(&self) -> usize {
        self.queues.read.len() + self.queues.write.len()
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("module", &self.module.name()).field("queues", &self.queues).finish()
    }
}
