//! The UDP encapsulation link on loopback.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bind;
mod common;
mod hairpin;
mod loopback;
mod neighbours;
mod offload;
#[path = "../common/mod.rs"]
mod shared;
mod small_datagrams;
mod strangers;
mod unreachable;
