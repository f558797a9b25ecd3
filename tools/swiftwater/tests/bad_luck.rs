//! Tests of failures around a program: the errno that the kernel would return, and a daemon that is restarted automatically.
#![allow(missing_docs)]

mod daemon;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use daemon::{Daemon, SWIFTWATER, preload};
use swiftwater_tests::tools;

/// A user that is not root.
const NOBODY: u32 = 65534;

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// Runs a short program in Python.
fn python(mut command: Command, program: &str) -> String {
    let output = command.args(["-c", program]).output().expect("the command starts");
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Binds a one-to-one socket and returns the outcome.
fn bind(port: u16) -> String {
    format!(
        "import socket, errno\n\
         s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132)\n\
         try:\n s.bind(('127.0.0.1', {port})); s.listen(); print('bound', flush=True); input()\n\
         except OSError as e: print(errno.errorcode[e.errno])\n"
    )
}

#[test]
#[ignore = "needs Python: ./test --all"]
fn a_port_belongs_to_the_process_that_has_it() {
    if tools::program("python3").is_none() {
        return;
    }
    let daemon = Daemon::start("port");
    let mut first = daemon.run("python3");
    first.args(["-c", &bind(7000)]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut first = first.spawn().expect("the command starts");
    daemon.await_listener(7000);
    assert_eq!(python(daemon.run("python3"), &bind(7000)).trim(), "EADDRINUSE");
    first.kill().expect("it runs");
    first.wait().expect("it was killed");
}

#[test]
#[ignore = "needs Python and root: ./test --all"]
fn a_low_port_is_for_root() {
    if tools::program("python3").is_none() || !is_root() {
        return;
    }
    let daemon = Daemon::start("low_port");
    let mut nobody = daemon.run("/usr/bin/env");
    nobody.arg("python3").uid(NOBODY).gid(NOBODY).stdin(Stdio::null());
    assert_eq!(python(nobody, &bind(80)).trim(), "EACCES");
}

/// Starts a daemon at a path and waits until it is ready.
fn daemon_at(place: &str) -> Child {
    let mut daemon = Command::new(SWIFTWATER)
        .args(["daemon", "--udp-port", "0", "--place", place])
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let mut line = String::new();
    BufReader::new(daemon.stderr.as_mut().expect("it is piped")).read_line(&mut line).expect("a line");
    assert!(line.contains("SCTP in UDP"), "{line}");
    daemon
}

#[test]
#[ignore = "needs Python: ./test --all"]
fn remains_of_a_crash_keep_no_daemon_from_starting() {
    if tools::program("python3").is_none() {
        return;
    }
    preload();
    let folder = std::env::temp_dir().join(format!("swiftwater-crash-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let place = folder.join("socket");
    let place = place.to_str().expect("text");
    let program = "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_STREAM, 132)\nprint('a socket')";
    for _ in 0..2 {
        let mut daemon = daemon_at(place);
        let mut command = Command::new(SWIFTWATER);
        command.args(["run", "--quiet", "--", "python3"]).env("SWIFTWATER_DAEMON", place);
        let said = python(command, program);
        daemon.kill().expect("it runs");
        daemon.wait().expect("it was killed");
        assert_eq!(said.trim(), "a socket");
        assert!(std::fs::exists(place).expect("the folder is there"), "a crash leaves it");
    }
    std::fs::remove_dir_all(&folder).expect("it is ours");
}

#[test]
#[ignore = "needs Python: ./test --all"]
fn a_shim_of_another_version_is_refused_and_the_log_says_so() {
    if tools::program("python3").is_none() {
        return;
    }
    let mut daemon = Daemon::start("version");
    let place = daemon.place.trim_start_matches('@');
    // A request begins with "swcr" and the version; an answer with "swcr", one for a failure, and the errno.
    let program = format!(
        "import socket\n\
         s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n\
         s.connect(chr(0) + '{place}')\n\
         s.send(b'swcr' + (9999).to_bytes(2, 'little') + bytes([9]))\n\
         answer = s.recv(100)\n\
         print(answer[:4], answer[4], int.from_bytes(answer[5:9], 'little'))\n"
    );
    let refused = format!("b'swcr' 1 {}", nix::errno::Errno::EPROTONOSUPPORT as i32);
    assert_eq!(python(Command::new("python3"), &program).trim(), refused);
    let log = daemon.process.stderr.take().expect("it is piped");
    let line = BufReader::new(log).lines().map_while(Result::ok).next().unwrap_or_default();
    assert!(line.contains("has version 9999"), "{line}");
}
