use links::device::{PartialChecksum, SegmentKind, Segmentation};
use netsim::{DropReason, Jitter, Loss};
use proptest::prelude::*;

use super::*;
use crate::memory::MemoryBudget;

const SEGMENT_BYTES: usize = 1448;
const HEADERS_BYTES: usize = 40;
const PACKET_BYTES: usize = HEADERS_BYTES + SEGMENT_BYTES;

/// Returns a TCP super-packet each of whose payload bytes is the number of its segment.
fn super_packet(segments: u8, ecn: Ecn, budget: &MemoryBudget) -> SuperPacket {
    let mut bytes = vec![0; HEADERS_BYTES];
    (bytes[0], bytes[1], bytes[9], bytes[32]) = (0x45, ecn.bits(), 6, 5 << 4);
    (0..segments).for_each(|segment| bytes.extend([segment; SEGMENT_BYTES]));
    let header = VnetHeader {
        checksum: Some(PartialChecksum { start: 20, offset: 16 }),
        segmentation: Some(Segmentation {
            kind: SegmentKind::TcpV4,
            segment_bytes: SEGMENT_BYTES as u16,
            reduced_window: false,
        }),
        headers_bytes: HEADERS_BYTES as u16,
    };
    SuperPacket::new(header, &bytes, budget)
}

/// Returns the arrival times of packets, and the numbers of the segments in each.
fn arrivals(line: &mut Line) -> Vec<(u64, Vec<u8>)> {
    let mut arrivals = Vec::new();
    while let Some(at_ns) = line.next_ns() {
        assert!(at_ns == 0 || line.poll_delivery(at_ns - 1).is_none(), "nothing is early");
        let delivery = line.poll_delivery(at_ns).expect("it is due");
        line.on_written(&delivery);
        let mut head = Vec::new();
        let (_, rest) = delivery.write(&mut head);
        let packet = [&head[..], rest].concat();
        let numbers = packet[HEADERS_BYTES..].chunks(SEGMENT_BYTES).map(|segment| segment[0]);
        arrivals.push((delivery.at_ns, numbers.collect()));
    }
    arrivals
}

/// Returns a pipe that takes 12 µs for a packet.
fn fast() -> PipeConfig {
    PipeConfig {
        rate_bits_per_s: Some(PACKET_BYTES as u64 * 8 * 1_000_000 / 12),
        delay: Duration::from_millis(1),
        ..PipeConfig::default()
    }
}

const JOIN: Duration = Duration::from_micros(30);

#[test]
fn segments_that_are_due_together_arrive_with_the_last_of_them() {
    let mut line = Line::new(&fast(), 0, JOIN);
    line.handle_packet(0, super_packet(7, Ecn::NotCapable, &MemoryBudget::default()));
    let expected = [(1_036_000, vec![0, 1, 2]), (1_072_000, vec![3, 4, 5]), (1_084_000, vec![6])];
    assert_eq!(arrivals(&mut line), expected);
}

#[test]
fn segments_that_wait_for_others_are_late_by_that_time() {
    let mut line = Line::new(&fast(), 0, JOIN);
    line.handle_late_packet(1_000, 500, super_packet(3, Ecn::NotCapable, &MemoryBudget::default()));
    let delivery = line.poll_delivery(1_038_000).expect("it is due");
    let mut lateness: Vec<u64> = delivery.lateness_ns(1_038_000).collect();
    lateness.sort_unstable();
    assert_eq!(lateness, [1_500, 13_500, 25_500]);
}

#[test]
fn nothing_is_joined_across_a_loss_or_without_time_to_join() {
    let lossy = PipeConfig { loss: Loss::scripted([1]), ..fast() };
    let mut line = Line::new(&lossy, 0, JOIN);
    line.handle_packet(0, super_packet(4, Ecn::NotCapable, &MemoryBudget::default()));
    assert_eq!(arrivals(&mut line), [(1_012_000, vec![0]), (1_036_000, vec![2, 3])]);
    let mut line = Line::new(&fast(), 0, Duration::ZERO);
    line.handle_packet(0, super_packet(2, Ecn::NotCapable, &MemoryBudget::default()));
    assert_eq!(arrivals(&mut line), [(1_012_000, vec![0]), (1_024_000, vec![1])]);
}

