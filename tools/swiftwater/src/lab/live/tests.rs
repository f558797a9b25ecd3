use emulator::LineState;

use super::*;

pub(super) const SETTINGS: Settings<'_> =
    Settings { seconds: None, case: "", repeat: None, quick: false, full: false, seed: 1 };

fn run(bits_per_s: f64) -> Run {
    Run::new(Measured { bits_per_s, ..Measured::default() }, None, LineHistory::default())
}

fn plan(name: LiveName) -> Plan {
    plan::plans(name).swap_remove(0)
}

/// Returns the cells of a load, with these rates.
fn measured(plan: &Plan, load: usize, rates: &[(&str, usize, &[f64])]) -> Vec<Cell> {
    let cell = |(name, paths, rates): &(&str, usize, &[f64])| {
        let load = &plan.loads[load];
        let series = load.series.iter().find(|series| series.name == *name && series.paths == *paths);
        let mut cell = Cell::new(load, *series.expect("a series of the load"));
        cell.turns = rates.iter().map(|rate| Turn { run: run(*rate), ..Turn::default() }).collect();
        cell
    };
    rates.iter().map(cell).collect()
}

#[test]
fn the_best_path_alone_is_of_the_same_series_and_mptcp_has_that_of_tcp() {
    let plan = plan(LiveName::AsymmetricRate);
    let rates: [(&str, usize, &[f64]); 5] = [
        ("tcp-cubic", 1, &[95e6]),
        ("tcp-bbr", 1, &[80e6, 90e6]),
        ("mptcp", 2, &[1e6, 76e6, 80e6]),
        ("sctp-message", 1, &[38e6]),
        ("sctp-message", 2, &[]),
    ];
    let outcomes = outcomes(&plan, &measured(&plan, 0, &rates), &SETTINGS, &[]);
    assert_eq!(outcomes.len(), 4, "what was not measured is left out");
    let (mptcp, _) = &outcomes[2];
    assert_eq!((mptcp.bits_per_s, mptcp.best_path_bits_per_s), (76e6, Some(95e6)));
    let (message, figures) = &outcomes[3];
    assert_eq!((message.path, message.ratio_to_best_path()), (Some(1), Some(1.0)));
    let figures = figures.figures().expect("measured");
    assert_eq!(figures.ratio_to_tcp(message.bits_per_s), Some(0.4), "by the better TCP");
}

#[test]
fn published_figures_stand_beside_ours() {
    let published = |name, load, rates: &[(&str, usize, &[f64])]| {
        let plan = plan(name);
        let outcomes = outcomes(&plan, &measured(&plan, load, rates), &SETTINGS, &[]);
        assert!(outcomes.iter().any(|(outcome, source)| outcome.published && source.figures().is_none()));
        let figures = outcomes.iter().filter_map(|(_, source)| source.figures());
        figures.map(|figures| figures.published_bits_per_s).collect::<Vec<_>>()
    };
    let two_equal: [(&str, usize, &[f64]); 3] =
        [("tcp-cubic", 1, &[95e6]), ("sctp-message", 2, &[70e6]), ("mptcp", 2, &[180e6])];
    assert_eq!(published(LiveName::TwoEqual, 3, &two_equal), [Some(93.8e6), Some(91.6e6), None]);
    assert_eq!(published(LiveName::Sctplib, 1, &[("sctp-stream", 1, &[28e6])]), [Some(970.0 * 8192.0)]);
    assert_eq!(published(LiveName::Sctplib, 0, &[("tcp-bbr", 1, &[28e6])]), [Some(3008.1 * 8192.0)]);
    let flapping: [(&str, usize, &[f64]); 2] = [("tcp-cubic", 1, &[4e6]), ("sctp-message", 2, &[9e6])];
    assert_eq!(published(LiveName::Flapping, 2, &flapping), [Some(1064e3), Some(1750e3)]);
}

