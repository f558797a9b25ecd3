//! Tests of `swiftwater status` as a user runs it, and of a user's limits in the daemon.
#![allow(missing_docs)]

mod daemon;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use daemon::{Daemon, SWIFTWATER, compiled};

/// A user without files and processes.
const NOBODY: u32 = 65534;

/// A program of the shim's tests that has reached the state that the test needs, and stays there.
struct Program(Child);

impl Program {
    fn start(mut command: Command, says: &str) -> Program {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut program = piped.spawn().expect("the command starts");
        let mut line = String::new();
        BufReader::new(program.stdout.as_mut().expect("it is piped")).read_line(&mut line).expect("a line");
        if line.trim_end() != says {
            let mut said = String::new();
            program.stderr.as_mut().expect("it is piped").read_to_string(&mut said).expect("text");
            panic!("{line}: {said}");
        }
        Program(program)
    }

    fn end(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().expect("it ends").success());
    }
}

fn rows(command: &mut Command, place: &str) -> Vec<Value> {
    let output = command.args(["status", "--json", "--place", place]).output().expect("the command starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows: Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    rows.as_array().expect("an array").clone()
}

#[test]
fn messages_take_the_path_to_the_address_that_they_name() {
    let daemon = Daemon::start("over");
    let program = Program::start(daemon.run(compiled("over", "over")), "ready");
    let rows = rows(&mut Command::new(SWIFTWATER), &daemon.place);
    let sent_to = |peer: &str| {
        let path = rows.iter().find(|row| row["remote"] == peer).expect("a path");
        path["packets_sent"].as_u64().expect("a number")
    };
    let (first, second) = (sent_to("127.0.0.1"), sent_to("127.0.0.2"));
    assert!(second >= 200 && first < 100, "{first} packets to the first address, {second} to the second");
    program.end();
}

#[test]
fn sockets_associations_and_paths_are_shown() {
    let daemon = Daemon::start("status");
    let mut command = daemon.run(compiled("table", "status"));
    command.arg("shown");
    let program = Program::start(command, "ready");
    let rows = rows(&mut Command::new(SWIFTWATER), &daemon.place);
    let documented = include_str!("../../../docs/json.md");
    for (key, value) in rows.iter().flat_map(|row| row.as_object().expect("objects")) {
        assert!(!value.is_object() && !value.is_array(), "{key} is not flat");
        assert!(documented.contains(&format!("`{key}`")), "{key} is missing in docs/json.md");
    }
    let of = |kind: &str| rows.iter().filter(|row| row["row"] == kind).collect::<Vec<_>>();
    let local = |row: &Value, port: &str| row["local"].as_str().is_some_and(|local| local.ends_with(port));
    let sockets = of("socket");
    let listener = sockets.iter().find(|row| local(row, ":5301")).expect("the listener");
    assert!(listener["state"] == "listening" && listener["style"] == "one-to-one", "{listener}");
    assert_eq!(listener["carrier_bytes"], 0, "what fills it counts for nothing");
    let many = sockets.iter().find(|row| row["style"] == "one-to-many").expect("the one-to-many socket");
    assert!(many["state"] == "listening" && many["process"] == program.0.id(), "{many}");
    let left = sockets.iter().find(|row| local(row, ":5304")).expect("the one whose peer is gone");
    assert_eq!(left["state"], "ended", "{left}");
    let mut associations = of("association");
    // Messages of the other association may still be on their way.
    associations.retain(|row| row["state"] == "ESTABLISHED");
    assert_eq!(associations.len(), 4, "two, each from both ends: {associations:?}");
    let sent = associations.iter().find(|row| row["bytes_sent"] == 5).expect("who has sent");
    let received = associations.iter().find(|row| row["bytes_received"] == 5).expect("who has received");
    assert_eq!(sent["peer"].as_str().map(|peer| peer.ends_with(":5302")), Some(true), "{sent}");
    let from = received["peer"].as_str().expect("an address");
    assert!(sent["local"].as_str().is_some_and(|local| local.split(',').any(|one| one == from)), "{sent}");
    let daemons = of("daemon");
    let [daemon_row] = &daemons[..] else { panic!("{daemons:?}") };
    let counted = |key: &str| daemon_row[key].as_u64().expect("a number");
    assert_eq!(daemon_row["process"], daemon.process.id());
    assert!(counted("accepted") >= 2 && counted("datagrams_turned_back") > 0, "{daemon_row}");
    assert!(of("path").iter().any(|row| row["primary"] == true && row["state"] == "active"), "{rows:?}");

    let output =
        Command::new(SWIFTWATER).args(["status", "--place", &daemon.place]).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.lines().any(|line| line.starts_with("LISTEN") && line.contains(":5301")), "{text}");
    assert!(text.lines().any(|line| line.starts_with("`- ESTAB")), "{text}");
    program.end();
}

