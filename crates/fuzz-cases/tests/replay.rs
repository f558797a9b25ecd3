//! Inputs that fuzzers have found, and their first inputs, run as ordinary tests.

use std::path::Path;

/// Runs every input in the folders of a case.
fn replay(case: &str, run: fn(&[u8])) {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let mut count = 0;
    for folder in ["seeds", "found"] {
        let Ok(entries) = fuzz.join(folder).join(case).read_dir() else { continue };
        for entry in entries {
            let path = entry.expect("a folder that can be listed").path();
            let bytes = std::fs::read(&path).expect("a file that can be read");
            // Printed only where the run fails: it names the input.
            println!("{}", path.display());
            run(&bytes);
            count += 1;
        }
    }
    assert!(count > 0, "no input for {case}");
}

#[test]
fn the_parser_takes_every_known_input() {
    replay("packet", fuzz_cases::packet);
}

#[test]
fn endpoints_take_every_known_script_of_edits() {
    replay("endpoint", fuzz_cases::endpoint);
}

#[test]
fn endpoints_take_every_known_script_of_forgeries() {
    replay("coupled", fuzz_cases::coupled);
}

#[test]
fn requests_and_answers_are_read_without_harm() {
    replay("request", fuzz_cases::request);
}

#[test]
fn records_are_read_without_harm() {
    replay("record", fuzz_cases::record);
}

#[test]
fn a_reader_gets_a_part_of_the_record_whatever_the_page_says() {
    replay("page", fuzz_cases::page);
}

#[test]
fn a_daemon_survives_every_known_program() {
    replay("daemon", fuzz_cases::daemon);
}

#[test]
fn control_parts_are_decoded_without_harm() {
    replay("primitive", fuzz_cases::primitive);
}

#[test]
fn options_are_managed_by_the_rules() {
    replay("options", fuzz_cases::options);
}

#[test]
fn streams_take_every_known_script_of_messages() {
    replay("putmsg", fuzz_cases::putmsg);
}
