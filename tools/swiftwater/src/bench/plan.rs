//! The cells of a measurement, their order and duration.

use thiserror::Error;

use super::args::BenchArgs;
use super::series::Series;
use crate::perf::spec::{MESSAGE_BYTES_MAX, PARALLEL_MAX};
use crate::units::parse_bytes;

/// Sizes of the whole range, as in netperf's range experiment, and one beyond.
const SIZES: [usize; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 65536];
const QUICK_SIZES: [usize; 8] = [1, 16, 64, 256, 1024, 4096, 16384, 65536];
/// Overhead of a run: two processes, connections, the last messages.
const RUN_OVERHEAD_S: f64 = 0.15;
/// Time planned for `--quick`, with a reserve up to its promise of 120 s.
const QUICK_BUDGET_S: f64 = 90.0;
const QUICK_RUN_S: (f64, f64) = (0.035, 0.5);
/// Length of a request and of its answer.
const RR_MESSAGE_BYTES: usize = 1;

/// One measured cell of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cell {
    /// The series.
    pub series: Series,
    /// Processors that both ends share.
    pub cpus: usize,
    /// Largest packet, if limited.
    pub packet_cap: Option<usize>,
    /// Send and receive buffers at both ends; `None` is the default.
    pub buffer_bytes: Option<usize>,
    /// Associations or connections.
    pub parallel: usize,
    /// Length of every message.
    pub message_bytes: usize,
}

/// Cells that share a baseline and therefore take turns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    /// The cells; the baseline is the first.
    pub cells: Vec<Cell>,
}

/// The whole experiment.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Groups in the order of measurement.
    pub groups: Vec<Group>,
    /// Duration of each run.
    pub seconds: f64,
    /// Runs of each cell.
    pub repeat: u32,
}

/// Error of planning.
#[derive(Debug, PartialEq, Eq, Error)]
pub(crate) enum PlanError {
    /// No such series.
    #[error("{0}")]
    Series(String),
    /// Fewer processors are allowed than requested.
    #[error(
        "{wish} processors cannot be used; this process may use {allowed}, so choose 1 or an even number up to that with --cpus"
    )]
    Cpus {
        /// Processors that were requested.
        wish: usize,
        /// Processors that this process may use.
        allowed: usize,
    },
    /// A packet size out of bounds.
    #[error("`{0}` is not a packet size; write `loopback` or a number of bytes from 576 to 65536")]
    Packet(String),
    /// A message size out of bounds.
    #[error("a message of {0} bytes cannot be measured; choose a size from 1 to {MESSAGE_BYTES_MAX}")]
    Size(usize),
    /// Too many connections at a time.
    #[error("{0} at a time cannot be measured; choose from 1 to {PARALLEL_MAX}")]
    Parallel(usize),
}

impl Plan {
    /// Plans the runs that the arguments ask for, on a machine that allows so many processors.
    ///
    /// Without a shim, series that need it are measured only if the user names them.
    pub(crate) fn new(
        args: &BenchArgs,
        allowed_processors: usize,
        has_shim: bool,
    ) -> Result<Self, PlanError> {
        let series = chosen_series(args, has_shim)?;
        let sizes = chosen_sizes(args)?;
        let cpus = chosen_cpus(args, allowed_processors)?;
        let packets = chosen_packets(args)?;
        let parallels = if args.parallel.is_empty() { vec![1] } else { args.parallel.clone() };
        if let Some(&wrong) = parallels.iter().find(|&&count| !(1..=PARALLEL_MAX).contains(&count)) {
            return Err(PlanError::Parallel(wrong));
        }
        let mut groups = Vec::new();
        for &cpus in &cpus {
            for (index, &parallel) in parallels.iter().enumerate() {
                let cell = |series, packet_cap, message_bytes| Cell {
                    series,
                    cpus,
                    packet_cap,
                    buffer_bytes: None,
                    parallel,
                    message_bytes,
                };
                for &size in &sizes {
                    groups.extend(group(&series, Series::Tcp, &packets, |s, packet| cell(s, packet, size)));
                }
                if index == 0 {
                    groups.extend(group(&series, Series::TcpRr, &packets, |s, packet| {
                        cell(s, packet, RR_MESSAGE_BYTES)
                    }));
                }
            }
        }
        let repeat = args.repeat.unwrap_or(if args.quick { 3 } else { 5 });
        let mut plan = Self { groups, seconds: args.seconds.unwrap_or(1.0), repeat };
        if args.quick && args.seconds.is_none() {
            plan.fit_into(QUICK_BUDGET_S);
        }
        Ok(plan)
    }

