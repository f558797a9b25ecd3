//! Tests of `lab check` on lines of this machine.

use serde_json::Value;

use crate::support::{lab, number, output, possible, users};

/// Runs `lab check` with these words, and returns its rows and its error output.
fn check(user: Option<u32>, words: &[&str]) -> (Vec<Value>, String) {
    let (output, said) = output(&mut lab(user, &[&["check", "--json"], words].concat()));
    (serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}")), said)
}

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn paths_are_loaded_one_by_one_and_all_together_with_datagrams_and_tcp() {
    if !possible(&[]) {
        return;
    }
    let documented = include_str!("../../../../docs/json.md");
    for user in users() {
        let (rows, said) = check(user, &["--path", "20mbit,2ms", "--path", "40mbit,1ms", "--seconds", "1"]);
        let place = |row: &Value| {
            (
                row["load"].as_str().map(str::to_owned),
                row["path"].as_u64(),
                row["to"].as_str().map(str::to_owned),
            )
        };
        let mut expected = Vec::new();
        for (load, paths) in [("udp", &[1][..]), ("udp", &[2]), ("udp-all", &[1, 2]), ("tcp-all", &[1, 2])] {
            for path in paths {
                expected
                    .extend(["server", "client"].map(|to| (Some(load.into()), Some(*path), Some(to.into()))));
            }
        }
        assert_eq!(rows.iter().map(place).collect::<Vec<_>>(), expected, "{said}");
        for row in &rows {
            // Counted from the start of the load: every line had its load, and half of its rate is no question of time.
            assert!(number(row, "bits_per_s") > 0.5 * number(row, "rate_bits_per_s"), "{row}");
            assert!(number(row, "bits_per_s") < 1.1 * number(row, "rate_bits_per_s"), "{row}");
            assert!(number(row, "line_packets") > 0.5 * number(row, "rate_bits_per_s") / 12_000.0, "{row}");
            assert_eq!(row.get("delay_ms_p50").is_some(), row["load"] == "udp", "{row}");
            assert_eq!(row.get("delay_ms_p50_limit").is_some(), row["load"] == "udp", "{row}");
            assert_eq!(row.get("sent_packets").is_none(), row["load"] == "tcp-all", "{row}");
            let control = row.get("congestion_control").and_then(Value::as_str);
            assert_eq!(control.is_some_and(|name| !name.is_empty()), row["load"] == "tcp-all", "{row}");
            for key in row.as_object().expect("an object").keys() {
                assert!(documented.contains(&format!("`{key}`")), "{key} is missing in docs/json.md");
            }
        }
    }
}

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn a_line_without_a_rate_or_without_a_delivery_has_an_end_with_tcp() {
    if !possible(&[]) {
        return;
    }
    for path in ["1ms", "loss=100%"] {
        let (rows, said) = check(users()[0], &["--path", path, "--seconds", "1"]);
        let tcp: Vec<&Value> = rows.iter().filter(|row| row["load"] == "tcp-all").collect();
        assert_eq!(tcp.len(), 2, "{said}");
        for row in tcp {
            assert_eq!(number(row, "bits_per_s") == 0.0, path == "loss=100%", "{row}");
            // TCP would otherwise take this host's processors: the load is that of the datagrams, a little more than 1 Gbit/s.
            assert!(number(row, "bits_per_s") < 1.5e9, "{row}");
        }
    }
}
