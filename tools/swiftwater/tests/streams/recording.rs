//! Recording the messages of a stream: traces and taps.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use swiftwater_tests::{tools, wait};

use crate::daemon::{Daemon, SWIFTWATER};
use crate::support::{Flow, await_stream, done, limited, refused, rows, streams};

#[test]
fn passing_messages_are_traced_and_tapped_until_the_reader_ends() {
    let daemon = Daemon::start("trace");
    let flow = Flow::start(&daemon, "trace", &["200"]);
    let (sender, receiver) = Flow::ends(&daemon.place);
    let mut trace = streams(&daemon.place, &["trace", &receiver]);
    let mut trace = trace.stdout(Stdio::piped()).spawn().expect("the command starts");
    let lines = BufReader::new(trace.stdout.as_mut().expect("it is piped")).lines().map_while(Result::ok);
    let lines: Vec<String> = lines.take(100).collect();
    assert!(lines.iter().all(|line| line.contains(" < T_OPTDATA_IND stream 0 ppid 0 ssn ")), "{lines:?}");
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("streams-tap.pcapng");
    let path = file.to_str().expect("text");
    fs::write(&file, "of an earlier run").expect("a folder for files of tests");
    let refused = streams(&daemon.place, &["tap", "4000000000", "-w", path]).output();
    assert!(!refused.expect("the command starts").status.success());
    assert_eq!(fs::read(&file).expect("it was not removed"), b"of an earlier run");
    let mut tap = streams(&daemon.place, &["tap", &sender, "-w", path]).spawn().expect("the command starts");
    wait::until("100 KB in the file of the tap", || {
        assert!(tap.try_wait().expect("a child").is_none(), "it writes on");
        fs::metadata(&file).is_ok_and(|file| file.len() >= 100_000)
    });
    kill_process(Pid::from_child(&tap), Signal::INT).expect("it runs");
    assert_eq!(wait::end_of("the tap", &mut tap).code(), Some(130));
    // The reader of the trace has gone.
    trace.kill().expect("it runs");
    trace.wait().expect("it was killed");
    let modules = || rows(&daemon.place).iter().filter(|row| row["row"] == "part").count();
    wait::until("both modules are popped", || modules() <= 4);
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
    wait::until("1,000 records are lost", || lost() >= 1000);
    done(streams(&daemon.place, &["pop", &sender]));
    let mut said = String::new();
    std::io::copy(tap.stdout.as_mut().expect("it is piped"), &mut std::io::sink()).expect("a pipe");
    tap.stderr.as_mut().expect("it is piped").read_to_string(&mut said).expect("text");
    assert!(said.contains("records were lost"), "{said}");
    assert!(tap.wait().expect("it ends").success());
    flow.end();
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
