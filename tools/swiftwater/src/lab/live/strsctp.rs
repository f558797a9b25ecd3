//! `strsctp`: messages of each size over loopback, as `swiftwater bench` measures them, with the paper's buffers and numbers of
//! processors.

use ::lab::experiment::Outcome;

use super::figures::{Figures, Run};
use super::measure::{Cpu, Measured};
use super::repeat::attempt;
use super::watch::LineHistory;
use super::{Keep, LiveError, Results, Settings, leave_out};
use crate::bench;
use crate::bench::plan::Cell;
use crate::bench::published::{self, Column};
use crate::bench::run::Runner;
use crate::bench::series::Series;
use crate::lab::row::{Clock, Source};
use crate::peer::PeerError;
use crate::stats::median;
use crate::{host, interrupt};

/// Socket buffers of the paper's netperf.
const BUFFER_BYTES: usize = 131_071;
/// Logarithms of the paper's sizes.
const SIZES: std::ops::RangeInclusive<u32> = 0..=14;
/// Seconds in which the paper counts messages.
const SECONDS: f64 = 10.0;
const SECONDS_QUICK: f64 = 0.4;
/// The series in the paper's figures, with the column of its tables if the series has one.
const SERIES: [(Series, Option<Column>); 4] = [
    (Series::Tcp, Some(Column::SocketsNormal)),
    (Series::TcpArtificial, Some(Column::SocketsArtificial)),
    (Series::SctpMessage, None),
    (Series::SctpStream, Some(Column::Sctp)),
];

/// Runs the experiment; returns the measurements from before Ctrl-C, too. `keep` is called after each group of measurements that
/// take turns.
pub(super) fn run(settings: &Settings<'_>, keep: &mut Keep<'_>) -> Results {
    let mut results = Results::default();
    if let Err(error) = measure_all(settings, &mut results, keep) {
        results.failure = Some(error);
    }
    results
}

fn measure_all(settings: &Settings<'_>, results: &mut Results, keep: &mut Keep<'_>) -> Result<(), LiveError> {
    // In our own network namespace the loopback interface is down; elsewhere it is already up.
    let _ = netns::exec("ip link set lo up");
    let runner = Runner::new(crate::run::find_shim_for_itself())
        .map_err(|source| LiveError::Start { what: "this program again", source })?;
    let seconds = seconds(settings);
    let groups = selected(settings.case);
    let runs = groups.iter().map(|group| group.len() as u64).sum::<u64>() * u64::from(settings.repeat());
    let bar = super::super::progress_bar(runs);
    for group in &groups {
        if interrupt::requested() {
            break;
        }
        let mut measured = vec![Runs::default(); group.len()];
        for _ in 0..settings.repeat() {
            for (cell, Runs { runs, failed }) in group.iter().zip(&mut measured) {
                if interrupt::requested() {
                    break;
                }
                bar.set_message(name(cell));
                let measure = || runner.run(cell, seconds).map_err(|error| failure_of(cell, &error));
                match attempt(failed, &bar, measure) {
                    Ok(run) => runs.push(run_of(&run)),
                    Err(_) if interrupt::requested() => break,
                    Err(error) => leave_out(&bar, error, &mut results.failure),
                }
                bar.inc(1);
            }
        }
        results.runs += measured.iter().map(|of_cell| of_cell.runs.len()).sum::<usize>();
        results.outcomes.extend(outcomes(group, &measured, seconds));
        let so_far =
            || Results { outcomes: results.outcomes.clone(), runs: results.runs, ..Results::default() };
        bar.suspend(|| keep(&so_far));
    }
    bar.finish_and_clear();
    Ok(())
}

/// The runs of a cell.
#[derive(Clone, Default)]
struct Runs {
    runs: Vec<Run>,
    /// Number of failed runs that others have replaced.
    failed: u32,
}

/// Returns the failure of a cell, which is that of its transport.
fn failure_of(cell: &Cell, error: &PeerError) -> LiveError {
    LiveError::End { name: name(cell), said: error.to_string() }.of(is_ours(cell.series))
}

/// Returns the duration of each measurement.
pub(super) fn seconds(settings: &Settings<'_>) -> f64 {
    settings.seconds.unwrap_or(if settings.quick { SECONDS_QUICK } else { SECONDS })
}

/// Returns the cells with this text in their names, as they take turns.
fn selected(wanted: &str) -> Vec<Vec<Cell>> {
    let mut groups = groups(host::allowed_processors().len());
    for group in &mut groups {
        group.retain(|cell| name(cell).contains(wanted));
    }
    groups.retain(|group| !group.is_empty());
    groups
}

