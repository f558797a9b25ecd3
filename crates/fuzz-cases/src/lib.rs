//! The cases that the fuzzers run. A case is a function from any bytes to a run that keeps its invariants, or panics. It is a
//! crate of its own so that inputs once found are run again as ordinary tests, with the pinned compiler.
//!
//! | case | input | what must hold |
//! |---|---|---|
//! | [`packet()`] | a packet | nothing panics, and what can be read is written so that it reads the same again |
//! | [`endpoint()`] | a script: two endpoints with one or two addresses each talk, the script edits their packets, calls them, changes their nets and NATs and moves the clock | counters equal a recount; buffers, and what one packet sets off, are bounded; data goes only to addresses that have spoken or are the peer's |
//! | [`coupled()`] | the same, with an interceptor that reads everything and forges chunks that fit, and turns honest at the end | the same; what arrives is what was sent; everything arrives or is reported; nothing is left behind |
//! | [`request()`] | a request or an answer of the daemon's protocol | nothing panics, and what can be read is written so that it reads the same again |
//! | [`record()`] | a record on a carrier | nothing panics, and no answer about its messages leaves the record |
//! | [`page()`] | a script: a reader of a bundle, and a sharer who writes to its page | what is read is a part of the record |
//! | [`daemon()`] | a script: a program that sends a daemon requests with any descriptors and records of any form, and writes to its pages | no task of the daemon panics, and it still answers |
//! | [`primitive()`] | a control part as `putmsg` takes it | nothing panics, and what can be decoded is encoded so that it decodes the same again |
//! | [`options()`] | a list of options that a program manages | nothing panics; the answer can be read and its result is the worst of its options; a check, a question and a refusal change nothing |
//! | [`putmsg()`] | a script: a program puts raw control parts, primitives in any state and ioctls on streams of the provider, and pushes and pops modules | nothing panics, modules included; what waits is bounded |
#![forbid(unsafe_code)]

mod app;
mod carrier;
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

pub use carrier::{page, record, request};
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
