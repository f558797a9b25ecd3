//! Tests of the end of associations when a program or the daemon is stopped or killed: the peer learns of it.
#![allow(missing_docs)]

#[allow(dead_code, reason = "not all is needed here")]
mod daemon;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use swiftwater::{Association, AssociationOptions, Listener, LossKind, RecvError, StackOptions};
use swiftwater_tests::wait;

use daemon::{Daemon, SWIFTWATER, compiled};

const PORT: u16 = 6500;
/// Exit status that a shell reports of a program that SIGTERM ended.
const EXIT_CODE_OF_SIGTERM: i32 = 143;
/// Length of what the client of `perf` sends first over its control connection.
const PREAMBLE_BYTES: usize = 16;
/// Patience for the peer: an abort reaches it much sooner; without one it waits for its timers.
const PATIENCE: Duration = Duration::from_secs(15);

fn tell(process: &Child, signal: Signal) {
    let id = Pid::from_raw(i32::try_from(process.id()).expect("a process id"));
    kill(id, signal).expect("the process is there");
}

/// Starts a program that waits for an association.
fn serving(daemon: &Daemon, test: &str, mode: &str) -> Child {
    let mut program = daemon.run(compiled("ends", test));
    let program = program.arg(mode).stdout(Stdio::piped()).spawn().expect("the command starts");
    daemon.await_listener(PORT);
    program
}

fn connected(daemon: &Daemon) -> Association {
    connected_with(daemon, &StackOptions::default())
}

fn connected_with(daemon: &Daemon, options: &StackOptions) -> Association {
    let server = format!("127.0.0.1:{PORT}/udp:{}", daemon.udp_port());
    Association::connect_with(server, options).expect("it listens")
}

/// Returns the next message; `None` for the regular end.
fn next(peer: &Association) -> Result<Option<Vec<u8>>, RecvError> {
    Ok(peer.recv_timeout(PATIENCE)?.map(|message| message.to_vec()))
}

fn assert_aborted(outcome: Result<Option<Vec<u8>>, RecvError>, reason: &str) {
    match outcome {
        Err(RecvError::Lost(loss)) if loss.kind == LossKind::PeerAborted => {
            assert!(loss.text.contains(reason), "{loss}");
        }
        other => panic!("{other:?}"),
    }
}

fn line_of(program: &mut Child) -> String {
    let mut line = String::new();
    let said = program.stdout.as_mut().expect("it is piped");
    BufReader::new(said).read_line(&mut line).expect("a line");
    line.trim().to_owned()
}

#[test]
fn a_daemon_that_is_stopped_tells_peers_and_programs() {
    for (signal, test) in [(Signal::SIGTERM, "ends-terminated"), (Signal::SIGINT, "ends-interrupted")] {
        let mut daemon = Daemon::start(test);
        let mut program = serving(&daemon, test, "hold");
        let peer = connected(&daemon);
        peer.send(b"there").expect("it is up");
        assert_eq!(next(&peer), Ok(Some(b"there".to_vec())));
        tell(&daemon.process, signal);
        assert_aborted(next(&peer), "the SCTP service was stopped");
        assert!(daemon.process.wait().expect("it ends").success(), "{signal}");
        assert!(program.wait().expect("it ends").success(), "{signal}");
    }
}

#[test]
fn messages_of_a_closed_program_arrive_though_the_daemon_is_stopped() {
    let mut daemon = Daemon::start("ends-delivers");
    let mut program = serving(&daemon, "ends-delivers", "leave");
    let peer = connected(&daemon);
    let sent: usize = line_of(&mut program).parse().expect("a number");
    assert!(program.wait().expect("it ends").success());
    tell(&daemon.process, Signal::SIGTERM);
    for _ in 0..sent {
        assert_eq!(next(&peer).expect("it was sent").expect("not yet the end").len(), 50_000);
    }
    assert_eq!(next(&peer), Ok(None));
    assert!(daemon.process.wait().expect("it ends").success());
}

/// Returns options with a receive buffer that the program fills before it ends.
fn small_receive_buffer() -> StackOptions {
    AssociationOptions::default().with_receive_buffer_bytes(64 << 10).with_receive_buffer_bytes_max(0).into()
}

#[test]
fn a_peer_that_shuts_down_takes_no_more_and_what_it_has_sent_ends_at_once() {
    let daemon = Daemon::start("ends-late");
    let mut program = serving(&daemon, "ends-late", "late");
    // The peer reads nothing for now, so its association cannot end.
    let peer = connected_with(&daemon, &small_receive_buffer());
    assert_eq!(line_of(&mut program), "full");
    peer.shutdown().expect("it is up");
    assert!(program.wait().expect("it ends").success());
    while next(&peer).expect("no abort: nothing was unread").is_some() {}
}

#[test]
fn messages_that_were_sent_before_the_shutdown_of_the_peer_arrive() {
    let daemon = Daemon::start("ends-full");
    let mut program = serving(&daemon, "ends-full", "full");
    let peer = connected_with(&daemon, &small_receive_buffer());
    assert_eq!(line_of(&mut program), "full");
    peer.shutdown().expect("it is up");
    let mut received = 0;
    while next(&peer).expect("no abort: nothing was unread").is_some() {
        received += 1;
    }
    let counts = line_of(&mut program);
    let (sent, returned) = counts.split_once(' ').expect("two counts");
    let [sent, returned] = [sent, returned].map(|count| count.parse::<usize>().expect("a count"));
    assert!(program.wait().expect("it ends").success());
    assert_eq!((received, returned), (sent, 0));
}

