//! Tests of the laboratory in real time: programs of this machine on two hosts, whatever the line does, and nothing left behind.
#![allow(missing_docs)]

mod beside;
mod daemons;
mod report;
mod support;
mod troubles;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::fs::{MemfdFlags, memfd_create};
use serde_json::Value;
use swiftwater_tests::wait;

use support::{
    Folder, SWIFTWATER, interfaces, is_root, lab, lab_refused, live, number, output, possible, users,
};

/// Time within which all remains must be gone.
const GONE_WAIT: Duration = Duration::from_secs(10);

/// Sends a file over TCP, from the server to the client.
fn transfer(user: Option<u32>, device: &str, path: &str, folder: &Folder) -> Vec<Value> {
    let (sent, received, json) = (folder.file("sent"), folder.file("received"), folder.file("rows.json"));
    for old in [&received, &json] {
        let _ = fs::remove_file(old);
    }
    let server = format!("exec socat -u FILE:{} TCP-LISTEN:5000", sent.display());
    let (json_word, to) = (format!("--json={}", json.display()), format!("CREATE:{}", received.display()));
    let words = ["run", "--device", device, "--path", path, "--server", &server, &json_word, "--"];
    let client = ["socat", "-u", "TCP:198.18.0.2:5000", &to];
    let (output, said) = output(&mut lab(user, &[&words[..], &client].concat()));
    assert!(output.status.success(), "{said}");
    assert!(fs::read(&sent).expect("ours") == fs::read(&received).expect("the client's"), "{path}: {said}");
    serde_json::from_slice(&fs::read(&json).expect("written")).expect("JSON")
}

/// Returns the row of the flow with the most bytes.
fn largest<'a>(rows: &'a [Value], to: &str) -> &'a Value {
    rows.iter().find(|row| row["to"] == to).expect("a flow")
}

