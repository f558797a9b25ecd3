//! Tests of unmodified programs, one end under `swiftwater run`, the other on the Linux kernel's SCTP, in both directions.
#![allow(missing_docs)]

mod daemon;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Stdio};

use daemon::{Daemon, preload};
use swiftwater_tests::peers::kernel::{ADDRESSES, OUR_ADDRESSES, lab, shell};
use swiftwater_tests::tools;

/// UDP port of both ends, the kernel's included.
const ENCAPSULATION_PORT: &str = "9899";

/// Runs `test` beside the kernel's SCTP, with a daemon; `name` is the test's own.
fn beside_the_kernel(name: &str, programs: &[&str], test: impl FnOnce(&Daemon)) {
    if !programs.iter().all(|program| tools::program(program).is_some()) {
        return;
    }
    preload();
    lab(name, || test(&Daemon::start_at(name, ENCAPSULATION_PORT)));
}

/// A program under `swiftwater run`, which ends with the test.
struct SwiftwaterProgram(Child);

impl SwiftwaterProgram {
    fn start(daemon: &Daemon, command_line: &str) -> SwiftwaterProgram {
        let mut command = daemon.run("stdbuf");
        command.arg("-oL").args(command_line.split(' '));
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        SwiftwaterProgram(command.spawn().expect("the command starts"))
    }

    /// Starts a program that listens on this port.
    fn serve(daemon: &Daemon, command_line: &str, port: u16) -> SwiftwaterProgram {
        let server = SwiftwaterProgram::start(daemon, command_line);
        daemon.await_listener(port);
        server
    }

    /// Reads its lines until one contains `text`.
    fn says(&mut self, text: &str) {
        let output = self.0.stdout.take().expect("it is piped");
        let mut lines = BufReader::new(output).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains(text)), "it ended without '{text}'");
    }

    fn ends_well(mut self) {
        let mut said = String::new();
        if let Some(output) = &mut self.0.stdout {
            output.read_to_string(&mut said).expect("a pipe");
        }
        assert!(self.0.wait().expect("it ends").success(), "{said}");
    }
}

impl Drop for SwiftwaterProgram {
    fn drop(&mut self) {
        // The process may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a program on the kernel's SCTP; returns once a file of the kernel shows it listening.
fn start_on_kernel(command_line: &str, file: &str, mark: &str) {
    let ready = format!("until grep -q '{mark}' {file}; do sleep 0.1; done");
    let _nothing = shell(&format!("({command_line} </dev/null >/run/said 2>&1 &) && {ready}"));
}

/// Starts a program that listens on an SCTP port of the kernel.
fn start_on_kernel_at_port(port: u16, command_line: &str) {
    start_on_kernel(command_line, "/proc/net/sctp/eps", &format!(" {port} "));
}

fn received_bytes(report: &str) -> f64 {
    let report: serde_json::Value = serde_json::from_str(report).unwrap_or_else(|_| panic!("{report}"));
    report["end"]["sum_received"]["bytes"].as_f64().unwrap_or_else(|| panic!("{report}"))
}

#[test]
#[ignore = "needs iperf3, user-mode Linux and root: ./test --all"]
fn iperf3_measures_toward_the_kernel() {
    beside_the_kernel("iperf3_measures_toward_the_kernel", &["iperf3"], |daemon| {
        start_on_kernel("TMPDIR=/run iperf3 -s -1 -p 5299", "/proc/net/tcp6", ":14B3 ");
        let mut client = daemon.run("iperf3");
        client.args(["-c", &ADDRESSES[0].to_string(), "--sctp", "-t", "1", "-p", "5299", "--json"]);
        let report = client.output().expect("the command starts");
        assert!(received_bytes(&String::from_utf8_lossy(&report.stdout)) > 0.0);
    });
}

#[test]
#[ignore = "needs iperf3, user-mode Linux and root: ./test --all"]
fn iperf3_measures_from_the_kernel() {
    beside_the_kernel("iperf3_measures_from_the_kernel", &["iperf3"], |daemon| {
        let mut server = SwiftwaterProgram::start(daemon, "iperf3 -s -1 -p 5299 --forceflush");
        let output = server.0.stdout.as_mut().expect("it is piped");
        let mut lines = BufReader::new(output).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains("listening on")));
        let report = shell(&format!("TMPDIR=/run iperf3 -c {} --sctp -t 1 -p 5299 --json", OUR_ADDRESSES[0]));
        assert!(received_bytes(&report) > 0.0);
        drop(lines);
        server.ends_well();
    });
}

#[test]
#[ignore = "needs socat, user-mode Linux and root: ./test --all"]
fn socat_talks_to_the_kernel() {
    beside_the_kernel("socat_talks_to_the_kernel", &["socat"], |daemon| {
        start_on_kernel_at_port(6001, "socat SCTP-LISTEN:6001,fork EXEC:cat");
        let mut client = SwiftwaterProgram::start(daemon, &format!("socat - SCTP:{}:6001", ADDRESSES[0]));
        let mut input = client.0.stdin.take().expect("it is piped");
        input.write_all(b"there and back\n").expect("it reads");
        client.says("there and back");
        drop(input);
        client.ends_well();
    });
}

#[test]
#[ignore = "needs socat, user-mode Linux and root: ./test --all"]
fn socat_listens_to_the_kernel() {
    beside_the_kernel("socat_listens_to_the_kernel", &["socat"], |daemon| {
        let _server = SwiftwaterProgram::serve(daemon, "socat SCTP-LISTEN:6001,fork EXEC:cat", 6001);
        // The input must not end before the answer has come: SCTP cannot end one direction alone.
        let input = "(echo there and back; until grep -q back /run/answer; do sleep 0.1; done)";
        let _nothing = shell(&format!(
            "touch /run/answer; {input} | socat - SCTP:{}:6001 >/run/answer",
            OUR_ADDRESSES[0]
        ));
        assert_eq!(shell("cat /run/answer"), "there and back\n");
    });
}

#[test]
#[ignore = "needs lksctp-tools, user-mode Linux and root: ./test --all"]
fn sctp_test_sends_to_the_kernel() {
    beside_the_kernel("sctp_test_sends_to_the_kernel", &["sctp_test"], |daemon| {
        let [kernel, swiftwater] = [ADDRESSES[0], OUR_ADDRESSES[0]];
        start_on_kernel_at_port(6003, &format!("stdbuf -oL sctp_test -H {kernel} -P 6003 -l"));
        let client = format!("sctp_test -H {swiftwater} -P 6004 -h {kernel} -p 6003 -s -x 2");
        SwiftwaterProgram::start(daemon, &client).ends_well();
        let _nothing = shell("until grep -q SHUTDOWN_COMPLETE /run/said; do sleep 0.1; done");
    });
}

#[test]
#[ignore = "needs lksctp-tools, user-mode Linux and root: ./test --all"]
fn sctp_test_hears_the_kernel() {
    beside_the_kernel("sctp_test_hears_the_kernel", &["sctp_test"], |daemon| {
        let [kernel, swiftwater] = [ADDRESSES[0], OUR_ADDRESSES[0]];
        let mut server =
            SwiftwaterProgram::serve(daemon, &format!("sctp_test -H {swiftwater} -P 6003 -l"), 6003);
        let _said = shell(&format!("sctp_test -H {kernel} -P 6004 -h {swiftwater} -p 6003 -s -x 2"));
        server.says("SHUTDOWN_COMPLETE");
    });
}
