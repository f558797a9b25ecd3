//! The cases that the fuzzers run. A case is a function that takes any bytes, and panics if an invariant does not hold. The
//! cases have a crate of their own, so that inputs found once also run as ordinary tests, with the pinned compiler.
//!
//! - [`packet()`]: a packet. Nothing panics, and a packet that is parsed and built again parses to the same.
//! - [`endpoint()`]: a script. Two endpoints with one or two addresses each talk; the script edits their packets, calls
//!   them, changes their networks and NATs, and moves the clock. Counters equal a recount; buffers and the effects of one
//!   packet are bounded; data goes only to addresses that have spoken or are the peer's.
//! - [`coupled()`]: such a script with an interceptor that reads everything, forges chunks that fit, and turns honest at
//!   the end. In addition, every message arrives unchanged or is reported, and nothing is left behind.
//! - [`request()`]: a request or an answer of the daemon's protocol. Nothing panics, and one that is parsed and encoded
//!   again parses to the same.
//! - [`record()`]: a record on a pair. Nothing panics, and the messages found in it lie within it.
//! - [`page()`]: a script. A reader of a bundle, and a sharer that writes to its page. The reader gets parts of the record.
//! - [`daemon()`]: a script. A program sends a daemon requests with any descriptors and records of any form, and writes to
//!   its pages. No task of the daemon panics, and the daemon still answers.
//! - [`primitive()`]: a control part as `putmsg` takes it. Nothing panics, and one that is decoded and encoded again
//!   decodes to the same.
//! - [`options()`]: a list of options that a program manages. Nothing panics; the answer can be read, and its result is the
//!   worst of its options; a check, a question and a refusal change nothing.
//! - [`putmsg()`]: a script. A program puts raw control parts, primitives in any state and ioctls on streams of the
//!   provider, and pushes and pops modules. Nothing panics, modules included; the waiting messages are bounded.
#![forbid(unsafe_code)]

mod app;
mod channel;
mod daemon;
mod edit;
mod forge;
mod input;
mod interceptor;
mod nets;
mod options;
mod packet;
mod putmsg;
mod script;
mod sniff;
mod two_endpoints;

pub use channel::{page, record, request};
pub use daemon::daemon;
pub use options::options;
pub use packet::packet;
pub use putmsg::{primitive, putmsg};

/// Runs two endpoints whose packets the script edits.
pub fn endpoint(bytes: &[u8]) {
    script::run(bytes, script::Power::Edits);
}

/// Runs two endpoints with a hostile interceptor that reads everything, and becomes honest at the end.
pub fn coupled(bytes: &[u8]) {
    script::run(bytes, script::Power::Forges);
}
