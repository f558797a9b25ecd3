//! STREAMS drivers that speak TPI.
//!
//! [`SctpDriver`] is the SCTP provider: below it is a link, above it are streams.
#![forbid(unsafe_code)]

mod sctp;

pub use sctp::{Disconnect, SctpDriver, SctpDriverConfig, TraceTaker};
