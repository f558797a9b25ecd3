//! Tests of live experiments whose lines go down.

use crate::support::{Folder, live, number, possible};

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn a_line_that_comes_back_is_used_again() {
    if !possible(&[]) {
        return;
    }
    let folder = Folder::new("outage");
    let case = "the first dies, 16384 bytes, sctp-message";
    let (rows, _) = live(None, &["failover", "--case", case, "--quick"], &folder);
    let [row] = &rows[..] else { panic!("one row: {rows:?}") };
    assert_eq!((number(row, "returns"), number(row, "returns_missed")), (1.0, 0.0), "{row}");
    // The line is down for four seconds. A return that is seen later than that was not looked for.
    assert!((f64::MIN_POSITIVE..4_000.0).contains(&number(row, "back_ms_max")), "{row}");
    assert!(number(row, "gap_ms_max") < 4_000.0, "the other line was up: {row}");
    assert!((f64::MIN_POSITIVE..1.05).contains(&number(row, "ratio_to_limit")), "{row}");
}
