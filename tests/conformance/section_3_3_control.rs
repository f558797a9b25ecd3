//! SACK, HEARTBEAT, ABORT, SHUTDOWN, ERROR, COOKIE ECHO and their answers (RFC 9260 §3.3.4 to §3.3.13).

use std::time::Duration;

use sctp::AssociationConfig;
use sctp_wire::chunk::{CookieEcho, Heartbeat, Sack};

use crate::rules::rules;
use crate::stage::Stage;
use crate::words::{only_chunk, sends_init, word};

rules! {
    in "3.3.4" {
        MUST "a SACK has the cumulative TSN, a_rwnd and the numbers of gap blocks and duplicates" => shown(a_sack_has_its_fixed_fields, Value, Length);
    }
    in "3.3.5" {
        SHOULD "put the time and the destination address into the Heartbeat Info" => deviates(the_heartbeat_info_is_a_nonce, Length; "it is a random number of 64 bits, under which the sender keeps time and address");
    }
    in "3.3.12" {
        MUST "send COOKIE ACK before any DATA or SACK" => shown(the_cookie_ack_comes_first, Order, Kind);
    }
    in "5.2.6" {
        SHOULD "extend the cookie life by the measured RTT and at most 1 s" => open("the connect fails with a stale cookie");
    }
}

fn a_sack_has_its_fixed_fields(stage: &Stage) {
    let config = AssociationConfig { receive_buffer_bytes: 50_000, ..AssociationConfig::default() };
    let mut peer = stage.established_with(config);
    peer.sends().data(0).go();
    let sack = only_chunk(&peer.hears());
    assert_eq!((sack.kind, sack.value.len()), (Sack::KIND, 12));
    assert_eq!(word(&sack.value, 0), peer.init().initial_tsn.0);
    assert!((49_000..=50_000).contains(&word(&sack.value, 4)), "the window");
    assert_eq!(word(&sack.value, 8), 0, "no gaps, no duplicates");
}

fn the_heartbeat_info_is_a_nonce(stage: &Stage) {
    let mut peer = stage.connected();
    peer.waits(Duration::from_secs(40));
    let heartbeat = only_chunk(&peer.hears());
    assert_eq!((heartbeat.kind, heartbeat.value.len()), (Heartbeat::KIND, 4 + 8));
}

fn the_cookie_ack_comes_first(stage: &Stage) {
    let mut peer = stage.listening();
    sends_init(&mut peer, &[]);
    let cookie = peer.takes_init_ack();
    peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).data(0).go();
    peer.expects("COOKIE ACK, SACK 0");
}
