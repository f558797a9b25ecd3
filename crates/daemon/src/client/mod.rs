//! Requests of other processes: the identity of a daemon, its status, and operations on streams.

pub(crate) mod inquiry;
pub(crate) mod status;
pub(crate) mod streams;
