//! The plan of the measurements: cases, repetitions and time limits.

use std::time::{Duration, Instant};

use super::args::AttackArgs;
use super::flood::Flood;
use super::run::Case;

const RATES: [u64; 2] = [30_000, 100_000];
const QUICK_RATES: [u64; 1] = [100_000];
const SECONDS: f64 = 1.5;
const QUICK_SECONDS: f64 = 1.0;
/// Default number of rounds.
const REPEAT: u32 = 5;
/// Latest start of a round of floods, if the round takes as long as the one before.
const TIME: Duration = Duration::from_secs(290);
const QUICK_TIME: Duration = Duration::from_secs(62);

/// The floods and rates, and the time for them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    /// Cases in the order of the table: without a flood, and each flood at each rate.
    pub cases: Vec<Case>,
    /// Seconds of each run.
    pub seconds: f64,
    /// Rounds at most.
    pub repeat: u32,
    /// Time limit for all rounds; none if the user gave the number of rounds.
    pub time: Option<Duration>,
}

impl Plan {
    /// Makes a plan from the options.
    pub(super) fn new(args: &AttackArgs) -> Result<Self, String> {
        let floods = args.floods.iter().map(|name| Flood::parse(name)).collect::<Result<Vec<_>, _>>()?;
        let floods = if floods.is_empty() { Flood::ALL.to_vec() } else { floods };
        let rates = match &args.rates[..] {
            [] if args.quick => &QUICK_RATES[..],
            [] => &RATES,
            asked => asked,
        };
        let flooded = floods.iter().flat_map(|&flood| {
            rates.iter().map(move |&rate| Case { flood: Some(flood), packets_per_s: rate })
        });
        let (seconds, time) = if args.quick { (QUICK_SECONDS, QUICK_TIME) } else { (SECONDS, TIME) };
        Ok(Plan {
            cases: std::iter::once(Case { flood: None, packets_per_s: 0 }).chain(flooded).collect(),
            seconds: args.seconds.unwrap_or(seconds),
            repeat: args.repeat.unwrap_or(REPEAT),
            time: if args.repeat.is_some() { None } else { Some(time) },
        })
    }

    /// Returns a description of the plan.
    pub(super) fn summary(&self) -> String {
        let rounds = match self.time {
            Some(time) => format!("as many rounds as end within {} s, at least one", time.as_secs()),
            None => format!("{} rounds", self.repeat),
        };
        format!(
            "{rounds}; a round has {} runs of {:.2} s, which take longer to set up",
            self.runs_of_round(),
            self.seconds
        )
    }

    /// Returns the number of runs in a round: a case with a flood is a pair.
    pub(super) fn runs_of_round(&self) -> u64 {
        self.cases.iter().map(|case| if case.flood.is_some() { 2 } else { 1 }).sum()
    }

    /// Returns whether there is time for another round as long as those since `began`.
    pub(super) fn has_time_for(&self, round: u32, began: Instant) -> bool {
        if round >= self.repeat {
            return false;
        }
        match self.time {
            Some(time) if round > 0 => began.elapsed() / round * (round + 1) <= time,
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};
    use crate::bench::args::{BenchArgs, BenchCommand};

    fn plan(words: &str) -> Result<Plan, String> {
        let line = format!("swiftwater bench attack {words}");
        let cli = Cli::try_parse_from(line.split_whitespace()).expect("a good line");
        let Command::Bench(BenchArgs { command: Some(BenchCommand::Attack(args)), .. }) = cli.command else {
            panic!("another command")
        };
        Plan::new(&args)
    }

    #[test]
    fn every_flood_has_every_rate_and_the_idle_case_comes_first() {
        let full = plan("").expect("possible");
        assert_eq!(full.cases.len(), 1 + Flood::ALL.len() * RATES.len());
        assert_eq!(full.cases[0].flood, None);
        assert_eq!(full.runs_of_round(), 1 + 2 * (Flood::ALL.len() * RATES.len()) as u64);
        let quick = plan("--quick --floods data --seconds 0.2").expect("possible");
        let data = Case { flood: Some(Flood::Data), packets_per_s: 100_000 };
        assert_eq!((&quick.cases[1..], quick.seconds), (&[data][..], 0.2));
        assert!(plan("--floods smurf").expect_err("no such flood").contains("cookie-echo"));
    }

    #[test]
    fn rounds_end_with_the_time_unless_they_are_counted() {
        let quick = plan("--quick").expect("possible");
        let (now, long_ago) = (Instant::now(), Instant::now() - QUICK_TIME);
        assert!(quick.has_time_for(0, long_ago) && quick.has_time_for(1, now));
        assert!(!quick.has_time_for(1, long_ago) && !quick.has_time_for(REPEAT, now));
        let counted = plan("--quick --repeat 2").expect("possible");
        assert!(counted.has_time_for(1, long_ago) && !counted.has_time_for(2, now));
    }
}
