//! The executive holds the drivers and streams of one perimeter.

mod connections;
mod control;
mod description;
mod fault;
mod linking;
mod names;
mod plumbing;
mod polling;
mod read;
mod run;
mod streamio;
mod timing;
mod write;

pub use control::{IoctlReply, IoctlRequest, IoctlStep};
pub use description::{PartDescription, QueueDescription, StreamDescription};
pub use read::{Parts, Select};
pub use timing::At;
pub use write::{Position, Shown};

use std::any::Any;
use std::fmt;
use std::time::Instant;

use crate::driver::{Cx, Driver, Open};
use crate::error::{OpenError, WriteError};
use crate::head::HeadStats;
use crate::identifiers::{DriverId, StreamId};
use crate::message::Credentials;
use crate::stream::{Stream, Streams};
use connections::Connections;
use linking::Links;

/// The drivers and streams of one perimeter.
///
/// All operations run on the caller's thread and return at once. Those that depend on the time are operations of [`At`]. They
/// leave deferred work in lists: service procedures, which [`At::run`] runs, timers, which [`Executive::timeout`] expires, and
/// wake-ups, which [`Executive::take_wakeups`] and its neighbours return.
///
/// There is one perimeter, so every synchronization level of SVR4.2 holds: no two procedures run at once, and none runs inside
/// another.
pub struct Executive {
    drivers: Vec<Box<dyn Driver>>,
    links: Links,
    connections: Connections,
    streams: Streams,
}

impl fmt::Debug for Executive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executive")
            .field("names", &self.streams.names)
            .field("streams", &self.streams)
            .finish()
    }
}

impl Executive {
    /// Largest number of modules on a stream (`nstrpush`).
    pub const MODULES_MAX: usize = 64;

    /// Returns an executive without drivers. `now` is the time, which advances only when the owner sets it.
    pub fn new(now: Instant) -> Self {
        Self {
            drivers: Vec::new(),
            links: Links::default(),
            connections: Connections::default(),
            streams: Streams::new(now),
        }
    }

    /// Adds a driver under a name.
    pub fn add_driver(&mut self, name: impl Into<String>, driver: Box<dyn Driver>) -> DriverId {
        self.drivers.push(driver);
        self.streams.names.add_driver(name.into());
        DriverId(self.drivers.len() - 1)
    }

    /// Calls a function of a driver of type `D` that sends nothing and needs no time. Returns `None` if the driver is of another
    /// type.
    pub fn driver_state<D: Driver, R>(&mut self, id: DriverId, f: impl FnOnce(&mut D) -> R) -> Option<R> {
        let driver: &mut dyn Any = &mut **self.drivers.get_mut(id.0)?;
        Some(f(driver.downcast_mut()?))
    }

