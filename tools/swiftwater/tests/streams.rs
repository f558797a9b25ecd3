//! Tests of `swiftwater streams`: modules on the streams of running programs.
#![allow(missing_docs)]

mod daemon;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use daemon::{Daemon, SWIFTWATER, compiled};
use swiftwater_tests::namespace::Host;
use swiftwater_tests::tools;

/// A user without files and processes.
const NOBODY: u32 = 65534;

fn streams(place: &str, words: &[&str]) -> Command {
    let mut command = Command::new(SWIFTWATER);
    command.arg("streams").args(words).args(["--place", place]);
    command
}

fn output(mut command: Command) -> Output {
    command.output().expect("the command starts")
}

/// Runs a command that must succeed; returns its output.
fn done(command: Command) -> String {
    let output = output(command);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Runs a command that must fail; returns its error output.
fn refused(command: Command) -> String {
    let output = output(command);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).expect("text")
}

fn rows(place: &str) -> Vec<Value> {
    let printed = done(streams(place, &["--json"]));
    serde_json::from_str(&printed).expect("an array")
}

/// The program `flow`, with messages in flight.
struct Flow {
    program: Child,
    said: BufReader<ChildStdout>,
}

impl Flow {
    fn start(daemon: &Daemon, test: &str, arguments: &[&str]) -> Flow {
        Flow::start_by(daemon.run(compiled("flow", test)), arguments)
    }

    /// Starts another program that says the same once its messages flow.
    fn start_program(daemon: &Daemon, name: &str, test: &str) -> Flow {
        Flow::start_by(daemon.run(compiled(name, test)), &[])
    }

    fn start_by(mut command: Command, arguments: &[&str]) -> Flow {
        let piped = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = piped.spawn().expect("the command starts");
        let mut said = BufReader::new(program.stdout.take().expect("it is piped"));
        let mut line = String::new();
        said.read_line(&mut line).expect("a line");
        assert_eq!(line, "flows\n");
        Flow { program, said }
    }

    /// Returns the numbers of its sending and its receiving stream.
    fn ends(place: &str) -> (String, String) {
        let rows = rows(place);
        let stream = |wanted: &str| {
            let is_it = |row: &&Value| {
                row["row"] == "stream" && row[wanted].as_str().is_some_and(|a| a.ends_with(":6510"))
            };
            rows.iter().find(is_it).expect("a stream")["stream"].to_string()
        };
        (stream("peer"), stream("local"))
    }

    /// Ends the program, which checks the messages it has received. Returns their number.
    fn end(mut self) -> u64 {
        drop(self.program.stdin.take());
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).expect("text");
        assert!(self.program.wait().expect("it ends").success(), "messages were lost, or out of order");
        rest.split(' ').next().and_then(|count| count.parse().ok()).expect("a count")
    }
}

#[test]
fn pushing_and_popping_under_full_load_loses_duplicates_and_reorders_nothing() {
    let daemon = Daemon::start("flow");
    let flow = Flow::start(&daemon, "flow", &[]);
    let (sender, receiver) = Flow::ends(&daemon.place);
    let push = |id: &str, words: &[&str]| {
        done(streams(&daemon.place, &[&["push", id], words].concat()));
    };
    let pop = |id: &str| done(streams(&daemon.place, &["pop", id]));
    for _ in 0..10 {
        push(&sender, &["bufmod"]);
        push(&receiver, &["limit", "bits=200M"]);
        push(&sender, &["limit", "bits=300M"]);
        push(&receiver, &["filter", "way=both", "delay=1"]);
        assert_eq!([pop(&sender), pop(&receiver)], ["limit\n", "filter\n"]);
        push(&sender, &["counter"]);
        assert_eq!([pop(&sender), pop(&sender), pop(&receiver)], ["counter\n", "bufmod\n", "limit\n"]);
    }
    assert!(flow.end() > 1000);
}