    /// Returns the number of runs of all cells.
    pub(crate) fn runs(&self) -> u64 {
        self.groups.iter().map(|group| group.cells.len() as u64).sum::<u64>() * u64::from(self.repeat)
    }

    /// Estimates the total time.
    pub(crate) fn total_s(&self) -> f64 {
        self.runs() as f64 * (self.seconds + RUN_OVERHEAD_S)
    }

    /// Shortens the runs, and then reduces their number, until the total fits.
    fn fit_into(&mut self, budget_s: f64) {
        loop {
            let each = budget_s / self.runs().max(1) as f64 - RUN_OVERHEAD_S;
            self.seconds = each.clamp(QUICK_RUN_S.0, QUICK_RUN_S.1);
            if each >= QUICK_RUN_S.0 || self.repeat == 1 {
                return;
            }
            self.repeat -= 1;
        }
    }
}

/// Returns the chosen series that share this baseline, the baseline first; `None` if none was chosen.
fn group(
    series: &[Series],
    baseline: Series,
    packets: &[Option<usize>],
    cell: impl Fn(Series, Option<usize>) -> Cell,
) -> Option<Group> {
    let mut cells = vec![cell(baseline, None)];
    let others = series.iter().filter(|s| s.baseline() == baseline && **s != baseline);
    for &series in others {
        let packets = if series.obeys_packet_size() { packets } else { &[None] };
        cells.extend(packets.iter().map(|&packet| cell(series, packet)));
    }
    let chosen = cells.len() > 1 || series.contains(&baseline);
    chosen.then_some(Group { cells })
}

fn chosen_series(args: &BenchArgs, has_shim: bool) -> Result<Vec<Series>, PlanError> {
    if args.series.is_empty() {
        let possible =
            |series: &Series| (!args.quick || series.is_quick()) && (has_shim || !series.needs_daemon());
        return Ok(Series::ALL.into_iter().filter(possible).collect());
    }
    let named: Vec<Series> = args
        .series
        .iter()
        .map(|name| Series::parse(name))
        .collect::<Result<_, _>>()
        .map_err(PlanError::Series)?;
    Ok(Series::ALL.into_iter().filter(|series| named.contains(series)).collect())
}

fn chosen_sizes(args: &BenchArgs) -> Result<Vec<usize>, PlanError> {
    let mut sizes = match (args.sizes.is_empty(), args.quick) {
        (false, _) => args.sizes.clone(),
        (true, true) => QUICK_SIZES.to_vec(),
        (true, false) => SIZES.to_vec(),
    };
    sizes.sort_unstable();
    sizes.dedup();
    match sizes.iter().find(|&&size| !(1..=MESSAGE_BYTES_MAX).contains(&size)) {
        Some(&wrong) => Err(PlanError::Size(wrong)),
        None => Ok(sizes),
    }
}

fn chosen_cpus(args: &BenchArgs, allowed: usize) -> Result<Vec<usize>, PlanError> {
    if args.cpus.is_empty() {
        let all: &[usize] = if args.quick { &[2] } else { &[2, 1] };
        let possible: Vec<usize> = all.iter().copied().filter(|&count| count <= allowed).collect();
        return Ok(if possible.is_empty() { vec![1] } else { possible });
    }
    let wrong = |count: &&usize| **count == 0 || **count > allowed || (**count > 1 && **count % 2 == 1);
    match args.cpus.iter().find(wrong) {
        Some(&wish) => Err(PlanError::Cpus { wish, allowed }),
        None => Ok(args.cpus.clone()),
    }
}

