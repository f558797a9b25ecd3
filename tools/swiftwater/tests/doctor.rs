//! Tests of `swiftwater doctor` as a user runs it.
#![allow(missing_docs)]

mod daemon;

use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::Command;
use std::{fs, thread};

use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, accept, bind, listen, recv, send, socket,
};
use serde_json::Value;

use daemon::{Daemon, SWIFTWATER};

/// Runs the doctor; returns whether it succeeded, and its findings.
fn examine(command: &str, place: &str) -> (bool, Vec<Value>) {
    let output = Command::new(command)
        .args(["doctor", "--json"])
        .env("SWIFTWATER_DAEMON", place)
        .output()
        .expect("the command starts");
    let findings: Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    (output.status.success(), findings.as_array().expect("an array").clone())
}

fn finding<'a>(findings: &'a [Value], check: &str) -> &'a Value {
    findings.iter().find(|finding| finding["check"] == check).unwrap_or_else(|| panic!("no {check}"))
}

#[test]
fn all_is_well_where_the_shim_and_a_daemon_are() {
    let daemon = Daemon::start("doctor");
    // Running any program builds the shim.
    assert!(daemon.run("true").status().expect("the command starts").success());
    let (success, findings) = examine(SWIFTWATER, &daemon.place);
    assert!(success, "{findings:?}");
    for check in ["shim", "preload", "daemon", "udp-port"] {
        assert_eq!(finding(&findings, check)["state"], "ok", "{findings:?}");
    }
    let found = finding(&findings, "daemon")["found"].as_str().expect("text");
    let expected =
        format!("process {} at {}, version {}", daemon.process.id(), daemon.place, env!("CARGO_PKG_VERSION"));
    assert!(found.starts_with(&expected), "{found}");
    let documented = include_str!("../../../docs/json.md");
    for finding in &findings {
        for key in finding.as_object().expect("an object").keys().chain([&finding["check"].to_string()]) {
            assert!(
                documented.contains(&format!("`{}`", key.trim_matches('"'))),
                "{key} is missing in docs/json.md"
            );
        }
    }
}

#[test]
fn a_daemon_of_another_version_fails() {
    let name = format!("swiftwater-test-doctor-other-{}", std::process::id());
    let socket =
        socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).expect("a socket");
    let address = UnixAddr::new_abstract(name.as_bytes()).expect("a short name");
    bind(socket.as_raw_fd(), &address).expect("a name of our own");
    listen(&socket, Backlog::new(8).expect("small")).expect("it is bound");
    let other = thread::spawn(move || {
        let connection = accept(socket.as_raw_fd()).expect("the doctor asks");
        recv(connection, &mut [0; 1024], MsgFlags::empty()).expect("a request");
        send(connection, b"another language", MsgFlags::empty()).expect("the doctor waits");
        nix::unistd::close(connection).expect("ours");
    });
    let (success, findings) = examine(SWIFTWATER, &format!("@{name}"));
    other.join().expect("it was asked");
    assert!(!success);
    let daemon = finding(&findings, "daemon");
    assert_eq!(daemon["state"], "fails", "{daemon}");
    assert!(daemon["found"].as_str().expect("text").contains("another version"), "{daemon}");
}

#[test]
fn a_missing_shim_fails_with_advice() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("doctor-alone");
    fs::create_dir_all(&folder).expect("a folder of our own");
    let alone = folder.join("swiftwater");
    // An earlier run may have left the file.
    let _ = fs::remove_file(&alone);
    fs::hard_link(SWIFTWATER, &alone).expect("on the same file system");
    let (success, findings) = examine(alone.to_str().expect("text"), "@swiftwater-test-nobody");
    assert!(!success);
    let shim = finding(&findings, "shim");
    assert!(
        shim["state"] == "fails" && shim["advice"].as_str().expect("text").contains("packaging/install"),
        "{shim}"
    );
}

#[test]
fn a_laboratory_that_lacks_a_program_is_a_note_with_the_advice_of_the_laboratory() {
    let run = |words: &[&str]| {
        let mut command = Command::new(SWIFTWATER);
        command.args(words).env("PATH", "/nowhere").env("SWIFTWATER_DAEMON", "@swiftwater-test-nobody");
        command.output().expect("the command starts")
    };
    let findings: Value = serde_json::from_slice(&run(&["doctor", "--json"]).stdout).expect("JSON");
    let laboratory = finding(findings.as_array().expect("an array"), "laboratory");
    assert_eq!(laboratory["state"], "note", "{laboratory}");
    let said = String::from_utf8(run(&["lab", "check", "--path", "1ms"]).stderr).expect("text");
    let advice = laboratory["advice"].as_str().expect("text");
    assert!(said.trim().ends_with(advice) && advice.contains(' '), "{laboratory}, {said}");
}
