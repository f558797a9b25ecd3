//! STREAMS: stream heads, modules and drivers that pass messages to each other through queues.
//!
//! A stream is a full-duplex path between a program and a driver. Its upper end is the stream head, which the program reads and
//! writes; its lower end is a driver; between them modules can be pushed and popped while data flows. Each of these has a queue
//! for each direction. A `put` procedure handles a message at once; a message that cannot be handled at once is queued with
//! `putq` and handled later by the `service` procedure. High and low water marks on the queues provide flow control.
//!
//! One [`Executive`] holds the drivers and streams of one perimeter: its owner guards it with one lock, and nothing inside it
//! locks, blocks or waits. No `put` procedure runs inside another: a message that a module sends on is posted, and the executive
//! delivers it when the procedure has returned.
//!
//! A driver that sends messages back up, and a module that counts them:
//!
//! ```
//! use streams::modules::Counter;
//! use streams::{Cx, Driver, Errno, Executive, Kind, Message, Open, SendInfo, StreamId, Which};
//! use std::time::Instant;
//!
//! struct Loopback;
//!
//! impl Driver for Loopback {
//!     fn open(&mut self, _: &mut Cx<'_>, _: StreamId, _: &Open) -> Result<(), Errno> {
//!         Ok(())
//!     }
//!     fn close(&mut self, _: &mut Cx<'_>, _: StreamId) {}
//!     fn put(&mut self, cx: &mut Cx<'_>, s: StreamId, m: Message) {
//!         if m.kind == Kind::Data {
//!             cx.putnext(s, m);
//!         }
//!     }
//! }
//!
//! let mut executive = Executive::new(Instant::now());
//! let loopback = executive.add_driver("loopback", Box::new(Loopback));
//! let stream = executive.open(loopback)?;
//! let counter = Counter::new();
//! let counts = counter.counts();
//! executive.push(stream, Box::new(counter))?;
//!
//! executive.write(stream, Which::Only, SendInfo::default(), b"hello", Instant::now)?;
//! let mut buffer = [0; 100];
//! let (len, info) = executive.read(stream, &mut buffer)?.expect("it has come back");
//! assert_eq!((&buffer[..len], info.more), (&b"hello"[..], false));
//! assert_eq!((counts.messages_down(), counts.bytes_up()), (1, 5));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod bit_set;
mod chain;
mod credit;
mod detached_blocks;
mod driver;
pub mod drivers;
mod error;
mod executive;
mod head;
mod identifiers;
mod memory;
mod message;
mod module;
pub mod modules;
mod names;
mod pool;
mod queue;
mod scheduler;
mod shares;
mod stream;
mod timers;

pub use chain::{Chain, IntoBlocks};
pub use driver::{Admission, Cx, Driver, DriverInfo, FlushScope, Open, WriteData};
pub use error::{
    AutopushError, IoctlError, LinkError, OpenError, PopError, PushError, ReadError, Refused, WriteError,
};
pub use executive::{
    At, Executive, IoctlReply, IoctlRequest, IoctlStep, PartDescription, Parts, Position, QueueDescription,
    Select, Shown, StreamDescription,
};
pub use head::{
    ErrorOptions, HeadOptions, HeadStats, Interest, ReadControl, ReadMode, Readiness, SignalEvents,
    SignalNotice, WaiterId, Woken, WriteAs, WriteOptions,
};
pub use identifiers::{DriverId, LinkId, Side, StreamId};
pub use memory::{Charge, Notify, StateCharge, StreamMemory, charged};
pub use message::{
    Control, CopyRequest, Credentials, Flush, IocAck, IocData, IocNak, Ioctl, IoctlArgument, Kind, Marks,
    Message, Passed, Record, RecordLayout, Run, RunMessages, Seen, Signal, allocb, copyb, dupb, esballoc,
    testb,
};
pub use module::{Module, ModuleInfo, Q};
pub use names::{Autopush, ModuleFactory};
pub use pool::Pool;
pub use queue::{QUEUED_MESSAGES_MAX, Queue, QueueInfo, QueuePair, SERVED_MAX};
pub use timers::TimerId;
pub use tpi::{AssociationId, Errno, Primitive, RecvInfo, SendError, SendInfo, Which};
