//! Faults of an endpoint, injected by changing its packets on the way.

use bytes::Bytes;
use lab::packets::{build, resealed};
use lab::script::{ENDPOINT_PORT, PEER_PORT};
use sctp_wire::packet::HEADER_BYTES;

/// A fault of an endpoint, as [`Fault::meaning`] describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Silent,
    Twice,
    Late,
    Talkative,
    Deaf,
    Elsewhere,
    Ports,
    Tag,
    Checksum,
    Missing,
    Order,
    Bundled,
    Kind,
    Flags,
    Value,
    Length,
    Padding,
}

/// One instance of a fault.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mutation {
    pub(crate) fault: Fault,
    /// The packet of the endpoint, or the moment.
    pub(crate) at: usize,
    /// The place in the packet, where the fault has several.
    pub(crate) variant: usize,
}

/// Wrong values: one more or less, zero, all ones.
const VALUES: usize = 3;
/// Wrong lengths.
const LENGTHS: usize = 2;
/// Flag bits that have a meaning in some chunk.
const FLAG_BITS: usize = 4;
/// Length of the part of a chunk in which all values are tried; in the rest, every eighth is.
const DENSE_BYTES: usize = 64;

/// Unsolicited chunks: kind and bytes of value.
const CHUNKS: [(u8, usize); UNCALLED_FOR] = [(6, 0), (0, 16), (3, 12), (4, 8), (1, 16), (9, 4), (2, 16)];
/// Number of kinds of unsolicited packets.
pub(crate) const UNCALLED_FOR: usize = 7;

impl Fault {
    /// All faults.
    pub(crate) const ALL: &'static [Fault] = &[
        Fault::Silent,
        Fault::Twice,
        Fault::Late,
        Fault::Talkative,
        Fault::Deaf,
        Fault::Elsewhere,
        Fault::Ports,
        Fault::Tag,
        Fault::Checksum,
        Fault::Missing,
        Fault::Order,
        Fault::Bundled,
        Fault::Kind,
        Fault::Flags,
        Fault::Value,
        Fault::Length,
        Fault::Padding,
    ];

    /// Describes the fault, for the table.
    pub(crate) fn meaning(self) -> &'static str {
        match self {
            Fault::Silent => "does not send a packet",
            Fault::Twice => "sends a packet twice",
            Fault::Late => "sends a packet only when time has passed",
            Fault::Talkative => "sends a packet without cause",
            Fault::Deaf => "ignores what the peer sends",
            Fault::Elsewhere => "sends to another address",
            Fault::Ports => "sets a wrong port",
            Fault::Tag => "sets a wrong verification tag",
            Fault::Checksum => "sets a wrong checksum",
            Fault::Missing => "leaves a chunk out",
            Fault::Order => "puts the chunks in another order",
            Fault::Bundled => "adds a chunk",
            Fault::Kind => "sends another kind of chunk",
            Fault::Flags => "sets a wrong flag",
            Fault::Value => "sets a wrong value in a chunk",
            Fault::Length => "cuts a chunk short, or adds to it",
            Fault::Padding => "pads with other bytes than zeros",
        }
    }

    /// Returns whether the fault applies to packets of the endpoint.
    pub(crate) fn is_of_a_packet(self) -> bool {
        !matches!(self, Fault::Deaf | Fault::Talkative)
    }

    /// Returns the number of ways to apply the fault to a packet.
    pub(crate) fn variants(self, packet: &[u8]) -> usize {
        let chunks = spans(packet);
        match self {
            Fault::Ports => 2,
            Fault::Missing if chunks.len() > 1 => chunks.len(),
            Fault::Missing => 0,
            Fault::Order => usize::from(chunks.len() > 1),
            Fault::Bundled => 2,
            Fault::Kind => chunks.len(),
            Fault::Flags => chunks.len() * FLAG_BITS,
            Fault::Value => places(&chunks).len() * VALUES,
            Fault::Length => chunks.len() * LENGTHS,
            Fault::Padding => chunks.iter().filter(|chunk| chunk.padded > chunk.end).count(),
            _ => 1,
        }
    }

    /// Returns the packets that arrive instead of a packet.
    pub(crate) fn apply(self, variant: usize, packet: &Bytes) -> Vec<Bytes> {
        let chunks = spans(packet);
        let mut bytes = packet.to_vec();
        match self {
            Fault::Silent => return Vec::new(),
            Fault::Twice => return vec![packet.clone(), packet.clone()],
            Fault::Checksum => {
                bytes[8] ^= 1;
                return vec![bytes.into()];
            }
            Fault::Ports => bytes[1 + 2 * variant] ^= 1,
            Fault::Tag => bytes[7] ^= 1,
            Fault::Missing => drop(bytes.drain(chunks[variant].start..chunks[variant].padded)),
            Fault::Order => {
                bytes.truncate(HEADER_BYTES);
                chunks.iter().rev().for_each(|c| bytes.extend_from_slice(&packet[c.start..c.padded]));
            }
            Fault::Bundled => bytes = with_a_heartbeat(packet, variant),
            Fault::Kind => bytes[chunks[variant].start] ^= 0x1f,
            Fault::Flags => bytes[chunks[variant / FLAG_BITS].start + 1] ^= 1 << (variant % FLAG_BITS),
            Fault::Value => set_wrong(&mut bytes, places(&chunks)[variant / VALUES], variant % VALUES),
            Fault::Length => resize(&mut bytes, &chunks[variant / LENGTHS], variant.is_multiple_of(LENGTHS)),
            Fault::Padding => {
                let padded = chunks.iter().filter(|chunk| chunk.padded > chunk.end).nth(variant);
                bytes[padded.expect("one of those that were counted").end] ^= 0xff;
            }
            Fault::Late | Fault::Talkative | Fault::Deaf | Fault::Elsewhere => {}
        }
        vec![resealed(bytes)]
    }
}

