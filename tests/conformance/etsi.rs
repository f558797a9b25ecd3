//! The test purposes of ETSI TS 102 369 as a checklist, and scripts for those that no rule of RFC 9260 requires.

use std::time::Duration;

use lab::packets::kinds;
use lab::script::Peer;
use sctp::{Event, SendInfo};
use sctp_wire::chunk::{CookieAck, CookieEcho, Init, InitAck, ShutdownAck, ShutdownComplete};

use crate::rules::rules;
use crate::stage::Stage;
use crate::words::{
    chunk, only_chunk, parameter, parameter_kinds, sends_chunk, sends_init, sends_init_ack, sends_shutdown,
};

rules! {
    in "3.3.2" {
        RULE "every optional parameter of an INIT is understood" => shown(optional_parameters_of_an_init_are_understood, Value, Silent);
        RULE "an INIT that is too short is not answered" => shown(a_short_init_is_not_answered, Talkative);
    }
    in "3.3.3" {
        RULE "addresses in an INIT ACK are understood" => shown(addresses_of_an_init_ack_are_understood, Bundled, Silent);
        RULE "an INIT ACK that is too short changes nothing" => shown(a_short_init_ack_changes_nothing, Talkative, Silent);
    }
    in "5.2.4" {
        RULE "a forged cookie means nothing to an association" => shown(a_forged_cookie_means_nothing_to_an_association, Talkative, Silent);
    }
    in "6.10" {
        RULE "ERROR may come with COOKIE ECHO" => shown(an_error_may_come_with_the_cookie, Silent, Kind);
        RULE "DATA may come with COOKIE ACK" => shown(data_may_come_with_the_cookie_ack, Silent, Deaf);
        RULE "DATA may come with SACK" => shown(data_may_come_with_a_sack, Silent, Value);
        RULE "SACK may come with SHUTDOWN" => shown(a_sack_may_come_with_shutdown, Silent, Kind);
        RULE "DATA with SHUTDOWN ACK does not hold up the end" => shown(data_with_shutdown_ack_holds_up_nothing, Silent, Kind);
    }
    in "8.5.1" {
        RULE "E: SHUTDOWN ACK with another tag means nothing once the association is up" => shown(a_shutdown_ack_with_another_tag_means_nothing, Talkative, Silent);
    }
    in "9.2" {
        RULE "SHUTDOWN ACK means nothing while the association is up" => shown(a_shutdown_ack_means_nothing_to_an_open_association, Talkative, Silent);
    }
}

fn optional_parameters_of_an_init_are_understood(stage: &Stage) {
    let mut peer = stage.listening();
    let ipv6 = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
    let optional = [
        parameter(9, &12_345_u32.to_be_bytes()),
        parameter(12, &[0, 5, 0, 6]),
        parameter(6, &ipv6),
        parameter(5, &[10, 0, 1, 9]),
    ];
    sends_init(&mut peer, &optional.concat());
    let init_ack = only_chunk(&peer.hears());
    assert_eq!((init_ack.kind, parameter_kinds(&init_ack)), (InitAck::KIND, vec![7]), "nothing unrecognized");
}

fn a_short_init_is_not_answered(stage: &Stage) {
    let mut peer = stage.listening();
    peer.sends().tag(0).chunk(|_, out| out.extend(chunk(Init::KIND, 0, &[1, 2, 3, 4]))).go();
    peer.expects_nothing();
    sends_init(&mut peer, &[]);
    peer.expects("INIT ACK");
}

fn addresses_of_an_init_ack_are_understood(stage: &Stage) {
    let mut peer = stage.connecting();
    peer.takes_init();
    sends_init_ack(&mut peer, &[parameter(6, &[0xfd; 16]), parameter(5, &[10, 0, 1, 9])].concat());
    assert_eq!(kinds(&peer.hears()), [CookieEcho::KIND], "no report");
    assert_eq!(peer.endpoint.peer_addresses(peer.id).expect("it is there").0.len(), 3);
}

fn a_short_init_ack_changes_nothing(stage: &Stage) {
    let mut peer = stage.connecting();
    peer.takes_init();
    sends_chunk(&mut peer, InitAck::KIND, 0, &[1, 2, 3, 4]);
    peer.expects_nothing();
    peer.waits(Duration::from_secs(1));
    peer.expects("INIT");
    sends_init_ack(&mut peer, &[]);
    peer.expects("COOKIE ECHO");
}

