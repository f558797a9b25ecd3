//! Small cases of every kind, as a table that is kept beside this file: a change of what the core makes of a line shows
//! as a difference. `UPDATE_SNAPSHOTS=1` writes it anew.

use std::time::Duration;

use sctp::congestion::Algorithm;

use super::fairness::Fairness;
use super::{Case, Options, Watch, loss_grid, sctplib, table, tail_loss};

const TABLE: &str = include_str!("snapshot.txt");
const SEED: u64 = 1;

fn cases() -> Vec<Box<dyn Case>> {
    let mut cases = tail_loss::cases(&Options { seed: SEED, ..Options::default() });
    for buffer in [655_335, 67_107_840] {
        cases.push(Box::new(sctplib::case(SEED, 4.0, buffer)));
    }
    for algorithm in Algorithm::ALL {
        for loss in [0.001, 0.02] {
            let cell = (algorithm, 50, loss);
            cases.push(Box::new(loss_grid::case(SEED, Duration::from_secs(3), cell)));
        }
    }
    for algorithm in Algorithm::ALL {
        let measured = Duration::from_secs(5);
        cases.push(Box::new(Fairness { seed: SEED, algorithm, rate_bits_per_s: 10_000_000, measured }));
    }
    cases
}

#[test]
fn the_table_is_what_it_was() {
    let run = |case: Box<dyn Case>| case.run(&mut Watch::default()).expect("nothing is captured");
    let table = table(&cases().into_iter().flat_map(run).collect::<Vec<_>>());
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/experiment/snapshot.txt");
        std::fs::write(path, &table).expect("the table can be written");
    } else {
        assert!(table == TABLE, "was\n{TABLE}\nis\n{table}");
    }
}
