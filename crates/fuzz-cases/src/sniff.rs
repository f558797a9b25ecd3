//! The knowledge of an interceptor that reads every packet.

use std::collections::VecDeque;

use sctp_wire::chunk::{Chunk, CookieEcho, Data};
use sctp_wire::parameter::Parameter;
use sctp_wire::{Header, Packet};

/// State of one host as its latest packets show it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// The header of its packets; the tag is the other side's.
    pub(crate) header: Option<Header>,
    /// Its own tag and TSN, from its INIT or INIT ACK.
    pub(crate) tag: u32,
    pub(crate) initial_tsn: u32,
    /// TSN, stream and SSN of its last DATA.
    pub(crate) tsn: u32,
    pub(crate) stream: u16,
    pub(crate) ssn: u16,
    /// The TSN that it has acknowledged.
    pub(crate) cum_tsn: u32,
    /// The last state cookie that it made, and what its last heartbeats said.
    pub(crate) cookie: Vec<u8>,
    pub(crate) heartbeats: VecDeque<Vec<u8>>,
}

/// Number of heartbeats of a host that the interceptor remembers.
const HEARTBEATS_MAX: usize = 8;

impl Known {
    pub(crate) fn read(&mut self, packet: &[u8]) {
        let Ok(packet) = Packet::parse(packet) else { return };
        self.header = Some(packet.header());
        for raw in packet.chunks().flatten() {
            match Chunk::parse(&raw) {
                Ok(Chunk::Data(data)) => {
                    (self.tsn, self.stream, self.ssn) = (data.tsn.0, data.stream.0, data.ssn.0);
                }
                Ok(Chunk::Sack(sack)) => self.cum_tsn = sack.cum_tsn.0,
                Ok(Chunk::NrSack(sack)) => self.cum_tsn = sack.cum_tsn.0,
                Ok(Chunk::Init(init)) => self.begin(init.initiate_tag.0, init.initial_tsn.0),
                Ok(Chunk::InitAck(ack)) => {
                    self.begin(ack.initiate_tag.0, ack.initial_tsn.0);
                    let mut parameters = ack.parameters();
                    while let Some(Ok(raw)) = parameters.next_raw() {
                        if let Ok(Parameter::StateCookie(parameter)) = Parameter::parse(&raw) {
                            self.cookie = parameter.cookie.to_vec();
                        }
                    }
                }
                Ok(Chunk::Heartbeat(heartbeat)) => {
                    if self.heartbeats.len() == HEARTBEATS_MAX {
                        self.heartbeats.pop_front();
                    }
                    self.heartbeats.push_back(heartbeat.info.to_vec());
                }
                _ => {}
            }
        }
    }

    fn begin(&mut self, tag: u32, tsn: u32) {
        (self.tag, self.initial_tsn, self.tsn) = (tag, tsn, tsn.wrapping_sub(1));
    }
}

/// Returns whether a packet brings payload.
pub(crate) fn has_data(packet: &[u8]) -> bool {
    Packet::parse(packet).is_ok_and(|p| p.chunks().flatten().any(|chunk| chunk.kind == Data::KIND))
}

/// Returns the verification tag of a packet with a cookie.
pub(crate) fn echoed_tag(packet: &[u8]) -> Option<u32> {
    let packet = Packet::parse(packet).ok()?;
    let echoes = packet.chunks().flatten().any(|chunk| chunk.kind == CookieEcho::KIND);
    echoes.then_some(packet.header().verification_tag.0)
}

/// Returns the initiate tag of an INIT.
pub(crate) fn initiate_tag(packet: &[u8]) -> Option<u32> {
    let raw = Packet::parse(packet).ok()?.chunks().next()?.ok()?;
    match Chunk::parse(&raw) {
        Ok(Chunk::Init(init)) => Some(init.initiate_tag.0),
        _ => None,
    }
}
