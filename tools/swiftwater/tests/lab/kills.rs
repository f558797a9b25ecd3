//! Commands that are ended at any moment, by any signal: nothing runs on, and results are whole.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use swiftwater_tests::programs::shim;
use swiftwater_tests::wait;

use super::processes::{Running, await_end, command_line, processes_with, send_signal};
use super::remains::Namespaces;
use super::support::{Folder, SWIFTWATER, lab, lab_of, number, output, possible, users};

/// Random parts of a time. The seed is another in each run, and printed.
struct Moments {
    seed: u64,
    /// State of a linear congruential generator.
    state: u64,
}

impl Moments {
    /// Variable that repeats the moments of a seed.
    const VARIABLE: &str = "SWIFTWATER_KILL_SEED";

    fn new() -> Moments {
        let given = std::env::var(Self::VARIABLE).ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| RandomState::new().hash_one(0));
        println!("{}={seed}", Self::VARIABLE);
        Moments { seed, state: seed }
    }

    /// Returns a moment before this time.
    fn within(&mut self, time: Duration) -> Duration {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        time.mul_f64((self.state >> 33) as f64 / f64::from(u32::MAX >> 1))
    }
}

/// Ends commands, each at another moment, by each of some signals.
struct Killer<'a> {
    signals: &'a [Signal],
    moments: Moments,
    /// Time that a command takes until its programs run.
    start_time: Duration,
    round: usize,
}

impl Killer<'_> {
    /// In one of so many rounds the command is ended once its programs run; in the others at a random moment before and after.
    const PART_WITH_PROGRAMS: usize = 5;
    /// Time of these moments, as a multiple of the time until the programs run.
    const START_TIMES: u32 = 3;
    /// Limit of these moments after the programs run.
    const AFTER_START: Duration = Duration::from_secs(1);

    fn new(signals: &[Signal]) -> Killer<'_> {
        Killer { signals, moments: Moments::new(), start_time: Duration::ZERO, round: 0 }
    }

    /// Starts a command, which must run until a signal ends it, and waits until no process with this word is left, and none in a
    /// namespace of such processes. The first command is ended once `programs_run`.
    fn end(&mut self, command: &mut Command, word: &str, programs_run: impl Fn() -> bool) {
        let signal = self.signals[self.round % self.signals.len()];
        let mut child = command.process_group(0).spawn().expect("the command starts");
        let began = Instant::now();
        if self.round.is_multiple_of(Self::PART_WITH_PROGRAMS) {
            wait::until("the programs of the command run", programs_run);
            self.start_time = began.elapsed();
        } else {
            let last = (self.start_time * Self::START_TIMES).min(self.start_time + Self::AFTER_START);
            thread::sleep(self.moments.within(last));
        }
        let (after, start, seed) = (began.elapsed(), self.start_time, self.moments.seed);
        let at = format!("{signal} after {after:?}, start {start:?}, seed {seed}");
        let ended = child.try_wait().expect("a child");
        assert!(ended.is_none(), "{at}: the command has ended before: {ended:?}");
        let namespaces = Namespaces::of(word);
        send_signal(&child, signal);
        let status = wait::end_of("the command", &mut child);
        assert!(!status.success(), "{at}: {status}");
        await_end(word, &at);
        namespaces.await_end(&at);
        self.round += 1;
    }
}

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn nothing_is_left_whenever_it_is_killed() {
    if !possible(&[]) {
        return;
    }
    for user in users() {
        let mut killer = Killer::new(&[Signal::SIGKILL, Signal::SIGTERM, Signal::SIGKILL, Signal::SIGHUP]);
        for round in 0..24 {
            let word = format!("86{round}.{}", std::process::id());
            // The program detaches itself from everything that might end it.
            let line = format!("setsid sh -c 'trap \"\" INT TERM HUP; sleep {word}; true' & sleep {word}");
            let words = ["run", "--path", "1ms", "--server", &line, "--", "sh", "-c", &line];
            let sleeps = format!("sleep {word} ");
            // Each host has two: that of the line, and that of the process that has detached itself.
            let programs_run = || processes_with(&word).iter().filter(|line| **line == sleeps).count() == 4;
            killer.end(lab(user, &words).stderr(Stdio::null()), &word, programs_run);
        }
    }
}

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn a_live_experiment_that_is_killed_leaves_nothing() {
    if !possible(&[]) {
        return;
    }
    let folder = Folder::new("killed");
    // The command line of each process of the run contains the name of this file.
    let program = folder.file("lab-under-test");
    fs::copy(SWIFTWATER, &program).expect("room");
    let word = program.to_str().expect("ours");
    for user in users() {
        let mut killer = Killer::new(&[Signal::SIGKILL, Signal::SIGTERM, Signal::SIGINT]);
        for _ in 0..8 {
            let mut command = lab_of(&program, user, &["--live", "failover", "--seconds", "9"]);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            let measures = || processes_with(word).iter().any(|line| line.contains(" perf client "));
            killer.end(&mut command, word, measures);
        }
    }
}

