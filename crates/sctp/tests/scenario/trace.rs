//! Traces of associations: empty unless requested; otherwise they hold all that the statistics count.

use std::fmt::Write;
use std::time::Duration;

use bytes::Bytes;
use lab::packets::data_of;
use lab::script::Peer;
use lab::{A, B, Fate, TwoHosts, line};
use netsim::{Loss, PipeConfig, Reorder};
use sctp::congestion::Algorithm;
use sctp::trace::{Contents, Event, LossReason, Probe, RECORDS_MAX, Record, Timer};
use sctp::{AssociationConfig, AssociationState, PathStatistics, SendInfo, Statistics};
use sctp_wire::chunk::Heartbeat;

const LONG: Duration = Duration::from_secs(120);
/// Trace of a short transfer that loses one packet; `UPDATE_SNAPSHOTS=1` writes it.
const SNAPSHOT: &str = include_str!("trace.txt");

fn traced() -> AssociationConfig {
    AssociationConfig { trace: true, congestion: Algorithm::NewReno, ..AssociationConfig::default() }
}

fn messages(count: u8) -> impl Iterator<Item = (SendInfo, Bytes)> {
    (0..count).map(|n| (SendInfo::default(), Bytes::from(vec![n; 1000])))
}

/// Drops the first transmission of the message that consists of this byte.
fn lose(byte: u8) -> impl FnMut(&Bytes) -> Fate + Send + 'static {
    let mut lost = false;
    move |packet| {
        let here = data_of(packet).iter().any(|data| data.payload[0] == byte);
        if here && !std::mem::replace(&mut lost, true) { Fate::Drop } else { Fate::Pass }
    }
}

/// Returns a record as a line. TSNs count from the first.
fn line_of(record: &Record, first_tsn: u32) -> String {
    let tsn = |tsn: u32| tsn.wrapping_sub(first_tsn) as i32;
    let path = record.path.map_or_else(|| "-".into(), |path| path.to_string());
    let what = match &record.event {
        Event::PacketSent { number, contents } => {
            let number = number.map_or_else(String::new, |number| format!(" #{number}"));
            format!("sent{number}: {}", contents_text(contents, tsn))
        }
        Event::PacketReceived { contents } => format!("received: {}", contents_text(contents, tsn)),
        Event::DataAcked { bytes, cumulative_tsn } => {
            format!("{bytes} bytes acknowledged, all to {}", tsn(*cumulative_tsn))
        }
        Event::Metrics(m) => {
            format!("cwnd {}, in flight {}, srtt {:?}", m.cwnd_bytes, m.in_flight_bytes, m.srtt)
        }
        other => format!("{other:?}"),
    };
    format!("{:>7} us  {path}  {what}\n", record.at.as_nanos() / 1000)
}

fn contents_text(contents: &Contents, tsn: impl Fn(u32) -> i32) -> String {
    let mut text = format!("{} bytes", contents.bytes);
    if let Some(sack) = contents.sack {
        let _ = write!(text, ", SACK to {} with {} gaps", tsn(sack.cumulative_tsn), sack.gaps);
    }
    for kind in &contents.control_kinds[..usize::from(contents.control_chunks)] {
        let _ = write!(text, ", type {kind}");
    }
    if let Some(data) = contents.data {
        let (from, to) = (tsn(data.first_tsn), tsn(data.last_tsn));
        let _ = write!(text, ", {} DATA {from} to {to}, {} again", data.chunks, data.retransmitted);
    }
    text
}

#[test]
fn a_lost_packet_and_what_follows_from_it() {
    let mut hosts = TwoHosts::new(1);
    hosts.tap(A, lose(3));
    let (a, _) = hosts.establish_with(traced(), AssociationConfig::default());
    hosts.send_all(A, a, messages(8));
    hosts.run_until("all arrived", LONG, |hosts| hosts.node(B).app.messages.len() == 8);
    hosts.shutdown(A, a);
    hosts.run_until("it ended", LONG, |hosts| hosts.closed(A).is_some());
    hosts.exchange();
    let trace = &hosts.node(A).app.trace;
    let first = trace.iter().find_map(|record| match &record.event {
        Event::PacketSent { contents, .. } => contents.data.map(|data| data.first_tsn),
        _ => None,
    });
    let text: String = trace.iter().map(|record| line_of(record, first.unwrap())).collect();
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scenario/trace.txt");
        std::fs::write(path, &text).expect("the snapshot can be written");
    } else {
        assert!(text == SNAPSHOT, "was\n{SNAPSHOT}\nis\n{text}");
    }
    assert!(hosts.node(B).app.trace.is_empty(), "B was not asked to");
}