#[test]
fn published_figures_do_not_stand_alone() {
    for name in [LiveName::TwoEqual, LiveName::Flapping, LiveName::Datatag, LiveName::Sctplib] {
        let plan = plan(name);
        let mut cells = cells(&plan, &SETTINGS);
        assert_eq!(outcomes(&plan, &cells, &SETTINGS, &[]).len(), 0, "nothing was measured");
        cells[0].turns = vec![Turn { run: run(1e6), ..Turn::default() }];
        let case = cells[0].load.name();
        let outcomes = outcomes(&plan, &cells, &SETTINGS, &[]);
        assert!(outcomes.iter().any(|(outcome, _)| outcome.published), "{case}");
        assert!(outcomes.iter().all(|(outcome, _)| outcome.case == case), "other loads were not measured");
    }
}

#[test]
fn buffers_that_were_published_are_given_to_sctp_and_tcp_grows() {
    let plan = plan(LiveName::Datatag);
    let load = &plan.loads[0];
    let buffers: Vec<_> = load
        .series
        .iter()
        .map(|&series| measurement(None, &Cell::new(load, series), series, 1.0, false).buffer_bytes)
        .collect();
    assert_eq!(buffers, [None, None, Some(32 << 20), Some(32 << 20), Some(32 << 20)]);
}

#[test]
fn tcp_of_a_file_is_compared_with_sctp_whatever_its_buffer() {
    let plan = plan(LiveName::Sctplib);
    let mut cells = measured(&plan, 0, &[("tcp-cubic", 1, &[28e6])]);
    cells.extend(measured(&plan, 2, &[("sctp-stream", 1, &[14e6])]));
    let outcomes = outcomes(&plan, &cells, &SETTINGS, &[]);
    let (stream, source) =
        outcomes.iter().find(|(outcome, _)| outcome.transport == "sctp-stream").expect("one");
    assert!(stream.case.ends_with("67107840 bytes of buffer"), "{}", stream.case);
    assert_eq!(source.figures().and_then(|figures| figures.ratio_to_tcp(14e6)), Some(0.5));
}

#[test]
fn both_sides_of_a_bottleneck_are_told() {
    let plan = plan(LiveName::Coexistence);
    let mut cells = measured(&plan, 0, &[("sctp-stream", 1, &[60e6])]);
    cells[0].turns[0].beside = Some(run(30e6));
    let outcomes = outcomes(&plan, &cells, &SETTINGS, &[]);
    let transports: Vec<&str> = outcomes.iter().map(|(outcome, _)| outcome.transport.as_str()).collect();
    assert_eq!(transports, ["sctp-stream", "tcp-cubic"]);
    let figures = outcomes[0].1.figures().expect("measured");
    assert_eq!(figures.ratio_to_tcp(60e6), Some(2.0));
}

#[test]
fn a_failure_beside_ours_is_that_of_the_transport_that_failed() {
    let plan = plan(LiveName::Coexistence);
    let load = &plan.loads[0];
    let cell = Cell::new(load, load.series[0]);
    let failure = |series| {
        // The program of this test is no end of a measurement.
        let ends = measurement(None, &cell, series, 1.0, false);
        at_once(&[ends], None).map(drop).expect_err("it has other arguments")
    };
    let [ours, beside] = [cell.series, load.beside.expect("TCP")].map(failure);
    assert!(ours.is_of_one_measurement() && ours.is_ours(), "{ours}");
    assert!(beside.is_of_one_measurement() && !beside.is_ours(), "{beside}");
    assert!(beside.to_string().contains("sctp-stream, paths: 1: tcp-cubic beside it: "), "{beside}");
}

#[test]
fn the_rates_of_a_pair_are_of_the_turn_of_the_median_share() {
    let plan = plan(LiveName::Coexistence);
    let mut cells = measured(&plan, 0, &[("sctp-stream", 1, &[78e6, 50e6, 40e6])]);
    for (turn, beside) in cells[0].turns.iter_mut().zip([17e6, 46e6, 55e6]) {
        turn.beside = Some(run(beside));
    }
    let outcomes = outcomes(&plan, &cells, &SETTINGS, &[]);
    let rates: Vec<f64> = outcomes.iter().map(|(outcome, _)| outcome.bits_per_s).collect();
    assert_eq!(rates, [50e6, 46e6]);
    let rows: Vec<_> = outcomes
        .iter()
        .map(|(_, source)| serde_json::to_value(source.figures().expect("measured")).expect("JSON"))
        .collect();
    let share = |row: usize, key: &str| (rows[row][key].as_f64().expect("a share") * 100.0).round();
    let keys = ["share_of_fair", "share_of_fair_min", "share_of_fair_max"];
    assert_eq!(keys.map(|key| share(0, key)), [104.0, 84.0, 164.0]);
    assert_eq!(keys.map(|key| share(1, key)), [96.0, 36.0, 116.0]);
}

