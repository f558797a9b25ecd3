//! Options: a list of `t_opthdr` (length, level, name, status), each followed by its value, at multiples of four bytes.

use super::DecodeError;
use crate::{TransferFlags, TransferInfo};

/// `SOL_SCTP`: the level of all options here.
const LEVEL: u32 = 132;

/// What is known of a message: association, stream and SSN, PPID, TSN, context, what depends on the direction, flags; a word each.
const TRANSFER: u32 = 1;
/// A new association: its number, and outbound and inbound streams in one word.
const ASSOCIATION: u32 = 2;

const WORD_BYTES: usize = 4;
const HEADER_WORDS: usize = 4;

pub(super) fn encode_transfer(info: &TransferInfo) -> Vec<u8> {
    let stream = pair(info.stream, info.ssn);
    encode(
        TRANSFER,
        &[
            info.association,
            stream,
            info.ppid,
            info.tsn,
            info.context,
            info.by_direction,
            u32::from(info.flags.bits()),
        ],
    )
}

/// What is known of a message; where the option is not there, nothing.
pub(super) fn decode_transfer(options: &[u8]) -> Result<TransferInfo, DecodeError> {
    let Some([association, stream, ppid, tsn, context, by_direction, flags]) = find(options, TRANSFER)?
    else {
        return Ok(TransferInfo::default());
    };
    let (stream, ssn) = unpair(stream);
    let known = u8::try_from(flags).ok().and_then(TransferFlags::from_bits);
    let flags = known.ok_or(DecodeError::BadValue(flags))?;
    Ok(TransferInfo { association, stream, ssn, ppid, tsn, context, by_direction, flags })
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

fn encode(name: u32, value: &[u32]) -> Vec<u8> {
    const SUCCESS: u32 = 0x20;
    let len_bytes = ((HEADER_WORDS + value.len()) * WORD_BYTES) as u32;
    let header = [len_bytes, LEVEL, name, SUCCESS];
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
        if (level, this) == (LEVEL, name) {
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
