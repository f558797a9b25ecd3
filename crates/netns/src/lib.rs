//! Private hosts of a measurement or a test: network namespaces, connected by lines.
//!
//! A namespace has no name in the file system. A descriptor and the processes in it keep it alive, so nothing of a run
//! that was killed is left. [`become_root`] lets a user without privileges make them, too, and [`private`] runs a whole
//! program in namespaces of its own.
#![forbid(unsafe_code)]

pub mod private;
mod user;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Output};
use std::thread;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};
use thiserror::Error;

pub use user::{NotAllowed, become_root, enter_user_namespace};

/// The namespace of the thread that looks.
const OWN_NAMESPACE: &str = "/proc/thread-self/ns/net";

/// Reason why a host could not be made, or a command failed there.
#[derive(Debug, Error)]
pub enum HostError {
    /// The system does not let this process make network namespaces.
    #[error("cannot make a network namespace: {0}; run this as root")]
    Refused(Errno),
    /// A namespace cannot be entered or kept.
    #[error("cannot enter a network namespace: {0}")]
    Enter(io::Error),
    /// A program is missing.
    #[error("cannot run `{line}`: {source}; install iproute2")]
    NoTool {
        /// The command.
        line: String,
        /// Error of the system.
        source: io::Error,
    },
    /// A program was ended, as by Ctrl-C.
    #[error("`{line}` was ended by {status}")]
    Ended {
        /// The command.
        line: String,
        /// Its end, with the signal.
        status: ExitStatus,
    },
    /// A program failed.
    #[error("`{line}` failed: {said}; the kernel or the container may not allow it")]
    Tool {
        /// The command.
        line: String,
        /// Error output of the program.
        said: String,
    },
}

/// A host that has nothing but a loopback interface, which is down. It goes with this value and the processes in it.
#[derive(Debug)]
pub struct Host {
    namespace: File,
}

impl Host {
    /// Makes a host.
    ///
    /// # Errors
    ///
    /// This process may not make network namespaces.
    pub fn new() -> Result<Self, HostError> {
        let made = in_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET).map_err(HostError::Refused)?;
            File::open(OWN_NAMESPACE).map_err(HostError::Enter)
        });
        Ok(Host { namespace: made? })
    }

    /// Returns the host with this name, which another process holds or this one.
    ///
    /// # Errors
    ///
    /// There is no such host.
    pub fn named(name: &str) -> io::Result<Self> {
        Ok(Host { namespace: File::open(name)? })
    }

    /// Returns what `ip link add ... netns` calls this host while this process holds it.
    #[must_use]
    pub fn name(&self) -> String {
        // The process may have another number in the namespace of processes that /proc shows.
        let process =
            std::fs::read_link("/proc/self").unwrap_or_else(|_| std::process::id().to_string().into());
        format!("/proc/{}/fd/{}", process.display(), self.namespace.as_raw_fd())
    }

    /// Works on this host, in a thread of its own. Sockets that are opened meanwhile, processes and threads that are
    /// started stay there.
    ///
    /// # Errors
    ///
    /// The namespace cannot be entered.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        in_thread(|| {
            self.enter()?;
            Ok(work())
        })
    }

    /// Moves the calling thread to this host.
    ///
    /// # Errors
    ///
    /// The namespace cannot be entered.
    pub fn enter(&self) -> io::Result<()> {
        Ok(setns(&self.namespace, CloneFlags::CLONE_NEWNET)?)
    }

    /// Starts a program there.
    ///
    /// # Errors
    ///
    /// The namespace cannot be entered, or the program cannot be started.
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        self.run(|| command.spawn())?
    }

    /// Runs a command of `ip` there, of words without blanks.
    ///
    /// # Errors
    ///
    /// `ip` is missing, or it fails.
    pub fn ip(&self, words: &str) -> Result<(), HostError> {
        self.exec(&format!("ip {words}"))
    }

    /// Runs a command of words without blanks there.
    ///
    /// # Errors
    ///
    /// The program is missing, or it fails.
    pub fn exec(&self, line: &str) -> Result<(), HostError> {
        self.run(|| exec(line)).map_err(HostError::Enter)?
    }
}

/// Runs a command of words without blanks where the calling thread is.
///
/// # Errors
///
/// The program is missing, or it fails.
pub fn exec(line: &str) -> Result<(), HostError> {
    let output = output(line).map_err(|source| HostError::NoTool { line: line.to_owned(), source })?;
    judge(line, &output)
}

/// Returns the error of a command that failed.
fn judge(line: &str, output: &Output) -> Result<(), HostError> {
    if output.status.success() {
        return Ok(());
    }
    if output.status.signal().is_some() {
        return Err(HostError::Ended { line: line.to_owned(), status: output.status });
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(HostError::Tool { line: line.to_owned(), said })
}

fn output(line: &str) -> io::Result<Output> {
    let mut words = line.split(' ');
    Command::new(words.next().unwrap_or_default()).args(words).output()
}

/// Runs `work` in a thread of its own, whose namespaces may change.
fn in_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| match scope.spawn(work).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_command_that_a_signal_ends_was_not_refused_by_the_kernel() {
        let said = |status, stderr: &str| {
            let status = ExitStatus::from_raw(status);
            let output = Output { status, stdout: Vec::new(), stderr: stderr.as_bytes().to_vec() };
            judge("ip link set lo up", &output).expect_err("it failed").to_string()
        };
        // As wait(2) reports them: the end by SIGINT, and `exit 2`.
        assert_eq!(said(2, ""), "`ip link set lo up` was ended by signal: 2 (SIGINT)");
        let refused = said(2 << 8, "RTNETLINK answers: Operation not permitted\n");
        assert!(refused.contains("not permitted; the kernel or the container"), "{refused}");
    }

    #[test]
    #[ignore = "needs root and network namespaces: ./test --all"]
    fn a_line_joins_two_hosts_and_nothing_of_them_is_seen_here() {
        let [near, far] = [1, 2].map(|_| Host::new().expect("root makes hosts"));
        near.ip(&format!("link add netns-test type veth peer name netns-test netns {}", far.name()))
            .expect("a line");
        for (host, address) in [(&near, "198.18.0.1/24"), (&far, "198.18.0.2/24")] {
            host.ip(&format!("address add {address} dev netns-test")).expect("an address");
            host.ip("link set netns-test up").expect("it goes up");
        }
        let bind = |address: &'static str| move || std::net::UdpSocket::bind((address, 0));
        let receiver = far.run(bind("198.18.0.2")).expect("entered").expect("bound");
        let sender = near.run(bind("198.18.0.1")).expect("entered").expect("bound");
        let to = receiver.local_addr().expect("bound");
        receiver.set_read_timeout(Some(Duration::from_millis(50))).expect("a limit");
        let deadline = Instant::now() + Duration::from_secs(10);
        // An interface that has just gone up drops packets until the kernel has activated its queue.
        let arrives = || {
            sender.send_to(b"hello", to).is_ok() && receiver.recv(&mut [0; 8]).is_ok_and(|bytes| bytes == 5)
        };
        while !arrives() {
            assert!(Instant::now() < deadline, "nothing arrives");
        }
        let error = near.ip("link show no-such-line").expect_err("there is none");
        assert!(error.to_string().contains("`ip link show no-such-line` failed"), "{error}");
        assert!(!std::path::Path::new("/sys/class/net/netns-test").exists());
    }
}
