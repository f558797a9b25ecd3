//! Options for timeouts, retransmission limits, the handshake, SACKs and autoclose (RFC 6458 §8.1.1 to §8.1.3, §8.1.8,
//! §8.1.19).

use channel_protocol::abi::{SCTP_ASSOCINFO, SCTP_AUTOCLOSE, SCTP_DELAYED_SACK, SCTP_INITMSG, SCTP_RTOINFO};
use rustix::io::Errno;
use swiftwater::internals::AssociationView;

use super::value::{ASSOC_VALUE_BYTES, Build, Value, number};
use super::{Access, room_for_number};
use crate::state::association_options::RtoInfo;

const RTOINFO_BYTES: usize = 16;
const ASSOCINFO_BYTES: usize = 20;
const INITMSG_BYTES: usize = 8;
const SACK_INFO_BYTES: usize = 12;

/// The maximum delay of a SACK.
pub(super) const SACK_DELAY_MAX_MS: u32 = 500;
/// The maximum of the kernel's timers.
const AUTOCLOSE_MAX_S: u32 = i32::MAX as u32 / 100;

pub(super) fn set(access: &mut Access<'_>, name: i32, value: &[u8]) -> Option<Result<(), Errno>> {
    Some(match name {
        SCTP_RTOINFO => set_rto(access, value),
        SCTP_ASSOCINFO => set_limits(access, value),
        SCTP_INITMSG => set_init(access, value),
        SCTP_AUTOCLOSE => set_autoclose(access, value),
        SCTP_DELAYED_SACK => set_sack(access, value),
        _ => return None,
    })
}

pub(super) fn get(access: &Access<'_>, name: i32, given: &[u8]) -> Option<Result<Vec<u8>, Errno>> {
    Some(match name {
        SCTP_RTOINFO => rto(access, given),
        SCTP_ASSOCINFO => limits(access, given),
        SCTP_INITMSG => init(access, given),
        SCTP_AUTOCLOSE => autoclose(access, given),
        SCTP_DELAYED_SACK => sack(access, given),
        _ => return None,
    })
}

/// Sets the timeouts in a `struct sctp_rtoinfo`. Zero leaves a field unchanged.
fn set_rto(access: &mut Access<'_>, value: &[u8]) -> Result<(), Errno> {
    let value = Value::exactly(value, RTOINFO_BYTES)?;
    let id = value.i32(0);
    let old = access.assoc_options_of(id)?.rto();
    let or = |at: usize, old: u32| if value.u32(at) == 0 { old } else { value.u32(at) };
    let rto =
        RtoInfo { initial_ms: or(4, old.initial_ms), max_ms: or(8, old.max_ms), min_ms: or(12, old.min_ms) };
    if rto.min_ms > rto.max_ms {
        return Err(Errno::INVAL);
    }
    access.set_one(id, |assoc_options| assoc_options.set_rto(rto))
}

fn rto(access: &Access<'_>, given: &[u8]) -> Result<Vec<u8>, Errno> {
    let given = Value::at_least(given, RTOINFO_BYTES)?;
    let RtoInfo { initial_ms, max_ms, min_ms } = access.assoc_options_of(given.i32(0))?.rto();
    Ok(Build::after(given, 4).u32(initial_ms).u32(max_ms).u32(min_ms).finish())
}

/// Sets the limits in a `struct sctp_assocparams`. The association's limit may not exceed the sum of its paths'.
fn set_limits(access: &mut Access<'_>, value: &[u8]) -> Result<(), Errno> {
    let value = Value::exactly(value, ASSOCINFO_BYTES)?;
    let (retries, cookie_life_ms) = (value.u16(4), value.u32(16));
    let found = access.one(value.i32(0))?;
    let of_paths =
        |view: AssociationView<'_>| view.paths().filter_map(|path| path.options().retries_max).sum();
    let several = |view: AssociationView<'_>| (view.paths().count() > 1).then(|| of_paths(view));
    let limit: Option<u32> = found.as_ref().and_then(|assoc| assoc.view(several)).flatten();
    if limit.is_some_and(|limit| u32::from(retries) > limit) {
        return Err(Errno::INVAL);
    }
    access.set_one(value.i32(0), |assoc_options| assoc_options.merge_limits(retries, cookie_life_ms))
}

