//! The state cookie on a bad line: lost, doubled, late, forged, replayed (RFC 9260 §5.1, §5.2).

use std::net::SocketAddr;
use std::time::Duration;

use sctp::{AssociationConfig, CloseReason, Event, SendInfo};
use sctp_wire::chunk::{CookieAck, CookieEcho, InitAck};

use lab::packets::{has, kinds, resealed};
use lab::script::Peer;
use lab::{A, B, Fate, Lab, PORT_A, PORT_B};

const SOON: Duration = Duration::from_secs(10);

/// Drops the first packet that has a chunk of `kind`.
fn drop_first(kind: u8) -> impl FnMut(&bytes::Bytes) -> Fate + Send + 'static {
    let mut dropped = false;
    move |packet| {
        if !dropped && has(packet, kind) {
            dropped = true;
            return Fate::Drop;
        }
        Fate::Pass
    }
}

/// Whether a message passes both ways.
fn talks(lab: &mut Lab) {
    let (a, b) = (lab.app(A).events[0].id, lab.accepted(B));
    lab.send(A, a, SendInfo::default(), &b"question"[..]);
    lab.send(B, b, SendInfo::default(), &b"answer"[..]);
    lab.run_until("both heard", SOON, |lab| {
        !lab.node(A).app.messages.is_empty() && !lab.node(B).app.messages.is_empty()
    });
}

#[test]
fn a_lost_cookie_echo_is_sent_again() {
    let mut lab = Lab::new(1);
    lab.tap(A, drop_first(CookieEcho::KIND));
    lab.establish();
    talks(&mut lab);
}

#[test]
fn a_lost_cookie_ack_is_asked_for_again() {
    let mut lab = Lab::new(2);
    lab.tap(B, drop_first(CookieAck::KIND));
    lab.establish();
    // B has answered the same cookie twice and has one association.
    assert_eq!(lab.sent.iter().filter(|s| has(&s.packet, CookieAck::KIND)).count(), 2);
    assert_eq!(lab.node(B).endpoint.association_count(), 1);
    talks(&mut lab);
}

#[test]
fn a_lost_init_ack_is_asked_for_again() {
    let mut lab = Lab::new(3);
    lab.tap(B, drop_first(InitAck::KIND));
    lab.establish();
    talks(&mut lab);
}

#[test]
fn a_doubled_cookie_echo_makes_one_association() {
    let mut lab = Lab::new(4);
    lab.tap(A, |packet| if has(packet, CookieEcho::KIND) { Fate::Twice } else { Fate::Pass });
    lab.establish();
    lab.run_for(Duration::from_secs(1));
    assert_eq!(lab.node(B).endpoint.association_count(), 1);
    assert_eq!(lab.app(B).events.len(), 1);
    talks(&mut lab);
}

#[test]
fn an_init_ack_that_comes_twice_changes_nothing() {
    let mut lab = Lab::new(5);
    lab.tap(B, |packet| if has(packet, InitAck::KIND) { Fate::Twice } else { Fate::Pass });
    lab.establish();
    talks(&mut lab);
}

#[test]
fn a_stale_cookie_is_reported_and_ends_the_connect() {
    let mut lab = Lab::new(6);
    lab.listen(AssociationConfig { cookie_life: Duration::from_millis(500), ..AssociationConfig::default() });
    lab.tap(A, |packet| {
        if has(packet, CookieEcho::KIND) { Fate::Delay(Duration::from_millis(700)) } else { Fate::Pass }
    });
    lab.connect(A, (PORT_A, PORT_B), AssociationConfig::default());
    lab.run_until("A gave up", SOON, |lab| lab.closed(A).is_some());
    assert_eq!(lab.node(B).endpoint.association_count(), 0);
    assert_eq!(lab.node(B).endpoint.endpoint_statistics().cookie_errors, 1);
}

