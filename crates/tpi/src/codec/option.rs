//! Options: a list of `t_opthdr` (length, level, name, status), each followed by its value and aligned to four bytes.

use super::address::{INET, INET6};
use super::{DecodeError, which};
use crate::options::T_INET_SCTP;
use crate::options::sctp::{T_SCTP_PPI, T_SCTP_SID, T_SCTP_SSN, T_SCTP_TSN};
use crate::{
    Lifetime, Notification, NotificationKind, PathChange, PathId, PathReason, RecvInfo, SendInfo, Which,
};
use std::net::IpAddr;

/// The names of private options are above the published ones.
const PRIVATE: u32 = 0x8000;
/// Further properties of an outbound message: the two words of the association; context, lifetime in milliseconds, path (0 for
/// none, otherwise its number plus 1) and flags in a word each.
const SEND: u32 = PRIVATE + 1;
/// A new association: its two words, then the outbound and inbound streams in one word.
const ASSOCIATION: u32 = PRIVATE + 2;
/// A notification: the two words of the association, the number of the event, two words that depend on the event, and an
/// address: the number of its family (`AF_INET`, `AF_INET6`) and four words in network order.
const NOTICE: u32 = PRIVATE + 3;
/// Further properties of an inbound message: the two words of the association; cumulative TSN and flags in a word each.
const RECEIVE: u32 = PRIVATE + 4;

const WORD_BYTES: usize = 4;
const HEADER_WORDS: usize = 4;

/// Bits of the last word of [`SEND`] and [`RECEIVE`].
const UNORDERED: u32 = 1;
const MORE: u32 = 2;
const IMMEDIATE: u32 = 4;

/// Encodes the published options of an outbound message, and the private ones that are not at their defaults.
pub(super) fn encode_send(association: Which, info: &SendInfo) -> Vec<u8> {
    let mut options = encode(T_SCTP_SID, &[info.stream.into()]);
    options.extend(encode(T_SCTP_PPI, &[info.ppid]));
    let bit = |is: bool, bit| if is { bit } else { 0 };
    let flags = bit(info.unordered, UNORDERED) | bit(info.more, MORE) | bit(info.immediate, IMMEDIATE);
    let lifetime_ms = info.lifetime.map_or(0, Lifetime::ms);
    let path = info.path.map_or(0, |path| u32::from(path.0) + 1);
    let [has_number, number] = which::words(association);
    let rest = [has_number, number, info.context, lifetime_ms, path, flags];
    if rest != [0; 6] {
        options.extend(encode(SEND, &rest));
    }
    options
}

/// Decodes the association and description of an outbound message. A property without an option is zero.
pub(super) fn decode_send(options: &[u8]) -> Result<(Which, SendInfo), DecodeError> {
    let [has_number, number, context, lifetime_ms, path, flags] = find(options, SEND)?.unwrap_or_default();
    let association = which::from_words([has_number, number])?;
    let bad = DecodeError::BadValue;
    if flags & !(UNORDERED | MORE | IMMEDIATE) != 0 {
        return Err(bad(flags));
    }
    let path = match path {
        0 => None,
        number => Some(PathId(u8::try_from(number - 1).map_err(|_| bad(number))?)),
    };
    let info = SendInfo {
        stream: published_u16(options, T_SCTP_SID)?,
        ppid: published(options, T_SCTP_PPI)?,
        unordered: flags & UNORDERED != 0,
        more: flags & MORE != 0,
        immediate: flags & IMMEDIATE != 0,
        context,
        lifetime: Lifetime::from_ms(lifetime_ms),
        path,
    };
    Ok((association, info))
}

/// Encodes the published options of an inbound message, and the private ones that are not at their defaults.
pub(super) fn encode_receive(association: Which, info: &RecvInfo) -> Vec<u8> {
    let published = [
        (T_SCTP_SID, u32::from(info.stream)),
        (T_SCTP_PPI, info.ppid),
        (T_SCTP_SSN, u32::from(info.ssn)),
        (T_SCTP_TSN, info.tsn),
    ];
    let mut options: Vec<u8> = published.iter().flat_map(|(name, value)| encode(*name, &[*value])).collect();
    let bit = |is: bool, bit| if is { bit } else { 0 };
    let flags = bit(info.unordered, UNORDERED) | bit(info.more, MORE);
    let [has_number, number] = which::words(association);
    let rest = [has_number, number, info.cumulative_tsn, flags];
    if rest != [0; 4] {
        options.extend(encode(RECEIVE, &rest));
    }
    options
}

