//! Options for fragmentation, sending, receiving and notifications (RFC 6458 §8.1.5, §8.1.7, §8.1.13 to §8.1.31).

use std::rc::Rc;

use channel_protocol::abi::{
    IPPROTO_SCTP, SCTP_ABORT, SCTP_ADAPTATION_LAYER, SCTP_ADDR_OVER, SCTP_CONTEXT, SCTP_DEFAULT_SEND_PARAM,
    SCTP_DEFAULT_SNDINFO, SCTP_DISABLE_FRAGMENTS, SCTP_EOF, SCTP_EVENT, SCTP_EVENTS,
    SCTP_EXPOSE_POTENTIALLY_FAILED_STATE, SCTP_FRAGMENT_INTERLEAVE, SCTP_I_WANT_MAPPED_V4_ADDR,
    SCTP_MAX_BURST, SCTP_MAXSEG, SCTP_NODELAY, SCTP_PARTIAL_DELIVERY_POINT, SCTP_RECVNXTINFO,
    SCTP_RECVRCVINFO, SCTP_REUSE_PORT, SCTP_STREAM_SCHEDULER, SCTP_STREAM_SCHEDULER_VALUE, SCTP_UNORDERED,
};
use channel_protocol::status_page::Subscriptions;
use rustix::io::Errno;

use super::value::{ASSOC_VALUE_BYTES, Build, Value, number};
use super::{Access, Current, FUTURE, room_for_number, switch};
use crate::state::association::SocketAssociation;
use crate::state::association_options::{AssocOptions, Sending};
use crate::state::notification_type::{FIRST_TYPE, NotificationType};
use crate::system::addresses::Family;

const SNDRCVINFO_BYTES: usize = 32;
const SNDINFO_BYTES: usize = 16;
const EVENT_BYTES: usize = 8;
/// Size of a `struct sctp_event_subscribe`: one byte for each kind of notification.
const SUBSCRIPTIONS: usize = 14;

/// Flags that may be defaults for all messages.
const SEND_FLAGS: u16 = SCTP_UNORDERED | SCTP_ADDR_OVER | SCTP_ABORT | SCTP_EOF;
/// Payload of one DATA chunk in a packet of the minimum MTU (512 bytes) with IPv4 headers.
const SEGMENT_BYTES_MIN: u32 = 512 - 20 - 12 - 16;
const IPV6_HEADER_MORE_BYTES: u32 = 20;
/// The payload of the longest DATA chunk.
const SEGMENT_BYTES_MAX: u32 = 65_516;
/// Default of `SCTP_MAX_BURST` on Linux.
const BURST_MAX: u32 = 4;
/// The largest valid scheduler: first come first served, priorities, round robin.
const SCHEDULER_MAX: u32 = 2;
/// `SCTP_PF_EXPOSE_ENABLE`.
const EXPOSE_MAX: u32 = 2;

pub(super) fn set(access: &mut Access<'_>, name: i32, value: &[u8]) -> Option<Result<(), Errno>> {
    Some(match name {
        SCTP_NODELAY => switch(value).map(|on| {
            access.options_mut().set_nodelay(on);
            access.apply_to_all();
        }),
        SCTP_ADAPTATION_LAYER => {
            Value::exactly(value, 4).map(|value| access.options_mut().set_adaptation(value.u32(0)))
        }
        SCTP_DISABLE_FRAGMENTS => switch(value).map(|on| {
            access.keep(name, on.into());
            access.limit_messages();
        }),
        SCTP_I_WANT_MAPPED_V4_ADDR => {
            switch(value).map(|on| access.socket.subscribe(Subscriptions::OWN_V4, !on))
        }
        SCTP_FRAGMENT_INTERLEAVE => {
            Value::exactly(value, 4).map(|value| access.options_mut().set_interleaves(value.i32(0) != 0))
        }
        SCTP_REUSE_PORT => set_reuse_port(access, value),
        SCTP_PARTIAL_DELIVERY_POINT => set_partial_delivery_point(access, value),
        SCTP_RECVRCVINFO => switch(value).map(|on| access.socket.subscribe(Subscriptions::RCVINFO, on)),
        SCTP_RECVNXTINFO => switch(value).map(|on| access.socket.subscribe(Subscriptions::NXTINFO, on)),
        SCTP_EVENTS => subscribe_to_all(access, value),
        SCTP_EVENT => subscribe(access, value),
        SCTP_DEFAULT_SEND_PARAM => set_sndrcvinfo(access, value),
        SCTP_DEFAULT_SNDINFO => set_sndinfo(access, value),
        SCTP_MAXSEG => set_segment(access, value),
        SCTP_MAX_BURST => set_burst(access, value),
        SCTP_CONTEXT => set_context(access, value),
        SCTP_STREAM_SCHEDULER => set_scheduler(access, value),
        SCTP_STREAM_SCHEDULER_VALUE => set_scheduler_value(access, value),
        SCTP_EXPOSE_POTENTIALLY_FAILED_STATE => set_exposes(access, value),
        _ => return None,
    })
}

