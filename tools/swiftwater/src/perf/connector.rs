//! Connections of a client's workers to the server, and their work.

use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use links::tcp_window;
use swiftwater::PathStatistics;
use swiftwater::trace::TraceSink;

use super::config::ClientConfig;
use super::control::Purpose;
use super::spec::{Exchange, Link, Method, Protocol, Spec};
use crate::load::sctp_transport::{PathLog, SctpBatchOut, SctpConnector, SctpDialogue, SctpOut};
use crate::load::{
    Dialogue, LoadError, Meter, Outgoing, ask_all, connect_and_ask_all, payload, relay, send_all, tcp, udp,
    udp_limit,
};
use crate::sockets::Connecting;
use crate::{host, sockets};

/// Windows of a running test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// Congestion windows of all paths together.
    pub cwnd_bytes: u64,
    /// The longest smoothed round-trip time of a path.
    pub srtt: Duration,
}

/// Parameters that a worker needs to reach the server.
pub(crate) struct Connector {
    spec: Spec,
    remote: SocketAddr,
    local_addresses: Vec<IpAddr>,
    trace: Option<TraceSink>,
    token: u64,
    ports: Vec<u16>,
    /// `None` means that SCTP runs directly over IP.
    server_udp_port: Option<u16>,
    paths: PathLog,
    /// Sending TCP connections, kept to read their windows.
    connections: Mutex<Vec<TcpStream>>,
    /// SCTP sockets that all associations share if the user chose a port.
    shared: Option<SctpConnector>,
}

impl Connector {
    /// Prepares connections to the server that sent this token and these ports.
    pub(crate) fn new(
        config: &ClientConfig,
        remote: SocketAddr,
        token: u64,
        ports: Vec<u16>,
        server_udp_port: Option<u16>,
    ) -> Result<Self, LoadError> {
        let link = if server_udp_port.is_some() { Link::Udp } else { Link::Raw };
        let mut connector = Self {
            spec: Spec { link, ..config.spec.clone() },
            remote,
            local_addresses: config.local_addresses.clone(),
            trace: config.trace.clone(),
            token,
            ports,
            server_udp_port,
            paths: PathLog::default(),
            connections: Mutex::default(),
            shared: None,
        };
        if connector.spec.method.protocol() == Protocol::Sctp {
            connector.shared = config.local_udp_port.map(|port| connector.bind_sctp(port)).transpose()?;
        }
        Ok(connector)
    }

    /// Connects, waits until `connected` returns, and sends data or makes requests until `stop` or the limit. Stops if
    /// `connected` returns false.
    pub(crate) fn drive(
        &self,
        index: usize,
        limit: u64,
        stop: &AtomicBool,
        meter: &Meter,
        latencies: &mut Histogram<u64>,
        connected: impl FnOnce() -> bool,
    ) -> Result<(), LoadError> {
        let message = payload(self.spec.message_bytes);
        let work = Work { message: &message, limit, stop, meter, latencies };
        match self.spec.method.protocol() {
            Protocol::Tcp | Protocol::Mptcp | Protocol::SctpSockets | Protocol::Relay => {
                self.drive_tcp(index, work, connected)
            }
            Protocol::Udp => self.drive_udp(index, work, connected),
            Protocol::Sctp => self.drive_sctp(work, connected),
        }
    }

    fn drive_tcp(
        &self,
        index: usize,
        work: Work<'_>,
        connected: impl FnOnce() -> bool,
    ) -> Result<(), LoadError> {
        let connect = || self.connect_tcp(index);
        if self.spec.exchange == Exchange::ConnectRequestResponse {
            let dialogue = || self.converse(connect()?, work.stop);
            return if connected() { work.connect_and_ask(dialogue) } else { Ok(()) };
        }
        let stream = connect()?;
        if !connected() {
            return Ok(());
        }
        if self.spec.exchange == Exchange::OneWay {
            self.remember(&stream);
        }
        match (self.spec.exchange, self.spec.method) {
            (Exchange::OneWay, Method::TcpBatched) => work.send(tcp::BatchedOut::new(stream)),
            (Exchange::OneWay, _) => work.send(tcp::PlainOut(stream)),
            _ => {
                let dialogue = self.converse(stream, work.stop)?;
                work.ask(dialogue)
            }
        }
    }

    fn drive_udp(
        &self,
        index: usize,
        work: Work<'_>,
        connected: impl FnOnce() -> bool,
    ) -> Result<(), LoadError> {
        let remote = SocketAddr::new(self.remote.ip(), self.ports.get(index).copied().unwrap_or_default());
        let socket: UdpSocket = sockets::connect_udp(remote, self.local(index), self.spec.buffer_bytes)
            .map_err(LoadError::during("opening a UDP socket"))?;
        if !connected() {
            return Ok(());
        }
        match (self.spec.exchange, self.spec.method) {
            (Exchange::OneWay, Method::UdpLimit) => {
                let packet_bytes = self.spec.packet_bytes.unwrap_or_else(host::loopback_packet_bytes);
                let (out, batch) = udp_limit::BatchOut::new(socket, remote, packet_bytes)?;
                Work { message: &batch, ..work }.send(out)
            }
            (Exchange::OneWay, _) => work.send(udp::DatagramOut(socket)),
            _ => work.ask(udp::UdpRequester::new(socket)?),
        }
    }

