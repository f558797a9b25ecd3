//! Datagrams of one sender that arrive together.

use bytes::Bytes;
use lab::packets::{build, header};
use lab::script::{ENDPOINT_PORT, PEER_PORT, Peer};
use sctp::{Arrival, AssociationConfig};
use sctp_wire::chunk::{Abort, CookieEcho, Heartbeat, ShutdownAck};

/// Connects from another SCTP port at the same address.
fn connects_again(peer: &mut Peer, port: u16) {
    let from = peer.address;
    let init = build(port, ENDPOINT_PORT, 0, |out| peer.init().write(out));
    peer.sends_raw(from, &init);
    let cookie = peer.takes_init_ack();
    let echo = build(port, ENDPOINT_PORT, peer.endpoint_tag, |out| CookieEcho { cookie: &cookie }.write(out));
    peer.sends_raw(from, &echo);
    peer.expects("COOKIE ACK");
}

/// Delivers packets that arrive together. All but the last have the same length.
fn arrive(peer: &mut Peer, packets: &[Bytes]) {
    let bytes = Bytes::from(packets.concat());
    let arrival = Arrival {
        remote: peer.address,
        local: None,
        marked: false,
        in_memory: false,
        segment_bytes: packets[0].len(),
        bytes: &bytes,
        shared: &[],
    };
    peer.endpoint.handle_batch(peer.now, &arrival, &mut peer.app);
    peer.collect_output();
}

#[test]
fn an_association_is_gone_for_the_packets_behind_its_end() {
    let mut peer = Peer::established_with(1, AssociationConfig::default());
    let tag = peer.endpoint_tag;
    let abort = build(PEER_PORT, ENDPOINT_PORT, tag, |out| {
        Abort { reflected_tag: false, causes: Default::default() }.write(out);
    });
    let shutdown_ack = build(PEER_PORT, ENDPOINT_PORT, tag, |out| ShutdownAck.write(out));
    arrive(&mut peer, &[abort, shutdown_ack]);
    // RFC 9260 §8.4, 5.
    peer.expects("SHUTDOWN COMPLETE T");
}

#[test]
fn all_associations_of_a_batch_answer() {
    const SECOND_PORT: u16 = PEER_PORT + 1;
    let mut peer = Peer::established_with(1, AssociationConfig::default());
    let first_tag = peer.endpoint_tag;
    connects_again(&mut peer, SECOND_PORT);
    let [first, second] = [(PEER_PORT, first_tag), (SECOND_PORT, peer.endpoint_tag)];
    for order in [[first, second, second], [second, first, first], [first, second, first]] {
        let packets = order
            .map(|(port, tag)| build(port, ENDPOINT_PORT, tag, |out| Heartbeat { info: b"?" }.write(out)));
        arrive(&mut peer, &packets);
        let answers = std::iter::from_fn(|| peer.hears_maybe());
        let mut ports: Vec<u16> = answers.map(|packet| header(&packet).destination_port).collect();
        ports.sort_unstable();
        assert_eq!(ports, [PEER_PORT, SECOND_PORT]);
    }
}
