//! Helpers shared by the scenario, conformance and interoperability tests.
#![forbid(unsafe_code)]

pub mod daemon;
pub mod namespace;
pub mod peers;
pub mod process;
pub mod programs;
pub mod swiftwater_end;
pub mod tools;
pub mod wait;
pub mod wasm;