/// Totals of a trace.
#[derive(Debug, Default, PartialEq)]
struct Sums {
    packets_sent: u64,
    packets_received: u64,
    sacks_sent: u64,
    sacks_received: u64,
    gaps_received: u64,
    duplicates_reported: u64,
    control_chunks_sent: u64,
    control_chunks_received: u64,
    data_chunks_sent: u64,
    data_chunks_retransmitted: u64,
    data_chunks_received: u64,
    packets_lost: u64,
    timeouts: u64,
    tail_probes: u64,
    reductions_undone: u64,
    delivered_bytes: u64,
}

impl Sums {
    fn of_trace(trace: &[Record]) -> Sums {
        let mut sums = Sums::default();
        for record in trace {
            match &record.event {
                Event::PacketSent { contents, .. } => {
                    sums.packets_sent += 1;
                    sums.control_chunks_sent += u64::from(contents.control_chunks);
                    sums.sacks_sent += u64::from(contents.sack.is_some());
                    if let Some(data) = contents.data {
                        sums.data_chunks_sent += u64::from(data.chunks - data.retransmitted);
                        sums.data_chunks_retransmitted += u64::from(data.retransmitted);
                    }
                }
                Event::PacketReceived { contents } => {
                    sums.packets_received += 1;
                    sums.control_chunks_received += u64::from(contents.control_chunks);
                    sums.data_chunks_received += contents.data.map_or(0, |data| u64::from(data.chunks));
                    if let Some(sack) = contents.sack {
                        sums.sacks_received += 1;
                        sums.gaps_received += u64::from(sack.gaps);
                        sums.duplicates_reported += u64::from(sack.duplicates);
                    }
                }
                Event::PacketLost { .. } => sums.packets_lost += 1,
                Event::TimerExpired { timer: Timer::T3Rtx, .. } => sums.timeouts += 1,
                Event::ProbeSent { probe: Probe::TailLoss } => sums.tail_probes += 1,
                Event::LossUndone { .. } => sums.reductions_undone += 1,
                Event::DataAcked { bytes, .. } => sums.delivered_bytes += bytes,
                _ => {}
            }
        }
        sums
    }

    fn of_statistics(s: &Statistics) -> Sums {
        let paths = |count: fn(&PathStatistics) -> u64| s.paths.iter().map(count).sum::<u64>();
        assert_eq!(paths(|p| p.timeouts), s.timeouts);
        assert_eq!(paths(|p| p.tail_probes), s.tail_probes);
        assert_eq!(paths(|p| p.reductions_undone), s.reductions_undone);
        assert_eq!(paths(|p| p.data_chunks_retransmitted), s.data_chunks_retransmitted);
        assert_eq!(paths(|p| p.packets_sent), s.packets_sent);
        assert_eq!(paths(|p| p.packets_received), s.packets_received);
        Sums {
            packets_sent: s.packets_sent,
            packets_received: s.packets_received,
            sacks_sent: s.sacks_sent,
            sacks_received: s.sacks_received,
            gaps_received: s.gaps_received,
            duplicates_reported: s.duplicates_reported,
            control_chunks_sent: s.control_chunks_sent,
            control_chunks_received: s.control_chunks_received,
            data_chunks_sent: s.data_chunks_sent,
            data_chunks_retransmitted: s.data_chunks_retransmitted,
            data_chunks_received: s.data_chunks_received + s.duplicates_received + s.data_chunks_dropped,
            packets_lost: paths(|p| p.packets_lost),
            timeouts: s.timeouts,
            tail_probes: s.tail_probes,
            reductions_undone: s.reductions_undone,
            delivered_bytes: paths(|p| p.delivered_bytes),
        }
    }
}

#[test]
fn a_trace_adds_up_to_the_statistics() {
    let mut seen = Sums::default();
    for seed in 1..=10 {
        let config = PipeConfig {
            loss: Loss::Random { probability: 0.05 },
            reorder: Reorder::Late { probability: 0.02, by: Duration::from_millis(30) },
            ..line()
        };
        let mut hosts = TwoHosts::with_line(seed, &config);
        let (a, b) = hosts.establish_with(traced(), traced());
        hosts.send_all(A, a, (0..10).flat_map(|_| messages(40)));
        hosts.send_all(B, b, messages(40));
        hosts.run_until("all arrived", LONG, |hosts| {
            hosts.node(A).app.messages.len() == 40 && hosts.node(B).app.messages.len() == 400
        });
        hosts.run_for(Duration::from_secs(3));
        for (node, id) in [(A, a), (B, b)] {
            let trace = &hosts.node(node).app.trace;
            assert!(trace.is_sorted_by_key(|record| record.at), "in the order of time");
            let sums = Sums::of_trace(trace);
            assert_eq!(sums, Sums::of_statistics(&hosts.statistics(node, id)), "seed {seed}, host {node}");
            seen.packets_lost += sums.packets_lost;
            seen.tail_probes += sums.tail_probes;
            seen.gaps_received += sums.gaps_received;
        }
    }
    assert!(seen.packets_lost > 50 && seen.tail_probes > 0 && seen.gaps_received > 50, "{seen:?}");
}

