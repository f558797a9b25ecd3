//! SCTP packets, chunks, parameters and error causes (RFC 9260): parse and build.
#![forbid(unsafe_code)]
