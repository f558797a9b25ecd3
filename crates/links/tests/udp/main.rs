//! The UDP encapsulation link on loopback.

mod bind;
mod common;
mod loopback;
mod offload;
mod unreachable;