pub(super) fn get(access: &Access<'_>, name: i32, given: &[u8]) -> Option<Result<Vec<u8>, Errno>> {
    let options = access.options();
    let plain = match name {
        SCTP_NODELAY => options.nodelay().into(),
        SCTP_ADAPTATION_LAYER => options.adaptation().cast_signed(),
        SCTP_DISABLE_FRAGMENTS | SCTP_REUSE_PORT => access.kept(name).unwrap_or(0),
        SCTP_FRAGMENT_INTERLEAVE => options.interleaves().into(),
        SCTP_I_WANT_MAPPED_V4_ADDR => (!options.subscriptions().contains(Subscriptions::OWN_V4)).into(),
        SCTP_PARTIAL_DELIVERY_POINT => options.partial_delivery_point().cast_signed(),
        SCTP_RECVRCVINFO => options.subscriptions().contains(Subscriptions::RCVINFO).into(),
        SCTP_RECVNXTINFO => options.subscriptions().contains(Subscriptions::NXTINFO).into(),
        SCTP_EVENTS => return Some(subscriptions(access, given)),
        SCTP_EVENT => return Some(subscription(access, given)),
        SCTP_DEFAULT_SEND_PARAM => return Some(sndrcvinfo(access, given)),
        SCTP_DEFAULT_SNDINFO => return Some(sndinfo(access, given)),
        SCTP_MAXSEG => return Some(segment(access, given)),
        SCTP_MAX_BURST => return Some(burst(access, given)),
        SCTP_CONTEXT => return Some(option_of(access, given, AssocOptions::context)),
        SCTP_STREAM_SCHEDULER => return Some(option_of(access, given, AssocOptions::scheduler)),
        SCTP_STREAM_SCHEDULER_VALUE => return Some(scheduler_value(access, given)),
        SCTP_EXPOSE_POTENTIALLY_FAILED_STATE => {
            return Some(option_of(access, given, AssocOptions::exposes_failing));
        }
        _ => return None,
    };
    Some(room_for_number(given).map(|_| number(plain)))
}

impl Access<'_> {
    /// Stores a number that has no further effect.
    fn keep(&mut self, name: i32, value: i32) {
        self.options_mut().keep((IPPROTO_SCTP, name), value);
    }

    fn kept(&self, name: i32) -> Option<i32> {
        self.options().kept((IPPROTO_SCTP, name))
    }

    /// Makes a notification due if all data of the association is acknowledged already: the program has just subscribed to that
    /// event.
    pub(super) fn note_if_dry(&self, assoc: Rc<SocketAssociation>) {
        if assoc.is_dry() {
            self.socket.due_dry().add(assoc);
        }
    }

    /// Shows the sharers whether a future association, or one that there is, subscribes to the information
    /// about received messages.
    pub(super) fn show_subscribers(&mut self, is_one_subscribed: bool) {
        let sndrcv = is_one_subscribed || self.options().future().subscribes(0);
        self.socket.subscribe(Subscriptions::SNDRCV, sndrcv);
    }
}

