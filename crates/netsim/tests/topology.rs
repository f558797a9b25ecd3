//! Networks of many hosts.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use netsim::topology::{Dumbbell, Line, Paths, RandomLimits, RandomTopology, Site, Star};
use netsim::{Jitter, Loss, Network, Payload, PipeConfig, PipeId, Reorder, Schedule, SendOutcome};

const MS: u64 = 1_000_000;

fn delay(milliseconds: u64) -> PipeConfig {
    PipeConfig { delay: Duration::from_millis(milliseconds), ..PipeConfig::default() }
}

/// Returns how long a packet takes from one address to another, and that it arrives at the right host.
fn takes_ns<P: Payload + Default>(
    network: &mut Network<P>,
    from: SocketAddr,
    to: SocketAddr,
    host: &Site,
) -> u64 {
    // A second for each packet, so that time does not go back.
    let start_ns = network.stats().packets_sent * 1000 * MS;
    assert_eq!(network.send(start_ns, from, to, 100, P::default()), SendOutcome::Sent, "{from} to {to}");
    let mut arrived = None;
    while let Some(now_ns) = network.next_event_ns() {
        if let Some(delivery) = network.deliver(now_ns) {
            assert_eq!((delivery.host, delivery.from, delivery.to), (host.host, from, to));
            arrived = Some(delivery.at_ns - start_ns);
        }
    }
    arrived.unwrap()
}

#[test]
fn along_a_line_every_hop_counts() {
    let mut network = Network::<()>::new(0);
    let line = Line::build(&mut network, 5, &delay(1));
    for (from, a) in (0u64..).zip(&line.sites) {
        for (to, b) in (0..).zip(&line.sites).filter(|(to, _)| *to != from) {
            let time_ns = takes_ns(&mut network, a.socket(0, 1), b.socket(0, 2), b);
            assert_eq!(time_ns, from.abs_diff(to) * MS);
        }
    }
    // The middle lines carry 2 * 3 of the 20 pairs each way, the outer ones 4.
    let offered: Vec<u64> =
        line.links.iter().map(|link| network.pipe(link.there).stats().packets_offered).collect();
    assert_eq!(offered, [4, 6, 6, 4]);
}

#[test]
fn in_a_star_all_are_two_spokes_apart() {
    let mut network = Network::<()>::new(0);
    let star = Star::build(&mut network, 4, &delay(2));
    for a in &star.sites {
        for b in star.sites.iter().filter(|b| b.host != a.host) {
            assert_eq!(takes_ns(&mut network, a.socket(0, 1), b.socket(0, 1), b), 4 * MS);
        }
    }
    for spoke in &star.spokes {
        let offered = [spoke.there, spoke.back].map(|pipe| network.pipe(pipe).stats().packets_offered);
        assert_eq!(offered, [3, 3]);
    }
}

#[test]
fn a_dumbbell_has_one_bottleneck_between_its_sides() {
    let mut network = Network::<()>::new(0);
    let dumbbell = Dumbbell::build(&mut network, 3, &delay(1), &delay(10));
    for (number, a) in dumbbell.left.iter().enumerate() {
        for b in &dumbbell.right {
            assert_eq!(takes_ns(&mut network, a.socket(0, 1), b.socket(0, 1), b), 12 * MS);
            assert_eq!(takes_ns(&mut network, b.socket(0, 1), a.socket(0, 1), a), 12 * MS);
        }
        let neighbour = &dumbbell.left[(number + 1) % 3];
        assert_eq!(takes_ns(&mut network, a.socket(0, 1), neighbour.socket(0, 1), neighbour), 2 * MS);
    }
    let shared = [dumbbell.bottleneck.there, dumbbell.bottleneck.back];
    assert_eq!(shared.map(|pipe| network.pipe(pipe).stats().packets_offered), [9, 9]);
}

#[test]
fn the_address_decides_the_path() {
    let mut network = Network::<()>::new(0);
    let paths = Paths::build(&mut network, &[delay(5), delay(7), delay(9)]);
    for from in 0..3 {
        for (to, expected_ns) in [5 * MS, 7 * MS, 9 * MS].into_iter().enumerate() {
            let (a, b) = (paths.a.socket(from, 1), paths.b.socket(to, 1));
            assert_eq!(takes_ns(&mut network, a, b, &paths.b), expected_ns);
            let (b, a) = (paths.b.socket(from, 1), paths.a.socket(to, 1));
            assert_eq!(takes_ns(&mut network, b, a, &paths.a), expected_ns);
        }
    }
    for interface in 0..3 {
        let (a, b) = (paths.a.addresses[interface], paths.b.addresses[interface]);
        assert_eq!((paths.a.source(b), paths.b.source(a)), (a, b));
    }
    assert_eq!(paths.a.source(IpAddr::from([10, 9, 9, 9])), paths.a.addresses[0]);
}

