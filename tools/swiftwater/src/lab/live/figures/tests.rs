use emulator::LineState;

use super::super::measure::Point;
use super::super::plan;
use super::*;
use crate::lab::args::LiveName;

fn run(bits_per_s: f64, host_dropped_packets: u64, late_us_p99: f64) -> Run {
    let line = LineFigures { host_dropped_packets, late_us_p99, ..LineFigures::default() };
    let cpu = Some(Cpu { client_ns_per_byte: late_us_p99, server_ns_per_byte: 1.0 });
    let measured = Measured { bits_per_s, cpu, ..Measured::default() };
    Run { measured, line: Some(line), ..Run::default() }
}

fn figures_of(runs: &[Run], tcp_bits_per_s: Option<f64>) -> Option<Figures> {
    Figures::new(&runs.iter().collect::<Vec<_>>(), None, tcp_bits_per_s, None)
}

fn delivered(bytes: &[u64]) -> Run {
    let points = bytes.iter().enumerate().map(|(number, &bytes)| Point {
        at_s: (number + 1) as f64,
        bytes,
        ..Point::default()
    });
    Run { measured: Measured { points: points.collect(), ..Measured::default() }, ..Run::default() }
}

#[test]
fn figures_of_the_line_are_those_of_the_run_nearest_to_the_median() {
    let runs = [run(90e6, 0, 5.0), run(50e6, 0, 6.0), run(92e6, 0, 7.0)];
    let figures = figures_of(&runs, Some(45e6)).expect("runs");
    assert_eq!((figures.runs, figures.disturbances), (3, Disturbances::default()));
    assert_eq!(figures.line.as_ref().map(|line| line.late_us_p99), Some(5.0));
    assert_eq!(figures.client_cpu_ns_per_byte, Some(6.0), "the median");
    assert_eq!(figures.ratio_to_tcp(90e6), Some(2.0));
    assert_eq!((figures.bits_per_s_min, figures.bits_per_s_max), (Some(50e6), Some(92e6)));
    // The mean of 77.33 and 4.303 times its standard error of 13.68: Student's t of two degrees of freedom.
    let interval =
        [figures.bits_per_s_low, figures.bits_per_s_high].map(|end| end.map(|end| (end / 1e6).round()));
    assert_eq!(interval, [Some(18.0), Some(136.0)]);
    let single = figures_of(&runs[..1], None).expect("a run");
    assert_eq!((single.bits_per_s_min, single.bits_per_s_max), (None, None));
    assert_eq!((single.bits_per_s_low, single.bits_per_s_high), (None, None));
    assert!(figures_of(&[], None).is_none());
}

#[test]
fn figures_until_a_mark_have_no_counters_of_the_whole_run() {
    let points = delivered(&[10, 30, 20]).measured.points;
    let run = run(90e6, 0, 5.0);
    let run = Run { measured: Measured { points, ..run.measured.clone() }, ..run };
    let figures = |mark_s| Figures::new(&[&run], mark_s, None, None).expect("a run");
    let (part, whole) = (figures(Some(2.0)), figures(None));
    assert!(part.line.is_none() && part.client_cpu_ns_per_byte.is_none(), "{part:?}");
    assert!(whole.line.is_some() && whole.server_cpu_ns_per_byte.is_some(), "{whole:?}");
}

#[test]
fn the_time_of_the_emulator_is_a_part_of_that_of_the_test() {
    let counts = EmulatorCounts {
        paths: Vec::new(),
        late: Default::default(),
        long_turns: 7,
        write_max: Duration::from_micros(250),
        elapsed: Duration::from_secs(4),
        processor: Duration::from_secs(1),
        realtime: true,
    };
    let keys = |seconds| {
        let figures = LineFigures::new(&counts, 0, seconds);
        (figures.emulator_cpu, figures.long_turns, figures.write_us_max)
    };
    assert_eq!(keys(2.0), (0.5, 7, 250.0), "both processes took a second to start and to end");
    assert_eq!(keys(0.0).0, 0.25, "nothing was delivered");
}

#[test]
fn a_run_is_disturbed_by_losses_of_the_host_and_by_a_late_emulator() {
    assert!(!run(1.0, 0, 1_000.0).is_disturbed());
    assert!(run(1.0, 1, 1.0).is_disturbed() && run(1.0, 0, 1_001.0).is_disturbed());
    assert!(!Run::new(Measured::default(), None, LineHistory::default()).is_disturbed());
}

