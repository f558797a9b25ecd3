//! Parses and builds packets.

use bytes::Bytes;
use sctp_wire::chunk::{Chunk, Data, DataFlags, Sack, SackBuilder};
use sctp_wire::{Header, Packet, Ppid, Ssn, StreamId, Tsn, VerificationTag, packet};

/// Contents of a DATA chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataSeen {
    /// Its flags.
    pub flags: DataFlags,
    /// Its TSN.
    pub tsn: u32,
    /// Its stream.
    pub stream: u16,
    /// Its stream sequence number.
    pub ssn: u16,
    /// Its payload.
    pub payload: Vec<u8>,
}

/// Contents of a SACK chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SackSeen {
    /// The cumulative TSN.
    pub cum_tsn: u32,
    /// The window.
    pub a_rwnd: u32,
    /// The gap blocks.
    pub gaps: Vec<(u16, u16)>,
    /// The duplicates.
    pub duplicates: Vec<u32>,
}

/// Returns the header of a packet.
pub fn header(packet: &[u8]) -> Header {
    Packet::parse(packet).expect("it is a packet").header()
}

/// Returns the kinds of the chunks in a packet.
pub fn kinds(packet: &[u8]) -> Vec<u8> {
    Packet::parse(packet)
        .expect("it is a packet")
        .chunks()
        .map(|raw| raw.expect("a whole chunk").kind)
        .collect()
}

/// Returns whether a packet has a chunk of this kind.
pub fn has(packet: &[u8], kind: u8) -> bool {
    kinds(packet).contains(&kind)
}

/// Visits every chunk.
pub fn each_chunk(packet: &[u8], mut visit: impl FnMut(Chunk<'_>)) {
    for raw in Packet::parse(packet).expect("it is a packet").chunks() {
        visit(Chunk::parse(&raw.expect("a whole chunk")).expect("a chunk that we know"));
    }
}

/// Returns the DATA chunks of a packet.
pub fn data_of(packet: &[u8]) -> Vec<DataSeen> {
    let mut seen = Vec::new();
    for raw in Packet::parse(packet).expect("it is a packet").chunks() {
        let raw = raw.expect("a whole chunk");
        if raw.kind == Data::KIND {
            let data = Data::parse(&raw).expect("a DATA chunk");
            seen.push(DataSeen {
                flags: data.flags,
                tsn: data.tsn.0,
                stream: data.stream.0,
                ssn: data.ssn.0,
                payload: data.payload.to_vec(),
            });
        }
    }
    seen
}

/// Returns the first SACK of a packet.
pub fn sack_of(packet: &[u8]) -> Option<SackSeen> {
    let parsed = Packet::parse(packet).expect("it is a packet");
    let raw = parsed.chunks().flatten().find(|raw| raw.kind == Sack::KIND)?;
    let sack = Sack::parse(&raw).expect("a SACK");
    Some(SackSeen {
        cum_tsn: sack.cum_tsn.0,
        a_rwnd: sack.a_rwnd,
        gaps: sack.gap_blocks().collect(),
        duplicates: sack.duplicates().map(|tsn| tsn.0).collect(),
    })
}

/// Returns a packet with the chunks that `write` appends, and a valid checksum.
pub fn build(source: u16, destination: u16, tag: u32, write: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let header =
        Header { source_port: source, destination_port: destination, verification_tag: VerificationTag(tag) };
    let mut bytes = Vec::new();
    packet::write_header(&header, &mut bytes);
    write(&mut bytes);
    packet::finish(&mut bytes);
    bytes.into()
}

/// Returns a changed packet with a valid checksum.
pub fn resealed(mut bytes: Vec<u8>) -> Bytes {
    if bytes.len() >= packet::HEADER_BYTES {
        bytes[8..12].fill(0);
        packet::finish(&mut bytes);
    }
    bytes.into()
}

/// Appends a DATA chunk with an ordered or unordered message or fragment.
pub fn write_data(flags: DataFlags, tsn: u32, stream: u16, ssn: u16, payload: &[u8], out: &mut Vec<u8>) {
    Data { flags, tsn: Tsn(tsn), stream: StreamId(stream), ssn: Ssn(ssn), ppid: Ppid(0), payload }.write(out);
}

/// Appends a SACK chunk.
pub fn write_sack(cum_tsn: u32, a_rwnd: u32, gap_blocks: &[(u16, u16)], out: &mut Vec<u8>) {
    SackBuilder { cum_tsn: Tsn(cum_tsn), a_rwnd, gap_blocks, duplicates: &[] }.write(out);
}