/// Returns a `struct sctp_assoc_value` with an option of an association, or of future associations.
pub(super) fn option_of(
    access: &Access<'_>,
    given: &[u8],
    what: impl Fn(&AssocOptions) -> u32,
) -> Result<Vec<u8>, Errno> {
    let given = Value::at_least(given, ASSOC_VALUE_BYTES)?;
    let assoc_options = access.assoc_options_of(given.i32(0))?;
    Ok(Build::after(given, 4).u32(what(&assoc_options)).finish())
}

/// Sets `SO_REUSEPORT`, for listeners on the same port; must precede the bind.
fn set_reuse_port(access: &mut Access<'_>, value: &[u8]) -> Result<(), Errno> {
    if !access.is_one_to_one() {
        return Err(Errno::OPNOTSUPP);
    }
    if access.socket.addresses().is_bound() {
        return Err(Errno::FAULT);
    }
    let on = switch(value)?;
    access.keep(SCTP_REUSE_PORT, on.into());
    Ok(())
}

/// Sets the partial delivery point, at most half of the receive buffer.
fn set_partial_delivery_point(access: &mut Access<'_>, value: &[u8]) -> Result<(), Errno> {
    let bytes = Value::exactly(value, 4)?.u32(0);
    if bytes as usize > access.options().receive_buffer_bytes() / 2 {
        return Err(Errno::INVAL);
    }
    access.options_mut().set_partial_delivery_point(bytes);
    access.apply_to_all();
    Ok(())
}

/// Sets `struct sctp_event_subscribe`, which may be truncated, for the socket and all its associations.
fn subscribe_to_all(access: &mut Access<'_>, value: &[u8]) -> Result<(), Errno> {
    if value.len() > SUBSCRIPTIONS {
        return Err(Errno::INVAL);
    }
    for (kind, on) in value.iter().enumerate() {
        access.options_mut().future_mut().subscribe(kind, *on != 0);
    }
    let future = access.socket.future_options();
    access.socket.subscribe(Subscriptions::SNDRCV, future.subscribes(0));
    let wants_dry = future.subscribes(NotificationType::SenderDry.subscription());
    access.for_all().change(move |assoc_options| assoc_options.subscribe_as(&future));
    if wants_dry && access.association(FUTURE).is_some() {
        access.for_all().note_dry();
    }
    Ok(())
}

fn subscriptions(access: &Access<'_>, given: &[u8]) -> Result<Vec<u8>, Errno> {
    if given.is_empty() {
        return Err(Errno::INVAL);
    }
    let assoc_options = access.socket.future_options();
    Ok((0..SUBSCRIPTIONS.min(given.len())).map(|kind| assoc_options.subscribes(kind).into()).collect())
}

/// Sets `struct sctp_event`.
fn subscribe(access: &mut Access<'_>, value: &[u8]) -> Result<(), Errno> {
    let value = Value::at_least(value, EVENT_BYTES)?;
    let (kind, on) = (kind_of(value)?, value.u8(6) != 0);
    let targets = access.several(value.i32(0))?;
    access.change_targets(&targets, move |assoc_options| assoc_options.subscribe(kind, on));
    if on && kind == NotificationType::SenderDry.subscription() {
        match targets.current {
            Current::None => {}
            Current::One(assoc) => access.note_if_dry(assoc),
            Current::All => access.for_all().note_dry(),
        }
    }
    if kind == 0 {
        access.for_all().count_subscribers();
    }
    Ok(())
}

fn subscription(access: &Access<'_>, given: &[u8]) -> Result<Vec<u8>, Errno> {
    let given = Value::at_least(given, EVENT_BYTES)?;
    let kind = kind_of(given)?;
    let on = access.assoc_options_of(given.i32(0))?.subscribes(kind);
    Ok(Build::after(given, 6).u8(on.into()).pad(EVENT_BYTES).finish())
}

