//! Options of extensions: ECN, which is supported, and others, which are not: authentication (RFC 4895), changes of addresses
//! (RFC 5061), stream reconfiguration (RFC 6525), partial reliability (RFC 3758, RFC 7496), interleaving (RFC 8260). The options
//! of the others behave as on Linux with these extensions switched off.

use std::rc::Rc;

use channel_protocol::abi::{
    IPPROTO_SCTP, SCTP_ADD_STREAMS, SCTP_ASCONF_SUPPORTED, SCTP_AUTH_ACTIVE_KEY, SCTP_AUTH_CHUNK,
    SCTP_AUTH_DEACTIVATE_KEY, SCTP_AUTH_DELETE_KEY, SCTP_AUTH_KEY, SCTP_AUTH_SUPPORTED, SCTP_AUTO_ASCONF,
    SCTP_DEFAULT_PRINFO, SCTP_ECN_SUPPORTED, SCTP_ENABLE_STREAM_RESET, SCTP_HMAC_IDENT,
    SCTP_INTERLEAVING_SUPPORTED, SCTP_LOCAL_AUTH_CHUNKS, SCTP_PEER_AUTH_CHUNKS, SCTP_PR_ASSOC_STATUS,
    SCTP_PR_STREAM_STATUS, SCTP_PR_SUPPORTED, SCTP_RECONFIG_SUPPORTED, SCTP_RESET_ASSOC, SCTP_RESET_STREAMS,
    SCTP_SET_PEER_PRIMARY_ADDR,
};
use rustix::io::Errno;

use super::messages::option_of;
use super::value::{ASSOC_VALUE_BYTES, Build, Value, number};
use super::{Access, Current, room_for_number, switch};
use crate::state::association::SocketAssociation;
use crate::state::association_options::AssocOptions;

const SETPEERPRIM_BYTES: usize = 132;
const AUTH_KEY_BYTES: usize = 8;
const PRINFO_BYTES: usize = 12;
const PRSTATUS_BYTES: usize = 24;

/// The policies of partial reliability, and the value for all of them.
const POLICY: u16 = 0x30;
const POLICIES_ALL: u16 = 0x80;
/// The flags of `SCTP_ENABLE_STREAM_RESET`.
const STREAM_RESETS: u32 = 7;

pub(super) fn set(access: &mut Access<'_>, name: i32, value: &[u8]) -> Option<Result<(), Errno>> {
    Some(match name {
        SCTP_SET_PEER_PRIMARY_ADDR => set_peer_primary(access, value),
        SCTP_AUTH_CHUNK | SCTP_HMAC_IDENT => Err(Errno::ACCESS),
        SCTP_AUTH_KEY if value.len() <= AUTH_KEY_BYTES => Err(Errno::INVAL),
        SCTP_AUTH_KEY => refuse_key(access, value),
        SCTP_AUTH_ACTIVE_KEY | SCTP_AUTH_DELETE_KEY | SCTP_AUTH_DEACTIVATE_KEY => {
            Value::exactly(value, AUTH_KEY_BYTES).and_then(|_| refuse_key(access, value))
        }
        SCTP_AUTO_ASCONF => set_auto_asconf(access, value),
        SCTP_PR_SUPPORTED
        | SCTP_RECONFIG_SUPPORTED
        | SCTP_ASCONF_SUPPORTED
        | SCTP_AUTH_SUPPORTED
        | SCTP_ECN_SUPPORTED => set_offer(access, name, value),
        SCTP_INTERLEAVING_SUPPORTED => {
            let checked = Value::at_least(value, ASSOC_VALUE_BYTES);
            checked.and_then(|value| access.one(value.i32(0))).and(Err(Errno::PERM))
        }
        SCTP_DEFAULT_PRINFO => set_policy(access, value),
        SCTP_ENABLE_STREAM_RESET => set_stream_resets(access, value),
        SCTP_RESET_STREAMS => Value::at_least(value, 8).and_then(|value| refuse_reset(access, value.i32(0))),
        SCTP_RESET_ASSOC => Value::exactly(value, 4).and_then(|value| refuse_reset(access, value.i32(0))),
        SCTP_ADD_STREAMS => Value::exactly(value, 8).and_then(|value| refuse_reset(access, value.i32(0))),
        _ => return None,
    })
}