#[test]
fn disturbed_measurements_are_told_with_what_to_do() {
    let figures = |late_us_p99| figures_of(&[run(1.0, 0, late_us_p99)], None).expect("a run");
    let (good, late) = (figures(5.0), figures(2_000.0));
    assert_eq!(disturbance([&good, &good].into_iter()), None);
    let told = disturbance([&good, &late, &good].into_iter()).expect("one is");
    let cells = |with_counters| {
        let latencies_s = [None, None, Some(0.0017735)];
        let columns = columns(&[Some(&good), Some(&late), None], &latencies_s, with_counters);
        columns.into_iter().map(|column| column.cells).collect::<Vec<_>>()
    };
    let [nothing, mean, mark, zero] = [
        [None, None, None],
        [None, None, Some("1.774 ms".to_owned())],
        [None, Some("late".to_owned()), None],
        [Some("0".to_owned()), Some("0".to_owned()), None],
    ];
    let without = [&nothing, &mean, &nothing, &nothing, &nothing, &nothing];
    assert_eq!(cells(false), [&without[..], &[&mark]].concat(), "one run has no range");
    assert_eq!(cells(true), [&without[..], &[&mark, &zero, &zero]].concat());
    let rates = [50e6, 52e6, 54e6].map(|rate| run(rate, 0, 5.0));
    let three = figures_of(&rates, None).expect("runs");
    assert_eq!(columns(&[Some(&three)], &[None], false)[0].cells, [Some("50.0 to 54.0".to_owned())]);
    assert_eq!(
        told,
        "disturbed: in runs of 1 of 3 measurements this machine was late; end what else runs, or run this as root, for real-time priority"
    );
    let mut as_root = [late.clone(), good.clone()];
    as_root.iter_mut().filter_map(|figures| figures.line.as_mut()).for_each(|line| line.realtime = true);
    let told = disturbance(as_root.iter()).expect("one is");
    assert!(told.ends_with("was late; end what else runs"), "{told}");
}

#[test]
fn only_the_reasons_that_apply_are_told() {
    let figures = |run: Run| figures_of(&[run], None).expect("a run");
    let busy = figures(run(1.0, 0, 5.0).beside_others(Some(1.6)));
    let all = figures(run(1.0, 3, 2_000.0).beside_others(Some(1.6)));
    assert_eq!(
        disturbance([&busy, &busy].into_iter()).expect("it is"),
        "disturbed: in runs of 2 of 2 measurements other programs kept processors busy; end what else runs",
        "the emulator was on time, so a priority would not help"
    );
    let told = disturbance([&busy, &all].into_iter()).expect("it is");
    for reason in
        ["1 of 2 measurements this machine lost", "1 of 2 measurements this machine was late", "2 of 2"]
    {
        assert!(told.contains(reason), "{told}");
    }
    let keys = |figures: &Figures| {
        let row = serde_json::to_value(figures).expect("figures");
        (row["disturbed"].clone(), row["disturbed_by"].clone())
    };
    assert_eq!(keys(&busy), (true.into(), "busy".into()));
    assert_eq!(keys(&all), (true.into(), "lost, late, busy".into()));
    assert_eq!(keys(&figures(run(1.0, 0, 5.0))), (false.into(), serde_json::Value::Null));
}

#[test]
fn a_mark_tells_how_far_a_run_had_come() {
    let run = delivered(&[10, 30, 20]);
    assert_eq!(run.bits_per_s(Some(2.0)), Some(160.0));
    assert_eq!(run.bits_per_s(Some(3.0)), Some(160.0));
    assert_eq!(run.bits_per_s(Some(10.0)), None, "it ended before");
    assert_eq!(run.bits_per_s(Some(1.5)), Some(8.0 * 25.0 / 1.5), "between two points");
}

#[test]
fn a_part_of_a_run_leaves_out_what_comes_before_and_after_it() {
    let run = delivered(&[10, 30, 20, 500]);
    assert_eq!(run.clone().with_rate_window(Some((1.0, 3.0))).bits_per_s(None), Some(8.0 * 50.0 / 2.0));
    assert_eq!(
        run.clone().with_rate_window(Some((0.0, 3.0))).bits_per_s(None),
        run.bits_per_s(Some(3.0)),
        "as at a mark"
    );
    let short = Run { measured: Measured { bits_per_s: 7.0, ..Measured::default() }, ..Run::default() };
    assert_eq!(short.with_rate_window(Some((0.0, 0.1))).bits_per_s(None), Some(7.0), "no point tells more");
}

