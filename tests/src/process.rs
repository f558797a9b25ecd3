//! A program under a test's control: its input, its output line by line, and its end.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Time that a test waits for a program before the program counts as hung.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A running program. Dropping it kills the program and waits for its end, so nothing outlives a test.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Process {
    /// Starts a program. Its standard output and error come out of [`Process::next_line`] as one sequence.
    ///
    /// # Panics
    /// If the program cannot be started.
    #[must_use]
    pub fn start(command: &mut Command) -> Self {
        let name = command.get_program().to_string_lossy().into_owned();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{name} cannot be started: {error}"));
        let (sender, lines) = channel();
        let output: [Option<Box<dyn Read + Send>>; 2] =
            [child.stdout.take().map(|o| Box::new(o) as _), child.stderr.take().map(|e| Box::new(e) as _)];
        for stream in output.into_iter().flatten() {
            let sender = sender.clone();
            // The thread ends with the program's output, or when the receiver is dropped.
            thread::spawn(move || {
                let mut reader = BufReader::new(stream);
                let mut line = Vec::new();
                while reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
                    let text = String::from_utf8_lossy(line.trim_ascii_end()).into_owned();
                    line.clear();
                    if sender.send(text).is_err() {
                        break;
                    }
                }
            });
        }
        let input = child.stdin.take();
        Self { name, child, input, lines, seen: Vec::new() }
    }

    /// Returns the number of the process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the next line of output, or `None` when the program has closed it.
    ///
    /// # Panics
    /// If no line comes within [`PATIENCE`].
    pub fn next_line(&mut self) -> Option<String> {
        self.next_line_before(Instant::now() + PATIENCE)
    }

    /// Reads lines up to the first that `wanted` accepts, and returns that one.
    ///
    /// # Panics
    /// If the output ends first, or no such line comes within [`PATIENCE`].
    pub fn line(&mut self, wanted: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.next_line_before(deadline) {
                Some(line) if wanted(&line) => return line,
                Some(_) => {}
                None => {
                    panic!("{} ended without the line that the test wants; {}", self.name, self.transcript())
                }
            }
        }
    }

    /// Writes a line to the program's standard input.
    ///
    /// # Panics
    /// If the input was closed, or the program has gone.
    pub fn write_line(&mut self, line: &str) {
        let written = self.input.as_mut().map(|input| writeln!(input, "{line}").and_then(|()| input.flush()));
        assert!(matches!(written, Some(Ok(()))), "{} takes no more input; {}", self.name, self.transcript());
    }

    /// Closes the program's standard input.
    pub fn close_input(&mut self) {
        self.input = None;
    }

    /// Closes the input, waits for the program to end, and returns how it ended and the lines not yet read.
    ///
    /// # Panics
    /// If it is still running after [`PATIENCE`].
    pub fn finish(mut self) -> (ExitStatus, Vec<String>) {
        self.close_input();
        let already_read = self.seen.len();
        let deadline = Instant::now() + PATIENCE;
        while self.next_line_before(deadline).is_some() {}
        let status =
            self.child.wait().unwrap_or_else(|error| panic!("{} cannot be waited for: {error}", self.name));
        (status, self.seen.split_off(already_read))
    }

    fn next_line_before(&mut self, deadline: Instant) -> Option<String> {
        match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                self.seen.push(line.clone());
                Some(line)
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                panic!("{} says nothing more; {}", self.name, self.transcript())
            }
        }
    }

    fn transcript(&self) -> String {
        format!("it said:\n{}", self.seen.join("\n"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only when the program has ended and been waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_go_in_and_come_out() {
        let mut cat = Process::start(&mut Command::new("cat"));
        cat.write_line("first");
        cat.write_line("second");
        assert_eq!(cat.line(|line| line.starts_with('s')), "second");
        let (status, rest) = cat.finish();
        assert!(status.success() && rest.is_empty());
    }

    #[test]
    #[should_panic(expected = "ended without the line that the test wants; it said:\nhello")]
    fn a_missing_line_shows_the_output() {
        Process::start(Command::new("echo").arg("hello")).line(|line| line == "bye");
    }

    #[test]
    fn a_dropped_process_is_gone() {
        let process = Process::start(Command::new("sleep").arg("1000"));
        let folder = format!("/proc/{}", process.child.id());
        assert!(std::fs::exists(&folder).unwrap());
        drop(process);
        assert!(!std::fs::exists(&folder).unwrap());
    }
}