#[test]
#[ignore = "needs namespaces, ip and socat: ./test --all"]
fn the_kernels_tcp_gets_its_file_through_over_any_line_and_device() {
    if !possible(&["socat"]) {
        return;
    }
    let folder = Folder::new("transfer");
    let content: Vec<u8> =
        (0..4_000_000u32).flat_map(|word| word.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    fs::write(folder.file("sent"), &content[..6_000_000]).expect("room");
    let clean = "500mbit,1ms";
    let foul = "500mbit,1ms,loss=0.5%,corrupt=0.5%,duplicate=1%,reorder=1%/2ms,ecn=30kB";
    for user in users() {
        // Not every user may open TUN.
        for device in ["veth", "auto"] {
            let rows = transfer(user, device, clean, &folder);
            let row = largest(&rows, "client");
            assert!(number(row, "delivered_bytes") > 6e6, "{row}");
            assert_eq!(number(row, "lost_packets"), 0.0, "{row}");
            // Packets are those of the line, not the super-packets of the host.
            assert!(number(row, "delivered_packets") > 6e6 / 1500.0, "{row}");
            let rows = transfer(user, device, foul, &folder);
            let row = largest(&rows, "client");
            assert!(number(row, "lost_packets") > 0.0, "{row}");
            let fates =
                ["delivered_packets", "in_flight_packets", "lost_packets", "dropped_packets", "down_packets"];
            assert_eq!(
                fates.map(|key| number(row, key)).iter().sum::<f64>(),
                number(row, "packets"),
                "{row}"
            );
        }
    }
}

/// Sends 45 datagrams of UDP in one call, and fails unless each arrives as one of its own. `lab` returns the command for words of
/// `swiftwater lab`.
fn send_segments(lab: impl Fn(&[&str]) -> Command, device: &str) {
    // The sender leaves segmentation to the device (UDP_SEGMENT is 103); the receiver looks at each datagram.
    let receiver = "import socket\n\
        s = socket.socket(socket.AF_INET6 if ':' in A else socket.AF_INET, socket.SOCK_DGRAM); s.bind((A, 5000))\n\
        got = [s.recv(65536) for _ in range(45)]\n\
        s.sendto(b'good' if got == [bytes([n]) * 1000 for n in range(44)] + [b'end'] else b'bad', (C, 5000))\n";
    let sender = "import socket, sys\n\
        s = socket.socket(socket.AF_INET6 if ':' in A else socket.AF_INET, socket.SOCK_DGRAM); s.bind((C, 5000))\n\
        s.settimeout(20)\n\
        s.setsockopt(17, 103, 1000)\n\
        s.sendto(b''.join(bytes([n]) * 1000 for n in range(44)) + b'end', (A, 5000))\n\
        sys.exit(0 if s.recv(100) == b'good' else 1)\n";
    for (client, server) in [("198.18.0.1", "198.18.0.2"), ("2001:2:0:0::1", "2001:2:0:0::2")] {
        let named = |program: &str| format!("A, C = '{server}', '{client}'\n{program}");
        let waiting = format!("exec python3 -c \"{}\"", named(receiver));
        let words = ["run", "--device", device, "--path", "200mbit,1ms", "--server", &waiting, "--"];
        let (output, said) = output(&mut lab(&[&words[..], &["python3", "-c", &named(sender)]].concat()));
        assert!(output.status.success(), "{device}, {server}: {said}");
        assert!(said.contains("45 of 45 packets delivered"), "{said}");
        assert!(device == "auto" || said.contains(&format!("emulator ({device})")), "{said}");
    }
}

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn segments_of_udp_arrive_as_datagrams_of_their_own() {
    if !possible(&["python3"]) {
        return;
    }
    for user in users() {
        for device in ["veth", "auto"] {
            send_segments(|words| lab(user, words), device);
        }
    }
}

/// Linux 6.2 brought UDP segmentation by the reader of a device.
#[test]
#[ignore = "needs namespaces, ip and setarch: ./test --all"]
fn a_kernel_without_udp_segmentation_on_devices_makes_the_datagrams_itself() {
    if !possible(&["python3", "setarch"]) {
        return;
    }
    // `uname` then names a kernel 2.6.
    let old = |words: &[&str]| {
        let mut command = Command::new("setarch");
        command.args(["--uname-2.6", SWIFTWATER, "lab"]).args(words).stdin(Stdio::null());
        command
    };
    send_segments(old, "veth");
    // Not every user may open TUN.
    if is_root() {
        send_segments(|words| lab_refused(None, "udp-segmentation", words), "tun");
    }
}

#[test]
#[ignore = "needs namespaces and ip, and takes four minutes: ./test --all"]
fn the_kernels_tcp_is_as_fast_as_theory_says_where_packets_are_lost_at_random() {
    if !possible(&[]) {
        return;
    }
    let words = ["check", "--tcp", "--path", "100mbit,10ms,loss=0.1%", "--json"];
    let (output, said) = output(&mut lab(None, &words));
    assert!(output.status.success(), "{said}");
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON");
    let transports: Vec<&str> = rows.iter().filter_map(|row| row["transport"].as_str()).collect();
    assert_eq!(transports, ["tcp-reno", "tcp-cubic"]);
    for row in &rows {
        assert!((0.9..=1.1).contains(&number(row, "ratio_to_predicted")), "{row}");
    }
}

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn a_line_that_loses_damages_or_delivers_nothing_is_no_defect_of_the_host() {
    if !possible(&[]) {
        return;
    }
    for user in users() {
        for path in [
            "10mbit,5ms,loss=5%,burst=400",
            "10mbit,loss=60%,jitter=2ms",
            "10mbit,corrupt=5%",
            "loss=100%",
            "1kbit",
        ] {
            let words = ["check", "--path", path, "--seconds", "1", "--json"];
            let (output, said) = output(&mut lab(user, &words));
            let rows: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON");
            // A busy machine may be late all the same.
            let blames = ["carries", "is not filled", "received"].iter().any(|words| said.contains(words));
            assert!(rows.len() == 2 && !blames, "{path}: {said}");
            assert!(
                rows.iter().all(|row| row["delay_ms_p50"].is_null() == (path == "loss=100%")),
                "{rows:?}"
            );
        }
    }
}

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn tcp_saves_nothing_of_a_connection_for_the_next_run() {
    if !possible(&[]) {
        return;
    }
    for user in users() {
        let words = ["run", "--", "cat", "/proc/sys/net/ipv4/tcp_no_metrics_save"];
        let (output, said) = output(&mut lab(user, &words));
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "1", "{said}");
    }
}

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn packets_still_on_the_line_are_neither_delivered_nor_lost() {
    if !possible(&["python3"]) {
        return;
    }
    // The client ends long before its datagrams could arrive.
    let client = "import socket; s = socket.socket(type=socket.SOCK_DGRAM)\n\
        for _ in range(7): s.sendto(b'x' * 972, ('198.18.0.2', 5000))";
    let words = ["run", "--path", "600s", "--json", "--", "python3", "-c", client];
    for user in users() {
        let (output, said) = output(&mut lab(user, &words));
        assert!(output.status.success(), "{said}");
        let rows: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON");
        let flow = |row: &&Value| row["flow"].as_str().is_some_and(|flow| flow.contains("5000"));
        let row = rows.iter().find(flow).expect("the datagrams");
        let told = ["packets", "delivered_packets", "delivered_bytes", "lost_packets", "in_flight_packets"];
        assert_eq!(told.map(|key| number(row, key)), [7.0, 0.0, 0.0, 0.0, 7.0], "{row}");
    }
}

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn a_program_has_its_own_status_and_finds_its_hosts() {
    if !possible(&[]) {
        return;
    }
    for user in users() {
        let line = "[ $LAB_SERVER = 198.18.0.2,198.18.1.2 ] && ip -brief address show p1 | grep -q 198.18.1.1/24 && exit 7";
        let words = ["run", "--path", "5ms", "--path", "1mbit", "--", "sh", "-c", line];
        let (output, said) = output(&mut lab(user, &words));
        assert_eq!(output.status.code(), Some(7), "{said}");
        // A program has the descriptors that it would have without the laboratory.
        let list = ["sh", "-c", "ls -l /proc/self/fd | grep -c pipe:"];
        let (within, said) = self::output(&mut lab(user, &[&["run", "--"], &list[..]].concat()));
        let (without, _) = self::output(Command::new(list[0]).args(&list[1..]).stdin(Stdio::null()));
        assert_eq!(within.stdout, without.stdout, "{said}");
        let inside = format!("{SWIFTWATER} lab shell --server");
        let entered =
            ["run", "--", "sh", "-c", &format!("echo 'ip -brief address show p0' | SHELL=/bin/sh {inside}")];
        let (output, said) = self::output(&mut lab(user, &entered));
        assert!(String::from_utf8_lossy(&output.stdout).contains("198.18.0.2/24"), "{said}");
    }
}

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

    /// Starts a command, which must run until a signal ends it, and waits until no process with this word is left. The first
    /// command is ended once `programs_run`.
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
        send_signal(&child, signal);
        let status = wait::end_of("the command", &mut child);
        assert!(!status.success(), "{at}: {status}");
        await_end(word, &at);
        self.round += 1;
    }
}