#[test]
fn streams_are_shown_with_their_modules() {
    let daemon = Daemon::start("shown");
    let flow = Flow::start(&daemon, "shown", &["1000"]);
    let (sender, _) = Flow::ends(&daemon.place);
    done(streams(&daemon.place, &["push", &sender, "limit", "bits=100M"]));
    done(streams(&daemon.place, &["push", &sender, "filter", "drop=0"]));
    let tree = done(streams(&daemon.place, &[]));
    let lines: Vec<&str> = tree.lines().skip_while(|line| !line.starts_with(&format!("{sender} "))).collect();
    let begin = |line: usize| lines[line].split_whitespace().take(2).collect::<Vec<_>>();
    assert_eq!(
        [begin(1)[0], begin(2)[1], begin(3)[1], begin(4)[1]],
        ["head", "filter", "limit", "sctp"],
        "{tree}"
    );
    let documented = include_str!("../../../docs/json.md");
    for (key, value) in rows(&daemon.place).iter().flat_map(|row| row.as_object().expect("objects")) {
        assert!(!value.is_object() && !value.is_array(), "{key} is not flat");
        assert!(documented.contains(&format!("`{key}`")), "{key} is missing in docs/json.md");
    }
    let said = |words: &[&str]| refused(streams(&daemon.place, words));
    assert!(said(&["push", &sender, "no-such"]).contains("there are bufmod"));
    assert!(said(&["push", &sender, "limit"]).contains("set bits=RATE, messages=RATE or both"));
    assert!(
        said(&["push", &sender, "limit", "bits=fast"]).contains("bits=fast is not a rate; write a number")
    );
    assert!(said(&["push", "999999", "bufmod"]).contains("no association has this number"));
    for _ in 2..8 {
        done(streams(&daemon.place, &["push", &sender, "nullmod"]));
    }
    assert!(said(&["push", &sender, "nullmod"]).contains("as many modules as it may have"));
    for _ in 0..8 {
        done(streams(&daemon.place, &["pop", &sender]));
    }
    assert!(said(&["pop", &sender]).contains("no module to pop"));
    flow.end();
}

#[test]
fn what_passes_is_traced_and_tapped_until_the_reader_ends() {
    let daemon = Daemon::start("trace");
    let flow = Flow::start(&daemon, "trace", &["200"]);
    let (sender, receiver) = Flow::ends(&daemon.place);
    let mut trace = streams(&daemon.place, &["trace", &receiver]);
    let mut trace = trace.stdout(Stdio::piped()).spawn().expect("the command starts");
    let lines = BufReader::new(trace.stdout.as_mut().expect("it is piped")).lines().map_while(Result::ok);
    let lines: Vec<String> = lines.take(100).collect();
    assert!(lines.iter().all(|line| line.contains(" < T_OPTDATA_IND stream 0 ppid 0 ssn ")), "{lines:?}");
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("streams-tap.pcapng");
    // A file of an earlier run would be mistaken for this one's.
    let _ = fs::remove_file(&file);
    let path = file.to_str().expect("text");
    let mut tap = streams(&daemon.place, &["tap", &sender, "-w", path]).spawn().expect("the command starts");
    while fs::metadata(&file).map_or(0, |file| file.len()) < 100_000 {
        assert!(tap.try_wait().expect("a child").is_none(), "it writes on");
        std::thread::yield_now();
    }
    kill_process(Pid::from_child(&tap), Signal::INT).expect("it runs");
    assert_eq!(tap.wait().expect("it ends").code(), Some(130));
    // The reader of the trace has gone.
    trace.kill().expect("it runs");
    trace.wait().expect("it was killed");
    let modules = || rows(&daemon.place).iter().filter(|row| row["row"] == "part").count();
    while modules() > 4 {
        std::thread::yield_now();
    }
    let packets = packets(&file);
    assert!(packets.len() > 10, "{} packets", packets.len());
    for pair in packets.windows(2) {
        let number = |packet: &[u8]| u32::from_le_bytes(packet[28..32].try_into().expect("a message"));
        assert_eq!(number(&pair[1]), number(&pair[0]) + 1, "messages follow each other");
    }
    flow.end();
}

