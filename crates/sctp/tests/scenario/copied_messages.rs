//! Messages of up to 8 KB that nobody else keeps are copied to the others that wait, where three of them fit a packet.

use std::time::Duration;

use lab::{A, B, TwoHosts};
use sctp::{Admission, AssociationId, PathHints, SendInfo};

/// Returns hosts whose packets have up to `mtu_bytes`, and the association of the first.
fn hosts(mtu_bytes: usize) -> (TwoHosts, AssociationId) {
    let mut hosts = TwoHosts::new(1);
    for node in [A, B] {
        hosts.app(node).hints = PathHints { mtu_bytes, ..PathHints::default() };
    }
    let (a, _) = hosts.establish();
    (hosts, a)
}

/// Sends messages of this length, which the caller keeps or not, and returns how many were cut.
fn cut(mtu_bytes: usize, bytes: usize, keeps: bool) -> u64 {
    let messages = (100_000 / bytes) as u8 + 5;
    let (mut hosts, a) = hosts(mtu_bytes);
    let now = hosts.now();
    let info = SendInfo::default();
    for number in 0..messages {
        let message = vec![number; bytes];
        let endpoint = &mut hosts.node_mut(A).endpoint;
        let Admission::Granted(permit) = endpoint.admit(a, &info, bytes) else { panic!("there is room") };
        match permit.copies() && !keeps {
            true => permit.send(now, [&message[..]]),
            false => permit.send(now, [bytes::Bytes::from(message)]),
        }
    }
    let all = |hosts: &TwoHosts| hosts.node(B).app.messages.len() == usize::from(messages);
    hosts.run_until("all arrived", Duration::from_secs(20), all);
    for (number, message) in (0..messages).zip(&hosts.node(B).app.messages) {
        assert_eq!(message.bytes, vec![number; bytes]);
    }
    hosts.node(A).endpoint.statistics(a).expect("it is up").messages_fragmented
}

#[test]
fn the_length_of_packets_decides_which_messages_are_copied() {
    for (mtu_bytes, copied) in [(1472, 2047), (65_000, 8 * 1024), (28 + 3 * 5000, 5000)] {
        let (hosts, a) = hosts(mtu_bytes);
        assert_eq!(hosts.node(A).endpoint.copied_bytes_max(a), Some(copied), "in {mtu_bytes} bytes");
    }
}

#[test]
fn a_message_that_was_copied_is_not_cut_to_fill_a_long_packet() {
    for bytes in [3000, 5000, 8 * 1024] {
        assert_eq!(cut(65_000, bytes, false), 0, "{bytes} bytes");
        assert!(cut(65_000, bytes, true) > 0, "{bytes} bytes of another owner");
    }
    assert!(cut(1472, 2000, false) > 0, "it does not fit");
    assert!(cut(10_000, 3000, false) > 0, "the packet is short");
}
