//! STREAMS: stream heads, modules and drivers that pass messages to each other through queues.
//!
//! A stream is a full-duplex way between a program and a driver. At its upper end stands the stream head, which the
//! program reads and writes; at its lower end a driver; between them modules can be pushed and popped while data flows.
//! Each of them has a queue for each way. A `put` procedure handles a message at once; what cannot be handled at once is
//! queued with `putq` and handled by the `service` procedure later. High and low water marks on the queues make the flow
//! control.
//!
//! One [`Executive`] holds the drivers and streams of one perimeter: its owner guards it with one lock, and nothing
//! inside it locks, blocks or waits. No `put` procedure runs inside another: what a module sends on is posted, and the
//! executive delivers it when the procedure has returned.
//!
//! A driver that sends back what comes down, and a module that counts what passes:
//!
//! ```
//! use streams::modules::Counter;
//! use streams::{Admission, Cx, Driver, Errno, Executive, Kind, Message, Primitive, StreamId, TransferInfo};
//!
//! struct Loopback;
//!
//! impl Driver for Loopback {
//!     fn open(&mut self, _: &mut Cx<'_>, _: StreamId) -> Result<(), Errno> {
//!         Ok(())
//!     }
//!     fn close(&mut self, _: &mut Cx<'_>, _: StreamId) {}
//!     fn admit(&mut self, _: StreamId, _: &TransferInfo, _: usize) -> Admission {
//!         Admission::Room
//!     }
//!     fn put(&mut self, cx: &mut Cx<'_>, s: StreamId, m: Message) {
//!         if let Kind::Proto(Primitive::OptdataReq(info)) = m.kind {
//!             cx.put_data(s, &info, m.data);
//!         }
//!     }
//! }
//!
//! let mut executive = Executive::new();
//! let loopback = executive.add_driver("loopback", Box::new(Loopback));
//! let stream = executive.open(loopback)?;
//! let counter = Counter::new();
//! let counts = counter.counts();
//! executive.push(stream, Box::new(counter))?;
//!
//! executive.write(stream, TransferInfo { stream: 3, ..TransferInfo::default() }, b"hello")?;
//! let mut buffer = [0; 100];
//! let (len, info, end_of_record) = executive.read(stream, &mut buffer)?.expect("it has come back");
//! assert_eq!((&buffer[..len], info.stream, end_of_record), (&b"hello"[..], 3, true));
//! assert_eq!((counts.messages_down(), counts.bytes_up()), (1, 5));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod chain;
mod driver;
mod error;
mod executive;
mod flow;
mod head;
mod message;
mod module;
pub mod modules;
mod pool;
mod queue;
mod scheduler;
mod stream;

pub use chain::{Chain, IntoBlocks};
pub use driver::{Admission, Cx, Driver, DriverId, DriverInfo, FlushScope};
pub use error::{IoctlError, OpenError, PopError, PushError, ReadError, Refused, WriteError};
pub use executive::{Executive, IoctlReply, Select};
pub use head::{HeadOptions, HeadStats, Interest, ReadMode, Readiness};
pub use message::{Flush, IocAck, IocNak, Ioctl, Kind, Marks, Message, Signal};
pub use module::{Module, ModuleInfo, Q};
pub use pool::Pool;
pub use queue::{Queue, QueueInfo, QueuePair, Side};
pub use stream::StreamId;
pub use tpi::{Errno, Primitive, TransferFlags, TransferInfo};
