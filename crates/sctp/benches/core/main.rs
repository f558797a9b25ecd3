//! Cost of the core itself, without a network: messages through two endpoints, a SACK with many sizes of outstanding data, and
//! the memory allocated for that once everything has grown to its size.
//!
//! `cargo bench -p swiftwater-sctp`; `core messages`, `core sacks`, `core moved`, `core trace` for a part alone, and
//! `core messages 64` for one size.
#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on fails")]
#![allow(clippy::disallowed_methods, reason = "this is no part of the core, and it measures time")]

mod counting;
mod messages;
mod sacks;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wants = |part: &str| words.is_empty() || words[0] == part;
    let size = words.get(1).and_then(|word| word.parse().ok());
    if wants("messages") {
        messages::report(size);
    }
    if wants("sacks") {
        sacks::report();
    }
    if wants("moved") {
        sacks::report_moved();
    }
    if wants("trace") {
        messages::report_trace(size);
    }
}
