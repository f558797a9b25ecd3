//! The answers of the kernel's sockets to calls, options and messages, valid and invalid: our own sockets are compared with the
//! same texts (`crates/preload/tests/oracle`).
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::Command;

use swiftwater_tests::peers::kernel::{lab, shell};
use swiftwater_tests::tools;

/// The kernel that the texts come from.
const VERSION: &str = "6.1";
/// Extensions that we do not have are off, and packets travel directly in IP.
const AS_OURS: &str = "sysctl -qw net.sctp.prsctp_enable=0 net.sctp.encap_port=0 net.sctp.auth_enable=0";
/// The programs that are peers themselves, by packets in UDP.
const IN_UDP: [&str; 2] = ["truncated", "unconfirmed"];

fn says_the_same(name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/preload/tests/oracle");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kernel-{name}"));
    let compiler = Command::new("cc")
        .args(["-O1", "-o"])
        .args([&program, &folder.join(name).with_extension("c")])
        .output()
        .expect("a C compiler");
    assert!(compiler.status.success(), "{}", String::from_utf8_lossy(&compiler.stderr));
    let expected = std::fs::read_to_string(folder.join(name).with_extension("txt")).expect("a text");
    // With a UDP port the kernel leaves room for its header in every packet.
    let udp_port = if IN_UDP.contains(&name) { 9899 } else { 0 };
    let said = shell(&format!("{AS_OURS} net.sctp.udp_port={udp_port} && {}", program.display()));
    let differences: Vec<_> = expected.lines().zip(said.lines()).filter(|(a, b)| a != b).take(20).collect();
    assert!(differences.is_empty() && expected.len() == said.len(), "{name}: {differences:#?}");
}

/// Compares the answers of these programs. `test` is the name of the test that calls.
fn answers_are_those_that_ours_are_held_to(test: &str, programs: &[&str]) {
    lab(test, || {
        if !shell("uname -r").starts_with(VERSION) {
            return tools::skip("the texts are of another kernel");
        }
        programs.iter().for_each(|name| says_the_same(name));
    });
}

#[test]
#[ignore = "needs user-mode Linux and root: ./test --all"]
fn calls_and_options_are_answered_as_ours_are_held_to() {
    answers_are_those_that_ours_are_held_to(
        "calls_and_options_are_answered_as_ours_are_held_to",
        &["addresses", "calls", "listeners", "options", "values"],
    );
}

#[test]
#[ignore = "needs user-mode Linux and root: ./test --all"]
fn messages_are_answered_as_ours_are_held_to() {
    answers_are_those_that_ours_are_held_to(
        "messages_are_answered_as_ours_are_held_to",
        &["failed", "messages", "notifications"],
    );
}

#[test]
#[ignore = "needs user-mode Linux and root: ./test --all"]
fn ends_are_answered_as_ours_are_held_to() {
    answers_are_those_that_ours_are_held_to(
        "ends_are_answered_as_ours_are_held_to",
        &["closing", "endings", "linger", "shut"],
    );
}

#[test]
#[ignore = "needs user-mode Linux and root: ./test --all"]
fn packets_of_a_peer_are_answered_as_ours_are_held_to() {
    answers_are_those_that_ours_are_held_to("packets_of_a_peer_are_answered_as_ours_are_held_to", &IN_UDP);
}
