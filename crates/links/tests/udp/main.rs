//! The UDP encapsulation link on loopback.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bind;
mod common;
mod loopback;
mod offload;
mod unreachable;
