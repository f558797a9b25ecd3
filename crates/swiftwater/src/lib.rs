//! SCTP in user space (RFC 9260): messages with boundaries, many streams, several addresses, on any Linux host, with no
//! kernel module and no privileges.
//!
//! # Concepts
//!
//! SCTP combines properties of TCP and UDP. An *association* is a connection between two endpoints: it is reliable, and
//! it has flow and congestion control, as in TCP. It carries *messages*, as in UDP: one send is one receive, unless the message
//! is long. One over 512 KiB ([`AssociationOptions::partial_delivery_bytes`]) is received in parts, each but the last with
//! [`RecvInfo::more`]. In addition,
//!
//! - an association has up to 65,535 [*streams*](SendInfo::stream) in each direction: messages of one stream arrive in order, and
//!   a loss on one stream keeps no other stream waiting;
//! - an association may have several addresses at each end (*multihoming*). Each address of the peer is a
//!   [*path*](PathStatistics), probed by HEARTBEATs, and data leaves a path that does not answer;
//! - the end is orderly: a *shutdown* delivers what was sent, an *abort* tells the peer a reason.
//!
//! Packets travel in UDP (RFC 6951), port 9899 unless an [`Address`] or [`StackOptions`] names another, or directly in IP
//! ([`LinkKind`]).
//!
//! # A first program
//!
//! A server and a client:
//!
//! ```
//! use swiftwater::{Association, Listener, SendInfo};
//!
//! let listener = Listener::bind("127.0.0.1:5000/udp:0")?;
//! let address = listener.address();
//! let server = std::thread::spawn(move || {
//!     let (association, _peer) = listener.accept()?;
//!     while let Some(message) = association.recv()? {
//!         // A long message comes, and goes back, in parts.
//!         let info = SendInfo { more: message.info.more, ..SendInfo::default() };
//!         association.send_bytes(message.into_bytes(), &info)?;
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
//! `recv` returns `None` when the peer has shut down and everything it sent was received. `close` waits until the peer
//! has received everything sent. Addresses are written `HOST[,HOST...]:PORT[/udp:UDPPORT]`. A host may have a name where
//! a call takes text: see [`ToAddresses`].
//!
//! As in [`std::net`], `local_addr` and `peer_addr` return a [`SocketAddr`](std::net::SocketAddr): one host, with the
//! SCTP port. A connect takes an [`Address`], which has all hosts and the UDP port: that of a listener or an endpoint
//! (`address`), or of a peer (`peer`). `local_ips` and `peer_ips` list the IP addresses of an association.
//!
//! # Which type to use
//!
//! | type | style | use it |
//! |---|---|---|
//! | [`Association`] | one-to-one | for a connection with one peer, as a `TcpStream` |
//! | [`Listener`] | one-to-one | to accept associations, as a `TcpListener` |
//! | [`Endpoint`] | one-to-many | for many peers and little state for each, as a `UdpSocket`: signalling, gossip, chat |
//! | [`Stack`] | both | for sockets that several of them share: thousands of associations over one UDP port |
//! | [`tokio`] | both | for the same types in tasks (feature `tokio`) |
//!
//! An [`Endpoint`] sends and receives single messages: the calls for batches (`send_many`, `recv_many`, [`Sender`], [`Reader`]),
//! `recv_into`, and the [`Stream`] belong to an [`Association`]. It has no `close` and no `close_reason` either:
//! [`Event::Down`] reports that an association has ended, and why.
//!
//! The types for tasks have the same names, and the same calls that do not wait. Calls that wait are `async` there; in place of a
//! variant with a time limit, `tokio::time::timeout` limits any of them.
//!
//! # Streams
//!
//! One association replaces several TCP connections: give each independent sequence of messages a stream of its own.
//!
//! ```
//! # use swiftwater::{Association, AssociationOptions, Listener, SendInfo};
//! # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
//! let options = AssociationOptions::default().with_streams_out(16);
//! let client = Association::connect_with(listener.address(), &options.into())?;
//! # let (server, _) = listener.accept()?;
//! client.send_with(b"picture", &SendInfo::stream(1))?;
//! client.send_with(b"text", &SendInfo::stream(2))?;
//! // Unordered: the message overtakes messages that wait for a retransmission.
//! client.send_with(b"tick", &SendInfo { unordered: true, ..SendInfo::stream(0) })?;
//! # for _ in 0..3 { server.recv()?.expect("a message"); }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`SendInfo`] also has the payload protocol identifier, a lifetime after which an unsent message is discarded, the
//! path, and [`more`](SendInfo::more), which joins several sends to one long record. [`RecvInfo`] contains the stream
//! and the other properties of a received message.
//!
//! # Multihoming
//!
//! A server that binds several addresses lists them to its peers, and a client that connects to several tries one after
//! the other until one answers. Data takes the primary path; while that path does not answer, data takes another one
//! (RFC 9260 §5.4, §8.2, RFC 7829). With [`Multipath`], data takes all paths at once.
//!
//! ```
//! # use swiftwater::{Listener, Stack, StackOptions};
//! let local_addresses = vec!["127.0.0.1".parse()?, "127.0.0.2".parse()?];
//! let options = StackOptions::default().with_udp_port(0).with_local_addresses(local_addresses);
//! let listener = Stack::bind(&options)?.listen(5000)?;
//! let client = Stack::bind(&options)?.connect(listener.address())?;
//! assert_eq!(client.peer_ips().len(), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`set_path`](Association::set_path) tunes the probes of each path,
//! [`set_primary`](Association::set_primary) chooses one, [`statistics`](Association::statistics) shows
//! all. With [`AssociationOptions::events`], [`Association::recv_any`] returns events of paths and messages in order with
//! the messages: see [`Event`].
//!
//! # Waiting and errors
//!
//! Calls that wait do so without limit. Those that a program often has to bound have a variant with a time limit, and a
//! variant that does not wait:
//!
//! | waits without limit | with a limit | does not wait |
//! |---|---|---|
//! | [`Association::connect`], [`Stack::connect`] | `connect_timeout` | |
//! | [`Association::send`], [`send_with`](Association::send_with) | `send_timeout` | `try_send` |
//! | [`Association::recv`] | `recv_timeout` | `try_recv` |
//! | [`Association::recv_any`] | `recv_any_timeout` | `try_recv_any` |
//! | [`Association::close`] | `close_timeout` | drop the association |
//! | [`Listener::accept`] | `accept_timeout` | `try_accept` |
//! | [`Endpoint::send_to`] | `send_to_timeout` | `try_send_to` |
//! | [`Endpoint::recv`] | `recv_timeout` | `try_recv` |
//!
//! `send_bytes`, `send_bytes_to`, `send_many`, `recv_into`, `recv_many`, `shutdown`, `connect_from`, [`Reader`] and
//! [`Sender`] only wait without limit. In tasks, `tokio::time::timeout` limits every call.
//!
//! A call without a limit fails only with the association, one with a limit also with `TimedOut`, one that does not
//! wait also with `WouldBlock`. The errors are [`BindError`], [`ConnectError`], [`AcceptError`], [`SendError`] (also of
//! `shutdown`), [`RecvError`] (also of `close`), [`OptionsError`], and [`PathError`] for `set_primary` and `set_path`. Each
//! message states the remedy, and [`source`](std::error::Error::source) returns the cause. `?` turns each of them into an
//! [`std::io::Error`] of the corresponding kind, and an [`AddressError`] of a parsed [`Address`], too. The kind `TimedOut` of
//! any call but a connect is its time limit alone, so the call may be repeated: an association whose peer no longer answers is
//! `ConnectionAborted` ([`LossKind::io_kind`]).
//!
//! ```
//! # use std::time::Duration;
//! # use swiftwater::{Association, Listener, RecvError};
//! # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
//! # let client = Association::connect(listener.address())?;
//! match client.recv_timeout(Duration::from_millis(1)) {
//!     Ok(Some(message)) => println!("{} bytes", message.len()),
//!     Ok(None) => println!("the peer has shut down"),
//!     Err(RecvError::TimedOut) => println!("nothing yet"),
//!     // The peer has restarted, and the association continues: begin the dialogue anew.
//!     Err(RecvError::Restarted(what)) => println!("{what}"),
//!     Err(error) => return Err(error.into()),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! An association that has ended keeps its [`close_reason`](Association::close_reason).
//!
//! # Tokio
//!
//! The module [`tokio`] (feature `tokio`) has the same types for tasks. Every call may be cancelled, by `select!` or
//! `timeout`: a message is either taken as a whole or not at all. Both kinds of calls may be mixed, and both types
//! convert into each other.
//!
//! # Options
//!
//! [`StackOptions`] apply to the sockets, and are fixed when these are bound. [`ListenerOptions`] have the backlog and
//! the limits of a listener. [`AssociationOptions`] have all else: buffers, timers, retransmissions, congestion
//! control. Most of these can be changed while the association lives; changing one that the handshake negotiated is an
//! error.
//!
//! The defaults are those of RFC 9260, except for later methods of other transports: congestion control is CUBIC
//! (RFC 9438) in place of the arithmetic of §7.2, a pacer bounds bursts in place of Max.Burst, a probe repairs the end of
//! a burst before T3-rtx expires, and data leaves a path at its first timeout, or sooner if it is silent
//! ([`potentially_failed_retries_max`](AssociationOptions::potentially_failed_retries_max),
//! [`early_failover`](AssociationOptions::early_failover)). If the peer agrees, routers mark packets (ECN), the sender
//! frees the data that the receiver keeps beyond a gap (NR-SACK), and data takes all paths ([`Multipath`]). The file
//! `docs/deviations.md` of the source lists every deviation, with its reason.
//!
//! # Threads
//!
//! Every type may be shared between threads: calls take `&self`. A call does its work on the calling thread; among
//! waiting threads, one polls the sockets for all. One background thread for each [`Stack`] runs the protocol while the
//! program does something else, and delivers everything sent before the last handle was dropped.
//!
//! # The end of a program
//!
//! The background thread ends with the process, and the kernel does not tell a peer that the process is gone: the peer of an
//! association that is still up waits until its timers expire. So a program that is about to exit calls [`Association::close`],
//! which waits until the peer has received everything, or [`Stack::close`], which ends all associations of a stack within a time
//! limit (`tokio::Stack::close` in tasks). A handler of SIGTERM does so, too. A panic that unwinds drops the handles of its
//! thread, whose associations are shut down in the background as after any drop. If the panic ends the process, as in the main
//! thread, only associations with nothing unacknowledged are shut down, unless a value that is dropped meanwhile calls
//! [`Stack::close`]. With `panic = "abort"`, and when the process is killed (SIGKILL), peers are not told: their timers expire,
//! or another process with the same UDP port answers them with ABORT.
//!
//! # Examples
//!
//! The directory `examples` has an echo server and its client (`echo`), a chat room over one endpoint (`chat`), a client
//! with several addresses (`multihomed_client`), a server for tokio (`tokio_server`), a client and a server for many short
//! messages, with [`Sender`] and [`Reader`] (`readings`), and a STREAMS module (`module`).
#![forbid(unsafe_code)]

