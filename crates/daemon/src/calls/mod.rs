//! The calls of requests: functions over the registry and a socket. They return new sockets and start no task of a
//! socket.

pub(crate) mod associations;
pub(crate) mod bind;
pub(crate) mod close;
pub(crate) mod connect;
pub(crate) mod feed;
pub(crate) mod form;
pub(crate) mod link_status;
pub(crate) mod links;
pub(crate) mod listen;
pub(crate) mod options;
pub(crate) mod peel_off;
pub(crate) mod pending;
pub(crate) mod reply;
pub(crate) mod report;
pub(crate) mod status;
pub(crate) mod streams;
pub(crate) mod waiting;
mod walk;