#[test]
fn a_long_run_is_told_at_each_mark_beside_the_published_run_of_that_length() {
    let plan = plan(LiveName::Datatag);
    let mut cells = measured(&plan, 0, &[("sctp-stream", 1, &[9e8])]);
    let point =
        |second: u32| measure::Point { at_s: second.into(), bytes: 1_000_000, ..measure::Point::default() };
    cells[0].turns[0].run.measured.points = (1..=60).map(point).collect();
    let outcomes = outcomes(&plan, &cells, &SETTINGS, &[]);
    let ours: Vec<f64> = outcomes
        .iter()
        .filter(|(outcome, _)| !outcome.published)
        .map(|(outcome, _)| outcome.seconds)
        .collect();
    assert_eq!(ours, [10.0, 20.0, 30.0, 40.0, 50.0, 60.0]);
    let at = |seconds| Outcome { seconds, transport: beside::TRANSPORT.to_owned(), ..Outcome::default() };
    let with_virtual = self::outcomes(&plan, &cells, &SETTINGS, &[at(10.0)]);
    let named = |(outcome, _): &(Outcome, Source)| (outcome.transport.clone(), outcome.seconds);
    let rows: Vec<_> = with_virtual.iter().map(named).collect();
    assert_eq!(rows[1], (beside::TRANSPORT.to_owned(), 10.0), "behind ours, before what was published");
    let published = with_virtual.iter().filter(|(outcome, _)| outcome.published).count();
    assert_eq!(published, 40, "two programs in each of the twenty rows");
    assert_eq!(rows[rows.len() - 1], ("tcp 2003".to_owned(), 3600.0));
}

/// Returns a turn over two lines. The first line comes back 8 s after the beginning. The sender uses it `used_after_s` later,
/// or never. Nothing is delivered for `gap` tenths of a second.
fn turn_of_failover(bits_per_s: f64, used_after_s: Option<f64>, gap: usize) -> Turn {
    let state = |tenths: u32| {
        let at_s = f64::from(tenths) / 10.0;
        let used_s = used_after_s.map_or(0.0, |after_s| (at_s - 8.0 - after_s).max(0.0));
        let line = LineState { bytes_accepted: (used_s * 12.5e6) as u64, ..LineState::default() };
        watch::StateAt { at_s, paths: vec![[line; 2], [LineState::default(); 2]] }
    };
    let point = |tenths: usize| measure::Point {
        at_s: tenths as f64 / 10.0,
        bytes: u64::from(!(41..41 + gap).contains(&tenths)),
        ..measure::Point::default()
    };
    let points = (1..=110).map(point).collect();
    let measured = Measured { bits_per_s, points, ..Measured::default() };
    let states = (1..=110).map(state).collect();
    let history = LineHistory { states, ..LineHistory::default() };
    Turn { run: Run::new(measured, None, history), ..Turn::default() }
}

#[test]
fn the_longest_gap_and_the_latest_return_are_of_all_turns() {
    let plan = plan(LiveName::Failover);
    let mut cells = measured(&plan, 0, &[("mptcp", 2, &[])]);
    let tenths = |cells: &[Cell]| {
        let (outcome, _) = outcomes(&plan, cells, &SETTINGS, &[]).swap_remove(0);
        let returns = outcome.returns.expect("a line comes back");
        let in_tenths = |seconds: f64| (seconds * 10.0).round();
        let times = [outcome.gap_s_max, returns.back_s_max].map(|time| time.map(in_tenths));
        (times, returns.count, returns.missed)
    };
    // Each is used at the first observation after it, which is one of a tenth of a second.
    cells[0].turns = [(90e6, 0.05, 2), (91e6, 0.05, 3), (70e6, 2.05, 25)]
        .map(|(rate, used_after_s, gap)| turn_of_failover(rate, Some(used_after_s), gap))
        .into();
    assert_eq!(tenths(&cells), ([Some(25.0), Some(21.0)], 3, 0), "the worst turn has the lowest rate");
    cells[0].turns.push(turn_of_failover(60e6, None, 2));
    assert_eq!(tenths(&cells), ([Some(25.0), Some(21.0)], 4, 1), "one was never used");
}

