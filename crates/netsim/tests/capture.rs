//! Captures, read with the library's reader and by hand.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;

use netsim::{Capture, CaptureBuffer, Ecn, HostId, Loss, Network, Packet, PipeConfig, PipeId, Reorder};
use pcap_file::pcapng::blocks::Block;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::{PcapNgReader, PcapNgWriter};

const MS: u64 = 1_000_000;

/// A packet of a capture.
#[derive(Debug)]
struct Seen {
    interface: String,
    at_ns: u64,
    inbound: bool,
    comments: Vec<String>,
    whole_bytes: usize,
    data: Vec<u8>,
}

fn read(bytes: &[u8]) -> Vec<Seen> {
    let mut reader = PcapNgReader::new(bytes).unwrap();
    let (mut interfaces, mut all) = (Vec::new(), Vec::new());
    while let Some(block) = reader.next_block() {
        match block.unwrap() {
            Block::InterfaceDescription(interface) => {
                assert!(interface.options.contains(&InterfaceDescriptionOption::IfTsResol(9)));
                let name = interface.options.iter().find_map(|option| match option {
                    InterfaceDescriptionOption::IfName(name) => Some(name.to_string()),
                    _ => None,
                });
                interfaces.push(name.unwrap());
            }
            Block::EnhancedPacket(packet) => {
                let comments = packet.options.iter().filter_map(|option| match option {
                    EnhancedPacketOption::Comment(text) => Some(text.to_string()),
                    _ => None,
                });
                all.push(Seen {
                    interface: interfaces[packet.interface_id as usize].clone(),
                    at_ns: packet.timestamp.as_nanos() as u64,
                    inbound: packet.options.contains(&EnhancedPacketOption::Flags(1)),
                    comments: comments.collect(),
                    whole_bytes: packet.original_len as usize,
                    data: packet.data.to_vec(),
                });
            }
            other => panic!("unexpected: {other:?}"),
        }
    }
    all
}

fn addresses(v6: bool) -> (SocketAddr, SocketAddr) {
    if v6 {
        ("[fd00::1]:9899".parse().unwrap(), "[fd00::2]:9900".parse().unwrap())
    } else {
        ("10.0.0.1:9899".parse().unwrap(), "10.0.0.2:9900".parse().unwrap())
    }
}

struct Net {
    network: Network<Vec<u8>>,
    hosts: (HostId, HostId),
    pipes: (PipeId, PipeId),
    buffer: CaptureBuffer,
    addresses: (SocketAddr, SocketAddr),
}

/// Returns two hosts and a line, all captured.
fn net(v6: bool, config: &PipeConfig) -> Net {
    let (a, b) = addresses(v6);
    let mut network = Network::new(3);
    let hosts = (network.add_host(&[a.ip()]), network.add_host(&[b.ip()]));
    let pipes = network.connect(a.ip(), b.ip(), config);
    let buffer = CaptureBuffer::default();
    let capture = Capture::to(buffer.clone()).host(hosts.0, "A").host(hosts.1, "B").pipe(pipes.0, "A to B");
    network.start_capture(capture).unwrap();
    Net { network, hosts, pipes, buffer, addresses: (a, b) }
}

impl Net {
    fn send(&mut self, now_ns: u64, ecn: Ecn, payload: &[u8]) {
        let (a, b) = self.addresses;
        let packet = Packet { bytes: payload.len() + 28, ecn, whole: true, payload: payload.to_vec() };
        self.network.send_packet(now_ns, a, b, packet);
    }

    /// Lets everything arrive and reads the capture.
    fn finish(mut self) -> Vec<Seen> {
        while let Some(now_ns) = self.network.next_event_ns() {
            while self.network.deliver(now_ns).is_some() {}
        }
        self.network.stop_capture().unwrap();
        read(&self.buffer.bytes())
    }
}

/// Returns the sum of an Internet checksum over all of it, which is all ones if the checksum inside is right.
fn sum(pieces: &[&[u8]]) -> u16 {
    let mut sum = 0u32;
    for piece in pieces {
        for pair in piece.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
    }
    sum as u16
}

#[test]
fn a_packet_is_seen_where_it_leaves_where_it_passes_and_where_it_arrives() {
    let mut net =
        net(false, &PipeConfig { delay: Duration::from_nanos(7 * MS + 1), ..PipeConfig::default() });
    net.send(3 * MS, Ecn::NotCapable, b"hello");
    let seen: Vec<_> =
        net.finish().into_iter().map(|s| (s.interface, s.at_ns, s.inbound, s.comments)).collect();
    let expected = [("A", 3 * MS, false), ("A to B", 3 * MS, true), ("B", 10 * MS + 1, true)];
    assert_eq!(seen, expected.map(|(name, at_ns, inbound)| (name.to_owned(), at_ns, inbound, vec![])));
}

