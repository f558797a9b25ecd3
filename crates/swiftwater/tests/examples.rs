//! Runs each example as its first comment shows: a shell runs every line that begins with `$`, which must print the
//! lines below it.
#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Time limit for a line of output, far longer than any line takes.
const HANGS_AFTER: Duration = Duration::from_secs(60);
const CARGO_RUN: &str = "cargo run -p swiftwater --features tokio --example ";

#[test]
fn echo() {
    run("echo");
}

#[test]
fn chat() {
    run("chat");
}

#[test]
fn module() {
    run("module");
}

#[test]
fn multihomed_client() {
    run("multihomed_client");
}

#[test]
fn readings() {
    run("readings");
}

#[test]
fn tokio_server() {
    let ended = run("tokio_server");
    assert!(ended.iter().all(|status| status.success()), "SIGINT ends it in order: {ended:?}");
}

/// One command, with the lines that it must print.
struct Shown {
    command: String,
    lines: Vec<String>,
}

/// A running command.
struct Running {
    child: Child,
    printed: Receiver<String>,
}

/// Runs the commands of an example. Returns the exit status of its servers.
fn run(example: &str) -> Vec<std::process::ExitStatus> {
    let mut servers = Vec::new();
    for Shown { command, lines } in shown(example) {
        match command.strip_suffix(" &") {
            Some(command) => {
                let mut server = Running::start(command);
                // The first line of a server reports that it is ready.
                assert_eq!(server.line(), lines[0], "{command}");
                servers.push((server, lines));
            }
            None => {
                let mut client = Running::start(&command);
                for line in lines {
                    assert_eq!(client.line(), line, "{command}");
                }
                assert!(client.child.wait().unwrap().success(), "{command}");
                assert_eq!(client.printed.recv().ok(), None, "{command} prints no more");
            }
        }
    }
    // Only the servers that handle SIGINT are sure to notice it: a job in the background may begin with SIGINT ignored.
    let signal = if example == "tokio_server" { Signal::SIGINT } else { Signal::SIGTERM };
    servers.into_iter().map(|(server, lines)| server.end(&lines[1..], signal)).collect()
}

impl Running {
    fn start(command: &str) -> Running {
        let mut child = Command::new("sh")
            .args(["-c", &with_binary(command)])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let printed = lines_of(child.stdout.take().unwrap());
        Running { child, printed }
    }

    fn line(&mut self) -> String {
        self.printed.recv_timeout(HANGS_AFTER).expect("a line")
    }

    /// Expects the remaining lines of a server, and ends it by a signal.
    fn end(mut self, lines: &[String], signal: Signal) -> std::process::ExitStatus {
        for line in lines {
            assert_eq!(self.line(), *line);
        }
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
        self.child.wait().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Ends the server even after a failed assertion.
        let _ = self.child.kill();
    }
}

fn lines_of(output: ChildStdout) -> Receiver<String> {
    let (say, hear) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if say.send(line).is_err() {
                return;
            }
        }
    });
    hear
}

/// Returns the command with the program instead of `cargo run`: cargo has built the examples for this test. A server
/// replaces its shell, so that it gets the signals itself.
fn with_binary(command: &str) -> String {
    let (before, after) = command.split_once(CARGO_RUN).expect("a command that runs an example");
    let (name, arguments) = after.split_once(" -- ").expect("arguments");
    let program = examples().join(name);
    assert!(program.exists(), "{} does not exist; run cargo test without --test", program.display());
    let exec = if before.is_empty() { "exec " } else { "" };
    format!("{before}{exec}'{}' {arguments}", program.display())
}

fn examples() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().and_then(Path::parent).unwrap().join("examples")
}

/// Returns the commands in the first comment of an example.
fn shown(example: &str) -> Vec<Shown> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(format!("{example}.rs"));
    let text = std::fs::read_to_string(path).unwrap();
    let comment = text.lines().map_while(|line| line.strip_prefix("//!"));
    let block = comment.skip_while(|line| *line != " ```console").skip(1).take_while(|line| *line != " ```");
    let mut shown: Vec<Shown> = Vec::new();
    for line in block.map(|line| line.strip_prefix(' ').unwrap_or(line)) {
        match (line.strip_prefix("$ "), shown.last_mut()) {
            (Some(command), _) => shown.push(Shown { command: command.to_owned(), lines: Vec::new() }),
            (None, Some(last)) if last.command.ends_with('\\') => {
                last.command.push('\n');
                last.command.push_str(line);
            }
            (None, Some(last)) => last.lines.push(line.to_owned()),
            (None, None) => panic!("{example}: a line before the first command: {line}"),
        }
    }
    assert!(!shown.is_empty(), "{example} shows how it is run");
    shown
}
