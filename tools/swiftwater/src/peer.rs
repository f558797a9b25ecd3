//! Processes of a measurement: this program with the hidden command `peer`, which prints JSON values, one a line.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use netns::Host;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::interrupt;
use crate::output::print;

/// Time that a process may take to begin, and beyond a run itself.
pub(crate) const GRACE: Duration = Duration::from_secs(60);
/// Interval at which a run that may be interrupted checks for Ctrl-C.
const INTERRUPT_INTERVAL: Duration = Duration::from_millis(50);
/// Interval at which the end of a process is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// Error of a run.
#[derive(Debug, Error)]
pub(crate) enum PeerError {
    /// The processes cannot be started, written to or read from.
    #[error("cannot run the two ends: {0}")]
    Io(#[from] io::Error),
    /// One end failed and reported why.
    #[error("{0}")]
    Peer(String),
    /// Ctrl-C came before the end of the run.
    #[error("stopped before the end of the run")]
    Interrupted,
    /// One end hung.
    #[error("the run did not end in time; the machine may be overloaded")]
    Timeout,
}

/// A child process that ends with this value.
pub(crate) struct Peer {
    child: Child,
    /// A child that reads its standard input ends when that ends, even if this process was killed.
    input: Option<ChildStdin>,
    lines: Option<BufReader<ChildStdout>>,
}

impl Peer {
    /// Starts a child.
    pub(crate) fn start(mut command: Command) -> io::Result<Self> {
        Ok(Self::of(prepared(&mut command).spawn()?))
    }

    /// Starts a child on another host.
    pub(crate) fn start_on(host: &Host, mut command: Command) -> io::Result<Self> {
        Ok(Self::of(host.spawn(prepared(&mut command))?))
    }

    fn of(mut child: Child) -> Self {
        let (input, lines) = (child.stdin.take(), child.stdout.take().map(BufReader::new));
        Self { child, input, lines }
    }

    /// Writes an empty line to its input.
    pub(crate) fn write_line(&mut self) -> Result<(), PeerError> {
        match &mut self.input {
            Some(input) => input.write_all(b"\n").map_err(|_| PeerError::Peer(self.complaint())),
            None => Ok(()),
        }
    }

    /// Closes its input.
    pub(crate) fn close_input(&mut self) {
        self.input = None;
    }

    /// Returns its answer to an empty line.
    pub(crate) fn ask<T: for<'de> Deserialize<'de> + Send + 'static>(&mut self) -> Result<T, PeerError> {
        self.write_line()?;
        self.read_line()
    }

    /// Reads the object in the next line of its output.
    pub(crate) fn read_line<T: for<'de> Deserialize<'de> + Send + 'static>(
        &mut self,
    ) -> Result<T, PeerError> {
        self.read_line_until(Instant::now() + GRACE)
    }

    /// Reads the object in the next line of its output, if it comes in time.
    pub(crate) fn read_line_until<T: for<'de> Deserialize<'de> + Send + 'static>(
        &mut self,
        until: Instant,
    ) -> Result<T, PeerError> {
        self.read_line_unless(until, || false)
    }

    /// Reads the object in the next line of its output, if it comes in time and before Ctrl-C.
    pub(crate) fn read_line_unless_interrupted<T: for<'de> Deserialize<'de> + Send + 'static>(
        &mut self,
        until: Instant,
    ) -> Result<T, PeerError> {
        self.read_line_unless(until, interrupt::requested)
    }

    fn read_line_unless<T: for<'de> Deserialize<'de> + Send + 'static>(
        &mut self,
        until: Instant,
        interrupted: fn() -> bool,
    ) -> Result<T, PeerError> {
        let Some(mut lines) = self.lines.take() else { return Err(PeerError::Peer(String::new())) };
        let (send, receive) = channel();
        // A pipe has no timeout, so a thread reads it; it ends with the child at the latest.
        thread::spawn(move || {
            let mut line = String::new();
            let read = lines.read_line(&mut line).map(|_| line);
            let _ = send.send((read, lines));
        });
        let (read, lines) = loop {
            let left = until.saturating_duration_since(Instant::now());
            match receive.recv_timeout(left.min(INTERRUPT_INTERVAL)) {
                Ok(read) => break read,
                Err(_) if interrupted() => return Err(PeerError::Interrupted),
                Err(_) if left.is_zero() => return Err(PeerError::Timeout),
                Err(_) => {}
            }
        };
        self.lines = Some(lines);
        let line = read?;
        if line.is_empty() {
            return Err(PeerError::Peer(self.complaint()));
        }
        serde_json::from_str(&line).map_err(|error| PeerError::Io(error.into()))
    }

    /// Returns the error output of a process that failed.
    pub(crate) fn complaint(&mut self) -> String {
        let mut said = String::new();
        self.wait_until(Instant::now() + CHECK_INTERVAL * 20);
        if let Some(mut stderr) = self.child.stderr.take() {
            let _ = stderr.read_to_string(&mut said);
        }
        said.trim().trim_start_matches("swiftwater: ").to_owned()
    }

    /// Waits for its end, and kills it when the time is over.
    pub(crate) fn wait_until(&mut self, until: Instant) {
        while let Ok(None) = self.child.try_wait() {
            if Instant::now() >= until {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            thread::sleep(CHECK_INTERVAL);
        }
    }
}

/// Gives the child pipes and its own process group: Ctrl-C is for us, and we end the peers.
fn prepared(command: &mut Command) -> &mut Command {
    command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped())
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.wait_until(Instant::now());
    }
}

/// Calls a function once standard input has ended, in a thread: it ends with the process that has started this one, whenever and
/// however that ends.
pub(crate) fn at_end_of_input(end: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let wait = move || {
        // An input that cannot be read has ended, too.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        end();
    };
    thread::Builder::new().name("input".into()).spawn(wait).map(drop)
}

/// Prints a value for the process that started this one.
pub(crate) fn print_line(what: &impl Serialize) -> Result<(), String> {
    let line = serde_json::to_string(what).map_err(|error| error.to_string())?;
    print(&(line + "\n")).map_err(|error| error.to_string())
}
