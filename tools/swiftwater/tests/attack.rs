//! Tests of `swiftwater bench attack` as a user runs it.
#![allow(missing_docs)]

mod daemon;

use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use daemon::SWIFTWATER;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use swiftwater_tests::{tools, wait};

fn attack(words: &[&str]) -> Command {
    let mut command = Command::new(SWIFTWATER);
    command.args(["bench", "attack"]).args(words);
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_else(|| panic!("{key} is no number in {row}"))
}

/// Checks the rows of a run with one round of these floods.
fn check(output: &Output, floods: &[&str]) {
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(output)));
    let rows = rows.as_array().expect("an array");
    let names: Vec<&str> = rows.iter().filter_map(|row| row["flood"].as_str()).collect();
    assert_eq!(names, [&["none"], floods].concat(), "{}", said(output));
    for row in &rows[1..] {
        assert!(number(row, "sent_packets_per_s") > 0.0, "{row}");
        assert!(number(row, "received_packets") > 0.0, "{row}");
        assert!(number(row, "dead_port_sent_packets_per_s") > 0.0, "{row}");
        assert!(number(row, "connects") > 0.0 && number(row, "resident_bytes_max") > 0.0, "{row}");
    }
    let answers = |name| rows.iter().find(|row| row["flood"] == name).map(|row| number(row, "answers"));
    // The endpoint trusts nothing in a packet with a wrong checksum, not even its source (RFC 9260 §6.8).
    assert_eq!(answers("bad-checksum").unwrap_or(0.0), 0.0);
    let associations = rows.iter().find(|row| row["flood"] == "handshakes");
    let associations = associations.map(|row| number(row, "associations_max"));
    assert!(associations.is_none_or(|count| count > 50.0), "no handshake was completed: {rows:?}");
    assert!(answers("init").is_none_or(|answers| answers > 0.0), "nobody connects without answers: {rows:?}");
}

const SHORT: [&str; 7] = ["--rates", "2k", "--seconds", "0.1", "--repeat", "1", "--json"];

#[test]
#[ignore = "needs root and network namespaces: ./test --all"]
fn every_flood_is_sent_received_and_compared() {
    let output = attack(&SHORT).output().expect("the command starts");
    let floods = [
        "init-one-prefix",
        "init",
        "init-repeated",
        "handshakes",
        "init-closed-port",
        "data",
        "cookie-echo",
        "bad-checksum",
        "bad-chunks",
        "abort",
        "heartbeat",
    ];
    check(&output, &floods);
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn an_ordinary_user_needs_user_namespaces_alone() {
    // In the user namespace, the test's user has no privileges, even if it is root outside.
    const ORDINARY: [&str; 3] = ["--user", "--map-user=1000", "--map-group=1000"];
    let mut probe = Command::new("unshare");
    let probe = probe.args(ORDINARY).args(["unshare", "--user", "--net", "--map-root-user", "true"]);
    if !probe.status().is_ok_and(|status| status.success()) {
        return tools::skip("no user namespaces");
    }
    let mut command = Command::new("unshare");
    command.args(ORDINARY).args([SWIFTWATER, "bench", "attack", "--floods", "init"]).args(SHORT);
    check(&command.output().expect("it did before"), &["init"]);
}

#[test]
fn malformed_options_are_answered_with_a_sentence() {
    for (words, sentence) in [
        (&["--floods", "smurf"][..], "there is no flood `smurf`; choose from init-one-prefix"),
        (&["--rates", "2M"], "`2M` is not a flood rate; write a count up to 1M"),
        (&["--seconds", "21"], "`21` is not a flood duration"),
        (&["--repeat", "0"], "0 is not in 1..=100"),
    ] {
        let output = attack(words).output().expect("the command starts");
        assert!(!output.status.success() && said(&output).contains(sentence), "{words:?}: {}", said(&output));
    }
    let help = attack(&["--help"]).output().expect("the command starts");
    let text = String::from_utf8_lossy(&help.stdout).into_owned();
    for word in ["Examples:", "swiftwater bench attack --quick", "cookie-echo", "--json"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn where_namespaces_are_forbidden_the_next_step_is_told() {
    // Root of a user namespace that cannot contain another one.
    let script =
        format!("echo 0 > /proc/sys/user/max_net_namespaces && exec {SWIFTWATER} bench attack --quick");
    let output = Command::new("unshare").args(["--user", "--map-root-user", "sh", "-c", &script]).output();
    let Ok(output) = output else { return tools::skip("no unshare") };
    if said(&output).contains("unshare:") || said(&output).contains("max_net_namespaces") {
        return tools::skip("no user namespaces");
    }
    let said = said(&output);
    assert!(!output.status.success());
    assert!(said.contains("cannot make a network namespace") && said.contains("run this as root"), "{said}");
}

#[test]
#[ignore = "needs root, to be two users: ./test --all"]
fn a_dialogue_is_measured_beside_each_neighbour() {
    if !nix::unistd::geteuid().is_root() {
        return tools::skip("only root is two users");
    }
    daemon::preload();
    let mut command = Command::new(SWIFTWATER);
    let output = command.args(["bench", "neighbours", "--seconds", "0.2", "--json"]).output();
    let output = output.expect("the command starts");
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)));
    let rows = rows.as_array().expect("an array");
    let names: Vec<&str> = rows.iter().filter_map(|row| row["neighbour"].as_str()).collect();
    // A user whom the neighbour keeps waiting for ever has no row.
    let neighbours = [
        "none",
        "requests",
        "connections",
        "connection-flood",
        "flood-elsewhere",
        "messages",
        "large-messages",
        "many-peers",
        "closes",
    ];
    assert_eq!(names, neighbours, "{}", said(&output));
    assert!(output.status.success(), "{}", said(&output));
    let documented = include_str!("../../../docs/json.md");
    for row in rows {
        assert!(number(row, "exchanges_per_s") > 0.0 && number(row, "latency_us_p50") > 0.0, "{row}");
        assert!(number(row, "latency_us_p50") <= number(row, "latency_us_max"), "{row}");
        let socket = ["socket_us_p50", "socket_us_p99", "socket_us_max"].map(|key| number(row, key));
        assert!(socket[0] > 0.0 && socket.is_sorted(), "{row}");
        for key in row.as_object().expect("an object").keys() {
            assert!(documented.contains(&format!("`{key}`")), "{key} is missing in docs/json.md");
        }
    }
}