/// Returns the distance of a kind of notification from the first.
fn kind_of(value: Value<'_>) -> Result<usize, Errno> {
    let kind = usize::from(value.u16(4)).checked_sub(FIRST_TYPE.into());
    kind.filter(|kind| *kind < SUBSCRIPTIONS).ok_or(Errno::INVAL)
}

/// Sets the defaults in a `struct sctp_sndrcvinfo`.
fn set_sndrcvinfo(access: &mut Access<'_>, value: &[u8]) -> Result<(), Errno> {
    let value = Value::exactly(value, SNDRCVINFO_BYTES)?;
    let sending = Sending {
        stream: value.u16(0),
        flags: value.u16(4),
        ppid: value.u32(8),
        context: value.u32(12),
        lifetime_ms: value.u32(16),
    };
    check_flags(sending)?;
    access.set_several(value.i32(28), move |assoc_options| assoc_options.set_sending(sending))
}

fn sndrcvinfo(access: &Access<'_>, given: &[u8]) -> Result<Vec<u8>, Errno> {
    let given = Value::at_least(given, SNDRCVINFO_BYTES)?;
    let Sending { stream, flags, ppid, context, lifetime_ms } =
        access.assoc_options_of(given.i32(28))?.sending();
    let value = Build::new().u16(stream).u16(given.u16(2)).u16(flags).u16(given.u16(6)).u32(ppid);
    let value = value.u32(context).u32(lifetime_ms).u32(given.u32(20)).u32(given.u32(24));
    Ok(value.u32(given.u32(28)).finish())
}

/// Sets the defaults in a `struct sctp_sndinfo`. The lifetime has another option.
fn set_sndinfo(access: &mut Access<'_>, value: &[u8]) -> Result<(), Errno> {
    let value = Value::exactly(value, SNDINFO_BYTES)?;
    let sending = Sending {
        stream: value.u16(0),
        flags: value.u16(2),
        ppid: value.u32(4),
        context: value.u32(8),
        lifetime_ms: 0,
    };
    check_flags(sending)?;
    access.set_several(value.i32(12), move |assoc_options| {
        let lifetime_ms = assoc_options.sending().lifetime_ms;
        assoc_options.set_sending(Sending { lifetime_ms, ..sending });
    })
}

fn sndinfo(access: &Access<'_>, given: &[u8]) -> Result<Vec<u8>, Errno> {
    let given = Value::at_least(given, SNDINFO_BYTES)?;
    let Sending { stream, flags, ppid, context, .. } = access.assoc_options_of(given.i32(12))?.sending();
    Ok(Build::new().u16(stream).u16(flags).u32(ppid).u32(context).u32(given.u32(12)).finish())
}

fn check_flags(sending: Sending) -> Result<(), Errno> {
    if sending.flags & !SEND_FLAGS == 0 { Ok(()) } else { Err(Errno::INVAL) }
}

/// Parses a `struct sctp_assoc_value`; a single `int` applies to future associations.
fn value_for(value: &[u8]) -> Result<(i32, u32), Errno> {
    match Value::exactly(value, 4) {
        Ok(alone) => Ok((FUTURE, alone.u32(0))),
        Err(_) => Value::exactly(value, ASSOC_VALUE_BYTES).map(|value| (value.i32(0), value.u32(4))),
    }
}

/// Returns a `struct sctp_assoc_value`, or its value alone if there is no room for more.
fn value_of(
    access: &Access<'_>,
    given: &[u8],
    what: impl Fn(i32) -> Result<u32, Errno>,
) -> Result<Vec<u8>, Errno> {
    if given.len() == 4 {
        let id = if access.is_one_to_many() { FUTURE } else { 0 };
        return what(id).map(|value| number(value.cast_signed()));
    }
    let given = Value::at_least(given, ASSOC_VALUE_BYTES)?;
    Ok(Build::after(given, 4).u32(what(given.i32(0))?).finish())
}