/// Decodes the association and description of an inbound message. A property without an option is zero.
pub(super) fn decode_receive(options: &[u8]) -> Result<(Which, RecvInfo), DecodeError> {
    let [has_number, number, cumulative_tsn, flags] = find(options, RECEIVE)?.unwrap_or_default();
    let association = which::from_words([has_number, number])?;
    if flags & !(UNORDERED | MORE) != 0 {
        return Err(DecodeError::BadValue(flags));
    }
    let info = RecvInfo {
        stream: published_u16(options, T_SCTP_SID)?,
        ssn: published_u16(options, T_SCTP_SSN)?,
        ppid: published(options, T_SCTP_PPI)?,
        tsn: published(options, T_SCTP_TSN)?,
        cumulative_tsn,
        unordered: flags & UNORDERED != 0,
        more: flags & MORE != 0,
    };
    Ok((association, info))
}

/// Returns the value of a published option; 0 if the list lacks it.
fn published(options: &[u8], name: u32) -> Result<u32, DecodeError> {
    Ok(find(options, name)?.map_or(0, |[value]: [u32; 1]| value))
}

fn published_u16(options: &[u8], name: u32) -> Result<u16, DecodeError> {
    let value = published(options, name)?;
    u16::try_from(value).map_err(|_| DecodeError::BadValue(value))
}

/// Encodes a new association; returns no bytes if all values are zero.
pub(super) fn encode_association(association: Which, outbound_streams: u16, inbound_streams: u16) -> Vec<u8> {
    let streams = pair(outbound_streams, inbound_streams);
    let [has_number, number] = which::words(association);
    match [has_number, number, streams] {
        [0, 0, 0] => Vec::new(),
        words => encode(ASSOCIATION, &words),
    }
}

pub(super) fn decode_association(options: &[u8]) -> Result<(Which, u16, u16), DecodeError> {
    let [has_number, number, streams] = find(options, ASSOCIATION)?.unwrap_or_default();
    let (outbound_streams, inbound_streams) = unpair(streams);
    Ok((which::from_words([has_number, number])?, outbound_streams, inbound_streams))
}

pub(super) fn encode_notification(notification: &Notification) -> Vec<u8> {
    let mut options = match &notification.kind {
        NotificationKind::SendFailed { info, .. } => encode_send(Which::Only, info),
        _ => Vec::new(),
    };
    options.extend(encode(NOTICE, &notice_words(notification)));
    options
}

const AF_INET: u32 = INET as u32;
const AF_INET6: u32 = INET6 as u32;

const PATH_CHANGED: u32 = 1;
const REMOTE_ERROR: u32 = 2;
const SEND_FAILED: u32 = 3;
const SENDER_DRY: u32 = 4;
const ADAPTATION: u32 = 5;
const PARTIAL_DELIVERY_ABORTED: u32 = 6;

const WAS_SENT: u32 = 1;
const BEGINNING: u32 = 2;
const ENDING: u32 = 4;

fn notice_words(notification: &Notification) -> [u32; 10] {
    let kind = notification.kind;
    let (number, first, second) = match kind {
        NotificationKind::PathChanged { change, reason, .. } => (PATH_CHANGED, change as u32, reason as u32),
        NotificationKind::RemoteError { cause } => (REMOTE_ERROR, u32::from(cause), 0),
        NotificationKind::SendFailed { was_sent, beginning, ending, cause, .. } => {
            let of = |is: bool, flag| u32::from(is) * flag;
            let flags = of(was_sent, WAS_SENT) | of(beginning, BEGINNING) | of(ending, ENDING);
            (SEND_FAILED, flags, u32::from(cause))
        }
        NotificationKind::SenderDry => (SENDER_DRY, 0, 0),
        NotificationKind::Adaptation { indication } => (ADAPTATION, indication, 0),
        NotificationKind::PartialDeliveryAborted { stream, ssn } => {
            (PARTIAL_DELIVERY_ABORTED, u32::from(stream), u32::from(ssn))
        }
    };
    let (family, [a, b, c, d]) = match kind {
        NotificationKind::PathChanged { address: IpAddr::V4(address), .. } => {
            (AF_INET, [u32::from_ne_bytes(address.octets()), 0, 0, 0])
        }
        NotificationKind::PathChanged { address: IpAddr::V6(address), .. } => {
            (AF_INET6, v6_words(address.octets()))
        }
        _ => (0, [0; 4]),
    };
    let [has_number, association] = which::words(notification.association);
    [has_number, association, number, first, second, family, a, b, c, d]
}

