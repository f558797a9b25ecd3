//! An association comes up and carries messages both ways.

use std::time::Duration;

use lab::packets::kinds;
use lab::{A, B, TwoHosts};
use sctp::{CloseReason, Event, SendInfo};
use sctp_wire::chunk::{CookieAck, CookieEcho, Init, InitAck};

#[test]
fn four_packets_set_up_an_association() {
    let mut hosts = TwoHosts::new(1);
    hosts.establish();
    let ladder: Vec<_> = hosts.sent.iter().map(|s| (s.by, kinds(&s.packet))).collect();
    assert_eq!(
        ladder,
        [
            (A, vec![Init::KIND]),
            (B, vec![InitAck::KIND]),
            (A, vec![CookieEcho::KIND]),
            (B, vec![CookieAck::KIND]),
        ]
    );
    // B is up after one and a half round trips, A after two.
    assert!(hosts.app(A).saw(|e| *e == Event::Connected { streams_out: 10, streams_in: 10 }));
}

#[test]
fn messages_arrive_both_ways_once_and_in_order() {
    let mut hosts = TwoHosts::new(2);
    let (a, b) = hosts.establish();
    let message = |n: u32| n.to_be_bytes().repeat(1 + n as usize % 100);
    let sent: Vec<Vec<u8>> = (0..2000).map(message).collect();
    for (node, id) in [(A, a), (B, b)] {
        hosts.send_all(node, id, sent.iter().map(|m| (SendInfo::default(), m.clone().into())));
    }
    hosts.run_until("all arrived", Duration::from_secs(20), |hosts| {
        [A, B].iter().all(|&n| hosts.node(n).app.messages.len() == sent.len())
    });
    for node in [A, B] {
        assert_eq!(hosts.app(node).contents(), sent);
        assert!((0..).zip(&hosts.app(node).messages).all(|(n, m)| m.info.ssn == n));
    }
    let statistics = hosts.statistics(A, a);
    assert_eq!((statistics.messages_sent, statistics.messages_received), (2000, 2000));
    assert_eq!((statistics.data_chunks_retransmitted, statistics.timeouts), (0, 0));
    hosts.shutdown(A, a);
    hosts.run_until("both are closed", Duration::from_secs(5), |hosts| {
        [A, B].iter().all(|&n| hosts.closed(n) == Some(CloseReason::Shutdown))
    });
    assert_eq!(hosts.node(A).endpoint.association_count() + hosts.node(B).endpoint.association_count(), 0);
}

#[test]
fn a_message_leaves_with_what_was_sent_with_it() {
    let mut hosts = TwoHosts::new(3);
    let (a, _) = hosts.establish();
    hosts.send(A, a, SendInfo { stream: 7, ppid: 0xfeed_beef, ..SendInfo::default() }, &b"hello"[..]);
    hosts.run_for(Duration::from_millis(100));
    let message = &hosts.app(B).messages[0];
    assert_eq!((message.info.stream, message.info.ppid, message.info.ssn), (7, 0xfeed_beef, 0));
    assert!(!message.info.unordered && !message.info.more);
}