#[test]
fn a_second_signal_ends_the_daemon_at_once() {
    let mut daemon = Daemon::start("ends-twice");
    let mut program = serving(&daemon, "ends-twice", "leave");
    // The peer reads nothing and has little room, so data is left to deliver.
    let peer = connected_with(&daemon, &small_receive_buffer());
    line_of(&mut program);
    assert!(program.wait().expect("it ends").success());
    tell(&daemon.process, Signal::SIGTERM);
    // Once the daemon accepts nobody any more, it has taken the first signal, which the second can no longer merge with.
    wait::until("the daemon accepts nobody any more", || !daemon.lets_in());
    tell(&daemon.process, Signal::SIGTERM);
    let status = wait::end_of("the daemon", &mut daemon.process);
    assert_eq!(status.code(), Some(EXIT_CODE_OF_SIGTERM));
    let end = loop {
        match next(&peer) {
            Ok(Some(_)) => {}
            end => break end,
        }
    };
    assert_aborted(end, "the SCTP service was stopped");
}

/// Says a line over the control connection of `perf`.
fn say(mut control: &TcpStream, line: &str) {
    control.write_all(format!("{line}\n").as_bytes()).expect("the client is there");
}

#[test]
fn a_client_of_perf_that_is_stopped_tells_its_peer() {
    let listener = Listener::bind("127.0.0.1:7/udp:0").expect("a free port");
    let server = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = server.local_addr().expect("it is bound").port().to_string();
    let mut client = Command::new(SWIFTWATER);
    client.args(["perf", "client", "127.0.0.1", "-p", &port, "-t", "1000"]).stdout(Stdio::null());
    let mut client = client.stderr(Stdio::null()).spawn().expect("the command starts");
    let (control, _) = server.accept().expect("the client connects");
    (&control).read_exact(&mut [0; PREAMBLE_BYTES]).expect("it says what it wants");
    let mut lines = BufReader::new(&control).lines().map(|line| line.expect("the client is there"));
    assert!(lines.next().is_some_and(|line| line.contains("test")));
    let udp_port = listener.address().udp_port.expect("it has one");
    say(&control, &format!(r#"{{"say":"ready","token":1,"ports":[7],"udp_port":{udp_port}}}"#));
    let (peer, _) = listener.accept_timeout(PATIENCE).expect("it connects");
    assert!(next(&peer).expect("it is up").is_some());
    tell(&client, Signal::SIGTERM);
    // The client waits for the server's counts, and its association has ended before.
    loop {
        match next(&peer) {
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(RecvError::Lost(loss)) if loss.kind == LossKind::PeerAborted => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(lines.any(|line| line.contains("done")));
    say(&control, r#"{"say":"totals","messages":1,"bytes":1,"seconds":1.0,"cpu_s":0.0,"nice":0}"#);
    let status = wait::end_of("the client", &mut client);
    assert_eq!(status.code(), Some(EXIT_CODE_OF_SIGTERM));
}

#[test]
fn a_daemon_at_a_path_leaves_no_file() {
    let path = std::env::temp_dir().join(format!("swiftwater-ends-{}", std::process::id()));
    let rules = path.with_extension("rules");
    std::fs::write(&rules, "port=7 no-such-module\n").expect("our own file");
    let daemon = |more: &[&std::ffi::OsStr]| {
        let mut command = Command::new(SWIFTWATER);
        command.args(["daemon", "--udp-port", "0", "--place"]).arg(&path).args(more).stderr(Stdio::piped());
        command.spawn().expect("the command starts")
    };
    // It has bound its socket before it looks at the rules.
    let refused = daemon(&["--autopush".as_ref(), rules.as_ref()]).wait().expect("it ends");
    assert!(!refused.success() && !path.exists());
    let mut served = daemon(&[]);
    let mut line = String::new();
    BufReader::new(served.stderr.as_mut().expect("it is piped")).read_line(&mut line).expect("a line");
    assert!(path.exists(), "{line}");
    tell(&served, Signal::SIGTERM);
    assert!(served.wait().expect("it ends").success() && !path.exists());
    std::fs::remove_file(rules).expect("our own file");
}

#[test]
fn a_killed_program_ends_its_association() {
    let daemon = Daemon::start("ends-killed");
    let mut program = serving(&daemon, "ends-killed", "hold");
    let peer = connected(&daemon);
    peer.send(b"there").expect("it is up");
    assert_eq!(next(&peer), Ok(Some(b"there".to_vec())));
    tell(&program, Signal::SIGKILL);
    assert_eq!(next(&peer), Ok(None));
    program.wait().expect("it was killed");
}

#[test]
fn a_program_that_is_killed_before_it_has_read_aborts_its_association() {
    let daemon = Daemon::start("ends-unread");
    let mut program = serving(&daemon, "ends-unread", "unread");
    let peer = connected(&daemon);
    peer.send(b"there").expect("it is up");
    assert_eq!(line_of(&mut program), "ready");
    tell(&program, Signal::SIGKILL);
    assert_aborted(next(&peer), "");
    program.wait().expect("it was killed");
}

#[test]
fn a_child_keeps_the_association_of_a_killed_program_until_it_dies() {
    let daemon = Daemon::start("ends-inherited");
    let mut program = serving(&daemon, "ends-inherited", "inherit");
    let peer = connected(&daemon);
    peer.send(b"before").expect("it is up");
    assert_eq!(next(&peer), Ok(Some(b"before".to_vec())));
    tell(&program, Signal::SIGKILL);
    program.wait().expect("it was killed");
    peer.send(b"after").expect("it is up");
    assert_eq!(next(&peer), Ok(Some(b"after".to_vec())));
    peer.send(b"die").expect("it is up");
    assert_eq!(next(&peer), Ok(None));
}
