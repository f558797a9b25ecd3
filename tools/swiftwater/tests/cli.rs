//! Tests of the command as a user runs it: two processes, real sockets, printed output.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use swiftwater_tests::process::Process;
use swiftwater_tests::wait;

/// Exit status of a command that Ctrl-C ends: 128 and SIGINT.
const INTERRUPTED: Option<i32> = Some(130);

fn swiftwater(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_swiftwater"));
    command.args(words);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A server on its own ports, which ends with the test.
struct Server {
    process: Process,
    port: String,
}

impl Server {
    fn start() -> Self {
        Self::start_with(&[])
    }

    fn start_with(words: &[&str]) -> Self {
        let mut command = swiftwater(&["perf", "server", "-B", "127.0.0.1", "-p", "0", "--udp-port", "0"]);
        let mut process = Process::start(command.args(words));
        let line = process.line(|line| line.contains("127.0.0.1:"));
        let port = line.split("127.0.0.1:").nth(1).and_then(|rest| rest.split(';').next());
        let port = port.unwrap_or_else(|| panic!("no port in {line:?}")).to_owned();
        Self { process, port }
    }

    fn client(&self, words: &[&str]) -> Command {
        let mut command = swiftwater(&["perf", "client", "127.0.0.1", "-p", &self.port]);
        command.args(words);
        command
    }

    /// Returns the client's JSON; the client must succeed.
    fn ask(&self, words: &[&str]) -> Vec<Value> {
        let output = self.client(words).arg("--json").output().expect("the program starts");
        rows(&output)
    }

    fn interrupt_and_read_rest(self) -> String {
        interrupt_and_read_rest(self.process)
    }
}

/// Interrupts a program that prints its totals then, and returns them.
fn interrupt_and_read_rest(process: Process) -> String {
    interrupt(process.id());
    let (status, rest) = process.finish();
    assert_eq!(status.code(), INTERRUPTED, "{rest:?}");
    rest.join("\n")
}

fn interrupt(process: u32) {
    let pid = Pid::from_raw(i32::try_from(process).expect("a process id"));
    kill(pid, Signal::SIGINT).expect("the process is there");
}

/// Returns the rows of a JSON array of flat objects.
fn rows(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", text(&output.stderr));
    let value: Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    let rows = value.as_array().expect("an array").clone();
    let documented = include_str!("../../../docs/json.md");
    for row in &rows {
        for (key, value) in row.as_object().expect("objects") {
            assert!(!value.is_object() && !value.is_array(), "{key} is not flat");
            let may_be_null = key == "published_bits_per_s";
            assert!(!value.is_null() || may_be_null, "{key} does not apply and should be missing");
            assert!(documented.contains(&format!("`{key}`")), "{key} is missing in docs/json.md");
        }
    }
    rows
}

fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_else(|| panic!("{key} is no number in {row}"))
}

#[test]
fn an_experiment_prints_rows_a_page_and_a_capture() {
    let folder = std::env::temp_dir().join(format!("swiftwater-lab-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let (page, capture) = (folder.join("lab.html"), folder.join("lab.pcapng"));
    let mut command = swiftwater(&["lab", "--virtual", "tail-loss", "--case", "last packet", "--json"]);
    let trace = folder.join("lab.sqlog");
    command.arg("--plot").arg(&page).arg("--capture").arg(&capture).arg("--qlog").arg(&trace);
    let rows = rows(&command.output().expect("the program starts"));
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0]["transport"], "sctp");
    assert!(number(&rows[0], "bits_per_s") < number(&rows[0], "limit_bits_per_s"));
    assert!(fs::read_to_string(&page).expect("a page").contains("last packet"));
    assert!(fs::read(&capture).expect("a capture").starts_with(b"\x0a\x0d\x0d\x0a"));
    let probes = swiftwater(&["trace", "show", "-e", "probe_sent"]).arg(&trace).output().expect("starts");
    assert!(text(&probes.stdout).trim_end().ends_with("tail_loss"), "{}", text(&probes.stdout));
    fs::remove_dir_all(&folder).expect("it was ours");
}

