//! Vocabulary of scripts: chunks and parameters byte by byte, and the contents of packets.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use lab::script::{ENDPOINT_PORT, PEER_PORT, Peer};
use sctp::AssociationConfig;
use sctp_wire::Packet;
use sctp_wire::chunk::{Init, Shutdown};
use sctp_wire::parameter::Parameters;

use crate::stage::Stage;

/// A chunk as it appears in a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Raw {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) value: Vec<u8>,
}

/// Returns a chunk, padded with zeros.
pub(crate) fn chunk(kind: u8, flags: u8, value: &[u8]) -> Vec<u8> {
    let length = (value.len() + 4) as u16;
    let mut out = vec![kind, flags];
    out.extend_from_slice(&length.to_be_bytes());
    padded(out, value)
}

/// Returns a parameter or an error cause, padded with zeros.
pub(crate) fn parameter(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut out = kind.to_be_bytes().to_vec();
    out.extend_from_slice(&((value.len() + 4) as u16).to_be_bytes());
    padded(out, value)
}

fn padded(mut out: Vec<u8>, value: &[u8]) -> Vec<u8> {
    out.extend_from_slice(value);
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

/// Returns the chunks of a packet.
pub(crate) fn chunks(packet: &Bytes) -> Vec<Raw> {
    let packet = Packet::parse(packet).expect("a packet");
    let raw = packet.chunks().map(|raw| raw.expect("a whole chunk"));
    raw.map(|raw| Raw { kind: raw.kind, flags: raw.flags, value: raw.value.to_vec() }).collect()
}

/// Returns the only chunk of a packet.
#[track_caller]
pub(crate) fn only_chunk(packet: &Bytes) -> Raw {
    let mut chunks = chunks(packet);
    assert_eq!(chunks.len(), 1, "one chunk: {chunks:?}");
    chunks.remove(0)
}

/// Returns the parameters or error causes in `bytes`: type and value. Their padding must be zeros, and no more than it takes.
#[track_caller]
pub(crate) fn parameters(mut bytes: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let mut found = Vec::new();
    while let [k0, k1, l0, l1, ..] = *bytes {
        let length = usize::from(u16::from_be_bytes([l0, l1]));
        assert!((4..=bytes.len()).contains(&length), "a length of {length} in {} bytes", bytes.len());
        found.push((u16::from_be_bytes([k0, k1]), bytes[4..length].to_vec()));
        let next = length.next_multiple_of(4).min(bytes.len());
        assert!(bytes[length..next].iter().all(|&byte| byte == 0), "padding is zeros");
        bytes = &bytes[next..];
    }
    assert!(bytes.is_empty(), "nothing is left over");
    found
}

/// Types of the parameters of an INIT or INIT ACK.
#[track_caller]
pub(crate) fn parameter_kinds(chunk: &Raw) -> Vec<u16> {
    parameters(&chunk.value[INIT_FIXED_BYTES..]).into_iter().map(|(kind, _)| kind).collect()
}

/// Returns the parameters of an INIT of the endpoint without the Padding Parameter (RFC 4820 §4), which makes a packet
/// of 160 bytes of it and comes last.
#[track_caller]
pub(crate) fn padded_parameters(init: &Raw) -> Vec<(u16, Vec<u8>)> {
    const PAD: u16 = 0x8005;
    const PADDED_BYTES: usize = 128;
    let mut found = parameters(&init.value[INIT_FIXED_BYTES..]);
    let (kind, padding) = found.pop().expect("padding");
    assert_eq!((kind, init.value.len()), (PAD, INIT_FIXED_BYTES + PADDED_BYTES));
    assert!(padding.iter().all(|&byte| byte == 0), "padding is zeros");
    found
}

/// Types of the parameters of an INIT of the endpoint without the padding.
#[track_caller]
pub(crate) fn padded_parameter_kinds(init: &Raw) -> Vec<u16> {
    padded_parameters(init).into_iter().map(|(kind, _)| kind).collect()
}

/// Returns the causes of an ERROR or ABORT.
#[track_caller]
pub(crate) fn causes(chunk: &Raw) -> Vec<(u16, Vec<u8>)> {
    parameters(&chunk.value)
}

/// Bytes of an INIT or INIT ACK before its parameters, without the chunk header.
pub(crate) const INIT_FIXED_BYTES: usize = 16;

/// Returns the 32 bits at an offset.
pub(crate) fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// Returns the 16 bits at an offset.
pub(crate) fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

/// Connects the endpoint, which has these addresses, to the peer.
pub(crate) fn connects(stage: &Stage, addresses: &[IpAddr], config: AssociationConfig) -> Peer {
    let mut peer = Peer::new(1, AssociationConfig::default());
    peer.endpoint.set_local_addresses(addresses.to_vec());
    let remotes = [peer.address];
    connects_from(stage, peer, &remotes, config)
}

/// The endpoint connects to a peer that has these addresses.
pub(crate) fn connects_to(stage: &Stage, remotes: &[SocketAddr], config: AssociationConfig) -> Peer {
    connects_from(stage, Peer::new(1, AssociationConfig::default()), remotes, config)
}

fn connects_from(stage: &Stage, mut peer: Peer, remotes: &[SocketAddr], config: AssociationConfig) -> Peer {
    let config = Arc::new(config);
    let id = peer.endpoint.connect(peer.now, ENDPOINT_PORT, PEER_PORT, remotes, config, &peer.app);
    peer.id = id.expect("no such association yet");
    peer.collect_output();
    stage.play(peer)
}

/// The peer sends an INIT with these parameters.
pub(crate) fn sends_init(peer: &mut Peer, parameters: &[u8]) {
    sends_init_like(peer, |init| Init { parameters: Parameters::new(parameters), ..init });
}

/// The peer sends an INIT that `change` has changed.
pub(crate) fn sends_init_like<'a>(peer: &mut Peer, change: impl FnOnce(Init<'a>) -> Init<'a>) {
    peer.sends().tag(0).chunk(|p, out| change(p.init()).write(out)).go();
}

/// The peer sends an INIT ACK with a cookie and these parameters after it.
pub(crate) fn sends_init_ack(peer: &mut Peer, more: &[u8]) {
    sends_init_ack_like(peer, more, |init| init);
}

/// The peer sends an INIT ACK that `change` has changed, with a cookie and these parameters after it.
pub(crate) fn sends_init_ack_like(peer: &mut Peer, more: &[u8], change: impl FnOnce(Init<'_>) -> Init<'_>) {
    let parameters = [parameter(7, b"cookie"), more.to_vec()].concat();
    peer.sends()
        .chunk(|p, out| {
            let start = out.len();
            change(Init { parameters: Parameters::new(&parameters), ..p.init() }).write(out);
            // An INIT ACK has the fields of an INIT.
            out[start] = 2;
        })
        .go();
}

/// The peer sends a chunk.
pub(crate) fn sends_chunk(peer: &mut Peer, kind: u8, flags: u8, value: &[u8]) {
    peer.sends().chunk(|_, out| out.extend(chunk(kind, flags, value))).go();
}

/// The peer sends a SHUTDOWN that acknowledges up to DATA chunk `number` of the endpoint.
pub(crate) fn sends_shutdown(peer: &mut Peer, number: i32) {
    let cum_tsn = peer.endpoint_tsn(number);
    peer.sends().chunk(|_, out| Shutdown { cum_tsn }.write(out)).go();
}