#[test]
fn a_watch_says_the_rates() {
    let daemon = Daemon::start("watch");
    let mut command = daemon.run(compiled("table", "watch"));
    command.arg("shown");
    let program = Program::start(command, "ready");
    let mut watch = Command::new(SWIFTWATER)
        .args(["status", "--watch", "0.05", "--json", "--place", &daemon.place])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let lines = BufReader::new(watch.stdout.as_mut().expect("it is piped")).lines().map_while(Result::ok);
    let looks: Vec<Value> = lines.take(2).map(|line| serde_json::from_str(&line).expect("JSON")).collect();
    watch.kill().expect("it runs");
    watch.wait().expect("it was killed");
    let rated = |look: &Value| {
        look.as_array()
            .expect("an array")
            .iter()
            .filter(|row| row["sent_bits_per_s"] == 0.0 && row["state"] == "ESTABLISHED")
            .count()
    };
    assert_eq!((rated(&looks[0]), rated(&looks[1])), (0, 4), "nothing is known before the second look");
    program.end();
}

#[test]
fn without_a_daemon_it_says_so() {
    let output = Command::new(SWIFTWATER)
        .args(["status", "--place", "@swiftwater-test-nobody"])
        .output()
        .expect("the command starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("no daemon is running there"), "{said}");
}

/// Least number of descriptors with which a daemon starts.
const DESCRIPTORS_MIN: u32 = 512;

/// Returns a command for `swiftwater` with so many descriptors.
fn with_descriptors(descriptors: u32) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("ulimit -n {descriptors} && exec \"$0\" \"$@\"")).arg(SWIFTWATER);
    command
}

/// Starts a daemon with so many descriptors.
fn small_daemon(test: &str, descriptors: u32) -> Daemon {
    Daemon::start_with(test, with_descriptors(descriptors))
}

#[test]
fn with_too_few_descriptors_no_daemon_starts() {
    let place = format!("@swiftwater-test-few-{}", std::process::id());
    let output = with_descriptors(DESCRIPTORS_MIN - 1)
        .args(["daemon", "--udp-port", "0", "--place", &place])
        .output()
        .expect("the command starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("ulimit -n"), "{said}");
}

#[test]
fn one_user_does_not_get_all_sockets() {
    let daemon = small_daemon("full", DESCRIPTORS_MIN);
    let mut command = daemon.run(compiled("table", "full"));
    command.arg("full");
    Program::start(command, "full").end();
}

/// Copies files into a folder that every user may enter, for another user to run.
fn public(files: &[&Path]) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("swiftwater-test-public-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder of our own");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("our own folder");
    for file in files {
        fs::copy(file, folder.join(file.file_name().expect("a file"))).expect("a file of our own");
    }
    folder
}

#[test]
#[ignore = "needs root, for a second user: ./test --all"]
fn users_see_and_use_their_own() {
    let daemon = small_daemon("users", 2 * DESCRIPTORS_MIN);
    let program = compiled("table", "users");
    // Running a program builds the shim.
    let mut roots = daemon.run(&program);
    roots.arg("full");
    let roots = Program::start(roots, "full");

    let shim = Path::new(SWIFTWATER).with_file_name("libswiftwater_preload.so");
    let folder = public(&[Path::new(SWIFTWATER), &shim, &program]);
    let nobodys = |name: &str| {
        let mut command = Command::new(folder.join(name));
        command.uid(NOBODY).gid(NOBODY).env("SWIFTWATER_DAEMON", &daemon.place).current_dir("/");
        command
    };
    let mut command = nobodys("swiftwater");
    command
        .args(["run", "--quiet", "--"])
        .arg(folder.join(program.file_name().expect("a file")))
        .arg("shown");
    let other = Program::start(command, "ready");
    let all = rows(&mut Command::new(SWIFTWATER), &daemon.place);
    let own = rows(&mut nobodys("swiftwater"), &daemon.place);
    other.end();
    roots.end();
    fs::remove_dir_all(&folder).expect("our own folder");
    let counters = |rows: &[Value]| {
        let daemon = rows.iter().find(|row| row["row"] == "daemon").expect("a row");
        daemon["packets_sent"].as_u64()
    };
    assert_eq!((counters(&all).is_some(), counters(&own)), (true, None), "they are of all users together");
    assert!(own.iter().any(|row| row["user"] == NOBODY) && own.iter().all(|row| row["user"] != 0), "{own:?}");
    assert!(all.len() > own.len() && all.iter().any(|row| row["user"] == 0), "{all:?}");
}
