//! Each fault of a pipe, by count and by distribution.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use netsim::{
    DropReason, Ecn, Jitter, Loss, Passage, Payload, Pipe, PipeConfig, Reorder, Schedule, Verdict, WhenDown,
};

const MS: u64 = 1_000_000;

fn ms(number: u64) -> Duration {
    Duration::from_millis(number)
}

/// Returns a pipe on which 1000 bytes take a millisecond.
fn slow() -> PipeConfig {
    PipeConfig { rate_bits_per_s: Some(8_000_000), ..PipeConfig::default() }
}

fn passage(verdict: Verdict) -> Passage {
    match verdict {
        Verdict::Deliver(passage) => passage,
        Verdict::Drop(reason) => panic!("dropped: {reason}"),
    }
}

/// Returns the fates of packets of 1000 bytes, one every 10 ms.
fn verdicts(config: &PipeConfig, seed: u64, packets: u64) -> Vec<Verdict> {
    let mut pipe = Pipe::new(config, seed);
    (0..packets).map(|number| pipe.offer_with_ecn(number * 10 * MS, 1000, Ecn::Ect0)).collect()
}

fn is_lost(verdict: &Verdict) -> bool {
    *verdict == Verdict::Drop(DropReason::Loss)
}

/// Returns the lengths of the runs of lost packets.
fn bursts(verdicts: &[Verdict]) -> Vec<usize> {
    verdicts
        .chunk_by(|a, b| is_lost(a) == is_lost(b))
        .filter(|run| is_lost(&run[0]))
        .map(<[_]>::len)
        .collect()
}

#[test]
fn bursts_have_the_share_and_the_length_that_were_asked_for() {
    let config = PipeConfig { loss: Loss::bursts(0.02, 5.0), ..PipeConfig::default() };
    let all = verdicts(&config, 11, 500_000);
    let bursts = bursts(&all);
    let lost: usize = bursts.iter().sum();
    assert!((9_000..11_000).contains(&lost), "{lost} of 500,000 are not 2 %");
    let mean = lost as f64 / bursts.len() as f64;
    assert!((4.7..5.3).contains(&mean), "bursts of {mean}");
    // Lengths are geometric: a burst is one packet long with probability 1/5.
    let single = bursts.iter().filter(|length| **length == 1).count() as f64 / bursts.len() as f64;
    assert!((0.17..0.23).contains(&single), "{single}");
    // The first burst of this seed, so that a change of the chances shows.
    assert_eq!(all.iter().position(is_lost), Some(96));
}

#[test]
fn a_good_and_a_bad_line_lose_as_they_were_told() {
    let loss = Loss::Burst { good_to_bad: 0.01, bad_to_good: 0.04, loss_in_good: 0.001, loss_in_bad: 0.5 };
    let config = PipeConfig { loss, ..PipeConfig::default() };
    let lost = verdicts(&config, 3, 500_000).iter().filter(|verdict| is_lost(verdict)).count();
    // The line is bad for a fifth of the time: 0.8 * 0.001 + 0.2 * 0.5.
    let expected = 500_000.0 * 0.1008;
    assert!((lost as f64 / expected - 1.0).abs() < 0.05, "{lost} instead of {expected}");
}

#[test]
fn a_line_that_bursts_is_good_when_the_loss_is_set() {
    let mut pipe = Pipe::new(&PipeConfig::default(), 0);
    let stays_bad = Loss::Burst { good_to_bad: 1.0, bad_to_good: 0.0, loss_in_good: 0.0, loss_in_bad: 1.0 };
    for _ in 0..2 {
        pipe.set_loss(stays_bad.clone());
        let lost: Vec<bool> = (0..4).map(|_| is_lost(&pipe.offer(0, 1))).collect();
        assert_eq!(lost, [false, true, true, true]);
    }
}

#[test]
fn late_packets_are_as_many_and_as_late_as_asked() {
    let reorder = Reorder::Late { probability: 0.1, by: ms(7) };
    let config = PipeConfig { reorder, delay: ms(20), ..PipeConfig::default() };
    let mut late = 0;
    for (number, verdict) in (0..).zip(verdicts(&config, 5, 10_000)) {
        match passage(verdict).at_ns - number * 10 * MS {
            20_000_000 => {}
            27_000_000 => late += 1,
            other => panic!("packet {number} took {other} ns"),
        }
    }
    assert!((900..1100).contains(&late), "{late}");
}

