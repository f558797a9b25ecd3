//! DATA that leaves before the end of the handshake (RFC 9260 §5.1 C and D, §6).

use std::time::Duration;

use sctp::{AssociationConfig, SendInfo};
use sctp_wire::chunk::{CookieAck, CookieEcho, Data};

use lab::packets::{has, kinds};
use lab::script::Peer;
use lab::{A, B, Fate, PORT_A, PORT_B, TwoHosts};

const SOON: Duration = Duration::from_secs(300);

/// Returns an endpoint whose user sends at once, and whose COOKIE ECHO is next.
fn eager(seed: u8, messages: usize) -> Peer {
    let mut peer = Peer::connecting(seed, AssociationConfig::default());
    for n in 0..messages {
        peer.app_sends(SendInfo::default(), vec![n as u8; 1000]);
    }
    peer.takes_init();
    peer.expects_nothing();
    peer.sends().init_ack(b"cookie").go();
    peer
}

#[test]
fn waiting_data_follows_the_cookie_in_one_packet() {
    let mut peer = eager(1, 3);
    peer.expects("COOKIE ECHO, DATA 0, DATA 1");
    // Until the peer has answered, the endpoint sends nothing else.
    peer.app_sends(SendInfo::default(), vec![9; 10]);
    peer.expects_nothing();
    peer.sends().chunk(|_, out| CookieAck.write(out)).sack(0, &[]).go();
    peer.expects("DATA 2, DATA 3");
}

#[test]
fn data_rides_behind_the_answer_to_the_cookie_too() {
    let mut peer = eager(2, 1);
    peer.expects("COOKIE ECHO, DATA 0");
    peer.sends().chunk(|_, out| CookieAck.write(out)).sack(0, &[]).data(0).data(1).go();
    peer.expects("SACK 1");
    assert_eq!(peer.app.contents(), [[0], [1]]);
}

#[test]
fn a_lost_cookie_takes_its_data_along_the_next_time() {
    let mut peer = eager(3, 1);
    peer.expects("COOKIE ECHO, DATA 0");
    let mut carried = false;
    for seconds in [1, 2, 4, 8] {
        peer.waits(Duration::from_secs(seconds));
        while let Some(packet) = peer.hears_maybe() {
            assert_eq!(kinds(&packet)[0], CookieEcho::KIND, "nothing is sent without the cookie");
            carried |= has(&packet, Data::KIND);
        }
    }
    assert!(carried, "the data came again with a cookie");
    peer.sends().chunk(|_, out| CookieAck.write(out)).sack(0, &[]).go();
    assert_eq!(peer.endpoint.statistics(peer.id).unwrap().send_buffered_bytes, 0);
}

#[test]
fn a_question_is_answered_after_two_round_trips() {
    let mut hosts = TwoHosts::new(4);
    hosts.listen(AssociationConfig::default());
    let a = hosts.connect(A, (PORT_A, PORT_B), AssociationConfig::default());
    hosts.send(A, a, SendInfo::default(), &b"question"[..]);
    hosts.run_until("B heard", SOON, |hosts| !hosts.node(B).app.messages.is_empty());
    let b = hosts.accepted(B);
    hosts.send(B, b, SendInfo::default(), &b"answer"[..]);
    hosts.run_until("A heard", SOON, |hosts| !hosts.node(A).app.messages.is_empty());
    // A line of 10 ms each way: INIT, INIT ACK, COOKIE ECHO with the question, COOKIE ACK with the answer.
    assert!(hosts.now() < sctp::Time::from_nanos(41_000_000), "{:?}", hosts.now());
}

#[test]
fn whatever_is_lost_of_it_everything_arrives_once() {
    for lost in 0..64u32 {
        let mut hosts = TwoHosts::new(100 + u64::from(lost));
        for node in [A, B] {
            let mut number = 0;
            hosts.tap(node, move |_| {
                number += 1;
                let mask = if node == A { lost % 8 } else { lost / 8 };
                if number <= 3 && mask >> (number - 1) & 1 == 1 { Fate::Drop } else { Fate::Pass }
            });
        }
        hosts.listen(AssociationConfig::default());
        let a = hosts.connect(A, (PORT_A, PORT_B), AssociationConfig::default());
        let messages = (0..20u8).map(|n| (SendInfo::default(), vec![n; 700].into()));
        hosts.send_all(A, a, messages);
        hosts.run_until("all arrived", SOON, |hosts| hosts.node(B).app.messages.len() == 20);
        hosts.run_for(Duration::from_secs(10));
        assert!((0..20).zip(hosts.app(B).contents()).all(|(n, m)| m == vec![n; 700]), "{}", hosts.log());
        assert_eq!(hosts.node(B).app.messages.len(), 20);
        assert_eq!(hosts.statistics(A, a).outstanding_bytes, 0);
    }
}
