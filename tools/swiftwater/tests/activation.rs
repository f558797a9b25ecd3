//! Tests of a daemon whose socket a service manager has made.
#![allow(missing_docs)]

#[allow(dead_code, reason = "the daemons here are started otherwise")]
mod daemon;

use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};
use nix::unistd::Pid;

use daemon::{SWIFTWATER, compiled, compiled_from, preload};

/// Returns the socket, and its name as in `SWIFTWATER_DAEMON`.
fn made_by_a_manager(test: &str) -> (OwnedFd, String) {
    let name = format!("swiftwater-test-activation-{test}-{}", std::process::id());
    let socket =
        socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).expect("a socket");
    let address = UnixAddr::new_abstract(name.as_bytes()).expect("a short name");
    bind(socket.as_raw_fd(), &address).expect("a name of our own");
    listen(&socket, Backlog::new(8).expect("small")).expect("it is bound");
    (socket, format!("@{name}"))
}

/// Starts a daemon with the socket as its third descriptor, as a manager does.
fn activate(socket: &OwnedFd) -> Child {
    activate_by(socket, &[Path::new(SWIFTWATER)])
}

/// Starts it by these words, which end with the command.
fn activate_by(socket: &OwnedFd, words: &[&Path]) -> Child {
    let script =
        "exec 3<&0 </dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$@\" daemon --udp-port 0 --idle-exit 30";
    Command::new("sh")
        .args(["-c", script, "sh"])
        .args(words)
        .stdin(Stdio::from(socket.try_clone().expect("a descriptor")))
        .stderr(Stdio::null())
        .spawn()
        .expect("a shell")
}

fn come(place: &str) -> Child {
    let mut program = Command::new(SWIFTWATER);
    program.args(["run", "--", "true"]).env("SWIFTWATER_DAEMON", place).stderr(Stdio::piped());
    program.spawn().expect("the command starts")
}

#[test]
fn programs_wait_for_the_daemon_and_for_the_next_one() {
    preload();
    let (socket, place) = made_by_a_manager("waits");
    for _ in 0..2 {
        let early = come(&place);
        let mut daemon = activate(&socket);
        let output = early.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert!(said.contains(&format!("daemon {} at {place}: SCTP in UDP", daemon.id())), "{said}");
        daemon.kill().expect("it runs");
        daemon.wait().expect("it was killed");
    }
}

/// systemd-nspawn filters the system calls of the containers that it starts.
#[test]
fn the_socket_is_taken_where_pidfd_getfd_is_forbidden() {
    preload();
    let filtered = compiled_from(Path::new("tests/programs"), "filtered", "activation");
    let (socket, place) = made_by_a_manager("filtered");
    let mut daemon = activate_by(&socket, &[&filtered, Path::new(SWIFTWATER)]);
    let program = come(&place);
    let ended = daemon.try_wait().expect("our child");
    let output = program.wait_with_output().expect("it ends");
    daemon.kill().expect("our child");
    daemon.wait().expect("it was killed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(ended.is_none() && said.contains(&format!("daemon {} at {place}", daemon.id())), "{said}");
}

/// Acts as `systemctl restart` does: the socket stays with the manager.
#[test]
fn a_restart_ends_what_was_open_and_the_next_daemon_serves_the_program() {
    let (socket, place) = made_by_a_manager("restart");
    preload();
    let mut daemon = activate(&socket);
    let mut program = Command::new(SWIFTWATER);
    program.args(["run", "--quiet", "--"]).arg(compiled("ends", "activation-restart")).arg("restart");
    let mut program = program
        .env("SWIFTWATER_DAEMON", place)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let mut line = String::new();
    let said = program.stdout.as_mut().expect("it is piped");
    BufReader::new(said).read_line(&mut line).expect("a line");
    let id = Pid::from_raw(i32::try_from(daemon.id()).expect("a process id"));
    kill(id, Signal::SIGTERM).expect("it runs");
    assert!(daemon.wait().expect("it ends").success());
    let mut next = activate(&socket);
    let output = program.wait_with_output().expect("it ends");
    next.kill().expect("it runs");
    next.wait().expect("it was killed");
    assert!(output.status.success() && line == "ready\n", "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn other_descriptors_are_refused() {
    let (socket, _) = made_by_a_manager("refused");
    for handed in [Stdio::null(), Stdio::from(std::fs::File::open("/proc/self/status").expect("a file"))] {
        let script = "exec 3<&0; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" daemon --udp-port 0";
        let output =
            Command::new("sh").args(["-c", script, SWIFTWATER]).stdin(handed).output().expect("a shell");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("descriptor 3"), "{said}");
    }
    let script = "exec 3<&0; LISTEN_FDS=2 LISTEN_PID=$$ exec \"$0\" daemon --udp-port 0";
    let output = Command::new("sh").args(["-c", script, SWIFTWATER]).stdin(Stdio::from(socket)).output();
    let said = String::from_utf8_lossy(&output.expect("a shell").stderr).into_owned();
    assert!(said.contains("2 sockets were handed over"), "{said}");
}

#[test]
#[ignore = "needs systemd-socket-activate: ./test --all"]
fn systemd_hands_its_socket_over() {
    preload();
    let place = format!("@swiftwater-test-activation-systemd-{}", std::process::id());
    let mut manager = Command::new("systemd-socket-activate")
        .args(["--seqpacket", "-l", &place, SWIFTWATER, "daemon", "--udp-port", "0"])
        .stderr(Stdio::piped())
        .spawn()
        .expect("systemd is installed");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(manager.stderr.as_mut().expect("piped")));
    let listens = lines.by_ref().map_while(Result::ok).any(|line| line.contains("Listening on"));
    assert!(listens, "it ended");
    let output = come(&place).wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    // The shell replaces itself by the daemon.
    let expected = format!("daemon {} at {place}: SCTP in UDP", manager.id());
    manager.kill().expect("it runs");
    manager.wait().expect("it was killed");
    assert!(output.status.success() && said.contains(&expected), "{said}");
}