/// Returns the packets of a pcapng file.
fn packets(file: &Path) -> Vec<Vec<u8>> {
    let bytes = fs::read(file).expect("the tap has written it");
    let mut reader = pcap_file::pcapng::PcapNgReader::new(&bytes[..]).expect("a section");
    let mut packets = Vec::new();
    while let Some(block) = reader.next_block() {
        if let pcap_file::pcapng::Block::EnhancedPacket(packet) = block.expect("a block") {
            packets.push(packet.data.to_vec());
        }
    }
    packets
}

#[test]
fn a_slow_reader_loses_records_and_the_stream_nothing() {
    let daemon = Daemon::start("slow");
    let flow = Flow::start(&daemon, "slow", &[]);
    let (sender, _) = Flow::ends(&daemon.place);
    let mut tap = streams(&daemon.place, &["tap", &sender]);
    let mut tap = tap.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts");
    let lost = || {
        let rows = rows(&daemon.place);
        let count = rows.iter().find(|row| row["name"] == "tap" && row["what"] == "lost");
        count.and_then(|row| row["count"].as_u64()).unwrap_or_default()
    };
    // Nobody reads the pipe.
    while lost() < 1000 {
        std::thread::yield_now();
    }
    done(streams(&daemon.place, &["pop", &sender]));
    let mut said = String::new();
    std::io::copy(tap.stdout.as_mut().expect("it is piped"), &mut std::io::sink()).expect("a pipe");
    tap.stderr.as_mut().expect("it is piped").read_to_string(&mut said).expect("text");
    assert!(said.contains("records were lost"), "{said}");
    assert!(tap.wait().expect("it ends").success());
    flow.end();
}

#[test]
fn rules_push_modules_when_associations_are_set_up() {
    let rules = Path::new(env!("CARGO_TARGET_TMPDIR")).join("streams.rules");
    let text = "# senders and receivers of flow\nprogram=sockets-rules port=6510 counter limit(bits=1G)\n";
    fs::write(&rules, text).expect("our own folder");
    let mut command = Command::new("sh");
    let path = rules.to_str().expect("text");
    command.args(["-c", "exec \"$0\" \"$@\" --autopush \"$RULES\"", SWIFTWATER]).env("RULES", path);
    let daemon = Daemon::start_with("rules", command);
    let flow = Flow::start(&daemon, "rules", &["1000"]);
    let parts = rows(&daemon.place);
    let names: Vec<&str> =
        parts.iter().filter(|row| row["row"] == "part").filter_map(|row| row["name"].as_str()).collect();
    assert_eq!(names, ["head", "limit", "counter", "sctp"].repeat(2));
    flow.end();
    fs::write(&rules, "\nport=7 no-such-module\n").expect("our own folder");
    let mut wrong = Command::new(SWIFTWATER);
    wrong.args(["daemon", "--udp-port", "0", "--place", "@swiftwater-test-wrong-rules", "--autopush", path]);
    let sentence = refused(wrong);
    let words =
        format!("swiftwater: {path}: line 2: no-such-module: no module has this name; there are bufmod, ");
    assert!(sentence.starts_with(&words), "nothing else comes before: {sentence}");
}

