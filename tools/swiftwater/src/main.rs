//! The swiftwater command.
#![forbid(unsafe_code)]
fn main() {}
