//! The states in which data is sent and received, and the form of data (RFC 9260 §6).

use lab::packets::{data_of, kinds};
use sctp::SendInfo;
use sctp_wire::chunk::{CookieEcho, DataFlags};

use crate::peers::{
    Chunks, FIRST, LAST, MIDDLE, SECOND, ended, established, multihomed, narrows, outstanding, quiet,
    settled, statistics, writes,
};
use crate::rules::rules;
use crate::stage::Stage;

rules! {
    in "6" {
        MUST "send DATA in ESTABLISHED, SHUTDOWN-PENDING and SHUTDOWN-RECEIVED only, or with COOKIE ECHO" => shown(data_leaves_only_while_the_association_is_up, Bundled, Silent, Talkative);
        MUST "take DATA in ESTABLISHED, SHUTDOWN-PENDING and SHUTDOWN-SENT" => shown(data_is_taken_until_the_peer_has_shut_down, Deaf, Silent);
        SHOULD "treat DATA in CLOSED as section 8.4 says" => shown(data_and_sacks_for_no_association_are_out_of_the_blue, Silent, Kind);
        SHOULD "discard DATA in any other state" => shown(data_in_another_state_is_discarded, Talkative);
        MUST "process SACK in ESTABLISHED, SHUTDOWN-PENDING and SHUTDOWN-RECEIVED" => shown(a_sack_counts_while_data_may_be_outstanding, Deaf);
        SHOULD "treat SACK in CLOSED as section 8.4 says" => shown_by(data_and_sacks_for_no_association_are_out_of_the_blue, Silent, Kind);
        SHOULD "discard SACK in any other state" => shown(a_sack_in_another_state_is_discarded, Silent);
        MUST "fragment large messages" => shown(a_large_message_becomes_several_chunks, Silent, Length);
        SHOULD "no DATA chunk is larger than the Association Maximum DATA Chunk Size" => shown(chunks_fit_the_narrowest_path, Length, Silent);
        MUST "control chunks come before DATA" => shown(control_chunks_come_first, Order);
        MUST "take in bundled and fragmented data" => shown(bundled_and_fragmented_data_is_taken_apart_and_put_together, Deaf);
    }
}

fn data_leaves_only_while_the_association_is_up(stage: &Stage) {
    let mut peer = stage.connecting_with(quiet());
    writes(&mut peer, 100);
    peer.takes_init();
    peer.expects_nothing();
    peer.sends().init_ack(b"cookie").go();
    // DATA may ride with the COOKIE ECHO, and only there.
    let echo = peer.hears();
    assert_eq!(kinds(&echo)[0], CookieEcho::KIND);
    peer.expects_nothing();
    writes(&mut peer, 100);
    peer.expects_nothing();
    peer.sends().cookie_ack().go();
    let rest: usize = std::iter::from_fn(|| peer.hears_maybe()).map(|p| data_of(&p).len()).sum();
    assert_eq!(rest, 2 - data_of(&echo).len());
    // SHUTDOWN-PENDING.
    writes(&mut peer, 100);
    peer.app_shuts_down();
    peer.expects("DATA 2");
    peer.sends().sack(2, &[]).go();
    peer.expects("SHUTDOWN -1");
    // SHUTDOWN-RECEIVED: the data that the window held back.
    let mut peer = established(stage);
    peer.sends().sack_with(-1, 100, &[]).go();
    writes(&mut peer, 100);
    writes(&mut peer, 100);
    peer.expects("DATA 0");
    peer.sends().shutdown(-1).go();
    peer.sends().sack(0, &[]).go();
    peer.expects("DATA 1");
}

fn data_is_taken_until_the_peer_has_shut_down(stage: &Stage) {
    let mut peer = outstanding(stage, 1);
    peer.sends().data(0).go();
    peer.expects("SACK 0");
    peer.app_shuts_down();
    peer.sends().data(1).go();
    peer.expects("SACK 1");
    peer.sends().sack(0, &[]).go();
    peer.expects("SHUTDOWN 1");
    peer.sends().data(2).go();
    peer.expects("SHUTDOWN 2, SACK 2");
    assert_eq!(peer.app.contents(), [[0], [1], [2]]);
}

fn data_and_sacks_for_no_association_are_out_of_the_blue(stage: &Stage) {
    let mut peer = stage.listening_with(quiet());
    peer.sends().tag(77).data(0).go();
    peer.expects("ABORT T");
    peer.sends().tag(77).sack(0, &[]).go();
    peer.expects("ABORT T");
    assert!(peer.app.messages.is_empty());
}