#[test]
fn a_rule_taps_each_association_into_a_folder() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("streams-tapped");
    // An earlier run may have left files.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("our own folder");
    let rules = folder.with_extension("rules");
    let text = format!("program=sockets-tapped tap(directory={}) counter\n", folder.display());
    fs::write(&rules, text).expect("our own folder");
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" \"$@\" --autopush \"$RULES\"", SWIFTWATER]).env("RULES", &rules);
    let mut daemon = Daemon::start_with("tapped", command);
    let flow = Flow::start(&daemon, "tapped", &["1000"]);
    let parts = rows(&daemon.place);
    let names: Vec<&str> =
        parts.iter().filter(|row| row["row"] == "part").filter_map(|row| row["name"].as_str()).collect();
    assert_eq!(names, ["head", "counter", "tap", "sctp"].repeat(2));
    let messages = flow.end();
    // An orderly end writes the rest.
    kill_process(Pid::from_child(&daemon.process), Signal::TERM).expect("it runs");
    assert!(daemon.process.wait().expect("it ends").success());
    let files: Vec<PathBuf> =
        fs::read_dir(&folder).expect("our own folder").map(|file| file.expect("a file").path()).collect();
    assert_eq!(files.len(), 2, "{files:?}");
    for file in files {
        assert_eq!(fs::metadata(&file).expect("a file").permissions().mode() & 0o777, 0o600);
        let packets = packets(&file);
        let data = packets.iter().filter(|packet| packet.len() > 28);
        let numbers: Vec<u32> =
            data.map(|packet| u32::from_le_bytes(packet[28..32].try_into().expect("a message"))).collect();
        assert!(numbers.is_sorted() && numbers.len() as u64 == messages, "{} of {messages}", numbers.len());
    }
    fs::write(&rules, "port=7 tap(directory=/proc/version)\n").expect("our own folder");
    let mut wrong = Command::new(SWIFTWATER);
    wrong
        .args(["daemon", "--udp-port", "0", "--place", "@swiftwater-test-wrong-folder", "--autopush"])
        .arg(&rules);
    assert!(refused(wrong).contains("line 1: tap directory=/proc/version: "));
}

#[test]
fn a_program_finds_what_a_filter_drops() {
    let daemon = Daemon::start("dropped");
    let mut flow = Flow::start(&daemon, "dropped", &["100"]);
    let (sender, _) = Flow::ends(&daemon.place);
    done(streams(&daemon.place, &["push", &sender, "filter", "drop=0.01"]));
    // Closing its input would end it, and so would a wait.
    let input = flow.program.stdin.take();
    assert!(!flow.program.wait().expect("it ends").success(), "a message is missing");
    drop(input);
}

/// The program `between`, and the numbers of the two associations of its proxy.
struct Between {
    flow: Flow,
    proxy: [String; 2],
}

impl Between {
    fn start(daemon: &Daemon, test: &str) -> Between {
        Between::of(daemon, Flow::start_program(daemon, "between", test))
    }

    fn of(daemon: &Daemon, flow: Flow) -> Between {
        let is_proxys = |row: &&Value| {
            row["row"] == "stream" && row["local"].as_str().is_some_and(|local| local.ends_with(":6511"))
        };
        let rows = rows(&daemon.place);
        let proxy: Vec<String> = rows.iter().filter(is_proxys).map(|row| row["stream"].to_string()).collect();
        Between { flow, proxy: proxy.try_into().expect("two associations") }
    }

    fn begin(&mut self, command: &[u8]) {
        self.flow.program.stdin.as_mut().expect("it is piped").write_all(command).expect("it reads");
    }

    /// Waits for the end of a command; returns the number of messages that the proxy has copied.
    fn ended(&mut self) -> u64 {
        let mut line = String::new();
        self.flow.said.read_line(&mut line).expect("a line");
        let count = line.trim_end().strip_prefix("copied ").and_then(|count| count.parse().ok());
        count.unwrap_or_else(|| panic!("{line}"))
    }

    fn copied(&mut self, command: &[u8]) -> u64 {
        self.begin(command);
        self.ended()
    }
}

#[test]
fn linked_streams_pass_messages_on_while_their_program_waits() {
    let daemon = Daemon::start("linked");
    let mut between = Between::start(&daemon, "linked");
    let [a, b] = between.proxy.clone();
    let command = |words: &[&str]| streams(&daemon.place, words);
    assert_eq!(between.copied(b"e"), 400);
    done(command(&["link", &a, &b]));
    assert_eq!(between.copied(b"e"), 0, "the proxy is not on the way");
    let passed: Vec<(String, u64)> = rows(&daemon.place)
        .iter()
        .filter(|row| row["row"] == "link")
        .map(|row| (row["linked_with"].to_string(), row["messages"].as_u64().expect("a count")))
        .collect();
    assert_eq!(passed, [(b.clone(), 200), (a.clone(), 200)]);
    let tree = done(command(&[]));
    assert!(tree.contains(&format!("   splice with {b}: 200 messages passed on, 120,000 bytes\n")), "{tree}");
    assert!(refused(command(&["link", &b, &a])).contains("linked already"));
    assert_eq!(done(command(&["unlink", &b])), format!("{a}\n"));
    assert!(refused(command(&["unlink", &b])).contains("not linked"));
    assert_eq!(between.copied(b"e"), 400);

    between.begin(b"l");
    for _ in 0..5 {
        done(command(&["link", &a, &b]));
        done(command(&["unlink", &a]));
    }
    assert!(between.ended() > 0, "no message was lost or doubled");

    done(command(&["link", &a, &b]));
    assert_eq!(between.copied(b"c"), 0, "the proxy has found the end");
    assert!(between.flow.program.try_wait().expect("a child").is_none());
    drop(between.flow.program.stdin.take());
    assert!(between.flow.program.wait().expect("it ends").success());
}