#[test]
fn marked_segments_travel_apart_from_unmarked_ones() {
    let marks = PipeConfig { mark_above_bytes: Some(PACKET_BYTES), ..fast() };
    let mut line = Line::new(&marks, 0, Duration::from_millis(1));
    line.handle_packet(0, super_packet(4, Ecn::Ect0, &MemoryBudget::default()));
    assert_eq!(arrivals(&mut line), [(1_024_000, vec![0, 1]), (1_048_000, vec![2, 3])]);
    // One that was marked before is not counted.
    line.handle_packet(2_000_000, super_packet(4, Ecn::CongestionExperienced, &MemoryBudget::default()));
    let LineCounts { pipe, flows, .. } = line.counts();
    let [(Some(_), flow)] = flows[..] else { panic!("one flow") };
    assert_eq!((pipe.packets_marked, flow.packets_marked), (2, 2));
}

#[test]
fn damaged_doubled_and_late_packets_travel_alone() {
    let always = 1.0;
    let odd = [
        PipeConfig { corrupt_probability: always, ..fast() },
        PipeConfig { duplicate_probability: always, ..fast() },
        PipeConfig { reorder: Reorder::Late { probability: always, by: Duration::from_micros(5) }, ..fast() },
        PipeConfig {
            reorder: Reorder::Behind { probability: 0.0, packets: 1, wait_max: Duration::ZERO },
            ..fast()
        },
    ];
    for config in odd {
        let mut line = Line::new(&config, 0, JOIN);
        line.handle_packet(0, super_packet(5, Ecn::NotCapable, &MemoryBudget::default()));
        let arrivals = arrivals(&mut line);
        assert!(arrivals.len() >= 5, "{config:?}");
        assert!(arrivals.iter().all(|(_, segments)| segments.len() == 1), "{config:?}");
    }
}

#[test]
fn damaged_packets_and_copies_count_for_their_flow() {
    let config = PipeConfig { corrupt_probability: 0.5, duplicate_probability: 0.5, ..fast() };
    let mut line = Line::new(&config, 7, JOIN);
    for _ in 0..20 {
        line.handle_packet(0, super_packet(5, Ecn::NotCapable, &MemoryBudget::default()));
    }
    arrivals(&mut line);
    let LineCounts { pipe, flows, .. } = line.counts();
    let [(Some(_), flow)] = flows[..] else { panic!("one flow") };
    assert_eq!(
        (flow.packets_corrupted, flow.packets_duplicated),
        (pipe.packets_corrupted, pipe.packets_duplicated)
    );
    assert!(
        (30..70).contains(&flow.packets_corrupted) && (30..70).contains(&flow.packets_duplicated),
        "{flow:?}"
    );
    assert_eq!(flow.packets_delivered, 100, "copies are not delivered packets");
}

#[test]
fn copies_without_room_count_neither_for_the_flow_nor_as_dropped_packets() {
    let config = PipeConfig { duplicate_probability: 1.0, queue_packets: 7, ..fast() };
    let mut line = Line::new(&config, 7, JOIN);
    line.handle_packet(0, super_packet(4, Ecn::NotCapable, &MemoryBudget::default()));
    arrivals(&mut line);
    let LineCounts { pipe, flows, .. } = line.counts();
    let [(Some(_), flow)] = flows[..] else { panic!("one flow") };
    assert_eq!((flow.packets_duplicated, pipe.packets_duplicated, pipe.copies_dropped), (3, 3, 1));
    assert_eq!((flow.packets_overflowed, pipe.packets_overflowed), (0, 0));
}

