//! Receive window that a reader keeps occupied, because the next reader behind it has not read the data yet.

use sctp::{AssociationConfig, Event};
use sctp_wire::chunk::{CookieEcho, DataFlags};

use lab::Reading;
use lab::packets::sack_of;
use lab::script::Peer;

const BUFFER_BYTES: usize = 16 << 10;
const MESSAGE_BYTES: usize = 1000;
/// Number of messages that leave little of the window.
const MESSAGES: u32 = 14;
/// Charge of a message to the buffer: the overhead of few messages is free.
const TAKEN_BYTES: usize = MESSAGE_BYTES;

fn peer(seed: u8) -> Peer {
    let config = AssociationConfig {
        receive_buffer_bytes: BUFFER_BYTES,
        receive_buffer_tuned_bytes: 0,
        ..AssociationConfig::default()
    };
    let mut peer = Peer::established_with(seed, config);
    peer.app.set_reading(Reading::Never);
    peer
}

/// The peer sends a message, and the reader takes it and keeps its room. Returns the window that the peer is told.
fn held_message(peer: &mut Peer, number: u32) -> usize {
    let at_once = DataFlags { immediate: true, ..DataFlags::WHOLE };
    peer.sends().data_with(at_once, number, 0, number as u16, &[1; MESSAGE_BYTES]).go();
    let window = sack_of(&peer.hears()).expect("a SACK").a_rwnd as usize;
    peer.endpoint.consumed(peer.id, MESSAGE_BYTES, 1);
    peer.endpoint.hold_window(peer.id, TAKEN_BYTES);
    peer.collect_output();
    window
}

/// The reader releases room. Returns the window that the peer is told, if any.
fn released(peer: &mut Peer, bytes: usize) -> Option<usize> {
    peer.endpoint.release_window(peer.id, bytes);
    peer.collect_output();
    let update = peer.hears_maybe()?;
    Some(sack_of(&update).expect("a SACK").a_rwnd as usize)
}

fn buffered_bytes(peer: &Peer) -> usize {
    peer.endpoint.statistics(peer.id).expect("it is there").receive_buffered_bytes as usize
}

#[test]
fn room_that_the_reader_keeps_stays_closed() {
    let mut peer = peer(1);
    for number in 0..MESSAGES {
        let window = held_message(&mut peer, number);
        let unread = (number as usize + 1) * TAKEN_BYTES;
        assert_eq!(window, BUFFER_BYTES - unread);
        assert_eq!(buffered_bytes(&peer), unread);
        assert!(!peer.is_heard(), "no update of a window that has not opened");
    }
}

#[test]
fn held_window_is_bounded_as_unread_data_is() {
    let mut peer = peer(2);
    let mut number = 0;
    while buffered_bytes(&peer) <= 2 * BUFFER_BYTES {
        held_message(&mut peer, number);
        number += 1;
    }
    let at_once = DataFlags { immediate: true, ..DataFlags::WHOLE };
    peer.sends().data_with(at_once, number, 0, number as u16, &[1; MESSAGE_BYTES]).go();
    assert_eq!(peer.endpoint.statistics(peer.id).expect("it is there").data_chunks_dropped, 1);
}

#[test]
fn room_that_is_given_back_is_told_in_quarters() {
    let mut peer = peer(3);
    let mut window = BUFFER_BYTES;
    for number in 0..MESSAGES {
        window = held_message(&mut peer, number);
    }
    let quarter = (BUFFER_BYTES / 4).div_ceil(TAKEN_BYTES);
    for _ in 1..quarter {
        assert_eq!(released(&mut peer, TAKEN_BYTES), None);
    }
    assert_eq!(released(&mut peer, TAKEN_BYTES), Some(window + quarter * TAKEN_BYTES));
    assert_eq!(released(&mut peer, usize::MAX), Some(BUFFER_BYTES));
    assert_eq!(buffered_bytes(&peer), 0);
}

#[test]
fn an_update_that_is_due_is_called_off_when_its_room_is_kept() {
    let mut peer = peer(4);
    let at_once = DataFlags { immediate: true, ..DataFlags::WHOLE };
    for number in 0..MESSAGES {
        peer.sends().data_with(at_once, number, 0, number as u16, &[1; MESSAGE_BYTES]).go();
        peer.hears();
    }
    for _ in 0..MESSAGES {
        peer.endpoint.consumed(peer.id, MESSAGE_BYTES, 1);
    }
    peer.endpoint.hold_window(peer.id, MESSAGES as usize * TAKEN_BYTES);
    peer.collect_output();
    peer.expects_nothing();
}

#[test]
fn a_peer_that_restarts_finds_the_window_as_closed() {
    let mut peer = peer(5);
    held_message(&mut peer, 0);
    peer.tag = peer.tag.wrapping_add(1);
    peer.sends().tag(0).chunk(|p, out| p.init().write(out)).go();
    let cookie = peer.takes_init_ack();
    peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).go();
    peer.expects("COOKIE ACK");
    let report = peer.app.events.iter().find(|e| matches!(e.event, Event::Restarted(_))).expect("a report");
    let report_bytes = report.event.receive_credit().expect("it takes room");
    peer.endpoint.consumed(peer.id, report_bytes, 1);
    assert_eq!(held_message(&mut peer, 0), BUFFER_BYTES - 2 * TAKEN_BYTES);
}
