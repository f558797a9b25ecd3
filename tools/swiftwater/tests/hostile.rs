//! Tests of malicious local users, each a program in `tests/hostile`, beside a victim that must keep working.
//!
//! The daemon and the victim are root's. An attacker has its own user without capabilities; some move to user and network
//! namespaces of their own. No test measures time: an attack that the daemon does not withstand makes a program hang until its
//! alarm ends it, or fails a check.
#![allow(missing_docs)]

mod daemon;

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek};
use std::net::UdpSocket;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use daemon::{Daemon, compiled_from};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::fs::{MemfdFlags, memfd_create};
use swiftwater_tests::tools;

/// User of the attacker, unknown to the system.
const ATTACKER: u32 = 41_001;
/// User of a daemon that is not root's, unknown to the system.
const OWNER: u32 = 41_002;
/// Memory that a daemon may keep beyond its accounts.
const SLACK_BYTES: u64 = 64 << 20;
/// A user's budget (`--user-memory`).
const USER_MEMORY_BYTES: u64 = 128 << 20;
/// Time that a daemon may take to return memory.
const PATIENCE: Duration = Duration::from_secs(60);
/// Malformed requests of a user who fills the log, and lines that may be about them: some at once, and one every 10 s of the
/// test.
const CHATTER_TURNS: u32 = 300;
const LINES_OF_USER_MAX: usize = 20;
/// The first subordinate id, the number of those that fill the log, and their requests: more lines than all of them together may
/// cause at once, with one more a second.
const SUBORDINATE_MIN: u32 = 65_536;
const SUBORDINATE_IDS: u32 = 40;
const SUBORDINATE_TURNS: u32 = 8;
const LINES_AT_ONCE: u64 = 64;
/// Interval for rechecking whether a program has ended.
const LOOKS: Duration = Duration::from_millis(20);
/// Unit of `stat(2)`.
const BLOCK_BYTES: u64 = 512;
/// Exit status of an attacker that lacks a permission it needs.
const SKIPPED: i32 = 77;

/// A daemon of root, and the programs that use it.
struct Scene {
    daemon: Daemon,
    test: &'static str,
}