/// Returns the processes of a run: its threads have started them, so they are children of threads.
fn processes_of(run: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{run}/task")).into_iter().flatten().flatten();
    let threads = tasks.filter_map(|task| task.file_name().to_str()?.parse::<u32>().ok());
    threads
        .flat_map(|thread| {
            let children = fs::read_to_string(format!("/proc/{run}/task/{thread}/children"));
            let children = children.unwrap_or_default();
            children.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>()
        })
        .collect()
}

/// Returns whether the first thread of a process has not run for a while. A thread that sends without waiting runs on, and one
/// whose messages are acknowledged is woken for each batch.
fn rests(process: u32) -> bool {
    const CHECKS: usize = 10;
    let runs = || {
        let status = fs::read_to_string(format!("/proc/{process}/task/{process}/status")).expect("it runs");
        let switches =
            status.lines().filter(|line| line.contains("ctxt_switches")).collect::<Vec<_>>().join(" ");
        (status.contains("State:\tS"), switches)
    };
    let (sleeps, before) = runs();
    sleeps
        && (0..CHECKS).all(|_| {
            thread::sleep(Duration::from_millis(20));
            runs() == (true, before.clone())
        })
}

fn command_line(process: u32) -> String {
    fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap_or_default()
}

fn start_flood() -> Child {
    let mut command = attack(&["--floods", "init", "--seconds", "5", "--repeat", "1", "--json"]);
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the command starts")
}

fn signal(process: u32, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(process).expect("a process id")), signal).expect("it runs");
}

fn wait_for_end(processes: Vec<u32>) {
    for id in processes {
        let gone = || {
            let state = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
            state.is_empty() || state.contains("State:\tZ")
        };
        wait::until("the processes of the run have ended", gone);
    }
}

#[test]
#[ignore = "needs root and network namespaces: ./test --all"]
fn an_interrupted_run_prints_its_complete_rows_and_leaves_no_process() {
    let run = start_flood();
    let started = run.id();
    wait::until("victim, sender and new peers run", || processes_of(started).len() == 3);
    let running = processes_of(started);
    signal(started, Signal::SIGINT);
    let output = run.wait_with_output().expect("it ends");
    let rows: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((rows, output.status.code()), (serde_json::json!([]), Some(130)));
    wait_for_end(running);
}

#[test]
#[ignore = "needs root and network namespaces: ./test --all"]
fn a_killed_run_leaves_no_process_though_one_waits_for_the_victim() {
    let mut run = start_flood();
    let started = run.id();
    // The new peers are started once the sender is connected. A stopped victim reads nothing, so the sender soon waits in `send`,
    // and SIGKILL keeps the victim from reporting the end.
    wait::until("victim, sender and new peers run", || processes_of(started).len() == 3);
    let running = processes_of(started);
    let is_victim = |id: &u32| command_line(*id).contains("victim");
    let victim = running.iter().copied().find(is_victim).expect("it runs");
    signal(victim, Signal::SIGSTOP);
    let is_sender = |id: &u32| command_line(*id).contains("send-on");
    let sender = running.iter().copied().find(is_sender).expect("it runs");
    wait::until("the sender waits in `send`", || rests(sender));
    assert!(run.try_wait().expect("a child").is_none(), "the run goes on until it is killed");
    signal(started, Signal::SIGKILL);
    signal(victim, Signal::SIGKILL);
    run.wait().expect("it ends");
    wait_for_end(running);
}