#[test]
fn no_message_goes_round_through_links() {
    let daemon = Daemon::start("circle");
    let between = Between::start(&daemon, "circle");
    let [a, b] = &between.proxy;
    let rows = rows(&daemon.place);
    let clients: Vec<String> = rows
        .iter()
        .filter(|row| row["peer"].as_str().is_some_and(|peer| peer.ends_with(":6511")))
        .map(|row| row["stream"].to_string())
        .collect();
    let link = |one: &str, other: &str| streams(&daemon.place, &["link", one, other]);
    assert!(refused(link(a, a)).contains("EINVAL"), "one stream");
    for client in &clients {
        let to_its_peer = [a, b].map(|end| output(link(client, end)));
        let failed = to_its_peer.iter().filter(|output| !output.status.success());
        let said: Vec<_> = failed.map(|output| String::from_utf8_lossy(&output.stderr)).collect();
        assert_eq!(said.len(), 1, "both ends of one association");
        assert!(said[0].contains("EINVAL"), "{}", said[0]);
        done(streams(&daemon.place, &["unlink", client]));
    }
    done(link(a, b));
    assert!(refused(link(&clients[0], &clients[1])).contains("EINVAL"), "through the other link");
    assert!(refused(link(a, "999999")).contains("no association has this number"));
}

/// Starts a program under `swiftwater run` that ends after 60 s at most.
fn limited(daemon: &Daemon, words: &str) -> Child {
    let mut command = daemon.run("timeout");
    command
        .arg("60")
        .args(words.split(' '))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().expect("the command starts")
}

/// Waits for the stream one of whose ends, `local` or `peer`, has this port; returns its number.
fn await_stream(place: &str, end: &str, port: u16) -> String {
    let port = format!(":{port}");
    loop {
        let is_it =
            |row: &&Value| row["row"] == "stream" && row[end].as_str().is_some_and(|a| a.ends_with(&port));
        if let Some(stream) = rows(place).iter().find(is_it) {
            return stream["stream"].to_string();
        }
        std::thread::yield_now();
    }
}

#[test]
#[ignore = "needs socat: ./test --all"]
fn what_a_module_holds_reaches_a_program_whose_peer_has_closed() {
    const BYTES: usize = 400_000;
    if tools::program("socat").is_none() {
        return;
    }
    let daemon = Daemon::start("held");
    // A pipe that nobody reads yet holds it up.
    let mut reader = limited(&daemon, "socat -u SCTP-LISTEN:7011,reuseaddr -");
    daemon.await_listener(7011);
    let mut reader_output = reader.stdout.take().expect("it is piped");
    let mut writer = limited(&daemon, "socat -u - SCTP:127.0.0.1:7011");
    let stream = await_stream(&daemon.place, "local", 7011);
    done(streams(&daemon.place, &["push", &stream, "bufmod"]));
    let mut input = writer.stdin.take().expect("it is piped");
    input.write_all(&[b'x'; BYTES]).expect("it reads");
    drop(input);
    assert!(writer.wait().expect("it ends").success());
    // The association ends, and no packet comes any more.
    while rows(&daemon.place).iter().filter(|row| row["row"] == "stream").count() > 1 {
        std::thread::yield_now();
    }
    let mut read = Vec::new();
    reader_output.read_to_end(&mut read).expect("a pipe");
    assert_eq!(read.len(), BYTES);
    assert!(reader.wait().expect("it ends").success());
}