impl Scene {
    /// Returns `None` if the test is reported as skipped.
    fn set(test: &'static str) -> Option<Scene> {
        if !std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0) {
            tools::skip("only root becomes other users");
            return None;
        }
        Some(Scene { daemon: Daemon::start(&format!("hostile-{test}")), test })
    }

    /// Starts a daemon with further arguments.
    fn set_with(test: &'static str, arguments: &str) -> Option<Scene> {
        Scene::set_by(test, &format!("exec \"$0\" \"$@\" {arguments}"))
    }

    /// Starts a daemon by a shell script, whose arguments are the command.
    fn set_by(test: &'static str, script: &str) -> Option<Scene> {
        let mut scene = Scene::set(test)?;
        let mut command = Command::new("sh");
        command.arg("-c").arg(script).arg(daemon::SWIFTWATER);
        scene.daemon = Daemon::start_with(&format!("hostile-{test}-with"), command);
        Some(scene)
    }

    fn program(&self, name: &str) -> std::path::PathBuf {
        compiled_from(Path::new("tests/hostile"), name, &format!("{}-{name}", self.test))
    }

    /// Returns a command for another user's program, which connects to the daemon without the shim.
    fn attacker(&self, name: &str) -> Command {
        self.attacker_of(ATTACKER, name)
    }

    fn attacker_of(&self, user: u32, name: &str) -> Command {
        let mut command = Command::new(self.program(name));
        command.env("SWIFTWATER_DAEMON", &self.daemon.place).uid(user).gid(user).current_dir("/");
        command
    }

    /// Returns a command for root's program under `swiftwater run`.
    fn victim(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = self.daemon.run(self.program(name));
        command.args(arguments);
        command
    }

    /// Returns a command for another user's program under `swiftwater run`.
    fn neighbour(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = self.victim(name, arguments);
        command.uid(ATTACKER).gid(ATTACKER).current_dir("/");
        command
    }

    /// Returns an amount of the daemon's memory, by its name in `/proc/PID/status`.
    fn memory_bytes(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.daemon.process.id()));
        let status = status.expect("it runs");
        let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let kilobytes = value.and_then(|value| value.split_whitespace().next());
        kilobytes.expect("a number").parse::<u64>().expect("a number") * 1024
    }

    /// Returns the size of the daemon's memfds with messages for programs.
    fn message_bytes(&self) -> u64 {
        self.memfd_bytes("message")
    }

    /// Returns the memory of the daemon's memfds of one kind. It has several descriptors of some.
    fn memfd_bytes(&self, kind: &str) -> u64 {
        let start = format!("/memfd:swiftwater-{kind}");
        let folder = format!("/proc/{}/fd", self.daemon.process.id());
        let memfds = std::fs::read_dir(folder).expect("it runs").filter_map(|entry| {
            let path = entry.ok()?.path();
            // The descriptor may be closed by now.
            let name = std::fs::read_link(&path).ok()?;
            name.to_string_lossy().starts_with(&start).then_some(())?;
            let found = std::fs::metadata(&path).ok()?;
            Some((found.ino(), found.blocks() * BLOCK_BYTES))
        });
        memfds.collect::<HashMap<_, _>>().values().sum()
    }

    /// Returns a number of the attacker's row in `swiftwater status`.
    fn of_attacker(&self, key: &str) -> u64 {
        let is_of_attacker = |row: &serde_json::Value| row["row"] == "user" && row["user"] == ATTACKER;
        let row = self.status().into_iter().find(is_of_attacker);
        row.map_or(0, |row| row[key].as_u64().expect("a number"))
    }

    /// Returns the number of the attacker's sockets in `swiftwater status`.
    fn sockets_of_attacker(&self) -> usize {
        let is_of_attacker = |row: &serde_json::Value| row["row"] == "socket" && row["user"] == ATTACKER;
        self.status().into_iter().filter(is_of_attacker).count()
    }

    fn status(&self) -> Vec<serde_json::Value> {
        let mut command = Command::new(daemon::SWIFTWATER);
        let output = command.args(["status", "--json", "--place", &self.daemon.place]).output();
        serde_json::from_slice(&output.expect("the command starts").stdout).expect("JSON")
    }

    /// The victim opens, connects, exchanges messages and closes, undisturbed.
    fn assert_victim_works(&self) {
        let output = output(self.victim("victim", &[]));
        assert_success("the victim", &output);
    }
}

fn assert_success(what: &str, output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {}: {said}", output.status);
}

/// A program whose errors go to a file: a child of it may go on with its descriptors, so the end of a pipe says
/// nothing about the program.
struct Running {
    process: Child,
    errors: File,
}

impl Running {
    fn start(mut command: Command) -> Running {
        let errors = memfd_create("errors", MemfdFlags::CLOEXEC).expect("memory");
        let theirs = errors.try_clone().expect("a descriptor");
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(theirs);
        Running { process: piped.spawn().expect("the command starts"), errors: errors.into() }
    }

    /// Waits until the program says that it is ready. Returns false if it has ended, or says something else.
    fn is_ready(&mut self) -> bool {
        let said = BufReader::new(self.process.stdout.take().expect("it is piped"));
        let (line, lines) = mpsc::channel();
        // A child of the program may keep the thread here.
        thread::spawn(move || said.lines().try_for_each(|said| line.send(said.unwrap_or_default())));
        loop {
            match lines.recv_timeout(LOOKS) {
                Ok(line) => return line == "ready",
                Err(RecvTimeoutError::Disconnected) => return false,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if self.process.try_wait().expect("it was started").is_some() {
                return false;
            }
        }
    }

    /// Lets the program continue to its end, and returns its output.
    fn go_on(mut self) -> Output {
        drop(self.process.stdin.take());
        let status = self.process.wait().expect("it was started");
        let mut stderr = Vec::new();
        self.errors.rewind().and_then(|()| self.errors.read_to_end(&mut stderr)).expect("memory");
        Output { status, stdout: Vec::new(), stderr }
    }
}

/// Runs a program to its end.
fn output(command: Command) -> Output {
    Running::start(command).go_on()
}

/// A program that has done its attack and waits.
struct Held(Running);

impl Held {
    fn start(command: Command) -> Held {
        Held::start_or_skip(command).expect("it may do here what it wants to")
    }