/// Returns the case and the transport of each cell that this host can measure.
pub(super) fn cells() -> Vec<(String, &'static str)> {
    let groups = groups(host::allowed_processors().len());
    groups.iter().flatten().map(|cell| (case(cell), cell.series.name())).collect()
}

/// Returns the cells that take turns: all series of a size on so many processors.
fn groups(processors: usize) -> Vec<Vec<Cell>> {
    let counts = [1, 2].into_iter().filter(|&cpus| cpus <= processors);
    let of_size = |cpus, message_bytes| {
        SERIES.map(|(series, _)| Cell {
            series,
            cpus,
            packet_cap: None,
            buffer_bytes: Some(BUFFER_BYTES),
            parallel: 1,
            message_bytes,
        })
    };
    counts.flat_map(|cpus| SIZES.map(move |power| of_size(cpus, 1 << power).to_vec())).collect()
}

fn case(cell: &Cell) -> String {
    let processors = if cell.cpus == 1 { "1 processor" } else { "2 processors" };
    format!("{processors}, {} bytes", cell.message_bytes)
}

fn name(cell: &Cell) -> String {
    format!("{}, {}", case(cell), cell.series.name())
}

/// Returns the names of all cells on two processors.
#[cfg(test)]
pub(super) fn names() -> Vec<String> {
    groups(2).iter().flatten().map(name).collect()
}

/// Returns whether a series is SCTP of ours.
fn is_ours(series: Series) -> bool {
    matches!(series, Series::SctpMessage | Series::SctpStream)
}

fn run_of(run: &bench::run::Run) -> Run {
    let measured = measured_of(&run.outcome);
    Run::new(measured, None, LineHistory::default()).beside_others(run.others_busy)
}

fn measured_of(outcome: &crate::perf::client::Outcome) -> Measured {
    let bytes = (outcome.server.bytes as f64).max(1.0);
    let ns_per_byte = |seconds: f64| seconds * 1e9 / bytes;
    Measured {
        bits_per_s: outcome.bits_per_s(),
        seconds: outcome.server.seconds,
        cpu: Some(Cpu {
            client_ns_per_byte: ns_per_byte(outcome.client.cpu_s),
            server_ns_per_byte: ns_per_byte(outcome.server.cpu_s),
        }),
        ..Measured::default()
    }
}

/// Returns the measured outcomes of a size, followed by rows of the published tables; none if nothing was measured.
fn outcomes(group: &[Cell], measured: &[Runs], seconds: f64) -> Vec<(Outcome, Source)> {
    let Some(first) = group.first() else { return Vec::new() };
    let rate = |of_cell: &Runs| median(&super::rates(&of_cell.runs.iter().collect::<Vec<_>>(), None));
    let of_tcp = group.iter().zip(measured).find(|(cell, _)| cell.series == Series::Tcp);
    // Messages are whole, so that TCP's ratio to itself is 1.
    let whole = |bits_per_s: f64| bits(messages_of(bits_per_s, first.message_bytes), first.message_bytes);
    let tcp = of_tcp.and_then(|(_, of_cell)| rate(of_cell)).map(whole);
    let raw = published::raw(first.cpus, first.message_bytes);
    let ours = group.iter().zip(measured).filter_map(|(cell, of_cell)| {
        let bits_per_s = rate(of_cell)?;
        let column = SERIES.iter().find(|(series, _)| *series == cell.series).and_then(|(_, column)| *column);
        // If there are several machines, the fastest one counts.
        let best = raw.iter().filter(|row| Some(row.column) == column);
        let best = best.map(|row| row.messages).max_by(f64::total_cmp);
        let runs: Vec<&Run> = of_cell.runs.iter().collect();
        let figures =
            Figures::new(&runs, None, tcp, best.map(|messages| bits(messages, cell.message_bytes)))?;
        let figures = figures.with_failed_runs(of_cell.failed);
        let messages = messages_of(bits_per_s, cell.message_bytes);
        let outcome = outcome(cell, cell.series.name().to_owned(), seconds, messages);
        // A shorter run counts no messages of ten seconds.
        let messages_in_10_s = if seconds < SECONDS { in_four_digits(messages) } else { messages };
        let outcome = Outcome { messages_in_10_s: Some(messages_in_10_s), ..outcome };
        Some((outcome, Source::Live(Box::new(figures))))
    });
    let ours: Vec<_> = ours.collect();
    if ours.is_empty() {
        return ours;
    }
    let published = raw.iter().map(|row| {
        let outcome =
            outcome(first, format!("{}, {}", row.column.name(), row.machine), SECONDS, row.messages);
        (Outcome { published: true, ..outcome }, Source::Published(Clock::Live))
    });
    ours.into_iter().chain(published).collect()
}

