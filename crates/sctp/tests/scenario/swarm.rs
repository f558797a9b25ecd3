//! Random lines, faults, settings and calls: whatever they are, every record arrives once and in the order of its
//! stream, memory stays bounded and the association ends as it should. A failure names its seed.
//!
//! `SWARM_SEEDS=2000` tries more of them, `SWARM_FIRST=1234` begins elsewhere.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use netsim::{Loss, PipeConfig};
use sctp::{AssociationConfig, AssociationId, CloseReason, PathHints, SendInfo};

use lab::{A, B, Fate, Lab, PORT_A, PORT_B, Reading};

/// Longest virtual time that a run may take to deliver everything.
const LIMIT: Duration = Duration::from_secs(50_000);

/// SplitMix64.
#[derive(Clone, Debug)]
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from `low` to `high`, small ones more often.
    fn skewed(&mut self, low: u64, high: u64) -> u64 {
        let bits = self.next() % 64;
        low + (self.next() >> bits) % (high - low + 1)
    }

    fn even(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.next().is_multiple_of(n)
    }
}

/// How often each fault strikes, as one packet in so many; 0 is never.
#[derive(Clone, Copy, Debug)]
struct Faults {
    twice: u64,
    delay: u64,
    behind: u64,
    damage: u64,
}

fn faults(dice: &mut Dice) -> Faults {
    let mut often = || if dice.one_in(2) { 0 } else { dice.even(5, 100) };
    Faults { twice: often(), delay: often(), behind: often(), damage: often() }
}

fn judge(dice: &mut Dice, faults: Faults, packet: &Bytes) -> Fate {
    let mut strikes = |often: u64| often > 0 && dice.one_in(often);
    if strikes(faults.twice) {
        Fate::Twice
    } else if strikes(faults.delay) {
        Fate::Delay(Duration::from_micros(dice.skewed(1, 300_000)))
    } else if strikes(faults.behind) {
        Fate::Behind(dice.even(1, 6) as usize)
    } else if strikes(faults.damage) {
        let mut bytes = packet.to_vec();
        let at = dice.next() as usize % bytes.len();
        bytes[at] ^= 1 << (dice.next() % 8);
        Fate::Replace(bytes.into())
    } else {
        Fate::Pass
    }
}

fn line(dice: &mut Dice) -> PipeConfig {
    let rate = (!dice.one_in(4)).then(|| dice.skewed(200_000, 1_000_000_000));
    let loss = match dice.even(0, 3) {
        0 | 1 => Loss::Never,
        2 => Loss::Random { probability: 0.01 },
        _ => Loss::Random { probability: dice.even(1, 25) as f64 / 100.0 },
    };
    PipeConfig {
        rate_bits_per_s: rate,
        delay: Duration::from_micros(dice.skewed(0, 200_000)),
        queue_bytes: if dice.one_in(2) { usize::MAX } else { dice.even(5_000, 300_000) as usize },
        loss,
        ..PipeConfig::default()
    }
}

fn settings(dice: &mut Dice) -> AssociationConfig {
    let defaults = AssociationConfig::default();
    AssociationConfig {
        streams_out: dice.even(1, 12) as u16,
        send_buffer_bytes: dice.skewed(2_000, 2_000_000) as usize,
        receive_buffer_bytes: dice.skewed(3_000, 2_000_000) as usize,
        receive_buffer_tuned_bytes: dice.skewed(0, 8_000_000) as usize,
        tail_loss_probes: !dice.one_in(4),
        partial_delivery_bytes: dice.skewed(500, 500_000) as usize,
        sack_delay: Duration::from_millis(dice.even(0, 200)),
        heartbeat_interval: (!dice.one_in(4)).then_some(Duration::from_secs(dice.even(1, 30))),
        // Nothing may fail for want of patience: a try may be lost any number of times.
        init_retries_max: 1000,
        association_retries_max: 1000,
        cookie_life: Duration::from_secs(500),
        ..defaults
    }
}

/// Records that one side sends, by stream and whether they are unordered.
type Traffic = BTreeMap<(u16, bool), Vec<Vec<u8>>>;

fn send_some(
    dice: &mut Dice,
    lab: &mut Lab,
    node: usize,
    id: AssociationId,
    streams: u16,
    sent: &mut Traffic,
) {
    for _ in 0..dice.skewed(1, 120) {
        let stream = dice.even(0, u64::from(streams) - 1) as u16;
        let unordered = dice.one_in(5);
        let length = dice.skewed(1, 20_000) as usize;
        let tag = dice.next().to_le_bytes();
        let bytes: Vec<u8> = tag.iter().copied().cycle().take(length).collect();
        let parts = if dice.one_in(8) { dice.even(1, 5) as usize } else { 1 };
        let cut = length.div_ceil(parts);
        let chunks: Vec<&[u8]> = bytes.chunks(cut).collect();
        for (n, part) in chunks.iter().enumerate() {
            let info = SendInfo {
                stream,
                unordered,
                more: n + 1 < chunks.len(),
                immediate: dice.one_in(20),
                ppid: 7,
            };
            lab.send(node, id, info, part.to_vec());
        }
        sent.entry((stream, unordered)).or_default().push(bytes);
    }
}