fn a_forged_cookie_means_nothing_to_an_association(stage: &Stage) {
    let mut peer = stage.established();
    sends_chunk(&mut peer, CookieEcho::KIND, 0, &[7; 80]);
    peer.expects_nothing();
    peer.sends().data(0).go();
    peer.expects("SACK 0");
}

/// Returns an endpoint that awaits the COOKIE ACK.
fn cookie_echoed(stage: &Stage) -> Peer {
    let mut peer = stage.connecting();
    peer.takes_init();
    sends_init_ack(&mut peer, &[]);
    peer.expects("COOKIE ECHO");
    peer
}

fn an_error_may_come_with_the_cookie(stage: &Stage) {
    let mut peer = stage.listening();
    sends_init(&mut peer, &[]);
    let cookie = peer.takes_init_ack();
    let unrecognized = parameter(8, &parameter(0xc000, &[]));
    peer.sends()
        .chunk(|_, out| CookieEcho { cookie: &cookie }.write(out))
        .chunk(|_, out| out.extend(chunk(9, 0, &unrecognized)))
        .go();
    peer.expects("COOKIE ACK");
    assert_eq!(peer.endpoint.association_count(), 1);
}

fn data_may_come_with_the_cookie_ack(stage: &Stage) {
    let mut peer = cookie_echoed(stage);
    peer.sends().chunk(|_, out| CookieAck.write(out)).data(0).go();
    peer.expects("SACK 0");
    assert!(peer.app.saw(|event| matches!(event, Event::Connected { .. })));
    assert_eq!(peer.app.contents(), [[0]]);
}

fn data_may_come_with_a_sack(stage: &Stage) {
    let mut peer = stage.established();
    peer.app_sends(SendInfo::default(), &b"question"[..]);
    peer.expects("DATA 0");
    peer.sends().sack(0, &[]).data(0).go();
    peer.expects("SACK 0");
    peer.waits(Duration::from_secs(5));
    peer.expects_nothing();
}

fn a_sack_may_come_with_shutdown(stage: &Stage) {
    let mut peer = stage.established();
    peer.app_sends(SendInfo::default(), &b"the last"[..]);
    peer.expects("DATA 0");
    let cum_tsn = peer.endpoint_tsn(0).0.to_be_bytes();
    peer.sends().sack(0, &[]).chunk(|_, out| out.extend(chunk(7, 0, &cum_tsn))).go();
    peer.expects("SHUTDOWN ACK");
}

fn data_with_shutdown_ack_holds_up_nothing(stage: &Stage) {
    let mut peer = stage.established();
    peer.app_shuts_down();
    peer.expects("SHUTDOWN -1");
    peer.sends().chunk(|_, out| ShutdownAck.write(out)).data(0).go();
    assert_eq!(kinds(&peer.hears()), [ShutdownComplete::KIND]);
    assert_eq!(peer.endpoint.association_count(), 0);
}

fn a_shutdown_ack_with_another_tag_means_nothing(stage: &Stage) {
    let mut peer = stage.established();
    let tag = peer.endpoint_tag;
    peer.sends().tag(tag ^ 1).chunk(|_, out| ShutdownAck.write(out)).go();
    peer.expects_nothing();
    peer.app_shuts_down();
    peer.expects("SHUTDOWN -1");
    peer.sends().tag(tag ^ 1).chunk(|_, out| ShutdownAck.write(out)).go();
    peer.expects_nothing();
    sends_chunk(&mut peer, ShutdownAck::KIND, 0, &[]);
    peer.expects("SHUTDOWN COMPLETE");
}

fn a_shutdown_ack_means_nothing_to_an_open_association(stage: &Stage) {
    let mut peer = stage.established();
    sends_chunk(&mut peer, ShutdownAck::KIND, 0, &[]);
    peer.expects_nothing();
    peer.sends().data(0).go();
    peer.expects("SACK 0");
    sends_shutdown(&mut peer, -1);
    peer.expects("SHUTDOWN ACK");
}

