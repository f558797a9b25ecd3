//! The STREAMS executive.
#![forbid(unsafe_code)]
