//! Errors that the endpoint reports to the peer and to the user, and unknown chunks (RFC 9260 §3.2, §3.3.10, §6.5).

use bytes::Bytes;
use sctp::{AssociationConfig, Event};
use sctp_wire::StreamId;
use sctp_wire::cause::{Cause, Causes, InvalidStreamIdentifier, OutOfResource, UnrecognizedChunkType};
use sctp_wire::chunk::{Abort, Chunk, CookieAck, DataFlags, Error, Shutdown, ShutdownAck, ShutdownComplete};

use lab::packets::each_chunk;
use lab::script::{Peer, Say};

/// Returns a chunk of this kind with two bytes.
fn unknown(kind: u8) -> impl FnOnce(&Peer, &mut Vec<u8>) {
    move |_, out| out.extend_from_slice(&[kind, 7, 0, 6, 1, 2, 0, 0])
}

/// Returns the causes of the ERROR that the endpoint sends next.
fn reported(peer: &mut Peer) -> Vec<Vec<u8>> {
    let packet = peer.hears();
    let mut found = Vec::new();
    each_chunk(&packet, |chunk| {
        if let Chunk::Error(error) = chunk {
            found.extend(error.causes.clone().flatten().map(|cause| {
                let mut bytes = Vec::new();
                cause.write(&mut bytes);
                bytes
            }));
        }
    });
    found
}

fn discarded(peer: &Peer) -> u64 {
    peer.endpoint.statistics(peer.id).unwrap().chunks_discarded
}

#[test]
fn unknown_chunks_are_skipped_or_end_the_packet_and_are_reported_or_not() {
    // RFC 9260 §3.2, table 2. The DATA chunk behind shows whether the endpoint processed the rest of the packet.
    for (kind, report, goes_on) in
        [(0x3e, false, false), (0x7e, true, false), (0xbe, false, true), (0xfe, true, true)]
    {
        let mut peer = Peer::established(1);
        peer.sends().chunk(unknown(kind)).data(0).go();
        match (report, goes_on) {
            (true, true) => {
                // The report contains the whole chunk with its flags.
                assert_eq!(reported(&mut peer), [[0, 6, 0, 10, kind, 7, 0, 6, 1, 2, 0, 0]]);
            }
            (true, false) => peer.expects("ERROR"),
            (false, true) => peer.expects("SACK 0"),
            (false, false) => {}
        }
        peer.expects_nothing();
        assert_eq!((peer.app.messages.len() == 1, discarded(&peer)), (goes_on, 1), "{kind:x}");
    }
}

#[test]
fn a_packet_full_of_errors_is_answered_with_one_chunk_of_bounded_size() {
    let mut peer = Peer::established(2);
    let mut say: Say<'_> = peer.sends();
    for _ in 0..8000 {
        say = say.chunk(unknown(0xfe));
    }
    say.go();
    let causes = reported(&mut peer);
    assert_eq!(causes.len(), 1024 / 12);
    peer.expects_nothing();
    let statistics = peer.endpoint.statistics(peer.id).unwrap();
    assert_eq!((statistics.chunks_discarded, statistics.reports_dropped), (8000, 8000 - 1024 / 12));
    // DATA on streams that do not exist, likewise.
    let mut say: Say<'_> = peer.sends();
    for n in 0..3000 {
        say = say.data_with(DataFlags::WHOLE, n, 10 + n as u16, 0, b"x");
    }
    say.go();
    assert_eq!(reported(&mut peer).len(), 1024 / 8);
    peer.expects_nothing();
}

#[test]
fn nothing_is_reported_before_the_peer_has_answered_the_cookie() {
    let mut peer = Peer::connecting(3, AssociationConfig::default());
    peer.takes_init();
    peer.sends().chunk(unknown(0xfe)).go();
    peer.expects_nothing();
    peer.sends().init_ack(b"cookie").go();
    peer.expects("COOKIE ECHO");
    peer.sends().chunk(unknown(0xfe)).go();
    peer.expects_nothing();
    peer.sends().chunk(|_, out| CookieAck.write(out)).chunk(unknown(0xfe)).go();
    peer.expects("ERROR");
}

#[test]
fn errors_that_the_peer_reports_reach_the_user() {
    let mut peer = Peer::established(4);
    let mut causes = Vec::new();
    Cause::OutOfResource(OutOfResource).write(&mut causes);
    peer.sends().chunk(|_, out| Error { causes: Causes::new(&causes) }.write(out)).go();
    peer.expects_nothing();
    assert!(peer.app.saw(|e| *e == Event::RemoteError { cause: 4, information: Bytes::new() }));
    // An ERROR without a cause has no effect.
    peer.sends().chunk(|_, out| Error { causes: Causes::default() }.write(out)).go();
    assert_eq!((peer.app.events.len(), discarded(&peer)), (2, 1));
    // Nor has one whose cause, a stale cookie, lacks its content.
    peer.sends().chunk(|_, out| out.extend_from_slice(&[Error::KIND, 0, 0, 8, 0, 3, 0, 4])).go();
    assert_eq!((peer.app.events.len(), discarded(&peer)), (2, 2));
    // The user hears of some of many in one packet.
    let flood = |_: &Peer, out: &mut Vec<u8>| {
        (0..100).for_each(|_| Error { causes: Causes::new(&causes) }.write(out));
    };
    peer.sends().chunk(flood).go();
    assert_eq!((peer.app.events.len(), discarded(&peer)), (2 + 32, 2 + 68));
    peer.sends().data(0).go();
    peer.expects("SACK 0");
}

