//! No packet exceeds the MTU of its path, and the packets of a batch have one length, whatever chunks share them.

use std::time::Duration;

use sctp::{SendInfo, Unreachable};
use sctp_wire::chunk::{Heartbeat, Sack};

use lab::packets::{data_of, has};
use lab::script::Peer;

#[test]
fn a_sack_that_does_not_fit_beside_control_chunks_goes_with_the_next_packet() {
    // A HEARTBEAT ACK and an ERROR of 0 to 40 bytes.
    for rest in (0..=40).step_by(4) {
        let mut peer = Peer::established(1);
        let unknown = 1472 - 12 - 1028 - 8 - rest;
        peer.sends()
            .chunk(|_, out| Heartbeat { info: &[1; 1024] }.write(out))
            .chunk(|_, out| {
                // An unknown chunk that asks for a report.
                out.extend_from_slice(&[0xc1, 0]);
                out.extend_from_slice(&(unknown as u16).to_be_bytes());
                out.resize(out.len() + unknown - 4, 0);
            })
            .data(0)
            .go();
        let mut sacks = 0;
        while let Some(packet) = peer.hears_maybe() {
            assert!(packet.len() <= 1472, "{} bytes with {rest} left", packet.len());
            sacks += usize::from(has(&packet, Sack::KIND));
        }
        assert_eq!(sacks, 1, "{rest} left");
    }
}

#[test]
fn chunks_from_before_the_path_shrank_go_alone() {
    let mut peer = Peer::established(2);
    // Small and large messages in turn, all lost.
    let mut sent = Vec::new();
    for n in 0..4u8 {
        for bytes in [100, 1400] {
            let message = vec![n; bytes];
            peer.endpoint
                .send(peer.now, peer.id, &SendInfo::default(), bytes, [message.clone().into()])
                .unwrap();
            sent.push(message);
        }
    }
    peer.collect_output();
    let quote = peer.hears();
    while peer.hears_maybe().is_some() {}
    let why = Unreachable::TooBig { mtu_bytes: 600 };
    peer.endpoint.handle_unreachable(peer.now, peer.address, why, &quote, &mut peer.app);
    assert_eq!(peer.endpoint.statistics(peer.id).unwrap().paths[0].mtu_bytes, 600);
    // Everything arrives, chunk by chunk, in packets that parse.
    let mut first = 0;
    let mut got = Vec::new();
    for _ in 0..100 {
        peer.waits(Duration::from_secs(4));
        while let Some(packet) = peer.hears_maybe() {
            let chunks = data_of(&packet);
            assert!(packet.len() <= 600 || chunks.len() == 1, "{} chunks share a long packet", chunks.len());
            for chunk in chunks {
                let number = chunk.tsn.wrapping_sub(peer.endpoint_tsn(0).0) as usize;
                if number == got.len() {
                    got.push(chunk.payload);
                }
            }
        }
        if got.len() > first {
            first = got.len();
            peer.sends().sack(first as i32 - 1, &[]).go();
        }
    }
    assert_eq!(got.concat(), sent.concat());
}

#[test]
fn a_long_chunk_does_not_follow_a_shorter_packet_in_its_batch() {
    let mut peer = Peer::established(3);
    let sizes = [572, 1400, 100, 100, 100, 100];
    let mut quote = None;
    for (number, bytes) in sizes.into_iter().enumerate() {
        peer.app_sends(SendInfo::default(), vec![number as u8; bytes]);
        quote = Some(peer.hears());
    }
    let why = Unreachable::TooBig { mtu_bytes: 600 };
    peer.endpoint.handle_unreachable(peer.now, peer.address, why, &quote.unwrap(), &mut peer.app);
    // The first two are lost: one fills a packet of the new length, the other is longer.
    peer.sends().sack(-1, &[(3, 6)]).go();
    peer.expects("DATA 0");
    // Probes whether the new length arrives.
    peer.expects("HEARTBEAT");
    peer.expects_nothing();
    // During the repair of a loss, the sender sends as much as arrives.
    peer.sends().sack(0, &[(2, 5)]).go();
    peer.expects("DATA 1");
    peer.expects_nothing();
}
