//! Packets in memory that refer to blocks of their sender.

use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use lab::packets::{build, write_data, write_sack};
use lab::script::{ENDPOINT_PORT, PEER_PORT, Peer, plain};
use sctp::{Arrival, AssociationConfig, AssociationId, Event, Host, PathHints, Payload, RecvInfo};
use sctp_wire::chunk::{Abort, CookieEcho, DataFlags, Heartbeat, Init, NrSack, NrSackBuilder, ShutdownAck};
use sctp_wire::parameter::{Parameters, SupportedExtensions};

/// A packet from the peer, and the places and lengths of the user data that lies in blocks.
struct Sent {
    packet: Bytes,
    shared: Vec<(usize, usize)>,
}

impl Sent {
    /// Begins with these chunks.
    fn new(peer: &Peer, chunks: impl FnOnce(&mut Vec<u8>)) -> Sent {
        let packet = build(PEER_PORT, ENDPOINT_PORT, peer.endpoint_tag, chunks);
        Sent { packet, shared: Vec::new() }
    }

    /// Appends chunks.
    fn with(mut self, chunks: impl FnOnce(&mut Vec<u8>)) -> Sent {
        let mut packet = self.packet.to_vec();
        chunks(&mut packet);
        self.packet = Bytes::from(packet);
        self
    }

    /// Appends DATA chunk `number`, a fragment of stream 0 whose user data lies in a block.
    fn with_shared(self, peer: &Peer, flags: DataFlags, number: u32, ssn: u16, bytes: usize) -> Sent {
        let at = self.packet.len() + 16;
        let payload = content(number, bytes);
        let mut sent =
            self.with(|out| write_data(flags, first_tsn(peer).wrapping_add(number), 0, ssn, &payload, out));
        sent.shared.push((at, bytes));
        sent
    }

    /// Returns the packet without the blocks, and the blocks with their places.
    fn divided(&self) -> (Bytes, Vec<(usize, Bytes)>) {
        let (mut bytes, mut blocks, mut from) = (BytesMut::new(), Vec::new(), 0);
        for (at, length) in &self.shared {
            bytes.extend_from_slice(&self.packet[from..*at]);
            from = at + length;
            blocks.push((bytes.len(), self.packet.slice(*at..from)));
        }
        bytes.extend_from_slice(&self.packet[from..]);
        (bytes.freeze(), blocks)
    }
}

fn first_tsn(peer: &Peer) -> u32 {
    peer.init().initial_tsn.0
}

fn content(number: u32, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at as u32 + number) as u8).collect()
}

/// Everything that can be seen of a packet's arrival.
#[derive(Debug, PartialEq)]
struct Seen {
    contents: Vec<Vec<u8>>,
    events: usize,
    sent: Vec<Bytes>,
    statistics: String,
    trace: String,
}

/// Hands a packet to a peer that `make` returns.
fn seen(make: impl Fn() -> Peer, bytes: &Bytes, shared: &[(usize, Bytes)], in_memory: bool) -> Seen {
    let mut peer = make();
    let arrival = Arrival {
        remote: peer.address,
        local: None,
        marked: false,
        in_memory,
        segment_bytes: bytes.len(),
        bytes,
        shared,
    };
    peer.endpoint.handle_batch(peer.now, &arrival, &mut peer.app);
    peer.collect_output();
    peer.app.read(&mut peer.endpoint);
    let statistics = peer.endpoint.statistics(peer.id);
    let trace: Vec<_> = std::iter::from_fn(|| peer.endpoint.poll_trace()).collect();
    Seen {
        contents: peer.app.contents(),
        events: peer.app.events.len(),
        statistics: format!("{statistics:?} {:?}", peer.endpoint.endpoint_statistics()),
        trace: format!("{trace:?}"),
        sent: std::iter::from_fn(|| peer.hears_maybe()).collect(),
    }
}

/// Expects that a packet has the same effects whether it refers to blocks or contains them. Returns the messages.
fn compare(make: impl Fn() -> Peer, packet: impl FnOnce(&Peer) -> Sent) -> Vec<Vec<u8>> {
    let sent = packet(&make());
    let (bytes, shared) = sent.divided();
    let whole = seen(&make, &sent.packet, &[], true);
    assert_eq!(seen(&make, &bytes, &shared, true), whole);
    whole.contents
}

fn established() -> Peer {
    Peer::established(1)
}

