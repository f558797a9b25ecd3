//! Chunks that fit what a side expects, or nearly.

use std::net::{Ipv4Addr, Ipv6Addr};

use sctp_wire::cause::{Cause, Causes, ProtocolViolation, StaleCookie, UserInitiatedAbort};
use sctp_wire::chunk::{
    Abort, CookieAck, CookieEcho, Cwr, Data, DataFlags, EcnEcho, Error, Heartbeat, HeartbeatAck, Init,
    InitAck, NrSack, Pad, SackBuilder, Shutdown, ShutdownAck, ShutdownComplete, Unknown,
};
use sctp_wire::parameter::{
    EcnCapable, Ipv4, Ipv6, Parameters, PrivateExtension, StateCookie, SupportedExtensions,
    Unknown as UnknownParameter,
};
use sctp_wire::{Header, Ppid, Ssn, StreamId, Tsn, VerificationTag, packet};

use crate::input::Input;
use crate::sniff::Known;

/// Chunks of a packet.
const CHUNKS_MAX: usize = 4;
/// Gap blocks and duplicates of a SACK.
const BLOCKS_MAX: usize = 16;
/// Addresses of a long list.
const ADDRESSES_MAX: u32 = 1000;
/// Parameters that are longer than this have one.
const LONG_LIST_BYTES: usize = 8 * ADDRESSES_MAX as usize;

/// Returns a packet for `receiver` that looks as if `sender` had sent it. `None`: the interceptor knows no header yet.
pub(crate) fn forge(input: &mut Input<'_>, sender: &Known, receiver: &Known) -> Option<Vec<u8>> {
    let header = sender.header.or_else(|| receiver.header.map(turned))?;
    let tag = match input.below(8) {
        0 => 0,
        1 => sender.tag,
        2 => input.word(),
        _ => receiver.tag,
    };
    let mut out = Vec::new();
    packet::write_header(&Header { verification_tag: VerificationTag(tag), ..header }, &mut out);
    for _ in 0..=input.below(CHUNKS_MAX) {
        chunk(input, sender, receiver, &mut out);
    }
    packet::finish(&mut out);
    Some(out)
}

fn turned(header: Header) -> Header {
    Header {
        source_port: header.destination_port,
        destination_port: header.source_port,
        verification_tag: header.verification_tag,
    }
}

fn near(input: &mut Input<'_>, tsn: u32) -> Tsn {
    let offset = i32::from(input.byte() as i8);
    let offset = if input.below(8) == 0 { offset << 24 } else { offset };
    Tsn(tsn.wrapping_add_signed(offset))
}

/// Forges one chunk. The high bits of the byte that selects it are the variant.
fn chunk(input: &mut Input<'_>, sender: &Known, receiver: &Known, out: &mut Vec<u8>) {
    let byte = input.byte();
    let variant = usize::from(byte >> 4);
    let stale = |tsn: u32| Tsn(tsn.wrapping_sub(variant as u32));
    match byte & 15 {
        0..=2 => data(input, sender, receiver, out),
        3 | 4 => sack(input, sender, receiver, variant, out),
        5 => init(input, sender, out),
        6 => init_ack(input, sender, out),
        7 => {
            let mut cookie = receiver.cookie.clone();
            if let (Some(byte), true) = (cookie.get_mut(input.below(256)), input.below(2) == 0) {
                *byte ^= 1;
            }
            CookieEcho { cookie: &cookie }.write(out);
        }
        8 if variant < 8 => CookieAck.write(out),
        8 => {
            EcnEcho { lowest_tsn: stale(receiver.tsn), marked_packets: variant as u32 }.write(out);
        }
        9 => Heartbeat { info: &input.bytes(64) }.write(out),
        10 => heartbeat_ack(receiver, variant, out),
        11 => Shutdown { cum_tsn: near(input, receiver.tsn) }.write(out),
        12 if variant < 8 => ShutdownAck.write(out),
        12 => Cwr { lowest_tsn: stale(sender.tsn) }.write(out),
        13 => ShutdownComplete { reflected_tag: input.below(2) == 1 }.write(out),
        14 => ending(input, out),
        _ => other(input, out),
    }
}

