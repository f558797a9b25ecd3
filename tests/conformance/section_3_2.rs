//! Chunks and parameters in general (RFC 9260 §3.2).

use lab::packets::{data_of, kinds};
use sctp::SendInfo;
use sctp_wire::chunk::{CookieAck, CookieEcho, Error, Init, InitAck};
use sctp_wire::parameter::Parameters;

use crate::rules::rules;
use crate::stage::Stage;
use crate::words::{
    INIT_FIXED_BYTES, causes, chunk, chunks, half, only_chunk, parameter, parameter_kinds, parameters,
    sends_chunk, sends_init, sends_init_ack,
};

rules! {
    in "3.2" {
        MUST "make the length of a chunk with its padding a multiple of 4 bytes" => shown(a_chunk_fills_words, Length);
        MUST "pad with zeros, which the Chunk Length does not count" => shown_by(a_chunk_fills_words, Padding, Length);
        MUST_NOT "pad with more than 3 bytes" => shown_by(a_chunk_fills_words, Length);
        MUST "ignore the padding bytes of a chunk" => shown(the_padding_of_a_chunk_does_not_matter, Silent, Deaf);
        RULE "take a chunk whether or not its length counts the final padding" => shown(the_length_may_count_the_final_padding, Silent, Value);
        RULE "unknown chunk 00: stop and discard" => shown(an_unknown_chunk_00_ends_the_packet, Talkative);
        RULE "unknown chunk 01: stop, discard and report" => shown(an_unknown_chunk_01_ends_the_packet_and_is_reported, Silent, Value);
        RULE "unknown chunk 10: skip" => shown(an_unknown_chunk_10_is_skipped, Silent, Bundled);
        RULE "unknown chunk 11: skip and report" => shown(an_unknown_chunk_11_is_skipped_and_reported, Missing, Value);
        RULE "flags that mean nothing are 0 on transmit and ignored on receipt" => shown(flags_that_mean_nothing_are_ignored, Flags, Deaf);
    }
    in "3.2.1" {
        MUST "make the length of a parameter with its padding a multiple of 4 bytes" => shown(a_parameter_fills_words, Value);
        MUST_NOT "pad a parameter with more than 3 bytes" => shown_by(a_parameter_fills_words, Value);
        MUST "ignore the padding bytes of a parameter" => shown(the_padding_of_a_parameter_does_not_matter, Silent, Value);
        MUST "parameter types are unique across all chunks" => not_applicable("a rule for those who define parameters");
        MUST_NOT "use type 5 for anything else than an IPv4 address" => not_applicable("a rule for those who define parameters");
        RULE "unknown parameter 00: stop" => shown(an_unknown_parameter_00_ends_the_parameters, Value);
        RULE "unknown parameter 01: stop and report" => shown(an_unknown_parameter_01_ends_the_parameters_and_is_reported, Value);
        RULE "unknown parameter 10: skip" => shown(an_unknown_parameter_10_is_skipped, Value);
        RULE "unknown parameter 11: skip and report" => shown(an_unknown_parameter_11_is_skipped_and_reported, Value);
    }
    in "3.2.2" {
        MUST "report unrecognized parameters of an INIT in the INIT ACK" => shown(the_init_ack_reports_unrecognized_parameters, Value, Kind);
        SHOULD "bundle the ERROR about parameters of an INIT ACK with the COOKIE ECHO" => shown(the_cookie_echo_brings_the_report_of_parameters, Missing, Value);
        MUST "COOKIE ECHO is the first chunk of its packet" => shown_by(the_cookie_echo_brings_the_report_of_parameters, Order);
    }
}

fn a_chunk_fills_words(stage: &Stage) {
    let mut peer = stage.established();
    for length in 1..=4usize {
        peer.app_sends(SendInfo::default(), vec![0xee; length]);
        let packet = peer.hears();
        assert_eq!(packet.len(), 12 + 20, "one header, one chunk of five words");
        assert_eq!(usize::from(half(&packet, 14)), 16 + length);
        assert!(packet[28 + length..].iter().all(|&byte| byte == 0));
        peer.sends().sack(length as i32 - 1, &[]).go();
    }
}

fn the_padding_of_a_chunk_does_not_matter(stage: &Stage) {
    let mut peer = stage.established();
    peer.sends()
        .data(0)
        .chunk(|_, out| out.iter_mut().rev().take(3).for_each(|byte| *byte = 0xff))
        .data(1)
        .go();
    peer.expects("SACK 1");
    assert_eq!(peer.app.contents(), [[0], [1]]);
}

fn the_length_may_count_the_final_padding(stage: &Stage) {
    for counted in [0, 1] {
        let mut peer = stage.listening();
        // The value of three bytes has one byte of padding.
        let reported = parameter(0xc001, b"odd");
        peer.sends()
            .tag(0)
            .chunk(|p, out| {
                Init { parameters: Parameters::new(&reported), ..p.init() }.write(out);
                out[3] += counted;
            })
            .go();
        let init_ack = only_chunk(&peer.hears());
        assert_eq!((init_ack.kind, parameter_kinds(&init_ack)), (InitAck::KIND, vec![7, 8]));
    }
}

fn an_unknown_chunk_00_ends_the_packet(stage: &Stage) {
    let mut peer = stage.established();
    peer.sends().chunk(|_, out| out.extend(chunk(0x3e, 0, b"what"))).data(0).go();
    peer.expects_nothing();
    assert!(peer.app.messages.is_empty());
}

