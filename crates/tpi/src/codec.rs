//! The byte layout of primitives: the control part of a message in `putmsg` and `getmsg`.
//!
//! Each primitive is a structure of 32-bit words in native byte order; the first word is the number of the primitive.
//! Addresses and options follow the structure, located by a length and an offset from its beginning. Words are appended
//! to the structure where the interface lacks a field that a provider with several associations needs. Appended words
//! are omitted while all are zero, so a program that does not know them sees the published structure.

mod address;
mod layout;
mod option;
mod which;

use crate::{Errno, Info, Optmgmt, Primitive, PrimitiveCode, RecvInfo, SendInfo, TError, Unitdata, Which};
use layout::{Reader, Writer};
use std::error::Error;
use std::fmt;

/// Reason why bytes do not decode to a primitive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The structure is truncated.
    Truncated,
    /// No primitive has this number.
    UnknownPrimitive(u32),
    /// A length and offset point outside the bytes.
    OutOfBounds,
    /// An address has an unknown family or size.
    BadAddress,
    /// The options are truncated or have a wrong size.
    BadOption,
    /// A word has an undefined value.
    BadValue(u32),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => write!(f, "the primitive is truncated; pass the whole structure"),
            Self::UnknownPrimitive(number) => {
                write!(
                    f,
                    "{number} is not the number of a primitive; set PRIM_type to one of the T_ constants"
                )
            }
            Self::OutOfBounds => {
                write!(f, "a length and offset of the primitive point outside it; count from its beginning")
            }
            Self::BadAddress => {
                write!(
                    f,
                    "the addresses are not a list of sockaddr_in and sockaddr_in6; check families and length"
                )
            }
            Self::BadOption => write!(f, "the options are not a list of t_opthdr; check their lengths"),
            Self::BadValue(value) => write!(f, "the primitive has an invalid field: {value}"),
        }
    }
}

impl Error for DecodeError {}

/// `T_MORE` in `MORE_flag`, and `T_ODF_MORE` in `DATA_flag`.
const MORE_FLAG: u32 = 1;