#[test]
#[ignore = "needs iperf3: ./test --all"]
fn a_limit_holds_on_a_running_iperf3_until_it_is_popped() {
    if tools::program("iperf3").is_none() {
        return;
    }
    let daemon = Daemon::start("iperf3");
    let mut server = limited(&daemon, "iperf3 -s -1 -p 5311 --forceflush");
    let said = BufReader::new(server.stdout.take().expect("it is piped"));
    let mut lines = said.lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("listening")));
    let client = limited(&daemon, "iperf3 -c 127.0.0.1 -p 5311 --sctp -t 9 -i 1 -J");
    let stream = await_stream(&daemon.place, "peer", 5311);
    std::thread::sleep(Duration::from_secs(2));
    done(streams(&daemon.place, &["push", &stream, "limit", "bits=20M"]));
    std::thread::sleep(Duration::from_secs(4));
    done(streams(&daemon.place, &["pop", &stream]));
    let report: Value =
        serde_json::from_slice(&client.wait_with_output().expect("it ends").stdout).expect("JSON");
    let intervals = report["intervals"].as_array().expect("intervals");
    let rates: Vec<f64> =
        intervals.iter().map(|i| i["sum"]["bits_per_second"].as_f64().expect("a rate")).collect();
    let limited = rates.iter().filter(|rate| **rate < 40e6).count();
    assert!(limited >= 2 && rates[0] > 100e6 && rates[rates.len() - 1] > 100e6, "{rates:?}");
    server.wait().expect("it ends");
}

#[test]
#[ignore = "needs sipp and tshark: ./test --all"]
fn a_tap_of_a_sip_call_opens_in_tshark() {
    if tools::program("sipp").is_none() || tools::program("tshark").is_none() {
        return;
    }
    let daemon = Daemon::start("sip");
    let mut server = limited(&daemon, "sipp -sn uas -p 5080 -t s1 -i 127.0.0.1 -m 30 -nostdin");
    daemon.await_listener(5080);
    let mut client =
        limited(&daemon, "sipp -sn uac -p 5081 -r 10 -t s1 -i 127.0.0.1 -m 30 -nostdin 127.0.0.1:5080");
    let stream = await_stream(&daemon.place, "peer", 5080);
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("streams-sip.pcapng");
    let path = file.to_str().expect("text");
    let tap = streams(&daemon.place, &["tap", &stream, "-w", path]).output().expect("the command starts");
    assert!(tap.status.success(), "it ends with the association: {}", String::from_utf8_lossy(&tap.stderr));
    assert!(client.wait().expect("it ends").success() && server.wait().expect("it ends").success());
    let shown = |filter: &str| {
        let shown = Command::new("tshark").args(["-r", path, "-Y", filter]).output().expect("tshark starts");
        String::from_utf8_lossy(&shown.stdout).lines().count()
    };
    // A call has six messages: INVITE, 180, 200, ACK, BYE, 200. The first ones may have passed before the tap.
    let (all, sip) = (packets(&file).len(), shown("sip"));
    assert!(sip > 60 && all - sip <= 4, "{sip} of {all}");
    assert_eq!(shown("_ws.malformed"), 0);
}

/// Copies files into a folder that every user may enter, for another user to run.
fn public(files: &[&Path]) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("swiftwater-test-streams-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder of our own");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("our own folder");
    for file in files {
        fs::copy(file, folder.join(file.file_name().expect("a file"))).expect("a file of our own");
    }
    folder
}