    /// Returns `None` if the attacker lacks a permission it needs.
    fn start_or_skip(command: Command) -> Option<Held> {
        Held::ready(command).map_or_else(
            |output| {
                let said = String::from_utf8_lossy(&output.stderr);
                assert_eq!(output.status.code(), Some(SKIPPED), "it is not ready: {}: {said}", output.status);
                None
            },
            Some,
        )
    }

    /// Returns the output of a program that ends before it is ready.
    fn ready(command: Command) -> Result<Held, Output> {
        let mut program = Running::start(command);
        if program.is_ready() { Ok(Held(program)) } else { Err(program.go_on()) }
    }

    /// Lets the program continue, and returns its output.
    fn go_on(self) -> Output {
        self.0.go_on()
    }
}

#[test]
fn a_program_that_ends_before_it_is_ready_is_not_waited_for_and_its_words_are_kept() {
    let mut command = Command::new("sh");
    command.args(["-c", "sleep 1000 & echo \"$!\" >&2; echo too early >&2; exit 3"]);
    let Err(output) = Held::ready(command) else { panic!("it was never ready") };
    let said = String::from_utf8(output.stderr).expect("text");
    let (child, words) = said.split_once('\n').expect("two lines");
    kill(Pid::from_raw(child.parse().expect("a number")), Signal::SIGKILL).expect("it has kept the pipes");
    assert_eq!((output.status.code(), words), (Some(3), "too early\n"));
}

#[test]
#[ignore = "needs root: ./test --all"]
fn nobody_gets_at_a_socket_by_the_name_of_its_pair() {
    let Some(scene) = Scene::set("proof") else { return };
    let victim = Held::start(scene.victim("victim", &["hold"]));
    let thief = output(scene.attacker("forged_proof"));
    assert_success("the victim", &victim.go_on());
    if thief.status.code() == Some(SKIPPED) {
        return tools::skip("no user namespaces for users here");
    }
    assert_success("the thief", &thief);
}

#[test]
#[ignore = "needs root: ./test --all"]
fn the_daemon_of_a_user_serves_no_other_user() {
    let Some(mut scene) = Scene::set("served") else { return };
    let mut command = Command::new(daemon::SWIFTWATER);
    command.uid(OWNER).gid(OWNER).current_dir("/");
    scene.daemon = Daemon::start_with("hostile-served-own", command);
    assert_success("another user", &output(scene.attacker("refused")));
    let owner = output(scene.attacker_of(OWNER, "refused"));
    let said = String::from_utf8_lossy(&owner.stderr);
    assert!(!owner.status.success() && said.contains("ECONNRESET"), "the owner is answered: {said}");
}

#[test]
fn a_server_keeps_reading_whatever_its_clients_are_called() {
    let daemon = Daemon::start("hostile-name");
    let program = compiled_from(Path::new("tests/hostile"), "forged_name", "name");
    assert_success("the server", &output(daemon.run(program)));
}

#[test]
#[ignore = "needs root: ./test --all"]
fn names_that_somebody_has_taken_keep_nobody_from_a_socket() {
    let Some(scene) = Scene::set("names") else { return };
    let victim = Held::start(scene.victim("victim", &["hold"]));
    let squatter = Held::start(scene.attacker("squatter"));
    scene.assert_victim_works();
    assert_success("the victim", &victim.go_on());
    assert_success("the squatter", &squatter.go_on());
}

#[test]
#[ignore = "needs root: ./test --all"]
fn a_descriptor_that_takes_long_to_close_keeps_only_its_user_waiting() {
    for way in ["request", "many", "queue", "nested", "record", "leftover"] {
        let Some(scene) = Scene::set("lingering") else { return };
        let victim = Held::start(scene.victim("victim", &["hold"]));
        let mut attacker = scene.attacker("lingering");
        attacker.arg(way);
        let attacker = Held::start(attacker);
        scene.assert_victim_works();
        assert_success("the victim", &victim.go_on());
        assert_success(way, &attacker.go_on());
    }
}

#[test]
#[ignore = "needs root: ./test --all"]
fn connections_of_one_user_that_say_nothing_keep_nobody_out() {
    let Some(scene) = Scene::set("silent") else { return };
    let mut crowd = scene.attacker("crowd");
    crowd.args(["silent", "3000"]);
    let crowd = Held::start(crowd);
    scene.assert_victim_works();
    assert_success("the crowd", &crowd.go_on());
}

#[test]
#[ignore = "needs root: ./test --all"]
fn requests_of_some_users_that_wait_leave_places_to_others() {
    let Some(scene) = Scene::set("waiting") else { return };
    // More than the daemon's limits allow.
    let crowds: Vec<Held> = (0..5)
        .map(|n| {
            let mut crowd = scene.attacker_of(ATTACKER + n, "crowd");
            crowd.args([if n == 0 { "waiting" } else { "crowded" }, "1100"]);
            Held::start(crowd)
        })
        .collect();
    scene.assert_victim_works();
    for crowd in crowds {
        assert_success("a crowd", &crowd.go_on());
    }
}

/// Runs an attacker that blocks a closing thread of the daemon by a FUSE file, and checks that another user's
/// programs work meanwhile.
fn assert_fuse_attack_harms_only_its_user(scene: &'static str, program: &str) {
    let Some(scene) = Scene::set(scene) else { return };
    let victim = Held::start(scene.victim("victim", &["hold"]));
    // The program switches to the other user once it has the device, which belongs to root on some hosts.
    let mut attacker = Command::new(scene.program(program));
    attacker.arg(ATTACKER.to_string()).env("SWIFTWATER_DAEMON", &scene.daemon.place);
    let Some(attacker) = Held::start_or_skip(attacker) else {
        return tools::skip("no FUSE for users here");
    };
    scene.assert_victim_works();
    assert_success("the victim", &victim.go_on());
    assert_success("the attacker", &attacker.go_on());
}

#[test]
#[ignore = "needs root: ./test --all"]
fn a_file_that_is_never_closed_keeps_only_its_user_waiting() {
    assert_fuse_attack_harms_only_its_user("file", "blocking_file");
}

#[test]
#[ignore = "needs root: ./test --all"]
fn a_page_whose_inode_is_locked_keeps_only_its_user_waiting() {
    assert_fuse_attack_harms_only_its_user("inode", "locked_inode");
}

#[test]
#[ignore = "needs root: ./test --all"]
fn a_pair_whose_lock_is_held_keeps_only_its_user_waiting() {
    for way in ["many", "listener"] {
        let Some(scene) = Scene::set("pair") else { return };
        let victim = Held::start(scene.victim("victim", &["hold"]));
        // The program switches to the other user once it has the device.
        let mut attacker = Command::new(scene.program("locked_pair"));
        attacker.args([&ATTACKER.to_string(), way]).env("SWIFTWATER_DAEMON", &scene.daemon.place);
        let Some(attacker) = Held::start_or_skip(attacker) else {
            return tools::skip("no FUSE for users here");
        };
        scene.assert_victim_works();
        assert_success("the victim", &victim.go_on());
        assert_success(way, &attacker.go_on());
    }
}

#[test]
#[ignore = "needs root: ./test --all"]
fn a_user_who_fills_the_log_hides_no_line_of_another_user() {
    let Some(mut scene) = Scene::set("chatter") else { return };
    let chatter = |user, turns: u32| {
        let mut command = scene.attacker_of(user, "chatter");
        command.arg(turns.to_string());
        assert_success("the attacker", &output(command));
    };
    chatter(ATTACKER, CHATTER_TURNS);
    chatter(ATTACKER + 1, 1);
    scene.assert_victim_works();
    let process = Pid::from_raw(scene.daemon.process.id() as i32);
    kill(process, Signal::SIGTERM).expect("it runs");
    let mut said = String::new();
    scene.daemon.process.stderr.take().expect("it is piped").read_to_string(&mut said).expect("text");
    let lines_of = |user| said.matches(&format!("of user {user} sent a malformed request")).count();
    assert!((1..=LINES_OF_USER_MAX).contains(&lines_of(ATTACKER)), "{said}");
    assert_eq!(lines_of(ATTACKER + 1), 1, "{said}");
    assert!(said.contains("omitted"), "the log says that there were more: {said}");
}

#[test]
#[ignore = "needs root: ./test --all"]
fn subordinate_ids_of_one_user_hide_no_line_of_another_user() {
    let Some(mut scene) = Scene::set("lent") else { return };
    let (program, began) = (scene.program("chatter"), Instant::now());
    let chatter = |user, turns: u32| {
        let mut command = Command::new(&program);
        command.env("SWIFTWATER_DAEMON", &scene.daemon.place).uid(user).gid(user).current_dir("/");
        command.arg(turns.to_string());
        assert_success("the attacker", &output(command));
    };
    let lent = SUBORDINATE_MIN..SUBORDINATE_MIN + SUBORDINATE_IDS;
    lent.clone().for_each(|user| chatter(user, SUBORDINATE_TURNS));
    chatter(ATTACKER, 1);
    scene.assert_victim_works();
    let process = Pid::from_raw(scene.daemon.process.id() as i32);
    kill(process, Signal::SIGTERM).expect("it runs");
    let mut said = String::new();
    scene.daemon.process.stderr.take().expect("it is piped").read_to_string(&mut said).expect("text");
    let lines_of = |user| said.matches(&format!("of user {user} sent a malformed request")).count() as u64;
    assert_eq!(lines_of(ATTACKER), 1, "{said}");
    let lines: u64 = lent.map(lines_of).sum();
    // Another line may be due each second.
    assert!((1..=LINES_AT_ONCE + began.elapsed().as_secs() + 1).contains(&lines), "{lines} lines: {said}");
}

#[test]
#[ignore = "needs root: ./test --all"]
fn unread_messages_of_one_user_take_no_more_than_its_budget() {
    let Some(scene) = Scene::set("hoarder") else { return };
    scene.assert_victim_works();
    let before = scene.memory_bytes("VmRSS");
    let hoarder = Held::start(scene.neighbour("hoarder", &["100", "16000000"]));
    scene.assert_victim_works();
    let most = scene.memory_bytes("VmHWM");
    assert!(most <= before + USER_MEMORY_BYTES + SLACK_BYTES, "{before} before, {most} during");
    assert_success("the hoarder", &hoarder.go_on());
    let deadline = Instant::now() + PATIENCE;
    loop {
        let after = scene.memory_bytes("VmRSS");
        if after <= before + SLACK_BYTES {
            break;
        }
        assert!(Instant::now() < deadline, "{before} before, {after} after");
        thread::sleep(Duration::from_millis(100));
    }
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
#[ignore = "needs root: ./test --all"]
fn messages_of_a_peer_to_programs_that_do_not_read_take_no_more_than_the_budget() {
    const BUDGET_BYTES: u64 = 8 << 20;
    const ASSOCIATIONS: usize = 20;
    let Some(scene) = Scene::set_with("unread", "--user-unread-memory 8M") else { return };
    scene.assert_victim_works();
    let before = scene.memory_bytes("VmRSS");
    let reader = Held::start(scene.neighbour("unread", &["7301"]));
    let address = format!("127.0.0.1:7301/udp:{}", scene.daemon.udp_port());
    for _ in 0..ASSOCIATIONS {
        let association = swiftwater::Association::connect(address.as_str()).expect("it listens");
        // No ring holds as long a message. The window stops the sender, which ends with the daemon.
        thread::spawn(move || while association.send(&[0; 2 << 20]).is_ok() {});
    }
    wait_until("no message waits for memory", || scene.of_attacker("unread_waits") > 0);
    wait_until("the budget is not used", || scene.message_bytes() > BUDGET_BYTES / 2);
    scene.assert_victim_works();
    let (messages, most) = (scene.message_bytes(), scene.memory_bytes("VmHWM"));
    assert!(messages <= BUDGET_BYTES, "{messages} bytes");
    assert!(most <= before + ASSOCIATIONS as u64 * (2 << 20) + SLACK_BYTES, "{before} before, {most} during");
    assert_success("the reader", &reader.go_on());
    wait_until("memory was not given back", || scene.message_bytes() == 0);
    assert_eq!(scene.of_attacker("unread_bytes"), 0);
}

#[test]
#[ignore = "needs root: ./test --all"]
fn the_receive_windows_of_one_user_together_hold_no_more_than_its_memory() {
    const LIMIT_BYTES: u64 = 128 << 20;
    /// Each association has a window of 1 MiB. Many connect before the listener has accepted the others.
    const ASSOCIATIONS: usize = 300;
    /// Length that fits a record: no message lies in a memfd.
    const MESSAGE_BYTES: usize = 60_000;
    let Some(scene) = Scene::set("windows") else { return };
    let victim = Held::start(scene.victim("victim", &["hold"]));
    scene.assert_victim_works();
    let before = scene.memory_bytes("VmRSS");
    let reader = Held::start(scene.neighbour("unread", &["7302"]));
    let address = format!("127.0.0.1:7302/udp:{}", scene.daemon.udp_port());
    let associations: Vec<_> = (0..ASSOCIATIONS)
        .map(|_| {
            let association = swiftwater::Association::connect(address.as_str()).expect("it listens");
            let sender = association.clone();
            // The window stops the sender, which ends with the daemon.
            thread::spawn(move || while sender.send(&[0; MESSAGE_BYTES]).is_ok() {});
            association
        })
        .collect();
    let is_stopped = |association: &swiftwater::Association| {
        let statistics = association.statistics();
        statistics.is_none_or(|known| {
            known.send_buffered_bytes > MESSAGE_BYTES as u64 && known.peer_window_bytes < MESSAGE_BYTES as u64
        })
    };
    wait_until("the windows stay open", || associations.iter().all(is_stopped));
    let held = scene.of_attacker("received_bytes");
    assert!(held > LIMIT_BYTES / 2 && held <= LIMIT_BYTES, "{held} bytes");
    scene.assert_victim_works();
    assert_success("the victim", &victim.go_on());
    let most = scene.memory_bytes("VmHWM");
    assert!(most <= before + LIMIT_BYTES + SLACK_BYTES, "{before} before, {most} during");
    assert_success("the reader", &reader.go_on());
    wait_until("memory was not given back", || scene.memory_bytes("VmRSS") <= before + SLACK_BYTES);
    wait_until("it is charged for ever", || scene.of_attacker("received_bytes") == 0);
}

#[test]
#[ignore = "needs root: ./test --all"]
fn what_modules_unpack_for_one_user_takes_no_more_than_its_memory() {
    const BUDGET_BYTES: u64 = 8 << 20;
    /// A message may exceed the budget while no other one is unpacked.
    const MESSAGE_BYTES: u64 = 64 << 10;
    const ASSOCIATIONS: u64 = 200;
    /// Messages of 60,000 bytes. Together they have 300 MB; a module above `compress` holds 1 MiB for each association.
    const MESSAGES: u64 = 25;
    let rules = std::env::temp_dir().join(format!("swiftwater-inflate-{}", std::process::id()));
    std::fs::write(&rules, format!("user={ATTACKER} filter compress filter\n")).expect("a file");
    let script = format!(
        "exec \"$0\" \"$@\" --user-receive-memory 8M --user-memory 8M --autopush {}",
        rules.display()
    );
    let Some(scene) = Scene::set_by("inflate", &script) else { return };
    std::fs::remove_file(rules).expect("the daemon has read it");
    let victim = Held::start(scene.victim("victim", &["hold"]));
    scene.assert_victim_works();
    let before = scene.memory_bytes("RssAnon");
    let attacker =
        Held::start(scene.neighbour("inflate", &[&ASSOCIATIONS.to_string(), &MESSAGES.to_string()]));
    // Rings are in other memory.
    let (held, during) = (scene.of_attacker("received_bytes"), scene.memory_bytes("RssAnon"));
    println!("{before} bytes before, {during} during, {held} charged");
    assert!(held > BUDGET_BYTES / 2 && held <= BUDGET_BYTES + MESSAGE_BYTES, "{held} bytes are charged");
    assert!(during <= before + 2 * BUDGET_BYTES + SLACK_BYTES, "{before} before, {during} during");
    scene.assert_victim_works();
    assert_success("the victim", &victim.go_on());
    assert_success("the attacker, which reads all that it has sent", &attacker.go_on());
    wait_until("it is charged for ever", || scene.of_attacker("received_bytes") == 0);
}

#[test]
#[ignore = "needs root: ./test --all"]
fn the_pages_of_one_user_take_no_more_than_its_memory() {
    const BUDGET_BYTES: u64 = 1 << 20;
    /// Sizes of the status pages of a one-to-one and of a one-to-many socket, each with a page that may stay pinned.
    const PAGES_BYTES: [u64; 2] = [8 << 10, 68 << 10];
    let Some(scene) = Scene::set_with("pages", "--user-page-memory 1M") else { return };
    let victim = Held::start(scene.victim("victim", &["hold"]));
    let before = scene.memfd_bytes("status");
    let mut attacker = scene.attacker("pages");
    attacker.args(PAGES_BYTES.map(|bytes| (BUDGET_BYTES / bytes).to_string()));
    let attacker = Held::start(attacker);
    assert_eq!(scene.of_attacker("page_bytes"), BUDGET_BYTES);
    let most = scene.memfd_bytes("status");
    assert!(most > before && most <= before + BUDGET_BYTES, "{before} before, {most} during");
    scene.assert_victim_works();
    assert_success("the victim", &victim.go_on());
    assert_success("the attacker", &attacker.go_on());
    wait_until("it is charged for ever", || scene.of_attacker("page_bytes") == 0);
}

#[test]
#[ignore = "needs root: ./test --all"]
fn a_client_that_keeps_answers_keeps_no_memory() {
    let Some(scene) = Scene::set("curious") else { return };
    let mut attacker = scene.attacker("curious");
    attacker.args(["500", "200"]);
    assert_success("the attacker", &output(attacker));
    assert_eq!(scene.message_bytes(), 0);
    scene.assert_victim_works();
}

#[test]
#[ignore = "needs root: ./test --all"]
fn answers_with_descriptors_that_nobody_receives_keep_nobody_from_a_socket() {
    let Some(scene) = Scene::set_by("keeper", "ulimit -n 4096 && exec \"$0\" \"$@\"") else { return };
    let keeper = Held::start(scene.attacker("keeper"));
    scene.assert_victim_works();
    assert_success("the attacker", &keeper.go_on());
}

#[test]
#[ignore = "needs root: ./test --all"]
fn a_sharer_that_writes_into_a_page_disturbs_no_other_socket() {
    let Some(scene) = Scene::set("page-lock") else { return };
    let user = ATTACKER.to_string();
    let output = output(scene.victim("page_lock", &[&user]));
    assert_success("the victim", &output);
}

#[test]
#[ignore = "needs root: ./test --all"]
fn a_sharer_that_makes_the_calls_on_a_socket_slow_disturbs_no_other_socket() {
    let Some(scene) = Scene::set("slow-calls") else { return };
    let user = ATTACKER.to_string();
    let output = output(scene.victim("slow_calls", &[&user]));
    assert_success("the victim", &output);
}

#[test]
#[ignore = "needs root: ./test --all"]
fn a_program_that_sends_without_pause_delays_nobody() {
    for way in ["many", "gone"] {
        let Some(scene) = Scene::set("endless") else { return };
        let victim = Held::start(scene.victim("victim", &["hold"]));
        let attacker = Held::start(scene.neighbour("endless", &[way]));
        scene.assert_victim_works();
        assert_success("the victim", &victim.go_on());
        assert_success(way, &attacker.go_on());
    }
}

#[test]
#[ignore = "needs root: ./test --all"]
fn sockets_of_one_user_that_hold_a_port_at_many_addresses_delay_no_bind_of_another() {
    /// More than a comparison with each holder and its addresses allows before the alarm.
    const BINDS: &str = "1000";
    let Some(scene) = Scene::set("port-holders") else { return };
    let victim = Held::start(scene.victim("victim", &["hold"]));
    let holders = Held::start(scene.neighbour("port_holders", &["hold", "2500"]));
    assert_success("the binds", &output(scene.victim("port_holders", &[BINDS])));
    scene.assert_victim_works();
    assert_success("the victim", &victim.go_on());
    assert_success("the holders", &holders.go_on());
}

#[test]
#[ignore = "needs root: ./test --all"]
fn a_listener_and_a_user_have_so_many_associations_and_others_their_own() {
    let cases = [("--listener-associations 5", &["5"][..]), ("--user-associations 5", &["5", "full"])];
    for (arguments, expected) in cases {
        let Some(scene) = Scene::set_with("peers", arguments) else { return };
        let peers = Held::start(scene.neighbour("peers", expected));
        let victim = Held::start(scene.victim("victim", &["hold"]));
        scene.assert_victim_works();
        assert_success("the victim", &victim.go_on());
        assert_success(arguments, &peers.go_on());
    }
}

/// Checks that nothing is left of a program that leaves a socket in a queue, beside `others` sockets of its user.
fn assert_nothing_is_left(scene: &Scene, ways: &[&str], others: usize) {
    let victim = Held::start(scene.victim("victim", &["hold"]));
    for way in ways {
        // It never answers, and is there after the end of the program.
        let silent = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let port = silent.local_addr().expect("it is bound").port().to_string();
        assert_success(way, &output(scene.neighbour("in_flight", &[way, &port])));
        wait_until(&format!("{way}: its socket stays"), || scene.sockets_of_attacker() == others);
        assert_success(way, &output(scene.neighbour("in_flight", &["free", &port])));
    }
    scene.assert_victim_works();
    assert_success("the victim", &victim.go_on());
}

#[test]
#[ignore = "needs root: ./test --all"]
fn a_socket_in_the_queue_of_a_socket_does_not_outlive_its_program() {
    let unconnected = ["idle", "listening", "connecting", "mutual", "nested", "empty"];
    let others = ["many", "full", "shut", "answer"];
    let Some(scene) = Scene::set("in-flight") else { return };
    assert_nothing_is_left(&scene, &[&unconnected[..], &others].concat(), 0);
}

#[test]
#[ignore = "needs root: ./test --all"]
fn a_socket_in_the_queue_of_a_user_without_memory_does_not_outlive_its_program() {
    /// Length that fits a record, and number of messages: more than the memory and the ring of a socket hold.
    const MESSAGE_BYTES: &str = "60000";
    const MESSAGES: &str = "100";
    let Some(scene) = Scene::set_with("in-flight-short", "--user-memory 1M") else { return };
    let hoarder = Held::start(scene.neighbour("hoarder", &[MESSAGES, MESSAGE_BYTES]));
    wait_until("the user has memory", || scene.of_attacker("sent_waits") > 0);
    let sent_bytes = scene.of_attacker("sent_bytes");
    // The daemon reads the pair of a one-to-many socket at all times but then.
    assert_nothing_is_left(&scene, &["many"], 1);
    assert_eq!(scene.of_attacker("sent_bytes"), sent_bytes, "the user had memory meanwhile");
    assert_success("the hoarder", &hoarder.go_on());
}
