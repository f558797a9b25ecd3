//! Messages through two endpoints: what each step costs.

use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::pair::{Pair, Step, Steps, messages_of_a_turn};

/// How long each size is measured, and how long it warms up.
const MEASURED: Duration = Duration::from_millis(700);
const WARM_UP: Duration = Duration::from_millis(200);

/// Prints a line for each size and packet size.
pub(crate) fn report(only: Option<usize>) {
    println!("ns per message through two endpoints; allocations of the core per packet with DATA");
    println!(
        "packet bytes  message bytes     send  transmit  receive  read  SACK out  SACK in    total  allocations"
    );
    for mtu_bytes in [1472, 65_000] {
        for bytes in [1, 64, 1024, 16_384] {
            if only.is_none_or(|only| only == bytes) {
                line(mtu_bytes, bytes, &measure(mtu_bytes, bytes, false));
            }
        }
    }
}

fn measure(mtu_bytes: usize, bytes: usize, trace: bool) -> Steps {
    let mut pair = Pair::new(mtu_bytes, trace);
    let message = Bytes::from(vec![7; bytes]);
    run(&mut pair, &message, WARM_UP);
    run(&mut pair, &message, MEASURED)
}

fn run(pair: &mut Pair, message: &Bytes, time: Duration) -> Steps {
    let mut steps = Steps::default();
    let start = Instant::now();
    while start.elapsed() < time {
        pair.turn(messages_of_a_turn(message.len()), message, &mut steps);
    }
    steps
}

/// Prints what looking on costs: nothing, where nobody does.
pub(crate) fn report_trace(only: Option<usize>) {
    println!(
        "ns per message through two endpoints, both traced or not; allocations and records per packet with DATA"
    );
    println!("packet bytes  message bytes  traced    total  allocations  records");
    for bytes in [64, 1024, 16_384] {
        if only.is_some_and(|only| only != bytes) {
            continue;
        }
        for trace in [false, true] {
            let steps = measure(1472, bytes, trace);
            let (total, allocations) = steps.sum();
            let packets = steps.packets as f64;
            let per_message = total.as_nanos() as f64 / steps.messages as f64;
            println!(
                "{:12}  {bytes:13}  {trace:6}  {per_message:7.1}  {:11.4}  {:7.2}",
                1472,
                allocations as f64 / packets,
                steps.records as f64 / packets
            );
            assert!(trace || steps.records == 0, "an association that is not traced records nothing");
        }
    }
}

fn line(mtu_bytes: usize, bytes: usize, steps: &Steps) {
    let per_message = |step: &Step| step.time.as_nanos() as f64 / steps.messages as f64;
    let (total, allocations) = steps.sum();
    let total = total.as_nanos() as f64 / steps.messages as f64;
    println!(
        "{mtu_bytes:12}  {bytes:13}  {:7.1}  {:8.1}  {:7.1}  {:4.1}  {:8.1}  {:7.1}  {total:7.1}  {:11.4}",
        per_message(&steps.send),
        per_message(&steps.transmit),
        per_message(&steps.receive),
        per_message(&steps.read),
        per_message(&steps.sack),
        per_message(&steps.acknowledged),
        allocations as f64 / steps.packets as f64,
    );
}
