//! The protocol between programs under `swiftwater run` and the daemon.
//!
//! In place of an SCTP socket the program holds one end of a *pair* of AF_UNIX SEQPACKET sockets; the daemon holds
//! the other. Program and daemon communicate in these ways:
//!
//! | way | carries | module |
//! |---|---|---|
//! | the pair | messages, one record each, accepted associations, and the places of bundles | [`record`] |
//! | a connection of its own for each request | all other calls of the sockets API | [`request`] |
//! | a page that the daemon alone writes | the state of the socket | [`status_page`] |
//! | the receive ring behind that page | several messages to the program in a bundle | [`status_page::RING_BYTES`], [`bundle`] |
//! | a ring in memory of the program | messages to the daemon | `ring` |
//!
//! The sharers of a descriptor agree among themselves in a page of their own, [`sharers_page`]; how far they have read the first
//! record is a [`read_position`].
//!
//! The daemon's end of a pair has a [name], by which a program recognises a possible pair. The daemon itself identifies a
//! pair by the cookie that the kernel gives each socket (`SO_COOKIE`), which no program can choose.
//!
//! [`abi`] has the numbers of the sockets API that both sides read, [`assoc_id`] those of associations.
//!
//! [`trust`] decides which daemon a program communicates with.
//!
//! This crate makes no system calls. Parsing accepts any bytes, allocates nothing and never panics.
#![forbid(unsafe_code)]

pub mod abi;
pub mod address;
pub mod assoc_id;
pub mod bundle;
mod bytes;
pub mod name;
pub mod read_position;
pub mod record;
pub mod request;
pub mod sharers_page;
pub mod status_page;
pub mod trust;

/// Version of the protocol in this crate. Both sides must have the same.
pub const VERSION: u16 = 19;