/// Forges an answer to one of the last heartbeats, or nearly one, wherever it went.
fn heartbeat_ack(receiver: &Known, variant: usize, out: &mut Vec<u8>) {
    let heartbeats = &receiver.heartbeats;
    let mut info = heartbeats.iter().nth_back(variant % 8).or(heartbeats.back()).cloned().unwrap_or_default();
    if let (Some(byte), true) = (info.first_mut(), variant >= 12) {
        *byte ^= 1;
    }
    HeartbeatAck { info: &info }.write(out);
}

fn data(input: &mut Input<'_>, sender: &Known, receiver: &Known, out: &mut Vec<u8>) {
    let base = if input.below(2) == 0 { sender.tsn } else { receiver.cum_tsn };
    let flags = input.byte();
    let payload = vec![flags; input.length(1024)];
    let data = Data {
        tsn: near(input, base),
        flags: DataFlags {
            immediate: flags & 8 != 0,
            unordered: flags & 4 != 0,
            beginning: flags & 2 != 0,
            ending: flags & 1 != 0,
        },
        stream: StreamId(if flags & 16 == 0 { sender.stream } else { input.short() }),
        ssn: Ssn(sender.ssn.wrapping_add_signed((input.byte() as i8).into())),
        ppid: Ppid(0),
        payload: &payload,
    };
    data.write(out);
}

/// Forges a SACK, or an NR-SACK if the variant states which gap blocks the peer keeps.
fn sack(input: &mut Input<'_>, sender: &Known, receiver: &Known, variant: usize, out: &mut Vec<u8>) {
    let base = if input.below(2) == 0 { receiver.tsn } else { sender.cum_tsn };
    let cum_tsn = near(input, base);
    let a_rwnd = match input.below(4) {
        0 => 0,
        1 => input.byte().into(),
        2 => input.word(),
        _ => 1 << 20,
    };
    let wide = input.below(8) == 0;
    let mut block = || {
        let mut offset = || if wide { input.short() } else { input.byte().into() };
        (offset(), offset())
    };
    let gaps: Vec<(u16, u16)> = (0..=block().0 as usize % BLOCKS_MAX).map(|_| block()).collect();
    let duplicates: Vec<Tsn> =
        (0..input.below(BLOCKS_MAX)).map(|n| Tsn(cum_tsn.0.wrapping_sub(n as u32))).collect();
    let gap_blocks = if input.below(4) == 0 { &gaps[..] } else { &gaps[1..] };
    match variant {
        0..8 => SackBuilder { cum_tsn, a_rwnd, gap_blocks, duplicates: &duplicates }.write(out),
        _ => nr_sack(cum_tsn, a_rwnd, gap_blocks, variant - 8, &duplicates, out),
    }
}

/// Forges an NR-SACK in which `renegable` of the gap blocks, or all of them, may be reneged on; or every block is listed as both.
fn nr_sack(
    cum_tsn: Tsn,
    a_rwnd: u32,
    gap_blocks: &[(u16, u16)],
    renegable: usize,
    duplicates: &[Tsn],
    out: &mut Vec<u8>,
) {
    let (gaps, nr_gaps) = match renegable {
        7 => (gap_blocks, gap_blocks),
        _ => gap_blocks.split_at(renegable.min(gap_blocks.len())),
    };
    let mut value = [cum_tsn.0, a_rwnd].map(u32::to_be_bytes).concat();
    for count in [gaps.len(), nr_gaps.len(), duplicates.len(), 0] {
        value.extend((count as u16).to_be_bytes());
    }
    for &(start, end) in gaps.iter().chain(nr_gaps) {
        value.extend([start, end].map(u16::to_be_bytes).concat());
    }
    for duplicate in duplicates {
        value.extend(duplicate.0.to_be_bytes());
    }
    Unknown { kind: NrSack::KIND, flags: 0, value: &value }.write(out);
}

/// Returns the fields that INIT and INIT ACK have in common: tag, window, streams, TSN.
fn beginning(input: &mut Input<'_>, sender: &Known) -> (u32, u32, u16, u16, u32) {
    let tag = if input.below(4) == 0 { input.word() } else { sender.tag };
    let window = if input.below(4) == 0 { input.word() } else { 1 << 17 };
    let streams = if input.below(4) == 0 { input.short() } else { 10 };
    (tag, window, streams, streams, sender.initial_tsn)
}

