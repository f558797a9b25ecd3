//! The Transport Provider Interface: what a stream head, modules and a transport provider say to each other.
//!
//! Inside the executive a primitive is a Rust value, [`Primitive`]; the bytes that `getmsg` and `putmsg` show are made
//! only at the edge.

#![forbid(unsafe_code)]

mod addresses;
mod errno;
mod primitive;
mod t_error;
mod transfer;

pub use addresses::Addresses;
pub use errno::Errno;
pub use primitive::{Info, Optmgmt, Primitive, PrimitiveCode, Unitdata};
pub use t_error::TError;
pub use transfer::{TransferFlags, TransferInfo};