#[test]
fn ctrl_c_marks_only_outcomes_that_lack_runs() {
    let plan = plan(LiveName::Lossy);
    let rates: [(&str, usize, &[f64]); 2] = [("tcp-cubic", 1, &[9e6, 8e6]), ("sctp-message", 2, &[7e6])];
    let all = outcomes(&plan, &measured(&plan, 0, &rates), &SETTINGS, &[]);
    let marks = |repeat, is_interrupted| {
        let mut outcomes = all.clone();
        mark_interrupted(&mut outcomes, repeat, is_interrupted);
        outcomes.iter().map(|(outcome, _)| outcome.interrupted).collect::<Vec<_>>()
    };
    assert_eq!(marks(2, true), [false, true]);
    assert_eq!(marks(1, true), [false, false]);
    assert_eq!(marks(2, false), [false, false], "a failed run was left out");
    let plan = self::plan(LiveName::Flapping);
    let mut cells = measured(&plan, 0, &[("tcp-cubic", 1, &[9e6, 8e6])]);
    cells[0].turns[0].request_response = Some(run(1e6));
    for (answered, lacks) in [(None, true), (Some(run(1e6)), false)] {
        cells[0].turns[1].request_response = answered;
        let mut outcomes = outcomes::outcomes(&plan, &cells, &SETTINGS, &[]);
        mark_interrupted(&mut outcomes, 2, true);
        assert_eq!(outcomes[0].0.interrupted, lacks, "answers of the second run");
    }
}

#[test]
fn ctrl_c_does_not_mark_outcomes_whose_answers_have_failed() {
    let plan = plan(LiveName::Flapping);
    let mut cells = measured(&plan, 0, &[("tcp-cubic", 1, &[9e6])]);
    let bar = indicatif::ProgressBar::hidden();
    let mut testbed =
        Testbed { plan: &plan, settings: &SETTINGS, hosts: None, control: None, seed: 1, bar: &bar };
    // The program of this test is no end of a measurement.
    let answered = measure_answers(&mut testbed, &mut cells, (0, 0), &mut None, &mut |_| {});
    assert!(answered.expect_err("it has other arguments").is_of_one_measurement());
    let mut outcomes = outcomes::outcomes(&plan, &cells, &SETTINGS, &[]);
    mark_interrupted(&mut outcomes, 1, true);
    assert!(!outcomes[0].0.interrupted);
}

#[test]
fn a_better_run_replaces_the_disturbed_one_of_its_turn() {
    let plan = plan(LiveName::Flapping);
    let mut cell = measured(&plan, 0, &[("tcp-cubic", 1, &[9e6])]).remove(0);
    let rates = |cell: &Cell| cell.turns.iter().map(|turn| turn.run.measured.bits_per_s).collect::<Vec<_>>();
    for (rate, repeated, all) in [(5e6, 0, [9e6, 5e6]), (7e6, 1, [9e6, 7e6])] {
        cell.put_turn(1, Turn { run: run(rate), ..Turn::default() });
        assert_eq!((cell.repeated, rates(&cell)), (repeated, all.to_vec()));
    }
    for (number, repeated) in [(1, 1), (1, 2), (0, 2)] {
        cell.put_answers(number, run(1e6));
        assert_eq!(cell.repeated, repeated);
    }
    assert_eq!(cell.request_response_runs().len(), 2);
}