fn limits(access: &Access<'_>, given: &[u8]) -> Result<Vec<u8>, Errno> {
    let given = Value::at_least(given, ASSOCINFO_BYTES)?;
    let found = access.one(given.i32(0))?;
    let assoc_options = access.assoc_options(found.as_ref());
    let buffer_bytes = access.options().receive_buffer_bytes();
    let known = found.and_then(|assoc| {
        assoc.view(|view| {
            let own_window = buffer_bytes.saturating_sub(view.unread_bytes());
            (view.paths().count(), view.peer_window_bytes(), own_window)
        })
    });
    let (paths, peer_window, own_window) = known.unwrap_or_default();
    let word = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
    let value = Build::after(given, 4).u16(assoc_options.retries_max()).u16(paths as u16);
    Ok(value.u32(word(peer_window)).u32(word(own_window)).u32(assoc_options.cookie_life_ms()).finish())
}

/// Sets the parameters in a `struct sctp_initmsg`.
fn set_init(access: &mut Access<'_>, value: &[u8]) -> Result<(), Errno> {
    let value = Value::exactly(value, INITMSG_BYTES)?;
    access.options_mut().merge_init([value.u16(0), value.u16(2), value.u16(4), value.u16(6)]);
    Ok(())
}

fn init(access: &Access<'_>, given: &[u8]) -> Result<Vec<u8>, Errno> {
    Value::at_least(given, INITMSG_BYTES)?;
    let init = access.options().init();
    let value = Build::new().u16(init.streams_out).u16(init.streams_in_max).u16(init.attempts_max);
    Ok(value.u16(init.timeout_max_ms).finish())
}

/// Sets autoclose in seconds, for future associations of a one-to-many socket.
fn set_autoclose(access: &mut Access<'_>, value: &[u8]) -> Result<(), Errno> {
    if access.is_one_to_one() {
        return Err(Errno::OPNOTSUPP);
    }
    let seconds = Value::exactly(value, 4)?.u32(0).min(AUTOCLOSE_MAX_S);
    access.options_mut().set_autoclose_s(seconds);
    Ok(())
}

fn autoclose(access: &Access<'_>, given: &[u8]) -> Result<Vec<u8>, Errno> {
    if access.is_one_to_one() {
        return Err(Errno::OPNOTSUPP);
    }
    room_for_number(given)?;
    Ok(number(access.options().autoclose_s().cast_signed()))
}

/// Sets the delay in a `struct sctp_sack_info`, or in the older `struct sctp_assoc_value`, which has the delay alone.
fn set_sack(access: &mut Access<'_>, value: &[u8]) -> Result<(), Errno> {
    let of_old = value.len() == ASSOC_VALUE_BYTES;
    let value = Value::exactly(value, if of_old { ASSOC_VALUE_BYTES } else { SACK_INFO_BYTES })?;
    let delay_ms = value.u32(4);
    let frequency = match (of_old, delay_ms) {
        (true, 0) => 1,
        (true, _) => 0,
        (false, _) => value.u32(8),
    };
    if delay_ms > SACK_DELAY_MAX_MS {
        return Err(Errno::INVAL);
    }
    access.set_several(value.i32(0), move |assoc_options| assoc_options.merge_sack(delay_ms, frequency))
}

fn sack(access: &Access<'_>, given: &[u8]) -> Result<Vec<u8>, Errno> {
    let of_old = given.len() == ASSOC_VALUE_BYTES;
    let bytes = if of_old { ASSOC_VALUE_BYTES } else { SACK_INFO_BYTES };
    let given = Value::at_least(given, bytes)?;
    let (delay_ms, frequency) = access.assoc_options_of(given.i32(0))?.sack();
    Ok(Build::after(given, 4).u32(delay_ms).u32(frequency).pad(bytes).finish())
}