impl Primitive {
    /// Encodes the primitive.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new(self.code());
        match self {
            Self::DataReq { more }
            | Self::DataInd { more }
            | Self::ExdataReq { more }
            | Self::ExdataInd { more } => {
                w.word(u32::from(*more) * MORE_FLAG);
            }
            Self::OptdataReq { association, info } => {
                w.word(u32::from(info.more) * MORE_FLAG);
                w.options(option::encode_send(*association, &SendInfo { more: false, ..*info }));
            }
            Self::OptdataInd { association, info } => {
                w.word(u32::from(info.more) * MORE_FLAG);
                w.options(option::encode_receive(*association, &RecvInfo { more: false, ..*info }));
            }
            Self::NotificationInd(notification) => {
                w.word(0);
                w.options(option::encode_notification(notification));
            }
            Self::UnitdataReq(unitdata) => encode_unitdata_req(&mut w, unitdata),
            Self::UnitdataInd(unitdata) => {
                w.addresses(&unitdata.addresses);
                w.options(option::encode_receive(Which::Only, &unitdata.info));
            }
            Self::UderrorInd { unitdata, error } => {
                encode_unitdata_req(&mut w, unitdata);
                w.word(*error);
            }
            Self::InfoReq | Self::UnbindReq | Self::AddrReq => {}
            Self::InfoAck(info) => encode_info(&mut w, info),
            Self::BindReq { addresses, backlog } | Self::BindAck { addresses, backlog } => {
                w.addresses(addresses);
                w.word(*backlog);
            }
            Self::OkAck { primitive } => w.word(*primitive as u32),
            Self::ErrorAck { primitive, t_error, errno } => {
                w.word(*primitive as u32);
                w.word(*t_error as u32);
                w.signed(errno.0);
            }
            Self::ConnReq { addresses } => {
                w.addresses(addresses);
                w.options(Vec::new());
            }
            Self::ConnCon { addresses, association, outbound_streams, inbound_streams } => {
                w.addresses(addresses);
                w.options(option::encode_association(*association, *outbound_streams, *inbound_streams));
            }
            Self::ConnInd { addresses, sequence } => {
                w.addresses(addresses);
                w.options(Vec::new());
                w.word(*sequence);
            }
            Self::ConnRes { sequence, acceptor } => {
                w.word(*acceptor);
                w.options(Vec::new());
                w.word(*sequence);
            }
            Self::DisconReq { sequence, reason, association } => {
                w.word(*sequence);
                let [has_number, number] = which::words(*association);
                w.appended(&[*reason, has_number, number]);
            }
            Self::DisconInd { reason, sequence, association, cause } => {
                w.word(*reason);
                w.word(*sequence);
                let [has_number, number] = which::words(*association);
                w.appended(&[has_number, number, u32::from(*cause)]);
            }
            Self::OrdrelReq { association } | Self::OrdrelInd { association } => {
                w.appended(&which::words(*association));
            }
            Self::OptmgmtReq(optmgmt) | Self::OptmgmtAck(optmgmt) => {
                w.options(optmgmt.options.clone());
                w.word(optmgmt.flags);
            }
            Self::AddrAck { local, remote } => {
                w.addresses(local);
                w.addresses(remote);
            }
            Self::CapabilityReq { bits } => w.word(*bits),
            Self::CapabilityAck { bits, info, acceptor } => {
                w.word(*bits);
                w.word(PrimitiveCode::InfoAck as u32);
                encode_info(&mut w, info);
                w.word(*acceptor);
            }
        }
        w.finish()
    }

    /// Decodes a primitive.
    ///
    /// # Errors
    ///
    /// Returns a [`DecodeError`] if the bytes are not a primitive.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let number = r.word()?;
        let code = PrimitiveCode::from_number(number).ok_or(DecodeError::UnknownPrimitive(number))?;
        Ok(match code {
            PrimitiveCode::DataReq => Self::DataReq { more: decode_more(&mut r)? },
            PrimitiveCode::DataInd => Self::DataInd { more: decode_more(&mut r)? },
            PrimitiveCode::ExdataReq => Self::ExdataReq { more: decode_more(&mut r)? },
            PrimitiveCode::ExdataInd => Self::ExdataInd { more: decode_more(&mut r)? },
            PrimitiveCode::OptdataReq => decode_optdata_req(&mut r)?,
            PrimitiveCode::OptdataInd => decode_optdata_ind(&mut r)?,
            PrimitiveCode::UnitdataReq => Self::UnitdataReq(decode_unitdata_req(&mut r)?),
            PrimitiveCode::UnitdataInd => Self::UnitdataInd(decode_unitdata_ind(&mut r)?),
            PrimitiveCode::UderrorInd => {
                Self::UderrorInd { unitdata: decode_unitdata_req(&mut r)?, error: r.word()? }
            }
            PrimitiveCode::InfoReq => Self::InfoReq,
            PrimitiveCode::InfoAck => Self::InfoAck(decode_info(&mut r)?),
            PrimitiveCode::BindReq => Self::BindReq { addresses: r.addresses()?, backlog: r.word()? },
            PrimitiveCode::BindAck => Self::BindAck { addresses: r.addresses()?, backlog: r.word()? },
            PrimitiveCode::UnbindReq => Self::UnbindReq,
            PrimitiveCode::OkAck => Self::OkAck { primitive: decode_code(&mut r)? },
            PrimitiveCode::ErrorAck => Self::ErrorAck {
                primitive: decode_code(&mut r)?,
                t_error: decode_t_error(&mut r)?,
                errno: Errno(r.signed()?),
            },
            PrimitiveCode::ConnReq => {
                let addresses = r.addresses()?;
                r.options()?;
                Self::ConnReq { addresses }
            }
            PrimitiveCode::ConnCon => {
                let addresses = r.addresses()?;
                let (association, outbound_streams, inbound_streams) =
                    option::decode_association(r.options()?)?;
                Self::ConnCon { addresses, association, outbound_streams, inbound_streams }
            }
            PrimitiveCode::ConnInd => {
                let addresses = r.addresses()?;
                r.options()?;
                Self::ConnInd { addresses, sequence: r.word()? }
            }
            PrimitiveCode::ConnRes => {
                let acceptor = r.word()?;
                r.options()?;
                Self::ConnRes { sequence: r.word()?, acceptor }
            }
            PrimitiveCode::DisconReq => {
                let sequence = r.word()?;
                let [reason, has_number, number] = r.appended()?;
                let association = which::from_words([has_number, number])?;
                Self::DisconReq { sequence, reason, association }
            }
            PrimitiveCode::DisconInd => {
                let (reason, sequence) = (r.word()?, r.word()?);
                let [has_number, number, cause] = r.appended()?;
                let association = which::from_words([has_number, number])?;
                let cause = u16::try_from(cause).map_err(|_| DecodeError::BadValue(cause))?;
                Self::DisconInd { reason, sequence, association, cause }
            }
            PrimitiveCode::OrdrelReq => Self::OrdrelReq { association: which::from_words(r.appended()?)? },
            PrimitiveCode::OrdrelInd => Self::OrdrelInd { association: which::from_words(r.appended()?)? },
            PrimitiveCode::OptmgmtReq => Self::OptmgmtReq(decode_optmgmt(&mut r)?),
            PrimitiveCode::OptmgmtAck => Self::OptmgmtAck(decode_optmgmt(&mut r)?),
            PrimitiveCode::AddrReq => Self::AddrReq,
            PrimitiveCode::AddrAck => Self::AddrAck { local: r.addresses()?, remote: r.addresses()? },
            PrimitiveCode::CapabilityReq => Self::CapabilityReq { bits: r.word()? },
            PrimitiveCode::CapabilityAck => {
                let bits = r.word()?;
                // The structure contains a whole T_INFO_ACK, whose primitive number is skipped.
                r.word()?;
                Self::CapabilityAck { bits, info: decode_info(&mut r)?, acceptor: r.word()? }
            }
        })
    }
}