/// Programs without a word of SCTP have a daemon on each host.
#[test]
#[ignore = "needs namespaces, ip, and iperf3 with SCTP: ./test --all"]
fn a_live_experiment_of_unmodified_programs_that_is_killed_leaves_no_daemon() {
    if !possible(&["iperf3"]) {
        return;
    }
    let folder = Folder::new("daemons");
    let program = folder.file("lab-with-daemons");
    fs::copy(SWIFTWATER, &program).expect("room");
    fs::copy(shim(), folder.file("libswiftwater_preload.so")).expect("room");
    let word = program.to_str().expect("ours");
    for user in users() {
        let mut killer = Killer::new(&[Signal::SIGTERM, Signal::SIGKILL, Signal::SIGINT]);
        for _ in 0..6 {
            let words = ["--live", "two-equal", "--case", "sctp-sockets", "--seconds", "9"];
            let mut command = lab_of(&program, user, &words);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            // The second is that of the client.
            let daemons = || processes_with(word).iter().filter(|line| line.contains(" daemon ")).count();
            killer.end(&mut command, word, || daemons() == 2);
        }
    }
}

/// Cases that take turns to keep their results in one folder, with the number of their cells. Each cell has a row and a trace.
const KEPT: [(&str, usize); 2] = [("sctp-message", 4), ("16384 bytes, sctp-message", 2)];

