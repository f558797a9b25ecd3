//! The Transport Provider Interface: the primitives that a stream head, modules and a transport provider exchange.
//!
//! Inside the executive a primitive is a Rust value, [`Primitive`]. [`Primitive::encode`] and [`Primitive::decode`]
//! convert it to and from the bytes of `getmsg` and `putmsg`, only at the edge. [`State`] defines which primitive may
//! come when.
//!
//! ```
//! use tpi::{Event, Primitive, State};
//!
//! let request = Primitive::ConnReq { addresses: "192.0.2.1:5000".parse::<std::net::SocketAddr>()?.into() };
//! let event = Event::of(&request, 0, false).expect("a connect request changes the state");
//! assert_eq!(State::Idle.after(event), Some(State::AwaitingConnectAck));
//! assert_eq!(State::Unbound.after(event), None);
//! assert_eq!(Primitive::decode(&request.encode()), Ok(request));
//! # Ok::<(), std::net::AddrParseError>(())
//! ```

#![forbid(unsafe_code)]

mod addresses;
mod codec;
mod errno;
mod notification;
pub mod options;
mod primitive;
mod state;
mod t_error;
mod which;

pub use addresses::Addresses;
pub use codec::DecodeError;
pub use errno::Errno;
pub use notification::{Notification, NotificationKind, PathChange, PathReason};
pub use primitive::{
    Info, Optmgmt, Primitive, PrimitiveCode, T_CLTS, T_COTS, T_COTS_ORD, T_INFINITE, T_INVALID, Unitdata,
};
pub use sctp_message::{AssociationId, Lifetime, PathId, RecvInfo, SendError, SendInfo};
pub use state::{Event, State};
pub use t_error::TError;
pub use which::Which;
