//! The memory that data of the modules on a stream is charged to: that of its association.

use std::sync::{Arc, Weak};

use ::sctp::AssociationConfig;
use streams::{Notify, StreamMemory};

/// The pools of an association.
#[derive(Debug)]
struct Pools(Arc<AssociationConfig>);

/// Returns the memory of a stream whose association has this configuration; `None` if nobody counts it.
pub(super) fn of(config: Arc<AssociationConfig>) -> Option<Arc<dyn StreamMemory>> {
    let counts = config.receive_pool.is_some() || config.send_pool.is_some();
    counts.then(|| Arc::new(Pools(config)) as Arc<dyn StreamMemory>)
}

impl StreamMemory for Pools {
    fn id(&self) -> usize {
        self.0.receive_pool.as_ref().map_or(0, |pool| pool.id())
    }

    fn take_read(&self, bytes: usize) -> bool {
        self.0.receive_pool.as_ref().is_none_or(|pool| pool.take_made(bytes))
    }

    fn release_read(&self, bytes: usize) {
        if let Some(pool) = &self.0.receive_pool {
            pool.release_made(bytes);
        }
    }

    fn charge_write(&self, bytes: usize) {
        if let Some(pool) = &self.0.send_pool {
            pool.charge_bytes(bytes);
        }
    }

    fn release_write(&self, bytes: usize) {
        if let Some(pool) = &self.0.send_pool {
            pool.release_bytes(bytes);
        }
    }

    fn when_released(&self, notify: Weak<Notify>) {
        if let Some(pool) = &self.0.receive_pool {
            pool.when_released(notify);
        }
    }
}
