//! How fast the simulator is: packets of virtual traffic through two full endpoints in a second of one processor.
//!
//! `cargo bench -p swiftwater-lab`; a number says how many seconds of the line are simulated.

use std::time::Duration;

use lab::Simulation;
use lab::traffic::{Source, Traffic};
use netsim::{Loss, PipeConfig};
use nix::time::{ClockId, clock_gettime};
use sctp::{AssociationConfig, Checksum, EndpointConfig, Time};

const SECONDS: u64 = 10;

/// Returns the processor time of this process: other programs do not disturb it much.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).expect("the clock is there").into()
}

/// Measures one association that fills a line of 1 Gbit/s, or several that share it.
fn measure(name: &str, associations: u16, loss: Loss, checksum: Checksum, seconds: u64) {
    let config = EndpointConfig { checksum, ..EndpointConfig::default() };
    let mut simulation: Simulation<Traffic> = Simulation::with_endpoints(1, config);
    let hosts = [1, 2].map(|last| simulation.add_host(&[[10, 0, 0, last].into()], Traffic::default()));
    let line = PipeConfig {
        rate_bits_per_s: Some(1_000_000_000),
        delay: Duration::from_millis(10),
        queue_bytes: 2_500_000,
        loss,
        ..PipeConfig::default()
    };
    simulation.join(hosts[0], hosts[1], &line);
    let buffers = AssociationConfig {
        send_buffer_bytes: 16 << 20,
        receive_buffer_bytes: 16 << 20,
        ..AssociationConfig::default()
    };
    for n in 0..associations {
        simulation.listen(hosts[1], 6000 + n, buffers.clone());
        let id = simulation.connect(hosts[0], hosts[1], (5000 + n, 6000 + n), buffers.clone());
        let until = Time::from_nanos(u64::MAX);
        simulation.node_mut(hosts[0]).app.start(id, Source::Endless { message_bytes: 1444, until });
    }
    simulation.run_for(Duration::from_secs(1));
    let before = (simulation.network.stats().packets_sent, simulation.node(hosts[1]).app.received().bytes);
    let start = processor_time();
    simulation.run_for(Duration::from_secs(seconds));
    let took = (processor_time() - start).as_secs_f64();
    let packets = (simulation.network.stats().packets_sent - before.0) as f64;
    let bits = (simulation.node(hosts[1]).app.received().bytes - before.1) as f64 * 8.0;
    println!(
        "{name:30} {:9.0} packets/s {:7.0} ns/packet {:7.1} times real time {:7.1} Mbit/s on the line",
        packets / took,
        took * 1e9 / packets,
        seconds as f64 / took,
        bits / seconds as f64 / 1e6,
    );
}

fn main() {
    let words = std::env::args().skip(1);
    let seconds = words.filter_map(|word| word.parse().ok()).next().unwrap_or(SECONDS);
    let lossy = Loss::Random { probability: 0.0001 };
    measure("one association", 1, Loss::Never, Checksum::Crc32c, seconds);
    measure("one, no checksum", 1, Loss::Never, Checksum::None, seconds);
    measure("one, 0.01 % lost", 1, lossy.clone(), Checksum::Crc32c, seconds);
    measure("a hundred associations", 100, Loss::Never, Checksum::Crc32c, seconds);
    measure("a hundred, 0.01 % lost", 100, lossy, Checksum::Crc32c, seconds);
}
