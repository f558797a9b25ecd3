//! Endpoints joined by simulated networks on a virtual clock.
//!
//! - [`Simulation`]: any number of hosts, with the applications of [`traffic`] or your own. It is made for millions of packets.
//! - [`experiment`]: figures on simulated networks beside those that others have published.
//! - [`TwoHosts`]: two hosts, a line between them that loses selected packets, and a record of every packet.
//! - [`script::Peer`]: one endpoint that faces a scripted peer, written as a ladder diagram.
//! - [`bounds`]: limits of the memory of an association.
//! - [`delivery_log`]: the sent and the received messages, record by record.
//! - [`packets`]: parses and builds packets.
//! - [`wire`]: packets that leave a host, and stages between the hosts and the network.
//!
//! Nothing reads a clock, and all random numbers derive from a seed, so a run that failed can be repeated. With the
//! feature `testing` each step compares the totals that the endpoints keep with a recount. Wrong use panics, as does an
//! expected event that does not happen in time: the callers are tests and experiments.
//!
//! # Examples
//!
//! A message crosses a line of 10 ms although its first packet is lost.
//!
//! ```
//! use std::time::Duration;
//! use lab::{A, B, Fate, TwoHosts};
//! use sctp::SendInfo;
//!
//! let mut hosts = TwoHosts::new(1);
//! let (a, _) = hosts.establish();
//! let mut first = true;
//! hosts.tap(A, move |_| if std::mem::take(&mut first) { Fate::Drop } else { Fate::Pass });
//! hosts.send(A, a, SendInfo::default(), "hello");
//! hosts.run_until("it arrived", Duration::from_secs(5), |hosts| !hosts.node(B).app.messages.is_empty());
//! assert_eq!(hosts.app(B).contents(), [b"hello"]);
//! ```
#![forbid(unsafe_code)]

mod app;
pub mod bounds;
pub mod delivery_log;
pub mod experiment;
pub mod packets;
pub mod script;
pub mod simulation;
pub mod traffic;
mod two_hosts;
pub mod wire;

pub use app::{App, AppEvent, Reading, Received};
pub use simulation::{Node, Simulation};
pub use two_hosts::{A, B, Fate, PORT_A, PORT_B, Sent, TwoHosts, line};