#[test]
fn a_run_whose_points_end_early_has_no_rate_of_a_longer_time() {
    let rate_until = |points_s: &[f64], until_s| {
        let point = |&at_s: &f64| Point { at_s, bytes: 10, ..Point::default() };
        let points = points_s.iter().map(point).collect();
        let run =
            Run { measured: Measured { points, bits_per_s: 7.0, ..Measured::default() }, ..Run::default() };
        run.with_rate_window(Some((0.0, until_s))).bits_per_s(None)
    };
    assert_eq!(rate_until(&[1.0, 2.0], 4.0), None, "nor that of the whole run");
    assert_eq!(rate_until(&[1.0, 2.0, 3.0], 4.0), None, "a whole second is missing");
    assert_eq!(rate_until(&[0.1], 0.9), None);
    assert_eq!(rate_until(&[0.4, 0.8], 0.9), Some(8.0 * 20.0 / 0.9), "its last interval was empty");
    assert_eq!(rate_until(&[10.0, 19.1], 20.0), Some(8.0), "of two reports of ten bytes");
    assert_eq!(rate_until(&[10.0, 18.9], 20.0), None);
}

#[test]
fn each_turn_has_its_share_and_the_median_of_them_counts() {
    let load = &plan::plans(LiveName::Coexistence)[0].loads[0];
    let mut cell = Cell::new(load, load.series[0]);
    let turn =
        |own, other| Turn { run: run(own, 0, 5.0), beside: Some(run(other, 0, 5.0)), ..Turn::default() };
    cell.turns = vec![turn(30.0, 10.0), turn(40.0, 60.0), turn(50.0, 50.0)];
    // The medians of the rates, 40 and 50, are of different turns.
    let share = Share { of_fair: 1.0, least: Some(0.8), most: Some(1.5) };
    assert_eq!((cell.share_of_fair(), cell.ratio_to_beside()), (Some(share), Some(1.0)));
    assert_eq!(share.of_other(), Share { of_fair: 1.0, least: Some(0.5), most: Some(1.2) });
    let typical = cell.typical_turn().expect("three turns");
    assert_eq!(typical.run.measured.bits_per_s, 50.0, "the turn of the median share");
    assert_eq!(typical.beside.as_ref().map(|run| run.measured.bits_per_s), Some(50.0));
    cell.turns.truncate(1);
    assert_eq!(cell.share_of_fair(), Some(Share { of_fair: 1.5, least: None, most: None }));
    cell.turns = vec![turn(0.0, 0.0)];
    assert!(cell.typical_turn().is_some());
    assert_eq!((cell.share_of_fair(), cell.ratio_to_beside()), (None, None), "nothing was delivered");
}

#[test]
fn figures_tell_of_a_latency_that_was_disturbed() {
    let good = run(1.0, 0, 5.0);
    let figures = || Figures::new(&[&good], None, None, None).expect("a run");
    assert!(figures().with_answers(&[&good]).disturbances.is_empty());
    assert!(figures().with_answers(&[&good, &run(1.0, 3, 5.0)]).disturbances.lost);
    let beside = |busy| run(1.0, 0, 5.0).beside_others(Some(busy));
    let runs = [beside(0.02), beside(0.07), run(1.0, 0, 5.0)];
    let figures = figures_of(&runs, None).expect("runs");
    assert_eq!(figures.others_busy_processors, Some(0.07), "the most of those that are known");
    let answered = [figures.clone().with_answers(&[&beside(0.01)]), figures.with_answers(&[&beside(0.3)])];
    assert_eq!(answered.map(|figures| figures.others_busy_processors), [Some(0.07), Some(0.3)]);
}

