//! SACK, HEARTBEAT, ABORT, SHUTDOWN, ERROR, COOKIE ECHO and their answers (RFC 9260 §3.3.4 to §3.3.13).

use std::net::SocketAddr;
use std::time::Duration;

use lab::packets::{data_of, header, kinds};
use sctp::{AssociationConfig, Event, SendInfo};
use sctp_wire::chunk::{
    Abort, CookieAck, CookieEcho, Data, Error, Heartbeat, HeartbeatAck, Sack, Shutdown, ShutdownAck,
    ShutdownComplete,
};

use crate::rules::rules;
use crate::section_3_1::a_reflected_shutdown_complete_copies_the_tag;
use crate::stage::Stage;
use crate::words::{
    INIT_FIXED_BYTES, causes, chunk, chunks, only_chunk, parameter, parameters, sends_chunk, sends_init,
    sends_init_ack, word,
};

rules! {
    in "3.3.4" {
        MUST "a SACK has the cumulative TSN, a_rwnd and the numbers of gap blocks and duplicates" => shown(a_sack_has_its_fixed_fields, Value, Length);
        SHOULD "gap blocks are isolated" => shown(gap_blocks_are_isolated, Value);
        MUST "gap blocks are offsets from the cumulative TSN" => shown(gap_blocks_count_from_the_cumulative_tsn, Value);
        RULE "duplicates are listed once for each time they came, and then forgotten" => shown(duplicates_are_listed_as_often_as_they_came, Value);
    }
    in "3.3.5" {
        SHOULD "send HEARTBEAT to probe whether an address can be reached" => shown(an_idle_association_sends_heartbeats, Silent, Kind);
        SHOULD "put the time and the destination address into the Heartbeat Info" => deviates(the_heartbeat_info_is_a_nonce, Length; "it is a random number of 64 bits, under which the sender keeps time and address");
        MUST "verify a path with a random nonce of 64 bits or more" => shown(a_path_is_verified_with_a_nonce, Length, Silent);
    }
    in "3.3.6" {
        MUST "answer HEARTBEAT with HEARTBEAT ACK" => shown(a_heartbeat_is_acknowledged, Silent, Kind);
        MUST "return the Heartbeat Info as it came" => shown_by(a_heartbeat_is_acknowledged, Value, Length);
    }
    in "3.3.7" {
        MUST_NOT "bundle DATA with ABORT" => shown(an_abort_carries_no_data, Bundled);
        MUST "place control chunks before the ABORT" => shown(an_abort_comes_last, Bundled);
        MUST "discard an ABORT without an association silently" => shown(an_abort_out_of_the_blue_is_not_answered, Talkative);
        MUST "discard an ABORT with a format error silently" => shown(a_malformed_abort_is_ignored, Talkative, Silent);
        MUST_NOT "answer an ABORT with ABORT" => shown(an_abort_is_not_answered, Talkative);
        MUST "set the T bit when the tag is reflected" => shown(an_abort_that_reflects_the_tag_says_so, Flags, Tag);
    }
    in "3.3.8" {
        MUST "close an association gracefully with SHUTDOWN" => shown(a_close_begins_with_shutdown, Kind, Silent);
        MUST_NOT "take the lack of gap blocks in a SHUTDOWN for reneging" => shown(a_shutdown_takes_nothing_back, Value);
    }
    in "3.3.9" {
        MUST "acknowledge SHUTDOWN with SHUTDOWN ACK" => shown(a_shutdown_is_acknowledged, Kind, Silent);
    }
    in "3.3.10.3" {
        SHOULD "set the Measure of Staleness to 0 if it is not to be told" => not_applicable("it is told");
        RULE "the Measure of Staleness is in microseconds" => shown(the_staleness_is_in_microseconds, Value);
    }
    in "3.3.11" {
        MUST "send COOKIE ECHO before any DATA" => shown(no_data_goes_before_the_cookie, Talkative, Kind);
        MUST "echo exactly the cookie of the INIT ACK" => shown(the_cookie_is_echoed_as_it_came, Value, Length);
        SHOULD "make the cookie as small as possible" => shown(a_cookie_is_small, Length);
    }
    in "3.3.12" {
        MUST "send COOKIE ACK before any DATA or SACK" => shown(the_cookie_ack_comes_first, Order, Kind);
    }
    in "3.3.13" {
        MUST "acknowledge SHUTDOWN ACK with SHUTDOWN COMPLETE" => shown(a_shutdown_ack_is_answered, Kind, Silent);
        MUST "set the T bit of a SHUTDOWN COMPLETE whose tag is reflected" => shown_by(a_reflected_shutdown_complete_copies_the_tag, Flags, Tag);
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

fn gap_blocks_are_isolated(stage: &Stage) {
    let mut peer = stage.established();
    for (number, expected) in [(2, "SACK -1 gap 3-3"), (4, "SACK -1 gap 3-3 gap 5-5"), (3, "SACK -1 gap 3-5")]
    {
        peer.sends().data(number).go();
        peer.expects(expected);
    }
}

/// The example of §3.3.4: TSNs up to 12, 14, 15 and 17 have arrived.
fn gap_blocks_count_from_the_cumulative_tsn(stage: &Stage) {
    let mut peer = stage.established();
    for number in [0, 1, 2, 4, 5, 7] {
        peer.sends().data(number).go();
    }
    for _ in 0..5 {
        peer.hears();
    }
    let sack = only_chunk(&peer.hears());
    assert_eq!(word(&sack.value, 0), peer.init().initial_tsn.0.wrapping_add(2));
    assert_eq!(sack.value[8..], [0, 2, 0, 0, 0, 2, 0, 3, 0, 5, 0, 5]);
}

fn duplicates_are_listed_as_often_as_they_came(stage: &Stage) {
    let mut peer = stage.established();
    peer.sends().data(0).go();
    peer.expects("SACK 0");
    peer.sends().data(0).data(0).go();
    peer.expects("SACK 0 dup 0 dup 0");
    peer.sends().data(1).data(0).go();
    peer.expects("SACK 1 dup 0");
}

fn an_idle_association_sends_heartbeats(stage: &Stage) {
    let mut peer = stage.connected();
    for _ in 0..3 {
        peer.waits(Duration::from_secs(40));
        let heartbeat = only_chunk(&peer.hears());
        assert_eq!(heartbeat.kind, Heartbeat::KIND);
        sends_chunk(&mut peer, HeartbeatAck::KIND, 0, &heartbeat.value);
    }
}

fn the_heartbeat_info_is_a_nonce(stage: &Stage) {
    let mut peer = stage.connected();
    peer.waits(Duration::from_secs(40));
    let heartbeat = only_chunk(&peer.hears());
    assert_eq!((heartbeat.kind, heartbeat.value.len()), (Heartbeat::KIND, 4 + 8));
}

pub(crate) fn a_path_is_verified_with_a_nonce(stage: &Stage) {
    let mut peer = stage.connecting();
    peer.takes_init();
    sends_init_ack(&mut peer, &parameter(5, &[10, 0, 1, 9]));
    peer.expects("COOKIE ECHO");
    sends_chunk(&mut peer, CookieAck::KIND, 0, &[]);
    peer.waits(Duration::from_secs(1));
    let (to, packet) = peer.hears_on();
    assert_eq!(to, SocketAddr::from(([10, 0, 1, 9], 9899)));
    let heartbeat = only_chunk(&packet);
    assert_eq!(heartbeat.kind, Heartbeat::KIND);
    let info = causes(&heartbeat).remove(0);
    assert!(info.0 == 1 && info.1.len() >= 8 && info.1.iter().any(|&byte| byte != 0), "{info:?}");
}

fn a_heartbeat_is_acknowledged(stage: &Stage) {
    let mut peer = stage.established();
    let info = parameter(1, b"where and when");
    sends_chunk(&mut peer, Heartbeat::KIND, 0, &info);
    let ack = only_chunk(&peer.hears());
    assert_eq!(ack.kind, HeartbeatAck::KIND);
    assert_eq!(causes(&ack), [(1, b"where and when".to_vec())]);
}

fn an_abort_carries_no_data(stage: &Stage) {
    let mut peer = stage.established();
    peer.app_sends(SendInfo::default(), vec![0; 20_000]);
    while peer.hears_maybe().is_some() {}
    peer.endpoint.abort(peer.now, peer.id, b"enough", &mut peer.app);
    peer.collect_output();
    let kinds = kinds(&peer.hears());
    assert_eq!(kinds, [Abort::KIND], "data waits, and is not sent");
}

fn an_abort_comes_last(stage: &Stage) {
    let mut peer = stage.established();
    // An unknown chunk that is reported, and one that ends the association.
    let tsn = peer.init().initial_tsn.0.to_be_bytes();
    peer.sends()
        .chunk(|_, out| out.extend(chunk(0xfe, 0, b"what")))
        .chunk(|_, out| out.extend(chunk(Data::KIND, 3, &[&tsn[..], &[0; 8]].concat())))
        .go();
    assert_eq!(kinds(&peer.hears()).last(), Some(&Abort::KIND));
}

fn an_abort_out_of_the_blue_is_not_answered(stage: &Stage) {
    let mut peer = stage.listening();
    peer.endpoint_tag = 17;
    sends_chunk(&mut peer, Abort::KIND, 0, &[]);
    peer.expects_nothing();
    sends_chunk(&mut peer, Abort::KIND, 1, &parameter(12, b"no format"));
    peer.expects_nothing();
}

fn a_malformed_abort_is_ignored(stage: &Stage) {
    let mut peer = stage.established();
    // The cause is longer than the chunk.
    sends_chunk(&mut peer, Abort::KIND, 0, &[0, 12, 0, 200]);
    peer.expects_nothing();
    peer.sends().data(0).go();
    peer.expects("SACK 0");
}

fn an_abort_is_not_answered(stage: &Stage) {
    let mut peer = stage.established();
    for _ in 0..2 {
        sends_chunk(&mut peer, Abort::KIND, 0, &parameter(12, b"good night"));
        peer.expects_nothing();
    }
    assert!(peer.app.saw(|event| matches!(event, Event::Closed(_))));
}

fn an_abort_that_reflects_the_tag_says_so(stage: &Stage) {
    let mut peer = stage.listening();
    peer.endpoint_tag = 0x0102_0304;
    peer.sends().data(0).go();
    let packet = peer.hears();
    let abort = only_chunk(&packet);
    assert_eq!((abort.kind, abort.flags), (Abort::KIND, 1));
    assert_eq!(header(&packet).verification_tag.0, 0x0102_0304);
}

fn a_close_begins_with_shutdown(stage: &Stage) {
    let mut peer = stage.established();
    peer.sends().data(0).go();
    peer.expects("SACK 0");
    peer.app_shuts_down();
    let shutdown = only_chunk(&peer.hears());
    assert_eq!((shutdown.kind, shutdown.value.len()), (Shutdown::KIND, 4));
    assert_eq!(word(&shutdown.value, 0), peer.init().initial_tsn.0);
}

fn a_shutdown_takes_nothing_back(stage: &Stage) {
    let mut peer = stage.established();
    for message in [&b"zero"[..], b"one"] {
        peer.app_sends(SendInfo::default(), message);
    }
    peer.expects("DATA 0");
    peer.expects("DATA 1");
    peer.sends().sack(-1, &[(2, 2)]).go();
    let last = peer.endpoint_tsn(-1).0.to_be_bytes();
    sends_chunk(&mut peer, Shutdown::KIND, 0, &last);
    // DATA 1 has arrived: only DATA 0 comes again, however long it takes.
    peer.waits(Duration::from_secs(20));
    let mut again = Vec::new();
    while let Some(packet) = peer.hears_maybe() {
        again.extend(data_of(&packet));
    }
    assert!(!again.is_empty() && again.iter().all(|data| data.tsn == peer.endpoint_tsn(0).0), "{again:?}");
}

fn a_shutdown_is_acknowledged(stage: &Stage) {
    let mut peer = stage.established();
    let last = peer.endpoint_tsn(-1).0.to_be_bytes();
    sends_chunk(&mut peer, Shutdown::KIND, 0, &last);
    assert_eq!(only_chunk(&peer.hears()).kind, ShutdownAck::KIND);
}

fn the_staleness_is_in_microseconds(stage: &Stage) {
    let life = Duration::from_secs(1);
    let mut peer =
        stage.listening_with(AssociationConfig { cookie_life: life, ..AssociationConfig::default() });
    sends_init(&mut peer, &[]);
    let cookie = peer.takes_init_ack();
    peer.waits(life + Duration::from_micros(2500));
    sends_chunk(&mut peer, CookieEcho::KIND, 0, &cookie);
    let error = only_chunk(&peer.hears());
    assert_eq!((error.kind, causes(&error)), (Error::KIND, vec![(3, 2500u32.to_be_bytes().to_vec())]));
}

fn no_data_goes_before_the_cookie(stage: &Stage) {
    let mut peer = stage.connecting();
    peer.app_sends(SendInfo::default(), &b"early"[..]);
    peer.takes_init();
    peer.expects_nothing();
    sends_init_ack(&mut peer, &[]);
    assert_eq!(kinds(&peer.hears())[0], CookieEcho::KIND);
}

fn the_cookie_is_echoed_as_it_came(stage: &Stage) {
    let mut peer = stage.connecting();
    peer.takes_init();
    peer.sends().init_ack(b"thirteen long").go();
    assert_eq!(chunks(&peer.hears())[0].value, b"thirteen long");
}

pub(crate) fn a_cookie_is_small(stage: &Stage) {
    let mut peer = stage.listening();
    sends_init(&mut peer, &[]);
    let init_ack = only_chunk(&peer.hears());
    // The cookie is the last parameter; a parameter behind it would be another one.
    let (_, cookie) = parameters(&init_ack.value[INIT_FIXED_BYTES..]).remove(0);
    assert_eq!(init_ack.value.len(), INIT_FIXED_BYTES + 4 + cookie.len());
    assert!(cookie.len() < 128, "{} bytes", cookie.len());
}

pub(crate) fn the_cookie_ack_comes_first(stage: &Stage) {
    let mut peer = stage.listening();
    sends_init(&mut peer, &[]);
    let cookie = peer.takes_init_ack();
    peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).data(0).go();
    peer.expects("COOKIE ACK, SACK 0");
}

fn a_shutdown_ack_is_answered(stage: &Stage) {
    let mut peer = stage.established();
    peer.app_shuts_down();
    peer.expects("SHUTDOWN -1");
    sends_chunk(&mut peer, ShutdownAck::KIND, 0, &[]);
    let complete = only_chunk(&peer.hears());
    assert_eq!((complete.kind, complete.flags), (ShutdownComplete::KIND, 0));
}
