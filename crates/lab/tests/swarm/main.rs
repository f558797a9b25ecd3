//! Random networks, faults, settings and calls: every record arrives once and in the order of its stream, or its
//! association reports why not; memory stays bounded, and everything comes to an end.
//!
//! A failure names its seed. `SWARM_FIRST=1234 SWARM_CASES=1` runs that one again, and with `SWARM_LADDER=1` it prints
//! every packet; `./test --soak 20000` runs many.
#![allow(unreachable_pub, reason = "the parts are public to one program")]

mod app;
mod case;
mod chatter;
mod dice;
mod settings;
mod trace;

use std::any::Any;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Cases of an ordinary run.
const CASES: u64 = 1000;
/// Number of failures after which a run stops.
const FAILURES_MAX: usize = 3;
/// A longer run reports its progress after this many cases.
const PROGRESS_CASES: u64 = 1000;

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Returns the version of the source, to repeat a failure.
fn commit() -> String {
    let output = Command::new("git").args(["rev-parse", "--short", "HEAD"]).output().ok();
    let text = output.and_then(|output| String::from_utf8(output.stdout).ok());
    text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()).unwrap_or("unknown".to_owned())
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_default()
}

#[test]
fn every_case_keeps_the_promises() {
    let (first, cases) = (variable("SWARM_FIRST", 0), variable("SWARM_CASES", CASES));
    let (next, packets) = (AtomicU64::new(first), AtomicU64::new(0));
    let failures = Mutex::new(Vec::new());
    let run = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let enough =
                failures.lock().map_or(true, |f: std::sync::MutexGuard<'_, Vec<_>>| f.len() >= FAILURES_MAX);
            if seed >= first + cases || enough {
                return;
            }
            match std::panic::catch_unwind(|| case::run(seed)) {
                Ok(outcome) => _ = packets.fetch_add(outcome.packets, Ordering::Relaxed),
                Err(panic) => {
                    if let Ok(mut failures) = failures.lock() {
                        failures.push((seed, message(&*panic)));
                    }
                }
            }
            let done = seed + 1 - first;
            if cases > CASES && done.is_multiple_of(PROGRESS_CASES) {
                println!("{done} of {cases} cases, {} packets", packets.load(Ordering::Relaxed));
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(run);
        }
    });
    let failures = failures.into_inner().expect("nobody panics with the lock");
    for (seed, message) in &failures {
        println!("SWARM_FIRST={seed} SWARM_CASES=1 (commit {}): {message}", commit());
    }
    assert!(failures.is_empty(), "{} cases failed; each shows its seed above", failures.len());
    println!("{cases} cases from seed {first}, {} packets", packets.into_inner());
}

/// A seed gives the same run each time.
#[test]
fn a_seed_replays_bit_for_bit() {
    for seed in 0..20 {
        let (first, second) = (case::run(seed), case::run(seed));
        assert_eq!(first, second, "seed {seed}");
        assert_ne!(first.trace, case::run(seed + 1).trace, "another seed is another case");
    }
}
