//! A peer that crashed and comes back from the same address and ports (RFC 9260 §5.2.2, §5.2.4 A).

use std::time::Duration;

use sctp::{AssociationConfig, CloseReason, Event, SendInfo};
use sctp_wire::chunk::CookieEcho;

use lab::script::Peer;
use lab::{A, B, Lab, PORT_A, PORT_B};

const SOON: Duration = Duration::from_secs(30);

#[test]
fn a_client_that_crashed_connects_again() {
    let mut lab = Lab::new(1);
    let (a, b) = lab.establish();
    lab.send(A, a, SendInfo::default(), &b"before"[..]);
    lab.send(B, b, SendInfo::default(), &b"lost"[..]);
    lab.run_for(Duration::from_secs(1));
    lab.reboot(A);
    lab.app(A).events.clear();
    let again = lab.connect(A, (PORT_A, PORT_B), AssociationConfig::default());
    lab.run_until("A is up again", SOON, |lab| lab.is_up(A));
    assert_eq!(lab.closed(B), Some(CloseReason::PeerRestarted));
    assert_eq!(lab.node(B).endpoint.association_count(), 1);
    let b = lab.accepted(B);
    lab.send(A, again, SendInfo::default(), &b"after"[..]);
    lab.send(B, b, SendInfo::default(), &b"answer"[..]);
    lab.run_until("both heard", SOON, |lab| {
        lab.node(B).app.messages.last().is_some_and(|m| m.bytes == b"after")
            && lab.node(A).app.messages.last().is_some_and(|m| m.bytes == b"answer")
    });
    assert_eq!(lab.app(B).messages.last().unwrap().info.ssn, 0, "numbers begin again");
}

#[test]
fn a_server_that_crashed_refuses_what_it_has_forgotten() {
    let mut lab = Lab::new(2);
    let (a, _) = lab.establish();
    lab.reboot(B);
    lab.app(B).events.clear();
    lab.send(A, a, SendInfo::default(), &b"still there?"[..]);
    lab.run_until("A was told", SOON, |lab| lab.closed(A).is_some());
    assert!(matches!(lab.closed(A), Some(CloseReason::PeerAborted(_))));
    assert_eq!(lab.node(B).endpoint.association_count(), 0);
}

#[test]
fn an_init_alone_ends_nothing() {
    let mut peer = Peer::established(3);
    let old_tag = peer.endpoint_tag;
    for _ in 0..100 {
        peer.tag += 1;
        peer.sends().tag(0).chunk(|p, out| p.init().write(out)).go();
        peer.takes_init_ack();
        assert_ne!(peer.endpoint_tag, old_tag, "a new tag for what may be a restart");
    }
    assert_eq!(peer.endpoint.association_count(), 1);
    peer.tag -= 100;
    peer.endpoint_tag = old_tag;
    peer.sends().data(0).go();
    assert_eq!(peer.app.contents(), [[0]]);
}

#[test]
fn a_restart_needs_a_cookie_that_knows_of_the_association() {
    // The cookie is from before the association: RFC 9260 §5.2.4 C, it came too late.
    let mut peer = Peer::new(4, AssociationConfig::default());
    let tag = peer.tag;
    peer.tag = tag + 1;
    peer.sends().tag(0).chunk(|p, out| p.init().write(out)).go();
    let early = peer.takes_init_ack();
    let early_tag = peer.endpoint_tag;
    peer.tag = tag;
    peer.sends().tag(0).chunk(|p, out| p.init().write(out)).go();
    let cookie = peer.takes_init_ack();
    peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).go();
    peer.expects("COOKIE ACK");
    peer.sends().tag(early_tag).chunk(|_, out| CookieEcho { cookie: &early }.write(out)).go();
    peer.expects_nothing();
    assert_eq!(peer.endpoint.association_count(), 1);
    assert!(!peer.app.saw(|e| matches!(e, Event::Closed(_))));
    assert_eq!(peer.endpoint.endpoint_statistics().cookie_errors, 1);
}