/// Decodes a notification; `None` if the options contain none.
pub(super) fn decode_notification(options: &[u8]) -> Result<Option<Notification>, DecodeError> {
    let Some([has_number, association, number, first, second, family, a, b, c, d]) = find(options, NOTICE)?
    else {
        return Ok(None);
    };
    let bad = DecodeError::BadValue;
    let narrow = |word: u32| u16::try_from(word).map_err(|_| bad(word));
    let kind = match number {
        PATH_CHANGED => NotificationKind::PathChanged {
            address: match family {
                AF_INET => IpAddr::from(a.to_ne_bytes()),
                AF_INET6 => IpAddr::from(v6_octets([a, b, c, d])),
                _ => return Err(bad(family)),
            },
            change: PathChange::from_number(first).ok_or(bad(first))?,
            reason: PathReason::from_number(second).ok_or(bad(second))?,
        },
        REMOTE_ERROR => NotificationKind::RemoteError { cause: narrow(first)? },
        SEND_FAILED => NotificationKind::SendFailed {
            info: decode_send(options)?.1,
            was_sent: first & WAS_SENT != 0,
            beginning: first & BEGINNING != 0,
            ending: first & ENDING != 0,
            cause: narrow(second)?,
        },
        SENDER_DRY => NotificationKind::SenderDry,
        ADAPTATION => NotificationKind::Adaptation { indication: first },
        PARTIAL_DELIVERY_ABORTED => {
            NotificationKind::PartialDeliveryAborted { stream: narrow(first)?, ssn: narrow(second)? }
        }
        _ => return Err(bad(number)),
    };
    let association = which::from_words([has_number, association])?;
    Ok(Some(Notification { association, kind }))
}

fn v6_words(octets: [u8; 16]) -> [u32; 4] {
    let (quads, _) = octets.as_chunks();
    std::array::from_fn(|at| u32::from_ne_bytes(quads[at]))
}

fn v6_octets(words: [u32; 4]) -> [u8; 16] {
    let quads = words.map(u32::to_ne_bytes);
    std::array::from_fn(|at| quads[at / 4][at % 4])
}

fn encode(name: u32, value: &[u32]) -> Vec<u8> {
    const SUCCESS: u32 = 0x20;
    let len_bytes = ((HEADER_WORDS + value.len()) * WORD_BYTES) as u32;
    let header = [len_bytes, T_INET_SCTP, name, SUCCESS];
    header.iter().chain(value).flat_map(|word| word.to_ne_bytes()).collect()
}

/// Returns the value of the option with this name, if the list contains it. Other options are skipped.
fn find<const N: usize>(mut options: &[u8], name: u32) -> Result<Option<[u32; N]>, DecodeError> {
    while !options.is_empty() {
        let [len_bytes, level, this, _status] = words(options)?;
        let len_bytes = len_bytes as usize;
        if len_bytes < HEADER_WORDS * WORD_BYTES || len_bytes > options.len() {
            return Err(DecodeError::BadOption);
        }
        if (level, this) == (T_INET_SCTP, name) {
            let value = &options[HEADER_WORDS * WORD_BYTES..len_bytes];
            return if value.len() == N * WORD_BYTES {
                words(value).map(Some)
            } else {
                Err(DecodeError::BadOption)
            };
        }
        options = options.get(len_bytes.next_multiple_of(WORD_BYTES)..).unwrap_or_default();
    }
    Ok(None)
}

fn words<const N: usize>(bytes: &[u8]) -> Result<[u32; N], DecodeError> {
    let mut words = [0; N];
    let chunks = bytes.chunks_exact(WORD_BYTES);
    if chunks.len() < N {
        return Err(DecodeError::BadOption);
    }
    for (word, chunk) in words.iter_mut().zip(chunks) {
        *word = chunk.try_into().map(u32::from_ne_bytes).map_err(|_| DecodeError::BadOption)?;
    }
    Ok(words)
}

fn pair(high: u16, low: u16) -> u32 {
    u32::from(high) << 16 | u32::from(low)
}

fn unpair(word: u32) -> (u16, u16) {
    ((word >> 16) as u16, word as u16)
}