#[test]
fn only_turns_have_other_losses() {
    let seeds: std::collections::BTreeSet<u64> =
        (0..3).flat_map(|seed| (0..100).map(move |turn| seed_of_turn(seed, turn))).collect();
    assert_eq!(seeds.len(), 300, "each seed and turn has its own");
    assert_eq!(seed_of_turn(1, 0), 7_424_550_030_962_593_201, "a run of before can be repeated");
}

#[test]
fn published_rows_used_the_lines_of_ours_and_tcp_only_the_one_that_comes_and_goes() {
    let plan = plan(LiveName::Flapping);
    let mut cells = measured(&plan, 1, &[("tcp-cubic", 1, &[4e6])]);
    cells.extend(measured(&plan, 2, &[("tcp-cubic", 1, &[4e6]), ("sctp-message", 2, &[9e6])]));
    let outcomes = outcomes(&plan, &cells, &SETTINGS, &[]);
    let used: Vec<_> = outcomes.iter().filter_map(|(outcome, _)| outcome.paths_text()).collect();
    assert_eq!(used, ["3", "3", "3", "2", "2+3", "2", "2+3"], "three published ones");
    let datatag = self::plan(LiveName::Datatag);
    let published = datatag.loads[0].published(10.0);
    assert!(published.iter().all(|outcome| outcome.paths_text().as_deref() == Some("1")));
}

#[test]
fn rows_name_their_lines_with_the_queues() {
    let plan = plan(LiveName::Sctplib);
    let cells = measured(&plan, 0, &[("tcp-cubic", 1, &[28e6])]);
    let outcomes = outcomes(&plan, &cells, &SETTINGS, &[]);
    let row = serde_json::to_value(outcomes[0].1.figures().expect("measured")).expect("JSON");
    assert_eq!(row["lines"], "30mbit,50ms,queue=400KiB");
    assert_eq!(row["repeated"], 0);
}

#[test]
fn rates_beside_another_are_of_the_time_in_which_both_sent_without_its_start() {
    let plan = plan(LiveName::Coexistence);
    let cell = Cell::new(&plan.loads[0], plan.loads[0].series[0]);
    let began = |began_s| Measured { began_s, ..Measured::default() };
    let parts = |began_s: [Option<f64>; 2]| rate_windows(&plan, &cell, &began_s.map(began), 20.0);
    assert_eq!(parts([Some(100.0), Some(100.5)]), [Some((5.5, 20.0)), Some((5.0, 19.5))]);
    assert_eq!(parts([Some(100.0), None]), [Some((0.0, 20.0)); 2], "one does not tell when it began");
    assert_eq!(parts([Some(100.0), Some(130.0)]), [Some((0.0, 20.0)); 2], "they missed each other");
}

#[test]
fn rates_with_marks_and_over_lines_that_go_down_are_of_the_planned_time() {
    let parts = |name| {
        let plan = plan(name);
        let cells = plan.loads.iter().map(|load| Cell::new(load, load.series[0]));
        cells.map(|cell| rate_windows(&plan, &cell, &[Measured::default()], 60.0)[0]).collect::<Vec<_>>()
    };
    let planned = Some((0.0, 60.0));
    assert_eq!(parts(LiveName::Datatag), [planned]);
    assert_eq!(parts(LiveName::Failover), [planned]);
    assert_eq!(parts(LiveName::Flapping), [None, None, planned], "one network alone is always up");
    assert_eq!(parts(LiveName::Lossy), [None; 2]);
}

#[test]
fn quick_leaves_the_larger_files_out() {
    let plan = plan(LiveName::Sctplib);
    assert_eq!(cells(&plan, &SETTINGS).len(), 7, "two TCPs for each file, and three transfers of ours");
    assert_eq!(cells(&plan, &Settings { quick: true, ..SETTINGS }).len(), 4);
}

#[test]
fn all_experiments_have_plans() {
    for name in ALL {
        assert!(name == LiveName::Strsctp || !plan::plans(name).is_empty(), "{}", self::name(name));
    }
    let words = <LiveName as clap::ValueEnum>::value_variants();
    for &word in words {
        let value = clap::ValueEnum::to_possible_value(&word).expect("each has a word");
        assert_eq!(value.get_name(), name(word));
    }
}