fn data_in_another_state_is_discarded(stage: &Stage) {
    // COOKIE-WAIT and COOKIE-ECHOED.
    let mut peer = stage.connecting_with(quiet());
    peer.takes_init();
    peer.sends().data(0).go();
    peer.sends().init_ack(b"cookie").go();
    peer.expects("COOKIE ECHO");
    peer.sends().data(0).go();
    peer.expects_nothing();
    peer.sends().cookie_ack().go();
    // SHUTDOWN-RECEIVED and SHUTDOWN-ACK-SENT.
    writes(&mut peer, 100);
    peer.expects("DATA 0");
    peer.sends().shutdown(-1).go();
    peer.sends().data(0).go();
    peer.expects_nothing();
    peer.sends().sack(0, &[]).go();
    peer.expects("SHUTDOWN ACK");
    peer.sends().data(0).go();
    peer.expects_nothing();
    assert!(peer.app.messages.is_empty());
}

fn a_sack_counts_while_data_may_be_outstanding(stage: &Stage) {
    let mut peer = outstanding(stage, 3);
    peer.sends().sack(0, &[]).go();
    assert_eq!(statistics(&peer).outstanding_bytes, 200);
    peer.app_shuts_down();
    peer.sends().sack(1, &[]).go();
    assert_eq!(statistics(&peer).outstanding_bytes, 100);
    peer.sends().shutdown(1).go();
    peer.sends().sack(2, &[]).go();
    peer.expects("SHUTDOWN ACK");
}

fn a_sack_in_another_state_is_discarded(stage: &Stage) {
    let mut peer = stage.connecting_with(quiet());
    peer.takes_init();
    peer.sends().sack(5, &[]).go();
    peer.sends().init_ack(b"cookie").go();
    peer.expects("COOKIE ECHO");
    peer.sends().sack(5, &[]).go();
    peer.expects_nothing();
    peer.sends().cookie_ack().go();
    peer.app_shuts_down();
    peer.expects("SHUTDOWN -1");
    // The SACK covers data that was never sent, which has no effect in this state.
    peer.sends().sack(5, &[]).go();
    peer.expects_nothing();
    peer.sends().shutdown(-1).go();
    peer.expects("SHUTDOWN ACK");
    peer.sends().sack(5, &[]).go();
    peer.expects_nothing();
    assert_eq!(ended(&peer), None);
}

fn a_large_message_becomes_several_chunks(stage: &Stage) {
    let mut peer = established(stage);
    writes(&mut peer, 4000);
    let mut chunks = Vec::new();
    while let Some(packet) = peer.hears_maybe() {
        chunks.extend(data_of(&packet));
    }
    assert_eq!(chunks.len(), 3);
    assert_eq!(chunks.iter().map(|c| c.payload.len()).sum::<usize>(), 4000);
}

pub(crate) fn chunks_fit_the_narrowest_path(stage: &Stage) {
    let mut peer = multihomed(stage, quiet(), &[SECOND]);
    narrows(&mut peer, SECOND, 1000);
    writes(&mut peer, 4000);
    let mut left = 4000;
    while let Some(packet) = peer.hears_maybe() {
        for chunk in data_of(&packet) {
            assert!(chunk.payload.len() + 16 + 12 <= 1000);
            left -= chunk.payload.len();
        }
    }
    assert_eq!(left, 0);
}

fn control_chunks_come_first(stage: &Stage) {
    let mut peer = settled(stage);
    peer.endpoint
        .send(peer.now, peer.id, &SendInfo::default(), 100, [vec![0; 100].into()])
        .expect("it is taken");
    peer.sends().heartbeat(b"?").data(8).go();
    peer.expects("HEARTBEAT ACK, SACK 8, DATA 0");
}

fn bundled_and_fragmented_data_is_taken_apart_and_put_together(stage: &Stage) {
    let mut peer = established(stage);
    let whole = DataFlags::WHOLE;
    peer.sends()
        .data_with(whole, 0, 0, 0, b"first")
        .data_with(FIRST, 1, 0, 1, b"sec")
        .data_with(MIDDLE, 2, 0, 1, b"o")
        .data_with(LAST, 3, 0, 1, b"nd")
        .data_with(FIRST, 4, 3, 0, b"on ano")
        .go();
    peer.expects("SACK 4");
    peer.sends().data_with(LAST, 5, 3, 0, b"ther").data_with(whole, 6, 0, 2, b"third").go();
    peer.expects("SACK 6");
    assert_eq!(peer.app.contents(), [&b"first"[..], b"second", b"on another", b"third"]);
}