#[test]
fn two_paths_are_measured_beside_each_alone() {
    let words = ["lab", "--virtual", "asymmetric-rate", "--case", "64 KB", "--seconds", "0.2", "--json"];
    let rows = rows(&swiftwater(&words).output().expect("the program starts"));
    assert_eq!(rows.len(), 2 * 3, "two queues, each path and both");
    for row in &rows {
        assert_eq!((row["mode"].as_str(), number(row, "message_bytes")), (Some("message"), 1444.0));
        assert!(number(row, "best_path_bits_per_s") > 0.0 && number(row, "gap_ms_max") >= 0.0);
        let alone = row.get("path").is_some();
        assert_eq!(number(row, "paths"), if alone { 1.0 } else { 2.0 });
        assert_eq!(row.get("ratio_to_sum_of_paths").is_some(), !alone);
    }
    let words =
        ["lab", "--virtual", "two-equal", "--case", "message, 64 bytes", "--seconds", "0.1", "--json"];
    let rows = self::rows(&swiftwater(&words).output().expect("the program starts"));
    let theirs: Vec<&Value> = rows.iter().filter(|row| row["published"] == true).collect();
    assert_eq!(theirs.len(), 2 * 2, "two queues, one path and two");
    assert!(theirs.iter().any(|row| number(row, "bits_per_s") == 91.6e6));
}

/// Returns the results of a live experiment.
fn live_rows(words: &[&str]) -> Vec<Value> {
    rows(&swiftwater(&[&["lab", "--json", "--live"], words].concat()).output().expect("starts"))
}

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn lines_in_real_time_are_measured_beside_tcp() {
    let rows = live_rows(&["asymmetric-rate", "--seconds", "0.5", "--case", "16384 bytes", "--repeat", "2"]);
    let series =
        |row: &Value| (row["transport"].as_str().expect("a name").to_owned(), number(row, "paths") as u64);
    let found: Vec<(String, u64)> = rows.iter().map(series).collect();
    for (name, paths) in
        [("tcp-cubic", 1), ("tcp-reno", 1), ("sctp-message", 1), ("sctp-message", 2), ("sctp-stream", 2)]
    {
        let count = found.iter().filter(|found| **found == (name.to_owned(), paths)).count();
        assert_eq!(count, 1, "{name} on {paths}: {found:?}");
    }
    for row in &rows {
        assert_eq!((row["clock"].as_str(), row["runs"].as_u64()), (Some("live"), Some(2)), "{row}");
        // Data that arrived came through the lines, whose queues hold a few round trips at most. The test demands half of it:
        // on a busy machine a run may be shorter than planned.
        assert!(2.0 * number(row, "line_packets") * 1500.0 * 8.0 > number(row, "bits_per_s") * 0.5, "{row}");
        assert!(number(row, "bits_per_s") < 2.0 * number(row, "limit_bits_per_s"), "{row}");
        let keys = ["bits_per_s_min", "queue_ms_p50", "late_us_p99", "emulator_cpu", "ratio_to_tcp"];
        assert!(keys.iter().all(|key| row[key].is_number()), "{row}");
        assert!(row["disturbed"].is_boolean() && row["published_bits_per_s"].is_null(), "{row}");
    }
}

#[test]
fn two_loopback_addresses_are_measured_without_privileges() {
    let rows = live_rows(&["loopback", "--seconds", "0.05", "--quick"]);
    assert_eq!(rows.len(), 2 * 5, "{rows:?}");
    for row in &rows {
        assert!(number(row, "bits_per_s") > 0.0 && row["runs"] == 1, "{row}");
        assert!(
            row.get("line_packets").is_none() && row["bits_per_s_min"].is_null(),
            "there is no line: {row}"
        );
    }
}

