//! `swiftwater bench attack`: measures the service that a server's peers get during floods.

mod arena;
pub(crate) mod args;
pub(crate) mod caller;
mod encapsulation;
mod flood;
mod generator;
mod handshakes;
mod plan;
mod result;
mod run;
mod table;
pub(crate) mod victim;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use netns::{HostError, NotAllowed};
use thiserror::Error;

use crate::bench::Conditions;
use crate::failure::EXIT_USAGE;
use crate::output::{OutputError, note};
use crate::peer::{PeerError, print_line as say};
use crate::{host, interrupt};
use arena::Arena;
use args::AttackArgs;
use flood::Flood;
use plan::Plan;
use result::{Measured, Row};
use run::{Case, Processors, Run};

/// Error of the attack.
#[derive(Debug, Error)]
pub(crate) enum AttackError {
    /// The options are inconsistent.
    #[error("{0}")]
    Plan(String),
    /// The user lacks privileges.
    #[error(
        "bench attack makes network namespaces, and this user is {0}; run it as root, or allow user namespaces (sysctl kernel.apparmor_restrict_unprivileged_userns=0, or user.max_user_namespaces above 0)"
    )]
    NotAllowed(#[from] NotAllowed),
    /// The hosts cannot be made.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Ctrl-C cannot be caught.
    #[error("cannot listen for Ctrl-C: {0}")]
    Signal(#[from] interrupt::ListenError),
    /// The results cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// A run failed.
    #[error("{case}: {source}")]
    Run { case: String, source: PeerError },
}

impl AttackError {
    /// Returns the exit status for errors that have one of their own.
    pub(crate) fn exit_status(&self) -> Option<u8> {
        matches!(self, AttackError::Plan(_)).then_some(EXIT_USAGE)
    }
}

/// Runs the command.
pub(crate) fn run(args: &AttackArgs) -> Result<(), AttackError> {
    let plan = Plan::new(args).map_err(AttackError::Plan)?;
    let mut json = args.json.open()?;
    // The thread that listens for Ctrl-C must not run yet.
    netns::become_root()?;
    interrupt::listen()?;
    let arena = Arena::build()?;
    let processors = Processors::here(args.flood_beside);
    let mut conditions = Conditions::here(plan.seconds);
    note(format_args!("swiftwater bench attack: {}; Ctrl-C prints what there is so far", plan.summary()));
    let others = host::OthersBusy::begin();
    let mut measured: Vec<Measured> =
        plan.cases.iter().map(|&case| Measured { case, rounds: Vec::new() }).collect();
    let outcome = measure(&plan, &arena, &processors, &mut measured);
    conditions.stopped_early = interrupt::requested();
    let rows: Vec<Row> = measured.iter().filter_map(|m| m.row(&processors, &conditions)).collect();
    json.write_beside(&table::render(&rows), &rows)?;
    if let Some(sentence) = others.sentence() {
        note(format_args!("{sentence}"));
    }
    if conditions.stopped_early {
        note(format_args!("swiftwater bench attack: stopped early; these are the rows so far"));
    }
    outcome
}

/// Measures every case in turn, and again while there is time. Keeps rows that were measured before a failure.
fn measure(
    plan: &Plan,
    arena: &Arena,
    processors: &Processors,
    measured: &mut [Measured],
) -> Result<(), AttackError> {
    let bar = progress_bar(plan);
    let began = Instant::now();
    let mut round = 0;
    while plan.has_time_for(round, began) {
        bar.set_length(u64::from(round + 1) * plan.runs_of_round());
        for measured in &mut *measured {
            bar.set_message(measured.case.name());
            let Some(pair) = measure_pair(arena, processors, measured.case, plan.seconds, round, &bar)?
            else {
                bar.finish_and_clear();
                return Ok(());
            };
            measured.rounds.push(pair);
        }
        round += 1;
    }
    bar.finish_and_clear();
    Ok(())
}

/// Measures a case with its baseline, in every other round the baseline first.
fn measure_pair(
    arena: &Arena,
    processors: &Processors,
    case: Case,
    seconds: f64,
    round: u32,
    bar: &ProgressBar,
) -> Result<Option<(Run, Option<Run>)>, AttackError> {
    let (mut live, mut dead) = (None, None);
    for is_second in [false, true] {
        let to_dead_port = is_second == round.is_multiple_of(2);
        if to_dead_port && case.flood.is_none() {
            continue;
        }
        let run = run::run(arena, processors, case, to_dead_port, seconds);
        let Some(run) = run.map_err(|source| AttackError::Run { case: case.name(), source })? else {
            return Ok(None);
        };
        *(if to_dead_port { &mut dead } else { &mut live }) = Some(run);
        bar.inc(1);
    }
    Ok(live.map(|live| (live, dead)))
}

fn progress_bar(plan: &Plan) -> ProgressBar {
    let bar = ProgressBar::new(plan.runs_of_round());
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len}  {elapsed} so far  {msg}") {
        bar.set_style(style);
    }
    bar
}

/// Floods after a line on standard input, until standard input ends.
pub(crate) fn flood(name: &str, packets_per_s: u64, to_dead_port: bool) -> Result<(), String> {
    let flood = Flood::parse(name)?;
    let mut packets = flood.packets(packets_per_s, to_dead_port).map_err(|error| error.to_string())?;
    let socket = generator::socket().map_err(|error| format!("cannot open a raw socket: {error}"))?;
    say(&())?;
    wait_for_line()?;
    let stop = AtomicBool::new(false);
    let sent = thread::scope(|scope| {
        scope.spawn(|| {
            // The end and a failure mean the same here.
            let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
            stop.store(true, Ordering::Relaxed);
        });
        if flood == Flood::Handshakes {
            // If it fails, the table shows no associations.
            scope.spawn(|| handshakes::answer(&socket, &stop));
        }
        generator::send(&socket, flood, &mut packets, packets_per_s, &stop)
    });
    say(&sent.map_err(|error| format!("cannot send: {error}"))?)
}

/// Waits for the process that started this one.
fn wait_for_line() -> Result<(), String> {
    let mut line = String::new();
    match io::stdin().read_line(&mut line) {
        Ok(0) => Err("nobody says when to begin".into()),
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}
