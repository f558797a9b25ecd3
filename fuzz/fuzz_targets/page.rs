//! A reader of a bundle beside a hostile sharer of its page. What must hold stands in the crate `fuzz_cases`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_cases::page(bytes));
