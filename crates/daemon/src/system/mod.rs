//! Interfaces to the operating system for the layers above.

pub(crate) mod addresses;
pub(crate) mod daemon_address;
pub(crate) mod descriptor_io;
pub(crate) mod errno;
pub(crate) mod journal;
pub(crate) mod listener;
pub(crate) mod lock;
pub(crate) mod socket_cookie;
pub(crate) mod user_namespace;
pub(crate) mod visible_name;
