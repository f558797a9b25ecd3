//! RFC 9260 rule by rule: a packet script for every MUST and SHOULD of its sections 3 to 9.
//!
//! The table of a section's file holds each rule, the script that shows it, and the faults that the script must detect: the
//! script runs again with an endpoint that is silent, talks too much, forgets a chunk, sets a wrong field and so on, and a
//! script that does not fail then proves nothing. The tables generate `docs/conformance.md`, which
//! `UPDATE_SNAPSHOTS=1 cargo test -p swiftwater-tests --test conformance` writes. `CONFORMANCE_LADDER=1` prints every script as a
//! ladder.

mod census;
mod etsi;
mod fault;
mod peers;
mod rules;
mod section_3_1;
mod section_3_2;
mod section_3_3_control;
mod section_3_3_data;
mod section_3_3_init;
mod section_3_3_init_ack;
mod section_4;
mod section_5_1;
mod section_5_1_details;
mod section_5_2_cookie;
mod section_5_2_init;
mod section_5_3;
mod section_6;
mod section_6_1;
mod section_6_2;
mod section_6_3;
mod section_6_4;
mod section_6_5;
mod section_6_8;
mod section_7;
mod section_7_2;
mod section_8;
mod section_8_4;
mod section_9;
mod stage;
mod table;
mod words;

/// The tables of all sections, in order.
const SECTIONS: &[rules::Table] = &[
    section_3_1::RULES,
    section_3_2::RULES,
    section_3_3_data::RULES,
    section_3_3_init::RULES,
    section_3_3_init_ack::RULES,
    section_3_3_control::RULES,
    section_4::RULES,
    section_5_1::RULES,
    section_5_1_details::RULES,
    section_5_2_init::RULES,
    section_5_2_cookie::RULES,
    section_5_3::RULES,
    section_8::RULES,
    section_8_4::RULES,
    section_9::RULES,
    section_6::RULES,
    section_6_2::RULES,
    section_6_5::RULES,
    section_6_8::RULES,
    etsi::RULES,
    section_6_1::RULES,
    section_6_3::RULES,
    section_6_4::RULES,
    section_7::RULES,
    section_7_2::RULES,
];