fn traced() -> Peer {
    Peer::established_with(1, AssociationConfig { trace: true, ..AssociationConfig::default() })
}

const FIRST: DataFlags = DataFlags { ending: false, ..DataFlags::WHOLE };
const LAST: DataFlags = DataFlags { beginning: false, ..DataFlags::WHOLE };

#[test]
fn they_arrive_as_if_the_packet_contained_them() {
    for make in [established, traced] {
        let contents = compare(make, |peer| {
            let tsn = first_tsn(peer);
            Sent::new(peer, |out| write_data(DataFlags::WHOLE, tsn, 0, 0, b"short", out))
                .with_shared(peer, DataFlags::WHOLE, 1, 1, 10_001)
                .with_shared(peer, FIRST, 2, 2, 9_000)
                .with_shared(peer, LAST, 3, 2, 8_999)
                .with(|out| {
                    write_data(DataFlags::WHOLE, tsn.wrapping_add(4), 0, 3, b"one", out);
                    write_data(DataFlags::WHOLE, tsn.wrapping_add(5), 0, 4, b"two", out);
                })
        });
        let lengths: Vec<_> = contents.iter().map(Vec::len).collect();
        assert_eq!(lengths, [5, 10_001, 17_999, 3, 3]);
        assert_eq!(contents[1], content(1, 10_001));
        assert_eq!(contents[2], [content(2, 9_000), content(3, 8_999)].concat());
    }
}

/// Returns the endpoint whose peer has agreed on NR-SACKs.
fn with_nr_sack() -> Peer {
    let mut peer = Peer::new(1, AssociationConfig { nr_sack: true, ..plain() });
    let mut extensions = Vec::new();
    SupportedExtensions { chunk_kinds: &[NrSack::KIND] }.write(&mut extensions);
    let init = Init { parameters: Parameters::new(&extensions), ..peer.init() };
    peer.sends().tag(0).chunk(|_, out| init.write(out)).go();
    let cookie = peer.takes_init_ack();
    peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).go();
    peer.expects("COOKIE ACK");
    peer.id = peer.app.events[0].id;
    peer
}

/// An application that keeps the blocks of messages.
#[derive(Default)]
struct Keeping {
    blocks: Vec<Bytes>,
}

impl Host for Keeping {
    fn message(&mut self, _: AssociationId, _: &RecvInfo, payload: Payload) {
        self.blocks.extend_from_slice(payload.blocks());
    }

    fn event(&mut self, _: AssociationId, _: Event) {}

    fn path_hints(&self, _: SocketAddr) -> PathHints {
        PathHints::default()
    }
}

/// Returns whether the reader gets the block of the sender, not a copy, from a packet that begins with `chunks`.
fn is_taken_over(make: impl FnOnce() -> Peer, chunks: impl FnOnce(&Peer, &mut Vec<u8>)) -> bool {
    let mut peer = make();
    let sent = Sent::new(&peer, |out| chunks(&peer, out)).with_shared(&peer, DataFlags::WHOLE, 0, 0, 9_000);
    let (bytes, shared) = sent.divided();
    let mut reader = Keeping::default();
    let arrival = Arrival {
        remote: peer.address,
        local: None,
        marked: false,
        in_memory: true,
        segment_bytes: bytes.len(),
        bytes: &bytes,
        shared: &shared,
    };
    peer.endpoint.handle_batch(peer.now, &arrival, &mut reader);
    assert_eq!(reader.blocks, [content(0, 9_000)]);
    reader.blocks[0].as_ptr() == shared[0].1.as_ptr()
}

#[test]
fn they_are_copied_only_if_more_than_their_association_may_handle_the_packet() {
    let sack = |peer: &Peer, out: &mut Vec<u8>| write_sack(peer.endpoint_tsn(-1).0, 100_000, &[], out);
    let nr_sack = |peer: &Peer, out: &mut Vec<u8>| {
        let cum_tsn = peer.endpoint_tsn(-1);
        NrSackBuilder { cum_tsn, a_rwnd: 100_000, nr_gap_blocks: &[], duplicates: &[] }.write(out);
    };
    assert!(is_taken_over(established, |_, _| {}));
    assert!(is_taken_over(established, sack));
    assert!(is_taken_over(with_nr_sack, nr_sack));
    assert!(!is_taken_over(established, |_, out| Heartbeat { info: b"?" }.write(out)));
    assert!(!is_taken_over(traced, sack));
}

