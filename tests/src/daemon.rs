//! A daemon for one test, without the command: the test program itself, run once more.
//!
//! A test program that starts daemons has the test
//!
//! ```no_run
//! #[test]
//! fn daemon_of_a_test() {
//!     swiftwater_tests::daemon::serve_or_check();
//! }
//! ```

use std::env;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader};
use std::process::{self, Child, Command, Stdio};
use std::thread;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use swiftwater::StackOptions;
pub use swiftwater_daemon::REQUEST_WAIT;
use swiftwater_daemon::{DaemonAddress, DaemonOptions};

use crate::programs;

/// Test that serves in the process of a daemon.
const SERVING_TEST: &str = "daemon_of_a_test";
/// Environment variable that makes this test serve, with the address of the daemon.
const SERVE_VARIABLE: &str = "SWIFTWATER_TEST_DAEMON";

/// A daemon for one test, which ends with this value.
#[derive(Debug)]
pub struct Daemon {
    process: Child,
    /// Address of the daemon, as in `SWIFTWATER_DAEMON`.
    pub place: String,
    description: String,
}

impl Daemon {
    /// Starts a daemon with default options, on any UDP port.
    ///
    /// # Panics
    ///
    /// If it does not start.
    #[must_use]
    pub fn start(test: &str) -> Daemon {
        Daemon::start_by(test, Command::new(env::current_exe().expect("a test program has a file")))
    }

    /// Starts a daemon whose address is a path.
    ///
    /// # Panics
    ///
    /// If it does not start.
    #[must_use]
    pub fn start_at_path(test: &str) -> Daemon {
        let path = env::temp_dir().join(format!("swiftwater-test-{test}-{}", process::id()));
        let place = path.into_os_string().into_string().expect("a name in UTF-8");
        Daemon::start_at(place, Command::new(env::current_exe().expect("a test program has a file")))
    }

    /// Starts a daemon by a command that runs this test program with given arguments.
    ///
    /// # Panics
    ///
    /// If it does not start.
    #[must_use]
    pub fn start_by(test: &str, command: Command) -> Daemon {
        Daemon::start_at(format!("@swiftwater-test-{test}-{}", process::id()), command)
    }

    fn start_at(place: String, mut command: Command) -> Daemon {
        let mut process = command
            .args([SERVING_TEST, "--exact", "--nocapture"])
            .env(SERVE_VARIABLE, &place)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the test program starts");
        let mut description = String::new();
        let mut said = BufReader::new(process.stderr.as_mut().expect("it is piped"));
        said.read_line(&mut description).expect("a line");
        assert!(description.contains("SCTP in UDP, port "), "{description}");
        Daemon { process, place, description }
    }

    /// Returns its process.
    #[must_use]
    pub fn process(&self) -> &Child {
        &self.process
    }

    /// Returns the UDP port that carries its SCTP.
    ///
    /// # Panics
    ///
    /// If its description has no port.
    #[must_use]
    pub fn udp_port(&self) -> u16 {
        let rest = self.description.split("SCTP in UDP, port ").nth(1);
        let port = rest.and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
        port.and_then(|port| port.parse().ok()).expect("a port")
    }

    /// Returns a command for a program with the shim.
    pub fn run(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env("LD_PRELOAD", programs::shim())
            .env("SWIFTWATER_DAEMON", &self.place)
            .env("SWIFTWATER_QUIET", "1")
            // AddressSanitizer insists on being the first library of a program, and the shim is.
            .env("ASAN_OPTIONS", "verify_asan_link_order=0");
        command
    }

    /// Kills the daemon as a crash would.
    pub fn kill(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
        if !self.place.starts_with('@') {
            let _ = std::fs::remove_file(&self.place);
        }
    }
}

/// Serves programs until standard input ends, in a process that [`Daemon::start`] has started. In any other, checks that such a
/// process takes requests.
///
/// # Panics
///
/// If the daemon does not start, or fails.
pub fn serve_or_check() {
    let Ok(place) = env::var(SERVE_VARIABLE) else {
        let daemon = Daemon::start(SERVING_TEST);
        let described = DaemonAddress::from(&*daemon.place).describe().expect("it takes requests");
        assert_eq!(described.process.cast_unsigned(), daemon.process.id());
        return;
    };
    // Each socket of a program costs the daemon two descriptors.
    let maximum = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let stack = StackOptions::default().with_udp_port(0).with_hairpin(true);
    let options = DaemonOptions { address: DaemonAddress::from(&*place), stack, ..DaemonOptions::default() };
    let daemon = swiftwater_daemon::Daemon::bind(&options).expect("the daemon starts");
    thread::spawn(|| {
        // The end and a failure mean the same: the test has ended.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        process::exit(0);
    });
    eprintln!("{}", daemon.description());
    daemon.run().expect("the daemon serves");
}
