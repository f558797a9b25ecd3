//! Other implementations of SCTP, started and stopped by the tests.

pub mod kernel;
pub mod messages;
pub mod usrsctp;
