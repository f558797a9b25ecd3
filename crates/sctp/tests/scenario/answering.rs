//! Batches name the destinations that have not answered lately, because a link must not let packets to them delay others.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sctp::{AssociationConfig, Scope, SendInfo, TransmitBuffer};
use sctp_wire::chunk::{CookieAck, Init, InitAck};
use sctp_wire::parameter::{Parameters, StateCookie};

use lab::packets::build;
use lab::script::{ENDPOINT_PORT, PEER_PORT, Peer, plain};

/// Takes what the endpoint sends now; returns for each batch the destination, and whether it counts as answering.
fn batches(peer: &mut Peer) -> Vec<(SocketAddr, bool)> {
    let (mut sent, mut buffer) = (Vec::new(), TransmitBuffer::new());
    while let Some(transmit) = peer.endpoint.poll_transmit(peer.now, Scope::All, &mut buffer) {
        sent.push((transmit.remote, transmit.is_answering));
    }
    sent
}

fn send(peer: &mut Peer) {
    let message = Bytes::from_static(b"data");
    peer.endpoint.send(peer.now, peer.id, &SendInfo::default(), message.len(), [message]).expect("room");
}

#[test]
fn an_init_is_for_a_host_that_has_not_answered_and_a_cookie_for_one_that_has() {
    let mut peer = Peer::new(1, AssociationConfig::default());
    let to = peer.address;
    let id = peer.endpoint.connect(peer.now, ENDPOINT_PORT, PEER_PORT, &[to], Arc::new(plain()), &peer.app);
    peer.id = id.expect("no such association yet");
    assert_eq!(batches(&mut peer), [(to, false)]);

    let mut peer = Peer::connecting(1, plain());
    peer.takes_init();
    let ack = build(PEER_PORT, ENDPOINT_PORT, peer.endpoint_tag, |out| {
        let mut parameters = Vec::new();
        StateCookie { cookie: b"cookie" }.write(&mut parameters);
        let Init { initiate_tag, a_rwnd, outbound_streams, inbound_streams, initial_tsn, .. } = peer.init();
        let parameters = Parameters::new(&parameters);
        InitAck { initiate_tag, a_rwnd, outbound_streams, inbound_streams, initial_tsn, parameters }
            .write(out);
    });
    peer.endpoint.handle_datagram(peer.now, to, None, &ack, &mut peer.app);
    assert_eq!(batches(&mut peer), [(to, true)]);
    peer.sends().chunk(|_, out| CookieAck.write(out)).go();
    send(&mut peer);
    assert_eq!(batches(&mut peer), [(to, true)]);
}

#[test]
fn a_path_that_no_longer_answers_is_told_from_one_that_does() {
    let mut peer = Peer::established(1);
    let to = peer.address;
    send(&mut peer);
    assert_eq!(batches(&mut peer), [(to, true)]);
    // Six timeouts, each twice as long as the one before, make the path potentially failed and then inactive.
    let mut last = None;
    for _ in 0..6 {
        let Some(at) = peer.endpoint.poll_timeout() else { break };
        peer.now = at.max(peer.now + Duration::from_millis(1));
        peer.endpoint.handle_timeout(peer.now, &mut peer.app);
        last = batches(&mut peer).pop().or(last);
    }
    assert_eq!(last, Some((to, false)));
}
