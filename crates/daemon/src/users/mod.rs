//! Limits of each user, and the closing of descriptors that its programs send.

pub(crate) mod budget;
pub(crate) mod close_watches;
pub(crate) mod closer;
pub(crate) mod descriptor_budget;
pub(crate) mod division;
pub(crate) mod fair_queue;
pub(crate) mod limits;
pub(crate) mod memory_return;
pub(crate) mod owner;
pub(crate) mod quantum;
pub(crate) mod record_buffer;
pub(crate) mod requester;
pub(crate) mod resources;
pub(crate) mod round_share;
pub(crate) mod slices;
pub(crate) mod tap_files;
pub(crate) mod thread_time;
mod threads;
pub(crate) mod user;
pub(crate) mod user_permits;
pub(crate) mod worker;
