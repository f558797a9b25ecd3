//! The sans-IO SCTP protocol core.
#![forbid(unsafe_code)]
