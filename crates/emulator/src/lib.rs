//! A network emulator: the pipes of `netsim` in real time, between the network devices of two hosts.
//!
//! The hosts send super-packets: up to 64 KB that their kernels would otherwise cut into segments. A [`SuperPacket`] knows its
//! segments, and a [`Line`] offers each of them to its pipe separately, so that loss, queue and rate are those of a real line.
//! Segments that survive and are due together travel on in one piece, at a fraction of the cost of single packets.
//!
//! An [`Emulator`] is the thread that reads the devices, keeps the clock and writes packets that are due. All other types are
//! pure: time is an argument.
//!
//! # Examples
//!
//! A line of 10 Mbit/s and 5 ms, on a virtual clock:
//!
//! ```
//! use std::time::Duration;
//! use emulator::{Line, MemoryBudget, SuperPacket};
//! use links::device::VnetHeader;
//! use netsim::PipeConfig;
//!
//! let pipe = PipeConfig {
//!     rate_bits_per_s: Some(10_000_000),
//!     delay: Duration::from_millis(5),
//!     ..PipeConfig::default()
//! };
//! let mut line = Line::new(&pipe, 1, Duration::ZERO);
//! let packet = SuperPacket::new(VnetHeader::default(), &[0x45; 1250], &MemoryBudget::default());
//! line.handle_packet(0, packet);
//! assert_eq!(line.next_ns(), Some(6_000_000));
//! let delivery = line.poll_delivery(6_000_000).expect("it is due");
//! assert_eq!(delivery.segment_count(), 1);
//! ```
#![forbid(unsafe_code)]

mod checksum;
mod clock;
mod counts;
mod flow;
mod line;
mod memory;
mod super_packet;

pub use clock::{Emulator, EmulatorError, JOIN, PATHS_MAX, Path, Settings};
pub use counts::{Distribution, EmulatorCounts, FlowCounts, LineCounts, LineState, PathCounts};
pub use flow::FlowKey;
pub use line::{Delivery, Line};
pub use memory::MemoryBudget;
pub use super_packet::SuperPacket;
