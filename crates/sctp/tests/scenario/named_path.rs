//! Messages that name their path (SCTP_ADDR_OVER; RFC 6458 §5.3.2).

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use sctp::{PathId, PathOptions, SendInfo};

use lab::packets::data_of;
use lab::script::Peer;

use crate::several_paths::{SECOND, with_two_paths};

fn over(peer: &Peer, address: IpAddr) -> SendInfo {
    let path = peer.endpoint.path_to(peer.id, address);
    assert!(path.is_some());
    SendInfo { path, ..SendInfo::default() }
}

/// Returns the address and the first byte of each message in the packets that arrive now.
fn ways(peer: &mut Peer) -> Vec<(IpAddr, u8)> {
    let mut ways = Vec::new();
    while let Some((to, packet)) = peer.hears_on_maybe() {
        ways.extend(data_of(&packet).iter().map(|data| (to.ip(), data.payload[0])));
    }
    ways
}

fn sends_at_once(peer: &mut Peer, messages: &[SendInfo]) {
    for (n, info) in messages.iter().enumerate() {
        let message = Bytes::from(vec![n as u8; 10]);
        peer.endpoint.send(peer.now, peer.id, info, message.len(), [message]).unwrap();
    }
    peer.collect_output();
}

#[test]
fn each_message_goes_where_it_is_to_and_the_others_where_data_goes() {
    let mut peer = with_two_paths(1);
    let (home, any) = (peer.address.ip(), SendInfo::default());
    let (first, second) = (over(&peer, home), over(&peer, SECOND));
    sends_at_once(&mut peer, &[any, second, second, any, first, any, second]);
    let expected = [(home, 0), (SECOND, 1), (SECOND, 2), (home, 3), (home, 4), (home, 5), (SECOND, 6)];
    assert_eq!(ways(&mut peer), expected);
}

#[test]
fn all_of_a_long_message_goes_there() {
    let mut peer = with_two_paths(2);
    let home = peer.address.ip();
    let second = over(&peer, SECOND);
    peer.app_sends(second, vec![7; 4000]);
    peer.app_sends(SendInfo::default(), vec![8; 10]);
    let mut ways = ways(&mut peer);
    assert_eq!(ways.pop(), Some((home, 8)));
    assert_eq!(ways, [(SECOND, 7); 3]);
}

#[test]
fn data_lost_there_may_take_another_path() {
    let mut peer = with_two_paths(3);
    let home = peer.address.ip();
    let second = over(&peer, SECOND);
    sends_at_once(&mut peer, &[second]);
    assert_eq!(ways(&mut peer), [(SECOND, 0)]);
    let mut again = Vec::new();
    while again.is_empty() {
        peer.waits(Duration::from_millis(100));
        again = ways(&mut peer);
    }
    assert_eq!(again[0], (home, 0));
}

#[test]
fn a_path_that_does_not_answer_or_that_there_is_not_holds_nothing_back() {
    let mut peer = with_two_paths(4);
    let home = peer.address.ip();
    let quick = PathOptions {
        retries_max: Some(0),
        potentially_failed_retries_max: Some(0),
        ..PathOptions::default()
    };
    peer.endpoint.set_path(peer.now, peer.id, Some(SECOND), &quick, &mut peer.app).unwrap();
    let second = over(&peer, SECOND);
    sends_at_once(&mut peer, &[second]);
    assert_eq!(ways(&mut peer), [(SECOND, 0)]);
    while ways(&mut peer).is_empty() {
        peer.waits(Duration::from_millis(100));
    }
    peer.sends().sack(0, &[]).go();
    let nowhere = SendInfo { path: Some(PathId(7)), ..SendInfo::default() };
    sends_at_once(&mut peer, &[second, nowhere]);
    assert_eq!(ways(&mut peer), [(home, 0), (home, 1)]);
}
