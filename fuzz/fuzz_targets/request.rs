//! Requests and answers. What must hold stands in the crate `fuzz_cases`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_cases::request(bytes));