#[test]
#[ignore = "needs root, for a second user: ./test --all"]
fn a_stream_is_its_owners_and_roots() {
    let daemon = Daemon::start("owners");
    let roots = Flow::start(&daemon, "owners", &["1000"]);
    let (root_stream, _) = Flow::ends(&daemon.place);
    let folder = public(&[Path::new(SWIFTWATER)]);
    let as_nobody = |words: &[&str]| {
        let mut command = Command::new(folder.join("swiftwater"));
        command.arg("streams").args(words).args(["--place", &daemon.place]);
        command.uid(NOBODY).gid(NOBODY).current_dir("/");
        command
    };
    assert_eq!(done(as_nobody(&["--json"])).trim_end(), "[]", "nothing of root's is shown");
    for words in [
        &["push", &root_stream, "nullmod"][..],
        &["pop", &root_stream],
        &["trace", &root_stream],
        &["link", &root_stream, &root_stream],
        &["unlink", &root_stream],
    ] {
        assert!(refused(as_nobody(words)).contains("EPERM"), "{words:?}");
    }
    roots.end();

    let shim = Path::new(SWIFTWATER).with_file_name("libswiftwater_preload.so");
    let program = compiled("flow", "owners");
    let folder = public(&[&shim, &program]);
    let mut command = Command::new(folder.join("swiftwater"));
    command.args(["run", "--quiet", "--"]).arg(folder.join(program.file_name().expect("a file")));
    command.uid(NOBODY).gid(NOBODY).env("SWIFTWATER_DAEMON", &daemon.place).current_dir("/");
    let nobodys = Flow::start_by(command, &["1000"]);
    let (stream, _) = Flow::ends(&daemon.place);
    done(as_nobody(&["push", &stream, "nullmod"]));
    done(streams(&daemon.place, &["push", &stream, "limit", "bits=1G"]));
    assert!(refused(as_nobody(&["pop", &stream])).contains("EPERM"), "root has pushed it");
    assert_eq!(done(streams(&daemon.place, &["pop", &stream])), "limit\n");
    assert_eq!(done(as_nobody(&["pop", &stream])), "nullmod\n");
    nobodys.end();

    let program = compiled("between", "owners");
    let folder = public(&[&shim, &program]);
    let mut command = Command::new(folder.join("swiftwater"));
    command.args(["run", "--quiet", "--"]).arg(folder.join(program.file_name().expect("a file")));
    command.uid(NOBODY).gid(NOBODY).env("SWIFTWATER_DAEMON", &daemon.place).current_dir("/");
    let between = Between::of(&daemon, Flow::start_by(command, &[]));
    let [a, b] = &between.proxy;
    done(as_nobody(&["link", a, b]));
    assert_eq!(done(streams(&daemon.place, &["unlink", a])), format!("{b}\n"));
    done(streams(&daemon.place, &["link", a, b]));
    assert!(refused(as_nobody(&["unlink", b])).contains("EPERM"), "root has linked them");
    fs::remove_dir_all(&folder).expect("our own folder");
}

/// Two hosts on one line, with a daemon each.
struct TwoHosts {
    hosts: [Host; 2],
    daemons: [Daemon; 2],
}

impl TwoHosts {
    /// Makes the hosts, or reports the test as skipped.
    fn new(test: &'static str) -> Option<TwoHosts> {
        let hosts = [Host::new(test)?, Host::new(test)?];
        hosts[0].ip(&format!("link add line type veth peer name line netns {}", hosts[1].name()));
        let daemons = [0, 1].map(|which| {
            hosts[which].ip("link set lo up");
            hosts[which].ip(&format!("address add 10.20.0.{}/24 dev line", which + 1));
            hosts[which].ip("link set line up");
            on(&hosts[which], move || Daemon::start_at(test, "9899"))
        });
        Some(TwoHosts { hosts, daemons })
    }

    /// Starts a program under `swiftwater run`.
    fn start(&self, which: usize, words: &'static str) -> Child {
        let place = self.daemons[which].place.clone();
        on(&self.hosts[which], move || {
            let mut command = Command::new(SWIFTWATER);
            command.args(["run", "--quiet", "--", "timeout", "60"]).args(words.split(' '));
            command.env("SWIFTWATER_DAEMON", place).stdin(Stdio::piped()).stdout(Stdio::piped());
            command.spawn().expect("the command starts")
        })
    }

    /// Waits until a program of the second host listens on this port.
    fn await_listener(&self, port: u16) {
        std::thread::scope(|scope| {
            let (host, daemon) = (&self.hosts[1], &self.daemons[1]);
            scope.spawn(|| {
                host.enter();
                daemon.await_listener(port);
            });
        });
    }