fn an_unknown_chunk_01_ends_the_packet_and_is_reported(stage: &Stage) {
    let mut peer = stage.established();
    let unknown = chunk(0x7e, 0, b"what");
    peer.sends().chunk(|_, out| out.extend(&unknown)).data(0).go();
    let error = only_chunk(&peer.hears());
    assert_eq!((error.kind, causes(&error)), (Error::KIND, vec![(6, unknown)]));
    assert!(peer.app.messages.is_empty());
}

fn an_unknown_chunk_10_is_skipped(stage: &Stage) {
    let mut peer = stage.established();
    peer.sends().chunk(|_, out| out.extend(chunk(0xbe, 0, b"what"))).data(0).go();
    peer.expects("SACK 0");
    assert_eq!(peer.app.contents(), [[0]]);
}

fn an_unknown_chunk_11_is_skipped_and_reported(stage: &Stage) {
    let mut peer = stage.established();
    let unknown = chunk(0xfe, 0, b"what");
    peer.sends().chunk(|_, out| out.extend(&unknown)).data(0).go();
    let chunks = chunks(&peer.hears());
    let error = chunks.iter().find(|chunk| chunk.kind == Error::KIND).expect("a report");
    assert_eq!(causes(error), [(6, unknown)]);
    assert_eq!(peer.app.contents(), [[0]]);
}

fn flags_that_mean_nothing_are_ignored(stage: &Stage) {
    let mut peer = stage.established();
    sends_chunk(&mut peer, 4, 0xff, &parameter(1, b"12345678"));
    let ack = only_chunk(&peer.hears());
    assert_eq!((ack.kind, ack.flags), (5, 0));
}

fn a_parameter_fills_words(stage: &Stage) {
    let mut peer = stage.listening();
    sends_init(&mut peer, &parameter(0xc001, b"odd"));
    let init_ack = only_chunk(&peer.hears());
    // `parameters` checks lengths and padding.
    let found = parameters(&init_ack.value[INIT_FIXED_BYTES..]);
    assert!(found.contains(&(8, parameter(0xc001, b"odd")[..7].to_vec())), "{found:?}");
}

fn the_padding_of_a_parameter_does_not_matter(stage: &Stage) {
    let mut peer = stage.listening();
    let mut skipped = parameter(0x8001, b"skip!");
    skipped.iter_mut().rev().take(3).for_each(|byte| *byte = 0xff);
    sends_init(&mut peer, &[skipped, parameter(0xc001, b"this")].concat());
    let init_ack = only_chunk(&peer.hears());
    assert_eq!(parameter_kinds(&init_ack), [7, 8]);
}

/// Returns the reports that answer an INIT with an unknown parameter and a reportable one after it.
fn reports(stage: &Stage, kind: u16) -> Vec<Vec<u8>> {
    let mut peer = stage.listening();
    sends_init(&mut peer, &[parameter(kind, b"what"), parameter(0xc0de, b"next")].concat());
    let init_ack = only_chunk(&peer.hears());
    assert_eq!(init_ack.kind, InitAck::KIND);
    let found = parameters(&init_ack.value[INIT_FIXED_BYTES..]);
    assert_eq!(found.iter().filter(|(kind, _)| *kind == 7).count(), 1, "a cookie all the same");
    found.into_iter().filter(|(kind, _)| *kind == 8).map(|(_, value)| value).collect()
}

fn an_unknown_parameter_00_ends_the_parameters(stage: &Stage) {
    assert!(reports(stage, 0x3abc).is_empty());
}

fn an_unknown_parameter_01_ends_the_parameters_and_is_reported(stage: &Stage) {
    assert_eq!(reports(stage, 0x7abc), [parameter(0x7abc, b"what")]);
}

fn an_unknown_parameter_10_is_skipped(stage: &Stage) {
    assert_eq!(reports(stage, 0xbabc), [parameter(0xc0de, b"next")]);
}

fn an_unknown_parameter_11_is_skipped_and_reported(stage: &Stage) {
    assert_eq!(reports(stage, 0xfabc), [parameter(0xfabc, b"what"), parameter(0xc0de, b"next")]);
}

fn the_init_ack_reports_unrecognized_parameters(stage: &Stage) {
    let mut peer = stage.listening();
    sends_init(&mut peer, &parameter(0xc001, b"what"));
    let init_ack = only_chunk(&peer.hears());
    assert_eq!((init_ack.kind, parameter_kinds(&init_ack)), (InitAck::KIND, vec![7, 8]));
}

fn the_cookie_echo_brings_the_report_of_parameters(stage: &Stage) {
    let mut peer = stage.connecting();
    peer.takes_init();
    sends_init_ack(&mut peer, &parameter(0xc001, b"what"));
    let packet = peer.hears();
    assert_eq!(kinds(&packet), [CookieEcho::KIND, Error::KIND]);
    assert_eq!(causes(&chunks(&packet)[1]), [(8, parameter(0xc001, b"what"))]);
    sends_chunk(&mut peer, CookieAck::KIND, 0, &[]);
    peer.app_sends(SendInfo::default(), &b"on"[..]);
    assert_eq!(data_of(&peer.hears()).len(), 1);
}
