//! Simulated networks on a virtual clock.
//!
//! A [`Pipe`] is a bottleneck in the manner of dummynet (Carbone and Rizzo, "Dummynet revisited", 2009): packets are
//! lost, queue up to a bound, leave at a rate and arrive after a propagation delay. A [`Network`] joins hosts by
//! routes of pipes and keeps what is on the way in the order of its arrival. [`topology`] builds networks of many
//! hosts, also random ones, and a [`Capture`] writes what passes any of them as a file for Wireshark.
//!
//! Besides rate, delay and queue a pipe has faults: [`Loss`] at random, in bursts or by script, [`Reorder`], copies,
//! damage, [`Jitter`], and a [`Schedule`] of outages. A queue marks packets that understand it ([`Ecn`]). All of it is
//! in [`PipeConfig`].
//!
//! Nothing here reads a clock or sleeps: time is the caller's number of nanoseconds and only grows. All chance comes
//! from a seed, so a run that failed can be run again. A packet's chance to meet a fault depends on the seed, the pipe
//! and the packet's number there, and on nothing else: to switch one fault off leaves the others where they were.
//!
//! A packet costs some 40 ns a pipe, however many are on the way (`cargo bench -p swiftwater-netsim`).
//!
//! # Examples
//!
//! Two hosts on a line of 10 Mbit/s and 5 ms; the second answers the first.
//!
//! ```
//! use std::net::SocketAddr;
//! use std::time::Duration;
//! use netsim::{Network, PipeConfig};
//!
//! let (a, b): (SocketAddr, SocketAddr) = ("10.0.0.1:9899".parse()?, "10.0.0.2:9899".parse()?);
//! let mut network = Network::new(1);
//! let client = network.add_host(&[a.ip()]);
//! let server = network.add_host(&[b.ip()]);
//! let line = PipeConfig {
//!     rate_bits_per_s: Some(10_000_000),
//!     delay: Duration::from_millis(5),
//!     ..PipeConfig::default()
//! };
//! network.connect(a.ip(), b.ip(), &line);
//!
//! network.send(0, a, b, 1250, "question");
//! let mut heard = Vec::new();
//! while let Some(now_ns) = network.next_event_ns() {
//!     while let Some(delivery) = network.deliver(now_ns) {
//!         if delivery.host == server {
//!             network.send(now_ns, delivery.to, delivery.from, 1250, "answer");
//!         }
//!         heard.push((delivery.at_ns, delivery.host, delivery.payload));
//!     }
//! }
//! // 1 ms to leave and 5 ms to travel, twice.
//! assert_eq!(heard, [(6_000_000, server, "question"), (12_000_000, client, "answer")]);
//! # Ok::<(), std::net::AddrParseError>(())
//! ```
#![forbid(unsafe_code)]

mod capture;
mod ecn;
mod flow;
mod jitter;
mod loss;
mod network;
mod packet;
mod payload;
mod pipe;
mod pipe_config;
mod pipe_stats;
mod queue;
mod random;
mod rate;
mod reorder;
mod schedule;
mod time;
pub mod topology;
mod transit;
mod verdict;

pub use capture::{Capture, CaptureBuffer, CaptureError};
pub use ecn::Ecn;
pub use flow::FlowId;
pub use jitter::Jitter;
pub use loss::Loss;
pub use network::Network;
pub use packet::{Delivery, HostId, NetworkStats, Packet, PipeId, SendOutcome, TooBig};
pub use payload::Payload;
pub use pipe::Pipe;
pub use pipe_config::PipeConfig;
pub use pipe_stats::PipeStats;
pub use reorder::Reorder;
pub use schedule::{Schedule, WhenDown};
pub use transit::Transit;
pub use verdict::{Behind, DropReason, Flips, Passage, Verdict};
