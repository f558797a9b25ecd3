//! tshark reads the captures of simulated networks: headers, checksums, times, interfaces and comments on packets.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use lab::Simulation;
use lab::traffic::{Source, Traffic};
use netsim::topology::Paths;
use netsim::{Capture, CaptureBuffer, Ecn, Loss, Network, Packet, PipeConfig};
use sctp::AssociationConfig;
use sctp_wire::chunk::{self, Chunk};
use sctp_wire::{Header, VerificationTag, packet};
use serde_json::Value;
use swiftwater_tests::tools;

/// RFC 6951 §5.1: the port of SCTP in UDP, by which tshark knows what is inside.
const ENCAPSULATION_PORT: u16 = 9899;
const MS: u64 = 1_000_000;

const FIELDS: [&str; 15] = [
    "_ws.expert.message",
    "_ws.malformed",
    "frame.comment",
    "frame.interface_name",
    "frame.packet_flags_direction",
    "frame.time_epoch",
    "ip.checksum.status",
    "ip.dsfield.ecn",
    "ip.src",
    "ipv6.src",
    "ipv6.tclass.ecn",
    "sctp.checksum.status",
    "sctp.chunk_type",
    "udp.checksum.status",
    "udp.length",
];

/// A packet on a line that marks one, loses one and damages one.
#[derive(Clone, Copy)]
enum Step {
    Plain,
    Marked,
    Lost,
    Damaged,
}

#[test]
#[ignore = "needs tshark: ./test --all"]
fn over_ipv4() {
    let [a, b] = ["10.0.0.1", "10.0.0.2"].map(|ip| SocketAddr::new(ip.parse().unwrap(), ENCAPSULATION_PORT));
    check(a, b, "ip.src", "ip.dsfield.ecn");
}

#[test]
#[ignore = "needs tshark: ./test --all"]
fn over_ipv6() {
    let [a, b] = ["fd00::1", "fd00::2"].map(|ip| SocketAddr::new(ip.parse().unwrap(), ENCAPSULATION_PORT));
    check(a, b, "ipv6.src", "ipv6.tclass.ecn");
}

/// Two endpoints on a line that damages a packet now and then: tshark follows the whole association.
#[test]
#[ignore = "needs tshark: ./test --all"]
fn a_whole_association() {
    let Some(tshark) = tools::program("tshark") else { return };
    let mut simulation: Simulation<Traffic> = Simulation::new(5);
    let Paths { a, b, links } = Paths::build(&mut simulation.network, &[lab::line()]);
    let buffer = CaptureBuffer::default();
    let capture = Capture::to(buffer.clone()).host(a.host, "client");
    simulation.network.start_capture(capture).unwrap();
    let (client, server) =
        (simulation.add_site(&a, Traffic::default()), simulation.add_site(&b, Traffic::default()));
    simulation.listen(server, 5001, AssociationConfig::default());
    let id = simulation.connect(client, server, (5000, 5001), AssociationConfig::default());
    simulation.node_mut(client).app.start(id, Source::file(9_000, 1_000));
    let second = Duration::from_secs(1);
    assert!(simulation.run_until(second, |simulation| simulation.node(server).app.received().bytes > 0));
    // Packets that come back are damaged from now on; the client drops them, and the server's next chunk comes through.
    let config = PipeConfig { corrupt_probability: 1.0, ..lab::line() };
    simulation.network.pipe_mut(links[0].back).set_config(config);
    simulation.run_for(second / 10);
    simulation.network.pipe_mut(links[0].back).set_config(lab::line());
    simulation.shutdown(client, id);
    simulation.run_for(second * 10);
    assert_eq!(simulation.node(server).app.received().bytes, 9_000);
    simulation.network.stop_capture().unwrap();

    let read = read_with(&tshark, &buffer.bytes());
    let damaged = |frame: &&Value| values(frame, "frame.comment") == "damaged on the way";
    assert!(read.iter().any(|frame| damaged(&frame)));
    for frame in &read {
        assert_eq!(values(frame, "sctp.checksum.status"), if damaged(&frame) { "0" } else { "1" });
        assert_eq!(values(frame, "udp.checksum.status"), "1");
    }
    let kinds: Vec<String> = read.iter().map(|frame| values(frame, "sctp.chunk_type")).collect();
    // INIT and its answer, COOKIE ECHO (perhaps with data), and the three chunks of a shutdown at the end.
    assert_eq!((&*kinds[0], &*kinds[1]), ("1", "2"));
    assert!(kinds[2].starts_with("10"), "{kinds:?}");
    assert!(kinds.iter().any(|kinds| kinds.split(',').any(|kind| kind == "0")));
    assert_eq!(kinds[kinds.len() - 3..], ["7", "8", "14"]);
}

