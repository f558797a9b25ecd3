//! Checksums that the caller writes after a batch was built, or leaves out (RFC 9260 §6.8).

use std::net::SocketAddr;

use bytes::Bytes;
use lab::App;
use lab::packets;
use lab::script::{ENDPOINT_PORT, PEER_PORT, Peer};
use sctp::{Arrival, BatchLimits, Checksum, Endpoint, EndpointConfig, Scope, SendInfo, Time, TransmitBuffer};
use sctp_wire::chunk::Heartbeat;
use sctp_wire::{Packet, packet};

/// Builds a batch of several packets into `buffer`, and returns the length of each.
fn build(buffer: &mut TransmitBuffer) -> usize {
    let mut peer = Peer::established(1);
    let message = Bytes::from(vec![7; 4000]);
    peer.endpoint.send(peer.now, peer.id, &SendInfo::default(), message.len(), [message]).unwrap();
    peer.endpoint.poll_transmit(peer.now, Scope::All, buffer).expect("a batch").segment_bytes
}

#[test]
fn deferred_checksums_are_those_of_the_other_way() {
    let (mut deferring, mut other) = (TransmitBuffer::deferring_checksums(), TransmitBuffer::new());
    let segment_bytes = build(&mut deferring);
    build(&mut other);
    let without = deferring.to_vec();
    let packets: Vec<_> =
        without.chunks(segment_bytes).map(|packet| Packet::parse(packet).unwrap()).collect();
    assert!(packets.len() > 1, "several packets");
    assert!(packets.iter().all(|packet| packet.checksum_field() == 0));
    // The second call finds nothing to write.
    for _ in 0..2 {
        deferring.write_checksums();
        assert_eq!(deferring.to_vec(), other.to_vec());
    }
}

#[test]
fn only_packets_from_memory_need_none() {
    for (in_memory, errors) in [(true, 0), (false, 1)] {
        let mut peer = Peer::established(1);
        let mut packet = packets::build(PEER_PORT, ENDPOINT_PORT, peer.endpoint_tag, |out| {
            Heartbeat { info: b"1" }.write(out);
        })
        .to_vec();
        packet::store_checksum(&mut packet, 0);
        let bytes = Bytes::from(packet);
        let arrival = Arrival {
            remote: peer.address,
            local: None,
            marked: false,
            in_memory,
            segment_bytes: bytes.len(),
            bytes: &bytes,
            shared: &[],
        };
        let received = peer.endpoint.endpoint_statistics().control_chunks_received;
        peer.endpoint.handle_batch(peer.now, &arrival, &mut peer.app);
        let statistics = peer.endpoint.endpoint_statistics();
        assert_eq!(statistics.checksum_errors, errors);
        assert_eq!(statistics.control_chunks_received - received, 1 - errors);
    }
}

#[test]
fn an_endpoint_without_checksums_verifies_and_writes_none() {
    let config = EndpointConfig { checksum: Checksum::None, ..EndpointConfig::default() };
    let mut endpoint = Endpoint::new(config, [1; 32], BatchLimits { segments_max: 1, bytes_max: 1500 });
    let packet = packets::build(PEER_PORT, ENDPOINT_PORT, 7, |out| Heartbeat { info: b"1" }.write(out));
    let mut packet = packet.to_vec();
    packet::store_checksum(&mut packet, 1);
    let from = SocketAddr::from(([10, 0, 0, 9], 0));
    endpoint.handle_datagram(Time::ZERO, from, None, &Bytes::from(packet), &mut App::default());
    let mut buffer = TransmitBuffer::new();
    endpoint.poll_transmit(Time::ZERO, Scope::All, &mut buffer).expect("an ABORT");
    assert_eq!(Packet::parse(&buffer.to_vec()).unwrap().checksum_field(), 0);
    assert_eq!(endpoint.endpoint_statistics().checksum_errors, 0);
}
