//! Daemons of live experiments.

use std::collections::BTreeSet;
use std::fs;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use swiftwater_tests::programs::shim;

use super::support::{lab, number, possible};

#[test]
#[ignore = "needs namespaces, ip and iperf3: ./test --all"]
fn each_run_of_a_program_has_its_daemons_which_end_with_it() {
    if !possible(&["iperf3"]) {
        return;
    }
    shim();
    let words = "--live two-equal --seconds 1 --repeat 2 --json --case"
        .split(' ')
        .chain([", 64 bytes, sctp-sockets"]);
    let mut command = lab(None, &words.collect::<Vec<_>>());
    let mut command = command.stdout(Stdio::piped()).spawn().expect("the command starts");
    let mut seen = BTreeSet::new();
    let status = loop {
        let mut daemons = daemons();
        daemons.retain(|&process| is_within(process, command.id()));
        assert!(daemons.len() <= 2, "one for each host: {daemons:?}");
        seen.extend(daemons);
        match command.try_wait().expect("our child") {
            Some(status) => break status,
            None => thread::sleep(Duration::from_millis(5)),
        }
    };
    assert!(status.success());
    let output = command.wait_with_output().expect("our child");
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON");
    let runs = 2.0 + number(&rows[0], "repeated");
    assert_eq!(seen.len() as f64, 2.0 * runs, "those of one run do not serve the next: {seen:?}");
}

/// Returns the numbers of all daemons.
fn daemons() -> Vec<u32> {
    let processes = fs::read_dir("/proc").expect("proc").flatten();
    let numbers = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
    numbers.filter(|&process| is_daemon(process)).collect()
}

fn is_daemon(process: u32) -> bool {
    let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).nth(1) == Some(b"daemon")
}

/// Returns whether a process descends from another.
fn is_within(process: u32, ancestor: u32) -> bool {
    let mut next = Some(process);
    while let Some(process) = next.filter(|&process| process > 1) {
        if process == ancestor {
            return true;
        }
        next = parent(process);
    }
    false
}

/// Returns the parent of a process that still exists.
fn parent(process: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
}