#[test]
fn every_packet_that_a_timeout_gives_up_is_named() {
    let mut hosts = TwoHosts::new(3);
    let (a, _) = hosts.establish_with(traced(), AssociationConfig::default());
    hosts.send_all(A, a, messages(20));
    hosts.run_until("it flows", LONG, |hosts| hosts.node(B).app.messages.len() > 10);
    hosts.cut();
    hosts.send_all(A, a, messages(20));
    hosts.run_for(Duration::from_secs(3));
    let lost = |reason| {
        let is =
            |record: &&Record| matches!(record.event, Event::PacketLost { reason: r, .. } if r == reason);
        hosts.node(A).app.trace.iter().filter(is).count() as u64
    };
    let statistics = hosts.statistics(A, a);
    assert!(statistics.timeouts > 0 && lost(LossReason::Timeout) > 0, "{statistics:?}");
    let all = [LossReason::Timeout, LossReason::TimeThreshold, LossReason::ReorderingThreshold];
    assert_eq!(all.into_iter().map(lost).sum::<u64>(), statistics.paths[0].packets_lost);
}

#[test]
fn looking_on_changes_nothing() {
    let run = |trace: bool| {
        let config = PipeConfig { loss: Loss::Random { probability: 0.03 }, ..line() };
        let mut hosts = TwoHosts::with_line(7, &config);
        let settings = AssociationConfig { trace, ..AssociationConfig::default() };
        let (a, _) = hosts.establish_with(settings.clone(), settings);
        hosts.send_all(A, a, (0..5).flat_map(|_| messages(40)));
        hosts.run_until("all arrived", LONG, |hosts| hosts.node(B).app.messages.len() == 200);
        let records = hosts.node(A).app.trace.len();
        let sent: Vec<_> = hosts.sent.iter().map(|sent| (sent.at, sent.by, sent.packet.clone())).collect();
        (sent, hosts.statistics(A, a), records)
    };
    let (untraced, traced) = (run(false), run(true));
    assert_eq!(untraced.0, traced.0);
    assert_eq!(untraced.1, traced.1);
    assert_eq!(untraced.2, 0);
    assert!(traced.2 > 200, "{}", traced.2);
}

#[test]
fn a_sink_that_takes_no_records_loses_the_oldest() {
    let mut peer = Peer::established_with(5, traced());
    for _ in 0..RECORDS_MAX {
        peer.sends().chunk(|_, out| Heartbeat { info: b"still there?" }.write(out)).go();
        peer.hears();
    }
    let taken: Vec<_> = std::iter::from_fn(|| peer.endpoint.poll_trace()).collect();
    let Event::Dropped { records } = taken[0].event else { panic!("{:?}", taken[0]) };
    assert_eq!(taken.len(), RECORDS_MAX + 1);
    assert!(records >= RECORDS_MAX as u64, "{records}");
    assert!(taken[1..].iter().all(|record| !matches!(record.event, Event::Dropped { .. })));
}

#[test]
fn an_association_is_followed_to_its_end() {
    let mut hosts = TwoHosts::new(4);
    let (a, _) = hosts.establish_with(traced(), traced());
    hosts.abort(A, a, b"enough");
    hosts.run_until("it ended", LONG, |hosts| hosts.closed(B).is_some());
    hosts.exchange();
    for node in [A, B] {
        let trace = &hosts.node(node).app.trace;
        assert!(matches!(trace[0].event, Event::Started { .. }), "{:?}", trace[0]);
        let closed = trace.iter().any(|record| matches!(record.event, Event::Closed(_)));
        let state = trace.iter().rev().find_map(|record| match record.event {
            Event::StateChanged { new, .. } => Some(new),
            _ => None,
        });
        assert!(closed && state == Some(AssociationState::Closed), "{trace:?}");
    }
    let last = hosts.node(A).app.trace.last().map(|record| &record.event);
    assert!(
        matches!(last, Some(Event::PacketSent { contents, .. }) if contents.control_kinds[0] == 6),
        "{last:?}"
    );
}