#[test]
fn ipv4_headers_have_right_lengths_and_checksums() {
    for payload in [&b""[..], b"even", b"odd"] {
        let mut net = net(false, &PipeConfig::default());
        net.send(0, Ecn::Ect1, payload);
        for Seen { data, whole_bytes, .. } in net.finish() {
            assert_eq!((data.len(), whole_bytes), (28 + payload.len(), 28 + payload.len()));
            assert_eq!(data[..2], [0x45, 0b01]);
            assert_eq!(usize::from(u16::from_be_bytes([data[2], data[3]])), data.len());
            assert_eq!((data[9], &data[12..20]), (17, &[10, 0, 0, 1, 10, 0, 0, 2][..]));
            assert_eq!(sum(&[&data[..20]]), 0xffff);
            let udp = &data[20..];
            assert_eq!(udp[..4], [9899u16.to_be_bytes(), 9900u16.to_be_bytes()].concat());
            assert_eq!(usize::from(u16::from_be_bytes([udp[4], udp[5]])), udp.len());
            // The addresses, the protocol, the length, the datagram.
            assert_eq!(sum(&[&data[12..20], &[0, 17], &udp[4..6], udp]), 0xffff);
            assert_eq!(&udp[8..], payload);
        }
    }
}

#[test]
fn ipv6_headers_have_right_lengths_and_checksums() {
    for payload in [&b""[..], b"even", b"odd"] {
        let mut net = net(true, &PipeConfig::default());
        net.send(0, Ecn::Ect0, payload);
        for Seen { data, .. } in net.finish() {
            assert_eq!(data[..2], [0x60, 0b10 << 4]);
            let udp = &data[40..];
            assert_eq!(usize::from(u16::from_be_bytes([data[4], data[5]])), udp.len());
            assert_eq!((data[6], data[23], data[39]), (17, 1, 2));
            assert_eq!(sum(&[&data[8..40], &[0, 17], &udp[4..6], udp]), 0xffff);
            assert_eq!(&udp[8..], payload);
        }
    }
}

/// Returns the comments of a capture, with where they are.
fn comments(seen: &[Seen]) -> Vec<(&str, Vec<&str>)> {
    seen.iter().map(|s| (&*s.interface, s.comments.iter().map(String::as_str).collect())).collect()
}

#[test]
fn the_fate_of_a_packet_is_its_comment() {
    let config = PipeConfig {
        rate_bits_per_s: Some(8_000_000),
        queue_packets: 2,
        mark_above_bytes: Some(0),
        ..PipeConfig::default()
    };
    let mut net = net(false, &config);
    for _ in 0..3 {
        net.send(0, Ecn::Ect0, b"data");
    }
    net.network.pipe_mut(net.pipes.0).set_loss(Loss::Always);
    net.send(0, Ecn::Ect0, b"data");
    net.network.set_filter(net.pipes.0, |_| true);
    net.send(0, Ecn::Ect0, b"data");
    let (a, _) = net.addresses;
    net.network.send(0, a, "10.9.9.9:1".parse().unwrap(), 28, Vec::new());
    let seen = net.finish();
    let fates: [&[&str]; 5] = [
        &[],
        &["marked CE"],
        &["dropped: the queue was full"],
        &["dropped: lost on the line"],
        &["dropped: a filter took it"],
    ];
    let mut expected: Vec<_> =
        fates.iter().flat_map(|fate| ["A", "A to B"].map(|name| (name, fate.to_vec()))).collect();
    expected.push(("A", vec!["dropped: no route leads there"]));
    expected.extend([("B", vec![]), ("B", vec![])]);
    assert_eq!(comments(&seen), expected);
    // The mark is seen where the packet arrives, not before.
    let ecn: Vec<u8> = seen.iter().map(|s| s.data[1]).collect();
    assert_eq!((&ecn[..4], &ecn[11..]), (&[0b10; 4][..], &[0b10, 0b11][..]));
}

