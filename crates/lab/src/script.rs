//! A peer made of packets: a test states what the peer sends and what it expects, as a ladder diagram.
//!
//! Numbers are relative: DATA 0 is the first chunk of the side that sends it, and a SACK or SHUTDOWN contains the
//! number of the last chunk of the other side that arrived, so -1 before the first.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sctp::{
    AssociationConfig, AssociationId, BatchLimits, Endpoint, EndpointConfig, Event, Multipath, Scope,
    SendInfo, Time, TransmitBuffer,
};
use sctp_wire::chunk::{Chunk, CookieAck, CookieEcho, DataFlags, Init, InitAck};
use sctp_wire::parameter::{Parameter, Parameters, StateCookie};
use sctp_wire::{Tsn, VerificationTag};

use crate::app::App;
use crate::packets::{build, each_chunk, write_data, write_sack};

/// Port of the endpoint.
pub const ENDPOINT_PORT: u16 = 5001;
/// Port of the peer.
pub const PEER_PORT: u16 = 5000;
/// Window that the peer advertises.
pub const PEER_WINDOW_BYTES: u32 = 100_000;

/// A stage between the endpoint and its peer, which may change their packets.
pub trait Wire: fmt::Debug {
    /// Handles a packet that the endpoint has sent to `to`; returns what arrives, and where.
    fn leaves(&mut self, now: Time, to: SocketAddr, packet: Bytes) -> Vec<(SocketAddr, Bytes)>;
    /// Handles a packet that the peer has sent; returns whether it arrives.
    fn enters(&mut self, now: Time, from: SocketAddr, packet: &Bytes) -> bool;
    /// Returns further packets that arrive at the peer, once the endpoint has sent everything for now, or, with
    /// `waited`, a time has passed.
    fn rests(&mut self, now: Time, waited: bool) -> Vec<(SocketAddr, Bytes)>;
}

/// An endpoint and the peer that faces it.
#[derive(Debug)]
pub struct Peer {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// Its application.
    pub app: App,
    /// The identifier of the association at the endpoint.
    pub id: AssociationId,
    /// The time.
    pub now: Time,
    /// The address of the peer.
    pub address: SocketAddr,
    /// The tag of the endpoint.
    pub endpoint_tag: u32,
    /// The tag of the peer.
    pub tag: u32,
    endpoint_tsn: u32,
    tsn: u32,
    heard: VecDeque<(SocketAddr, Bytes)>,
    buffer: TransmitBuffer,
    wire: Option<Box<dyn Wire>>,
}

/// A packet of the peer that is not sent yet.
#[derive(Debug)]
pub struct Say<'p> {
    peer: &'p mut Peer,
    tag: u32,
    chunks: Vec<u8>,
}

/// Returns the default configuration without probes and extensions, so that only the rules of RFC 9260 apply.
pub fn plain() -> AssociationConfig {
    AssociationConfig {
        tail_loss_probes: false,
        early_failover: false,
        ecn: false,
        nr_sack: false,
        prompt_parts: false,
        multipath: Multipath::Off,
        ..AssociationConfig::default()
    }
}

impl Peer {
    /// Returns the peer of a listening endpoint, before its first packet. The endpoint's application gets events.
    pub fn new(seed: u8, config: AssociationConfig) -> Self {
        let config = AssociationConfig { events: true, ..config };
        let mut endpoint = Endpoint::new(
            EndpointConfig::default(),
            [seed; 32],
            BatchLimits { segments_max: 64, bytes_max: 65_000 },
        );
        endpoint.listen(ENDPOINT_PORT, config).expect("the port is free");
        Peer {
            endpoint,
            app: App::default(),
            id: AssociationId::FIRST,
            now: Time::from_nanos(1_000_000_000),
            address: SocketAddr::from(([10, 0, 0, 9], 9899)),
            endpoint_tag: 0,
            tag: 0x0a0b_0c0d,
            endpoint_tsn: 0,
            tsn: 0xffff_fff0_u32.wrapping_add(u32::from(seed)),
            heard: VecDeque::new(),
            buffer: TransmitBuffer::new(),
            wire: None,
        }
    }

