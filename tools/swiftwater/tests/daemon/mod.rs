//! A daemon that a test has to itself.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

pub(crate) const SWIFTWATER: &str = env!("CARGO_BIN_EXE_swiftwater");

/// A daemon that a test has to itself.
pub(crate) struct Daemon {
    pub(crate) process: Child,
    /// Where it is, as `SWIFTWATER_DAEMON` names it.
    pub(crate) place: String,
}

impl Daemon {
    pub(crate) fn start(test: &str) -> Daemon {
        let place = format!("@swiftwater-test-{test}-{}", std::process::id());
        let mut process = Command::new(SWIFTWATER)
            .args(["daemon", "--udp-port", "0", "--place", &place])
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        let mut line = String::new();
        BufReader::new(process.stderr.as_mut().expect("it is piped")).read_line(&mut line).expect("a line");
        assert!(line.contains("SCTP in UDP, port "), "{line}");
        Daemon { process, place }
    }

    /// A program under `swiftwater run`.
    pub(crate) fn run(&self, program: impl AsRef<OsStr>) -> Command {
        preload();
        let mut command = Command::new(SWIFTWATER);
        command.args(["run", "--quiet", "--"]).arg(program).env("SWIFTWATER_DAEMON", &self.place);
        command
    }

    /// Kills it as a crash would.
    pub(crate) fn kill(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Builds the shim beside the command, where `run` looks for it.
pub(crate) fn preload() {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| {
        let target = Path::new(SWIFTWATER).parent().and_then(Path::parent).expect("a target folder");
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "-p", "swiftwater-preload", "--target-dir"])
            .arg(target)
            .status()
            .expect("cargo is there");
        assert!(built.success());
    });
}