fn decode_more(r: &mut Reader<'_>) -> Result<bool, DecodeError> {
    Ok(r.word()? & MORE_FLAG != 0)
}

fn decode_optdata_req(r: &mut Reader<'_>) -> Result<Primitive, DecodeError> {
    let more = decode_more(r)?;
    let (association, info) = option::decode_send(r.options()?)?;
    Ok(Primitive::OptdataReq { association, info: SendInfo { more, ..info } })
}

/// Decodes a `T_OPTDATA_IND`, or a notification if its options contain one.
fn decode_optdata_ind(r: &mut Reader<'_>) -> Result<Primitive, DecodeError> {
    let more = decode_more(r)?;
    let options = r.options()?;
    if let Some(notification) = option::decode_notification(options)? {
        return Ok(Primitive::NotificationInd(Box::new(notification)));
    }
    let (association, info) = option::decode_receive(options)?;
    Ok(Primitive::OptdataInd { association, info: RecvInfo { more, ..info } })
}

fn encode_unitdata_req(w: &mut Writer, unitdata: &Unitdata<SendInfo>) {
    w.addresses(&unitdata.addresses);
    w.options(option::encode_send(Which::Only, &unitdata.info));
}

fn decode_unitdata_req(r: &mut Reader<'_>) -> Result<Box<Unitdata<SendInfo>>, DecodeError> {
    let addresses = *r.addresses()?;
    let (_, info) = option::decode_send(r.options()?)?;
    Ok(Box::new(Unitdata { addresses, info }))
}

fn decode_unitdata_ind(r: &mut Reader<'_>) -> Result<Box<Unitdata<RecvInfo>>, DecodeError> {
    let addresses = *r.addresses()?;
    let (_, info) = option::decode_receive(r.options()?)?;
    Ok(Box::new(Unitdata { addresses, info }))
}

fn decode_optmgmt(r: &mut Reader<'_>) -> Result<Box<Optmgmt>, DecodeError> {
    let options = r.options()?.to_vec();
    Ok(Box::new(Optmgmt { options, flags: r.word()? }))
}

fn decode_code(r: &mut Reader<'_>) -> Result<PrimitiveCode, DecodeError> {
    let number = r.word()?;
    PrimitiveCode::from_number(number).ok_or(DecodeError::UnknownPrimitive(number))
}

fn decode_t_error(r: &mut Reader<'_>) -> Result<TError, DecodeError> {
    let number = r.word()?;
    TError::from_number(number).ok_or(DecodeError::BadValue(number))
}

fn encode_info(w: &mut Writer, info: &Info) {
    w.signed(info.tsdu_bytes);
    w.signed(info.etsdu_bytes);
    w.signed(info.connect_data_bytes);
    w.signed(info.disconnect_data_bytes);
    w.signed(info.address_bytes);
    w.signed(info.options_bytes);
    w.signed(info.tidu_bytes);
    w.word(info.service);
    w.word(info.state);
    w.word(info.provider_flags);
}

fn decode_info(r: &mut Reader<'_>) -> Result<Box<Info>, DecodeError> {
    Ok(Box::new(Info {
        tsdu_bytes: r.signed()?,
        etsdu_bytes: r.signed()?,
        connect_data_bytes: r.signed()?,
        disconnect_data_bytes: r.signed()?,
        address_bytes: r.signed()?,
        options_bytes: r.signed()?,
        tidu_bytes: r.signed()?,
        service: r.word()?,
        state: r.word()?,
        provider_flags: r.word()?,
    }))
}
