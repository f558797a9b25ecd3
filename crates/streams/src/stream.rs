//! Streams: a head, modules and the queues of a driver.

use crate::driver::DriverInfo;
use crate::flow;
use crate::head::Head;
use crate::message::{Kind, Message};
use crate::module::{Module, Q};
use crate::pool::Pool;
use crate::queue::{QueuePair, Side};
use crate::scheduler::{Errand, Place, Post, QueueRef, Scheduler};
use crate::{Chain, DriverId, Errno, TransferInfo};
use slab::Slab;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Names one open stream of an executive. The name of a closed stream is never given to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamId {
    index: u32,
    generation: u32,
}

impl StreamId {
    /// A small number that no other open stream of the executive has, for tables.
    #[inline]
    pub fn index(self) -> usize {
        self.index as usize
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.generation)
    }
}

/// One open stream.
#[derive(Debug)]
pub(crate) struct Stream {
    generation: u32,
    pub(crate) driver: DriverId,
    pub(crate) head: Head,
    /// From the driver upward.
    pub(crate) modules: Vec<Slot>,
    /// The driver's queues.
    pub(crate) device: QueuePair,
}

/// A pushed module with its queues.
pub(crate) struct Slot {
    pub(crate) module: Box<dyn Module>,
    pub(crate) queues: QueuePair,
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("module", &self.module.name()).field("queues", &self.queues).finish()
    }
}

/// Which procedure of a module is to run.
pub(crate) enum Procedure {
    Open,
    Close,
    Put(Message),
    Service,
}

/// All streams of an executive, with what they share.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    slab: Slab<Stream>,
    next_generation: u32,
    pub(crate) scheduler: Scheduler,
    pub(crate) pool: Pool,
    /// Streams that have got data of a driver since the last [`Streams::detach`].
    attached: Vec<StreamId>,
}

impl Streams {
    pub(crate) fn insert(&mut self, driver: DriverId, info: &DriverInfo) -> StreamId {
        let generation = self.next_generation;
        self.next_generation = self.next_generation.wrapping_add(1);
        let index = self.slab.insert(Stream {
            generation,
            driver,
            head: Head::new(info.head),
            modules: Vec::new(),
            device: QueuePair::new(info.read, info.write),
        });
        let index = u32::try_from(index).expect("an executive has less than 2^32 streams");
        StreamId { index, generation }
    }

    pub(crate) fn remove(&mut self, s: StreamId) -> Option<Stream> {
        self.get_mut(s)?;
        self.slab.try_remove(s.index())
    }

    #[inline]
    pub(crate) fn get(&self, s: StreamId) -> Option<&Stream> {
        self.slab.get(s.index()).filter(|stream| stream.generation == s.generation)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, s: StreamId) -> Option<&mut Stream> {
        self.slab.get_mut(s.index()).filter(|stream| stream.generation == s.generation)
    }

    /// A stream together with the scheduler.
    #[inline]
    pub(crate) fn parts(&mut self, s: StreamId) -> Option<(&mut Stream, &mut Scheduler)> {
        let stream = self.slab.get_mut(s.index()).filter(|stream| stream.generation == s.generation)?;
        Some((stream, &mut self.scheduler))
    }

