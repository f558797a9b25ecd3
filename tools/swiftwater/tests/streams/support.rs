//! Commands of these tests, and programs with messages in flight.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use serde_json::Value;
use swiftwater_tests::wait;

use crate::daemon::{Daemon, SWIFTWATER, compiled};

/// A user without files and processes.
pub(crate) const NOBODY: u32 = 65534;

pub(crate) fn streams(place: &str, words: &[&str]) -> Command {
    let mut command = Command::new(SWIFTWATER);
    command.arg("streams").args(words).args(["--place", place]);
    command
}

pub(crate) fn output(mut command: Command) -> Output {
    command.output().expect("the command starts")
}

/// Runs a command that must succeed; returns its output.
pub(crate) fn done(command: Command) -> String {
    let output = output(command);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Runs a command that must fail; returns its error output.
pub(crate) fn refused(command: Command) -> String {
    let output = output(command);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).expect("text")
}

pub(crate) fn rows(place: &str) -> Vec<Value> {
    let printed = done(streams(place, &["--json"]));
    serde_json::from_str(&printed).expect("an array")
}

/// The program `flow`, with messages in flight.
pub(crate) struct Flow {
    pub(crate) program: Child,
    pub(crate) said: BufReader<ChildStdout>,
}

impl Flow {
    pub(crate) fn start(daemon: &Daemon, test: &str, arguments: &[&str]) -> Flow {
        Flow::start_by(daemon.run(compiled("flow", test)), arguments)
    }

    /// Starts another program that says the same once its messages flow.
    pub(crate) fn start_program(daemon: &Daemon, name: &str, test: &str) -> Flow {
        Flow::start_by(daemon.run(compiled(name, test)), &[])
    }

    pub(crate) fn start_by(mut command: Command, arguments: &[&str]) -> Flow {
        let piped = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = piped.spawn().expect("the command starts");
        let mut said = BufReader::new(program.stdout.take().expect("it is piped"));
        let mut line = String::new();
        said.read_line(&mut line).expect("a line");
        assert_eq!(line, "flows\n");
        Flow { program, said }
    }

    /// Returns the numbers of its sending and its receiving stream.
    pub(crate) fn ends(place: &str) -> (String, String) {
        let rows = rows(place);
        let stream = |wanted: &str| {
            let is_it = |row: &&Value| {
                row["row"] == "stream" && row[wanted].as_str().is_some_and(|a| a.ends_with(":6510"))
            };
            rows.iter().find(is_it).expect("a stream")["stream"].to_string()
        };
        (stream("peer"), stream("local"))
    }

    /// Ends the program, which checks the messages it has received. Returns their number.
    pub(crate) fn end(mut self) -> u64 {
        drop(self.program.stdin.take());
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).expect("text");
        assert!(self.program.wait().expect("it ends").success(), "messages were lost, or out of order");
        rest.split(' ').next().and_then(|count| count.parse().ok()).expect("a count")
    }
}

/// Starts a program under `swiftwater run` that ends after 60 s at most.
pub(crate) fn limited(daemon: &Daemon, words: &str) -> Child {
    let mut command = daemon.run("timeout");
    command
        .arg("60")
        .args(words.split(' '))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().expect("the command starts")
}

/// Waits for the stream one of whose ends, `local` or `peer`, has this port; returns its number.
pub(crate) fn await_stream(place: &str, end: &str, port: u16) -> String {
    let suffix = format!(":{port}");
    let is_it =
        |row: &&Value| row["row"] == "stream" && row[end].as_str().is_some_and(|a| a.ends_with(&suffix));
    wait::found(&format!("a stream whose {end} port is {port}"), || {
        rows(place).iter().find(is_it).map(|row| row["stream"].to_string())
    })
}

/// Copies files into a folder that every user may enter, for another user to run.
pub(crate) fn public(files: &[&Path]) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("swiftwater-test-streams-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder of our own");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("our own folder");
    for file in files {
        fs::copy(file, folder.join(file.file_name().expect("a file"))).expect("a file of our own");
    }
    folder
}
