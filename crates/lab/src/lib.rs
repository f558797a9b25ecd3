//! Endpoints joined by simulated networks on a virtual clock.
//!
//! - [`World`]: any number of hosts, with the applications of [`traffic`] or your own. It is made for millions of packets.
//! - [`experiment`]: figures on simulated networks beside those that others have published.
//! - [`Lab`]: two hosts, a line between them that loses what it is told to, and every packet kept to be looked at.
//! - [`script::Peer`]: one endpoint that faces a peer made of packets, written down as a ladder.
//! - [`bounds`]: what an association may hold at most.
//! - [`ledger`]: what was sent and what came, record by record.
//! - [`packets`]: looking into packets, and making them.
//!
//! Nothing looks at a clock, and all chance comes from a seed: a run that failed can be run again. With the feature
//! `testing` each step compares the totals that the endpoints keep with a recount. What is used wrongly panics, and so
//! does what does not happen in time: the callers are tests and experiments.
//!
//! # Examples
//!
//! A message crosses a line of 10 ms although its first packet is lost.
//!
//! ```
//! use std::time::Duration;
//! use lab::{A, B, Fate, Lab};
//! use sctp::SendInfo;
//!
//! let mut lab = Lab::new(1);
//! let (a, _) = lab.establish();
//! let mut first = true;
//! lab.tap(A, move |_| if std::mem::take(&mut first) { Fate::Drop } else { Fate::Pass });
//! lab.send(A, a, SendInfo::default(), "hello");
//! lab.run_until("it arrived", Duration::from_secs(5), |lab| !lab.node(B).app.messages.is_empty());
//! assert_eq!(lab.app(B).contents(), [b"hello"]);
//! ```
#![forbid(unsafe_code)]

mod app;
pub mod bounds;
pub mod experiment;
pub mod ledger;
pub mod packets;
mod pair;
pub mod script;
pub mod traffic;
pub mod world;

pub use app::{App, Happened, Reading, Received};
pub use pair::{A, B, Fate, Lab, PORT_A, PORT_B, Sent, line};
pub use world::{Node, World};
