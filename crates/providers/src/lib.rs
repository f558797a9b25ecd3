//! STREAMS drivers that speak TPI.
#![forbid(unsafe_code)]
