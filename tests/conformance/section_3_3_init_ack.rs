//! INIT ACK (RFC 9260 §3.3.3).

use sctp_wire::chunk::{Abort, Init};

use crate::rules::rules;
use crate::stage::Stage;
use crate::words::{only_chunk, sends_init_ack_like};

rules! {
    in "3.3.3" {
        SHOULD "answer an INIT ACK with an a_rwnd below 1500 with ABORT" => failing(an_init_ack_with_a_small_window_is_answered_with_abort; "it is dropped without a word");
    }
}

fn an_init_ack_with_a_small_window_is_answered_with_abort(stage: &Stage) {
    let mut peer = stage.connecting();
    peer.takes_init();
    sends_init_ack_like(&mut peer, &[], |init| Init { a_rwnd: 1499, ..init });
    assert_eq!(only_chunk(&peer.hears()).kind, Abort::KIND);
}