#[test]
fn copies_are_as_many_as_asked_and_come_right_behind() {
    let config = PipeConfig { duplicate_probability: 0.2, delay: ms(3), ..slow() };
    let mut pipe = Pipe::new(&config, 5);
    let mut copies = 0;
    for number in 0..10_000 {
        let passage = passage(pipe.offer(number * 10 * MS, 1000));
        assert_eq!(passage.at_ns, number * 10 * MS + 4 * MS);
        if let Some(copy_at_ns) = passage.copy_at_ns {
            assert_eq!(copy_at_ns, passage.at_ns + MS);
            copies += 1;
        }
    }
    assert!((1900..2100).contains(&copies), "{copies}");
    let stats = pipe.stats();
    assert_eq!((stats.packets_duplicated, stats.packets_delivered), (copies, 10_000 + copies));
}

#[test]
fn a_copy_needs_room_too() {
    let config = PipeConfig { duplicate_probability: 1.0, queue_packets: 3, ..slow() };
    let mut pipe = Pipe::new(&config, 0);
    assert_eq!(passage(pipe.offer(0, 1000)).copy_at_ns, Some(2 * MS));
    assert_eq!(passage(pipe.offer(0, 1000)).copy_at_ns, None);
    let stats = pipe.stats();
    assert_eq!((stats.packets_duplicated, stats.copies_dropped, stats.packets_delivered), (1, 1, 3));
    assert_eq!(stats.packets_overflowed, 0, "no packet was dropped");
}

#[test]
fn damage_is_as_frequent_as_asked_and_falls_everywhere() {
    let config = PipeConfig { corrupt_probability: 0.25, corrupt_bits: 3, ..PipeConfig::default() };
    let mut hits = [0u32; 80];
    let mut damaged = 0;
    for verdict in verdicts(&config, 8, 40_000) {
        let Some(flips) = passage(verdict).flips else { continue };
        let mut packet = vec![0u8; 10];
        flips.apply(&mut packet);
        assert_eq!(packet.iter().map(|byte| byte.count_ones()).sum::<u32>(), 3);
        for (bit, hits) in hits.iter_mut().enumerate() {
            *hits += u32::from(packet[bit / 8] >> (bit % 8) & 1);
        }
        damaged += 1;
    }
    assert!((9_700..10_300).contains(&damaged), "{damaged}");
    // 30,000 flips over 80 bits.
    assert!(hits.iter().all(|hits| (300..450).contains(hits)), "{hits:?}");
}

#[test]
fn packets_with_jitter_stay_in_a_row_unless_they_may_not() {
    let run = |may_reorder| {
        let jitter = Jitter::Uniform { max: ms(100), may_reorder };
        let config = PipeConfig { jitter, delay: ms(5), ..PipeConfig::default() };
        let at_ns = verdicts(&config, 2, 1000).into_iter().map(|verdict| passage(verdict).at_ns);
        at_ns.collect::<Vec<_>>()
    };
    let (free, in_a_row) = (run(true), run(false));
    for (number, at_ns) in (0..).zip(&free) {
        assert!((5 * MS..=105 * MS).contains(&(at_ns - number * 10 * MS)));
    }
    assert!(!free.is_sorted());
    // With equal random decisions, each packet arrives when it would, or with one that left before it.
    let mut last_ns = 0;
    for (free, in_a_row) in free.iter().zip(in_a_row) {
        last_ns = last_ns.max(*free);
        assert_eq!(in_a_row, last_ns);
    }
}

#[test]
fn packets_that_find_a_long_queue_are_marked_if_permitted() {
    let config = PipeConfig { mark_above_bytes: Some(2000), ..slow() };
    let mut pipe = Pipe::new(&config, 0);
    let mut offer = |ecn| passage(pipe.offer_with_ecn(0, 1000, ecn)).ecn;
    // Two packets wait before the third, three before the fourth.
    assert_eq!([Ecn::Ect0; 3].map(&mut offer), [Ecn::Ect0; 3]);
    let ce = Ecn::CongestionExperienced;
    assert_eq!([Ecn::Ect0, Ecn::Ect1, ce, Ecn::NotCapable].map(&mut offer), [ce, ce, ce, Ecn::NotCapable]);
    assert_eq!(pipe.stats().packets_marked, 2);
    // Five milliseconds later two are left of seven.
    assert_eq!(passage(pipe.offer_with_ecn(5 * MS, 1000, Ecn::Ect0)).ecn, Ecn::Ect0);
}

