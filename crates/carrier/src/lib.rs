//! The protocol between programs under `swiftwater run` and the daemon.
//!
//! In place of an SCTP socket the program holds one end of a pair of AF_UNIX SEQPACKET sockets, its *carrier*; the daemon holds
//! the other. There are three ways between them:
//!
//! | way | carries | module |
//! |---|---|---|
//! | the carrier | messages, one record each or several in a bundle, and accepted associations | [`record`], [`bundle`] |
//! | a connection of its own for each request | what else the sockets API asks for | [`request`] |
//! | a page that all who share the descriptor map | what they must agree on | [`page`] |
//!
//! The daemon's end of a carrier has a [name] by which a program recognises what may be one. The daemon itself knows a carrier by
//! the cookie that the kernel gives each socket (`SO_COOKIE`), which nobody can choose.
//!
//! Which daemon a program speaks with at all is decided in [`trust`].
//!
//! Nothing here calls the system. Parsing takes any bytes, allocates nothing and never panics.
#![forbid(unsafe_code)]

pub mod address;
pub mod bundle;
mod bytes;
pub mod name;
pub mod page;
pub mod record;
pub mod request;
pub mod trust;

/// The version of everything in this crate. Both sides must be of the same.
pub const VERSION: u16 = 10;
