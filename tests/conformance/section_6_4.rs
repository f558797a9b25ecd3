//! Peers with several addresses (RFC 9260 §6.4).

use std::time::Duration;

use lab::packets::{data_of, kinds};
use sctp::AssociationConfig;
use sctp_wire::chunk::{CookieAck, HeartbeatAck, InitAck};

use crate::peers::{
    Chunks, SECOND, from, ignores, multihomed, multihomed_with_cookie, path, quiet, silent_until_timeouts,
    writes,
};
use crate::rules::rules;
use crate::stage::Stage;

rules! {
    in "6.4" {
        SHOULD "send to the primary path" => shown(data_goes_to_the_primary_path, Elsewhere);
        SHOULD "send the answer to a control chunk to the address that it came from" => shown(answers_go_where_the_question_came_from, Elsewhere);
        RULE "INIT ACK and HEARTBEAT ACK go to the address that the question came from" => shown(init_ack_and_heartbeat_ack_go_where_the_question_came_from, Elsewhere);
        SHOULD_NOT "vary the address of SACKs while DATA comes from one address" => shown(sacks_go_where_the_data_comes_from, Elsewhere);
        SHOULD "send a chunk that timed out to another active address" => shown(a_chunk_that_timed_out_goes_to_another_address, Elsewhere, Silent);
        SHOULD "send a fast retransmission to the same address" => shown(a_fast_retransmission_goes_to_the_same_address, Elsewhere);
    }
    in "6.4.1" {
        SHOULD "send to another active address while the primary is inactive" => shown(another_address_takes_over_from_an_inactive_primary, Elsewhere, Silent);
        SHOULD "retransmit by the most divergent pair of addresses" => not_applicable("the network layer chooses the source address, so there is one pair for each address of the peer");
    }
}

fn data_goes_to_the_primary_path(stage: &Stage) {
    let mut peer = multihomed(stage, quiet(), &[SECOND]);
    for number in 0..6 {
        writes(&mut peer, 100);
        assert_eq!(peer.hears_on().0, peer.address);
        // From whatever address the acknowledgement comes.
        let address = [peer.address.ip(), SECOND][number % 2];
        from(&mut peer, address, |peer| peer.sends().sack(number as i32, &[]).go());
    }
}

fn answers_go_where_the_question_came_from(stage: &Stage) {
    let (mut peer, cookie) = multihomed_with_cookie(stage, quiet(), &[SECOND]);
    for address in [SECOND, peer.address.ip()] {
        from(&mut peer, address, |peer| peer.sends().cookie_echo(&cookie).go());
        let (to, packet) = peer.hears_on();
        assert_eq!((to.ip(), kinds(&packet)[0]), (address, CookieAck::KIND));
    }
}

fn init_ack_and_heartbeat_ack_go_where_the_question_came_from(stage: &Stage) {
    let mut peer = multihomed(stage, quiet(), &[SECOND]);
    for address in [SECOND, peer.address.ip()] {
        from(&mut peer, address, |peer| peer.sends().heartbeat(b"?").go());
        let (to, packet) = peer.hears_on();
        assert_eq!((to.ip(), kinds(&packet)[0]), (address, HeartbeatAck::KIND));
        from(&mut peer, address, |peer| peer.sends().tag(0).init().go());
        let (to, packet) = peer.hears_on();
        assert_eq!((to.ip(), kinds(&packet)[0]), (address, InitAck::KIND));
    }
}

fn sacks_go_where_the_data_comes_from(stage: &Stage) {
    let mut peer = multihomed(stage, quiet(), &[SECOND]);
    for number in 0..20 {
        from(&mut peer, SECOND, |peer| peer.sends().data(number).go());
        peer.waits(Duration::from_millis(200));
        while let Some((to, _)) = peer.hears_on_maybe() {
            assert_eq!(to.ip(), SECOND);
        }
    }
}

fn a_chunk_that_timed_out_goes_to_another_address(stage: &Stage) {
    let mut peer = multihomed(stage, quiet(), &[SECOND]);
    writes(&mut peer, 100);
    assert_eq!(peer.hears_on().0, peer.address);
    // Data changes paths back and forth, as long as both are active.
    for (timeouts, address) in [(1, SECOND), (2, peer.address.ip()), (3, SECOND)] {
        assert!(silent_until_timeouts(&mut peer, timeouts));
        let (to, packet) = peer.hears_on();
        assert_eq!((to.ip(), data_of(&packet).len()), (address, 1));
    }
    from(&mut peer, SECOND, |peer| peer.sends().sack(0, &[]).go());
    // New data goes to the primary path.
    writes(&mut peer, 100);
    assert_eq!(peer.hears_on().0, peer.address);
}

fn a_fast_retransmission_goes_to_the_same_address(stage: &Stage) {
    let mut peer = multihomed(stage, quiet(), &[SECOND]);
    for _ in 0..5 {
        writes(&mut peer, 100);
        assert_eq!(peer.hears_on().0, peer.address);
    }
    peer.waits(Duration::from_millis(20));
    from(&mut peer, SECOND, |peer| peer.sends().sack(-1, &[(2, 5)]).go());
    let (to, packet) = peer.hears_on();
    assert_eq!((to, data_of(&packet)[0].tsn), (peer.address, peer.endpoint_tsn(0).0));
}

fn another_address_takes_over_from_an_inactive_primary(stage: &Stage) {
    let config = AssociationConfig { path_retries_max: 1, ..quiet() };
    let mut peer = multihomed(stage, config, &[SECOND]);
    let home = peer.address.ip();
    writes(&mut peer, 100);
    for timeouts in 1..10 {
        if !path(&peer, home).active {
            break;
        }
        assert!(silent_until_timeouts(&mut peer, timeouts));
    }
    let (to, packet) = peer.hears_on();
    assert_eq!((to.ip(), data_of(&packet).len()), (SECOND, 1));
    from(&mut peer, SECOND, |peer| peer.sends().sack(0, &[]).go());
    ignores(&mut peer);
    writes(&mut peer, 100);
    assert_eq!(peer.hears_on().0.ip(), SECOND);
}