fn set_segment(access: &mut Access<'_>, value: &[u8]) -> Result<(), Errno> {
    let (id, bytes) = value_for(value)?;
    let least =
        SEGMENT_BYTES_MIN - if access.socket.family() == Family::V6 { IPV6_HEADER_MORE_BYTES } else { 0 };
    if bytes != 0 && !(least..=SEGMENT_BYTES_MAX).contains(&bytes) {
        return Err(Errno::INVAL);
    }
    access.set_one(id, |assoc_options| assoc_options.set_segment_bytes_max(bytes))?;
    access.limit_messages();
    Ok(())
}

/// Returns the fragmentation point; for an association, the one in use.
fn segment(access: &Access<'_>, given: &[u8]) -> Result<Vec<u8>, Errno> {
    value_of(access, given, |id| {
        let found = access.one(id)?;
        let in_use = found.as_ref().and_then(|assoc| assoc.fragmentation_point_bytes());
        Ok(match in_use {
            Some(bytes) => u32::try_from(bytes).unwrap_or(u32::MAX),
            None => access.assoc_options(found.as_ref()).segment_bytes_max(),
        })
    })
}

fn set_burst(access: &mut Access<'_>, value: &[u8]) -> Result<(), Errno> {
    let (id, packets) = value_for(value)?;
    access.set_several(id, move |assoc_options| assoc_options.set_burst_max(packets))
}

/// Returns `SCTP_MAX_BURST`. As on Linux, further bytes of the buffer are returned unchanged.
fn burst(access: &Access<'_>, given: &[u8]) -> Result<Vec<u8>, Errno> {
    let packets = |id| Ok(access.assoc_options_of(id)?.burst_max().unwrap_or(BURST_MAX));
    let mut value = value_of(access, given, packets)?;
    value.extend(given.get(value.len()..).unwrap_or_default());
    Ok(value)
}

fn set_context(access: &mut Access<'_>, value: &[u8]) -> Result<(), Errno> {
    let value = Value::exactly(value, ASSOC_VALUE_BYTES)?;
    let context = value.u32(4);
    access.set_several(value.i32(0), move |assoc_options| assoc_options.set_context(context))
}

/// Stores a scheduler, which has no effect: here no stream waits for another.
fn set_scheduler(access: &mut Access<'_>, value: &[u8]) -> Result<(), Errno> {
    let value = Value::at_least(value, ASSOC_VALUE_BYTES)?;
    let scheduler = value.u32(4);
    if scheduler > SCHEDULER_MAX {
        return Err(Errno::INVAL);
    }
    access.set_several(value.i32(0), move |assoc_options| assoc_options.set_scheduler(scheduler))
}

/// Checks a `struct sctp_stream_value`, whose stream must exist; its value has no effect.
fn set_scheduler_value(access: &mut Access<'_>, value: &[u8]) -> Result<(), Errno> {
    let value = Value::at_least(value, ASSOC_VALUE_BYTES)?;
    match access.association(value.i32(0)) {
        Some(assoc) if value.u16(4) >= assoc.streams_out() => Err(Errno::INVAL),
        None if value.i32(0) != super::CURRENT && access.is_one_to_many() => Err(Errno::INVAL),
        _ => Ok(()),
    }
}

/// Returns a `struct sctp_stream_value` with the program's own value, since streams have none here.
fn scheduler_value(access: &Access<'_>, given: &[u8]) -> Result<Vec<u8>, Errno> {
    let given = Value::at_least(given, ASSOC_VALUE_BYTES)?;
    let assoc = access.association(given.i32(0)).ok_or(Errno::INVAL)?;
    if given.u16(4) >= assoc.streams_out() {
        return Err(Errno::INVAL);
    }
    Ok(Build::after(given, ASSOC_VALUE_BYTES).finish())
}

fn set_exposes(access: &mut Access<'_>, value: &[u8]) -> Result<(), Errno> {
    let value = Value::exactly(value, ASSOC_VALUE_BYTES)?;
    if value.u32(4) > EXPOSE_MAX {
        return Err(Errno::INVAL);
    }
    access.set_one(value.i32(0), |assoc_options| assoc_options.set_exposes_failing(value.u32(4)))
}
