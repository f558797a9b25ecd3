//! One measurement: `swiftwater perf` at both ends, each a process of its own.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use netns::Host;
use serde::Deserialize;

use super::LiveError;
use crate::interrupt;

/// How often the end of the client is looked for, and Ctrl-C.
const LOOK: Duration = Duration::from_millis(20);

/// What is sent, from where to where.
#[derive(Clone, Debug)]
pub(super) struct Measurement<'a> {
    /// What people call it.
    pub(super) name: String,
    /// Where the server and the client run; here if nowhere else.
    pub(super) hosts: [Option<&'a Host>; 2],
    /// The addresses of the server and of the client.
    pub(super) addresses: [Vec<String>; 2],
    /// Options of the client that choose the transport.
    pub(super) words: Vec<String>,
    pub(super) message_bytes: usize,
    pub(super) seconds: f64,
}

/// What is needed of a line of the client's report.
#[derive(Deserialize)]
struct Row {
    bits_per_s: f64,
}

impl Measurement<'_> {
    /// Delivered bits of messages in a second. `None`: Ctrl-C came.
    pub(super) fn run(&self) -> Result<Option<f64>, LiveError> {
        let [server, client] = &self.addresses;
        let words = ["perf", "server", "-p", "0", "--udp-port", "0", "-B", &server.join(",")];
        let mut server_process = End::start(self.hosts[0], &words, &[])?;
        let Some(port) = server_process.port()? else {
            return Err(self.failed(&mut server_process));
        };
        let (seconds, bytes) = (self.seconds.to_string(), self.message_bytes.to_string());
        let from = client.join(",");
        let words =
            ["perf", "client", &server[0], "-p", &port, "-B", &from, "-t", &seconds, "-l", &bytes, "--json"];
        let mut client_process = End::start(self.hosts[1], &words, &self.words)?;
        match client_process.finish()? {
            Finish::Rate(rate) => Ok(Some(rate)),
            Finish::Interrupted => Ok(None),
            Finish::Failed => Err(self.failed(&mut client_process)),
        }
    }

    fn failed(&self, end: &mut End) -> LiveError {
        LiveError::End { name: self.name.clone(), said: end.complaint() }
    }
}

/// How a client has ended.
enum Finish {
    /// With this rate.
    Rate(f64),
    /// Ctrl-C came first.
    Interrupted,
    /// It has said why, if anything.
    Failed,
}

/// A process that ends with us.
struct End(Child);

impl End {
    fn start(host: Option<&Host>, words: &[&str], more: &[String]) -> Result<Self, LiveError> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(words).args(more);
        // A group of its own: Ctrl-C is for us, and we end the processes.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(End(match host {
            Some(host) => host.spawn(&mut command)?,
            None => command.spawn()?,
        }))
    }

    /// The port that a server says it waits on, once it does.
    fn port(&mut self) -> Result<Option<String>, LiveError> {
        // The pipe stays open: a server that nobody reads any more ends.
        let Some(stdout) = self.0.stdout.as_mut() else { return Ok(None) };
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let address = line.split(';').next().and_then(|words| words.rsplit(' ').next());
        let port = address.and_then(|address| address.rsplit_once(':'));
        Ok(port.map(|(_, port)| port.to_owned()))
    }

    /// Waits for what a client reports.
    fn finish(&mut self) -> Result<Finish, LiveError> {
        let status = loop {
            if interrupt::requested() {
                return Ok(Finish::Interrupted);
            }
            match self.0.try_wait()? {
                Some(status) => break status,
                None => thread::sleep(LOOK),
            }
        };
        if !status.success() {
            return Ok(Finish::Failed);
        }
        let mut text = String::new();
        if let Some(mut stdout) = self.0.stdout.take() {
            stdout.read_to_string(&mut text)?;
        }
        let rows: Vec<Row> = serde_json::from_str(&text).map_err(|error| LiveError::Io(error.into()))?;
        Ok(rows.last().map_or(Finish::Failed, |row| Finish::Rate(row.bits_per_s)))
    }

    /// What it said before it failed.
    fn complaint(&mut self) -> String {
        let mut said = String::new();
        if let Some(mut stderr) = self.0.stderr.take() {
            let _ = self.0.kill();
            let _ = stderr.read_to_string(&mut said);
        }
        said.trim().trim_start_matches("swiftwater: ").to_owned()
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
