//! tshark finds in our packets what we put in: every chunk, parameter and cause, in UDP and directly in IP, with
//! good checksums and without complaints.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use pcap_file::DataLink;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use sctp_wire::cause::{self, Cause, Causes};
use sctp_wire::chunk::{self, Chunk, DataFlags};
use sctp_wire::parameter::{self, KindList, Parameter, Parameters};
use sctp_wire::{Header, Ppid, Ssn, StreamId, Tsn, VerificationTag, packet};
use serde_json::Value;
use swiftwater_tests::tools;

/// RFC 6951 §5.1: the port of SCTP in UDP.
const ENCAPSULATION_PORT: u16 = 9899;
const DESTINATION_PORT: u16 = 5001;
const TAG: VerificationTag = VerificationTag(0x0102_0304);

/// A packet and what tshark must print for it: the values of each field, in order and with commas between.
struct Case {
    packet: Vec<u8>,
    fields: Vec<(&'static str, &'static str)>,
}

/// The encapsulation of a packet.
#[derive(Clone, Copy)]
enum Encapsulation {
    Udp,
    Ip,
}

#[test]
#[ignore = "needs tshark: ./test --all"]
fn in_udp() {
    check(Encapsulation::Udp);
}

#[test]
#[ignore = "needs tshark: ./test --all"]
fn directly_in_ip() {
    check(Encapsulation::Ip);
}

/// tshark must detect a broken packet, or the other tests prove nothing.
#[test]
#[ignore = "needs tshark: ./test --all"]
fn tshark_notices_a_wrong_checksum_and_a_wrong_length() {
    let Some(tshark) = tools::program("tshark") else { return };
    let mut wrong_checksum = packet_of(0, &[Chunk::CookieAck(chunk::CookieAck)]);
    wrong_checksum[8] ^= 1;
    let mut wrong_length = packet_of(1, &[Chunk::CookieAck(chunk::CookieAck)]);
    wrong_length[15] = 200;
    packet::finish(&mut wrong_length);
    let read = read_with(&tshark, Encapsulation::Ip, &[wrong_checksum, wrong_length], &BTreeSet::new());
    assert_ne!(values(&read[0], "sctp.checksum.status"), "1");
    assert_ne!(complaints(&read[1]), "");
}

fn check(encapsulation: Encapsulation) {
    let Some(tshark) = tools::program("tshark") else { return };
    let cases = cases();
    let fields = cases.iter().flat_map(|case| &case.fields).map(|(field, _)| *field).collect();
    let packets: Vec<Vec<u8>> = cases.iter().map(|case| case.packet.clone()).collect();
    let read = read_with(&tshark, encapsulation, &packets, &fields);
    assert_eq!(read.len(), cases.len());
    let mut differences = String::new();
    for (index, (case, read)) in cases.iter().zip(&read).enumerate() {
        let port = source_port(index).to_string();
        let always = [
            ("sctp.checksum.status", "1"),
            ("sctp.srcport", &port),
            ("sctp.dstport", "5001"),
            ("sctp.verification_tag", "0x01020304"),
        ];
        let different = |(field, expected): &&(&str, &str)| values(read, field) != *expected;
        let packet = sctp_wire::Packet::parse(&case.packet).unwrap();
        for (field, expected) in always.iter().chain(&case.fields).filter(different) {
            let value = values(read, field);
            differences += &format!("{packet}\n  {field} is {value:?}, should be {expected:?}\n");
        }
        if !complaints(read).is_empty() {
            differences += &format!("{packet}\n  tshark complains: {}\n", complaints(read));
        }
    }
    assert_eq!(differences, "");
}

/// Returns tshark's complaints about a packet.
fn complaints(read: &Value) -> String {
    values(read, "_ws.expert.message") + &values(read, "_ws.malformed")
}

