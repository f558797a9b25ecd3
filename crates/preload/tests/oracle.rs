//! Compares our answers to every call and option, valid and invalid, and our notifications, with those of the kernel's SCTP
//! sockets, except for the differences that `docs/sockets.md` lists (`oracle/*.txt`; `tests/tests/kernel_sockets.rs` asks the
//! kernel).
#![allow(missing_docs)]

use std::path::Path;
use std::process::Stdio;

use swiftwater_tests::daemon::{Daemon, serve_or_check};
use swiftwater_tests::programs;

#[test]
fn daemon_of_a_test() {
    serve_or_check();
}

/// Length of the largest fragment: the kernel's packets hold more, since ours also have a UDP header.
const FRAGMENTS: (&str, &str) = (" ffcc", " ffc4");

/// Removes the lines that begin with one of these texts, and the indented lines after them.
fn without(text: &str, parts: &[&str]) -> String {
    let mut skips = false;
    let mut left = String::new();
    for line in text.lines() {
        if !line.starts_with(' ') {
            skips = parts.iter().any(|part| line.starts_with(part));
        }
        if !skips {
            left.extend([line, "\n"]);
        }
    }
    left
}

fn says_the_same(name: &str, but: &[(&str, &str)]) {
    says_the_same_without(&[], name, but);
}

fn says_the_same_without(parts: &[&str], name: &str, but: &[(&str, &str)]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle");
    let source = folder.join(name).with_extension("c");
    let program = programs::compiled(&source, &format!("oracle-{name}"), &["-w", "-Wno-error"]);
    let mut expected = std::fs::read_to_string(folder.join(name).with_extension("txt")).expect("a text");
    for (theirs, ours) in but {
        expected = expected.replace(theirs, ours);
    }
    let daemon = Daemon::start(&format!("oracle-{name}"));
    let mut run = daemon.run(&program);
    run.env("SCTP_UDP_PORT", daemon.udp_port().to_string());
    let output = run.stdin(Stdio::null()).output().expect("the program starts");
    let expected = without(&expected, parts);
    let said = without(&String::from_utf8_lossy(&output.stdout), parts);
    let differences: Vec<_> = expected.lines().zip(said.lines()).filter(|(a, b)| a != b).take(20).collect();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(differences.is_empty() && expected.len() == said.len(), "{differences:#?}\n{error}");
}

#[test]
fn every_option_with_lengths_and_associations() {
    says_the_same("options", &[FRAGMENTS]);
}

#[test]
fn values_of_options() {
    says_the_same("values", &[]);
}

#[test]
fn calls() {
    let but = [
        ("socketpair: -1 EOPNOTSUPP", "socketpair: -1 EPROTONOSUPPORT"),
        ("sendto port 0: 1", "sendto port 0: -1 ECONNREFUSED"),
        ("recv of the rest after that: -1 EAGAIN", "recv of the rest after that: 7"),
        ("preadv2 that does not wait: -1 EOPNOTSUPP", "preadv2 that does not wait: -1 EAGAIN"),
        ("pwritev2 that does not wait: -1 EOPNOTSUPP", "pwritev2 that does not wait: 4"),
        ("send of a byte more: -1 EMSGSIZE", "send of a byte more: 20001"),
        ("listen when connected: 0\ngetpeername: 0", "listen when connected: 0\ngetpeername: -1 ENOTCONN"),
    ];
    // Nagle's algorithm decides which messages have already arrived.
    says_the_same_without(&["recv of that", "recv of the peer after shutdown"], "calls", &but);
}

#[test]
fn listeners_and_options_of_any_socket() {
    says_the_same(
        "listeners",
        &[("FIONREAD of a listener: -1 ENOTCONN", "FIONREAD of a listener: -1 EINVAL")],
    );
}

#[test]
fn unread_data_after_the_end_and_path_mtus() {
    says_the_same("endings", &[]);
}

#[test]
fn calls_after_both_directions_were_shut_down() {
    says_the_same("shut", &[]);
}

#[test]
fn calls_beside_which_their_descriptor_is_closed() {
    says_the_same("closing", &[]);
}

#[test]
fn closes_of_sockets_that_linger() {
    says_the_same("linger", &[]);
}

#[test]
fn a_connect_that_fails_later() {
    // Only the loss of its other end makes the pair poll POLLERR.
    let polled = ["before connect", "after the refusal", "after the error was read"]
        .map(|when| ["poll", "epoll"].map(|call| format!("{call} {when}: ")));
    let but: Vec<(String, String)> = polled
        .as_flattened()
        .iter()
        .flat_map(|line| ["nothing", "ERR"].map(|theirs| (format!("{line}{theirs}"), format!("{line}OUT"))))
        .chain(
            [
                ("before connect", "0 0 0"),
                ("after the refusal", "1 1 0"),
                ("after the error was read", "0 0 0"),
            ]
            .map(|(when, theirs)| (format!("select {when}: {theirs}"), format!("select {when}: 0 1 0"))),
        )
        .collect();
    let but: Vec<(&str, &str)> = but.iter().map(|(theirs, ours)| (theirs.as_str(), ours.as_str())).collect();
    says_the_same("failed", &but);
}

#[test]
fn an_incomplete_message_is_not_delivered_at_the_end() {
    says_the_same("truncated", &[]);
}

#[test]
fn messages_with_what_goes_with_them() {
    says_the_same("messages", &[]);
}

#[test]
fn addresses() {
    says_the_same("addresses", &[]);
}

/// Answers to options of an address that the peer has listed, and of one that it does not have.
const LISTED: &str = "SCTP_GET_PEER_ADDR_INFO: 0 state 3
set SCTP_PEER_ADDR_PARAMS: 0
get SCTP_PEER_ADDR_PARAMS: 0 interval 7000, limit 3
set SCTP_PEER_ADDR_THLDS: 0
get SCTP_PEER_ADDR_THLDS: 0 limits 4 and 2
set SCTP_PRIMARY_ADDR: 0
";
const FOREIGN: &str = "SCTP_GET_PEER_ADDR_INFO: -1 EINVAL
set SCTP_PEER_ADDR_PARAMS: -1 EINVAL
get SCTP_PEER_ADDR_PARAMS: -1 EINVAL
set SCTP_PEER_ADDR_THLDS: -1 ENOENT
get SCTP_PEER_ADDR_THLDS: -1 ENOENT
set SCTP_PRIMARY_ADDR: -1 EINVAL
";

#[test]
fn an_address_that_is_not_confirmed_has_options_but_chooses_no_association() {
    let by_address = "-- one-to-many, by the address: 127.0.0.3\n";
    let [theirs, ours] = [LISTED, FOREIGN].map(|answers| format!("{by_address}{answers}"));
    says_the_same("unconfirmed", &[(&theirs, &ours)]);
}

#[test]
fn notifications() {
    // Buffer sizes determine how much waits.
    let waiting = ["the server aborts while much waits for it"];
    says_the_same_without(&waiting, "notifications", &[]);
}