#[test]
fn topologies_of_one_network_have_addresses_of_their_own() {
    let mut network = Network::<()>::new(0);
    let star = Star::build(&mut network, 300, &delay(1));
    let paths = Paths::build(&mut network, &[delay(1), delay(1)]);
    let all: Vec<IpAddr> =
        star.sites.iter().chain([&paths.a, &paths.b]).flat_map(|site| site.addresses.clone()).collect();
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), 304);
}

/// A packet gets through in the end if it is sent repeatedly.
fn gets_through(network: &mut Network<u32>, from: SocketAddr, to: SocketAddr, start_ns: u64) -> bool {
    let until_ns = start_ns + 100_000 * MS;
    (start_ns..until_ns).step_by(50 * MS as usize).any(|now_ns| {
        network.send(now_ns, from, to, 500, 0);
        let mut arrived = false;
        while let Some(delivery) = network.deliver(now_ns) {
            arrived |= delivery.to == to;
        }
        arrived
    })
}

#[test]
fn in_a_random_network_everybody_reaches_everybody() {
    let (mut shapes, mut families) = (HashSet::new(), HashSet::new());
    for seed in 0..60 {
        let mut network = Network::new(seed);
        let topology = RandomTopology::build(&mut network, seed, &RandomLimits::default());
        shapes.insert(topology.shape);
        families.insert(topology.sites[0].addresses[0].is_ipv4());
        assert!((2..=6).contains(&topology.sites.len()));
        let mut start_ns = 0;
        for (a, b) in topology.sites.iter().flat_map(|a| topology.sites.iter().map(move |b| (a, b))) {
            for interface in 0..a.addresses.len() {
                let (from, to) = (a.socket(interface, 1), b.socket(b.addresses.len() - 1, 1));
                if a.host != b.host {
                    assert!(gets_through(&mut network, from, to, start_ns), "seed {seed}: {from} to {to}");
                    start_ns += 100_000 * MS;
                }
            }
        }
    }
    assert_eq!((shapes.len(), families.len()), (4, 2));
}

#[test]
fn a_seed_makes_up_the_same_network_again() {
    let build = |seed| {
        let mut network = Network::<()>::new(0);
        let topology = RandomTopology::build(&mut network, seed, &RandomLimits::default());
        let config = |pipe: &PipeId| network.pipe(*pipe).config().clone();
        (topology.pipes.iter().map(config).collect::<Vec<_>>(), topology)
    };
    assert_eq!(build(12), build(12));
    assert_ne!(build(12).0, build(13).0);
}

#[test]
fn random_pipes_have_every_fault_and_stay_within_their_limits() {
    let limits = RandomLimits::default();
    let mut seen = HashSet::new();
    for config in (0..2000).map(|seed| limits.pipe(seed)) {
        assert!(config.rate_bits_per_s.is_none_or(|rate| limits.rate_bits_per_s.contains(&rate)));
        assert!(config.delay <= limits.delay_max);
        assert!(config.queue_bytes >= 5_000 && config.queue_packets >= 5);
        match &config.loss {
            Loss::Random { probability } => assert!(*probability <= limits.loss_max),
            Loss::Always => panic!("a line that is cut"),
            _ => {}
        }
        if let Schedule::Listed(outages) = &config.schedule {
            assert!(outages.iter().all(|outage| outage.start <= limits.outages_until));
            assert!(outages.iter().all(|outage| outage.end - outage.start <= limits.outage_max));
        }
        let faults = [
            ("burst", matches!(config.loss, Loss::Burst { .. })),
            ("script", matches!(config.loss, Loss::Scripted(_))),
            ("late", matches!(config.reorder, Reorder::Late { .. })),
            ("behind", matches!(config.reorder, Reorder::Behind { .. })),
            ("copies", config.duplicate_probability > 0.0),
            ("damage", config.corrupt_probability > 0.0),
            ("jitter", config.jitter != Jitter::None),
            ("outages", config.schedule != Schedule::AlwaysUp),
            ("marks", config.mark_above_bytes.is_some()),
            ("nothing", config.loss == Loss::Never && config.reorder == Reorder::Never),
        ];
        seen.extend(faults.into_iter().filter(|(_, has)| *has).map(|(name, _)| name));
    }
    assert_eq!(seen.len(), 10, "{seen:?}");
    let quiet = RandomLimits { fault_probability: 0.0, ..limits };
    for config in (0..500).map(|seed| quiet.pipe(seed)) {
        assert_eq!((&config.loss, config.duplicate_probability), (&Loss::Never, 0.0));
        assert_eq!((config.reorder, config.jitter), (Reorder::Never, Jitter::None));
    }
}
