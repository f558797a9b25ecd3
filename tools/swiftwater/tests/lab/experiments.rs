//! Live experiments: the keys, the rows and the figures of their results.

use std::fs;

use serde_json::Value;

use super::support::{Folder, live, number, possible, users};

/// Keys of every row measured on a line.
const MEASURED: [&str; 19] = [
    "published_bits_per_s",
    "ratio_to_tcp",
    "runs",
    "line_packets",
    "line_dropped_packets",
    "line_lost_packets",
    "packets_to_server",
    "dropped_to_server",
    "host_dropped_packets",
    "queue_ms_p50",
    "queue_ms_p95",
    "late_us_p50",
    "late_us_p99",
    "emulator_cpu",
    "long_turns",
    "write_us_max",
    "client_cpu_ns_per_byte",
    "server_cpu_ns_per_byte",
    "disturbed",
];

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn a_live_experiment_keeps_all_keys_in_its_folder() {
    if !possible(&[]) {
        return;
    }
    let documented = include_str!("../../../../docs/json.md");
    for user in users() {
        let folder = Folder::new("live");
        let words = ["coexistence", "--case", "cubic, 1 + 1", "--seconds", "1", "--repeat", "2"];
        let (rows, text) = live(user, &words, &folder);
        assert!(text.contains("sctp-stream") && text.contains("tcp-cubic"), "{text}");
        assert_eq!(rows.len(), 2, "{rows:?}");
        for row in &rows {
            let of_turns =
                ["bits_per_s_min", "bits_per_s_max", "bits_per_s_low", "bits_per_s_high", "share_of_fair"];
            for key in MEASURED.iter().chain(&of_turns) {
                assert!(row.get(key).is_some(), "{key} of {row}");
            }
            // The acknowledgements go the other way.
            let to_server = number(row, "packets_to_server");
            assert!(to_server > 0.0 && to_server < number(row, "line_packets"), "{row}");
            for key in row.as_object().expect("an object").keys() {
                assert!(documented.contains(&format!("`{key}`")), "{key} is missing in docs/json.md");
            }
            assert_eq!((&row["clock"], &row["published_bits_per_s"]), (&Value::from("live"), &Value::Null));
        }
        let shares: f64 = rows.iter().map(|row| number(row, "share_of_fair")).sum();
        assert!((shares - 2.0).abs() < 1e-9, "{rows:?}");
        let manifest: Value =
            serde_json::from_slice(&fs::read(folder.file("out/manifest.json")).expect("written"))
                .expect("JSON");
        assert_eq!(manifest["experiments"], serde_json::json!(["coexistence"]));
        let settings = serde_json::json!({"case": "cubic, 1 + 1", "seconds": 1.0, "repeat": 2, "quick": false, "full": false});
        assert_eq!(manifest["settings"], settings);
        let traces = fs::read_dir(folder.file("out/traces")).expect("a folder").count();
        assert_eq!(traces, 2, "of both sides of the bottleneck");
    }
}

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn a_line_has_a_rate_a_latency_and_the_published_cells_beside_it() {
    if !possible(&[]) {
        return;
    }
    let folder = Folder::new("flapping");
    let (rows, _) =
        live(None, &["flapping", "--case", "wireless", "--seconds", "1", "--repeat", "1"], &folder);
    let names: Vec<_> =
        rows.iter().map(|row| (row["transport"].as_str(), row["published"].as_bool())).collect();
    let expected = [
        ("tcp-cubic", false),
        ("sctp-message", false),
        ("tcp, dissertation", true),
        ("lksctp, dissertation", true),
    ];
    assert_eq!(names, expected.map(|(name, published)| (Some(name), Some(published))));
    for row in &rows {
        // The line alone takes 1.87 ms for a round trip.
        assert!(number(row, "latency_us") > 1_870.0, "{row}");
        assert!(number(row, "bits_per_s") < 5e6, "{row}");
        // A transport that leaves half of the line idle would be a defect on any machine.
        assert!(row["published"] == true || number(row, "bits_per_s") > 2.5e6, "{row}");
    }
    assert_eq!(number(&rows[0], "published_bits_per_s"), 1_786_000.0);
    // Published numbers keep their unit.
    assert_eq!(number(&rows[3], "latency_us"), 6_868.5);
}

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn an_experiment_of_several_sets_of_lines_finds_its_devices_each_time() {
    if !possible(&[]) {
        return;
    }
    for user in users() {
        let folder = Folder::new("again");
        let words = ["failover", "--quick", "--seconds", "4.2", "--case", "sctp-message"];
        let (rows, _) = live(user, &words, &folder);
        let cases: Vec<_> = rows.iter().filter_map(|row| row["case"].as_str()).collect();
        assert_eq!(cases, ["the first dies, 16384 bytes", "the second dies, 16384 bytes"], "{user:?}");
    }
}
