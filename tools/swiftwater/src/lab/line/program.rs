//! Programs on the hosts.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use netns::private::{exit_code, forget_inside};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::LineError;
use super::hosts::{ENDS, End, Hosts, address};
use crate::interrupt;
use crate::output::note;
use crate::run::ADDRESS_VARIABLE;

/// Interval at which the end of a program and Ctrl-C are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Time that a program may take to end when asked to.
const END_WAIT: Duration = Duration::from_secs(2);
/// Time that a program may take to end after Ctrl-C, which a terminal sends to it, too. A second signal would cut its report.
const INTERRUPTED_WAIT: Duration = Duration::from_secs(1);
/// Time that a server may take to open a socket, before the client starts nevertheless.
const SERVER_WAIT: Duration = Duration::from_secs(5);
/// Names the hosts of the laboratory to a program inside: client, then server.
pub(super) const HOSTS_VARIABLE: &str = "SWIFTWATER_LAB_HOSTS";
/// The state of a TCP socket in /proc/net/tcp that listens.
const TCP_LISTENS: &str = "0A";

/// A program that runs on a host.
#[derive(Debug)]
pub(super) struct Program {
    name: String,
    child: Child,
}

impl Program {
    /// Starts a program. `output` is its standard output.
    pub(super) fn start<S: AsRef<OsStr>>(
        hosts: &Hosts,
        end: End,
        paths: usize,
        words: &[S],
        output: Stdio,
    ) -> Result<Self, LineError> {
        let Some((program, arguments)) = words.split_first() else {
            let source = io::ErrorKind::InvalidInput.into();
            return Err(LineError::Program { name: String::new(), source });
        };
        let name = program.as_ref().display().to_string();
        let mut command = Command::new(program);
        command.args(arguments).stdout(output);
        // A daemon outside the laboratory would serve neither host.
        command.env_remove(ADDRESS_VARIABLE);
        forget_inside(&mut command);
        command.env(HOSTS_VARIABLE, ENDS.map(|end| hosts.host(end).name()).join(","));
        for (variable, end) in [("LAB_CLIENT", End::Client), ("LAB_SERVER", End::Server)] {
            let addresses: Vec<String> = (0..paths).map(|path| address(path, end)).collect();
            command.env(variable, addresses.join(","));
        }
        match hosts.host(end).spawn(&mut command) {
            Ok(child) => Ok(Program { name, child }),
            Err(source) => Err(LineError::Program { name, source }),
        }
    }

    /// Starts the command line of a server.
    pub(super) fn start_server(
        hosts: &Hosts,
        paths: usize,
        line: &str,
        output: Stdio,
    ) -> Result<Self, LineError> {
        let server = Self::start(hosts, End::Server, paths, &["sh", "-c", line], output)?;
        Ok(Self { name: line.to_owned(), ..server })
    }

    /// Waits for the end and returns the status. After Ctrl-C, which a terminal also sends to the program, kills the program if
    /// it has not ended within [`INTERRUPTED_WAIT`] and [`END_WAIT`].
    pub(super) fn wait(&mut self) -> Result<u8, LineError> {
        let mut deadline = None;
        while deadline.is_none_or(|deadline| Instant::now() < deadline) {
            if let Some(code) = self.has_ended()? {
                return Ok(code);
            }
            if deadline.is_none() && interrupt::requested() {
                deadline = Some(Instant::now() + INTERRUPTED_WAIT);
            }
            thread::sleep(CHECK_INTERVAL);
        }
        self.end()
    }

    /// Asks the program to end, kills it after a while, and returns the status.
    pub(super) fn end(&mut self) -> Result<u8, LineError> {
        let deadline = Instant::now() + END_WAIT;
        if self.has_ended()?.is_none() {
            // The child was not waited for yet, so its number is still its own.
            let _ = kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM);
        }
        loop {
            if let Some(code) = self.has_ended()? {
                return Ok(code);
            }
            if Instant::now() > deadline {
                let _ = self.child.kill();
            }
            thread::sleep(CHECK_INTERVAL);
        }
    }

    fn has_ended(&mut self) -> Result<Option<u8>, LineError> {
        let ended = self.child.try_wait();
        let named = |source| LineError::Program { name: self.name.clone(), source };
        Ok(ended.map_err(named)?.map(exit_code))
    }

    /// Waits until a socket of the server's host can be reached. Returns the status of a program that ends before.
    pub(super) fn wait_until_open(&mut self, hosts: &Hosts) -> Result<Option<u8>, LineError> {
        let deadline = Instant::now() + SERVER_WAIT;
        while !interrupt::requested() {
            if hosts.host(End::Server).run(has_open_socket).unwrap_or(false) {
                return Ok(None);
            }
            if let Some(code) = self.has_ended()? {
                return Ok(Some(code));
            }
            if Instant::now() > deadline {
                note(format_args!("`{}` has no socket open yet; the client starts nevertheless", self.name));
                break;
            }
            thread::sleep(CHECK_INTERVAL);
        }
        Ok(None)
    }
}

/// Returns whether a socket of this thread's host is open to peers: a TCP or UDP socket, and thereby SCTP in UDP.
fn has_open_socket() -> bool {
    let lines = |file: &str| {
        let text = fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default();
        text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    let listens = |line: &String| line.split_whitespace().nth(3) == Some(TCP_LISTENS);
    ["tcp", "tcp6"].iter().any(|file| lines(file).iter().any(listens))
        || ["udp", "udp6"].iter().any(|file| !lines(file).is_empty())
}