/// Returns the values of a field, with commas between.
fn values(read: &Value, field: &str) -> String {
    let values = read["_source"]["layers"][field].as_array().map_or(&[][..], Vec::as_slice);
    values.iter().map(|value| value.as_str().unwrap_or("?")).collect::<Vec<_>>().join(",")
}

/// Returns the packets as tshark reads them.
fn read_with(
    tshark: &std::path::Path,
    encapsulation: Encapsulation,
    packets: &[Vec<u8>],
    fields: &BTreeSet<&str>,
) -> Vec<Value> {
    let mut command = Command::new(tshark);
    command.args(["-r", "-", "-T", "json", "-o", "sctp.checksum:CRC 32c"]);
    let always =
        ["_ws.expert.message", "_ws.malformed", "sctp.checksum.status", "sctp.srcport", "sctp.dstport"];
    for field in always.iter().chain(["sctp.verification_tag"].iter()).chain(fields) {
        command.args(["-e", field]);
    }
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    // The capture fits into a pipe, so that writing it never waits until tshark's output is read.
    child.stdin.take().unwrap().write_all(&capture(encapsulation, packets)).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns a capture file of the packets.
fn capture(encapsulation: Encapsulation, packets: &[Vec<u8>]) -> Vec<u8> {
    let header = PcapHeader { datalink: DataLink::RAW, ..PcapHeader::default() };
    let mut writer = PcapWriter::with_header(Vec::new(), header).unwrap();
    for (index, packet) in packets.iter().enumerate() {
        let datagram = ip_datagram(encapsulation, packet);
        let at = Duration::from_millis(index as u64);
        writer.write_packet(&PcapPacket::new(at, datagram.len() as u32, &datagram)).unwrap();
    }
    writer.into_writer()
}

/// Returns an IPv4 datagram (RFC 791 §3.1) from 192.0.2.1 to 192.0.2.2 with the packet inside. Its own checksums are
/// zero: they are not what is tested.
fn ip_datagram(encapsulation: Encapsulation, packet: &[u8]) -> Vec<u8> {
    let (protocol, payload) = match encapsulation {
        Encapsulation::Ip => (132, packet.to_vec()),
        Encapsulation::Udp => {
            let mut udp = Vec::new();
            let length = 8 + packet.len() as u16;
            for field in [ENCAPSULATION_PORT, ENCAPSULATION_PORT, length, 0] {
                udp.extend_from_slice(&field.to_be_bytes());
            }
            udp.extend_from_slice(packet);
            (17, udp)
        }
    };
    let mut datagram = vec![0x45, 0];
    datagram.extend_from_slice(&(20 + payload.len() as u16).to_be_bytes());
    datagram.extend_from_slice(&[0, 0, 0x40, 0, 64, protocol, 0, 0]);
    datagram.extend_from_slice(&[192, 0, 2, 1, 192, 0, 2, 2]);
    datagram.extend_from_slice(&payload);
    datagram
}

/// Returns the source port of a packet: each is its own association, so that tshark compares none with another.
fn source_port(index: usize) -> u16 {
    6000 + index as u16
}

fn packet_of(index: usize, chunks: &[Chunk<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    let header =
        Header { source_port: source_port(index), destination_port: DESTINATION_PORT, verification_tag: TAG };
    packet::write_header(&header, &mut out);
    chunks.iter().for_each(|chunk| chunk.write(&mut out));
    packet::finish(&mut out);
    out
}

#[derive(Default)]
struct Cases(Vec<Case>);

impl Cases {
    fn add(&mut self, chunks: &[Chunk<'_>], fields: &[(&'static str, &'static str)]) {
        self.0.push(Case { packet: packet_of(self.0.len(), chunks), fields: fields.to_vec() });
    }

    fn add_parameter(&mut self, parameter: Parameter<'_>, fields: &[(&'static str, &'static str)]) {
        let mut encoded = Vec::new();
        parameter.write(&mut encoded);
        self.add(&[init(&encoded).into()], fields);
    }

    fn add_cause(&mut self, cause: Cause<'_>, fields: &[(&'static str, &'static str)]) {
        let mut encoded = Vec::new();
        cause.write(&mut encoded);
        let causes = Causes::new(&encoded);
        self.add(&[chunk::Error { causes: causes.clone() }.into()], fields);
        self.add(&[chunk::Abort { reflected_tag: false, causes }.into()], fields);
    }
}

fn cases() -> Vec<Case> {
    let mut cases = Cases::default();
    setup(&mut cases);
    parameters(&mut cases);
    data(&mut cases);
    acknowledgements(&mut cases);
    ends(&mut cases);
    causes(&mut cases);
    others(&mut cases);
    cases.0
}

fn init(parameters: &[u8]) -> chunk::Init<'_> {
    chunk::Init {
        initiate_tag: VerificationTag(0x0a0b_0c0d),
        a_rwnd: 100_000,
        outbound_streams: 11,
        inbound_streams: 12,
        initial_tsn: Tsn(4_000_000_000),
        parameters: Parameters::new(parameters),
    }
}

fn setup(cases: &mut Cases) {
    let mut encoded = Vec::new();
    parameter::StateCookie { cookie: b"\x01\x02\x03\x04\x05" }.write(&mut encoded);
    let chunk::Init { initiate_tag, a_rwnd, outbound_streams, inbound_streams, initial_tsn, .. } = init(&[]);
    let parameters = Parameters::new(&encoded);
    cases.add(
        &[init(&[]).into()],
        &[
            ("sctp.chunk_type", "1"),
            ("sctp.chunk_length", "20"),
            ("sctp.init_initiate_tag", "0x0a0b0c0d"),
            ("sctp.init_credit", "100000"),
            ("sctp.init_nr_out_streams", "11"),
            ("sctp.init_nr_in_streams", "12"),
            ("sctp.init_initial_tsn", "4000000000"),
        ],
    );
    let init_ack =
        chunk::InitAck { initiate_tag, a_rwnd, outbound_streams, inbound_streams, initial_tsn, parameters };
    cases.add(
        &[init_ack.into()],
        &[
            ("sctp.chunk_type", "2"),
            ("sctp.initack_initiate_tag", "0x0a0b0c0d"),
            ("sctp.initack_credit", "100000"),
            ("sctp.initack_nr_out_streams", "11"),
            ("sctp.initack_nr_in_streams", "12"),
            ("sctp.initack_initial_tsn", "4000000000"),
            ("sctp.parameter_type", "0x0007"),
            ("sctp.parameter_length", "9"),
            ("sctp.parameter_state_cookie", "0102030405"),
            ("sctp.chunk_length", "29"),
            ("sctp.chunk_padding", "000000"),
        ],
    );
    let echo = chunk::CookieEcho { cookie: b"\x0a\x0b\x0c\x0d\x0e\x0f" };
    cases.add(
        &[echo.into(), message(b"first", 0).into()],
        &[
            ("sctp.chunk_type", "10,0"),
            ("sctp.chunk_length", "10,21"),
            ("sctp.cookie", "0a0b0c0d0e0f"),
            ("sctp.chunk_padding", "0000,000000"),
        ],
    );
    cases.add(
        &[chunk::CookieAck.into(), message(b"back", 0).into()],
        &[("sctp.chunk_type", "11,0"), ("sctp.chunk_length", "4,20")],
    );
}

fn parameters(cases: &mut Cases) {
    cases.add_parameter(
        parameter::Ipv4 { address: [192, 0, 2, 3].into() }.into(),
        &[("sctp.parameter_type", "0x0005"), ("sctp.parameter_ipv4_address", "192.0.2.3")],
    );
    cases.add_parameter(
        parameter::Ipv6 { address: [0x2001, 0xdb8, 0, 0, 0, 0, 0, 9].into() }.into(),
        &[("sctp.parameter_type", "0x0006"), ("sctp.parameter_ipv6_address", "2001:db8::9")],
    );
    cases.add_parameter(
        parameter::CookiePreservative { increment_ms: 5000 }.into(),
        &[("sctp.parameter_type", "0x0009"), ("sctp.parameter_cookie_preservative_incr", "5000")],
    );
    cases.add_parameter(
        parameter::AdaptationLayer { code_point: 0x1234_5678 }.into(),
        &[("sctp.parameter_type", "0xc006"), ("sctp.adaptation_layer_indication", "0x12345678")],
    );
    cases.add_parameter(
        parameter::HostName { host_name: b"host.example\0" }.into(),
        &[("sctp.parameter_type", "0x000b"), ("sctp.parameter_hostname", "host.example")],
    );
    cases.add_parameter(
        parameter::SupportedAddressTypes { kinds: KindList::new(&[[0, 5], [0, 6]]) }.into(),
        &[("sctp.parameter_type", "0x000c"), ("sctp.parameter_supported_address_type", "5,6")],
    );
    cases.add_parameter(
        parameter::Unknown { kind: 0xfffe, value: b"\x01\x02\x03" }.into(),
        &[
            ("sctp.parameter_type", "0xfffe"),
            ("sctp.parameter_length", "7"),
            ("sctp.parameter_value", "010203"),
        ],
    );
    // The unrecognized parameter inside is shown as one more parameter.
    let mut unknown = Vec::new();
    parameter::Unknown { kind: 0xfffe, value: b"\x01\x02\x03\x04" }.write(&mut unknown);
    cases.add_parameter(
        parameter::UnrecognizedParameter { parameter: &unknown }.into(),
        &[("sctp.parameter_type", "0x0008,0xfffe"), ("sctp.parameter_length", "12,8")],
    );
    let mut several = Vec::new();
    for address in [[192, 0, 2, 4], [192, 0, 2, 5]] {
        parameter::Ipv4 { address: address.into() }.write(&mut several);
    }
    parameter::SupportedAddressTypes { kinds: KindList::new(&[[0, 5]]) }.write(&mut several);
    cases.add(
        &[init(&several).into()],
        &[
            ("sctp.parameter_type", "0x0005,0x0005,0x000c"),
            ("sctp.parameter_ipv4_address", "192.0.2.4,192.0.2.5"),
            ("sctp.parameter_supported_address_type", "5"),
        ],
    );
}

fn message(payload: &[u8], tsn: u32) -> chunk::Data<'_> {
    chunk::Data {
        flags: DataFlags::WHOLE,
        tsn: Tsn(tsn),
        stream: StreamId(3),
        ssn: Ssn(4),
        ppid: Ppid(0xfff1),
        payload,
    }
}

fn data(cases: &mut Cases) {
    let chunks: Vec<Chunk<'_>> = (0..16_u8)
        .map(|bits| {
            let payload = &b"payload"[..1 + usize::from(bits) % 4];
            chunk::Data {
                flags: DataFlags::from_bits(bits),
                ..message(payload, 0xffff_fff8_u32.wrapping_add(bits.into()))
            }
            .into()
        })
        .collect();
    // Ordered fragments of one message would be reassembled, so each flag has its own packet.
    for (index, chunk) in chunks.iter().enumerate() {
        let bit = |mask: usize| if index & mask == 0 { "0" } else { "1" };
        let length = ["17", "18", "19", "20"][index % 4];
        cases.add(
            std::slice::from_ref(chunk),
            &[
                ("sctp.chunk_type", "0"),
                ("sctp.chunk_length", length),
                ("sctp.data_i_bit", bit(8)),
                ("sctp.data_u_bit", bit(4)),
                ("sctp.data_b_bit", bit(2)),
                ("sctp.data_e_bit", bit(1)),
                ("sctp.data_sid", "0x0003"),
                ("sctp.data_ssn", "4"),
                ("sctp.data_payload_proto_id", "65521"),
            ],
        );
    }
    cases.add(
        &[message(b"one", u32::MAX).into(), message(b"four", 0).into()],
        &[("sctp.data_tsn_raw", "4294967295,0"), ("sctp.chunk_padding", "00")],
    );
}

fn acknowledgements(cases: &mut Cases) {
    let mut encoded = Vec::new();
    let gap_blocks = [(2, 3), (5, 5), (9, 70)];
    let duplicates = [Tsn(1_000_000), Tsn(1_000_000), Tsn(1_000_002)];
    chunk::SackBuilder {
        cum_tsn: Tsn(1_000_000),
        a_rwnd: 65_536,
        gap_blocks: &gap_blocks,
        duplicates: &duplicates,
    }
    .write(&mut encoded);
    let raw = chunk::Chunks::new(&encoded).next().unwrap().unwrap();
    cases.add(
        &[Chunk::parse(&raw).unwrap()],
        &[
            ("sctp.chunk_type", "3"),
            ("sctp.sack_cumulative_tsn_ack_raw", "1000000"),
            ("sctp.sack_a_rwnd", "65536"),
            ("sctp.sack_number_of_gap_blocks", "3"),
            ("sctp.sack_number_of_duplicated_tsns", "3"),
            ("sctp.sack_gap_block_start", "2,5,9"),
            ("sctp.sack_gap_block_end", "3,5,70"),
            ("sctp.sack_duplicate_tsn", "1000000,1000000,1000002"),
        ],
    );
    let info = b"\x01\x02\x03\x04\x05\x06\x07\x08\x09";
    let expected =
        [("sctp.parameter_type", "0x0001"), ("sctp.parameter_heartbeat_information", "010203040506070809")];
    let heartbeat = [("sctp.chunk_type", "4"), ("sctp.chunk_length", "17")];
    cases.add(&[chunk::Heartbeat { info }.into()], &[heartbeat, expected].concat());
    let heartbeat_ack = [("sctp.chunk_type", "5"), ("sctp.chunk_length", "17")];
    cases.add(&[chunk::HeartbeatAck { info }.into()], &[heartbeat_ack, expected].concat());
}

fn ends(cases: &mut Cases) {
    cases.add(
        &[chunk::Shutdown { cum_tsn: Tsn(7) }.into()],
        &[("sctp.chunk_type", "7"), ("sctp.shutdown_cumulative_tsn_ack", "7")],
    );
    cases.add(&[chunk::ShutdownAck.into()], &[("sctp.chunk_type", "8"), ("sctp.chunk_length", "4")]);
    for (reflected_tag, bit) in [(false, "0"), (true, "1")] {
        cases.add(
            &[chunk::ShutdownComplete { reflected_tag }.into()],
            &[("sctp.chunk_type", "14"), ("sctp.shutdown_complete_t_bit", bit)],
        );
        cases.add(
            &[chunk::Abort { reflected_tag, causes: Causes::new(&[]) }.into()],
            &[("sctp.chunk_type", "6"), ("sctp.abort_t_bit", bit)],
        );
    }
}

fn causes(cases: &mut Cases) {
    let mut address = Vec::new();
    parameter::Ipv4 { address: [192, 0, 2, 6].into() }.write(&mut address);
    let addresses = Parameters::new(&address);
    cases.add_cause(
        cause::InvalidStreamIdentifier { stream: StreamId(99) }.into(),
        &[("sctp.cause_code", "0x0001"), ("sctp.cause_stream_identifier", "99")],
    );
    cases.add_cause(
        cause::MissingMandatoryParameter { kinds: KindList::new(&[[0, 7], [0, 5], [0, 6]]) }.into(),
        &[
            ("sctp.cause_code", "0x0002"),
            ("sctp.cause_nr_of_missing_parameters", "3"),
            ("sctp.cause_missing_parameter_type", "0x0007,0x0005,0x0006"),
        ],
    );
    cases.add_cause(
        cause::StaleCookie { staleness_us: 1234 }.into(),
        &[("sctp.cause_code", "0x0003"), ("sctp.cause_measure_of_staleness", "1234")],
    );
    cases.add_cause(
        cause::NewEncapsulationPort { current_port: 9899, new_port: 40_000 }.into(),
        &[("sctp.cause_code", "0x000e"), ("sctp.cause_length", "8")],
    );
    cases
        .add_cause(cause::OutOfResource.into(), &[("sctp.cause_code", "0x0004"), ("sctp.cause_length", "4")]);
    cases.add_cause(
        cause::UnresolvableAddress { parameter: &address }.into(),
        &[("sctp.cause_code", "0x0005"), ("sctp.parameter_ipv4_address", "192.0.2.6")],
    );
    cases.add_cause(
        cause::UnrecognizedChunkType { chunk: b"\xfe\0\0\x04" }.into(),
        &[("sctp.cause_code", "0x0006"), ("sctp.cause_length", "8")],
    );
    cases.add_cause(
        cause::InvalidMandatoryParameter.into(),
        &[("sctp.cause_code", "0x0007"), ("sctp.cause_length", "4")],
    );
    cases.add_cause(
        cause::UnrecognizedParameters { parameters: addresses.clone() }.into(),
        &[("sctp.cause_code", "0x0008"), ("sctp.parameter_ipv4_address", "192.0.2.6")],
    );
    cases.add_cause(
        cause::NoUserData { tsn: Tsn(77) }.into(),
        &[("sctp.cause_code", "0x0009"), ("sctp.cause_tsn", "77")],
    );
    cases.add_cause(
        cause::CookieReceivedWhileShuttingDown.into(),
        &[("sctp.cause_code", "0x000a"), ("sctp.cause_length", "4")],
    );
    cases.add_cause(
        cause::RestartWithNewAddresses { addresses }.into(),
        &[("sctp.cause_code", "0x000b"), ("sctp.parameter_ipv4_address", "192.0.2.6")],
    );
    cases.add_cause(
        cause::UserInitiatedAbort { reason: b"bye" }.into(),
        &[
            ("sctp.cause_code", "0x000c"),
            ("sctp.cause_information", "627965"),
            ("sctp.chunk_length", "11"),
            ("sctp.chunk_padding", "00"),
        ],
    );
    cases.add_cause(
        cause::ProtocolViolation { information: b"why" }.into(),
        &[("sctp.cause_code", "0x000d"), ("sctp.cause_information", "776879")],
    );
    cases.add_cause(
        cause::Unknown { kind: 0xfffe, value: b"\x01\x02" }.into(),
        &[("sctp.cause_code", "0xfffe"), ("sctp.cause_information", "0102")],
    );
    let mut several = Vec::new();
    cause::UserInitiatedAbort { reason: b"a" }.write(&mut several);
    cause::ProtocolViolation { information: b"bc" }.write(&mut several);
    cause::OutOfResource.write(&mut several);
    cases.add(
        &[chunk::Abort { reflected_tag: false, causes: Causes::new(&several) }.into()],
        &[
            ("sctp.cause_code", "0x000c,0x000d,0x0004"),
            ("sctp.cause_length", "5,6,4"),
            ("sctp.cause_padding", "000000,0000"),
        ],
    );
}

fn others(cases: &mut Cases) {
    cases.add(
        &[message(b"1234", 5).into(), chunk::Pad { padding_bytes: 8 }.into()],
        &[
            ("sctp.chunk_type", "0,132"),
            ("sctp.chunk_length", "20,12"),
            ("sctp.padding_data", "0000000000000000"),
        ],
    );
    cases.add(
        &[chunk::Unknown { kind: 0xfe, flags: 0, value: b"\x01\x02\x03" }.into()],
        &[("sctp.chunk_type", "254"), ("sctp.chunk_length", "7"), ("sctp.chunk_value", "010203")],
    );
}
