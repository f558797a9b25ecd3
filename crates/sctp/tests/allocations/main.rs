//! Memory that the core allocates once everything has grown to its size: none for a packet.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_methods, reason = "the pair also measures time, for the benchmark")]

#[path = "../../benches/core/counting.rs"]
mod counting;
#[path = "../../benches/core/pair.rs"]
mod pair;

use bytes::Bytes;

use crate::pair::{Pair, Steps, messages_of_a_turn};

/// Number of bursts of messages, each acknowledged before the next one begins.
const TURNS: usize = 200;
/// A queue may still grow as the window does.
const GROWTHS_MAX: u64 = 2;

#[test]
fn a_packet_in_the_steady_state_allocates_nothing() {
    for mtu_bytes in [1472, 9000, 65_000] {
        for bytes in [1, 64, 256, 1024, 2000, 4096, 16_384, 65_536] {
            let mut pair = Pair::new(mtu_bytes, false);
            let message = Bytes::from(vec![7; bytes]);
            let mut turns = |steps: &mut Steps| {
                (0..TURNS).for_each(|_| pair.turn(messages_of_a_turn(bytes), &message, steps));
            };
            turns(&mut Steps::default());
            let mut steps = Steps::default();
            turns(&mut steps);
            assert!(steps.messages > 0 && steps.records == 0);
            let allocations = steps.sum().1;
            assert!(
                allocations <= GROWTHS_MAX,
                "{allocations} for {} packets of {mtu_bytes} bytes, messages of {bytes} bytes",
                steps.packets
            );
        }
    }
}
