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
//!     let association = listener.accept()?;
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
//! | type | what it is |
//! |---|---|
//! | [`Association`] | one-to-one: connected to one peer |
//! | [`Listener`] | accepts associations |
//! | [`Endpoint`] | one-to-many: all associations of one port |
//! | [`Stack`] | the sockets that several of them share |
//! | [`tokio`] | the same for tasks (feature `tokio`) |
//!
//! SCTP packets travel in UDP (RFC 6951), port 9899 unless an [`Address`] or [`Options`] says otherwise.
#![forbid(unsafe_code)]

mod address;
mod association;
mod background;
mod busy_poll;
mod endpoint;
mod error;
mod fault;
mod listener;
mod message;
mod options;
mod shard;
mod socket;
mod stack;
#[cfg(feature = "tokio")]
pub mod tokio;
mod waiting;
mod watch;

pub use address::{Address, AddressError, ToAddress, UDP_PORT_DEFAULT};
pub use association::Association;
pub use bytes::Bytes;
pub use endpoint::Endpoint;
pub use error::{BindError, ConnectError, RecvError, SendError};
pub use listener::Listener;
pub use message::{AssociationId, Event, Message, Received, RecvInfo, SendInfo};
pub use options::{Checksum, Options};
pub use sctp::{PathStatistics, Statistics};
pub use stack::{Stack, StackStatistics};
/// The STREAMS executive: what a module that is pushed on an association's stream is made of.
pub use streams;
pub use streams::{Module, modules};

/// The README's program must compile.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