    /// A stream together with the scheduler and the pool.
    #[inline]
    pub(crate) fn all_parts(&mut self, s: StreamId) -> Option<(&mut Stream, &mut Scheduler, &mut Pool)> {
        let stream = self.slab.get_mut(s.index()).filter(|stream| stream.generation == s.generation)?;
        Some((stream, &mut self.scheduler, &mut self.pool))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (StreamId, &Stream)> {
        self.slab.iter().map(|(index, stream)| {
            (
                StreamId { index: u32::try_from(index).unwrap_or(u32::MAX), generation: stream.generation },
                stream,
            )
        })
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.slab.iter_mut().map(|(_, stream)| stream)
    }

    /// Hands a message of the driver to what is next above it.
    #[inline]
    pub(crate) fn put_up(&mut self, s: StreamId, m: Message) {
        let Some((stream, scheduler)) = self.parts(s) else { return };
        if stream.modules.is_empty() {
            stream.head.put(s, m, scheduler);
        } else {
            scheduler.post(QueueRef { stream: s, place: Place::Module(0), side: Side::Read }, m);
            self.deliver();
        }
    }

    /// Hands user data of the driver to what is next above it, built in its place on the head's queue where no module
    /// is pushed.
    #[inline]
    pub(crate) fn put_data_up(&mut self, s: StreamId, info: &TransferInfo, data: Chain) {
        let Some((stream, scheduler)) = self.parts(s) else { return };
        let listed = std::mem::replace(&mut stream.head.attached, true);
        if stream.modules.is_empty() {
            stream.head.put_data(s, info, data, scheduler);
        } else {
            self.put_up(s, Message::optdata_ind(*info, data));
        }
        if !listed {
            self.attached.push(s);
        }
    }

    /// Whether a stream has got data since the last [`Streams::detach`].
    #[inline]
    pub(crate) fn is_attached(&self) -> bool {
        !self.attached.is_empty()
    }

    /// Copies the data that waits in queues out of the memory that it shares with other data. In a `pause`, queues that have
    /// run empty give back the memory of a burst.
    pub(crate) fn detach(&mut self, pause: bool) {
        let mut listed = std::mem::take(&mut self.attached);
        listed.retain(|&s| self.get_mut(s).is_some_and(|stream| stream.detach(pause)));
        self.attached = listed;
    }

    /// Runs put procedures until no message is on its way between modules. What reaches a driver waits as an errand:
    /// the driver may be the caller.
    pub(crate) fn deliver(&mut self) {
        while let Some(Post { at, message }) = self.scheduler.next_post() {
            let Some((stream, scheduler)) = self.parts(at.stream) else { continue };
            match at.place {
                Place::Head => stream.head.put(at.stream, message, scheduler),
                Place::Module(index) => {
                    let _ = stream.run(
                        at.stream,
                        usize::from(index),
                        at.side,
                        Procedure::Put(message),
                        scheduler,
                    );
                }
                Place::BelowHead if !stream.modules.is_empty() => {
                    let top = stream.modules.len() - 1;
                    scheduler.post(flow::module_at(at.stream, top, Side::Write), message);
                }
                Place::BelowHead | Place::Driver => {
                    scheduler.send(Errand::Put { stream: at.stream, message })
                }
            }
        }
    }
}

impl Stream {
    /// Copies the data that waits on its way up. Returns whether a queue has memory of a burst yet to give back.
    fn detach(&mut self, pause: bool) -> bool {
        let Stream { head, modules, device, .. } = self;
        let modules = modules.iter_mut().map(|slot| &mut slot.queues.read);
        let mut bulky = false;
        for queue in modules.chain([&mut head.queue, &mut device.read]) {
            queue.detach();
            if pause {
                queue.trim_burst();
            }
            bulky |= queue.is_bulky();
        }
        head.attached = bulky;
        bulky
    }

    /// Runs one procedure of a module. A module that panics makes its stream fail, and nothing else.
    pub(crate) fn run(
        &mut self,
        s: StreamId,
        index: usize,
        side: Side,
        procedure: Procedure,
        scheduler: &mut Scheduler,
    ) -> Result<(), Errno> {
        let Stream { head, modules, device, .. } = self;
        if index >= modules.len() {
            return Ok(());
        }
        let (below, rest) = modules.split_at_mut(index);
        let Some((slot, above)) = rest.split_first_mut() else { return Ok(()) };
        let mut q = Q::new(s, index, side, &mut slot.queues, below, above, head, device, scheduler);
        let module = &mut slot.module;
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            match (procedure, side) {
                (Procedure::Put(m), Side::Write) => module.wput(&mut q, m),
                (Procedure::Put(m), Side::Read) => module.rput(&mut q, m),
                (Procedure::Service, Side::Write) => module.wsrv(&mut q),
                (Procedure::Service, Side::Read) => module.rsrv(&mut q),
                (Procedure::Open, _) => return module.open(&mut q),
                (Procedure::Close, _) => module.close(&mut q),
            }
            Ok(())
        }));
        q.finish();
        outcome.unwrap_or_else(|_| {
            self.head.put(
                s,
                Message::new(Kind::Error { read: Some(Errno::EIO), write: Some(Errno::EIO) }),
                scheduler,
            );
            Err(Errno::EIO)
        })
    }
}
