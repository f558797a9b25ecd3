//! A single path that falls silent with data in flight: how soon data flows again, and how little is sent meanwhile.

use std::time::Duration;

use netsim::{Loss, PipeConfig, Schedule};
use sctp::config::RtoConfig;
use sctp::{AssociationConfig, AssociationId, CloseReason, PathState, PathStatistics, SendInfo, Time};
use sctp_wire::chunk::{Data, Heartbeat};

use lab::packets::has;
use lab::{A, B, Fate, TwoHosts, line};

const RETURN_MAX: Duration = Duration::from_millis(500);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Returns a line of 20 Mbit/s with this round-trip time, whose queue holds a bandwidth-delay product and ten packets.
fn line_of(round_trip: Duration) -> PipeConfig {
    let queue_bytes = 15_000 + (20e6 / 8.0 * round_trip.as_secs_f64()) as usize;
    PipeConfig { rate_bits_per_s: Some(20_000_000), delay: round_trip / 2, queue_bytes, ..line() }
}

fn sends(hosts: &mut TwoHosts, id: AssociationId, messages: usize) {
    hosts.send_all(A, id, (0..messages).map(|_| (SendInfo::default(), vec![7; 1400].into())));
}

fn path(hosts: &TwoHosts, id: AssociationId) -> PathStatistics {
    hosts.statistics(A, id).paths[0].clone()
}

/// Returns when `done` holds for the first time after now.
fn until(hosts: &mut TwoHosts, what: &str, done: impl FnMut(&TwoHosts) -> bool) -> Duration {
    let start = hosts.now();
    hosts.run_until(what, Duration::from_secs(60), done);
    hosts.now() - start
}

/// Returns the longest time in which B waited for a message.
fn longest_stall(hosts: &TwoHosts, from: Time) -> Duration {
    let mut before = from;
    let times = hosts.node(B).app.messages.iter().map(|message| message.at).filter(|at| *at >= from);
    let longest = times.map(|at| at.saturating_since(std::mem::replace(&mut before, at))).max();
    longest.unwrap_or_default().max(hosts.now() - before)
}

/// Returns when A sent packets with this kind of chunk from then on.
fn times(hosts: &TwoHosts, kind: u8, from: Time) -> Vec<Duration> {
    let sent = hosts.sent.iter().filter(|sent| sent.by == A && sent.at > from && has(&sent.packet, kind));
    sent.map(|sent| sent.at - from).collect()
}

#[test]
fn data_flows_again_within_half_a_second_of_the_return_of_the_path() {
    for round_trip in [ms(1), ms(25), ms(50)] {
        for outage_ms in [300, 700, 1_500, 4_000, 9_300, 30_000, 55_000] {
            let start = ms(3_000);
            let schedule = Schedule::Listed(vec![start..start + ms(outage_ms)]);
            let mut hosts = TwoHosts::with_line(outage_ms, &PipeConfig { schedule, ..line_of(round_trip) });
            let (a, _) = hosts.establish();
            sends(&mut hosts, a, 200_000);
            hosts.run_for((Time::ZERO + start + ms(outage_ms)).saturating_since(hosts.now()));
            let before = hosts.node(B).app.messages.len();
            let took = until(&mut hosts, "data flows", |hosts| hosts.node(B).app.messages.len() > before);
            assert!(took <= RETURN_MAX, "{took:?} after {outage_ms} ms, round trip {round_trip:?}");
        }
    }
}

#[test]
fn a_lone_message_arrives_soon_after_the_return_of_the_path() {
    let mut hosts = TwoHosts::new(1);
    let (a, _) = hosts.establish();
    sends(&mut hosts, a, 10);
    hosts.run_for(ms(1_000));
    hosts.cut();
    sends(&mut hosts, a, 1);
    hosts.run_for(ms(6_500));
    assert_eq!(path(&hosts, a).state, PathState::Suspected);
    hosts.untap(A);
    hosts.untap(B);
    let took = until(&mut hosts, "it arrived", |hosts| hosts.node(B).app.messages.len() == 11);
    assert!(took <= RETURN_MAX, "{took:?}");
    hosts.run_for(ms(100));
    let path = path(&hosts, a);
    assert_eq!((path.state, path.rto, path.errors), (PathState::Active, ms(1_000), 0));
}