/// Group, purposes, subject in our words, and the scripts that cover it; none if the subject does not exist here.
pub(crate) type Purpose = (&'static str, &'static str, &'static str, &'static [&'static str]);

/// All purposes.
pub(crate) const PURPOSES: &[Purpose] = &[
    (
        "AS",
        "1.1.1, 1.1.2",
        "association setup from either side",
        &["a_plain_init_ack_is_answered", "a_cookie_is_all_that_it_takes"],
    ),
    (
        "AS",
        "1.2.1, 1.2.2",
        "INIT and COOKIE ECHO are repeated",
        &["init_is_repeated", "cookie_echo_is_repeated"],
    ),
    ("AS", "1.3.1, 1.3.2", "and given up", &["a_connect_without_an_answer_is_given_up"]),
    ("AS", "1.4", "no resources for one more association: the COOKIE ECHO is put off, not refused", &[]),
    ("AS", "1.5.1, 1.5.2", "tags are random", &["tags_and_initial_tsns_differ"]),
    (
        "AS",
        "1.6.1, 1.6.2",
        "optional parameters",
        &["optional_parameters_of_an_init_are_understood", "addresses_of_an_init_ack_are_understood"],
    ),
    (
        "AS",
        "1.7.1 to 1.7.5",
        "numbers of streams",
        &[
            "init_and_init_ack_count_streams",
            "no_more_streams_than_the_peer_allows",
            "an_init_without_outbound_streams_is_refused",
            "an_init_ack_without_outbound_streams_ends_the_attempt",
        ],
    ),
    (
        "AS",
        "1.8.1 to 1.8.4",
        "unknown parameters",
        &[
            "an_unknown_parameter_00_ends_the_parameters",
            "an_unknown_parameter_01_ends_the_parameters_and_is_reported",
            "an_unknown_parameter_10_is_skipped",
            "an_unknown_parameter_11_is_skipped_and_reported",
        ],
    ),
    (
        "AS",
        "1.9.1, 1.9.2",
        "INIT to an association that is up, with and without new addresses",
        &["an_unexpected_init_changes_nothing", "a_restart_that_adds_addresses_is_aborted"],
    ),
    (
        "AS",
        "1.10.1 to 1.11.2",
        "the peer's addresses",
        &[
            "an_init_without_addresses_has_one",
            "an_init_ack_without_addresses_has_one",
            "listed_addresses_become_paths",
        ],
    ),
    (
        "AS",
        "1.12.1, 1.12.2",
        "host names",
        &["an_init_with_a_host_name_is_aborted", "an_init_ack_with_a_host_name_is_aborted"],
    ),
    (
        "AS",
        "1.13.1, 1.13.2",
        "supported address types",
        &["the_family_of_the_init_is_supported", "a_supported_host_name_is_ignored"],
    ),
    (
        "AS",
        "1.14.1, 1.14.2",
        "Initiate Tag 0",
        &["an_init_without_a_tag_is_not_answered", "an_init_ack_without_a_tag_ends_the_attempt"],
    ),
    (
        "AS",
        "1.15",
        "INIT ACK goes to where the INIT came from",
        &["an_init_ack_goes_where_the_init_came_from"],
    ),
    ("AT", "2.2", "ABORT ends the association", &["an_abort_with_a_right_tag_ends_the_association"]),
    (
        "AT",
        "2.3",
        "SHUTDOWN waits for what is outstanding",
        &["shutdown_waits_until_everything_is_acknowledged"],
    ),
    (
        "AT",
        "2.4, 2.5",
        "SHUTDOWN is repeated, and given up",
        &["shutdown_is_sent_again_with_twice_the_time", "shutdown_is_not_repeated_for_ever"],
    ),
    ("AT", "2.6", "SHUTDOWN ACK is completed", &["shutdown_ack_completes_the_shutdown"]),
    ("AT", "2.7.1 to 2.7.4", "no more messages are taken", &["no_message_is_taken_once_the_end_has_begun"]),
    (
        "AT",
        "2.8",
        "DATA after SHUTDOWN restarts T2",
        &["data_after_shutdown_is_answered_with_shutdown", "a_packet_of_the_peer_gives_it_more_time"],
    ),
    ("AT", "2.9", "DATA after the peer's SHUTDOWN is dropped", &["data_in_another_state_is_discarded"]),
    (
        "AT",
        "2.10, 2.14",
        "SHUTDOWN ACK waits for what is outstanding",
        &["outstanding_data_is_finished_after_the_peers_shutdown", "a_sack_may_come_with_shutdown"],
    ),
    (
        "AT",
        "2.11, 2.12",
        "SHUTDOWN ACK is repeated, and given up",
        &["shutdown_ack_is_sent_again_with_twice_the_time", "shutdown_ack_is_not_repeated_for_ever"],
    ),
    ("AT", "2.13", "SHUTDOWN COMPLETE ends the association", &["shutdown_complete_ends_the_association"]),
    (
        "IMH",
        "3.1, 3.2",
        "INIT and INIT ACK that are too short",
        &["a_short_init_is_not_answered", "a_short_init_ack_changes_nothing"],
    ),
    (
        "IMH",
        "3.3, 3.5, 3.6",
        "cookies with a wrong tag, forged, expired",
        &[
            "a_cookie_is_good_for_its_ports_and_tag_alone",
            "every_byte_of_a_cookie_is_protected",
            "an_expired_cookie_is_answered_with_error",
        ],
    ),
    ("IMH", "3.4", "a wrong checksum", &["a_packet_with_a_wrong_checksum_is_discarded"]),
    (
        "IMH",
        "3.7, 3.9, 3.10",
        "wrong tags",
        &[
            "an_abort_counts_with_the_right_tag_only",
            "a_shutdown_ack_with_another_tag_means_nothing",
            "a_shutdown_complete_counts_with_the_right_tag_only",
        ],
    ),
    ("IMH", "3.8", "a chunk with a wrong length", &["a_partial_chunk_is_dropped"]),
    ("DM", "4.1", "INIT in COOKIE-WAIT", &["crossing_inits_are_answered_with_the_same_parameters"]),
    (
        "DM",
        "4.2.1, 4.2.2",
        "INIT in ESTABLISHED and SHUTDOWN-ACK-SENT",
        &["an_unexpected_init_changes_nothing", "an_init_meets_an_end_that_is_not_complete"],
    ),
    (
        "DM",
        "4.3, 4.4",
        "INIT ACK in COOKIE-ECHOED, COOKIE ACK in ESTABLISHED",
        &["an_unexpected_init_ack_is_discarded", "an_unexpected_cookie_ack_is_discarded"],
    ),
    ("DM", "4.5, 4.6.3", "SHUTDOWN in SHUTDOWN-SENT", &["two_shutdowns_that_cross_are_both_acknowledged"]),
    (
        "DM",
        "4.6.1, 4.6.2",
        "SHUTDOWN before there is an association",
        &[
            "a_shutdown_before_the_association_is_up_is_discarded",
            "anything_else_out_of_the_blue_is_aborted_with_its_own_tag",
        ],
    ),
    (
        "DM",
        "4.7.1 to 4.7.3",
        "SHUTDOWN ACK in other states",
        &[
            "a_shutdown_ack_while_connecting_is_out_of_the_blue",
            "a_shutdown_ack_means_nothing_to_an_open_association",
            "two_shutdown_acks_that_cross_end_the_association",
        ],
    ),
    ("DM", "4.8", "a forged cookie in ESTABLISHED", &["a_forged_cookie_means_nothing_to_an_association"]),
    ("DM", "4.9", "SHUTDOWN COMPLETE in COOKIE-WAIT", &["a_shutdown_complete_counts_in_its_state_only"]),
    ("DM", "4.10", "DATA in SHUTDOWN-ACK-SENT", &["data_in_another_state_is_discarded"]),
    (
        "FH",
        "5.1.1, 5.1.2",
        "a peer that does not answer",
        &[
            "a_peer_that_answers_no_retransmission_is_given_up",
            "an_address_that_does_not_answer_is_given_up_alone",
        ],
    ),
    ("FH", "5.2", "HEARTBEAT is answered", &["a_heartbeat_is_acknowledged"]),
    (
        "FH",
        "5.3.1 to 5.3.5",
        "packets out of the blue",
        &[
            "anything_else_out_of_the_blue_is_aborted_with_its_own_tag",
            "an_abort_out_of_the_blue_is_met_with_silence",
            "a_shutdown_ack_out_of_the_blue_is_completed_with_its_own_tag",
            "a_shutdown_complete_out_of_the_blue_is_met_with_silence",
            "a_packet_from_or_to_a_group_is_discarded",
        ],
    ),
    (
        "E",
        "6.1, 6.2",
        "a stale cookie in COOKIE-ECHOED and elsewhere",
        &["a_stale_cookie_is_an_error_during_the_handshake", "a_stale_cookie_is_nothing_later"],
    ),
    (
        "E",
        "6.3",
        "DATA for a stream that does not exist",
        &["data_for_no_stream_is_acknowledged_and_reported"],
    ),
    ("E", "6.4", "an INIT ACK without a cookie", &["an_association_that_is_refused_is_aborted"]),
    (
        "E",
        "6.5, 6.6",
        "reports of unknown parameters",
        &["the_cookie_echo_brings_the_report_of_parameters", "an_error_may_come_with_the_cookie"],
    ),
    ("BDC", "7.1 to 7.3", "DATA with INIT, INIT ACK, SHUTDOWN COMPLETE", &["three_chunks_stand_alone"]),
    (
        "BDC",
        "7.4, 7.5",
        "DATA with COOKIE ECHO, COOKIE ACK",
        &["the_cookie_ack_comes_first", "data_may_come_with_the_cookie_ack"],
    ),
    (
        "BDC",
        "7.6 to 7.8",
        "SACK with SHUTDOWN, SACK with DATA, SHUTDOWN ACK with DATA",
        &[
            "a_sack_may_come_with_shutdown",
            "data_may_come_with_a_sack",
            "data_with_shutdown_ack_holds_up_nothing",
        ],
    ),
    (
        "D",
        "8.1, 8.2",
        "messages up to the path MTU and beyond",
        &["packets_fill_the_path_and_no_more", "a_large_message_becomes_several_chunks"],
    ),
    (
        "D",
        "8.3, 8.4",
        "messages that arrive, whole and in fragments",
        &["fragments_in_any_order_become_the_message", "messages_of_a_stream_are_delivered_in_order"],
    ),
    (
        "D",
        "8.5",
        "DATA is sent again when T3 expires",
        &["a_timeout_brings_the_earliest_chunks_in_one_packet"],
    ),
    (
        "D",
        "8.6 to 8.8",
        "the peer's window, and its probes",
        &[
            "nothing_new_leaves_beyond_the_peers_window",
            "a_closed_window_is_probed",
            "probes_come_ever_more_rarely",
        ],
    ),
    (
        "D",
        "8.9, 8.10",
        "retransmission, and to another address",
        &["three_reports_make_a_chunk_lost", "a_chunk_that_timed_out_goes_to_another_address"],
    ),
    ("D", "8.11", "DATA without user data", &["a_chunk_without_data_ends_the_association"]),
    ("D", "8.12", "unordered messages", &["unordered_messages_are_delivered_as_they_come"]),
    (
        "D",
        "8.13 to 8.15",
        "messages longer than the receiver takes: they are delivered in parts",
        &["a_message_larger_than_the_buffer_is_delivered_in_parts"],
    ),
    ("A", "9.1", "the first DATA is acknowledged at once", &["the_first_data_is_acknowledged_at_once"]),
    (
        "A",
        "9.2",
        "later DATA within 200 ms",
        &["every_second_packet_is_acknowledged_and_none_waits_longer_than_200_ms"],
    ),
    ("A", "9.3", "gaps are reported at once", &["a_gap_is_reported_at_once_and_with_each_packet"]),
    (
        "M",
        "10.1 to 10.4",
        "unknown chunks",
        &[
            "an_unknown_chunk_11_is_skipped_and_reported",
            "an_unknown_chunk_00_ends_the_packet",
            "an_unknown_chunk_01_ends_the_packet_and_is_reported",
            "an_unknown_chunk_10_is_skipped",
        ],
    ),
    (
        "RT",
        "11.1 to 11.3",
        "the retransmission timer",
        &[
            "the_timer_starts_with_the_first_chunk",
            "the_timer_stops_when_all_is_acknowledged",
            "the_timer_starts_anew_when_the_earliest_chunk_arrives",
            "the_rto_doubles_up_to_its_maximum",
        ],
    ),
];

#[test]
fn every_script_of_the_checklist_exists() {
    let proofs = crate::SECTIONS.iter().copied().flatten().flat_map(|(_, rules)| rules.iter());
    let known: Vec<_> = proofs.filter_map(|rule| rule.proof.evidence()).map(|e| e.name).collect();
    let named = PURPOSES.iter().flat_map(|(.., scripts)| scripts.iter());
    let unknown: Vec<_> = named.filter(|name| !known.contains(name)).collect();
    assert!(unknown.is_empty(), "no rule has these scripts: {unknown:?}");
}
