//! Paths that fall silent and recover: how long data waits, and the cost of a wrong decision (RFC 7829, RFC 9260 §8.2).

use std::ops::Range;
use std::time::Duration;

use lab::Simulation;
use lab::traffic::{Source, Traffic};
use netsim::topology::Paths;
use netsim::{Jitter, Loss, PipeConfig, Schedule, WhenDown};
use sctp::{AssociationConfig, AssociationId, CloseReason, Multipath, PathState, PathStatistics, Time};

const A: usize = 0;
const B: usize = 1;
const RATE_BITS_PER_S: u64 = 100_000_000;
const MESSAGE_BYTES: usize = 1444;
/// The longest gap in delivery, and the longest time until a recovered path carries data.
const GAP_MAX: Duration = Duration::from_millis(200);
const RETURN_MAX: Duration = Duration::from_millis(500);

/// Returns a line of 100 Mbit/s that is down at these times, with a queue of one round trip.
fn line(round_trip: Duration, down: &[Range<Duration>]) -> PipeConfig {
    PipeConfig {
        rate_bits_per_s: Some(RATE_BITS_PER_S),
        delay: round_trip / 2,
        queue_bytes: (RATE_BITS_PER_S as f64 / 8.0 * round_trip.as_secs_f64()) as usize,
        schedule: Schedule::Listed(down.to_vec()),
        ..PipeConfig::default()
    }
}

/// Two hosts and two lines between them.
struct Two {
    simulation: Simulation<Traffic>,
    id: AssociationId,
}

impl Two {
    /// Both lines are up and verified; the first is the primary path.
    fn new(seed: u64, lines: [PipeConfig; 2], config: &AssociationConfig) -> Self {
        let mut simulation: Simulation<Traffic> = Simulation::new(seed);
        let Paths { a, b, .. } = Paths::build(&mut simulation.network, &lines);
        for site in [&a, &b] {
            simulation.add_site(site, Traffic::default());
        }
        simulation.listen(B, 5001, config.clone());
        let id = simulation.connect(A, B, (5000, 5001), config.clone());
        let mut two = Two { simulation, id };
        two.until("both paths are verified", Duration::from_secs(5), |two| {
            two.paths().iter().map(|path| path.state).eq([PathState::Active; 2])
        });
        two
    }

    fn sends(&mut self, source: Source) {
        let id = self.id;
        self.simulation.node_mut(A).app.start(id, source);
    }

    fn sends_all_it_can(&mut self) {
        self.sends(Source::Endless { message_bytes: MESSAGE_BYTES, until: Time::from_nanos(u64::MAX) });
    }

    fn paths(&self) -> Vec<PathStatistics> {
        let statistics = self.simulation.node(A).endpoint.statistics(self.id);
        statistics.map(|statistics| statistics.paths).unwrap_or_default()
    }

    /// Lets time pass until this long after the start.
    fn run_to(&mut self, time: Duration) {
        let left = (Time::ZERO + time).saturating_since(self.simulation.now());
        self.simulation.run_for(left);
    }

    /// Returns how long it takes until `done`.
    fn until(&mut self, what: &str, limit: Duration, mut done: impl FnMut(&Two) -> bool) -> Duration {
        let start = self.simulation.now();
        while !done(self) {
            assert!(
                self.simulation.now() < start + limit,
                "after {limit:?} it was not so that {what}: {:#?}",
                self.paths()
            );
            self.simulation.run_for(Duration::from_millis(1));
        }
        self.simulation.now() - start
    }

    /// Returns the longest gap in what B receives within that time.
    fn gap_within(&mut self, time: Duration) -> Duration {
        let now = self.simulation.now();
        self.simulation.node_mut(B).app.gaps_from = now;
        let before = self.simulation.node(B).app.received().gap_max;
        self.simulation.run_for(time);
        let received = self.simulation.node(B).app.received();
        assert!(before < received.gap_max || before < GAP_MAX, "an earlier gap hides this one");
        received.gap_max.max(self.simulation.now().saturating_since(received.last_at.unwrap_or_default()))
    }
}

