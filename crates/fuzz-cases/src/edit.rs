//! Changes to the bytes of a packet.

use std::collections::VecDeque;
use std::ops::Range;

use lab::wire::Outgoing;
use sctp_wire::packet::{self, HEADER_BYTES};

use crate::input::Input;
use crate::sniff::Known;

/// The longest packet that comes out.
const PACKET_BYTES_MAX: usize = 4096;
/// Offset of the verification tag.
const TAG: Range<usize> = 4..8;
/// Offset of the checksum.
const CHECKSUM: Range<usize> = 8..12;

/// Changes a packet at most this many times.
const EDITS_MAX: usize = 4;

/// Makes the change to a packet that the input names. The changes may use parts of the earlier packets in `history`.
pub(crate) fn edit(input: &mut Input<'_>, mut bytes: Vec<u8>, history: &VecDeque<Outgoing>) -> Vec<u8> {
    for _ in 0..=input.below(EDITS_MAX) {
        if bytes.len() < HEADER_BYTES {
            break;
        }
        change(input, &mut bytes, history);
        bytes.truncate(PACKET_BYTES_MAX);
    }
    bytes
}

fn change(input: &mut Input<'_>, bytes: &mut Vec<u8>, history: &VecDeque<Outgoing>) {
    match input.below(11) {
        0 => *place(input, bytes) ^= 1 << input.below(8),
        1 => *place(input, bytes) = input.byte(),
        2 => overwrite(bytes, input.short().into(), &input.short().to_be_bytes()),
        3 => overwrite(bytes, input.short().into(), &input.word().to_be_bytes()),
        4 => add(bytes, input.short().into(), input.byte() as i8),
        5 => bytes.truncate(usize::from(input.short())),
        6 => {
            let at = usize::from(input.short()) % (bytes.len() + 1);
            let more = input.bytes(64);
            bytes.splice(at..at, more);
        }
        7 => {
            let chunks = history_chunks(input, history);
            bytes.extend(chunks);
        }
        8 => {
            let chunks = history_chunks(input, history);
            bytes.splice(HEADER_BYTES..HEADER_BYTES, chunks);
        }
        9 => {
            if let Some(chunk) = pick(input, bytes) {
                bytes.drain(chunk);
            }
        }
        _ => {
            if let Some(chunk) = pick(input, bytes) {
                let again = bytes[chunk].to_vec();
                bytes.extend(again);
            }
        }
    }
}

fn place<'a>(input: &mut Input<'_>, bytes: &'a mut [u8]) -> &'a mut u8 {
    let at = usize::from(input.short()) % bytes.len();
    &mut bytes[at]
}

/// Returns the range of a field. Fields are at even offsets, counted from the end of the header, because the chunks are the more
/// interesting part.
fn field(bytes: &[u8], at: usize, length: usize) -> Option<Range<usize>> {
    let start = HEADER_BYTES + 2 * (at % (bytes.len() / 2));
    (start + length <= bytes.len()).then_some(start..start + length)
}

fn overwrite(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(field) = field(bytes, at, value.len()) {
        bytes[field].copy_from_slice(value);
    }
}

/// Changes serial numbers a little.
fn add(bytes: &mut [u8], at: usize, value: i8) {
    if let Some(field) = field(bytes, at, 4)
        && let Some(number) = bytes[field].first_chunk_mut::<4>()
    {
        *number = u32::from_be_bytes(*number).wrapping_add_signed(value.into()).to_be_bytes();
    }
}

/// Returns a chunk of this packet, with its padding.
fn pick(input: &mut Input<'_>, bytes: &[u8]) -> Option<Range<usize>> {
    let mut chunks = Vec::new();
    let mut at = HEADER_BYTES;
    while let Some(&[_, _, high, low]) = bytes.get(at..at + 4) {
        let length = usize::from(u16::from_be_bytes([high, low])).max(4).next_multiple_of(4);
        let end = bytes.len().min(at + length);
        chunks.push(at..end);
        at = end;
    }
    let number = input.below(16).checked_rem(chunks.len())?;
    chunks.get(number).cloned()
}

/// Returns the chunks of a packet of the past.
fn history_chunks(input: &mut Input<'_>, history: &VecDeque<Outgoing>) -> Vec<u8> {
    let packet = input.choose(history);
    packet.and_then(|p| p.packet.get(HEADER_BYTES..)).map_or_else(Vec::new, <[u8]>::to_vec)
}

/// Repairs tag and checksum in most cases, so that the endpoint parses the rest. Returns whether the packet passes for a valid
/// one.
pub(crate) fn seal(input: &mut Input<'_>, bytes: &mut [u8], receiver: &Known) -> bool {
    let how = input.below(8);
    if bytes.len() < HEADER_BYTES {
        return false;
    }
    match how {
        0 => {}
        1 => bytes[TAG].fill(0),
        2 => bytes[TAG].copy_from_slice(&input.word().to_be_bytes()),
        _ => bytes[TAG].copy_from_slice(&receiver.tag.to_be_bytes()),
    }
    let repair = how != 7;
    if repair {
        bytes[CHECKSUM].fill(0);
        packet::finish(bytes);
    }
    repair
}
