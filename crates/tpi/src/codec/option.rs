//! Options: a list of `t_opthdr` (length, level, name, status), each followed by its value, at multiples of four bytes.

use super::DecodeError;
use super::address::{INET, INET6};
use crate::options::T_INET_SCTP;
use crate::options::sctp::{T_SCTP_PPI, T_SCTP_SID, T_SCTP_SSN, T_SCTP_TSN};
use crate::{Notice, Notification, PathChange, PathReason, TransferFlags, TransferInfo};
use std::net::IpAddr;

/// The names of our own options lie above the published ones.
const PRIVATE: u32 = 0x8000;
/// What else is known of a message: association, context, what depends on the direction, flags; a word each.
const TRANSFER: u32 = PRIVATE + 1;
/// A new association: its number, and outbound and inbound streams in one word.
const ASSOCIATION: u32 = PRIVATE + 2;
/// What happened to an association: its number, two words that depend on it, and an address, which is the number of its
/// family (`AF_INET`, `AF_INET6`) and four words in network order.
const NOTICE: u32 = PRIVATE + 3;

const WORD_BYTES: usize = 4;
const HEADER_WORDS: usize = 4;

/// The published options of a message, and ours where they have something to say.
pub(super) fn encode_transfer(info: &TransferInfo) -> Vec<u8> {
    let published = [
        (T_SCTP_SID, u32::from(info.stream)),
        (T_SCTP_PPI, info.ppid),
        (T_SCTP_SSN, u32::from(info.ssn)),
        (T_SCTP_TSN, info.tsn),
    ];
    let mut options: Vec<u8> = published.iter().flat_map(|(name, value)| encode(*name, &[*value])).collect();
    let rest = [info.association, info.context, info.by_direction, u32::from(info.flags.bits())];
    if rest != [0; 4] {
        options.extend(encode(TRANSFER, &rest));
    }
    options
}

/// What is known of a message. What no option says is zero.
pub(super) fn decode_transfer(options: &[u8]) -> Result<TransferInfo, DecodeError> {
    let published = |name| find(options, name).map(|value| value.map_or(0, |[value]: [u32; 1]| value));
    let narrow = |value: u32| u16::try_from(value).map_err(|_| DecodeError::BadValue(value));
    let [association, context, by_direction, flags] = find(options, TRANSFER)?.unwrap_or_default();
    let known = u8::try_from(flags).ok().and_then(TransferFlags::from_bits);
    Ok(TransferInfo {
        association,
        stream: narrow(published(T_SCTP_SID)?)?,
        ssn: narrow(published(T_SCTP_SSN)?)?,
        ppid: published(T_SCTP_PPI)?,
        tsn: published(T_SCTP_TSN)?,
        context,
        by_direction,
        flags: known.ok_or(DecodeError::BadValue(flags))?,
    })
}

/// Left out if there is nothing to say.
pub(super) fn encode_association(association: u32, outbound_streams: u16, inbound_streams: u16) -> Vec<u8> {
    let streams = pair(outbound_streams, inbound_streams);
    if (association, streams) == (0, 0) { Vec::new() } else { encode(ASSOCIATION, &[association, streams]) }
}

pub(super) fn decode_association(options: &[u8]) -> Result<(u32, u16, u16), DecodeError> {
    let [association, streams] = find(options, ASSOCIATION)?.unwrap_or_default();
    let (outbound_streams, inbound_streams) = unpair(streams);
    Ok((association, outbound_streams, inbound_streams))
}

pub(super) fn encode_notification(notification: &Notification) -> Vec<u8> {
    let flags = notification.transfer.flags | TransferFlags::NOTIFICATION;
    let mut options = encode_transfer(&TransferInfo { flags, ..notification.transfer });
    options.extend(encode(NOTICE, &notice_words(notification.what)));
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

fn notice_words(what: Notice) -> [u32; 8] {
    let (number, first, second) = match what {
        Notice::PathChanged { change, reason, .. } => (PATH_CHANGED, change as u32, reason as u32),
        Notice::RemoteError { cause } => (REMOTE_ERROR, u32::from(cause), 0),
        Notice::SendFailed { was_sent, beginning, ending, cause } => {
            let of = |is: bool, flag| u32::from(is) * flag;
            let flags = of(was_sent, WAS_SENT) | of(beginning, BEGINNING) | of(ending, ENDING);
            (SEND_FAILED, flags, u32::from(cause))
        }
        Notice::SenderDry => (SENDER_DRY, 0, 0),
        Notice::Adaptation { indication } => (ADAPTATION, indication, 0),
        Notice::PartialDeliveryAborted => (PARTIAL_DELIVERY_ABORTED, 0, 0),
    };
    let (family, [a, b, c, d]) = match what {
        Notice::PathChanged { address: IpAddr::V4(address), .. } => {
            (AF_INET, [u32::from_ne_bytes(address.octets()), 0, 0, 0])
        }
        Notice::PathChanged { address: IpAddr::V6(address), .. } => (AF_INET6, v6_words(address.octets())),
        _ => (0, [0; 4]),
    };
    [number, first, second, family, a, b, c, d]
}

/// What happened, if the options say that something did.
pub(super) fn decode_notice(options: &[u8]) -> Result<Option<Notice>, DecodeError> {
    let Some([number, first, second, family, a, b, c, d]) = find(options, NOTICE)? else { return Ok(None) };
    let bad = DecodeError::BadValue;
    let cause = |word: u32| u16::try_from(word).map_err(|_| bad(word));
    let what = match number {
        PATH_CHANGED => Notice::PathChanged {
            address: match family {
                AF_INET => IpAddr::from(a.to_ne_bytes()),
                AF_INET6 => IpAddr::from(v6_octets([a, b, c, d])),
                _ => return Err(bad(family)),
            },
            change: PathChange::from_number(first).ok_or(bad(first))?,
            reason: PathReason::from_number(second).ok_or(bad(second))?,
        },
        REMOTE_ERROR => Notice::RemoteError { cause: cause(first)? },
        SEND_FAILED => Notice::SendFailed {
            was_sent: first & WAS_SENT != 0,
            beginning: first & BEGINNING != 0,
            ending: first & ENDING != 0,
            cause: cause(second)?,
        },
        SENDER_DRY => Notice::SenderDry,
        ADAPTATION => Notice::Adaptation { indication: first },
        PARTIAL_DELIVERY_ABORTED => Notice::PartialDeliveryAborted,
        _ => return Err(bad(number)),
    };
    Ok(Some(what))
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

/// The value of the option with this name, if the list has it. Others are skipped.
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