    /// Returns the peer behind a wire, which packets that were not taken yet pass at once.
    pub fn behind(mut self, mut wire: Box<dyn Wire>) -> Self {
        let heard = std::mem::take(&mut self.heard);
        self.heard.extend(heard.into_iter().flat_map(|(to, packet)| wire.leaves(self.now, to, packet)));
        self.wire = Some(wire);
        self
    }

    /// Returns a peer that has connected to an endpoint with the configuration [`plain`].
    pub fn established(seed: u8) -> Self {
        Self::established_with(seed, plain())
    }

    /// Returns a peer that has connected to an endpoint with this configuration.
    pub fn established_with(seed: u8, config: AssociationConfig) -> Self {
        let mut peer = Peer::new(seed, config);
        peer.sends().tag(0).chunk(|p, out| p.init().write(out)).go();
        let cookie = peer.takes_init_ack();
        peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).go();
        peer.expects("COOKIE ACK");
        peer.id = peer.app.events[0].id;
        peer
    }

    /// Returns the peer of an endpoint that connects to it and has sent its INIT.
    pub fn connecting(seed: u8, config: AssociationConfig) -> Self {
        let mut peer = Peer::new(seed, AssociationConfig::default());
        let config = AssociationConfig { events: true, ..config };
        peer.id = peer
            .endpoint
            .connect(peer.now, ENDPOINT_PORT, PEER_PORT, &[peer.address], Arc::new(config), &peer.app)
            .expect("no such association yet");
        peer.collect_output();
        peer
    }

    /// Returns the peer of an endpoint that has connected to it.
    pub fn connected(seed: u8) -> Self {
        let mut peer = Peer::connecting(seed, plain());
        peer.takes_init();
        peer.sends().init_ack(b"cookie").go();
        peer.expects("COOKIE ECHO");
        peer.sends().chunk(|_, out| CookieAck.write(out)).go();
        assert!(peer.app.saw(|e| matches!(e, Event::Connected { .. })), "the endpoint is up");
        peer
    }

    /// Returns the INIT of the peer.
    pub fn init(&self) -> Init<'static> {
        Init {
            initiate_tag: VerificationTag(self.tag),
            a_rwnd: PEER_WINDOW_BYTES,
            outbound_streams: 10,
            inbound_streams: 10,
            initial_tsn: Tsn(self.tsn),
            parameters: Parameters::new(&[]),
        }
    }

    /// Returns the TSN of the endpoint's DATA chunk `number`.
    pub fn endpoint_tsn(&self, number: i32) -> Tsn {
        Tsn(self.endpoint_tsn.wrapping_add_signed(number))
    }

    /// Begins a packet of the peer.
    pub fn sends(&mut self) -> Say<'_> {
        let tag = self.endpoint_tag;
        Say { peer: self, tag, chunks: Vec::new() }
    }

    /// Delivers a packet to the endpoint unchanged.
    pub fn sends_raw(&mut self, from: SocketAddr, packet: &Bytes) {
        let now = self.now;
        if self.wire.as_mut().is_none_or(|wire| wire.enters(now, from, packet)) {
            self.endpoint.handle_datagram(now, from, None, packet, &mut self.app);
        }
        self.collect_output();
    }

    /// Sends a message of the endpoint's application.
    pub fn app_sends(&mut self, info: SendInfo, message: impl Into<Bytes>) {
        let message = message.into();
        self.endpoint.send(self.now, self.id, &info, message.len(), [message]).expect("it is taken");
        self.collect_output();
    }

    /// Shuts down from the endpoint's application.
    pub fn app_shuts_down(&mut self) {
        self.endpoint.shutdown(self.now, self.id, &mut self.app);
        self.collect_output();
    }

    /// Lets time pass.
    pub fn waits(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.endpoint.poll_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.endpoint.handle_timeout(self.now, &mut self.app);
            self.collect_output();
        }
        self.now = end;
        self.rests(true);
    }

    /// Returns the next packet of the endpoint.
    pub fn hears(&mut self) -> Bytes {
        self.hears_on().1
    }

    /// Returns the next packet of the endpoint and its destination.
    pub fn hears_on(&mut self) -> (SocketAddr, Bytes) {
        self.heard.pop_front().expect("the endpoint sent something")
    }

    /// Checks that the next packet of the endpoint has these chunks.
    #[track_caller]
    pub fn expects(&mut self, chunks: &str) {
        match self.heard.pop_front() {
            Some((_, packet)) => assert_eq!(self.describe(&packet), chunks),
            None => panic!("the endpoint sent nothing where it should have sent {chunks}"),
        }
    }

    /// Returns the next packet of the endpoint, if it has sent one.
    pub fn hears_maybe(&mut self) -> Option<Bytes> {
        self.hears_on_maybe().map(|(_, packet)| packet)
    }

    /// Returns the next packet of the endpoint and its destination, if it has sent one.
    pub fn hears_on_maybe(&mut self) -> Option<(SocketAddr, Bytes)> {
        self.heard.pop_front()
    }

    /// Returns the next packet of the endpoint without taking it.
    pub fn will_hear(&self) -> Option<&Bytes> {
        self.heard.front().map(|(_, packet)| packet)
    }

    /// Returns whether the endpoint has sent a packet that was not taken yet.
    pub fn is_heard(&self) -> bool {
        !self.heard.is_empty()
    }

    /// Checks that the endpoint has sent no more.
    #[track_caller]
    pub fn expects_nothing(&self) {
        let rest: Vec<_> = self.heard.iter().map(|(_, packet)| self.describe(packet)).collect();
        assert!(rest.is_empty(), "the endpoint sent {rest:?}");
    }

    /// Takes the endpoint's INIT.
    pub fn takes_init(&mut self) {
        let packet = self.hears();
        let mut found = None;
        each_chunk(&packet, |chunk| {
            if let Chunk::Init(init) = chunk {
                found = Some((init.initiate_tag.0, init.initial_tsn.0));
            }
        });
        (self.endpoint_tag, self.endpoint_tsn) = found.expect("an INIT");
    }

    /// Takes the endpoint's INIT ACK and returns its cookie.
    pub fn takes_init_ack(&mut self) -> Vec<u8> {
        let packet = self.hears();
        let mut cookie = None;
        let mut found = None;
        each_chunk(&packet, |chunk| {
            if let Chunk::InitAck(ack) = chunk {
                found = Some((ack.initiate_tag.0, ack.initial_tsn.0));
                cookie = ack.parameters().flatten().find_map(|p| match p {
                    Parameter::StateCookie(p) => Some(p.cookie.to_vec()),
                    _ => None,
                });
            }
        });
        (self.endpoint_tag, self.endpoint_tsn) = found.expect("an INIT ACK");
        cookie.expect("a cookie")
    }

    /// Lets the application read, and collects what the endpoint sends.
    pub fn collect_output(&mut self) {
        self.app.now = self.now;
        loop {
            self.app.read(&mut self.endpoint);
            #[cfg(feature = "testing")]
            self.endpoint.assert_counters();
            let Some(transmit) = self.endpoint.poll_transmit(self.now, Scope::All, &mut self.buffer) else {
                return self.rests(false);
            };
            let batch = self.buffer.to_vec();
            for packet in batch.chunks(transmit.segment_bytes).map(Bytes::copy_from_slice) {
                match &mut self.wire {
                    Some(wire) => self.heard.extend(wire.leaves(self.now, transmit.remote, packet)),
                    None => self.heard.push_back((transmit.remote, packet)),
                }
            }
        }
    }

    fn rests(&mut self, waited: bool) {
        if let Some(wire) = &mut self.wire {
            self.heard.extend(wire.rests(self.now, waited));
        }
    }

    /// Describes the chunks of a packet of the endpoint in relative numbers.
    fn describe(&self, packet: &Bytes) -> String {
        let mut out = String::new();
        each_chunk(packet, |chunk| {
            if matches!(chunk, Chunk::Pad(_)) {
                return;
            }
            if !out.is_empty() {
                out.push_str(", ");
            }
            let ours = |tsn: Tsn| tsn.0.wrapping_sub(self.tsn) as i32;
            let _ = match chunk {
                Chunk::Data(data) => {
                    write!(out, "DATA {}", data.tsn.0.wrapping_sub(self.endpoint_tsn) as i32)
                }
                Chunk::Sack(sack) => {
                    let _ = write!(out, "SACK {}", ours(sack.cum_tsn));
                    for (start, end) in sack.gap_blocks() {
                        let _ = write!(out, " gap {start}-{end}");
                    }
                    for tsn in sack.duplicates() {
                        let _ = write!(out, " dup {}", ours(tsn));
                    }
                    Ok(())
                }
                Chunk::Shutdown(shutdown) => write!(out, "SHUTDOWN {}", ours(shutdown.cum_tsn)),
                other => {
                    let text = other.to_string();
                    let name: Vec<_> = text
                        .split(' ')
                        .take_while(|word| word.chars().all(|c| c.is_ascii_uppercase()))
                        .collect();
                    out.push_str(&name.join(" "));
                    Ok(())
                }
            };
        });
        out
    }
}

