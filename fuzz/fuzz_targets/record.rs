//! Records on a pair. The crate `fuzz_cases` says what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_cases::record(bytes));