fn check(a: SocketAddr, b: SocketAddr, source: &str, ecn: &str) {
    let Some(tshark) = tools::program("tshark") else { return };
    let read = read_with(&tshark, &capture(a, b));
    let row = |frame: &Value| {
        ["frame.interface_name", "frame.time_epoch", ecn, "frame.comment", "sctp.checksum.status"]
            .map(|field| values(frame, field))
    };
    let rows: Vec<[String; 5]> = read.iter().map(row).collect();
    let at_both = |time: &'static str, ecn: &'static str, comment: &'static str| {
        ["client", "line"].map(|name| [name, time, ecn, comment, "1"])
    };
    let expected = [
        &at_both("0.000000000", "2", "")[..],
        &at_both("0.000000000", "2", "marked CE"),
        &at_both("0.000000001", "2", "dropped: lost on the line"),
        &at_both("0.100000000", "2", "damaged, bits: 1"),
        &[
            ["server", "0.010512000", "2", "", "1"],
            ["server", "0.011024000", "3", "", "1"],
            ["server", "0.110512000", "2", "damaged on the way", "0"],
        ],
    ]
    .concat();
    // tshark prints them in the order of the file, which is that of the clock where hosts and lines answer.
    let mut sorted: Vec<[&str; 5]> = rows.iter().map(|row| row.each_ref().map(String::as_str)).collect();
    sorted.sort_by_key(|row| row[0] == "server");
    assert_eq!(sorted, expected);
    for frame in &read {
        assert_eq!(values(frame, source), a.ip().to_string());
        assert_eq!(values(frame, "udp.checksum.status"), "1");
        assert_eq!(values(frame, "udp.length"), "24");
        assert_eq!(values(frame, "ip.checksum.status"), if a.is_ipv4() { "1" } else { "" });
        let inbound = values(frame, "frame.interface_name") != "client";
        assert_eq!(
            values(frame, "frame.packet_flags_direction"),
            if inbound { "0x00000001" } else { "0x00000002" }
        );
        assert_eq!(values(frame, "_ws.malformed"), "");
    }
}

/// Captures four packets at a client, a line and a server.
fn capture(a: SocketAddr, b: SocketAddr) -> Vec<u8> {
    let line = PipeConfig {
        // 64 bytes take 0.512 ms.
        rate_bits_per_s: Some(1_000_000),
        delay: Duration::from_millis(10),
        mark_above_bytes: Some(0),
        ..PipeConfig::default()
    };
    let mut network = Network::new(1);
    let client = network.add_host(&[a.ip()]);
    let server = network.add_host(&[b.ip()]);
    let (there, _) = network.connect(a.ip(), b.ip(), &line);
    let buffer = CaptureBuffer::default();
    let capture =
        Capture::to(buffer.clone()).host(client, "client").host(server, "server").pipe(there, "line");
    network.start_capture(capture).unwrap();
    let steps = [(0, Step::Plain), (0, Step::Marked), (1, Step::Lost), (100 * MS, Step::Damaged)];
    for (number, (now_ns, step)) in steps.into_iter().enumerate() {
        while network.deliver(now_ns).is_some() {}
        let config = match step {
            Step::Plain | Step::Marked => line.clone(),
            Step::Lost => PipeConfig { loss: Loss::Always, ..line.clone() },
            Step::Damaged => PipeConfig { corrupt_probability: 1.0, ..line.clone() },
        };
        network.pipe_mut(there).set_config(config);
        let packet = Packet { bytes: 64, ecn: Ecn::Ect0, whole: true, payload: cookie_ack(number as u16) };
        network.send_packet(now_ns, a, b, packet);
    }
    while network.deliver(u64::MAX).is_some() {}
    network.stop_capture().unwrap();
    buffer.bytes()
}

/// Returns a packet: each is its own association, so that tshark compares none with another.
fn cookie_ack(number: u16) -> Vec<u8> {
    let mut out = Vec::new();
    let header = Header {
        source_port: 6000 + number,
        destination_port: 5001,
        verification_tag: VerificationTag(0x0102_0304),
    };
    packet::write_header(&header, &mut out);
    Chunk::CookieAck(chunk::CookieAck).write(&mut out);
    packet::finish(&mut out);
    out
}

fn values(frame: &Value, field: &str) -> String {
    let values = frame["_source"]["layers"][field].as_array().map_or(&[][..], Vec::as_slice);
    values.iter().map(|value| value.as_str().unwrap_or("?")).collect::<Vec<_>>().join(",")
}

fn read_with(tshark: &Path, capture: &[u8]) -> Vec<Value> {
    let mut command = Command::new(tshark);
    command.args(["-r", "-", "-T", "json"]);
    for preference in ["ip.check_checksum:TRUE", "udp.check_checksum:TRUE", "sctp.checksum:CRC 32c"] {
        command.args(["-o", preference]);
    }
    command.args(FIELDS.iter().flat_map(|field| ["-e", field]));
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    // The capture fits into a pipe, so that writing it never waits until tshark's output is read.
    child.stdin.take().unwrap().write_all(capture).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}
