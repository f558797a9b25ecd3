//! The executive: the drivers and streams of one perimeter.

mod control;
mod fault;
mod plumbing;
mod polling;
mod read;
mod run;
mod write;

pub use control::IoctlReply;
pub use read::Select;

use crate::driver::{Cx, Driver, DriverId};
use crate::error::{OpenError, WriteError};
use crate::head::HeadStats;
use crate::module::give_credit;
use crate::stream::{StreamId, Streams};
use std::any::Any;
use std::fmt;

/// The drivers and streams of one perimeter.
///
/// All operations run on the caller's thread and return at once. What is left to do afterwards stands in two lists:
/// service procedures, which [`Executive::run`] runs, and wake-ups, which [`Executive::take_wakeups`] hands over.
#[derive(Default)]
pub struct Executive {
    drivers: Vec<Box<dyn Driver>>,
    names: Vec<String>,
    streams: Streams,
}

impl fmt::Debug for Executive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executive").field("drivers", &self.names).field("streams", &self.streams).finish()
    }
}

impl Executive {
    /// How many modules one stream may have.
    pub const MODULES_MAX: usize = 64;

    /// An executive without drivers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a driver under a name.
    pub fn add_driver(&mut self, name: impl Into<String>, driver: Box<dyn Driver>) -> DriverId {
        self.drivers.push(driver);
        self.names.push(name.into());
        DriverId(self.drivers.len() - 1)
    }

    /// The driver with this name.
    pub fn driver_named(&self, name: &str) -> Option<DriverId> {
        self.names.iter().position(|n| n == name).map(DriverId)
    }

    /// A driver.
    ///
    /// # Panics
    ///
    /// If `id` comes from another executive.
    pub fn driver_mut(&mut self, id: DriverId) -> &mut dyn Driver {
        &mut *self.drivers[id.0]
    }

    /// Calls a driver's own operation together with a [`Cx`], and delivers what it sends. `None`: the driver is not a `D`.
    pub fn with_driver<D: Driver, R>(
        &mut self,
        id: DriverId,
        f: impl FnOnce(&mut D, &mut Cx<'_>) -> R,
    ) -> Option<R> {
        let driver: &mut dyn Any = &mut **self.drivers.get_mut(id.0)?;
        let result = f(driver.downcast_mut()?, &mut Cx::new(&mut self.streams));
        self.settle();
        Some(result)
    }

    /// Opens a stream to a driver.
    ///
    /// # Errors
    ///
    /// There is no such driver, or it refuses.
    pub fn open(&mut self, driver: DriverId) -> Result<StreamId, OpenError> {
        let device = self.drivers.get_mut(driver.0).ok_or(OpenError::NoDriver)?;
        let s = self.streams.insert(driver, &device.info());
        let opened = device.open(&mut Cx::new(&mut self.streams), s);
        if let Err(errno) = opened {
            self.streams.remove(s);
            return Err(OpenError::Driver(errno));
        }
        self.settle();
        Ok(s)
    }

    /// Closes a stream: sends what was coalesced, pops its modules, gives the credit of what nobody has read back, and
    /// lets the driver end what it has to. Closing a stream that is closed does nothing.
    pub fn close(&mut self, s: StreamId) {
        // What was written has been taken, so a full driver must take it now; what it leaves on its queues is lost.
        if self.flush_head(s) == Err(WriteError::WouldBlock) {
            self.send_coalesced(s);
        }
        while self.pop(s).is_ok() {}
        let Some((stream, scheduler)) = self.streams.parts(s) else { return };
        while let Some(m) = stream.head.queue.getq() {
            give_credit(s, &m, scheduler);
        }
        self.settle();
        let Some(stream) = self.streams.get(s) else { return };
        let driver = &mut self.drivers[stream.driver.0];
        driver.close(&mut Cx::new(&mut self.streams), s);
        if let Some(mut stream) = self.streams.remove(s) {
            stream.head.coalesced.clear(&mut self.streams.pool);
        }
        self.settle();
    }

    /// Whether this stream is open.
    pub fn is_open(&self, s: StreamId) -> bool {
        self.streams.get(s).is_some()
    }

    /// The driver of a stream.
    pub fn driver_of(&self, s: StreamId) -> Option<DriverId> {
        Some(self.streams.get(s)?.driver)
    }

    /// The open streams.
    pub fn streams(&self) -> impl Iterator<Item = StreamId> {
        self.streams.iter().map(|(s, _)| s)
    }

    /// What the head of a stream has counted.
    pub fn head_stats(&self, s: StreamId) -> Option<HeadStats> {
        Some(self.streams.get(s)?.head.stats)
    }

    /// Gives memory back that queues of earlier bursts hold. For an owner that has nothing else to do.
    pub fn trim(&mut self) {
        for stream in self.streams.iter_mut() {
            stream.head.queue.trim(0);
            stream.device.read.trim(0);
            stream.device.write.trim(0);
            for slot in &mut stream.modules {
                slot.queues.read.trim(0);
                slot.queues.write.trim(0);
            }
        }
    }
}