    fn drive_sctp(&self, work: Work<'_>, connected: impl FnOnce() -> bool) -> Result<(), LoadError> {
        let own = if self.shared.is_none() { Some(self.bind_sctp(0)?) } else { None };
        let Some(connector) = self.shared.as_ref().or(own.as_ref()) else { return Ok(()) };
        if self.spec.exchange == Exchange::ConnectRequestResponse {
            let dialogue = || connector.connect().map(SctpDialogue);
            return if connected() { work.connect_and_ask(dialogue) } else { Ok(()) };
        }
        let association = connector.connect()?;
        if !connected() {
            return Ok(());
        }
        if self.spec.exchange == Exchange::OneWay {
            self.paths.watch(&association);
        }
        match (self.spec.exchange, self.spec.method) {
            (Exchange::OneWay, Method::SctpStream) => work.send(SctpOut::endless(association, &self.paths)),
            (Exchange::OneWay, Method::SctpBatch) => work.send(SctpBatchOut::new(association, &self.paths)),
            (Exchange::OneWay, _) => work.send(SctpOut::messages(association, &self.paths)),
            _ => {
                let dialogue = SctpDialogue(association.clone());
                work.ask(dialogue)?;
                self.paths.note(&association);
                Ok(())
            }
        }
    }

    /// Takes the statistics of the associations' paths.
    pub(crate) fn take_paths(&self) -> Vec<PathStatistics> {
        self.paths.take()
    }

    /// Keeps a connection that sends. A shutdown tells the server of its end, so this copy does not keep it open.
    fn remember(&self, stream: &TcpStream) {
        if let Ok(copy) = stream.try_clone() {
            self.connections.lock().unwrap_or_else(PoisonError::into_inner).push(copy);
        }
    }

    /// Returns the windows of all associations or connections, if known.
    pub(crate) fn window(&self) -> Option<Window> {
        let connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let of_tcp = connections.iter().filter_map(|stream| tcp_window(stream.as_fd()).ok());
        let of_tcp = of_tcp.map(|window| Window { cwnd_bytes: window.cwnd_bytes, srtt: window.srtt });
        let of_sctp = self
            .paths
            .watched()
            .into_iter()
            .map(|path| Window { cwnd_bytes: path.cwnd_bytes as u64, srtt: path.srtt.unwrap_or_default() });
        of_tcp.chain(of_sctp).reduce(|one, other| Window {
            cwnd_bytes: one.cwnd_bytes + other.cwnd_bytes,
            srtt: one.srtt.max(other.srtt),
        })
    }

    fn bind_sctp(&self, local_udp_port: u16) -> Result<SctpConnector, LoadError> {
        let port = self.ports.first().copied().unwrap_or_default();
        let server = SocketAddr::new(self.remote.ip(), port);
        let (addresses, trace) = (&self.local_addresses, self.trace.as_ref());
        Ok(SctpConnector::bind(&self.spec, addresses, local_udp_port, server, self.server_udp_port, trace)?)
    }

    fn converse<'a>(
        &self,
        stream: TcpStream,
        stop: &'a AtomicBool,
    ) -> Result<tcp::Conversation<'a>, LoadError> {
        match self.spec.method {
            Method::SctpSockets | Method::Relay => Ok(tcp::Conversation::messages(stream, stop)),
            _ => tcp::Conversation::new(stream, stop),
        }
    }

    fn connect_tcp(&self, index: usize) -> Result<TcpStream, LoadError> {
        let (protocol, what) = match self.spec.method.protocol() {
            Protocol::Relay => {
                return relay::connect(self.token).map_err(LoadError::during("connecting to the relay"));
            }
            Protocol::Mptcp => (Some(sockets::MPTCP), "connecting over MPTCP"),
            Protocol::SctpSockets => (Some(sockets::SCTP), "connecting over SCTP"),
            _ => (None, "connecting over TCP"),
        };
        // The control port, unless the server named another.
        let port = self.ports.first().copied().unwrap_or(self.remote.port());
        let remote = SocketAddr::new(self.remote.ip(), port);
        let with = Connecting {
            local: self.local(index),
            buffer_bytes: self.spec.buffer_bytes,
            congestion: self.spec.tcp_congestion(),
        };
        let mut stream = sockets::connect(remote, with, protocol).map_err(LoadError::during(what))?;
        let preamble = Purpose::Data { token: self.token }.to_bytes();
        stream.write_all(&preamble).map_err(LoadError::during("opening the TCP connection"))?;
        Ok(stream)
    }

    /// Returns the local address of a connection: connections take the addresses in turn.
    fn local(&self, index: usize) -> Option<IpAddr> {
        self.local_addresses.get(index % self.local_addresses.len().max(1)).copied()
    }
}

/// Work of one worker: its data, its time and its results.
struct Work<'a> {
    message: &'a [u8],
    limit: u64,
    stop: &'a AtomicBool,
    meter: &'a Meter,
    latencies: &'a mut Histogram<u64>,
}

impl Work<'_> {
    fn send(self, out: impl Outgoing) -> Result<(), LoadError> {
        send_all(out, self.message, self.limit, self.stop, self.meter)
    }

    fn ask(self, dialogue: impl Dialogue) -> Result<(), LoadError> {
        ask_all(dialogue, self.message, self.limit, self.stop, self.meter, self.latencies)
    }

    fn connect_and_ask<D: Dialogue>(
        self,
        connect: impl FnMut() -> Result<D, LoadError>,
    ) -> Result<(), LoadError> {
        connect_and_ask_all(connect, self.message, self.limit, self.stop, self.meter, self.latencies)
    }
}