#[test]
fn a_queue_is_bounded_in_packets_as_in_bytes() {
    let config = PipeConfig { queue_packets: 2, queue_bytes: 1500, ..slow() };
    let mut pipe = Pipe::new(&config, 0);
    let full = Verdict::Drop(DropReason::Queue);
    let at_ns: Vec<_> = (0..2).map(|_| passage(pipe.offer(0, 100)).at_ns).collect();
    assert_eq!(at_ns, [MS / 10, MS / 5]);
    assert_eq!(pipe.offer(0, 1), full);
    // The first has left: there is room for a packet, but not for one of this length.
    assert_eq!(pipe.offer(MS / 10, 1401), full);
    passage(pipe.offer(MS / 10, 1400));
    assert_eq!((pipe.queued_packets(MS / 10), pipe.queued_bytes(MS / 10)), (2, 1500));
    assert_eq!((pipe.stats().queue_packets_max, pipe.stats().queue_bytes_max), (2, 1500));
}

fn outage() -> Schedule {
    Schedule::Listed(vec![ms(10)..ms(20)])
}

#[test]
fn a_line_that_goes_down_loses_its_queue_and_not_what_is_on_the_way() {
    let config = PipeConfig { schedule: outage(), delay: ms(50), queue_bytes: 3000, ..slow() };
    let mut pipe = Pipe::new(&config, 0);
    let down = Verdict::Drop(DropReason::Down);
    // The first has left when the line goes down, the second is just leaving, the third waits.
    assert_eq!(passage(pipe.offer(8 * MS + MS / 2, 1000)).at_ns, 59 * MS + MS / 2);
    assert_eq!(pipe.offer(8 * MS + MS / 2, 1000), down);
    assert_eq!(pipe.offer(9 * MS, 1000), down);
    // Packets that will be lost still take room.
    assert_eq!(pipe.offer(9 * MS, 1000), Verdict::Drop(DropReason::Queue));
    assert_eq!((pipe.queued_packets(10 * MS - 1), pipe.queued_packets(10 * MS)), (2, 0));
    assert_eq!(pipe.offer(10 * MS, 1000), down);
    assert_eq!(pipe.offer(20 * MS - 1, 1000), down);
    // Nothing of the old queue remains.
    assert_eq!(passage(pipe.offer(20 * MS, 1000)).at_ns, 71 * MS);
    assert_eq!(pipe.stats().packets_down, 4);
}

#[test]
fn a_packet_that_leaves_in_the_last_moment_has_left() {
    let mut pipe = Pipe::new(&PipeConfig { schedule: outage(), ..slow() }, 0);
    assert_eq!(passage(pipe.offer(9 * MS, 1000)).at_ns, 10 * MS);
}

#[test]
fn a_queue_can_wait_until_the_line_is_up_again() {
    let config = PipeConfig { schedule: outage(), when_down: WhenDown::Wait, queue_packets: 3, ..slow() };
    let mut pipe = Pipe::new(&config, 0);
    // Half of it leaves before, half after.
    assert_eq!(passage(pipe.offer(9 * MS + MS / 2, 1000)).at_ns, 20 * MS + MS / 2);
    assert_eq!(passage(pipe.offer(12 * MS, 1000)).at_ns, 21 * MS + MS / 2);
    assert_eq!(passage(pipe.offer(13 * MS, 1000)).at_ns, 22 * MS + MS / 2);
    assert_eq!(pipe.offer(19 * MS, 1000), Verdict::Drop(DropReason::Queue));
    assert_eq!(passage(pipe.offer(21 * MS, 1000)).at_ns, 23 * MS + MS / 2);
    assert_eq!(pipe.stats().packets_down, 0);
}