#[test]
fn a_super_packet_counts_as_all_its_segments() {
    let config = PipeConfig { queue_packets: 3, loss: Loss::scripted([0]), ..fast() };
    let mut line = Line::new(&config, 0, JOIN);
    line.handle_packet(0, super_packet(6, Ecn::NotCapable, &MemoryBudget::default()));
    arrivals(&mut line);
    let counts = line.counts();
    assert_eq!((counts.pipe.packets_offered, counts.packets_read), (6, 1));
    let [(Some(flow), flow_counts)] = counts.flows[..] else { panic!("one flow") };
    assert_eq!(flow.protocol, 6);
    let told = (flow_counts.packets_lost, flow_counts.packets_overflowed, flow_counts.packets_delivered);
    assert_eq!(told, (1, 2, 3));
    assert_eq!(flow_counts.bytes_delivered, 3 * PACKET_BYTES as u64);
    assert_eq!(flow_counts.waited_max, Duration::from_micros(36));
    assert_eq!(flow_counts.waited_mean(), Duration::from_micros(24));
}

#[test]
fn a_packet_is_in_flight_until_it_arrives_and_its_copy_does_not_count() {
    let config = PipeConfig { duplicate_probability: 1.0, loss: Loss::scripted([1]), ..fast() };
    for (config, pieces) in [(config, 6), (PipeConfig { loss: Loss::scripted([1]), ..fast() }, 2)] {
        let mut line = Line::new(&config, 0, JOIN);
        line.handle_packet(0, super_packet(4, Ecn::NotCapable, &MemoryBudget::default()));
        let told = |line: &Line| {
            let [(_, flow)] = line.counts().flows[..] else { panic!("one flow") };
            assert_eq!(flow.bytes_delivered, flow.packets_delivered * PACKET_BYTES as u64);
            assert_eq!(
                flow.packets_delivered + flow.packets_in_flight + flow.packets_lost,
                flow.packets_offered
            );
            (flow.packets_delivered, flow.packets_in_flight)
        };
        assert_eq!(told(&line), (0, 3), "all are on the line");
        let delivery = line.poll_delivery(u64::MAX).expect("the first piece");
        assert_eq!(told(&line), (0, 3), "the host has not taken it yet");
        line.on_written(&delivery);
        assert_eq!(told(&line), (1, 2));
        assert_eq!(arrivals(&mut line).len(), pieces - 1);
        assert_eq!(told(&line), (3, 0));
    }
}

#[test]
fn memory_is_in_use_until_the_last_segment_has_arrived() {
    let budget = MemoryBudget::default();
    let mut line = Line::new(&fast(), 0, JOIN);
    line.handle_packet(0, super_packet(7, Ecn::NotCapable, &budget));
    // Three bursts are on the line.
    let content_bytes = HEADERS_BYTES + 7 * SEGMENT_BYTES;
    assert!(budget.used_bytes() > content_bytes + 3 * REFERENCE_BYTES);
    line.poll_delivery(u64::MAX).expect("the first piece");
    assert!(budget.used_bytes() > content_bytes + 2 * REFERENCE_BYTES);
    arrivals(&mut line);
    assert_eq!(budget.used_bytes(), 0);
}

#[test]
fn a_packet_that_waits_for_others_in_any_case_is_only_as_late_as_these() {
    let mut line = Line::new(&fast(), 0, JOIN);
    let mut late_ns = |now_ns, unread_ns| {
        line.handle_late_packet(
            now_ns,
            unread_ns,
            super_packet(1, Ecn::NotCapable, &MemoryBudget::default()),
        );
        let delivery = line.poll_delivery(u64::MAX).expect("it is due");
        delivery.lateness_ns(delivery.at_ns).collect::<Vec<_>>()
    };
    assert_eq!(late_ns(1_000_000, 0), [0], "it leaves at 1,012 µs");
    assert_eq!(late_ns(1_010_000, 9_000), [0], "it had to wait until then");
    assert_eq!(late_ns(1_030_000, 20_000), [6_000], "the line was free at 1,024 µs");
    assert_eq!(late_ns(1_031_000, 0), [6_000], "it would have been free sooner");
    assert_eq!(late_ns(1_060_000, 0), [0]);
}

