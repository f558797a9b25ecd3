//! What other processes ask a daemon: which one it is, what it has, and what is to be done with a stream.

pub(crate) mod address;
pub(crate) mod inquiry;
pub(crate) mod status;
pub(crate) mod streams;