fn received(lab: &Lab, node: usize) -> Traffic {
    let mut traffic = Traffic::new();
    let mut open: Option<((u16, bool), Vec<u8>)> = None;
    for message in &lab.node(node).app.messages {
        let key = (message.info.stream, message.info.unordered);
        let (began, mut bytes) = open.take().unwrap_or((key, Vec::new()));
        assert_eq!(began, key, "nothing comes between the parts of a record");
        assert_eq!(message.info.ppid, 7);
        bytes.extend_from_slice(&message.bytes);
        if message.info.more {
            open = Some((key, bytes));
        } else {
            traffic.entry(key).or_default().push(bytes);
        }
    }
    traffic
}

/// Unordered records may arrive in any order.
fn sorted(mut traffic: Traffic) -> Traffic {
    for ((_, unordered), records) in &mut traffic {
        if *unordered {
            records.sort();
        }
    }
    traffic
}

fn count(traffic: &Traffic) -> usize {
    traffic.values().map(Vec::len).sum()
}

fn complete(lab: &Lab, node: usize) -> usize {
    lab.node(node).app.messages.iter().filter(|m| !m.info.more).count()
}

fn run(seed: u64) {
    let mut dice = Dice(seed);
    let mut lab = Lab::with_line(seed, &line(&mut dice));
    for node in [A, B] {
        let mtu_bytes = *[512, 1280, 1472, 1472, 8972, 65_504].get(dice.even(0, 5) as usize).unwrap_or(&1472);
        let in_flight_limit_bytes = dice.one_in(4).then(|| dice.even(140_000, 400_000) as usize);
        lab.app(node).hints = PathHints { mtu_bytes, in_flight_limit_bytes };
        let faults = faults(&mut dice);
        let mut own = Dice(dice.next());
        lab.tap(node, move |packet| judge(&mut own, faults, packet));
    }
    let configs = [settings(&mut dice), settings(&mut dice)];
    lab.listen(configs[B].clone());
    let a = lab.connect(A, (PORT_A, PORT_B), configs[A].clone());
    if dice.one_in(10) {
        let remote = lab.node(A).address;
        let now = lab.now();
        let node = lab.node_mut(B);
        let _ = node.endpoint.connect(now, PORT_B, PORT_A, &[remote], configs[B].clone().into(), &node.app);
    }
    lab.run_until("both are up", LIMIT, |lab| lab.is_up(A) && lab.is_up(B));
    let ids = [a, lab.app(B).events[0].id];
    let streams = [A, B].map(|n| lab.statistics(n, ids[n]).streams_out);
    let mut sent = [Traffic::new(), Traffic::new()];
    for _ in 0..dice.even(1, 12) {
        for node in [A, B] {
            if dice.one_in(2) {
                send_some(&mut dice, &mut lab, node, ids[node], streams[node], &mut sent[node]);
            }
            if dice.one_in(3) {
                lab.app(node).set_reading(match dice.even(0, 2) {
                    0 => Reading::AtOnce,
                    1 => Reading::Every(Duration::from_micros(dice.skewed(10, 20_000))),
                    _ => Reading::Never,
                });
            }
        }
        lab.run_for(Duration::from_micros(dice.skewed(0, 3_000_000)));
        for node in [A, B] {
            let held = lab.statistics(node, ids[node]).receive_buffered_bytes as usize;
            let config = &configs[node];
            let buffer = config.receive_buffer_bytes.max(config.receive_buffer_tuned_bytes).max(1500);
            let bound = 2 * buffer + 65_536 + 64;
            assert!(held <= bound, "{held} bytes are held, seed {seed}");
        }
    }
    for node in [A, B] {
        lab.app(node).set_reading(Reading::AtOnce);
    }
    lab.run_until("everything arrived", LIMIT, |lab| {
        [A, B].iter().all(|&n| complete(lab, n) == count(&sent[1 - n]))
    });
    lab.run_until("everything is acknowledged", LIMIT, |lab| {
        [A, B].iter().all(|&n| lab.statistics(n, ids[n]).send_buffered_bytes == 0)
    });
    for node in [A, B] {
        assert!(sorted(received(&lab, node)) == sorted(sent[1 - node].clone()), "seed {seed}\n{}", lab.log());
        let statistics = lab.statistics(node, ids[node]);
        assert_eq!((statistics.outstanding_bytes, statistics.receive_buffered_bytes), (0, 0), "seed {seed}");
        assert_eq!(statistics.paths[0].in_flight_bytes, 0, "seed {seed}");
    }
    lab.shutdown(A, ids[A]);
    if dice.one_in(2) {
        lab.shutdown(B, ids[B]);
    }
    lab.run_until("both are closed", LIMIT, |lab| {
        [A, B].iter().all(|&n| lab.node(n).endpoint.association_count() == 0)
    });
    assert_eq!(lab.closed(A), Some(CloseReason::Shutdown), "seed {seed}\n{}", lab.log());
}

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn every_run_keeps_the_promises() {
    let first = variable("SWARM_FIRST", 0);
    for seed in first..first + variable("SWARM_SEEDS", 60) {
        let failed = std::panic::catch_unwind(|| run(seed)).is_err();
        assert!(!failed, "SWARM_FIRST={seed} SWARM_SEEDS=1 shows it again");
    }
}
