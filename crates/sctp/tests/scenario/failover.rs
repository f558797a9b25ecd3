//! Paths that fall silent and come back: how long data waits, and what it costs to be wrong (RFC 7829, RFC 9260 §8.2).

use std::ops::Range;
use std::time::Duration;

use lab::World;
use lab::traffic::{Source, Traffic};
use netsim::topology::Paths;
use netsim::{PipeConfig, Schedule};
use sctp::{AssociationConfig, AssociationId, Multipath, PathState, PathStatistics, Time};

const A: usize = 0;
const B: usize = 1;
const RATE_BITS_PER_S: u64 = 100_000_000;
const MESSAGE_BYTES: usize = 1444;
/// The longest gap in delivery, and the longest time until a path that is back carries data.
const GAP_MAX: Duration = Duration::from_millis(200);
const RETURN_MAX: Duration = Duration::from_millis(500);

/// A line of 100 Mbit/s with a queue that holds what is on its way in a round trip, down for these times.
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
    world: World<Traffic>,
    id: AssociationId,
}

impl Two {
    /// Both lines are up and verified; the first is the primary path.
    fn new(seed: u64, lines: [PipeConfig; 2], config: &AssociationConfig) -> Self {
        let mut world: World<Traffic> = World::new(seed);
        let Paths { a, b, .. } = Paths::build(&mut world.network, &lines);
        for site in [&a, &b] {
            world.add_site(site, Traffic::default());
        }
        world.listen(B, 5001, config.clone());
        let id = world.connect(A, B, (5000, 5001), config.clone());
        let mut two = Two { world, id };
        two.until("both paths are verified", Duration::from_secs(5), |two| {
            two.paths().iter().map(|path| path.state).eq([PathState::Active; 2])
        });
        two
    }

    fn sends(&mut self, source: Source) {
        let id = self.id;
        self.world.node_mut(A).app.start(id, source);
    }

    fn sends_all_it_can(&mut self) {
        self.sends(Source::Endless { message_bytes: MESSAGE_BYTES, until: Time::from_nanos(u64::MAX) });
    }

    fn paths(&self) -> Vec<PathStatistics> {
        let statistics = self.world.node(A).endpoint.statistics(self.id);
        statistics.map(|statistics| statistics.paths).unwrap_or_default()
    }

    /// Lets time pass until so long after the start.
    fn run_to(&mut self, time: Duration) {
        let left = (Time::ZERO + time).saturating_since(self.world.now());
        self.world.run_for(left);
    }

    /// How long it takes until `done`.
    fn until(&mut self, what: &str, limit: Duration, mut done: impl FnMut(&Two) -> bool) -> Duration {
        let start = self.world.now();
        while !done(self) {
            assert!(
                self.world.now() < start + limit,
                "after {limit:?} it was not so that {what}: {:#?}",
                self.paths()
            );
            self.world.run_for(Duration::from_millis(1));
        }
        self.world.now() - start
    }

    /// The longest gap in what B receives within that time.
    fn gap_within(&mut self, time: Duration) -> Duration {
        let now = self.world.now();
        self.world.node_mut(B).app.gaps_from = now;
        let before = self.world.node(B).app.received().gap_max;
        self.world.run_for(time);
        let received = self.world.node(B).app.received();
        assert!(before < received.gap_max || before < GAP_MAX, "an earlier gap hides this one");
        received.gap_max.max(self.world.now().saturating_since(received.last_at.unwrap_or_default()))
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
            let state = two.paths()[0].state;
            let delivered = two.paths()[0].delivered_bytes;
            let back = two.until("the first path carries data", Duration::from_secs(5), |two| {
                two.paths()[0].delivered_bytes > delivered
            });
            println!(
                "{multipath:?} {round_trip:?}: gap {gap:?} state {state:?} back after {back:?} {:?}",
                two.paths()[0]
            );
            assert!(gap <= GAP_MAX, "{multipath:?}, {round_trip:?}: {gap:?}");
            assert!(back <= RETURN_MAX, "{multipath:?}, {round_trip:?}: {back:?}");
        }
    }
}
