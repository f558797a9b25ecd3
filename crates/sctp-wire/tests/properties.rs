//! Every chunk, parameter and cause survives building and parsing, and no bytes make a parser panic.

use proptest::collection::vec;
use proptest::prelude::*;
use sctp_wire::cause::{self, Cause, Causes};
use sctp_wire::checksum::{Digest, crc32c};
use sctp_wire::chunk::{self, Chunk, Chunks, DataFlags};
use sctp_wire::parameter::{self, KindList, Parameter, Parameters};
use sctp_wire::{Header, Packet, Ppid, Ssn, StreamId, Tsn, VerificationTag, packet};

/// Hands out pieces of arbitrary bytes, so that one strategy feeds every field of every kind.
struct Source<'a> {
    bytes: &'a [u8],
    kinds: &'a [[u8; 2]],
}

impl<'a> Source<'a> {
    fn u8(&mut self) -> u8 {
        let (first, rest) = self.bytes.split_first().unwrap_or((&0, &[]));
        self.bytes = rest;
        *first
    }

    fn u16(&mut self) -> u16 {
        u16::from_be_bytes([self.u8(), self.u8()])
    }

    fn u32(&mut self) -> u32 {
        u32::from(self.u16()) << 16 | u32::from(self.u16())
    }

    fn rest(&self) -> &'a [u8] {
        self.bytes
    }
}

/// Parameters of each kind; the last has an unknown kind.
fn parameters<'a>(mut from: Source<'a>) -> Vec<Parameter<'a>> {
    let address_v6 = (u128::from(from.u32()) << 96 | u128::from(from.u32())).into();
    vec![
        parameter::Ipv4 { address: from.u32().into() }.into(),
        parameter::Ipv6 { address: address_v6 }.into(),
        parameter::CookiePreservative { increment_ms: from.u32() }.into(),
        parameter::AdaptationLayer { code_point: from.u32() }.into(),
        parameter::SupportedAddressTypes { kinds: KindList::new(from.kinds) }.into(),
        parameter::HeartbeatInfo { info: from.rest() }.into(),
        parameter::StateCookie { cookie: from.rest() }.into(),
        parameter::UnrecognizedParameter { parameter: from.rest() }.into(),
        parameter::HostName { host_name: from.rest() }.into(),
        parameter::SupportedExtensions { chunk_kinds: from.rest() }.into(),
        parameter::PrivateExtension { mark: from.rest() }.into(),
        parameter::Unknown { kind: from.u16() | 0x4001, value: from.rest() }.into(),
    ]
}

/// Causes of each kind; the last has an unknown kind.
fn causes<'a>(mut from: Source<'a>) -> Vec<Cause<'a>> {
    vec![
        cause::InvalidStreamIdentifier { stream: StreamId(from.u16()) }.into(),
        cause::MissingMandatoryParameter { kinds: KindList::new(from.kinds) }.into(),
        cause::StaleCookie { staleness_us: from.u32() }.into(),
        cause::NewEncapsulationPort { current_port: from.u16(), new_port: from.u16() }.into(),
        cause::OutOfResource.into(),
        cause::UnresolvableAddress { parameter: from.rest() }.into(),
        cause::UnrecognizedChunkType { chunk: from.rest() }.into(),
        cause::InvalidMandatoryParameter.into(),
        cause::UnrecognizedParameters { parameters: Parameters::new(from.rest()) }.into(),
        cause::NoUserData { tsn: Tsn(from.u32()) }.into(),
        cause::CookieReceivedWhileShuttingDown.into(),
        cause::RestartWithNewAddresses { addresses: Parameters::new(from.rest()) }.into(),
        cause::UserInitiatedAbort { reason: from.rest() }.into(),
        cause::ProtocolViolation { information: from.rest() }.into(),
        cause::Unknown { kind: from.u16() | 0x4000, value: from.rest() }.into(),
    ]
}