#[test]
fn at_full_load_data_moves_to_the_other_path_and_back() {
    for multipath in [Multipath::Off, Multipath::Always] {
        for round_trip in [10, 25, 50].map(Duration::from_millis) {
            let down = Duration::from_millis(5_000)..Duration::from_millis(8_137);
            let config = AssociationConfig { multipath, ..AssociationConfig::default() };
            let mut two =
                Two::new(1, [line(round_trip, std::slice::from_ref(&down)), line(round_trip, &[])], &config);
            two.sends_all_it_can();
            two.run_to(down.start - Duration::from_millis(100));
            let gap = two.gap_within(Duration::from_secs(3));
            two.run_to(down.end);
            let delivered = two.paths()[0].delivered_bytes;
            let back = two.until("the first path carries data", Duration::from_secs(5), |two| {
                two.paths()[0].delivered_bytes > delivered
            });
            assert!(gap <= GAP_MAX, "{multipath:?}, {round_trip:?}: {gap:?}");
            assert!(back <= RETURN_MAX, "{multipath:?}, {round_trip:?}: {back:?}");
        }
    }
}

#[test]
fn without_early_failover_the_timer_decides() {
    let down = Duration::from_secs(5)..Duration::from_secs(8);
    let config = AssociationConfig { early_failover: false, ..AssociationConfig::default() };
    let round_trip = Duration::from_millis(25);
    let lines = [line(round_trip, std::slice::from_ref(&down)), line(round_trip, &[])];
    let mut two = Two::new(2, lines, &config);
    two.sends_all_it_can();
    two.run_to(down.start - Duration::from_millis(100));
    let gap = two.gap_within(Duration::from_secs(3));
    assert!(gap >= Duration::from_millis(900), "{gap:?}");
}

#[test]
fn whenever_a_path_dies_the_gap_is_short() {
    let round_trip = Duration::from_millis(50);
    for seed in 0..8 {
        // In slow start, at its end, and later.
        let start = Duration::from_millis(1300 + 170 * seed);
        let lines = [line(round_trip, &[start..Duration::MAX]), line(round_trip, &[])];
        let mut two = Two::new(seed, lines, &AssociationConfig::default());
        two.run_to(Duration::from_millis(1200));
        two.sends_all_it_can();
        two.run_to(start - Duration::from_millis(1));
        let gap = two.gap_within(Duration::from_secs(1));
        assert!(gap <= GAP_MAX, "at {start:?}: {gap:?}");
    }
}

#[test]
fn a_lone_message_is_not_lost_for_a_second() {
    let down = Duration::from_secs(5)..Duration::MAX;
    let round_trip = Duration::from_millis(50);
    let mut two =
        Two::new(3, [line(round_trip, &[down]), line(round_trip, &[])], &AssociationConfig::default());
    two.run_to(Duration::from_secs(6));
    two.sends(Source::file(100, 100));
    let took = two.until("it arrived", Duration::from_secs(2), |two| {
        two.simulation.node(B).app.received().bytes == 100
    });
    // The sender also waits for the peer's delayed SACK.
    assert!(took <= Duration::from_millis(450), "{took:?}");
}

#[test]
fn an_idle_association_learns_of_a_dead_path_within_a_heartbeat_interval() {
    let config = AssociationConfig::default();
    let round_trip = Duration::from_millis(50);
    for seed in 0..4 {
        let start = Duration::from_secs(70 + 7 * seed);
        let up = start + Duration::from_secs(45);
        let mut two = Two::new(seed, [line(round_trip, &[]), line(round_trip, &[start..up])], &config);
        two.run_to(start);
        let found = two.until("it is suspected", Duration::from_secs(40), |two| {
            two.paths()[1].state == PathState::Suspected
        });
        let interval = config.heartbeat_interval.unwrap_or_default() + config.rto.min * 3 / 2;
        assert!(found <= interval + round_trip * 2, "{found:?}");
        let failed = two.until("it is potentially failed", Duration::from_secs(2), |two| {
            two.paths()[1].state == PathState::PotentiallyFailed
        });
        assert!(failed <= config.rto.min, "{failed:?}");
        two.run_to(up);
        let back = two
            .until("it is active", Duration::from_secs(2), |two| two.paths()[1].state == PathState::Active);
        assert!(back <= RETURN_MAX, "{back:?}");
    }
}