#[test]
fn an_unknown_experiment_is_answered_with_advice() {
    let output = swiftwater(&["lab", "--virtual", "nonsense"]).output().expect("the program starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("they are: sctplib, datatag"), "{}", text(&output.stderr));
    let list = text(&swiftwater(&["lab", "--list"]).output().expect("the program starts").stdout);
    assert!(
        ["sctplib", "datatag", "loss-grid", "tail-loss", "fairness"].iter().all(|name| list.contains(name))
    );
}

#[test]
fn tcp_for_a_moment() {
    let server = Server::start();
    let rows = server.ask(&["--proto", "tcp", "-t", "0.2", "-l", "64", "-i", "0.05"]);
    let (total, intervals) = rows.split_last().expect("a total");
    assert_eq!((total["series"].as_str(), total["period"].as_str()), (Some("tcp"), Some("total")));
    assert!(number(total, "messages_per_s") > 0.0 && number(total, "server_cpu_ns_per_message") > 0.0);
    assert_eq!(number(total, "messages"), number(total, "messages_sent"));
    assert!(!intervals.is_empty() && intervals.iter().all(|row| row["period"] == "interval"));
}

#[test]
fn each_path_from_an_address_of_its_own_is_reported() {
    let server = Server::start_with(&["-B", "127.0.0.2"]);
    let rows = server.ask(&["-B", "127.0.0.1,127.0.0.2", "-n", "100000", "-l", "1k"]);
    let paths: Vec<&Value> = rows.iter().filter(|row| row["period"] == "path").collect();
    let mut ways: Vec<_> =
        paths.iter().map(|path| (path["local"].as_str(), path["remote"].as_str())).collect();
    ways.sort();
    let both = ["127.0.0.1", "127.0.0.2"].map(Some);
    assert_eq!(ways, [(both[0], both[0]), (both[1], both[1])]);
    let delivered: f64 = paths.iter().map(|path| number(path, "bytes")).sum();
    let total = rows.last().expect("a total");
    assert_eq!((total["period"].as_str(), number(total, "bytes")), (Some("total"), 102_400_000.0));
    assert!(delivered >= number(total, "bytes"), "{delivered} bytes of chunks");
    let text =
        text(&server.client(&["-n", "100", "-B", "127.0.0.1,127.0.0.2"]).output().expect("starts").stdout);
    assert!(text.contains("127.0.0.2 to 127.0.0.2: "), "{text}");
}

#[test]
fn raw_ip_is_used_where_it_is_permitted() {
    // In its own user namespace a program may not change the host's network, whatever user started it.
    let without = |words: &[&str]| {
        let program = env!("CARGO_BIN_EXE_swiftwater");
        Command::new("unshare").args(["--user", program]).args(words).output()
    };
    let server = Server::start();
    let client =
        |link| without(&["perf", "client", "127.0.0.1", "-p", &server.port, "-n", "10", "--link", link]);
    let Ok(refused) = client("raw") else { return println!("skipped: no unshare") };
    let said = text(&refused.stderr);
    if said.contains("unshare") {
        return println!("skipped: no user namespaces: {said}");
    }
    assert!(!refused.status.success());
    assert!(said.contains("setcap cap_net_raw+ep") && !said.contains("panicked"), "{said}");
    let fallen_back = client("auto").expect("it started before");
    assert!(fallen_back.status.success(), "{}", text(&fallen_back.stderr));
    assert!(text(&fallen_back.stderr).contains("UDP carries SCTP"), "{}", text(&fallen_back.stderr));
    let only_udp = Server::start_with(&["--link", "udp"]);
    let refused = only_udp.client(&["--link", "raw"]).output().expect("starts");
    let said = text(&refused.stderr);
    assert!(!refused.status.success());
    assert!(said.contains("--link udp") || said.contains("setcap"), "{said}");
}

#[test]
#[ignore = "needs CAP_NET_RAW: ./test --all"]
fn raw_ip_delivers_every_message() {
    let server = Server::start_with(&["-B", "127.0.0.2", "--link", "raw"]);
    for words in [&["-B", "127.0.0.1,127.0.0.2"][..], &["-P", "2", "--mtu", "1500"], &["--mode", "stream"]] {
        for size in ["1", "1000", "70000"] {
            let rows = server.ask(&[words, &["--link", "raw", "-n", "1000", "-l", size]].concat());
            assert_eq!(number(rows.last().expect("a total"), "messages"), 1000.0, "{words:?} {size}");
        }
    }
    let rows = server.ask(&["--link", "auto", "--rr", "-n", "100"]);
    assert_eq!(number(rows.last().expect("a total"), "messages"), 100.0);
}

#[test]
fn every_transport_delivers_every_message() {
    let server = Server::start();
    for words in [
        &["--proto", "tcp"][..],
        &["--proto", "tcp", "--mode", "message"],
        &["--proto", "sctp"],
        &["--proto", "sctp", "--mtu", "1500"],
        &["--proto", "sctp", "--mode", "stream"],
        &["--proto", "sctp", "--no-checksum"],
    ] {
        for size in ["1", "1000", "70000"] {
            let rows = server.ask(&[words, &["-n", "1000", "-P", "2", "-l", size]].concat());
            let total = rows.last().expect("a total");
            assert_eq!(number(total, "messages"), 1000.0, "{words:?} {size}");
            assert_eq!(
                number(total, "bytes"),
                1000.0 * size.parse::<f64>().expect("a number"),
                "{words:?} {size}"
            );
        }
    }
}

#[test]
fn questions_are_answered_and_timed() {
    let server = Server::start();
    for words in [
        &["--proto", "tcp", "--rr"][..],
        &["--proto", "udp", "--rr"],
        &["--proto", "sctp", "--rr"],
        &["--proto", "tcp", "--crr"],
        &["--proto", "sctp", "--crr"],
    ] {
        let rows = server.ask(&[words, &["-n", "20", "-l", "1"]].concat());
        let total = rows.last().expect("a total");
        assert_eq!(number(total, "messages"), 20.0, "{words:?}");
        let (p50, p99) = (number(total, "latency_us_p50"), number(total, "latency_us_p99"));
        assert!(0.0 < p50 && p50 <= p99, "{words:?}: {p50} {p99}");
    }
}

#[test]
fn ctrl_c_at_the_client_prints_the_totals_so_far() {
    let server = Server::start();
    for proto in ["tcp", "sctp"] {
        let mut client = Process::start(&mut server.client(&["--proto", proto, "-t", "600", "-i", "0.05"]));
        client.line(|line| line.contains("messages/s"));
        let rest = interrupt_and_read_rest(client);
        for part in ["totals so far", "delivered", "cpu client", "cpu server"] {
            assert!(rest.contains(part), "{proto}: {rest}");
        }
    }
}

#[test]
fn ctrl_c_at_the_server_prints_the_totals_so_far() {
    let mut server = Server::start();
    let mut client = server.client(&["--proto", "tcp", "-t", "600", "-i", "0.05"]);
    let mut client = client.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program starts");
    server.process.line(|line| line.contains("messages/s"));
    let rest = server.interrupt_and_read_rest();
    assert!(rest.contains("totals so far") && rest.contains("delivered"), "{rest}");
    wait::end_of("a client whose server has ended", &mut client);
}

#[test]
fn processes_of_a_measurement_end_with_their_input() {
    let server = ["perf", "server", "--end-with-input", "-p", "0", "--udp-port", "0", "-B", "127.0.0.1"];
    for words in [&server[..], &["peer", "daemon"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_swiftwater"));
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        // A closed output would end them, too.
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        assert!(output.read_line(&mut String::new()).expect("it serves") > 0);
        drop(child.stdin.take());
        wait::end_of(words[0], &mut child);
    }
}

#[test]
fn a_server_for_its_own_user_serves_nobody_else() {
    const NOBODY: u32 = 65534;
    let server = Server::start_with(&["--own-user"]);
    let mut stranger = server.client(&["--proto", "tcp", "-n", "1"]);
    // Without the rights of root this user is the only one.
    if let Ok(output) = stranger.uid(NOBODY).gid(NOBODY).current_dir("/").output() {
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains("control connection"), "{said}");
    }
    for protocol in ["tcp", "sctp"] {
        let rows = server.ask(&["--proto", protocol, "-n", "1"]);
        let total = rows.iter().find(|row| row["period"] == "total").expect("the client has ended well");
        assert_eq!(total["messages"], 1, "{protocol}");
    }
}

#[test]
fn a_server_for_one_test_prints_its_result_as_json() {
    let port =
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").port();
    let port = port.to_string();
    let words = ["perf", "server", "--once", "--json", "-B", "127.0.0.1", "--udp-port", "0", "-p", &port];
    let server = swiftwater(&words).stdout(Stdio::piped()).spawn().expect("the program starts");
    wait::until("the server listens", || std::net::TcpStream::connect(format!("127.0.0.1:{port}")).is_ok());
    let client = swiftwater(&["perf", "client", "127.0.0.1", "-p", &port, "-n", "100", "-l", "10"]).output();
    let client = client.expect("the program starts");
    assert!(client.status.success(), "{}", text(&client.stderr));
    let rows = rows(&server.wait_with_output().expect("it ends after one test"));
    assert_eq!((rows.len(), number(&rows[0], "messages")), (1, 100.0));
    assert_eq!(rows[0]["series"], "sctp-message");
}

#[test]
fn data_may_travel_to_another_address_than_the_control_connection() {
    let server = Server::start_with(&["-B", "127.0.0.2", "--control", "127.0.0.1"]);
    for protocol in ["tcp", "sctp"] {
        let words = ["perf", "client", "127.0.0.2", "--control", "127.0.0.1", "-p", &server.port];
        let mut client = swiftwater(&words);
        let output = client.args(["--proto", protocol, "-n", "100", "-l", "10", "--json"]).output();
        let rows = rows(&output.expect("the program starts"));
        let total = rows.last().expect("a row of the whole test");
        assert_eq!(number(total, "bytes"), 1_000.0, "{total}");
    }
}

#[test]
fn failures_are_reported_in_a_sentence() {
    let nobody =
        swiftwater(&["perf", "client", "127.0.0.1", "-p", "1", "--proto", "tcp"]).output().expect("starts");
    assert!(
        !nobody.status.success() && text(&nobody.stderr).contains("start `swiftwater perf server` there")
    );
    let server = Server::start();
    let taken =
        swiftwater(&["perf", "server", "-B", "127.0.0.1", "-p", &server.port]).output().expect("starts");
    assert!(!taken.status.success() && text(&taken.stderr).contains("choose another port"));
    let too_long = server.client(&["--proto", "udp", "-l", "100k"]).output().expect("starts");
    assert!(!too_long.status.success() && text(&too_long.stderr).contains("from 1 to 65507"));
    let stranger = std::net::TcpStream::connect(format!("127.0.0.1:{}", server.port)).expect("it listens");
    std::io::Write::write_all(&mut &stranger, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("room");
    assert_eq!(server.ask(&["--proto", "tcp", "-n", "10"]).len(), 1, "a stranger does not stop it");
}

#[test]
fn bench_writes_a_table_json_and_a_page() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bench");
    fs::create_dir_all(&folder).expect("a folder of our own");
    let (json, html) = (folder.join("b.json"), folder.join("b.html"));
    let words = ["bench", "--sizes", "64,1k", "--series", "sctp-message,udp-limit,sctp-rr", "--cpus", "1"];
    let output = swiftwater(&words)
        .args(["--seconds", "0.02", "--repeat", "2"])
        .arg(format!("--json={}", json.display()))
        .arg("--html")
        .arg(&html)
        .output()
        .expect("the program starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    assert!(
        table.contains("messages/s") && table.contains("ratio to tcp") && table.contains("p99 us"),
        "{table}"
    );
    let rows: Vec<Value> = serde_json::from_slice(&fs::read(&json).expect("written")).expect("JSON");
    // Two sizes of tcp, sctp-message and udp-limit, the last two with two packet sizes; and two of latency.
    assert_eq!(rows.len(), 2 * (1 + 2 + 2) + 2, "{table}");
    for row in &rows {
        assert!(number(row, "messages_per_s") > 0.0, "{row}");
        // Series with bytes only have no messages to compare.
        assert_eq!(row.get("ratio_to_tcp").is_some(), row["series"] != "udp-limit", "{row}");
        assert!(number(row, "cpus") == 1.0 && number(row, "packet_bytes") >= 1500.0, "{row}");
    }
    let latency = rows.iter().find(|row| row["series"] == "sctp-rr").expect("asked for");
    assert!(number(latency, "latency_us_p50") <= number(latency, "latency_us_p99"));
    assert!(fs::read_to_string(&html).expect("written").contains("<figure class=\"improvement\">"));
}

/// Returns the number of processes that this one has started and that have not ended.
fn children(process: u32) -> usize {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    children.unwrap_or_default().split_whitespace().count()
}

#[test]
fn ctrl_c_ends_bench_in_the_middle_of_a_run() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bench-interrupted");
    fs::create_dir_all(&folder).expect("a folder of our own");
    let words =
        ["bench", "--sizes", "64", "--series", "tcp", "--cpus", "1", "--seconds", "40", "--repeat", "1"];
    let mut command = swiftwater(&words);
    command.args(["--json", "--html"]).arg(folder.join("b.html"));
    let bench = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the program starts");
    wait::until("the client and the server of a run", || children(bench.id()) >= 2);
    interrupt(bench.id());
    let output = bench.wait_with_output().expect("it ends");
    // A run that had gone on to its end would have left a row.
    assert_eq!((text(&output.stdout).trim(), output.status.code()), ("[]", INTERRUPTED));
}