#[test]
fn each_cause_of_an_error_reaches_the_user() {
    // RFC 9260 §3.3.10: one or more causes.
    let mut peer = Peer::established(8);
    let mut causes = Vec::new();
    Cause::InvalidStreamIdentifier(InvalidStreamIdentifier { stream: StreamId(99) }).write(&mut causes);
    // A cause of a wrong length is skipped.
    causes.extend_from_slice(&[0, 1, 0, 4]);
    Cause::UnrecognizedChunkType(UnrecognizedChunkType { chunk: b"abcd" }).write(&mut causes);
    Cause::OutOfResource(OutOfResource).write(&mut causes);
    let told = |peer: &Peer| -> Vec<(u16, Bytes)> {
        let events = peer.app.events.iter();
        events
            .filter_map(|happened| match &happened.event {
                Event::RemoteError { cause, information } => Some((*cause, information.clone())),
                _ => None,
            })
            .collect()
    };
    peer.sends().chunk(|_, out| Error { causes: Causes::new(&causes) }.write(out)).go();
    let expected = [(1, &[0, 99, 0, 0][..]), (6, b"abcd"), (4, b"")];
    assert_eq!(told(&peer), expected.map(|(cause, content)| (cause, Bytes::from_static(content))));
    // One chunk with too many of them.
    let causes = causes[..8].repeat(100);
    peer.sends().chunk(|_, out| Error { causes: Causes::new(&causes) }.write(out)).go();
    assert_eq!((told(&peer).len(), discarded(&peer)), (3 + 32, 0));
    peer.expects_nothing();
}

#[test]
fn long_chunks_and_causes_are_reported_in_part() {
    const KEPT_BYTES: usize = 512;
    let mut peer = Peer::established(7);
    // An unknown chunk of 600 bytes that asks for a report, and a cause of 600 bytes.
    let long = |head: [u8; 2]| {
        let mut bytes = vec![7; 600];
        bytes[..4].copy_from_slice(&[head[0], head[1], 2, 88]);
        bytes
    };
    peer.sends().chunk(|_, out| out.extend_from_slice(&long([0xfe, 0]))).go();
    assert_eq!(reported(&mut peer)[0].len(), 4 + KEPT_BYTES);
    let causes = long([0xc0, 0xde]);
    peer.sends().chunk(|_, out| Error { causes: Causes::new(&causes) }.write(out)).go();
    let information = Bytes::copy_from_slice(&causes[4..4 + KEPT_BYTES]);
    assert!(peer.app.saw(|e| *e == Event::RemoteError { cause: 0xc0de, information: information.clone() }));
    peer.sends().chunk(|_, out| Abort { reflected_tag: false, causes: Causes::new(&causes) }.write(out)).go();
    let causes = &causes[..KEPT_BYTES];
    assert!(peer.app.saw(|e| matches!(e, Event::Lost { information, .. } if *information == causes)));
}

#[test]
fn errors_before_the_answer_to_an_init_are_not_reported() {
    let mut peer = Peer::connecting(6, AssociationConfig::default());
    peer.takes_init();
    let mut causes = Vec::new();
    Cause::OutOfResource(OutOfResource).write(&mut causes);
    let error = |peer: &mut Peer| {
        peer.sends().chunk(|_, out| Error { causes: Causes::new(&causes) }.write(out)).go();
        (peer.app.saw(|e| matches!(e, Event::RemoteError { .. })), discarded(peer))
    };
    assert_eq!(error(&mut peer), (false, 1));
    peer.sends().init_ack(b"cookie").go();
    peer.expects("COOKIE ECHO");
    assert_eq!(error(&mut peer), (true, 1));
}

#[test]
fn chunks_that_mean_nothing_here_are_counted_and_dropped() {
    let mut peer = Peer::established(5);
    peer.sends().chunk(|_, out| ShutdownAck.write(out)).go();
    peer.sends().chunk(|_, out| ShutdownComplete { reflected_tag: false }.write(out)).go();
    // A HEARTBEAT without information.
    peer.sends().chunk(|_, out| out.extend_from_slice(&[4, 0, 0, 4])).go();
    peer.expects_nothing();
    assert_eq!(discarded(&peer), 3);
    // The peer has shut down and still sends data.
    peer.app_sends(sctp::SendInfo::default(), vec![1]);
    peer.expects("DATA 0");
    peer.sends().chunk(|p, out| Shutdown { cum_tsn: p.endpoint_tsn(-1) }.write(out)).go();
    peer.sends().data(0).go();
    peer.expects_nothing();
    assert_eq!((discarded(&peer), peer.app.messages.len()), (4, 0));
}
