//! The SCTP provider as a transport user sees it: primitives of TPI 2.0 over a stream.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod cases;
mod checksums;
mod connections;
mod event_tables;
mod flood;
mod listeners;
mod one_to_many;
mod options;
mod rig;
mod states;
