//! Helpers shared by the scenario, conformance and interoperability tests.
#![forbid(unsafe_code)]

pub mod tools;
pub mod wasm;