/// Returns the names in a folder.
fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder").flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Fails unless a folder has the results of one run, or a part of them, which a page can be made of. Returns the seed of that
/// run.
fn assert_of_one_run(user: Option<u32>, out: &Path, at: &str) -> usize {
    let (made, said) = output(&mut lab(user, &["report", out.to_str().expect("ours")]));
    assert!(made.status.success(), "{at}: {said}");
    let read = |name: &str| -> Value {
        serde_json::from_slice(&fs::read(out.join(name)).expect("written")).expect("JSON")
    };
    let (manifest, rows) = (read("manifest.json"), read("results.json"));
    let seed = number(&manifest, "seed") as usize;
    let (case, cells) = KEPT[seed % KEPT.len()];
    assert_eq!(manifest["settings"]["case"], case, "{at}: {manifest}");
    let rows = rows.as_array().expect("an array");
    let whole = manifest.get("unfinished").is_none();
    let least = if whole { cells } else { 1 };
    assert!((least..=cells).contains(&rows.len()), "{at}: {manifest} {rows:?}");
    assert_eq!(names_in(&out.join("traces")).len(), rows.len(), "{at}: {manifest} {rows:?}");
    seed
}

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn a_folder_has_the_results_of_one_run_whenever_a_run_is_killed() {
    if !possible(&[]) {
        return;
    }
    let folder = Folder::new("kept");
    let program = folder.file("lab-that-keeps");
    fs::copy(SWIFTWATER, &program).expect("room");
    let word = program.to_str().expect("ours");
    for user in users() {
        let out = folder.file(&format!("out-{}", user.unwrap_or_default()));
        let command = |seed: usize| {
            let (case, _) = KEPT[seed % KEPT.len()];
            let words = ["--live", "asymmetric-rate", "--quick", "--seconds", "0.2", "--case", case];
            let mut command = lab_of(&program, user, &words);
            command.arg("--seed").arg(seed.to_string()).arg("--out").arg(&out);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        let began = Instant::now();
        assert!(command(0).status().expect("the command starts").success());
        let whole = began.elapsed();
        assert_eq!(assert_of_one_run(user, &out, "before"), 0);
        let mut moments = Moments::new();
        for seed in 1..=16 {
            let mut child = command(seed).spawn().expect("the command starts");
            let began = Instant::now();
            if seed % 4 == 0 {
                // While files are written, moved or removed.
                let writes = || {
                    out.join(".swiftwater-new/manifest.json").exists()
                        || out.join(".swiftwater-ready").exists()
                };
                while !writes() && child.try_wait().expect("a child").is_none() {}
                thread::sleep(moments.within(Duration::from_millis(2)));
            } else {
                thread::sleep(moments.within(whole));
            }
            let at = format!("run {seed} after {:?} of {whole:?}, seed {}", began.elapsed(), moments.seed);
            // The command may have ended already.
            let _ = child.kill();
            wait::end_of("the command", &mut child);
            await_end(word, &at);
            let kept = assert_of_one_run(user, &out, &at);
            println!("{at}: results of run {kept}");
        }
        assert!(command(17).status().expect("the command starts").success());
        assert_eq!(assert_of_one_run(user, &out, "after"), 17);
        let ours = ["manifest.json", "report.html", "results.json", "traces"];
        assert_eq!(names_in(&out), ours, "nothing of the ended runs is left");
    }
}

#[test]
fn an_experiment_that_is_ended_leaves_what_it_has_measured() {
    for signal in [Signal::SIGKILL, Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        assert_leaves_a_part(signal);
    }
}

/// Fails unless an experiment that a signal ends leaves its results, which say what they lack.
fn assert_leaves_a_part(signal: Signal) {
    let folder = Folder::new(&format!("part-{signal}"));
    let out = folder.file("out");
    let place = out.to_str().expect("ours");
    let words = ["--live", "loopback", "--case", "16384 bytes", "--seconds", "0.2", "--repeat", "100"];
    let mut running = Running::start(&[&words[..], &["--out", place]].concat());
    let rows = || -> Vec<Value> {
        let text = fs::read(out.join("results.json")).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    };
    wait::until("a transport is kept", || !rows().is_empty());
    send_signal(&running.child, signal);
    wait::end_of("the command", &mut running.child);
    let (made, said) = output(&mut lab(None, &["report", place]));
    assert!(made.status.success(), "{said}");
    let manifest: Value =
        serde_json::from_slice(&fs::read(out.join("manifest.json")).expect("written")).expect("JSON");
    assert_eq!(manifest["unfinished"], "loopback", "{signal}: {manifest}");
    let runs = number(&manifest, "runs");
    assert!(runs >= 1.0 && number(&manifest, "planned_runs") >= 100.0 * runs.min(1.0), "{manifest}");
    assert!(rows().iter().all(|row| row["published"] == true || row["interrupted"] == true), "{signal}");
    let page = fs::read_to_string(out.join("report.html")).expect("written");
    assert!(!rows().is_empty() && page.contains("<dt>unfinished</dt>"), "{page}");
}

#[test]
fn a_server_without_a_client_ends_with_the_command_that_has_started_it() {
    let words = ["--live", "loopback", "--case", "16384 bytes", "--seconds", "60"];
    let mut running = Running::start(&words);
    let server = || {
        let is_server = |id: &u32| command_line(*id).contains(" perf server ");
        running.processes().into_iter().find(is_server)
    };
    wait::until("a server", || server().is_some());
    // It starts no client.
    kill(Pid::from_raw(running.child.id() as i32), Signal::SIGSTOP).expect("it runs");
    let server = server().expect("nobody ends it");
    let has_socket = || {
        let files = fs::read_dir(format!("/proc/{server}/fd")).into_iter().flatten().flatten();
        files
            .filter_map(|file| fs::read_link(file.path()).ok())
            .any(|to| to.to_string_lossy().starts_with("socket:"))
    };
    wait::until("the server listens", has_socket);
    running.child.kill().expect("a child");
    wait::end_of("the command", &mut running.child);
    wait::until("the end of the server", || !command_line(server).contains(" perf server "));
}