/// Returns an unsolicited packet with the header of the last one.
pub(crate) fn uncalled_for(variant: usize, header: Option<Bytes>) -> Bytes {
    let (kind, value_bytes) = CHUNKS[variant];
    let chunk = chunk(kind, value_bytes);
    match header {
        Some(header) => resealed([header.to_vec(), chunk].concat()),
        None => build(ENDPOINT_PORT, PEER_PORT, 1, |out| out.extend_from_slice(&chunk)),
    }
}

fn chunk(kind: u8, value_bytes: usize) -> Vec<u8> {
    let length = 4 + value_bytes as u8;
    let mut chunk = vec![kind, 0, 0, length];
    chunk.resize(usize::from(length), 0);
    match kind {
        // A whole message of four bytes; one stream each way; parameters and causes as long as they are.
        0 => chunk[1] = 3,
        1 | 2 => chunk[4..].copy_from_slice(&[0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1]),
        4 => chunk[4..8].copy_from_slice(&[0, 1, 0, 8]),
        9 => chunk[4..8].copy_from_slice(&[0, 3, 0, 4]),
        _ => {}
    }
    chunk
}

/// Position of a chunk.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: usize,
    end: usize,
    padded: usize,
}

fn spans(packet: &[u8]) -> Vec<Span> {
    let mut spans = Vec::new();
    let mut start = HEADER_BYTES;
    while let Some(&[_, _, high, low]) = packet.get(start..start + 4) {
        let length = usize::from(u16::from_be_bytes([high, low]));
        let end = start + length;
        if length < 4 || end > packet.len() {
            break;
        }
        let padded = end.next_multiple_of(4).min(packet.len());
        spans.push(Span { start, end, padded });
        start = padded;
    }
    spans
}

/// Returns the possible offsets of 16-bit values.
fn places(chunks: &[Span]) -> Vec<usize> {
    let of = |chunk: &Span| {
        let start = chunk.start + 4;
        let end = chunk.end.saturating_sub(1);
        (start..end).step_by(2).filter(move |at| at - start < DENSE_BYTES || (at - start).is_multiple_of(16))
    };
    chunks.iter().flat_map(of).collect()
}

fn set_wrong(bytes: &mut [u8], at: usize, how: usize) {
    match how {
        0 => bytes[at + 1] ^= 1,
        1 => bytes[at..at + 2].fill(0),
        _ => bytes[at..at + 2].fill(0xff),
    }
}

fn resize(bytes: &mut Vec<u8>, chunk: &Span, longer: bool) {
    let length = (chunk.padded - chunk.start) as u16;
    let length = if longer {
        bytes.splice(chunk.padded..chunk.padded, [0; 4]);
        length + 4
    } else if length >= 8 {
        bytes.drain(chunk.padded - 4..chunk.padded);
        length - 4
    } else {
        return;
    };
    bytes[chunk.start + 2..chunk.start + 4].copy_from_slice(&length.to_be_bytes());
}

fn with_a_heartbeat(packet: &[u8], variant: usize) -> Vec<u8> {
    let (header, chunks) = packet.split_at(HEADER_BYTES);
    let heartbeat = chunk(4, 8);
    if variant == 0 { [header, &heartbeat, chunks].concat() } else { [header, chunks, &heartbeat].concat() }
}