    /// Pushes a module on the stream one of whose ends, `local` or `peer`, has this port.
    fn push(&self, which: usize, end: &'static str, port: u16, module: &'static str) {
        let place = self.daemons[which].place.clone();
        on(&self.hosts[which], move || {
            let stream = await_stream(&place, end, port);
            done(streams(&place, &["push", &stream, module]));
        });
    }

    /// Returns the bytes that a host has sent on the line.
    fn sent_bytes(&self, which: usize) -> u64 {
        on(&self.hosts[which], || {
            let devices = fs::read_to_string("/proc/thread-self/net/dev").expect("proc");
            let line =
                devices.lines().find_map(|line| line.trim_start().strip_prefix("line:")).expect("the line");
            line.split_whitespace().nth(8).and_then(|count| count.parse().ok()).expect("a count")
        })
    }
}

/// Does something on a host, with the programs that it starts.
fn on<T: Send + 'static>(host: &Host, work: impl FnOnce() -> T + Send + 'static) -> T {
    host.run(work).join().expect("it does not fail")
}

/// Copies text from one host to the other; returns the bytes that the sender's host has sent.
fn copied_by_socat(
    hosts: &TwoHosts,
    listen: &'static str,
    connect: &'static str,
    port: u16,
    module: Option<&'static str>,
) -> u64 {
    let line = |number: usize| {
        format!("{number:08} GET /index.html HTTP/1.1 200 {} bytes\n", number * 7919 % 10_007)
    };
    let text: String = (0..40_000).map(line).collect();
    let mut receiver = hosts.start(1, listen);
    hosts.await_listener(port);
    let mut sender = hosts.start(0, connect);
    if let Some(module) = module {
        hosts.push(0, "peer", port, module);
        hosts.push(1, "local", port, module);
    }
    // The modules know of each other once something was sent each way.
    for _ in 0..2 {
        pass_line(&mut sender, &mut receiver);
        pass_line(&mut receiver, &mut sender);
    }
    let before = hosts.sent_bytes(0);
    let mut output = receiver.stdout.take().expect("it is piped");
    let mut read = vec![0; text.len()];
    let reader = std::thread::spawn(move || {
        output.read_exact(&mut read).expect("all of it comes");
        read
    });
    sender.stdin.as_mut().expect("it is piped").write_all(text.as_bytes()).expect("it reads");
    assert!(reader.join().expect("it reads") == text.as_bytes(), "the text has arrived");
    let sent = hosts.sent_bytes(0) - before;
    // The end of its input makes a program shut the association down.
    for program in [&mut sender, &mut receiver] {
        drop(program.stdin.take());
        assert!(program.wait().expect("it ends").success());
    }
    println!("{} bytes of text in {sent} bytes on the line, with {module:?}", text.len());
    assert!(module.is_some() || sent > text.len() as u64);
    sent
}

/// Passes a line from the input of one program to the output of the other.
fn pass_line(from: &mut Child, to: &mut Child) {
    from.stdin.as_mut().expect("it is piped").write_all(b"line\n").expect("it reads");
    let mut line = [0; 5];
    to.stdout.as_mut().expect("it is piped").read_exact(&mut line).expect("it comes");
    assert_eq!(line, *b"line\n");
}

#[test]
#[ignore = "needs namespaces, ip and socat: ./test --all"]
fn compress_at_both_ends_shortens_what_passes_between_two_hosts() {
    if tools::program("socat").is_none() {
        return;
    }
    let Some(hosts) = TwoHosts::new("compress") else { return };
    daemon::preload();
    let plain =
        copied_by_socat(&hosts, "socat SCTP-LISTEN:7021 -", "socat - SCTP:10.20.0.2:7021", 7021, None);
    let compressed = copied_by_socat(
        &hosts,
        "socat SCTP-LISTEN:7022 -",
        "socat - SCTP:10.20.0.2:7022",
        7022,
        Some("compress"),
    );
    assert!(2 * compressed < plain, "{compressed} bytes on the line in place of {plain}");
}
