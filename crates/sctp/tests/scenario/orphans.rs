//! Associations whose user has gone: T5 bounds them in each state, whatever RTO.Max the user has set.

use std::sync::Arc;
use std::time::Duration;

use sctp::config::RtoConfig;
use sctp::{AssociationConfig, CloseReason, Event, SendInfo};
use sctp_wire::cause::Causes;
use sctp_wire::chunk::{Abort, CookieAck, Shutdown};

use lab::packets::has;
use lab::script::{Peer, plain};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const RTO_MAX: Duration = Duration::from_secs(60);
const T5: Duration = Duration::from_secs(300);

/// Timers that wait for days.
fn patient() -> AssociationConfig {
    AssociationConfig { rto: RtoConfig { initial: DAY, min: DAY, max: DAY }, ..plain() }
}

/// A state in which the user goes.
#[derive(Clone, Copy, Debug)]
enum When {
    /// Messages are not acknowledged, and the user does not shut down.
    Sending,
    ShutdownPending,
    ShutdownSent,
    ShutdownReceived,
    ShutdownAckSent,
}

/// Returns a peer whose endpoint is in a state in which it waits for the peer.
fn waiting(when: When) -> Peer {
    let mut peer = Peer::established_with(31, patient());
    let shuts_down = |peer: &mut Peer| {
        peer.sends().chunk(|p, out| Shutdown { cum_tsn: p.endpoint_tsn(-1) }.write(out)).go();
    };
    if matches!(when, When::Sending | When::ShutdownPending | When::ShutdownReceived) {
        peer.app_sends(SendInfo::default(), vec![0; 100]);
        peer.app_sends(SendInfo::default(), vec![1; 100]);
    }
    match when {
        When::Sending => {}
        When::ShutdownPending | When::ShutdownSent => peer.app_shuts_down(),
        When::ShutdownReceived | When::ShutdownAckSent => shuts_down(&mut peer),
    }
    while peer.hears_maybe().is_some() {}
    peer
}

/// The user of the endpoint goes. Returns what lives as long as the association.
fn user_goes(peer: &mut Peer) -> Arc<()> {
    let until_end = Arc::new(());
    let kept = Box::new(Arc::clone(&until_end));
    peer.endpoint.orphan(peer.now, peer.id, RTO_MAX, kept, &mut peer.app);
    peer.collect_output();
    until_end
}

fn closed(peer: &Peer) -> bool {
    peer.app.saw(|event| matches!(event, Event::Closed(_)))
}

#[test]
fn t5_ends_an_association_without_a_user_in_each_state() {
    for when in [
        When::Sending,
        When::ShutdownPending,
        When::ShutdownSent,
        When::ShutdownReceived,
        When::ShutdownAckSent,
    ] {
        let mut with_user = waiting(when);
        with_user.waits(2 * T5);
        assert!(!closed(&with_user), "{when:?}: its user sets the limits");

        let mut peer = waiting(when);
        let until_end = user_goes(&mut peer);
        peer.waits(T5 - Duration::from_millis(1));
        assert!(!closed(&peer), "{when:?}");
        assert_eq!(Arc::strong_count(&until_end), 2, "{when:?}");
        peer.waits(Duration::from_millis(1));
        assert!(peer.app.saw(|e| *e == Event::Closed(CloseReason::Timeout)), "{when:?}");
        assert_eq!(Arc::strong_count(&until_end), 1, "{when:?}");
        assert!(peer.hears_maybe().is_some_and(|packet| has(&packet, Abort::KIND)), "{when:?}");
    }
}

#[test]
fn a_peer_that_acknowledges_for_good_has_the_time_again() {
    for when in [When::Sending, When::ShutdownPending, When::ShutdownReceived] {
        let mut peer = waiting(when);
        let _until_end = user_goes(&mut peer);
        peer.waits(T5 / 2);
        peer.sends().sack(0, &[]).go();
        peer.waits(T5 - Duration::from_millis(1));
        assert!(!closed(&peer), "{when:?}");
        // Neither an acknowledgement that is no news, nor one of a gap.
        peer.sends().sack(0, &[]).go();
        peer.waits(Duration::from_millis(1));
        assert!(closed(&peer), "{when:?}");
    }
}

#[test]
fn a_shorter_rto_max_of_the_user_stays() {
    let config = AssociationConfig {
        rto: RtoConfig { initial: RTO_MAX / 6, min: RTO_MAX / 6, max: RTO_MAX / 6 },
        ..plain()
    };
    let mut peer = Peer::established_with(32, config);
    peer.app_shuts_down();
    let _until_end = user_goes(&mut peer);
    peer.waits(T5 / 6 - Duration::from_millis(1));
    assert!(!closed(&peer));
    peer.waits(Duration::from_millis(1));
    assert!(closed(&peer));
}

#[test]
fn what_lives_until_the_end_goes_with_each_end() {
    let mut peer = waiting(When::ShutdownSent);
    let until_end = user_goes(&mut peer);
    peer.sends().chunk(|_, out| sctp_wire::chunk::ShutdownAck.write(out)).go();
    assert!(peer.app.saw(|e| *e == Event::Closed(CloseReason::Shutdown)));
    assert_eq!(Arc::strong_count(&until_end), 1, "an end in order");
    let until_end = user_goes(&mut peer);
    assert_eq!(Arc::strong_count(&until_end), 1, "it has ended before");

    let mut peer = waiting(When::Sending);
    let until_end = user_goes(&mut peer);
    peer.sends().chunk(|_, out| Abort { reflected_tag: false, causes: Causes::new(&[]) }.write(out)).go();
    assert_eq!(Arc::strong_count(&until_end), 1, "an abort of the peer");
}

#[test]
fn an_association_that_is_being_set_up_without_data_is_aborted_with_its_user() {
    for sends in [false, true] {
        let mut peer = Peer::connecting(33, patient());
        peer.takes_init();
        peer.sends().init_ack(b"cookie").go();
        peer.expects("COOKIE ECHO");
        if sends {
            peer.app_sends(SendInfo::default(), vec![0; 100]);
            while peer.hears_maybe().is_some() {}
        }
        peer.endpoint.close(peer.now, peer.id, &mut peer.app);
        peer.collect_output();
        assert_eq!(closed(&peer), !sends);
        assert_eq!(peer.hears_maybe().is_some_and(|packet| has(&packet, Abort::KIND)), !sends);
        if sends {
            // The peer is set up, and takes the message before the shutdown.
            peer.sends().chunk(|_, out| CookieAck.write(out)).go();
            peer.sends().sack(0, &[]).go();
            let packets: Vec<_> = std::iter::from_fn(|| peer.hears_maybe()).collect();
            assert!(packets.iter().any(|packet| has(packet, Shutdown::KIND)));
        }
    }
}