#[test]
fn a_path_that_was_given_up_is_asked_on_and_used_again() {
    let round_trip = Duration::from_millis(25);
    let down = Duration::from_secs(5)..Duration::from_secs(400);
    let mut two = Two::new(
        5,
        [line(round_trip, std::slice::from_ref(&down)), line(round_trip, &[])],
        &AssociationConfig::default(),
    );
    two.sends(Source::bursts(u64::MAX, Time::ZERO, Duration::from_millis(20), 1, 1000));
    // 1 + 2 + 4 + 8 + 16 + 32 s: Path.Max.Retrans is 5.
    two.run_to(down.start + Duration::from_secs(70));
    assert_eq!(two.paths()[0].state, PathState::Inactive);
    two.run_to(Duration::from_secs(300));
    let sent = two.paths()[0].packets_sent;
    two.run_to(Duration::from_secs(380));
    let heartbeats = two.paths()[0].packets_sent - sent;
    assert!((1..=2).contains(&heartbeats), "one in each heartbeat interval, not {heartbeats}");
    two.run_to(down.end);
    let delivered = two.paths()[0].delivered_bytes;
    two.until("it carries data again", Duration::from_secs(150), |two| {
        two.paths()[0].delivered_bytes > delivered
    });
    assert_eq!((two.paths()[0].state, two.paths()[0].rto), (PathState::Active, Duration::from_secs(1)));
}

#[test]
fn a_path_that_is_merely_slow_for_a_moment_costs_little() {
    // The line stands still for 300 ms every two seconds, and loses nothing.
    let round_trip = Duration::from_millis(20);
    let schedule = Schedule::Periodic {
        first_down: Duration::from_secs(2),
        down: Duration::from_millis(300),
        up: Duration::from_millis(1700),
    };
    let moody = PipeConfig {
        schedule,
        when_down: WhenDown::Wait,
        queue_bytes: 1_000_000,
        rate_bits_per_s: Some(20_000_000),
        delay: round_trip / 2,
        ..PipeConfig::default()
    };
    let steady = PipeConfig { schedule: Schedule::AlwaysUp, queue_bytes: 100_000, ..moody.clone() };
    let mut two = Two::new(6, [moody, steady], &AssociationConfig::default());
    two.sends_all_it_can();
    two.run_to(Duration::from_secs(32));
    let statistics = two.simulation.statistics(A, two.id);
    let path = &two.paths()[0];
    // The failover timeout has grown beyond the pauses.
    assert!(path.early_failovers <= 10 && path.early_failovers_spurious >= 1, "{path:?}");
    assert!(path.data_chunks_rerouted * 20 <= statistics.data_chunks_sent, "{path:?}");
    let bits = two.simulation.node(B).app.received().bytes as f64 * 8.0 / 30.0;
    assert!(bits >= 0.8 * 20e6, "{bits}");
}

#[test]
fn heartbeats_that_wait_until_a_path_is_back_do_not_make_it_slow() {
    // As during the discovery of its next router.
    let round_trip = Duration::from_millis(20);
    let down = Duration::from_secs(5)..Duration::from_secs(8);
    let first = PipeConfig { when_down: WhenDown::Wait, ..line(round_trip, std::slice::from_ref(&down)) };
    let mut two = Two::new(10, [first, line(round_trip, &[])], &AssociationConfig::default());
    two.sends(Source::bursts(u64::MAX, Time::ZERO, Duration::from_millis(50), 10, MESSAGE_BYTES));
    two.run_to(down.start + Duration::from_secs(1));
    assert_ne!(two.paths()[0].state, PathState::Active);
    two.run_to(down.end + Duration::from_millis(100));
    let path = &two.paths()[0];
    assert_eq!((path.state, path.rto), (PathState::Active, Duration::from_secs(1)));
    assert!(path.srtt.is_some_and(|srtt| srtt < 2 * round_trip), "{path:?}");
}

