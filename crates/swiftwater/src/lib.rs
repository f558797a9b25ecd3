//! SCTP in user space, built as STREAMS: messages with boundaries, many streams, several addresses, on any
//! Linux host, with no kernel module and no privileges.
//!
//! A server and a client:
//!
//! ```
//! use swiftwater::{Association, Listener};
//!
//! let listener = Listener::bind("127.0.0.1:5000/udp:0")?;
//! let address = listener.local_address();
//! let server = std::thread::spawn(move || {
//!     let (association, _) = listener.accept()?;
//!     while let Some(message) = association.recv()? {
//!         association.send_bytes(message.into_bytes(), &Default::default())?;
//!     }
//!     Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
//! });
//! let client = Association::connect(&address)?;
//! client.send(b"hello")?;
//! assert_eq!(client.recv()?.expect("an echo").to_vec(), b"hello");
//! client.close()?;
//! server.join().unwrap().unwrap();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Messages arrive whole and in the order of their [stream](SendInfo::stream); bytes may also flow as one endless
//! record ([`SendInfo::more`]). Every call says in its error what to do, and each error becomes an
//! [`std::io::Error`] of the fitting kind with `?`.
//!
//! | type | what it is |
//! |---|---|
//! | [`Association`] | one-to-one: connected to one peer |
//! | [`Listener`] | accepts associations |
//! | [`Endpoint`] | one-to-many: all associations of one port |
//! | [`Stack`] | the sockets that several of them share |
//! | [`tokio`] | the same for tasks (feature `tokio`) |
//!
//! SCTP packets travel in UDP (RFC 6951), port 9899 unless an [`Address`] or [`StackOptions`] says otherwise, or directly in IP
//! ([`LinkKind`]).
//!
//! # Threads
//!
//! Every type is shared between threads freely: calls take `&self`. Work is done by the thread that asks for it;
//! of those that wait, one polls the sockets for all. One background thread for each [`Stack`] keeps the protocol
//! going while the program does something else, and delivers what was sent before the last handle was dropped.
//!
//! # The end of a program
//!
//! The background thread cannot outlive the process, and the kernel tells no peer that a process is gone: an association that
//! is still there then leaves its peer waiting until its timers give up. So a program that is about to exit calls
//! [`Association::close`], which waits until the peer has everything, or [`Stack::close`] for all at once, with a limit of time.
//! A handler of SIGTERM does so, too. A panic that unwinds drops the handles of its thread, whose associations are shut down in
//! the background as after any drop; where it ends the process, as in the main thread, only those are told that have
//! acknowledged everything, unless a value that is dropped meanwhile calls [`Stack::close`]. With `panic = "abort"`, and
//! when the process is killed (SIGKILL), nobody is told: peers find out by their timers, or as soon as another process that
//! has the same UDP port answers them with ABORT.
#![forbid(unsafe_code)]

mod address;
mod association;
mod association_ref;
mod background;
mod busy_poll;
mod ending;
mod endpoint;
mod error;
mod event;
mod fault;
#[doc(hidden)]
pub mod internals;
mod listener;
mod message;
mod options;
mod perimeter;
mod shard;
mod socket;
mod stack;
#[cfg(feature = "tokio")]
pub mod tokio;
pub mod trace;
mod waiting;
mod watch;

pub use address::{Address, AddressError, ToAddress, UDP_PORT_DEFAULT};
pub use association::{Association, SharedAssociation};
pub use bytes::Bytes;
pub use endpoint::{Endpoint, SharedEndpoint};
pub use error::{
    AcceptError, BindError, CloseReason, ConnectError, Loss, LossKind, OptionsError, RecvError, SendError,
};
pub use event::{Event, PathChange, PathReason, Received};
pub use listener::{Listener, SharedListener};
pub use message::{AssociationId, Message, RecvInfo, SendInfo};
pub use options::{AssociationOptions, LinkKind, ListenerOptions, StackOptions};
pub use sctp::Checksum;
pub use sctp::congestion::{Algorithm as CongestionControl, Coupling};
pub use sctp::{
    AssociationState, EndpointStatistics, MtuState, Multipath, PathId, PathOptions, PathState,
    PathStatistics, PrimaryError, Statistics, UnknownName,
};
pub use stack::{Stack, StackStatistics};
/// The STREAMS executive: what a module that is pushed on an association's stream is made of.
pub use streams;
pub use streams::{Module, modules};

/// The README's program must compile.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