/// Waits until no process with this word is left after what happened `at` a moment.
fn await_end(word: &str, at: &str) {
    let deadline = Instant::now() + GONE_WAIT;
    while !processes_with(word).is_empty() {
        assert!(Instant::now() < deadline, "{at} left {:?}", processes_with(word));
        thread::sleep(Duration::from_millis(20));
    }
}

/// Sends a signal to a command that has its own process group. A terminal sends Ctrl-C to the whole group.
fn send_signal(command: &Child, signal: Signal) {
    let id = command.id() as i32;
    kill(Pid::from_raw(if signal == Signal::SIGINT { -id } else { id }), signal).expect("it runs");
}

/// Returns the command lines of processes that contain this word.
fn processes_with(word: &str) -> Vec<String> {
    let processes = fs::read_dir("/proc").expect("proc").flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(word))
        .collect()
}

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn nothing_is_left_whenever_it_is_killed() {
    if !possible(&[]) {
        return;
    }
    let before = interfaces();
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
    assert_eq!(interfaces(), before);
}

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn a_stream_is_no_faster_than_its_line() {
    if !possible(&[]) {
        return;
    }
    let folder = Folder::new("stream");
    let (rows, server) = (folder.file("rows.json"), format!("exec {SWIFTWATER} perf server -B 198.18.0.2"));
    let json = format!("--json={}", rows.display());
    let words = ["run", "--path", "10mbit,10ms", "--server", &server, "--", SWIFTWATER, "perf", "client"];
    let client = ["198.18.0.2", "--mode", "stream", "-l", "16k", "-n", "50", &json];
    let (output, said) = output(&mut lab(users()[0], &[&words[..], &client].concat()));
    assert!(output.status.success(), "{said}");
    let rows: Vec<Value> = serde_json::from_slice(&fs::read(&rows).expect("written")).expect("JSON");
    let total = rows.iter().find(|row| row["period"] == "total").expect("a total");
    assert!(number(total, "bits_per_s") < 10e6, "{total}");
}