#[test]
fn how_long_a_line_paused_says_nothing_of_it_later() {
    let round_trip = Duration::from_millis(20);
    let down = Duration::from_secs(5)..Duration::from_secs(8);
    let paused = PipeConfig { when_down: WhenDown::Wait, ..line(round_trip, std::slice::from_ref(&down)) };
    let config = AssociationConfig { multipath: Multipath::Always, ..AssociationConfig::default() };
    let mut two = Two::new(11, [paused, line(round_trip, &[])], &config);
    // So little that the other line could carry it permanently.
    two.sends(Source::bursts(u64::MAX, Time::ZERO, Duration::from_millis(50), 10, MESSAGE_BYTES));
    two.run_to(down.end + Duration::from_millis(500));
    let path = &two.paths()[0];
    assert_eq!(path.state, PathState::Active);
    assert!(path.srtt.is_some_and(|srtt| srtt < 2 * round_trip), "{path:?}");
}

#[test]
fn jitter_and_pauses_of_the_application_hardly_cause_early_failovers() {
    let round_trip = Duration::from_millis(20);
    let config = PipeConfig {
        jitter: Jitter::Normal {
            mean: Duration::from_millis(10),
            deviation: Duration::from_millis(4),
            may_reorder: true,
        },
        ..line(round_trip, &[])
    };
    for (seed, (messages, bytes)) in
        [(1, 100), (1, 1444), (3, 1444), (7, 1444), (40, 1444)].into_iter().enumerate()
    {
        let mut two = Two::new(seed as u64, [config.clone(), config.clone()], &AssociationConfig::default());
        two.sends(Source::bursts(u64::MAX, Time::ZERO, Duration::from_millis(173), messages, bytes));
        two.run_to(Duration::from_secs(60));
        let early_failovers: Vec<u64> = two.paths().iter().map(|path| path.early_failovers).collect();
        assert!(
            early_failovers.iter().sum::<u64>() <= 1,
            "{messages} messages of {bytes} bytes: {early_failovers:?}"
        );
    }
}

/// Packets to B's first address arrive; after two seconds, packets of B to A's first address do not.
fn one_way(multipath: Multipath) -> Two {
    let lines = [line(Duration::from_millis(20), &[]), line(Duration::from_millis(20), &[])];
    let mut simulation: Simulation<Traffic> = Simulation::new(7);
    let Paths { a, b, links } = Paths::build(&mut simulation.network, &lines);
    for site in [&a, &b] {
        simulation.add_site(site, Traffic::default());
    }
    let config = AssociationConfig { multipath, ..AssociationConfig::default() };
    simulation.listen(B, 5001, config.clone());
    let id = simulation.connect(A, B, (5000, 5001), config);
    let mut two = Two { simulation, id };
    two.sends_all_it_can();
    two.run_to(Duration::from_secs(2));
    two.simulation.network.pipe_mut(links[0].back).set_loss(Loss::Always);
    two
}

#[test]
fn a_path_that_works_one_way_only_is_left_for_good() {
    let mut two = one_way(Multipath::Off);
    let gap = two.gap_within(Duration::from_secs(10));
    let path = &two.paths()[0];
    assert!(gap <= GAP_MAX, "{gap:?}");
    assert!(path.early_failovers <= 2, "it is not tried again and again: {path:?}");
    assert_ne!(path.state, PathState::Active);
}

#[test]
fn a_path_that_works_one_way_only_carries_data_that_way_if_acknowledgements_have_another() {
    let mut two = one_way(Multipath::Agreed);
    let before = two.simulation.node(B).app.received().bytes;
    let gap = two.gap_within(Duration::from_secs(4));
    let bits_per_s = (two.simulation.node(B).app.received().bytes - before) as f64 * 8.0 / 4.0;
    assert!(gap <= GAP_MAX, "{gap:?}");
    assert!(bits_per_s >= 0.9 * 2.0 * RATE_BITS_PER_S as f64, "{bits_per_s}");
}

