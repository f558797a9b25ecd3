//! The blocking API over loopback, one behaviour a file.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod addresses;
mod batches;
mod bulk;
mod close;
mod connect;
mod echo;
mod ending;
mod endpoint;
mod errors;
mod events;
mod hairpin;
mod killed_peer;
mod listener;
mod modules;
mod options;
mod pair;
mod paths;
mod restarted_peer;
mod sharing;
mod splice;
mod stream_mode;
mod streams;
mod try_calls;
mod window;
