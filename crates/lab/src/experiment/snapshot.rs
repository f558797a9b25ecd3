//! Small cases of every kind, as tables that are kept beside this file: a change of the core's performance on a line
//! shows as a difference. `UPDATE_SNAPSHOTS=1` writes them anew.

use std::time::Duration;

use sctp::congestion::Algorithm;

use super::fairness::Fairness;
use super::{Case, Options, Watch, loss_grid, multipath, sctplib, table, tail_loss};

const TABLE: &str = include_str!("snapshot.txt");
const PATHS_TABLE: &str = include_str!("multipath/snapshot.txt");
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

/// Compares the table of some cases with the one that is kept in a file of this folder.
fn compare(cases: Vec<Box<dyn Case>>, kept: &str, file: &str) {
    let run = |case: Box<dyn Case>| case.run(&mut Watch::default()).expect("nothing is captured");
    let table = table(&cases.into_iter().flat_map(run).collect::<Vec<_>>());
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        let path = format!("{}/src/experiment/{file}", env!("CARGO_MANIFEST_DIR"));
        std::fs::write(path, &table).expect("the table can be written");
    } else {
        assert!(table == kept, "was\n{kept}\nis\n{table}");
    }
}

#[test]
fn the_table_is_what_it_was() {
    compare(cases(), TABLE, "snapshot.txt");
}

#[test]
fn the_table_of_two_paths_is_what_it_was() {
    compare(multipath::small_cases(SEED), PATHS_TABLE, "multipath/snapshot.txt");
}