/// Keys of every row measured on a line.
const MEASURED: [&str; 17] = [
    "published_bits_per_s",
    "ratio_to_tcp",
    "runs",
    "line_packets",
    "line_dropped_packets",
    "line_lost_packets",
    "host_dropped_packets",
    "queue_ms_p50",
    "queue_ms_p95",
    "late_us_p50",
    "late_us_p99",
    "emulator_cpu",
    "long_turns",
    "write_us_max",
    "client_cpu_ns_per_byte",
    "server_cpu_ns_per_byte",
    "disturbed",
];

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn a_live_experiment_keeps_all_keys_in_its_folder() {
    if !possible(&[]) {
        return;
    }
    let documented = include_str!("../../../../docs/json.md");
    for user in users() {
        let folder = Folder::new("live");
        let words = ["coexistence", "--case", "cubic, 1 + 1", "--seconds", "1", "--repeat", "2"];
        let (rows, text) = live(user, &words, &folder);
        assert!(text.contains("sctp-stream") && text.contains("tcp-cubic"), "{text}");
        assert_eq!(rows.len(), 2, "{rows:?}");
        for row in &rows {
            for key in MEASURED.iter().chain(&["bits_per_s_min", "bits_per_s_max", "share_of_fair"]) {
                assert!(row.get(key).is_some(), "{key} of {row}");
            }
            for key in row.as_object().expect("an object").keys() {
                assert!(documented.contains(&format!("`{key}`")), "{key} is missing in docs/json.md");
            }
            assert_eq!((&row["clock"], &row["published_bits_per_s"]), (&Value::from("live"), &Value::Null));
        }
        let shares: f64 = rows.iter().map(|row| number(row, "share_of_fair")).sum();
        assert!((shares - 2.0).abs() < 1e-9, "{rows:?}");
        let manifest: Value =
            serde_json::from_slice(&fs::read(folder.file("out/manifest.json")).expect("written"))
                .expect("JSON");
        assert_eq!(manifest["experiments"], serde_json::json!(["coexistence"]));
        let settings = serde_json::json!({"case": "cubic, 1 + 1", "seconds": 1.0, "repeat": 2, "quick": false, "full": false});
        assert_eq!(manifest["settings"], settings);
        let traces = fs::read_dir(folder.file("out/traces")).expect("a folder").count();
        assert_eq!(traces, 2, "of both sides of the bottleneck");
    }
}

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn a_line_that_comes_and_goes_has_a_gap_a_latency_and_the_published_cells_beside_it() {
    if !possible(&[]) {
        return;
    }
    let folder = Folder::new("flapping");
    let (rows, _) =
        live(None, &["flapping", "--case", "wireless", "--seconds", "1", "--repeat", "1"], &folder);
    let names: Vec<_> =
        rows.iter().map(|row| (row["transport"].as_str(), row["published"].as_bool())).collect();
    let expected = [
        ("tcp-cubic", false),
        ("sctp-message", false),
        ("tcp, dissertation", true),
        ("lksctp, dissertation", true),
    ];
    assert_eq!(names, expected.map(|(name, published)| (Some(name), Some(published))));
    for row in &rows {
        // The line alone takes 1.87 ms for a round trip.
        assert!(number(row, "latency_us") > 1_870.0, "{row}");
        assert!(number(row, "bits_per_s") < 5e6, "{row}");
    }
    assert_eq!(number(&rows[0], "published_bits_per_s"), 1_786_000.0);
    // Published numbers keep their unit.
    assert_eq!(number(&rows[3], "latency_us"), 6_868.5);
}

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn an_experiment_of_several_sets_of_lines_finds_its_devices_each_time() {
    if !possible(&[]) {
        return;
    }
    for user in users() {
        let folder = Folder::new("again");
        let words = ["failover", "--quick", "--seconds", "4.2", "--case", "sctp-message"];
        let (rows, _) = live(user, &words, &folder);
        let cases: Vec<_> = rows.iter().filter_map(|row| row["case"].as_str()).collect();
        assert_eq!(cases, ["the first dies, 16384 bytes", "the second dies, 16384 bytes"], "{user:?}");
    }
}

