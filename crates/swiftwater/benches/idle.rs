//! Cost of idle associations: resident memory of each end, including its stream, and processor time.
//!
//! Ten thousand associations of one stack with itself: twenty thousand ends in one process, with the default
//! heartbeats. `cargo bench -p swiftwater --bench idle [-- ASSOCIATIONS [SECONDS]]`
#![allow(missing_docs, reason = "a program")]

use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use swiftwater::{Stack, StackOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).filter(|a| a != "--bench");
    let count: usize = arguments.next().map_or(Ok(10_000), |a| a.parse())?;
    let seconds: u64 = arguments.next().map_or(Ok(35), |a| a.parse())?;
    let options = StackOptions::default().with_udp_port(0).with_local_addresses(vec!["127.0.0.1".parse()?]);
    let stack = Stack::bind(&options)?;
    let listener = stack.listen(0)?;
    let address = listener.address();
    let mut ends = Vec::with_capacity(2 * count);
    let before = resident_bytes()?;
    let started = Instant::now();
    for _ in 0..count {
        ends.push(stack.connect(&address)?);
        ends.push(listener.accept()?.0);
    }
    let set_up = started.elapsed();
    let memory_bytes = resident_bytes()?.saturating_sub(before);
    println!("{count} associations, both ends here, set up in {:.2} s", set_up.as_secs_f64());
    println!("resident memory: {} bytes an end, stream included", memory_bytes / ends.len());
    let (cpu, started) = (cpu_time()?, Instant::now());
    let heard = stack.statistics().link.datagrams_received;
    std::thread::sleep(Duration::from_secs(seconds));
    let share = (cpu_time()? - cpu).as_secs_f64() / started.elapsed().as_secs_f64();
    let heard = stack.statistics().link.datagrams_received - heard;
    println!("processor: {:.2} % of a core over {seconds} s ({heard} datagrams, heartbeats)", 100.0 * share);
    for end in ends {
        end.abort("the measurement is over");
    }
    Ok(())
}

fn resident_bytes() -> Result<usize, Box<dyn std::error::Error>> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages: usize = statm.split(' ').nth(1).ok_or("statm has no second field")?.parse()?;
    Ok(pages * 4096)
}

fn cpu_time() -> Result<Duration, Box<dyn std::error::Error>> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let of = |t: nix::sys::time::TimeVal| Duration::new(t.tv_sec() as u64, 1000 * t.tv_usec() as u32);
    Ok(of(usage.user_time()) + of(usage.system_time()))
}