impl Say<'_> {
    /// Sets another verification tag.
    pub fn tag(mut self, tag: u32) -> Self {
        self.tag = tag;
        self
    }

    /// Adds a chunk that `write` appends.
    pub fn chunk(mut self, write: impl FnOnce(&Peer, &mut Vec<u8>)) -> Self {
        write(self.peer, &mut self.chunks);
        self
    }

    /// Adds an INIT ACK.
    pub fn init_ack(self, cookie: &[u8]) -> Self {
        let mut parameters = Vec::new();
        StateCookie { cookie }.write(&mut parameters);
        self.chunk(|p, out| {
            let Init { initiate_tag, a_rwnd, outbound_streams, inbound_streams, initial_tsn, .. } = p.init();
            let parameters = Parameters::new(&parameters);
            InitAck { initiate_tag, a_rwnd, outbound_streams, inbound_streams, initial_tsn, parameters }
                .write(out);
        })
    }

    /// Adds DATA chunk `number` with an ordered message of one byte on stream 0; its SSN is the same number.
    pub fn data(self, number: u32) -> Self {
        self.data_with(DataFlags::WHOLE, number, 0, number as u16, &[number as u8])
    }

    /// Adds a DATA chunk.
    pub fn data_with(self, flags: DataFlags, number: u32, stream: u16, ssn: u16, payload: &[u8]) -> Self {
        self.chunk(|p, out| write_data(flags, p.tsn.wrapping_add(number), stream, ssn, payload, out))
    }

    /// Adds a SACK of the endpoint's DATA up to chunk `number`, -1 for none.
    pub fn sack(self, number: i32, gaps: &[(u16, u16)]) -> Self {
        self.sack_with(number, PEER_WINDOW_BYTES, gaps)
    }

    /// Adds a SACK that advertises a window.
    pub fn sack_with(self, number: i32, window: u32, gaps: &[(u16, u16)]) -> Self {
        self.chunk(|p, out| write_sack(p.endpoint_tsn(number).0, window, gaps, out))
    }

    /// Sends the packet.
    pub fn go(self) {
        let packet = build(PEER_PORT, ENDPOINT_PORT, self.tag, |out| out.extend_from_slice(&self.chunks));
        let from = self.peer.address;
        self.peer.sends_raw(from, &packet);
    }
}