/// Opens a page in a headless browser. Returns the document after its script has run, and the output of its console.
fn browse(page: &Path, folder: &Folder) -> (String, String) {
    let mut chromium = Command::new("chromium");
    chromium.args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"]);
    chromium.arg(format!("--user-data-dir={}", folder.file("profile").display()));
    let (output, said) = output(chromium.arg(format!("file://{}", page.display())));
    assert!(output.status.success(), "{said}");
    let console = said.lines().filter(|line| line.contains("CONSOLE")).collect::<Vec<_>>().join("\n");
    (String::from_utf8_lossy(&output.stdout).into_owned(), console)
}

/// Returns the text of a cell of the page's tables.
fn cell<'a>(document: &'a str, row: usize, key: &str) -> Option<&'a str> {
    let (_, rest) = document.split_once(&format!("<tr data-row=\"{row}\""))?;
    let (row, _) = rest.split_once("</tr>")?;
    let (_, rest) = row.split_once(&format!("data-key=\"{key}\">"))?;
    rest.split_once('<').map(|(text, _)| text)
}

#[test]
#[ignore = "needs namespaces, ip and chromium: ./test --all"]
fn a_browser_shows_the_report_with_the_numbers_of_the_json_and_no_error() {
    if !possible(&["chromium"]) {
        return;
    }
    let folder = Folder::new("report");
    let words = ["flapping", "--case", "wireless", "--seconds", "1", "--repeat", "1"];
    let (rows, _) = live(None, &words, &folder);
    let out = folder.file("out");
    let (output, said) = output(&mut lab(None, &["report", out.to_str().expect("ours")]));
    assert!(output.status.success(), "{said}");
    let (document, console) = browse(&out.join("report.html"), &folder);
    assert_eq!(console, "", "the page complains");
    let traces = fs::read_dir(out.join("traces")).expect("a folder").count();
    assert_eq!(traces, 2, "one of TCP and one of ours");
    // The script has run to its end, and has shown the values at the end of each run.
    assert!(document.contains(&format!("data-runs=\"{traces}\"")), "{document}");
    assert_eq!(document.matches("s · delivered: ").count(), traces);
    let mega = |value: f64| format!("{:.2}", value / 1e6);
    for (place, row) in rows.iter().enumerate() {
        assert_eq!(cell(&document, place, "transport"), row["transport"].as_str());
        assert_eq!(cell(&document, place, "case"), row["case"].as_str());
        for key in ["bits_per_s", "published_bits_per_s"] {
            let told = row[key].as_f64().map(mega).unwrap_or_default();
            assert_eq!(cell(&document, place, key), Some(told.as_str()), "{key} of {row}");
        }
        let late = row["late_us_p99"].as_f64().map(|us| format!("{us:.0}")).unwrap_or_default();
        assert_eq!(cell(&document, place, "late_us_p99"), Some(late.as_str()), "{row}");
    }
    assert_eq!(document.matches("<tr data-row=").count(), rows.len());
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
    let before = interfaces();
    for user in users() {
        let mut killer = Killer::new(&[Signal::SIGKILL, Signal::SIGTERM, Signal::SIGINT]);
        for _ in 0..8 {
            let mut command = Command::new(&program);
            command.args(["lab", "--live", "failover", "--seconds", "9"]).stdin(Stdio::null());
            command.stdout(Stdio::null()).stderr(Stdio::null());
            if let Some(user) = user {
                command.uid(user).gid(user);
            }
            let measures = || processes_with(word).iter().any(|line| line.contains(" perf client "));
            killer.end(&mut command, word, measures);
        }
    }
    assert_eq!(interfaces(), before);
}

/// Experiments that are kept in one folder, in turn: the case, and the number of its cells, each of which has a row and a trace.
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
            let mut command = Command::new(&program);
            command.args([
                "lab",
                "--live",
                "asymmetric-rate",
                "--quick",
                "--seconds",
                "0.2",
                "--case",
                case,
                "--seed",
            ]);
            command.arg(seed.to_string()).arg("--out").arg(&out).stdin(Stdio::null());
            command.stdout(Stdio::null()).stderr(Stdio::null());
            if let Some(user) = user {
                command.uid(user).gid(user);
            }
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

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn ctrl_c_is_no_defect_of_the_host_or_of_the_server() {
    if !possible(&[]) {
        return;
    }
    let check = ["check", "--path", "10mbit", "--seconds", "60", "--json"];
    // The first thread, and one that sends and one that receives for each direction. Probes of the delay, which come before, have
    // one direction.
    let floods = |run: &Running| run.threads() >= 5;
    let waiting = ["run", "--path", "1ms", "--server", "exec sleep 61", "--json", "--", "true"];
    let has_server = |run: &Running| run.processes().iter().any(|id| command_line(*id) == "sleep 61 ");
    let ended = [
        interrupted(&check, "the flood of the check", floods),
        interrupted(&waiting, "the server", has_server),
    ];
    for (status, [_, said]) in ended {
        assert_eq!(status.code(), Some(130), "{said}");
        assert!(!said.contains("on this host") && !said.contains("ended before"), "{said}");
    }
}

