//! Ctrl-C: what was measured is told, and nobody is blamed.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::process::ExitStatus;

use nix::sys::signal::Signal;
use serde_json::Value;
use swiftwater_tests::wait;

use super::processes::{Running, command_line, send_signal};
use super::support::{Folder, SWIFTWATER, possible};

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn ctrl_c_is_no_defect_of_the_host_or_of_the_server() {
    if !possible(&[]) {
        return;
    }
    let check = ["check", "--path", "10mbit", "--seconds", "60", "--json"];
    // The first thread, and one that sends and one that receives for each direction. Probes of the delay, which come before, have
    // one direction.
    let floods = |run: &Running| run.threads() >= 5;
    let waiting = ["run", "--path", "1ms", "--server", "exec sleep 61", "--json", "--", "true"];
    let has_server = |run: &Running| run.processes().iter().any(|id| command_line(*id) == "sleep 61 ");
    let ended = [
        interrupted(&check, "the flood of the check", floods),
        interrupted(&waiting, "the server", has_server),
    ];
    for (status, [_, said]) in ended {
        assert_eq!(status.code(), Some(130), "{said}");
        assert!(!said.contains("on this host") && !said.contains("ended before"), "{said}");
    }
}

/// Runs a command until something that is `awaited` has come, and sends it a terminal's Ctrl-C then. Returns its status, and what
/// it has written to standard output and to standard error.
fn interrupted(
    words: &[&str],
    awaited: &str,
    has_come: impl Fn(&Running) -> bool,
) -> (ExitStatus, [String; 2]) {
    let mut run = Running::start(words);
    wait::until(awaited, || {
        let ended = run.child.try_wait().expect("a child");
        assert!(ended.is_none(), "{words:?} has ended before {awaited}: {ended:?}: {:?}", run.said());
        has_come(&run)
    });
    send_signal(&run.child, Signal::SIGINT);
    (wait::end_of("the command", &mut run.child), run.said())
}

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn after_ctrl_c_programs_and_experiments_tell_what_they_have_measured() {
    if !possible(&[]) {
        return;
    }
    let server = format!("{SWIFTWATER} perf server");
    let programs = ["run", "--path", "10mbit", "--server", &server, "--", SWIFTWATER, "perf", "client"];
    let words = [&programs[..], &["198.18.0.2", "-t", "60", "-i", "0.2"]].concat();
    let reports = |run: &Running| run.said()[0].contains("messages/s");
    let (status, said) = interrupted(&words, "a report of the client", reports);
    let told = said.concat();
    assert_eq!(status.code(), Some(130), "{told}");
    assert!(told.contains("the totals so far"), "of the client: {told}");
    assert!(told.contains("path 1 (10mbit) to the server"), "the fate of the packets: {told}");

    let folder = Folder::new("interrupted");
    let out = folder.0.display().to_string();
    let case = ["--live", "coexistence", "--case", "cubic, 1 + 1", "--seconds", "1", "--out", &out];
    // Two clients share the line in each measurement, and a disturbed one is repeated three times: the ninth belongs to the
    // second of five turns, or to a later one.
    let clients = RefCell::new(BTreeSet::new());
    let measures_again = |run: &Running| {
        let mut clients = clients.borrow_mut();
        clients.extend(run.processes().into_iter().filter(|id| command_line(*id).contains(" perf client ")));
        clients.len() > 8
    };
    let (status, [told, _]) = interrupted(&case, "a later turn", measures_again);
    assert_eq!(status.code(), Some(130), "{told}");
    let kept = fs::read_to_string(folder.file("results.json")).expect("results");
    let rows: Vec<Value> = serde_json::from_str(&kept).expect("an array");
    assert!(told.contains("sctp-stream") && !rows.is_empty(), "{told}, {kept}");
    assert!(rows.iter().all(|row| row["interrupted"] == true), "{kept}");
}