#[test]
fn a_periodic_outage_comes_again() {
    let schedule = Schedule::Periodic { first_down: ms(30), down: ms(20), up: ms(50) };
    let config = PipeConfig { schedule, ..PipeConfig::default() };
    let down: Vec<u64> = (0..)
        .zip(verdicts(&config, 0, 25))
        .filter(|(_, v)| *v == Verdict::Drop(DropReason::Down))
        .map(|(n, _)| n)
        .collect();
    // In units of 10 ms.
    assert_eq!(down, [3, 4, 10, 11, 17, 18, 24]);
}

#[test]
fn a_new_configuration_counts_for_what_is_still_to_come() {
    let mut pipe = Pipe::new(&slow(), 0);
    assert_eq!(passage(pipe.offer(0, 1000)).at_ns, MS);
    pipe.set_config(PipeConfig {
        rate_bits_per_s: Some(16_000_000),
        delay: ms(2),
        loss: Loss::scripted([1]),
        schedule: Schedule::Listed(vec![ms(5)..ms(6)]),
        ..PipeConfig::default()
    });
    assert_eq!(passage(pipe.offer(0, 1000)).at_ns, 3 * MS + MS / 2);
    assert_eq!(pipe.offer(0, 1000), Verdict::Drop(DropReason::Loss));
    assert_eq!(pipe.offer(5 * MS, 1000), Verdict::Drop(DropReason::Down));
}

/// Returns all faults that depend on chance, each alone.
fn faults() -> [PipeConfig; 5] {
    let none = PipeConfig::default();
    [
        PipeConfig { loss: Loss::Random { probability: 0.3 }, ..none.clone() },
        PipeConfig { duplicate_probability: 0.3, ..none.clone() },
        PipeConfig { corrupt_probability: 0.3, ..none.clone() },
        PipeConfig {
            reorder: Reorder::Late { probability: 0.3, by: Duration::from_secs(10) },
            ..none.clone()
        },
        PipeConfig { jitter: Jitter::Uniform { max: ms(5), may_reorder: true }, ..none },
    ]
}

/// Returns every fault of either.
fn both(a: &PipeConfig, b: &PipeConfig) -> PipeConfig {
    let none = PipeConfig::default();
    PipeConfig {
        loss: if a.loss == none.loss { b.loss.clone() } else { a.loss.clone() },
        duplicate_probability: a.duplicate_probability.max(b.duplicate_probability),
        corrupt_probability: a.corrupt_probability.max(b.corrupt_probability),
        reorder: if a.reorder == none.reorder { b.reorder } else { a.reorder },
        jitter: if a.jitter == none.jitter { b.jitter } else { a.jitter },
        ..none
    }
}

/// Returns the trace that one fault (by its number in [`faults`]) leaves on a packet that took `taken_ns`.
fn trace(fault: usize, passage: &Passage, taken_ns: u64) -> u64 {
    match fault {
        1 => passage.copy_at_ns.is_some().into(),
        2 => passage.flips.map_or(0, |flips| flips.first_bit),
        3 => (taken_ns >= 10_000 * MS).into(),
        _ => taken_ns % (10_000 * MS),
    }
}

#[test]
fn one_fault_does_not_change_the_chances_of_another() {
    let faults = faults();
    for (one, a) in faults.iter().enumerate() {
        let alone = verdicts(a, 6, 500);
        for b in &faults {
            for (number, (alone, together)) in (0..).zip(alone.iter().zip(verdicts(&both(a, b), 6, 500))) {
                match (alone, &together) {
                    (Verdict::Deliver(alone), Verdict::Deliver(together)) => {
                        let trace = |p: &Passage| trace(one, p, p.at_ns - number * 10 * MS);
                        // Loss shows by missing packets alone; their delay belongs to another fault.
                        if one != 0 {
                            assert_eq!(trace(alone), trace(together), "packet {number}, fault {one}, {b:?}");
                        }
                    }
                    (Verdict::Drop(_), _) => assert_eq!(*alone, together),
                    // The other one lost it.
                    (Verdict::Deliver(_), Verdict::Drop(_)) => assert_ne!(b.loss, Loss::Never),
                }
            }
        }
    }
}

#[test]
fn a_text_cannot_be_damaged() {
    let mut text = "whole";
    text.flip_bit(0);
    assert_eq!(text, "whole");
}