#[test]
fn an_experiment_of_the_other_clock_is_named_with_its_option() {
    for (option, name, advice) in [
        ("--live", "tail-loss", "not in real time, but on the virtual clock: --virtual tail-loss"),
        ("--virtual", "strsctp", "it is in real time: --live strsctp"),
        ("--live", "tail", "possible values: two-equal,"),
        ("--virtual", "tail", "they are: sctplib,"),
    ] {
        let output = swiftwater(&["lab", option, name]).output().expect("the program starts");
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(advice), "{option} {name}: {said}");
    }
}

#[test]
fn options_of_live_experiments_are_refused_on_the_virtual_clock() {
    for option in [&["--out", "results"][..], &["--repeat", "2"], &["--quick"]] {
        let words = [&["lab", "--virtual", "tail-loss"], option].concat();
        let output = swiftwater(&words).output().expect("the program starts");
        let said = text(&output.stderr);
        assert!(
            output.status.code() == Some(2) && said.contains("cannot be used with"),
            "{option:?}: {said}"
        );
    }
}

#[test]
fn options_that_exclude_each_other_are_refused_with_the_reason() {
    let cases: [(&[&str], &str); 5] = [
        (
            &["--live", "lossy", "--quick", "--repeat", "3"],
            "--repeat cannot be used with --quick, which measures",
        ),
        (&["--live", "datatag", "--quick", "--full"], "--full cannot be used with --quick, which measures"),
        (
            &["--live", "lossy", "--virtual", "lossy"],
            "--live cannot be used with --virtual: the one is in real time",
        ),
        (&["--list", "--out", "results"], "--out is for experiments in real time: add --live NAME"),
        (&["check", "--path", "-5mbit"], "neither a rate nor a delay is negative; a path is such as"),
    ];
    for (words, sentence) in cases {
        let output = swiftwater(&[&["lab"], words].concat()).output().expect("the program starts");
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(sentence), "{words:?}: {said}");
    }
}