/// Writes parameters of an INIT or INIT ACK. One byte of the input selects the kind and, with its remaining bits, the variant.
fn parameters(input: &mut Input<'_>, out: &mut Vec<u8>) {
    for _ in 0..input.below(32) {
        let byte = usize::from(input.byte());
        let variant = byte / 3;
        match byte % 3 {
            0 => {
                let address = Ipv4Addr::from([10, input.byte() & 1, 0, input.byte() & 3]);
                if variant % 4 == 1 {
                    Ipv6 { address: address.to_ipv6_mapped() }.write(out);
                } else {
                    Ipv4 { address }.write(out);
                }
            }
            1 => address(input.word(), variant % 8, out),
            _ => offer(variant % 8, input.short(), &input.bytes(16), out),
        }
    }
}

/// Forges an address: an unused one, one of the endpoint, or a multicast one.
fn address(word: u32, variant: usize, out: &mut Vec<u8>) {
    match variant {
        1 => Ipv6 { address: Ipv6Addr::LOCALHOST }.write(out),
        2 => Ipv6 { address: Ipv6Addr::from_bits(0xfe80 << 112 | u128::from(word)) }.write(out),
        3 => Ipv6 { address: Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(word)) }.write(out),
        4 => Ipv6 { address: Ipv6Addr::from_bits(0xff02 << 112 | u128::from(word)) }.write(out),
        5 if out.len() < LONG_LIST_BYTES => {
            for number in 0..ADDRESSES_MAX {
                Ipv4 { address: word.wrapping_add(number).into() }.write(out);
            }
        }
        _ => Ipv4 { address: word.into() }.write(out),
    }
}

/// Writes an offer of an extension beyond RFC 9260.
fn offer(variant: usize, kind: u16, value: &[u8], out: &mut Vec<u8>) {
    match variant {
        1 => PrivateExtension::MULTIPATH.write(out),
        2 => PrivateExtension { mark: value }.write(out),
        3 => SupportedExtensions { chunk_kinds: &[NrSack::KIND] }.write(out),
        4 => EcnCapable.write(out),
        _ => UnknownParameter { kind, value }.write(out),
    }
}

fn init(input: &mut Input<'_>, sender: &Known, out: &mut Vec<u8>) {
    let (tag, a_rwnd, outbound_streams, inbound_streams, tsn) = beginning(input, sender);
    let mut list = Vec::new();
    parameters(input, &mut list);
    let (initiate_tag, initial_tsn) = (VerificationTag(tag), Tsn(tsn));
    let parameters = Parameters::new(&list);
    Init { initiate_tag, a_rwnd, outbound_streams, inbound_streams, initial_tsn, parameters }.write(out);
}

fn init_ack(input: &mut Input<'_>, sender: &Known, out: &mut Vec<u8>) {
    let (tag, a_rwnd, outbound_streams, inbound_streams, tsn) = beginning(input, sender);
    let mut list = Vec::new();
    if input.below(4) > 0 {
        StateCookie { cookie: &sender.cookie }.write(&mut list);
    }
    parameters(input, &mut list);
    let (initiate_tag, initial_tsn) = (VerificationTag(tag), Tsn(tsn));
    let parameters = Parameters::new(&list);
    InitAck { initiate_tag, a_rwnd, outbound_streams, inbound_streams, initial_tsn, parameters }.write(out);
}

fn ending(input: &mut Input<'_>, out: &mut Vec<u8>) {
    let mut causes = Vec::new();
    match input.below(4) {
        0 => {}
        1 => Cause::UserInitiatedAbort(UserInitiatedAbort { reason: &input.bytes(32) }).write(&mut causes),
        2 => Cause::ProtocolViolation(ProtocolViolation { information: b"so" }).write(&mut causes),
        _ => Cause::StaleCookie(StaleCookie { staleness_us: input.word() }).write(&mut causes),
    }
    let causes = Causes::new(&causes);
    match input.below(4) {
        0 => Abort { reflected_tag: input.below(2) == 1, causes }.write(out),
        _ => Error { causes }.write(out),
    }
}

fn other(input: &mut Input<'_>, out: &mut Vec<u8>) {
    if let Some(pad) = Pad::filling(4 * input.below(8)) {
        pad.write(out);
    }
    let (kind, flags) = (input.byte(), input.byte());
    Unknown { kind, flags, value: &input.bytes(64) }.write(out);
}