/// Chunks of each kind but SACK, which has a builder; the last has an unknown kind.
fn chunks<'a>(mut from: Source<'a>, user_data: &'a [u8]) -> Vec<Chunk<'a>> {
    vec![
        chunk::Data {
            flags: DataFlags::from_bits(from.u8()),
            tsn: Tsn(from.u32()),
            stream: StreamId(from.u16()),
            ssn: Ssn(from.u16()),
            ppid: Ppid(from.u32()),
            payload: user_data,
        }
        .into(),
        chunk::Init {
            initiate_tag: VerificationTag(from.u32()),
            a_rwnd: from.u32(),
            outbound_streams: from.u16(),
            inbound_streams: from.u16(),
            initial_tsn: Tsn(from.u32()),
            parameters: Parameters::new(from.rest()),
        }
        .into(),
        chunk::InitAck {
            initiate_tag: VerificationTag(from.u32()),
            a_rwnd: from.u32(),
            outbound_streams: from.u16(),
            inbound_streams: from.u16(),
            initial_tsn: Tsn(from.u32()),
            parameters: Parameters::new(from.rest()),
        }
        .into(),
        chunk::Heartbeat { info: from.rest() }.into(),
        chunk::HeartbeatAck { info: from.rest() }.into(),
        chunk::Abort { reflected_tag: from.u8().is_multiple_of(2), causes: Causes::new(from.rest()) }.into(),
        chunk::Shutdown { cum_tsn: Tsn(from.u32()) }.into(),
        chunk::ShutdownAck.into(),
        chunk::Error { causes: Causes::new(from.rest()) }.into(),
        chunk::CookieEcho { cookie: from.rest() }.into(),
        chunk::CookieAck.into(),
        chunk::ShutdownComplete { reflected_tag: from.u8().is_multiple_of(2) }.into(),
        chunk::Pad { padding_bytes: from.u16() % 2000 }.into(),
        chunk::Unknown { kind: from.u8() | 0x40, flags: from.u8(), value: from.rest() }.into(),
    ]
}

/// Parses bytes at every level, and formats what it finds.
fn read_everything(bytes: &[u8]) -> usize {
    let Ok(packet) = Packet::parse(bytes) else { return 0 };
    let mut seen = packet.to_string().len() + usize::from(packet.checksum_ok());
    for raw in packet.chunks() {
        let Ok(raw) = raw else { break };
        match Chunk::parse(&raw) {
            Ok(Chunk::Init(init)) => seen += init.parameters().map(|p| format!("{p:?}").len()).sum::<usize>(),
            Ok(Chunk::InitAck(ack)) => {
                seen += ack.parameters().map(|p| format!("{p:?}").len()).sum::<usize>()
            }
            Ok(Chunk::Abort(abort)) => seen += abort.causes().map(|c| format!("{c:?}").len()).sum::<usize>(),
            Ok(Chunk::Error(error)) => seen += error.causes().map(|c| format!("{c:?}").len()).sum::<usize>(),
            Ok(Chunk::Sack(sack)) => seen += sack.gap_blocks().count() + sack.duplicates().count(),
            Ok(Chunk::NrSack(sack)) => {
                seen += sack.gap_blocks().chain(sack.nr_gap_blocks()).count() + sack.duplicates().count();
            }
            Ok(chunk) => seen += chunk.wire_bytes(),
            Err(error) => seen += error.to_string().len(),
        }
    }
    seen
}

/// Returns a packet with a chunk of each kind, so that damage hits every parser.
fn packet_of_everything(bytes: &[u8], kinds: &[[u8; 2]]) -> Vec<u8> {
    let (mut parameter_bytes, mut cause_bytes, mut out) = (Vec::new(), Vec::new(), Vec::new());
    parameters(Source { bytes, kinds }).iter().for_each(|parameter| parameter.write(&mut parameter_bytes));
    causes(Source { bytes, kinds }).iter().for_each(|cause| cause.write(&mut cause_bytes));
    let header = Header { source_port: 1, destination_port: 2, verification_tag: VerificationTag(3) };
    packet::write_header(&header, &mut out);
    for chunk in chunks(Source { bytes, kinds }, &[1]) {
        match chunk {
            Chunk::Init(init) => {
                chunk::Init { parameters: Parameters::new(&parameter_bytes), ..init }.write(&mut out);
            }
            Chunk::Error(_) => chunk::Error { causes: Causes::new(&cause_bytes) }.write(&mut out),
            chunk => chunk.write(&mut out),
        }
    }
    let duplicates = [Tsn(1), Tsn(2)];
    let gap_blocks = &[(2, 3), (5, 9)];
    chunk::SackBuilder { cum_tsn: Tsn(1), a_rwnd: 2, gap_blocks, duplicates: &duplicates }.write(&mut out);
    chunk::NrSackBuilder { cum_tsn: Tsn(1), a_rwnd: 2, nr_gap_blocks: gap_blocks, duplicates: &duplicates }
        .write(&mut out);
    packet::finish(&mut out);
    out
}

