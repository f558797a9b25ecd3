//! A daemon for one test.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use swiftwater_tests::programs;

pub(crate) const SWIFTWATER: &str = env!("CARGO_BIN_EXE_swiftwater");

/// Time that a program may take to begin.
const PATIENCE: Duration = Duration::from_secs(30);

/// A daemon for one test.
pub(crate) struct Daemon {
    pub(crate) process: Child,
    /// Its address, as in `SWIFTWATER_DAEMON`.
    pub(crate) place: String,
    /// Line that it prints when it is ready.
    said: String,
}

#[allow(dead_code, reason = "not all test programs need all")]
impl Daemon {
    pub(crate) fn start(test: &str) -> Daemon {
        Daemon::start_with(test, Command::new(SWIFTWATER))
    }

    /// Starts a daemon through a command that runs `swiftwater` with given arguments.
    pub(crate) fn start_with(test: &str, command: Command) -> Daemon {
        Daemon::start_by(test, "0", command)
    }

    /// Starts a daemon with this UDP port.
    pub(crate) fn start_at(test: &str, udp_port: &str) -> Daemon {
        Daemon::start_by(test, udp_port, Command::new(SWIFTWATER))
    }

    fn start_by(test: &str, udp_port: &str, mut command: Command) -> Daemon {
        let place = format!("@swiftwater-test-{test}-{}", std::process::id());
        let mut process = command
            .args(["daemon", "--udp-port", udp_port, "--place", &place])
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        let mut line = String::new();
        BufReader::new(process.stderr.as_mut().expect("it is piped")).read_line(&mut line).expect("a line");
        assert!(line.contains("SCTP in UDP, port "), "{line}");
        Daemon { process, place, said: line }
    }

    /// Returns the UDP port that carries its SCTP.
    pub(crate) fn udp_port(&self) -> u16 {
        let port =
            self.said.split("SCTP in UDP, port ").nth(1).and_then(|rest| rest.split_whitespace().next());
        port.and_then(|port| port.parse().ok()).expect("a port")
    }

    /// Returns a command for a program under `swiftwater run`.
    pub(crate) fn run(&self, program: impl AsRef<OsStr>) -> Command {
        preload();
        let mut command = Command::new(SWIFTWATER);
        command.args(["run", "--quiet", "--"]).arg(program).env("SWIFTWATER_DAEMON", &self.place);
        command
    }

    /// Waits until a program listens on this port.
    pub(crate) fn await_listener(&self, port: u16) {
        let end = format!(":{port}");
        let is_it = |row: &serde_json::Value| {
            row["state"] == "listening" && row["local"].as_str().is_some_and(|local| local.ends_with(&end))
        };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = Command::new(SWIFTWATER).args(["status", "--json", "--place", &self.place]).output();
            let rows = serde_json::from_slice(&status.expect("the command starts").stdout);
            let rows: Vec<serde_json::Value> = rows.unwrap_or_default();
            if rows.iter().any(is_it) {
                return;
            }
            assert!(Instant::now() < deadline, "nobody listens on port {port}: {rows:?}");
        }
    }

    /// Returns whether programs can still connect to it.
    pub(crate) fn lets_in(&self) -> bool {
        let name = self.place.strip_prefix('@').expect("an abstract name");
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("a short name");
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        connect(socket.expect("a socket"), &address).is_ok()
    }

    /// Kills it as a crash would.
    pub(crate) fn kill(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Compiles a program of the shim's tests, `NAME.c`.
#[allow(dead_code, reason = "not all test programs have programs in C")]
pub(crate) fn compiled(name: &str, test: &str) -> PathBuf {
    compiled_from(Path::new("../../crates/preload/tests/sockets"), name, test)
}

/// Compiles `FOLDER/NAME.c` for a test.
#[allow(dead_code, reason = "not all test programs have programs in C")]
pub(crate) fn compiled_from(folder: &Path, name: &str, test: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(name).with_extension("c");
    let kind = folder.file_name().and_then(OsStr::to_str).expect("a folder has a name");
    programs::compiled(&source, &format!("{kind}-{test}"), &[])
}

/// Builds the shim beside the command, where `run` looks for it.
pub(crate) fn preload() {
    programs::shim();
}

/// Returns a command for a program in its own network and process namespaces, which end with it.
#[allow(dead_code, reason = "not all test programs have daemons that start by themselves")]
pub(crate) fn alone(program: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]);
    // The shell stays the parent: the first process of a process namespace adopts orphans.
    command.args(["sh", "-c", "ip link set lo up; \"$@\"; exit $?", "sh"]).arg(program);
    command.env_remove("SWIFTWATER_DAEMON");
    command
}
