//! `swiftwater bench attack`: what floods leave to the peers of a server.

mod arena;
pub(crate) mod caller;
mod flood;
mod generator;
mod run;
pub(crate) mod victim;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use netns::{HostError, NotAllowed};
use thiserror::Error;

use crate::args::AttackArgs;
use crate::bench::run::print_line as say;
use crate::output::{OutputError, print};
use crate::peer::PeerError;
use crate::{host, interrupt};
use arena::Arena;
use flood::Flood;
use run::{Case, Processors};

/// Why the attack failed.
#[derive(Debug, Error)]
pub(crate) enum AttackError {
    /// It makes no sense.
    #[error("{0}")]
    Plan(String),
    /// It takes privileges.
    #[error(
        "bench attack makes network namespaces, and this user is {0}; run it as root, or allow user namespaces (sysctl kernel.apparmor_restrict_unprivileged_userns=0, or user.max_user_namespaces above 0)"
    )]
    NotAllowed(#[from] NotAllowed),
    /// The hosts cannot be made.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Ctrl-C cannot be caught.
    #[error("cannot listen for Ctrl-C: {0}")]
    Signal(#[from] ctrlc::Error),
    /// The results cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// A run failed.
    #[error(transparent)]
    Run(#[from] PeerError),
}

/// Runs the command.
pub(crate) fn run(args: &AttackArgs) -> Result<(), AttackError> {
    let floods = args.floods.iter().map(|name| Flood::parse(name)).collect::<Result<Vec<_>, _>>();
    let floods = floods.map_err(AttackError::Plan)?;
    // The thread that listens for Ctrl-C must not run yet.
    netns::become_root()?;
    interrupt::listen()?;
    let arena = Arena::build()?;
    let allowed = host::allowed_processors();
    let processors = Processors { victim: vec![allowed[0]], outside: vec![allowed[allowed.len() - 1]] };
    for flood in if floods.is_empty() { Flood::ALL.to_vec() } else { floods } {
        for rate in if args.rates.is_empty() { vec![30_000, 100_000] } else { args.rates.clone() } {
            for to_dead_port in [true, false] {
                let case = Case { flood: Some(flood), packets_per_s: rate, to_dead_port };
                let Some(run) = run::run(&arena, &processors, case, args.seconds.unwrap_or(1.0))? else {
                    return Ok(());
                };
                print(&format!(
                    "{}, {rate}/s{}: {:.0} Mbit/s, {:.0} packets/s left, {} of {} connected, {} answers, {} KB resident, {} dropped\n",
                    flood.name(),
                    if to_dead_port { " to the dead port" } else { "" },
                    run.goodput_bits_per_s / 1e6,
                    run.sent.packets as f64 / run.sent.seconds,
                    run.connects.took_ms.len(),
                    run.connects.took_ms.len() + run.connects.failed,
                    run.after.answers - run.before.answers,
                    run.after.resident_bytes >> 10,
                    run.after.dropped - run.before.dropped,
                ))?;
            }
        }
    }
    Ok(())
}

/// Floods once a line comes on standard input, until that ends.
pub(crate) fn flood(name: &str, packets_per_s: u64, to_dead_port: bool) -> Result<(), String> {
    let packets = Flood::parse(name)?.packets(to_dead_port).map_err(|error| error.to_string())?;
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
        generator::send(&socket, &packets, packets_per_s, &stop)
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