/// A command of the laboratory, whose output goes to files.
struct Running {
    child: Child,
    output: [File; 2],
}

impl Running {
    fn start(words: &[&str]) -> Running {
        let file = || File::from(memfd_create("output", MemfdFlags::CLOEXEC).expect("memory"));
        let output = [file(), file()];
        let theirs = output.each_ref().map(|file| file.try_clone().expect("a descriptor"));
        let [stdout, stderr] = theirs;
        let mut command = lab(None, words);
        command.stdout(stdout).stderr(stderr).process_group(0);
        Running { child: command.spawn().expect("the command starts"), output }
    }

    /// Returns what it has written so far to standard output and to standard error.
    fn said(&self) -> [String; 2] {
        self.output.each_ref().map(|file| {
            let mut bytes = vec![0; file.metadata().expect("a file").len() as usize];
            file.read_exact_at(&mut bytes, 0).expect("a file");
            String::from_utf8_lossy(&bytes).into_owned()
        })
    }

    /// Returns the numbers of its processes.
    fn processes(&self) -> Vec<u32> {
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
    fn threads(&self) -> usize {
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

fn command_line(process: u32) -> String {
    let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

/// Runs a command until something that is `awaited` has come, and sends it a terminal's Ctrl-C then. Returns its status, and what
/// it has written to standard output and to standard error.
fn interrupted(
    words: &[&str],
    awaited: &str,
    has_come: impl Fn(&Running) -> bool,
) -> (ExitStatus, [String; 2]) {
    let mut run = Running::start(words);
    wait::until(awaited, || {
        let ended = run.child.try_wait().expect("a child");
        assert!(ended.is_none(), "{words:?} has ended before {awaited}: {ended:?}: {:?}", run.said());
        has_come(&run)
    });
    send_signal(&run.child, Signal::SIGINT);
    (wait::end_of("the command", &mut run.child), run.said())
}

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn after_ctrl_c_programs_and_experiments_tell_what_they_have_measured() {
    if !possible(&[]) {
        return;
    }
    let server = format!("{SWIFTWATER} perf server");
    let programs = ["run", "--path", "10mbit", "--server", &server, "--", SWIFTWATER, "perf", "client"];
    let words = [&programs[..], &["198.18.0.2", "-t", "60", "-i", "0.2"]].concat();
    let reports = |run: &Running| run.said()[0].contains("messages/s");
    let (status, said) = interrupted(&words, "a report of the client", reports);
    let told = said.concat();
    assert_eq!(status.code(), Some(130), "{told}");
    assert!(told.contains("the totals so far"), "of the client: {told}");
    assert!(told.contains("path 1 (10mbit) to the server"), "the fate of the packets: {told}");

    let folder = Folder::new("interrupted");
    let out = folder.0.display().to_string();
    let case = ["--live", "coexistence", "--case", "cubic, 1 + 1", "--seconds", "1", "--out", &out];
    // Two clients share the line in each measurement, and a disturbed one is repeated three times: the ninth belongs to the
    // second of five turns, or to a later one.
    let clients = RefCell::new(BTreeSet::new());
    let measures_again = |run: &Running| {
        let mut clients = clients.borrow_mut();
        clients.extend(run.processes().into_iter().filter(|id| command_line(*id).contains(" perf client ")));
        clients.len() > 8
    };
    let (status, [told, _]) = interrupted(&case, "a later turn", measures_again);
    assert_eq!(status.code(), Some(130), "{told}");
    let kept = fs::read_to_string(folder.file("results.json")).expect("results");
    let rows: Vec<Value> = serde_json::from_str(&kept).expect("an array");
    assert!(told.contains("sctp-stream") && !rows.is_empty(), "{told}, {kept}");
    assert!(rows.iter().all(|row| row["interrupted"] == true), "{kept}");
}
