//! The types of the calls of [`Stream`](crate::Stream), and of modules for [`Stream::push`](crate::Stream::push).
//!
//! A module sees each message of an association on its way down to the provider and up to the program:
//!
//! ```
//! use swiftwater::streams::{Message, Module, Q};
//! # use swiftwater::{Association, Listener};
//!
//! /// Discards empty messages.
//! struct NoEmpty;
//!
//! impl Module for NoEmpty {
//!     fn name(&self) -> &str {
//!         "no-empty"
//!     }
//!
//!     fn rput(&mut self, q: &mut Q<'_>, m: Message) {
//!         match m.user_data().is_some() && m.data.is_empty() {
//!             true => q.freemsg(m),
//!             false => q.pass(m),
//!         }
//!     }
//! }
//!
//! # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
//! # let client = Association::connect(listener.address())?;
//! client.stream().push(Box::new(NoEmpty))?;
//! assert_eq!(client.stream().list(), ["no-empty", "sctp"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The executive below, with drivers, multiplexors and pipes, is the crate `swiftwater-streams`.

// Modules: a module, its queues and its timers.
pub use ::streams::{
    Charge, Module, ModuleFactory, ModuleInfo, Q, Queue, QueueInfo, Seen, Side, StreamId, TimerId,
};

// Messages, and the associations that they name.
pub use ::streams::{
    AssociationId, Chain, Control, Flush, IntoBlocks, Kind, Marks, Message, Passed, Record, RecordLayout,
    RecvInfo, Run, SendInfo, Signal, Which, allocb, copyb, dupb, esballoc, testb,
};
/// Primitives of TPI, and numbers of errors.
pub use ::streams::{Errno, Primitive};

// Messages of ioctls, and of options of the stream head.
pub use ::streams::{
    CopyRequest, ErrorOptions, HeadOptions, IocAck, IocData, IocNak, Ioctl, IoctlArgument, ReadControl,
    ReadMode, WriteAs, WriteOptions,
};

// Calls on a stream.
pub use ::streams::{
    Credentials, HeadStats, IoctlError, IoctlReply, IoctlRequest, LinkError, PartDescription, PopError,
    PushError, QueueDescription, ReadError, SendError, StreamDescription, WriteError,
};

// Modules that are pushed by rules.
pub use ::streams::{Autopush, AutopushError};
