//! Modules that come with the executive.

mod counter;

pub use counter::{Counter, Counts};
