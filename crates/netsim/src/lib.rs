//! Simulated networks on a virtual clock.
#![forbid(unsafe_code)]
