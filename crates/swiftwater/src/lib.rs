//! SCTP in user space, built as STREAMS: the Rust API.
#![forbid(unsafe_code)]
