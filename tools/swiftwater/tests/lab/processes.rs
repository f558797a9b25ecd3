//! Commands of the laboratory that run, and the processes of this machine.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::fs::{MemfdFlags, memfd_create};

use super::support::lab;

/// Time within which all remains must be gone.
const GONE_WAIT: Duration = Duration::from_secs(10);

/// Waits until no process with this word is left after what happened `at` a moment.
pub(super) fn await_end(word: &str, at: &str) {
    let deadline = Instant::now() + GONE_WAIT;
    while !processes_with(word).is_empty() {
        assert!(Instant::now() < deadline, "{at} left {:?}", processes_with(word));
        thread::sleep(Duration::from_millis(20));
    }
}

/// Sends a signal to a command that has its own process group. A terminal sends Ctrl-C to the whole group.
pub(super) fn send_signal(command: &Child, signal: Signal) {
    let id = command.id() as i32;
    kill(Pid::from_raw(if signal == Signal::SIGINT { -id } else { id }), signal).expect("it runs");
}

/// Returns the command lines of processes that contain this word.
pub(super) fn processes_with(word: &str) -> Vec<String> {
    let processes = fs::read_dir("/proc").expect("proc").flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(word))
        .collect()
}

/// A command of the laboratory, whose output goes to files.
pub(super) struct Running {
    pub(super) child: Child,
    output: [File; 2],
}

impl Running {
    pub(super) fn start(words: &[&str]) -> Running {
        let file = || File::from(memfd_create("output", MemfdFlags::CLOEXEC).expect("memory"));
        let output = [file(), file()];
        let theirs = output.each_ref().map(|file| file.try_clone().expect("a descriptor"));
        let [stdout, stderr] = theirs;
        let mut command = lab(None, words);
        command.stdout(stdout).stderr(stderr).process_group(0);
        Running { child: command.spawn().expect("the command starts"), output }
    }

    /// Returns what it has written so far to standard output and to standard error.
    pub(super) fn said(&self) -> [String; 2] {
        self.output.each_ref().map(|file| {
            let mut bytes = vec![0; file.metadata().expect("a file").len() as usize];
            file.read_exact_at(&mut bytes, 0).expect("a file");
            String::from_utf8_lossy(&bytes).into_owned()
        })
    }

    /// Returns the numbers of its processes.
    pub(super) fn processes(&self) -> Vec<u32> {
        let mut all = vec![self.child.id()];
        let mut next = 0;
        while let Some(&process) = all.get(next) {
            let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
            let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
            let children: Vec<String> = children.collect();
            all.extend(
                children
                    .iter()
                    .flat_map(|ids| ids.split_whitespace())
                    .filter_map(|id| id.parse::<u32>().ok()),
            );
            next += 1;
        }
        all
    }

    /// Returns the largest number of threads with the command's name in one of its processes.
    pub(super) fn threads(&self) -> usize {
        let named = |process: &u32| {
            let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
            let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
            names.filter(|name| name == "swiftwater\n").count()
        };
        self.processes().iter().map(named).max().unwrap_or_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The command may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) fn command_line(process: u32) -> String {
    let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}
