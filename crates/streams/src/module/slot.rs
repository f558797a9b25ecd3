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
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("module", &self.module.name()).field("queues", &self.queues).finish()
    }
}