#[test]
fn damage_copies_and_waiting_are_told() {
    let config = PipeConfig {
        corrupt_probability: 1.0,
        duplicate_probability: 1.0,
        reorder: Reorder::Behind { probability: 1.0, packets: 2, wait_max: Duration::from_millis(1) },
        ..PipeConfig::default()
    };
    let mut net = net(false, &config);
    net.send(0, Ecn::NotCapable, &[0; 100]);
    let seen = net.finish();
    let at_a = vec!["damaged, bits: 1", "waits for 2 others", "sent twice"];
    let expected = [("A", at_a.clone()), ("A to B", at_a), ("B", vec![]), ("B", vec!["damaged on the way"])];
    assert_eq!(comments(&seen), expected);
    let reorder = Reorder::Late { probability: 1.0, by: Duration::from_millis(1) };
    let mut late = self::net(false, &PipeConfig { reorder, ..PipeConfig::default() });
    late.send(0, Ecn::NotCapable, b"");
    assert_eq!(comments(&late.finish()), [("A", vec!["late"]), ("A to B", vec!["late"]), ("B", vec![])]);
    // The packet is whole at its source.
    let flipped: Vec<u32> =
        seen.iter().map(|s| s.data[28..].iter().map(|byte| byte.count_ones()).sum()).collect();
    assert_eq!(flipped, [0, 0, 0, 1]);
}

#[test]
fn long_packets_are_cut_and_long_captures_can_keep_headers_alone() {
    let mut whole = net(false, &PipeConfig::default());
    whole.send(0, Ecn::NotCapable, &vec![7; 70_000]);
    let seen = whole.finish();
    assert_eq!((seen[0].data.len(), seen[0].whole_bytes), (65_535, 65_535));
    assert_eq!(seen[0].comments, ["cut: it carries 70000 bytes"]);

    let mut headers = net(false, &PipeConfig::default());
    let buffer = CaptureBuffer::default();
    let capture = Capture::to(buffer.clone()).host(headers.hosts.0, "A").packet_bytes_max(28);
    headers.network.start_capture(capture).unwrap();
    headers.send(0, Ecn::NotCapable, &[7; 1000]);
    headers.network.stop_capture().unwrap();
    let seen = read(&buffer.bytes());
    assert_eq!((seen[0].data.len(), seen[0].whole_bytes), (28, 1028));
}

#[test]
fn direct_routes_and_several_interfaces_of_one_host_are_seen() {
    let (a, b) = addresses(false);
    let mut network = Network::new(0);
    let host = network.add_host(&[a.ip()]);
    network.add_host(&[b.ip()]);
    network.set_route(a.ip(), b.ip(), &[]);
    let buffer = CaptureBuffer::default();
    network.start_capture(Capture::to(buffer.clone()).host(host, "once").host(host, "twice")).unwrap();
    network.send(0, a, b, 28, Vec::new());
    network.stop_capture().unwrap();
    network.send(0, a, b, 28, Vec::new());
    assert_eq!(comments(&read(&buffer.bytes())), [("once", vec![]), ("twice", vec![])]);
}

#[test]
fn a_capture_changes_nothing_and_comes_out_the_same_again() {
    let run = |captured: bool| {
        let config = PipeConfig {
            loss: Loss::Random { probability: 0.1 },
            duplicate_probability: 0.1,
            corrupt_probability: 0.1,
            ..PipeConfig::default()
        };
        let mut net = net(true, &config);
        if !captured {
            net.network.stop_capture().unwrap();
        }
        let mut arrived = Vec::new();
        for number in 0..500u64 {
            net.send(number, Ecn::Ect0, &number.to_be_bytes());
            arrived.extend(std::iter::from_fn(|| net.network.deliver(number)));
        }
        net.network.stop_capture().unwrap();
        (arrived, net.buffer.bytes())
    };
    let (first, again, without) = (run(true), run(true), run(false));
    assert_eq!(first.1, again.1);
    assert_eq!(first.0, without.0);
    // 500 packets at the host and at the pipe, and those that arrived.
    assert_eq!(read(&first.1).len(), 1000 + first.0.len());
}

/// Takes so many bytes and then fails.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn write_errors_are_reported_when_the_capture_stops() {
    let mut net = net(false, &PipeConfig::default());
    // Room for the head of the file and little more.
    let head = PcapNgWriter::new(Vec::new()).unwrap().into_inner().len();
    net.network.start_capture(Capture::to(Full(head + 300)).host(net.hosts.0, "A")).unwrap();
    for _ in 0..10 {
        net.send(0, Ecn::NotCapable, &[0; 100]);
    }
    let error = net.network.stop_capture().unwrap_err();
    assert!(error.to_string().starts_with("the capture could not be written"), "{error}");
    // The network continues.
    assert_eq!(net.network.in_flight(), 10);
    net.network.stop_capture().unwrap();
}
