//! Compares a line with outages to a model that proceeds by nanoseconds and moves one byte at a time.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use netsim::{DropReason, Pipe, PipeConfig, Schedule, Verdict, WhenDown};
use proptest::prelude::*;

/// A byte takes a nanosecond.
const RATE_BITS_PER_S: u64 = 8_000_000_000;
const END_NS: u64 = 100_000;

#[derive(Clone, Debug)]
enum Outages {
    Periodic { first_down: u64, down: u64, up: u64 },
    Listed(Vec<Range<u64>>),
}

impl Outages {
    fn schedule(&self) -> Schedule {
        let ns = |ns: &u64| Duration::from_nanos(*ns);
        match self {
            Outages::Periodic { first_down, down, up } => {
                Schedule::Periodic { first_down: ns(first_down), down: ns(down), up: ns(up) }
            }
            Outages::Listed(all) => Schedule::Listed(all.iter().map(|o| ns(&o.start)..ns(&o.end)).collect()),
        }
    }

    fn is_down(&self, now_ns: u64) -> bool {
        match self {
            Outages::Periodic { first_down, down, up } => {
                now_ns >= *first_down && (now_ns - first_down) % (down + up) < *down
            }
            Outages::Listed(all) => all.iter().any(|outage| outage.contains(&now_ns)),
        }
    }
}

/// Returns the fates of packets that come at these times with these lengths.
fn model(
    outages: &Outages,
    when_down: WhenDown,
    queue_packets: usize,
    packets: &[(u64, usize)],
) -> Vec<Result<u64, DropReason>> {
    let mut fates = vec![None; packets.len()];
    // The number of each packet that waits, and its bytes that have not left.
    let mut queue: VecDeque<(usize, usize)> = VecDeque::new();
    let mut next = 0;
    for now_ns in 0..END_NS {
        let down = outages.is_down(now_ns);
        while queue.front().is_some_and(|(_, left)| *left == 0) {
            fates[queue.pop_front().unwrap().0] = Some(Ok(now_ns));
        }
        if down && when_down == WhenDown::Lose {
            queue.drain(..).for_each(|(number, _)| fates[number] = Some(Err(DropReason::Down)));
        }
        while packets.get(next).is_some_and(|(at_ns, _)| *at_ns == now_ns) {
            if down && when_down == WhenDown::Lose {
                fates[next] = Some(Err(DropReason::Down));
            } else if !queue.is_empty() && queue.len() >= queue_packets {
                fates[next] = Some(Err(DropReason::Queue));
            } else {
                queue.push_back((next, packets[next].1));
            }
            next += 1;
        }
        if !down && let Some((_, left)) = queue.front_mut() {
            *left -= 1;
        }
        if next == packets.len() && queue.is_empty() {
            break;
        }
    }
    fates.into_iter().map(Option::unwrap).collect()
}

fn any_outages() -> impl Strategy<Value = Outages> {
    let listed =
        prop::collection::vec((0u64..300, 0u64..40).prop_map(|(start, time)| start..start + time), 0..6);
    prop_oneof![
        (0u64..100, 1u64..30, 1u64..60).prop_map(|(first_down, down, up)| Outages::Periodic {
            first_down,
            down,
            up
        }),
        listed.prop_map(Outages::Listed),
    ]
}

proptest! {
    #[test]
    fn a_line_does_what_the_model_says(
        outages in any_outages(),
        waits in any::<bool>(),
        queue_packets in prop_oneof![Just(usize::MAX), 0usize..6],
        packets in prop::collection::vec((0u64..12, 1usize..25), 1..60),
    ) {
        let when_down = if waits { WhenDown::Wait } else { WhenDown::Lose };
        // A packet that is longer than the line is ever up never gets through where the queue is lost; that is right, and
        // line and model agree.
        let config = PipeConfig {
            rate_bits_per_s: Some(RATE_BITS_PER_S),
            queue_packets,
            schedule: outages.schedule(),
            when_down,
            ..PipeConfig::default()
        };
        let mut pipe = Pipe::new(&config, 0);
        let mut now_ns = 0;
        let packets: Vec<(u64, usize)> = packets.into_iter().map(|(gap_ns, bytes)| {
            now_ns += gap_ns;
            (now_ns, bytes)
        }).collect();
        let fates: Vec<Result<u64, DropReason>> = packets.iter().map(|(now_ns, bytes)| {
            match pipe.offer(*now_ns, *bytes) {
                Verdict::Deliver(passage) => Ok(passage.at_ns),
                Verdict::Drop(reason) => Err(reason),
            }
        }).collect();
        prop_assert_eq!(fates, model(&outages, when_down, queue_packets, &packets));
    }
}