fn chosen_packets(args: &BenchArgs) -> Result<Vec<Option<usize>>, PlanError> {
    if args.packet_bytes.is_empty() {
        return Ok(vec![None, Some(1500)]);
    }
    let parse = |text: &String| match text.as_str() {
        "loopback" => Ok(None),
        number => match parse_bytes(number) {
            Ok(bytes) if (576..=65_536).contains(&bytes) => Ok(Some(bytes)),
            _ => Err(PlanError::Packet(text.clone())),
        },
    };
    args.packet_bytes.iter().map(parse).collect()
}

/// Returns the processors of sender and receiver. One processor serves both; with more, each end has half.
pub(crate) fn processors(cpus: usize, allowed: &[usize]) -> (Vec<usize>, Vec<usize>) {
    if cpus <= 1 {
        // The last processor, because the first one usually serves the devices.
        let one: Vec<usize> = allowed.last().copied().into_iter().collect();
        return (one.clone(), one);
    }
    let used = &allowed[..cpus.min(allowed.len())];
    let (sender, receiver) = used.split_at(used.len() / 2);
    (sender.to_vec(), receiver.to_vec())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn plan(line: &str) -> Result<Plan, PlanError> {
        let words = ["swiftwater", "bench"].into_iter().chain(line.split_whitespace());
        let Command::Bench(args) = Cli::try_parse_from(words).expect("a good line").command else {
            panic!("another command")
        };
        Plan::new(&args, 2, true)
    }

    #[test]
    fn quick_keeps_its_promise() {
        for line in ["--quick", "--quick --cpus 1,2", "--quick --cpus 1,2 -P 1,2,4", "--quick --repeat 5"] {
            let plan = plan(line).expect("possible");
            assert!(plan.total_s() <= 110.0, "{line}: {} s in {} runs", plan.total_s(), plan.runs());
        }
    }

    #[test]
    fn every_group_has_its_baseline_first() {
        let plan = plan("--sizes 64,1k --series tcp-batched,udp-limit,udp-rr --cpus 2").expect("possible");
        assert_eq!(plan.groups.len(), 3);
        for group in &plan.groups {
            assert_eq!(group.cells[0].series, group.cells[0].series.baseline());
        }
        let caps: Vec<_> = plan.groups[0].cells.iter().map(|cell| (cell.series, cell.packet_cap)).collect();
        let expected = vec![
            (Series::Tcp, None),
            (Series::TcpBatched, None),
            (Series::UdpLimit, None),
            (Series::UdpLimit, Some(1500)),
        ];
        assert_eq!(caps, expected);
    }

    #[test]
    fn only_latency_may_be_asked() {
        let plan = plan("--series tcp-rr --cpus 1").expect("possible");
        assert_eq!(plan.groups.len(), 1);
        assert_eq!(plan.groups[0].cells[0].series, Series::TcpRr);
    }

    #[test]
    fn the_whole_range_is_netperfs() {
        let plan = plan("--series tcp --cpus 2").expect("possible");
        let sizes: Vec<usize> = plan.groups.iter().map(|group| group.cells[0].message_bytes).collect();
        assert_eq!(sizes, SIZES);
    }

    #[test]
    fn impossible_plans_are_refused_with_a_sentence() {
        assert_eq!(plan("--cpus 4").expect_err("two only"), PlanError::Cpus { wish: 4, allowed: 2 });
        assert_eq!(plan("--packet-bytes 9").expect_err("too small"), PlanError::Packet("9".into()));
        assert_eq!(plan("--sizes 0").expect_err("nothing"), PlanError::Size(0));
        assert_eq!(plan("-P 0").expect_err("nobody"), PlanError::Parallel(0));
        assert!(plan("--series x").is_err());
    }

    #[test]
    fn one_processor_is_shared_and_two_are_not() {
        assert_eq!(processors(1, &[0, 1]), (vec![1], vec![1]));
        assert_eq!(processors(2, &[0, 1]), (vec![0], vec![1]));
        assert_eq!(processors(4, &[0, 1, 2, 3]), (vec![0, 1], vec![2, 3]));
    }
}