/// Rounds a number to four significant digits.
fn in_four_digits(number: f64) -> f64 {
    let unit = 10_f64.powi(number.max(1.0).log10().floor() as i32 - 3).max(1.0);
    (number / unit).round() * unit
}

/// Returns the number of messages in ten seconds at a bit rate.
fn messages_of(bits_per_s: f64, message_bytes: usize) -> f64 {
    (bits_per_s / 8.0 / message_bytes as f64 * SECONDS).round()
}

/// Returns the bit rate of so many messages in ten seconds.
fn bits(messages: f64, message_bytes: usize) -> f64 {
    messages * message_bytes as f64 * 8.0 / SECONDS
}

fn outcome(cell: &Cell, transport: String, seconds: f64, messages: f64) -> Outcome {
    Outcome {
        case: case(cell),
        transport,
        seconds,
        bits_per_s: bits(messages, cell.message_bytes),
        limit_bits_per_s: f64::INFINITY,
        messages_in_10_s: Some(messages),
        message_bytes: Some(cell.message_bytes),
        ..Outcome::default()
    }
}

#[cfg(test)]
mod tests {
    use indicatif::ProgressBar;

    use super::*;
    use crate::perf::client;
    use crate::perf::control::Totals;

    #[test]
    fn a_failure_of_ours_is_one_of_the_command_and_others_are_tried_again_and_left_out() {
        let group = groups(1).swap_remove(0);
        let failures: Vec<_> = group
            .iter()
            .map(|cell| {
                let (bar, mut failed, mut failure) = (ProgressBar::hidden(), 0, None);
                let hangs = || Err::<(), _>(failure_of(cell, &PeerError::Peer("it hangs".to_owned())));
                let error = attempt(&mut failed, &bar, hangs).expect_err("it does");
                leave_out(&bar, error, &mut failure);
                (failed, failure.map(|error| error.to_string()))
            })
            .collect();
        let of_ours = |series: &str| (0, Some(format!("1 processor, 1 bytes, {series}: it hangs")));
        assert_eq!(failures, [(3, None), (3, None), of_ours("sctp-message"), of_ours("sctp-stream")]);
    }

    #[test]
    fn messages_of_a_short_run_have_four_digits() {
        let rounded = [0.0, 7.0, 12_345.0, 9_353_690.0].map(in_four_digits);
        assert_eq!(rounded, [0.0, 7.0, 12_350.0, 9_354_000.0]);
    }

    #[test]
    fn a_run_beside_other_programs_is_disturbed() {
        let totals = Totals::default();
        let outcome = client::Outcome {
            client: totals,
            server: totals,
            latency: None,
            paths: Vec::new(),
            began: Default::default(),
            interrupted: false,
            link: None,
        };
        let run = |others_busy| run_of(&bench::run::Run { outcome: outcome.clone(), others_busy });
        assert!(run(Some(0.5)).is_disturbed());
        assert!(!run(Some(0.01)).is_disturbed() && !run(None).is_disturbed());
    }

    #[test]
    fn all_seven_raw_tables_stand_beside_ours() {
        let groups = groups(2);
        assert_eq!(groups.len(), 2 * 15, "each size on one processor and on two");
        let run = |mbits: f64| {
            Run::new(
                Measured { bits_per_s: mbits * 1e6, ..Measured::default() },
                None,
                LineHistory::default(),
            )
        };
        let measured = |mbits| Runs { runs: vec![run(mbits)], failed: 2 };
        let rows = |group: &Vec<Cell>| outcomes(group, &vec![measured(80.0); group.len()], 1.0);
        let published = groups.iter().flat_map(rows).filter(|(outcome, _)| outcome.published).count();
        assert_eq!(published, 7 * 4 * 15);
        let small = rows(&groups[0]);
        assert_eq!(small[0].0.messages_in_10_s, Some(1e8), "80 Mbit/s of one byte each for ten seconds");
        let odd = outcomes(&groups[0], &vec![measured(33.333_333); groups[0].len()], 1.0);
        let (tcp, source) = odd.iter().find(|(outcome, _)| outcome.transport == "tcp").expect("a baseline");
        let ratio = source.figures().and_then(|figures| figures.ratio_to_tcp(tcp.bits_per_s));
        assert_eq!(ratio, Some(1.0), "to itself");
        let figures = small[3].1.figures().expect("measured");
        assert_eq!(figures.published_bits_per_s, Some(1_454_549.0 * 0.8), "Ubuntu on porky");
        let row = serde_json::to_value(figures).expect("JSON");
        assert_eq!(row["failed_runs"], 2);
        assert!(groups.iter().flatten().all(|cell| cell.buffer_bytes == Some(131_071)));
        assert!(
            outcomes(&groups[0], &vec![Runs::default(); groups[0].len()], 1.0).is_empty(),
            "nothing was measured"
        );
    }
}
