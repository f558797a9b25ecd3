//! SCTP packets, chunks, parameters and error causes (RFC 9260): parse and build.
//!
//! The crate has no state and allocates nothing while parsing: every type borrows from the bytes it was
//! parsed from. Reserved bits are ignored on receipt and zero on sending. Nothing that arrives can panic:
//! malformed input is an error value.
//!
//! ```
//! use sctp_wire::chunk::{Chunk, CookieAck, Data, DataFlags};
//! use sctp_wire::{Header, Packet, Ppid, Ssn, StreamId, Tsn, VerificationTag, packet};
//!
//! let header = Header { source_port: 5000, destination_port: 5001, verification_tag: VerificationTag(7) };
//! let mut bytes = Vec::new();
//! packet::write_header(&header, &mut bytes);
//! CookieAck.write(&mut bytes);
//! let data = Data {
//!     flags: DataFlags::WHOLE,
//!     tsn: Tsn(1),
//!     stream: StreamId(0),
//!     ssn: Ssn(0),
//!     ppid: Ppid(0),
//!     payload: b"hello",
//! };
//! data.write(&mut bytes);
//! packet::finish(&mut bytes);
//!
//! let packet = Packet::parse(&bytes)?;
//! assert!(packet.checksum_ok());
//! let chunks: Result<Vec<_>, _> = packet.chunks().map(|raw| Chunk::parse(&raw?)).collect();
//! assert_eq!(chunks?, [Chunk::CookieAck(CookieAck), Chunk::Data(data)]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod any_kind;
pub mod cause;
pub mod checksum;
pub mod chunk;
mod framing;
mod ids;
pub mod packet;
pub mod parameter;
mod unknown;

pub use framing::FramingError;
pub use ids::{Ppid, Ssn, StreamId, Tsn, VerificationTag};
pub use packet::{Header, Packet, PacketError};
pub use unknown::{UnknownAction, unknown_chunk_action, unknown_parameter_action};