#[test]
fn an_association_ends_well_although_its_primary_path_is_dead() {
    let round_trip = Duration::from_millis(20);
    let down = Duration::from_secs(2)..Duration::MAX;
    let mut two =
        Two::new(8, [line(round_trip, &[down]), line(round_trip, &[])], &AssociationConfig::default());
    two.run_to(Duration::from_secs(3));
    let id = two.id;
    two.simulation.shutdown(A, id);
    two.until("it is shut down", Duration::from_secs(3), |two| {
        [A, B].iter().all(|&host| two.simulation.node(host).endpoint.association_count() == 0)
    });
    let closed = two.simulation.node(A).app.flow(id).and_then(|flow| flow.closed.clone());
    assert_eq!(closed, Some(CloseReason::Shutdown));
}

#[test]
fn an_end_that_only_receives_answers_a_shutdown_on_the_path_on_which_it_came() {
    let round_trip = Duration::from_millis(10);
    let config = AssociationConfig { multipath: Multipath::Always, ..AssociationConfig::default() };
    for dead in [0, 1] {
        let mut lines = [line(round_trip, &[]), line(round_trip, &[])];
        // The sender learns from its data that the path is dead. The receiver has sent nothing on it.
        lines[dead].schedule = Schedule::Listed(vec![Duration::from_secs(2)..Duration::MAX]);
        let mut two = Two::new(10, lines, &config);
        let until = Time::ZERO + Duration::from_millis(2300);
        two.sends(Source::Endless { message_bytes: MESSAGE_BYTES, until });
        two.run_to(Duration::from_millis(2600));
        let id = two.id;
        two.simulation.shutdown(A, id);
        // T2 would take a second.
        two.until("it is shut down", Duration::from_millis(100), |two| {
            [A, B].iter().all(|&host| two.simulation.node(host).endpoint.association_count() == 0)
        });
    }
}

#[test]
fn an_idle_association_that_is_well_has_no_timer_but_the_heartbeats() {
    let config = AssociationConfig { heartbeat_interval: None, ..AssociationConfig::default() };
    let round_trip = Duration::from_millis(20);
    let mut two = Two::new(9, [line(round_trip, &[]), line(round_trip, &[])], &config);
    two.sends(Source::file(100_000, 1000));
    two.run_to(Duration::from_secs(10));
    assert_eq!(two.simulation.node(B).app.received().bytes, 100_000);
    assert_eq!([A, B].map(|host| two.simulation.node(host).endpoint.poll_timeout()), [None, None]);
}

/// Lets both paths die, and one of them return after `outage`. Returns how long data then takes to arrive.
fn return_of_one_of_two(multipath: Multipath, outage: Duration, returning: usize) -> Duration {
    let (round_trip, start) = (Duration::from_millis(20), Duration::from_secs(3));
    let mut lines = [0, 1].map(|_| line(round_trip, &[start..Duration::MAX]));
    lines[returning] = line(round_trip, &[start..start + outage]);
    let config = AssociationConfig { multipath, ..AssociationConfig::default() };
    let mut two = Two::new(10, lines, &config);
    two.sends_all_it_can();
    two.run_to(start + outage);
    let bytes = two.simulation.node(B).app.received().bytes;
    two.until("data arrives", Duration::from_secs(20), |two| {
        two.simulation.node(B).app.received().bytes > bytes
    })
}

#[test]
fn when_both_paths_die_and_one_returns_data_goes_on_there() {
    for multipath in [Multipath::Off, Multipath::Agreed] {
        for outage in [1500, 3000, 10_000].map(Duration::from_millis) {
            for returning in 0..2 {
                let took = return_of_one_of_two(multipath, outage, returning);
                assert!(took <= RETURN_MAX, "{multipath:?}, path {returning} after {outage:?}: {took:?}");
            }
        }
    }
}