    /// See [`At::with_driver`].
    fn with_driver<D: Driver, R>(
        &mut self,
        id: DriverId,
        f: impl FnOnce(&mut D, &mut Cx<'_>) -> R,
    ) -> Option<R> {
        let driver: &mut dyn Any = &mut **self.drivers.get_mut(id.0)?;
        let result = f(driver.downcast_mut()?, &mut Cx::new(&mut self.streams));
        self.deliver_posts();
        Some(result)
    }

    /// Opens a stream to a minor device that is not open (a clone open), for the superuser.
    ///
    /// # Errors
    ///
    /// There is no such driver, the driver refuses, or a module of autopush refuses.
    pub fn open(&mut self, driver: DriverId) -> Result<StreamId, OpenError> {
        self.open_minor(driver, None, Credentials::ROOT)
    }

    /// Opens a stream to a minor device; without a number, to one that is not open (a clone open). All users of a minor device
    /// share one stream; each of them closes it. Where `connld` is pushed on that stream, each open returns one end of a new pipe
    /// instead.
    ///
    /// # Errors
    ///
    /// The errors of [`Executive::open`], and [`OpenError::NotOwner`] for another user's minor device.
    pub fn open_minor(
        &mut self,
        driver: DriverId,
        minor: Option<u32>,
        credentials: Credentials,
    ) -> Result<StreamId, OpenError> {
        if driver.0 >= self.drivers.len() {
            return Err(OpenError::NoDriver);
        }
        if let Some(s) = minor.and_then(|minor| self.streams.names.stream_of(driver, minor)) {
            return self.open_again(s, credentials);
        }
        let (minor, is_clone) = match minor {
            Some(minor) => (minor, false),
            None => (self.streams.names.clone_minor(driver), true),
        };
        let open = Open { minor, is_clone, is_first: true, credentials };
        let device = &mut self.drivers[driver.0];
        let s = self.streams.insert(driver, &device.info(), &open);
        if let Err(errno) = device.open(&mut Cx::new(&mut self.streams), s, &open) {
            self.streams.remove(s);
            return Err(OpenError::Driver(errno));
        }
        self.streams.names.opened(driver, minor, s);
        self.deliver_posts();
        if let Err(error) = self.autopush(s, driver, minor) {
            self.close_now(s);
            return Err(OpenError::Autopush(error));
        }
        Ok(s)
    }

    fn open_again(&mut self, s: StreamId, credentials: Credentials) -> Result<StreamId, OpenError> {
        let Some(stream) = self.streams.get_mut(s) else { return Err(OpenError::NoDriver) };
        if stream.head.is_closing() {
            return Err(OpenError::Driver(crate::Errno::EBUSY));
        }
        if self.opens_connections(s) {
            return self.open_connection(s, credentials);
        }
        let Some(stream) = self.streams.get_mut(s) else { return Err(OpenError::NoDriver) };
        if !credentials.may_control(&stream.owner()) {
            return Err(OpenError::NotOwner);
        }
        let open = Open { minor: stream.minor(), is_clone: false, is_first: false, credentials };
        let device = &mut self.drivers[stream.driver().0];
        device.open(&mut Cx::new(&mut self.streams), s, &open).map_err(OpenError::Driver)?;
        if let Some(stream) = self.streams.get_mut(s) {
            stream.open_again();
        }
        self.deliver_posts();
        Ok(s)
    }

    /// See [`At::close`].
    fn close(&mut self, s: StreamId) {
        let Some(stream) = self.streams.get_mut(s) else { return };
        if stream.head.is_closing() {
            return;
        }
        if !stream.close_once() {
            return;
        }
        self.unlink_all(s);
        // The writes were accepted, so even a full driver must take them now.
        if self.flush_head(s) == Err(WriteError::WouldBlock) {
            self.send_coalesced(s);
        }
        if self.begin_draining(s) {
            return;
        }
        self.close_now(s);
    }

    /// See [`At::close_now`].
    fn close_now(&mut self, s: StreamId) {
        self.unlink_all(s);
        if self.flush_head(s) == Err(WriteError::WouldBlock) {
            self.send_coalesced(s);
        }
        self.discard_queued(s);
        while self.pop_at_close(s) {}
        // What the modules have sent up as they closed.
        self.discard_queued(s);
        let Some(stream) = self.streams.get(s) else { return };
        let (driver, minor) = (stream.driver(), stream.minor());
        self.drivers[driver.0].close(&mut Cx::new(&mut self.streams), s);
        self.streams.names.closed(driver, minor);
        if let Some(mut stream) = self.streams.remove(s) {
            stream.head.coalesced.clear(&mut self.streams.pool);
        }
        self.close_connections(s);
        self.deliver_posts();
    }

    /// Discards what waits in modules and for the reader. No module works on it: there may be thousands of messages in each.
    fn discard_queued(&mut self, s: StreamId) {
        let Some((stream, scheduler)) = self.streams.parts(s) else { return };
        stream.discard_queued(s, scheduler);
        self.deliver_posts();
    }

    /// Returns whether this stream is open.
    pub fn is_open(&self, s: StreamId) -> bool {
        self.streams.get(s).is_some_and(|stream| !stream.head.is_closing())
    }

    /// Returns whether a user may control a stream: its owner and the superuser may.
    pub fn may_control(&self, s: StreamId, credentials: &Credentials) -> bool {
        self.streams.get(s).is_some_and(|stream| credentials.may_control(&stream.owner()))
    }

    /// Returns the minor device of a stream.
    pub fn minor_of(&self, s: StreamId) -> Option<u32> {
        Some(self.streams.get(s)?.minor())
    }

    /// Returns the driver of a stream.
    pub(crate) fn driver_of(&self, s: StreamId) -> Option<DriverId> {
        Some(self.streams.get(s)?.driver())
    }

    /// Returns the open streams.
    pub fn streams(&self) -> impl Iterator<Item = StreamId> {
        self.streams.iter().map(|(s, _)| s)
    }

    /// Returns the counters of a stream's head.
    pub fn head_stats(&self, s: StreamId) -> Option<HeadStats> {
        Some(self.streams.get(s)?.head.stats())
    }

    /// Frees memory that queues keep from earlier bursts, for an owner that is idle.
    pub fn trim(&mut self) {
        self.streams.iter_mut().for_each(Stream::trim);
    }
}
