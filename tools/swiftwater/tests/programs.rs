//! Unmodified programs from Debian, both ends under `swiftwater run`, with a daemon of their own.
#![allow(missing_docs)]

mod daemon;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Output, Stdio};

use daemon::Daemon;

/// A command under `swiftwater run` that ends with the test, and after 30 s at most.
fn run(daemon: &Daemon, program: &[&str]) -> Command {
    let mut command = daemon.run("timeout");
    command.args(["--kill-after", "1", "30"]).args(program);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A server that has said that it listens.
fn serve(daemon: &Daemon, program: &[&str]) -> Child {
    let mut server = run(daemon, program).spawn().expect("the command starts");
    wait_for_listening(server.stderr.as_mut().expect("it is piped"));
    server
}

fn wait_for_listening(output: impl Read) {
    let mut lines = BufReader::new(output).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.to_lowercase().contains("listening on")), "it ended");
}

/// Sends `text` through a client and reads as much. Only then its input ends: SCTP knows no end of one direction alone, so
/// what is on its way back then is lost.
fn talk(mut client: Command, text: &str) -> Output {
    let mut client = client.spawn().expect("the command starts");
    let mut input = client.stdin.take().expect("it is piped");
    // One that was refused reads nothing.
    let _ = input.write_all(text.as_bytes());
    let mut answer = Vec::new();
    let output = client.stdout.as_mut().expect("it is piped");
    output.take(text.len() as u64).read_to_end(&mut answer).expect("a pipe");
    drop(input);
    let rest = client.wait_with_output().expect("it ends");
    Output { stdout: [answer, rest.stdout].concat(), ..rest }
}

fn assert_echoed(output: &Output, text: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stdout), text, "{said}");
}

#[test]
#[ignore = "needs socat: ./test --all"]
fn socat_serves_each_client_in_a_child() {
    let daemon = Daemon::start("socat");
    let mut server = serve(&daemon, &["socat", "-d", "-d", "SCTP-LISTEN:6001,reuseaddr,fork", "EXEC:cat"]);
    for text in ["hello\n", "again\n"] {
        let client = run(&daemon, &["socat", "-", "SCTP:127.0.0.1:6001"]);
        assert_echoed(&talk(client, text), text);
    }
    server.kill().expect("it runs");
    server.wait().expect("it was killed");
}

#[test]
#[ignore = "needs ncat: ./test --all"]
fn ncat_hands_its_socket_to_a_program() {
    let daemon = Daemon::start("ncat");
    let server = serve(&daemon, &["ncat", "-v", "--sctp", "-l", "6002", "-e", "/bin/cat"]);
    assert_echoed(&talk(run(&daemon, &["ncat", "--sctp", "127.0.0.1", "6002"]), "hello\n"), "hello\n");
    let output = server.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let refused = talk(run(&daemon, &["ncat", "--sctp", "127.0.0.1", "6002"]), "hello\n");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("Connection refused"), "{refused:?}");
}

#[test]
#[ignore = "needs iperf3: ./test --all"]
fn iperf3_sends_blocks_of_all_sizes() {
    let daemon = Daemon::start("iperf3");
    for bytes in ["64", "1400", "65536", "1M"] {
        let mut server = run(&daemon, &["iperf3", "-s", "-1", "--forceflush", "-p", "5299"]);
        let mut server = server.spawn().expect("the command starts");
        wait_for_listening(server.stdout.as_mut().expect("it is piped"));
        let options = ["-p", "5299", "--sctp", "-t", "1", "-l", bytes, "--json"];
        let client = run(&daemon, &["iperf3", "-c", "127.0.0.1"]).args(options).output().expect("it ends");
        let report = String::from_utf8_lossy(&client.stdout);
        assert!(client.status.success(), "{bytes}: {report}");
        let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
        let received = report["end"]["sum_received"]["bytes"].as_f64().expect("a number");
        assert!(received > 0.0, "{bytes}: {report}");
        server.wait().expect("it ends");
    }
}
