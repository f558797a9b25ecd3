//! TSNs that pass 2^32 (RFC 9260 §1.6, §6.1), also in gap blocks and with loss.

use std::time::Duration;

use bytes::Bytes;
use sctp::SendInfo;

use lab::packets::data_of;
use lab::script::Peer;
use lab::{A, B, Fate, TwoHosts};

/// Both sides begin shortly before the wrap and send far beyond it.
fn passes_the_wrap(loss_every: u32) {
    for before in [0, 1, 2, 100, 1500] {
        let mut hosts = TwoHosts::new(u64::from(before));
        for node in [A, B] {
            hosts.node_mut(node).endpoint.set_initial_tsn(0u32.wrapping_sub(before));
        }
        let (a, b) = hosts.establish();
        for node in [A, B] {
            let mut number = 0;
            hosts.tap(node, move |_| {
                number += 1;
                if loss_every > 0 && number % loss_every == 0 { Fate::Drop } else { Fate::Pass }
            });
        }
        let count = 3000;
        let message = |n: u32| Bytes::from(n.to_be_bytes().repeat(1 + n as usize % 30));
        for (node, id) in [(A, a), (B, b)] {
            hosts.send_all(node, id, (0..count).map(|n| (SendInfo::default(), message(n))));
        }
        hosts.run_until("all arrived", Duration::from_secs(300), |hosts| {
            [A, B].iter().all(|&n| hosts.node(n).app.messages.len() == count as usize)
        });
        for node in [A, B] {
            assert!((0..count).zip(&hosts.app(node).messages).all(|(n, m)| m.bytes == message(n)));
            let tsns: Vec<_> =
                hosts.sent.iter().filter(|s| s.by == node).flat_map(|s| data_of(&s.packet)).collect();
            assert_eq!(tsns[0].tsn, 0u32.wrapping_sub(before));
            assert!(tsns.iter().any(|d| d.tsn == 1400), "it went on from 0");
        }
        hosts.shutdown(A, a);
        hosts.run_until("both are closed", Duration::from_secs(300), |hosts| {
            [A, B].iter().all(|&n| hosts.closed(n).is_some())
        });
    }
}

#[test]
fn data_passes_the_wrap() {
    passes_the_wrap(0);
}

#[test]
fn data_passes_the_wrap_though_packets_are_lost() {
    passes_the_wrap(9);
}

#[test]
fn gaps_are_reported_across_the_wrap() {
    // The peer's first TSN is 2^32 - 6 and a little more for each seed.
    for seed in 10..24 {
        let mut peer = Peer::established(seed);
        peer.sends().data(0).go();
        peer.expects("SACK 0");
        for n in [2, 4, 6, 8] {
            peer.sends().data(n).go();
            let _ = peer.hears();
        }
        peer.sends().data(10).go();
        peer.expects("SACK 0 gap 2-2 gap 4-4 gap 6-6 gap 8-8 gap 10-10");
        for n in [1, 3, 5, 7] {
            peer.sends().data(n).go();
            let _ = peer.hears();
        }
        peer.sends().data(9).go();
        peer.expects("SACK 10");
        peer.sends().data(3).go();
        peer.expects("SACK 10 dup 3");
        assert_eq!(peer.app.contents().concat(), (0..11).collect::<Vec<u8>>());
    }
}