#[test]
fn an_old_cookie_of_an_association_that_is_up_is_acknowledged() {
    // RFC 9260 §5.2.4, 3: with both tags right, age does not matter.
    let mut lab = Lab::new(7);
    let config =
        AssociationConfig { cookie_life: Duration::from_millis(1500), ..AssociationConfig::default() };
    let mut acks_dropped = 0;
    lab.tap(B, move |packet| {
        if has(packet, CookieAck::KIND) && acks_dropped < 2 {
            acks_dropped += 1;
            return Fate::Drop;
        }
        Fate::Pass
    });
    lab.establish_with(AssociationConfig::default(), config);
    talks(&mut lab);
}

#[test]
fn a_forged_cookie_makes_nothing() {
    let mut lab = Lab::new(8);
    lab.listen(AssociationConfig::default());
    lab.tap(A, |packet| {
        if !has(packet, CookieEcho::KIND) {
            return Fate::Pass;
        }
        let mut bytes = packet.to_vec();
        bytes[60] ^= 1;
        Fate::Replace(resealed(bytes))
    });
    lab.connect(A, (PORT_A, PORT_B), AssociationConfig::default());
    lab.run_for(Duration::from_secs(5));
    assert_eq!(lab.node(B).endpoint.association_count(), 0);
    assert!(lab.node(B).endpoint.endpoint_statistics().cookie_errors > 1);
    assert!(lab.sent.iter().all(|s| s.by == A || kinds(&s.packet) == [InitAck::KIND]), "{}", lab.log());
}

#[test]
fn a_cookie_is_good_only_for_the_address_that_asked_for_it() {
    let mut peer = Peer::new(9, AssociationConfig::default());
    peer.sends().tag(0).chunk(|p, out| p.init().write(out)).go();
    let cookie = peer.takes_init_ack();
    let honest = peer.address;
    peer.address = SocketAddr::from(([192, 0, 2, 1], 9899));
    peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).go();
    peer.expects_nothing();
    assert_eq!(peer.endpoint.association_count(), 0);
    peer.address = honest;
    peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).go();
    peer.expects("COOKIE ACK");
}

#[test]
fn a_cookie_echoed_from_another_udp_port_makes_no_second_association() {
    let mut peer = Peer::new(10, AssociationConfig::default());
    peer.sends().tag(0).chunk(|p, out| p.init().write(out)).go();
    let cookie = peer.takes_init_ack();
    peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).go();
    peer.expects("COOKIE ACK");
    // A translator on the way has forgotten the first port (RFC 6951 §5.4).
    peer.address.set_port(40_000);
    peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).go();
    peer.expects("COOKIE ACK");
    assert_eq!(peer.endpoint.association_count(), 1);
    peer.id = peer.app.events[0].id;
    peer.sends().data(0).go();
    peer.expects("SACK 0");
}

#[test]
fn data_may_come_with_the_cookie() {
    let mut peer = Peer::new(11, AssociationConfig::default());
    peer.sends().tag(0).chunk(|p, out| p.init().write(out)).go();
    let cookie = peer.takes_init_ack();
    peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).data(0).go();
    peer.expects("COOKIE ACK, SACK 0");
    assert_eq!(peer.app.contents(), [[0]]);
}

#[test]
fn an_init_ack_without_a_cookie_is_refused() {
    let mut peer = Peer::connecting(12, AssociationConfig::default());
    peer.takes_init();
    let init = peer.init();
    peer.sends()
        .chunk(|_, out| {
            InitAck {
                initiate_tag: init.initiate_tag,
                a_rwnd: init.a_rwnd,
                outbound_streams: 1,
                inbound_streams: 1,
                initial_tsn: init.initial_tsn,
                parameters: init.parameters(),
            }
            .write(out);
        })
        .go();
    peer.expects("ABORT");
    assert!(peer.app.saw(|e| matches!(e, Event::Closed(CloseReason::ProtocolViolation(_)))));
    assert_eq!(peer.endpoint.association_count(), 0);
}