#[test]
fn the_endpoint_sees_what_comes_with_them() {
    // RFC 9260 §8.5.1 E: a SHUTDOWN ACK for an association that is being set up is completed for the earlier one.
    let echoed = || {
        let mut peer = Peer::connecting(1, plain());
        peer.takes_init();
        peer.sends().init_ack(b"cookie").go();
        peer.expects("COOKIE ECHO");
        peer
    };
    compare(echoed, |peer| {
        Sent::new(peer, |_| {})
            .with_shared(peer, DataFlags::WHOLE, 0, 0, 9_000)
            .with(|out| ShutdownAck.write(out))
    });
    // A cookie that the peer repeats is acknowledged again.
    let cookie = {
        let mut peer = Peer::new(1, plain());
        peer.sends().tag(0).chunk(|p, out| p.init().write(out)).go();
        peer.takes_init_ack()
    };
    let contents = compare(established, |peer| {
        Sent::new(peer, |out| CookieEcho { cookie: &cookie }.write(out)).with_shared(
            peer,
            DataFlags::WHOLE,
            0,
            0,
            9_000,
        )
    });
    assert_eq!(contents, [content(0, 9_000)]);
}

#[test]
fn chunks_before_them_have_their_effects() {
    // A path that is probed, and a chunk behind which nothing counts.
    let probed = compare(established, |peer| {
        Sent::new(peer, |out| Heartbeat { info: b"?" }.write(out)).with_shared(
            peer,
            DataFlags::WHOLE,
            0,
            0,
            9_000,
        )
    });
    assert_eq!(probed.len(), 1);
    let aborted = compare(established, |peer| {
        let tsn = first_tsn(peer);
        Sent::new(peer, |out| write_data(DataFlags::WHOLE, tsn, 0, 0, b"first", out))
            .with(|out| Abort { reflected_tag: false, causes: Default::default() }.write(out))
            .with_shared(peer, DataFlags::WHOLE, 1, 1, 9_000)
    });
    assert_eq!(aborted, [b"first"]);
}

#[test]
fn they_come_with_the_cookie_that_sets_the_association_up() {
    let make = || {
        let mut peer = Peer::new(1, AssociationConfig::default());
        let init = build(PEER_PORT, ENDPOINT_PORT, 0, |out| peer.init().write(out));
        let from = peer.address;
        peer.sends_raw(from, &init);
        peer
    };
    let cookie = make().takes_init_ack();
    let with_tag = || {
        let mut peer = make();
        peer.takes_init_ack();
        peer
    };
    let contents = compare(with_tag, |peer| {
        Sent::new(peer, |out| CookieEcho { cookie: &cookie }.write(out)).with_shared(
            peer,
            DataFlags::WHOLE,
            0,
            0,
            9_000,
        )
    });
    assert_eq!(contents, [content(0, 9_000)]);
}

#[test]
fn what_is_not_the_user_data_of_a_chunk_is_read_as_the_packet_would_be() {
    let peer = established();
    let sent = Sent::new(&peer, |_| {}).with_shared(&peer, DataFlags::WHOLE, 0, 0, 9_000);
    let (bytes, shared) = sent.divided();
    let (at, block) = &shared[0];
    let places = [0, 1, 12, 15, *at - 1, *at + 1, usize::MAX];
    for (place, block) in places.map(|place| (place, block.clone())).into_iter().chain([
        (*at, block.slice(1..)),
        (*at, Bytes::new()),
        (usize::MAX, block.slice(1..)),
    ]) {
        let mut joined = bytes[..place.min(bytes.len())].to_vec();
        joined.extend_from_slice(&block);
        joined.extend_from_slice(&bytes[place.min(bytes.len())..]);
        let joined = Bytes::from(joined);
        assert_eq!(
            seen(established, &bytes, &[(place, block)], true),
            seen(established, &joined, &[], true),
            "at {place}"
        );
    }
    // A network could have damaged it.
    let mut damaged = sent.packet.to_vec();
    damaged[100] ^= 1;
    let damaged = Sent { packet: Bytes::from(damaged), shared: sent.shared.clone() };
    let (bytes, shared) = damaged.divided();
    let seen = seen(established, &bytes, &shared, false);
    assert!(seen.contents.is_empty(), "its checksum is wrong");
}