#[test]
fn options_of_other_protocols_are_refused() {
    let of_sctp =
        ["--no-checksum", "--coupling balia", "--multipath off", "--link raw", "--udp-port 0", "--qlog x"];
    let of_connections = ["--mode stream", "--congestion bbr"];
    let cases =
        of_sctp.map(|option| ("tcp", option)).into_iter().chain(of_connections.map(|option| ("udp", option)));
    for (proto, option) in cases {
        let mut command = swiftwater(&["perf", "client", "127.0.0.1", "-p", "1", "--proto", proto]);
        let said = text(&command.args(option.split(' ')).output().expect("the program starts").stderr);
        assert!(said.contains(&format!("has no effect with --proto {proto}")), "{option}: {said}");
    }
}

#[test]
fn a_trace_that_cannot_be_written_costs_no_results() {
    let server = Server::start();
    let output = server.client(&["-n", "10", "--qlog", "/dev/full"]).output().expect("the program starts");
    assert!(text(&output.stdout).contains("delivered"), "{}", text(&output.stdout));
    assert!(
        text(&output.stderr).contains("the trace was not written to /dev/full: No space left"),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_trace_on_a_full_disk_is_kept_up_to_there() {
    let (server, file) =
        (Server::start(), std::env::temp_dir().join(format!("cut-{}.sqlog", std::process::id())));
    // A limit on files stands for a full disk: without the signal, the write that exceeds it fails.
    let limited = "trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\"";
    let client = server.client(&["-n", "100000", "--qlog"]);
    let output = Command::new("sh")
        .args(["-c", limited, env!("CARGO_BIN_EXE_swiftwater")])
        .args(client.get_args())
        .arg(&file)
        .output()
        .expect("the program starts");
    let (said, kept) = (text(&output.stderr).to_owned(), fs::metadata(&file).map_or(0, |found| found.len()));
    let shown = swiftwater(&["trace", "show"]).arg(&file).output().expect("the program starts");
    let _ = fs::remove_file(&file);
    assert!(said.contains("cut-") && said.contains("ends early: File too large"), "{said}");
    assert!(said.contains("name another file with --qlog") && output.status.code() == Some(1), "{said}");
    assert!(kept > 0 && shown.status.success() && !shown.stdout.is_empty(), "{}", text(&shown.stderr));
    assert!(text(&output.stdout).contains("delivered"), "the figures are not lost");
}

#[test]
fn a_trace_that_cannot_be_written_costs_no_figures_of_an_experiment() {
    let words = ["lab", "--virtual", "tail-loss", "--case", "last packet", "--qlog", "/dev/full", "--json"];
    let output = swiftwater(&words).output().expect("the program starts");
    let said = text(&output.stderr);
    assert!(
        !output.status.success() && said.contains("the trace was not written to /dev/full: No space left"),
        "{said}"
    );
    let rows: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(!rows.as_array().expect("an array").is_empty());
}

#[test]
fn a_client_reaches_this_host_by_the_unspecified_address() {
    let server = Server::start();
    let client = ["perf", "client", "0.0.0.0", "-p", &server.port, "-n", "10"];
    let output = swiftwater(&client).output().expect("the program starts");
    assert!(text(&output.stdout).contains("delivered"), "{}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn an_address_may_have_brackets() {
    let output = swiftwater(&["perf", "client", "[::1]", "-p", "1"]).output().expect("the program starts");
    assert!(text(&output.stderr).contains("cannot reach a server at [::1]:1"), "{}", text(&output.stderr));
}

#[test]
fn a_test_that_cannot_be_made_is_not_announced() {
    for wrong in [["-l", "0"], ["-P", "0"], ["--mtu", "10"]] {
        let output = swiftwater(&["perf", "client", "127.0.0.1"]).args(wrong).output().expect("starts");
        assert_eq!((text(&output.stdout).as_str(), output.status.code()), ("", Some(2)), "{wrong:?}");
    }
}

#[test]
fn bench_prints_json_alone_when_asked() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bench-json");
    fs::create_dir_all(&folder).expect("a folder of our own");
    let words =
        ["bench", "--sizes", "64", "--series", "tcp", "--cpus", "1", "--seconds", "0.02", "--repeat", "1"];
    let output =
        swiftwater(&words).args(["--json", "--html"]).arg(folder.join("b.html")).output().expect("starts");
    assert_eq!(rows(&output).len(), 1);
    assert!(text(&output.stderr).contains("ratio to tcp"), "the table goes where the JSON does not");
}

#[test]
fn a_test_is_recorded_printed_and_drawn() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("trace");
    fs::create_dir_all(&folder).expect("a folder");
    let (client, server_file) = (folder.join("client.sqlog"), folder.join("server.sqlog"));
    let server = Server::start_with(&["--qlog", server_file.to_str().expect("text")]);
    let words = ["-n", "200", "-l", "5000", "--mtu", "1500", "-P", "2", "--qlog"];
    let rows = server.ask(&[&words[..], &[client.to_str().expect("text")]].concat());
    assert_eq!(number(rows.last().expect("a total"), "messages"), 200.0);
    server.interrupt_and_read_rest();
    let show = |file: &PathBuf, words: &[&str]| {
        let output = swiftwater(&["trace", "show"]).arg(file).args(words).output().expect("starts");
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    for file in [&client, &server_file] {
        let ends = show(file, &["-e", "association_closed"]);
        assert_eq!(ends.lines().count(), 2, "two associations: {ends}");
    }
    let count = |file: &PathBuf, name: &str| show(file, &["-e", name]).lines().count();
    // The INITs come before the associations of the server; it answers them without one.
    let (left, arrived) = (count(&client, "packet_sent"), count(&server_file, "packet_received"));
    assert!(arrived >= 200 * 5000 / 1472 && left >= arrived + 2, "{left} left, {arrived} arrived");
    let output = swiftwater(&["trace", "plot"]).arg(&client).output().expect("starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).ends_with("client.svg: 2 paths\n"), "{}", text(&output.stdout));
    let svg = fs::read_to_string(folder.join("client.svg")).expect("written");
    assert_eq!(svg.matches("arrived at the peer").count(), 2);
    let picture = swiftwater(&["trace", "plot"]).arg(&client).args(["-o", "x.bmp"]).output().expect("starts");
    assert!(!picture.status.success() && text(&picture.stderr).contains("end it with .svg or .html"));
    let server = Server::start();
    let tcp = server.client(&["--proto", "tcp", "--qlog", "x.sqlog"]).output().expect("starts");
    assert!(!tcp.status.success() && text(&tcp.stderr).contains("--qlog has no effect with --proto tcp"));
}

#[test]
fn help_has_examples_and_the_manual_a_page_for_each_command() {
    for words in [
        &["--help"][..],
        &["perf", "server", "--help"],
        &["perf", "client", "--help"],
        &["bench", "--help"],
        &["doctor", "--help"],
        &["status", "--help"],
        &["trace", "plot", "--help"],
        &["trace", "show", "--help"],
    ] {
        let output = swiftwater(words).output().expect("the program starts");
        assert!(output.status.success() && text(&output.stdout).contains("Examples:"), "{words:?}");
    }
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("man");
    let output = swiftwater(&["man"]).arg(&folder).output().expect("the program starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    for page in [
        "swiftwater",
        "swiftwater-perf",
        "swiftwater-perf-server",
        "swiftwater-perf-client",
        "swiftwater-bench",
        "swiftwater-doctor",
        "swiftwater-status",
        "swiftwater-trace-plot",
        "swiftwater-trace-show",
    ] {
        assert!(folder.join(format!("{page}.1")).exists(), "{page}");
    }
    let page = fs::read_to_string(folder.join("swiftwater-perf-client.1")).expect("written");
    for section in ["EXAMPLES", "ENVIRONMENT", "EXIT STATUS", "SEE ALSO", "NOTES"] {
        assert!(
            page.contains(&format!(".SH {section}")) || page.contains(&format!(".SH \"{section}\"")),
            "{section}"
        );
    }
    assert!(page.contains("SWIFTWATER_DAEMON") && page.contains("swiftwater\\-perf\\-server(1)"), "{page}");
    for shell in ["bash", "zsh", "fish"] {
        let output = swiftwater(&["completions", shell]).output().expect("the program starts");
        assert!(output.status.success() && text(&output.stdout).contains("udp-port"), "{shell}");
    }
    assert!(!folder.join("swiftwater-peer.1").exists(), "hidden commands have no page");
}
