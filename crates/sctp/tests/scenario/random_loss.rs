//! Lines that lose packets at random: everything arrives once and in order.

use std::time::Duration;

use bytes::Bytes;
use netsim::{Loss, PipeConfig};
use sctp::{AssociationConfig, CloseReason, SendInfo};

use lab::{A, B, TwoHosts, line};

/// Both sides send messages of many sizes on several streams through a line that loses packets both ways.
fn survives(seed: u64, probability: f64, count: u32) {
    let config = PipeConfig { loss: Loss::Random { probability }, ..line() };
    let mut hosts = TwoHosts::with_line(seed, &config);
    // More attempts than the defaults, because every attempt may be lost.
    let settings = AssociationConfig {
        init_retries_max: 30,
        association_retries_max: 100,
        ..AssociationConfig::default()
    };
    hosts.listen(settings.clone());
    let a = hosts.connect(A, (lab::PORT_A, lab::PORT_B), settings);
    hosts.run_until("both are up", Duration::from_secs(2000), |hosts| hosts.is_up(A) && hosts.is_up(B));
    let b = hosts.accepted(B);
    let message = |n: u32| {
        let mut bytes = n.to_be_bytes().to_vec();
        bytes.resize(4 + (n as usize * 37) % 4000, n as u8);
        Bytes::from(bytes)
    };
    let info = |n: u32| SendInfo { stream: (n % 5) as u16, unordered: n % 5 == 4, ..SendInfo::default() };
    for (node, id) in [(A, a), (B, b)] {
        hosts.send_all(node, id, (0..count).map(|n| (info(n), message(n))));
    }
    hosts.run_until("all arrived", Duration::from_secs(100_000), |hosts| {
        [A, B].iter().all(|&n| hosts.node(n).app.messages.len() == count as usize)
    });
    for node in [A, B] {
        for stream in 0..5u16 {
            let of_stream = hosts.node(node).app.messages.iter().filter(|m| m.info.stream == stream);
            let mut got: Vec<_> = of_stream.map(|m| m.bytes.clone()).collect();
            let mut sent: Vec<_> = (0..count).filter(|n| n % 5 == u32::from(stream)).map(message).collect();
            if stream == 4 {
                got.sort();
                sent.sort();
            }
            assert!(got == sent, "stream {stream}, seed {seed}");
        }
    }
    for (node, id) in [(A, a), (B, b)] {
        let statistics = hosts.statistics(node, id);
        assert_eq!(statistics.messages_sent, u64::from(count));
        assert_eq!(statistics.messages_received, u64::from(count));
        assert_eq!(statistics.receive_buffered_bytes, 0);
    }
    hosts.shutdown(A, a);
    hosts.run_until("both are closed", Duration::from_secs(10_000), |hosts| {
        [A, B].iter().all(|&n| hosts.node(n).endpoint.association_count() == 0)
    });
    assert_eq!(hosts.closed(A), Some(CloseReason::Shutdown));
}

#[test]
fn one_percent() {
    for seed in 0..6 {
        survives(seed, 0.01, 1500);
    }
}

#[test]
fn five_percent() {
    for seed in 10..16 {
        survives(seed, 0.05, 600);
    }
}

#[test]
fn twenty_percent() {
    for seed in 20..26 {
        survives(seed, 0.2, 300);
    }
}

#[test]
fn forty_percent() {
    for seed in 30..33 {
        survives(seed, 0.4, 60);
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let config = PipeConfig { loss: Loss::Random { probability: 0.1 }, ..line() };
        let mut hosts = TwoHosts::with_line(seed, &config);
        let (a, _) = hosts.establish();
        hosts.send_all(A, a, (0..200).map(|n| (SendInfo::default(), vec![n as u8; 700].into())));
        hosts.run_for(Duration::from_secs(30));
        hosts.sent.iter().map(|s| (s.at, s.by, s.packet.clone())).collect::<Vec<_>>()
    };
    assert!(run(1) == run(1));
    assert!(run(1) != run(2));
}

#[test]
fn a_short_queue_slows_the_sender_and_loses_nothing_for_good() {
    let config = PipeConfig { rate_bits_per_s: Some(10_000_000), queue_bytes: 20_000, ..line() };
    let mut hosts = TwoHosts::with_line(40, &config);
    let (a, _) = hosts.establish();
    hosts.app(B).keeps_bytes = false;
    let start = hosts.now();
    hosts.send_all(A, a, (0..2000).map(|n| (SendInfo::default(), vec![n as u8; 1400].into())));
    hosts.run_until("all arrived", Duration::from_secs(60), |hosts| hosts.node(B).app.messages.len() == 2000);
    let statistics = hosts.statistics(A, a);
    assert!(hosts.network.pipe(hosts.links[0].there).stats().packets_overflowed > 0);
    assert_eq!(statistics.timeouts, 0, "{statistics:?}");
    // 2.8 MB take at least 2.3 s.
    let took = hosts.now() - start;
    assert!(took < Duration::from_secs(5), "{took:?} {statistics:?}");
}