proptest! {
    /// A packet is as late as it arrives later than one that was offered when it was sent.
    #[test]
    fn the_lateness_of_reading_is_that_of_the_arrival(
        packets in prop::collection::vec((0u64..40_000, 0u64..60_000), 1..40),
        is_limited in any::<bool>(),
    ) {
        let rate_bits_per_s = fast().rate_bits_per_s.filter(|_| is_limited);
        let config = PipeConfig { rate_bits_per_s, ..fast() };
        let mut line = Line::new(&config, 0, Duration::ZERO);
        let mut on_time = Pipe::new(&config, 0);
        let (mut sent_ns, mut read_ns) = (1_000_000, 1_000_000);
        for (gap_ns, unread_ns) in packets {
            sent_ns += gap_ns;
            read_ns = read_ns.max(sent_ns + unread_ns);
            let packet = super_packet(1, Ecn::NotCapable, &MemoryBudget::default());
            line.handle_late_packet(read_ns, read_ns - sent_ns, packet);
            let delivery = line.poll_delivery(u64::MAX).expect("it is due");
            let Verdict::Deliver(expected) = on_time.offer(sent_ns, PACKET_BYTES) else { panic!("there is room") };
            let late_ns: Vec<u64> = delivery.lateness_ns(delivery.at_ns).collect();
            // The rate has a fraction of a nanosecond, which begins anew after a rest.
            prop_assert!(late_ns.len() == 1 && late_ns[0].abs_diff(delivery.at_ns - expected.at_ns) <= 40);
        }
    }

    /// Joined or not, every segment meets the same fate as if its sender had cut the super-packet, and none arrives early.
    #[test]
    fn segments_fare_as_single_packets_do(
        seed in any::<u64>(),
        sizes in prop::collection::vec((1u8..45, 0u64..2_000_000), 1..20),
        (loss, late, jitter_us) in (0.0..0.3f64, 0.0..0.2f64, 0u64..30),
        join_us in 0u64..300,
    ) {
        let config = PipeConfig {
            queue_bytes: 100_000,
            loss: Loss::Random { probability: loss },
            reorder: Reorder::Late { probability: late, by: Duration::from_micros(100) },
            jitter: Jitter::Uniform { max: Duration::from_micros(jitter_us), may_reorder: true },
            ..fast()
        };
        let join = Duration::from_micros(join_us);
        let (mut line, mut pipe) = (Line::new(&config, seed, join), Pipe::new(&config, seed));
        let (mut now_ns, mut expected, mut drops) = (0, Vec::new(), 0);
        for (number, (segments, gap_ns)) in sizes.iter().enumerate() {
            now_ns += gap_ns;
            line.handle_packet(now_ns, super_packet(*segments, Ecn::NotCapable, &MemoryBudget::default()));
            for segment in 0..*segments {
                match pipe.offer(now_ns, PACKET_BYTES) {
                    Verdict::Deliver(passage) => expected.push((passage.at_ns, number, segment)),
                    Verdict::Drop(DropReason::Loss | DropReason::Queue) => drops += 1,
                    Verdict::Drop(other) => panic!("{other}"),
                }
            }
        }
        let mut arrived: Vec<(u64, u8)> = Vec::new();
        for (at_ns, segments) in arrivals(&mut line) {
            arrived.extend(segments.iter().map(|segment| (at_ns, *segment)));
        }
        prop_assert_eq!(arrived.len(), expected.len());
        prop_assert_eq!(line.counts().pipe, pipe.stats());
        let flows = line.counts().flows;
        let lost: u64 = flows.iter().map(|(_, flow)| flow.packets_lost + flow.packets_overflowed).sum();
        prop_assert_eq!(lost, drops);
        // Checked segment by segment: the number of arrivals up to any time never exceeds that of a line which joins nothing.
        let mut alone: Vec<u64> = expected.iter().map(|(at_ns, ..)| *at_ns).collect();
        alone.sort_unstable();
        for ((at_ns, _), alone_ns) in arrived.iter().zip(&alone) {
            prop_assert!(at_ns >= alone_ns && at_ns - alone_ns <= join.as_nanos() as u64);
        }
    }
}