pub(super) fn get(access: &Access<'_>, name: i32, given: &[u8]) -> Option<Result<Vec<u8>, Errno>> {
    Some(match name {
        SCTP_AUTH_CHUNK | SCTP_AUTH_KEY | SCTP_AUTH_DELETE_KEY | SCTP_AUTH_DEACTIVATE_KEY => {
            Err(Errno::OPNOTSUPP)
        }
        SCTP_HMAC_IDENT => Err(Errno::ACCESS),
        SCTP_AUTH_ACTIVE_KEY | SCTP_LOCAL_AUTH_CHUNKS => {
            let checked = Value::at_least(given, AUTH_KEY_BYTES);
            checked.and_then(|given| access.one(given.i32(0))).and(Err(Errno::ACCESS))
        }
        SCTP_PEER_AUTH_CHUNKS => {
            let checked = Value::at_least(given, AUTH_KEY_BYTES);
            checked
                .and_then(|given| access.association(given.i32(0)).ok_or(Errno::INVAL))
                .and(Err(Errno::ACCESS))
        }
        SCTP_AUTO_ASCONF => room_for_number(given).map(|_| number(access.is_kept(name).into())),
        SCTP_PR_SUPPORTED
        | SCTP_RECONFIG_SUPPORTED
        | SCTP_ASCONF_SUPPORTED
        | SCTP_AUTH_SUPPORTED
        | SCTP_ECN_SUPPORTED => offer(access, name, given),
        SCTP_INTERLEAVING_SUPPORTED => option_of(access, given, |_| 0),
        SCTP_DEFAULT_PRINFO => policy(access, given),
        SCTP_PR_ASSOC_STATUS => abandoned(access, given).map(|(_, counts)| counts),
        SCTP_PR_STREAM_STATUS => abandoned_of_stream(access, given),
        SCTP_ENABLE_STREAM_RESET => option_of(access, given, AssocOptions::stream_resets),
        _ => return None,
    })
}

impl Access<'_> {
    fn is_kept(&self, name: i32) -> bool {
        self.options().is_kept_on((IPPROTO_SCTP, name))
    }
}

/// `struct sctp_setpeerprim`: fails, since asking the peer needs an extension.
fn set_peer_primary(access: &Access<'_>, value: &[u8]) -> Result<(), Errno> {
    if access.options().offer(SCTP_ASCONF_SUPPORTED) != Some(true) {
        return Err(Errno::PERM);
    }
    let value = Value::exactly(value, SETPEERPRIM_BYTES)?;
    access.association(value.i32(0)).ok_or(Errno::INVAL).and(Err(Errno::PERM))
}

/// `struct sctp_authkeyid` and `struct sctp_authkey`: fails, unless the option addresses no association at all.
fn refuse_key(access: &Access<'_>, value: &[u8]) -> Result<(), Errno> {
    let targets = access.several(Value::at_least(value, 4)?.i32(0))?;
    let anybody = match targets.current {
        Current::None => targets.future,
        Current::One(_) => true,
        Current::All => targets.future || !access.socket.associations().is_empty(),
    };
    if anybody { Err(Errno::ACCESS) } else { Ok(()) }
}

/// Sets `SCTP_AUTO_ASCONF`, which the kernel permits only for a socket bound to all addresses.
fn set_auto_asconf(access: &mut Access<'_>, value: &[u8]) -> Result<(), Errno> {
    let on = switch(value)?;
    let bound_to_all = access.socket.addresses().bound().is_some_and(|bound| bound.has_wildcard());
    if on && !bound_to_all {
        return Err(Errno::INVAL);
    }
    access.options_mut().keep((IPPROTO_SCTP, SCTP_AUTO_ASCONF), on.into());
    Ok(())
}

