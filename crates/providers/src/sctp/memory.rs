//! The memory that data of the modules on a stream is charged to: that of its association.

use std::sync::{Arc, Weak};

use ::sctp::AssociationConfig;
use streams::{Notify, StateCharge, StreamMemory};

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

    fn take_state(&self, bytes: usize) -> Option<StateCharge> {
        match &self.0.receive_pool {
            Some(pool) => pool.charge(bytes).map(|charge| Box::new(charge) as StateCharge),
            None => Some(Box::new(())),
        }
    }

    fn count_work(&self, work: usize) {
        if let Some(pool) = &self.0.receive_pool {
            pool.count_work(work);
        }
    }

    fn when_released(&self, notify: Weak<Notify>) {
        if let Some(pool) = &self.0.receive_pool {
            pool.when_released(notify);
        }
    }
}

#[cfg(test)]
mod tests {
    use ::sctp::ReceivePool;

    use super::*;

    #[test]
    fn the_state_of_modules_takes_no_more_than_the_receive_pool_has() {
        let receive_pool = Some(ReceivePool::with_limit(10_000));
        let config = AssociationConfig { receive_pool, ..AssociationConfig::default() };
        let memory = of(Arc::new(config)).expect("the pool counts");
        let charge = memory.take_state(8192).expect("it is empty");
        assert!(memory.take_state(8192).is_none());
        drop(charge);
        assert!(memory.take_state(8192).is_some());
    }

    #[test]
    fn the_state_of_a_module_is_not_made_of_received_data() {
        let receive_pool = Some(ReceivePool::with_limit(10_000));
        let config = AssociationConfig { receive_pool, ..AssociationConfig::default() };
        let memory = of(Arc::new(config)).expect("the pool counts");
        let _charge = memory.take_state(8192).expect("it is empty");
        assert!(memory.take_read(60_000), "one message may exceed the memory while no other is unpacked");
    }
}
