//! Local users who mean harm, each a program in `tests/hostile`, beside a victim who goes on working.
//!
//! The daemon and the victim are root's. An attacker has a user of its own without capabilities; some move to user and network
//! namespaces of their own. Nothing here is measured: what the daemon does not withstand lets a program hang until its alarm
//! ends it, or fails one of its checks.
#![allow(missing_docs)]

mod daemon;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use daemon::{Daemon, compiled_from};
use swiftwater_tests::tools;

/// Who attacks: nobody whom the system knows.
const ATTACKER: u32 = 41_001;
/// How an attacker ends that may not do here what it wants to.
const SKIPPED: i32 = 77;

/// A daemon of root's, and the programs that meet there.
struct Scene {
    daemon: Daemon,
    test: &'static str,
}

impl Scene {
    /// Returns nothing where the test is reported as skipped.
    fn set(test: &'static str) -> Option<Scene> {
        if !std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0) {
            tools::skip("only root becomes other users");
            return None;
        }
        Some(Scene { daemon: Daemon::start(&format!("hostile-{test}")), test })
    }

    fn program(&self, name: &str) -> std::path::PathBuf {
        compiled_from(Path::new("tests/hostile"), name, &format!("{}-{name}", self.test))
    }

    /// A program of another user, which speaks to the daemon without the shim.
    fn attacker(&self, name: &str) -> Command {
        let mut command = Command::new(self.program(name));
        command.env("SWIFTWATER_DAEMON", &self.daemon.place).uid(ATTACKER).gid(ATTACKER).current_dir("/");
        command
    }

    /// A program of root's under `swiftwater run`.
    fn victim(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = self.daemon.run(self.program(name));
        command.args(arguments);
        command
    }

    /// The victim opens, connects, talks and closes, as if nobody else were there.
    fn assert_victim_works(&self) {
        let output = self.victim("victim", &[]).output().expect("the command starts");
        assert_success("the victim", &output);
    }
}

fn assert_success(what: &str, output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {}: {said}", output.status);
}

/// A program that has done what it is for and waits.
struct Held(Child);

impl Held {
    fn start(mut command: Command) -> Held {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().expect("the command starts");
        let mut line = String::new();
        let said = child.stdout.as_mut().expect("it is piped");
        BufReader::new(said).read_line(&mut line).expect("a line");
        if line != "ready\n" {
            let output = child.wait_with_output().expect("it ends");
            panic!("it is not ready: {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
        }
        Held(child)
    }

    /// Lets it go on, and says how it ends.
    fn go_on(mut self) -> Output {
        drop(self.0.stdin.take());
        self.0.wait_with_output().expect("it ends")
    }
}

#[test]
#[ignore = "needs root: ./test --all"]
fn nobody_gets_at_a_socket_by_the_name_of_its_carrier() {
    let Some(scene) = Scene::set("proof") else { return };
    let victim = Held::start(scene.victim("victim", &["hold"]));
    let thief = scene.attacker("forged_proof").output().expect("it starts");
    assert_success("the victim", &victim.go_on());
    if thief.status.code() == Some(SKIPPED) {
        return tools::skip("no user namespaces for users here");
    }
    assert_success("the thief", &thief);
}

#[test]
fn a_server_keeps_reading_whatever_its_clients_are_called() {
    let daemon = Daemon::start("hostile-name");
    let program = compiled_from(Path::new("tests/hostile"), "forged_name", "name");
    assert_success("the server", &daemon.run(program).output().expect("the command starts"));
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