#[macro_use]
mod forward;

mod address;
mod association;
mod association_ref;
mod busy_poll;
mod ending;
mod endpoint;
mod error;
mod event;
mod flush_delay;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals;
mod listener;
mod message;
pub mod modules;
mod options;
mod reader;
mod sender;
mod shard;
mod socket;
mod stack;
mod staged;
mod stream;
pub mod streams;
#[cfg(feature = "tokio")]
pub mod tokio;
pub mod trace;
mod watch;

pub use address::{Address, AddressError, ToAddresses, UDP_PORT_DEFAULT};
pub use association::Association;
pub use bytes::Bytes;
pub use endpoint::Endpoint;
pub use error::{
    AcceptError, BindError, CloseReason, ConnectError, Loss, LossKind, OptionsError, RecvError, SendError,
};
pub use event::{Event, PathChange, PathReason, Received};
pub use links::{BindError as LinkBindError, LinkStats as LinkStatistics};
pub use listener::Listener;
pub use message::Message;
pub use options::{AssociationOptions, LinkKind, ListenerOptions, StackOptions};
pub use reader::{MessageRef, Reader};
pub use sctp::config::INITIAL_WINDOW_PACKETS_MAX;
pub use sctp::congestion::{Algorithm as CongestionControl, Coupling};
pub use sctp::{
    AssociationId, AssociationState, Checksum, EndpointStatistics, Lifetime, MtuState, Multipath, PathError,
    PathId, PathOptions, PathState, PathStatistics, ReceivePool, RecvInfo, SendInfo, SendPool, Statistics,
    UnknownName,
};
pub use sender::Sender;
pub use stack::{Stack, StackStatistics};
pub use stream::{GetmsgError, SpliceError, SpliceStatus, Stream};
pub use streams::Module;

/// The README's program must compile.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