#[test]
fn the_latency_is_the_median_of_each_value_of_the_runs() {
    let answered = |milliseconds: f64| {
        let latency = Latency { mean_s: milliseconds / 1e3, p50_s: 0.002, p99_s: milliseconds / 500.0 };
        Run { measured: Measured { latency: Some(latency), ..Measured::default() }, ..Run::default() }
    };
    let runs = [3.0, 9.0, 4.0].map(answered);
    let runs: Vec<&Run> = runs.iter().collect();
    assert_eq!(latency(&runs, |latency| latency.mean_s), Some(0.004));
    let figures = Figures::new(&[&run(1.0, 0, 5.0)], None, None, None).expect("a run").with_answers(&runs);
    assert_eq!((figures.latency_us_p50, figures.latency_us_p99), (Some(2000.0), Some(8000.0)));
}

#[test]
fn a_run_without_a_line_is_disturbed_by_other_programs() {
    let beside = |busy| Run::default().beside_others(Some(busy)).is_disturbed();
    assert!(beside(OTHERS_BUSY_MAX) && !beside(OTHERS_BUSY_MAX / 2.0));
}

#[test]
fn a_gap_lasts_from_the_last_delivery_to_the_next() {
    assert_eq!(delivered(&[1, 1, 0, 0, 0, 1]).gap_s(), Some(3.0));
    assert_eq!(delivered(&[1, 1, 0, 0]).gap_s(), Some(2.0), "or to the end");
    assert_eq!(Run::default().gap_s(), None);
}

#[test]
fn a_line_is_back_when_it_carries_a_tenth_of_its_rate() {
    let lines: Vec<PathSpec> = ["8kbit", "8kbit,down=2s/4s"].map(|line| line.parse().expect("a path")).into();
    let accepted = [0, 1000, 2000, 2000, 2000, 2050, 3000];
    let state = |(number, &bytes_accepted): (usize, &u64)| {
        let line = LineState { bytes_accepted, ..LineState::default() };
        StateAt { at_s: number as f64, paths: vec![[LineState::default(); 2], [line; 2]] }
    };
    let states = accepted.iter().enumerate().map(state).collect();
    let history = LineHistory { states, ..LineHistory::default() };
    let run = Run { history: history.clone(), ..Run::default() };
    assert_eq!(run.times_back_s(&lines, 0, 8.0), [Some(2.0)], "up at 4 s, used at 6 s");
    assert!(run.times_back_s(&lines[..1], 0, 8.0).is_empty());
    assert!(run.times_back_s(&lines[1..], 1, 4.0).is_empty(), "it ends before the line is back");
    let unused = Run { history: LineHistory { states: Vec::new(), ..history.clone() }, ..Run::default() };
    assert_eq!(unused.times_back_s(&lines, 0, 8.0), [None]);
    let late = Run { history: LineHistory { began_s: 0.5, ..history }, ..Run::default() };
    assert_eq!(late.times_back_s(&lines, 0, 8.0), [Some(2.5)], "up at 3.5 s of the test, used at 6 s");
}

#[test]
fn the_return_of_a_line_is_seen_to_the_interval_of_the_states_after_it() {
    let lines: Vec<PathSpec> = ["8mbit,down=2s/4s".parse().expect("a path")].into();
    // A megabyte in a second from so long after 4 s, when the line has returned.
    let state = |at_s: f64, used_at_s: f64| {
        let bytes_accepted = 7_000 + ((at_s - used_at_s).max(0.0) * 1e6) as u64;
        StateAt { at_s, paths: vec![[LineState { bytes_accepted, ..LineState::default() }; 2]] }
    };
    let back_s = |used_at_s: f64, phase_s: f64| {
        let states = (1..80).map(|number| state(f64::from(number) * 0.1 + phase_s, used_at_s)).collect();
        let returns = (0..200).map(|number| state(4.0 + f64::from(number) * 0.005, used_at_s)).collect();
        let run = Run { history: LineHistory { began_s: 0.0, states, returns }, ..Run::default() };
        run.times_back_s(&lines, 0, 8.0)[0].expect("it is used")
    };
    for (used_s, phase_s) in [(0.0, 0.01), (0.0, 0.09), (0.023, 0.01), (0.5, 0.07)] {
        // A tenth of the rate over 100 ms takes 10 ms at the full rate.
        let late = back_s(4.0 + used_s, phase_s) - used_s - 0.01;
        assert!((0.0..0.0075).contains(&late), "{late} s after {used_s} s, {phase_s} s");
    }
    let late = back_s(6.0, 0.0) - 2.0;
    assert!((0.0..=0.1 + 1e-9).contains(&late), "later the steps are those of all states: {late}");
}