/// Returns the longest stall of a sender at full speed, whose packets are all lost for this time, and for 10 s afterwards with
/// this probability.
fn stall(seed: u64, overflow: Duration, probability: f64) -> Duration {
    let mut hosts = TwoHosts::with_line(seed, &line_of(ms(1)));
    let (a, _) = hosts.establish();
    sends(&mut hosts, a, 200_000);
    hosts.run_for(ms(500));
    let (from, there) = (hosts.now(), hosts.links[0].there);
    hosts.network.pipe_mut(there).set_loss(Loss::Always);
    hosts.run_for(overflow);
    hosts.network.pipe_mut(there).set_loss(Loss::Random { probability });
    hosts.run_for(Duration::from_secs(10));
    longest_stall(&hosts, from)
}

#[test]
fn a_buffer_that_overflows_for_a_moment_costs_no_timeout() {
    // Probes leave after 10, 30 and 70 ms, heartbeats after 150 ms and then every 250 ms.
    for overflow in [5, 50, 100, 200, 400, 800].map(ms) {
        let stall = stall(1, overflow, 0.0);
        assert!(stall <= overflow + ms(260), "{stall:?} for {overflow:?}");
    }
}

#[test]
fn a_buffer_that_keeps_overflowing_stalls_a_sender_for_moments() {
    for (probability, stall_max) in [(0.1, ms(450)), (0.2, ms(500)), (0.3, ms(1_100)), (0.5, ms(5_000))] {
        let stalls: Vec<_> = (0..5).map(|seed| stall(seed, ms(100), probability)).collect();
        assert!(stalls.iter().all(|stall| *stall <= stall_max), "{probability}: {stalls:?}");
    }
}

#[test]
fn t3_retransmissions_get_no_tail_loss_probe() {
    let rto = RtoConfig { min: ms(100), initial: ms(100), ..RtoConfig::default() };
    let config = AssociationConfig { rto, ..AssociationConfig::default() };
    let mut hosts = TwoHosts::with_line(1, &line_of(ms(30)));
    let (a, _) = hosts.establish_with(config.clone(), config);
    sends(&mut hosts, a, 10);
    hosts.run_for(ms(1_000));
    hosts.cut();
    let cut_at = hosts.now();
    sends(&mut hosts, a, 1);
    hosts.run_for(ms(2_000));
    // T3 expires after 100, 200, 400 and 800 ms; heartbeats in between carry no data.
    let data: Vec<_> = times(&hosts, Data::KIND, cut_at).iter().map(Duration::as_millis).collect();
    assert_eq!(data, [100, 300, 700, 1500]);
    let asked: Vec<_> = times(&hosts, Heartbeat::KIND, cut_at).iter().map(Duration::as_millis).collect();
    assert_eq!(asked, [350, 600, 850, 1100, 1350, 1600, 1850]);
}

#[test]
fn an_outage_costs_four_small_packets_a_second_for_a_minute_and_no_error_beyond_those_of_t3() {
    let mut hosts = TwoHosts::new(1);
    let (a, _) = hosts.establish();
    sends(&mut hosts, a, 1_000);
    hosts.run_for(ms(50));
    hosts.cut();
    let cut_at = hosts.now();
    hosts.run_for(Duration::from_secs(120));
    let asked = times(&hosts, Heartbeat::KIND, cut_at);
    assert!((200..=250).contains(&asked.len()), "{}", asked.len());
    assert!(asked.windows(2).all(|two| two[1] - two[0] >= ms(250)));
    // Three tail loss probes, and T3 after 1, 2, 4 s and so on.
    let path = path(&hosts, a);
    assert_eq!((path.tail_probes, path.timeouts), (3, 6));
    let data = times(&hosts, Data::KIND, cut_at + ms(30));
    assert_eq!(data.len() as u64, path.tail_probes + path.timeouts);
    assert_eq!(u64::from(path.errors), path.timeouts);
}

#[test]
fn a_path_that_answers_and_takes_no_data_is_tried_ever_more_rarely_and_given_up() {
    let mut hosts = TwoHosts::new(1);
    let (a, _) = hosts.establish();
    sends(&mut hosts, a, 1_000);
    hosts.run_for(ms(50));
    hosts.tap(A, |packet| if has(packet, Data::KIND) { Fate::Drop } else { Fate::Pass });
    let cut_at = hosts.now();
    hosts.run_for(Duration::from_secs(60));
    let data = times(&hosts, Data::KIND, cut_at);
    let late = data.iter().filter(|at| **at > Duration::from_secs(30)).count();
    assert!(late <= 12, "{late} packets with data in the second half minute");
    hosts.run_until("it is given up", Duration::from_secs(600), |hosts| hosts.closed(A).is_some());
    assert_eq!(hosts.closed(A), Some(CloseReason::Timeout));
}