/// Sets whether future associations offer an extension. An existing association keeps what it has negotiated.
fn set_offer(access: &mut Access<'_>, name: i32, value: &[u8]) -> Result<(), Errno> {
    let value = Value::exactly(value, ASSOC_VALUE_BYTES)?;
    if access.one(value.i32(0))?.is_none() {
        access.options_mut().set_offer(name, value.u32(4) != 0);
    }
    Ok(())
}

/// Returns whether an association has an extension, or future ones offer it. ECN alone is supported.
fn offer(access: &Access<'_>, name: i32, given: &[u8]) -> Result<Vec<u8>, Errno> {
    let given = Value::at_least(given, ASSOC_VALUE_BYTES)?;
    let agreed = name == SCTP_ECN_SUPPORTED;
    let offers = access.options().offer(name).unwrap_or(agreed);
    let on = if access.one(given.i32(0))?.is_some() { agreed } else { offers };
    Ok(Build::after(given, 4).u32(on.into()).finish())
}

/// Sets the policy in a `struct sctp_default_prinfo`, which is stored without effect.
fn set_policy(access: &mut Access<'_>, value: &[u8]) -> Result<(), Errno> {
    let value = Value::exactly(value, PRINFO_BYTES)?;
    let policy = value.u16(8);
    if policy & !POLICY != 0 {
        return Err(Errno::INVAL);
    }
    let number = if policy == 0 { 0 } else { value.u32(4) };
    access.set_several(value.i32(0), move |assoc_options| assoc_options.set_policy(policy, number))
}

fn policy(access: &Access<'_>, given: &[u8]) -> Result<Vec<u8>, Errno> {
    let given = Value::at_least(given, PRINFO_BYTES)?;
    let (policy, number) = access.assoc_options_of(given.i32(0))?.policy();
    Ok(Build::after(given, 4).u32(number).u16(policy).u16(given.u16(10)).finish())
}

/// `struct sctp_prstatus`: all counts are zero, since no message is ever abandoned.
/// Returns the association, too.
fn abandoned(access: &Access<'_>, given: &[u8]) -> Result<(Rc<SocketAssociation>, Vec<u8>), Errno> {
    let given = Value::at_least(given, PRSTATUS_BYTES)?;
    let policy = given.u16(6);
    let assoc = access.association(given.i32(0));
    if policy == 0 || policy & !(POLICY | POLICIES_ALL) != 0 {
        return Err(Errno::INVAL);
    }
    Ok((assoc.ok_or(Errno::INVAL)?, Build::after(given, 8).pad(PRSTATUS_BYTES).finish()))
}

/// As [`abandoned`], for a stream that the association has.
fn abandoned_of_stream(access: &Access<'_>, given: &[u8]) -> Result<Vec<u8>, Errno> {
    let (assoc, counts) = abandoned(access, given)?;
    let stream = Value::at_least(given, PRSTATUS_BYTES)?.u16(4);
    if stream < assoc.streams_out() { Ok(counts) } else { Err(Errno::INVAL) }
}

fn set_stream_resets(access: &mut Access<'_>, value: &[u8]) -> Result<(), Errno> {
    let value = Value::exactly(value, ASSOC_VALUE_BYTES)?;
    let resets = value.u32(4);
    if resets & !STREAM_RESETS != 0 {
        return Err(Errno::INVAL);
    }
    access.set_several(value.i32(0), move |assoc_options| assoc_options.set_stream_resets(resets))
}

/// Fails, since the peer does not support stream reconfiguration.
fn refuse_reset(access: &Access<'_>, id: i32) -> Result<(), Errno> {
    access.association(id).ok_or(Errno::INVAL).and(Err(Errno::NOPROTOOPT))
}