proptest! {
    #[test]
    fn parameters_round_trip(bytes in vec(any::<u8>(), 0..300), kinds in vec(any::<[u8; 2]>(), 0..9)) {
        let parameters = parameters(Source { bytes: &bytes, kinds: &kinds });
        let mut out = Vec::new();
        for parameter in &parameters {
            let before = out.len();
            parameter.write(&mut out);
            prop_assert_eq!(out.len() - before, parameter.wire_bytes());
        }
        let read: Result<Vec<_>, _> = Parameters::new(&out).collect();
        prop_assert_eq!(read.as_ref(), Ok(&parameters));
    }

    #[test]
    fn causes_round_trip(bytes in vec(any::<u8>(), 0..300), kinds in vec(any::<[u8; 2]>(), 0..9)) {
        let causes = causes(Source { bytes: &bytes, kinds: &kinds });
        let mut out = Vec::new();
        for cause in &causes {
            let before = out.len();
            cause.write(&mut out);
            prop_assert_eq!(out.len() - before, cause.wire_bytes());
        }
        let read: Result<Vec<_>, _> = Causes::new(&out).collect();
        prop_assert_eq!(read.as_ref(), Ok(&causes));
    }

    #[test]
    fn chunks_round_trip(bytes in vec(any::<u8>(), 0..300), user_data in vec(any::<u8>(), 1..300)) {
        let chunks = chunks(Source { bytes: &bytes, kinds: &[] }, &user_data);
        let mut out = Vec::new();
        for chunk in &chunks {
            let before = out.len();
            chunk.write(&mut out);
            prop_assert_eq!(out.len() - before, chunk.wire_bytes());
        }
        let read: Result<Vec<_>, _> = Chunks::new(&out).map(|raw| Chunk::parse(&raw?)).collect();
        prop_assert_eq!(read.as_ref(), Ok(&chunks));
    }

    #[test]
    fn sacks_round_trip(
        cum_tsn: u32,
        a_rwnd: u32,
        gap_blocks in vec(any::<(u16, u16)>(), 0..40),
        duplicates in vec(any::<u32>().prop_map(Tsn), 0..40),
    ) {
        let cum_tsn = Tsn(cum_tsn);
        let builder = chunk::SackBuilder { cum_tsn, a_rwnd, gap_blocks: &gap_blocks, duplicates: &duplicates };
        let mut out = Vec::new();
        builder.write(&mut out);
        prop_assert_eq!(out.len(), builder.wire_bytes());
        let raw = Chunks::new(&out).next().unwrap().unwrap();
        let sack = chunk::Sack::parse(&raw).unwrap();
        prop_assert_eq!((sack.cum_tsn, sack.a_rwnd), (cum_tsn, a_rwnd));
        prop_assert!(sack.gap_blocks().eq(gap_blocks.iter().copied()));
        prop_assert!(sack.duplicates().eq(duplicates.iter().copied()));
        let mut again = Vec::new();
        sack.write(&mut again);
        prop_assert_eq!(again, out);
    }

    #[test]
    fn packets_round_trip(ports: (u16, u16), tag: u32, bytes in vec(any::<u8>(), 0..300)) {
        let header = Header {
            source_port: ports.0.max(1),
            destination_port: ports.1.max(1),
            verification_tag: VerificationTag(tag),
        };
        let mut out = Vec::new();
        packet::write_header(&header, &mut out);
        chunk::CookieEcho { cookie: &bytes }.write(&mut out);
        packet::finish(&mut out);
        let packet = Packet::parse(&out).unwrap();
        prop_assert_eq!(packet.header(), header);
        prop_assert!(packet.checksum_ok());
        prop_assert_eq!(packet.as_bytes(), &out[..]);
    }

    #[test]
    fn no_bytes_panic(bytes in vec(any::<u8>(), 0..2000)) {
        read_everything(&bytes);
    }

    /// Behind a valid header every byte sequence is a chunk of some kind; small lengths make many of them.
    #[test]
    fn no_chunks_panic(chunks in vec((any::<u8>(), any::<u8>(), 0..40_u16, vec(any::<u8>(), 0..40)), 0..20)) {
        let mut bytes = vec![0, 1, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0];
        for (kind, flags, length, value) in chunks {
            bytes.extend_from_slice(&[kind % 16, flags]);
            bytes.extend_from_slice(&length.to_be_bytes());
            bytes.extend_from_slice(&value);
        }
        read_everything(&bytes);
    }

    #[test]
    fn no_damage_panics(
        bytes in vec(any::<u8>(), 0..60),
        kinds in vec(any::<[u8; 2]>(), 0..4),
        cut in any::<prop::sample::Index>(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
    ) {
        let mut packet = packet_of_everything(&bytes, &kinds);
        prop_assert!(Packet::parse(&packet).unwrap().checksum_ok());
        let truncated = &packet[..cut.index(packet.len() + 1)];
        read_everything(truncated);
        for (index, value) in damage {
            let index = index.index(packet.len());
            packet[index] = value;
        }
        read_everything(&packet);
    }

    #[test]
    fn checksums_of_pieces_are_checksums_of_the_whole(pieces in vec(vec(any::<u8>(), 0..600), 0..12)) {
        let mut digest = Digest::new();
        pieces.iter().for_each(|piece| digest.update(piece));
        prop_assert_eq!(digest.finalize(), crc32c(&pieces.concat()));
    }
}

/// Every truncation of one packet, not only random ones.
#[test]
fn no_truncation_panics() {
    let packet = packet_of_everything(b"some bytes", &[[0, 5], [0, 6], [0, 7]]);
    for bytes in 0..=packet.len() {
        read_everything(&packet[..bytes]);
    }
}
