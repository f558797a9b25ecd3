//! Acceptors of a server: one per transport takes the connections of a test.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use thiserror::Error;

use super::config::{Clients, ServerConfig};
use super::control::Purpose;
use super::spec::{Exchange, Link, Method, Protocol, Spec};
use crate::load::relay::RelayAcceptor;
use crate::load::sctp_transport::{SctpAcceptor, SctpBatchIn, SctpDialogue, SctpIn};
use crate::load::{LoadError, Meter, Span, answer_all, receive_all, tcp, udp, udp_limit};
use crate::{host, sockets};

/// Interval at which a waiting acceptor checks whether the test is over.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Time that the client may take to open its connections.
const CONNECTIONS_TIMEOUT: Duration = Duration::from_secs(15);
/// Time that a connection may take to send its preamble, and interval at which a quiet reader checks for the end.
const READ_TIMEOUT: Duration = Duration::from_millis(500);

/// Error of an acceptor.
#[derive(Debug, Error)]
pub(crate) enum AcceptorError {
    /// A UDP port is not available.
    #[error(
        "the server cannot bind UDP port {port}: {source}; stop the program there that has it, such as a `swiftwater daemon`, \
         or start `swiftwater perf server` with another --udp-port"
    )]
    Bind { port: u16, source: io::Error },
    /// The kernel has no MPTCP.
    #[error(
        "the server cannot listen over MPTCP: {0}; its kernel may be without it, or net.mptcp.enabled may be 0"
    )]
    Mptcp(io::Error),
    /// The system has no SCTP.
    #[error("the server cannot open an SCTP socket: {0}; start it with `swiftwater run --`")]
    SctpSockets(io::Error),
    /// The server cannot listen over SCTP.
    #[error("the server cannot listen over SCTP: {0}")]
    Sctp(io::Error),
    /// The client asks for a link that the server does not allow.
    #[error("the server carries SCTP over {allowed} only; run the client with --link {allowed}")]
    Link {
        /// Links that the server allows.
        allowed: &'static str,
    },
    /// The system failed.
    #[error("the server cannot take the test: {0}")]
    Io(#[from] io::Error),
}

impl AcceptorError {
    /// Converts a failure to bind SCTP, which this UDP port carries. Only the server's command can choose another one.
    fn from_sctp(udp_port: u16, error: swiftwater::BindError) -> Self {
        let source = io::Error::from(error);
        match source.kind() {
            io::ErrorKind::AddrInUse => {
                AcceptorError::Bind { port: udp_port, source: Errno::ADDRINUSE.into() }
            }
            _ => AcceptorError::Sctp(source),
        }
    }
}

/// Sockets that take the data of one test.
pub(crate) enum Acceptor {
    /// Connections to the control port, or to a separate port.
    Tcp {
        /// The server's own listener, or one for MPTCP.
        listener: TcpListener,
        /// Its port, if it is not the control port.
        port: Option<u16>,
        /// Token that the connections of this test carry.
        token: u64,
        /// Clients that may connect.
        clients: Clients,
    },
    /// A socket per flow.
    Udp(Vec<UdpSocket>),
    /// One listener.
    Sctp(SctpAcceptor),
    /// Socket for senders on this machine.
    Relay(RelayAcceptor),
}

impl Acceptor {
    /// Opens the sockets of the test.
    pub(crate) fn open(
        spec: &Spec,
        listener: &TcpListener,
        config: &ServerConfig,
        token: u64,
    ) -> Result<Self, AcceptorError> {
        // The kernel's table of sockets has neither SCTP nor the further connections of MPTCP.
        let clients = Clients::All;
        match spec.method.protocol() {
            Protocol::Tcp if config.control.is_some() => {
                let listener = sockets::listen(any_like(listener)?, None)?;
                let port = Some(listener.local_addr()?.port());
                Ok(Self::Tcp { listener, port, token, clients: config.clients })
            }
            Protocol::Tcp => {
                let listener = listener.try_clone()?;
                Ok(Self::Tcp { listener, port: None, token, clients: config.clients })
            }
            Protocol::Mptcp => {
                let listen = |address| sockets::listen(address, Some(sockets::MPTCP));
                let listener = listen(any_like(listener)?).map_err(AcceptorError::Mptcp)?;
                let port = Some(listener.local_addr()?.port());
                Ok(Self::Tcp { listener, port, token, clients })
            }
            Protocol::SctpSockets => {
                let listen = |address| sockets::listen(address, Some(sockets::SCTP));
                let listener = listen(any_like(listener)?).map_err(AcceptorError::SctpSockets)?;
                let port = Some(listener.local_addr()?.port());
                Ok(Self::Tcp { listener, port, token, clients })
            }
            Protocol::Relay => Ok(Self::Relay(RelayAcceptor::open(token)?)),
            Protocol::Sctp => {
                let allowed = if config.link == Link::Raw { "raw" } else { "udp" };
                let link = config.link.agree(spec.link).ok_or(AcceptorError::Link { allowed })?;
                let spec = Spec { link, ..spec.clone() };
                let (addresses, trace) = (&config.addresses, config.trace.as_ref());
                let opened = SctpAcceptor::open(&spec, addresses, config.port, config.udp_port, trace);
                opened.map(Self::Sctp).map_err(|error| AcceptorError::from_sctp(config.udp_port, error))
            }
            Protocol::Udp => (0..spec.parallel)
                .map(|index| bind_flow(spec, config, index))
                .collect::<Result<_, _>>()
                .map(Self::Udp),
        }
    }

    /// Returns the ports for the client, and the UDP port that carries SCTP; no UDP port with raw IP.
    pub(crate) fn ports(&self) -> (Vec<u16>, Option<u16>) {
        match self {
            Self::Tcp { port, .. } => (port.iter().copied().collect(), None),
            Self::Relay(_) => (Vec::new(), None),
            Self::Udp(sockets) => {
                (sockets.iter().filter_map(|socket| Some(socket.local_addr().ok()?.port())).collect(), None)
            }
            Self::Sctp(acceptor) => {
                let (port, udp_port) = acceptor.ports();
                (vec![port], udp_port)
            }
        }
    }

    /// Serves the connection, association or flow of this index to its end.
    pub(crate) fn serve(
        &self,
        index: usize,
        spec: &Spec,
        stop: &AtomicBool,
        meter: &Meter,
    ) -> Result<Span, LoadError> {
        match self {
            Self::Tcp { listener, token, clients, .. } => {
                serve_tcp(Arrivals { listener, token: *token, clients: *clients }, spec, stop, meter)
            }
            Self::Udp(sockets) => serve_udp(&sockets[index], spec, stop, meter),
            Self::Sctp(acceptor) => serve_sctp(acceptor, spec, stop, meter),
            Self::Relay(acceptor) => serve_relay(acceptor, spec, stop, meter),
        }
    }

    /// Ends associations that a reader may wait for. TCP and UDP readers check the stop flag themselves.
    pub(crate) fn close(&self) {
        if let Self::Sctp(acceptor) = self {
            acceptor.close();
        }
    }
}

/// Returns the wildcard address of a listener's family with any port: over several paths, connections arrive at several
/// addresses.
fn any_like(listener: &TcpListener) -> io::Result<SocketAddr> {
    let any: IpAddr = match listener.local_addr()? {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    Ok(SocketAddr::new(any, 0))
}

fn bind_flow(spec: &Spec, config: &ServerConfig, index: usize) -> Result<UdpSocket, AcceptorError> {
    // Consecutive ports give each flow a socket and a thread of its own.
    let port = if config.udp_port == 0 { 0 } else { config.udp_port.saturating_add(index as u16) };
    let any = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let address = config.addresses.first().copied().unwrap_or(any);
    let bound = sockets::bind_udp(SocketAddr::new(address, port), spec.buffer_bytes).or_else(|error| {
        let no_ipv6 = config.addresses.is_empty() && error.kind() != io::ErrorKind::AddrInUse;
        let ipv4 = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
        if no_ipv6 { sockets::bind_udp(ipv4, spec.buffer_bytes) } else { Err(error) }
    });
    bound.map_err(|source| AcceptorError::Bind { port, source })
}

/// Connections to a server during a test.
#[derive(Clone, Copy)]
struct Arrivals<'a> {
    listener: &'a TcpListener,
    /// Token of those that belong to the test.
    token: u64,
    clients: Clients,
}

fn serve_tcp(
    arrivals: Arrivals<'_>,
    spec: &Spec,
    stop: &AtomicBool,
    meter: &Meter,
) -> Result<Span, LoadError> {
    if spec.exchange == Exchange::ConnectRequestResponse {
        return serve_tcp_connections(arrivals, spec, stop, meter);
    }
    let until = Instant::now() + CONNECTIONS_TIMEOUT;
    let stream = loop {
        if let Some(stream) = arrivals.accept(spec)? {
            break stream;
        }
        if Instant::now() > until {
            return Err(LoadError::NoConnection);
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(Span::default());
        }
    };
    match (spec.exchange, spec.method) {
        (Exchange::OneWay, Method::TcpBatched) => {
            let mut incoming = tcp::BatchedIn::new(stream, spec.message_bytes, stop);
            receive_all(&mut incoming, Some(spec.message_bytes), meter)
        }
        (Exchange::OneWay, Method::SctpSockets) => {
            let mut incoming = tcp::SocketIn::new(stream, spec.message_bytes, stop);
            receive_all(&mut incoming, Some(spec.message_bytes), meter)
        }
        (_, Method::SctpSockets) => serve_messages(stream, spec, stop, meter),
        (Exchange::OneWay, _) => receive_all(&mut tcp::PlainIn::new(stream, stop), None, meter),
        _ => answer_all(tcp::Conversation::new(stream, stop)?, spec.message_bytes, meter),
    }
}

/// Serves a connection whose every read is a message.
fn serve_messages(
    stream: TcpStream,
    spec: &Spec,
    stop: &AtomicBool,
    meter: &Meter,
) -> Result<Span, LoadError> {
    if spec.exchange != Exchange::OneWay {
        return answer_all(tcp::Conversation::messages(stream, stop), spec.message_bytes, meter);
    }
    let mut incoming = tcp::PlainIn::messages(stream, spec.message_bytes, stop);
    receive_all(&mut incoming, Some(spec.message_bytes), meter)
}

fn serve_relay(
    acceptor: &RelayAcceptor,
    spec: &Spec,
    stop: &AtomicBool,
    meter: &Meter,
) -> Result<Span, LoadError> {
    let until = Instant::now() + CONNECTIONS_TIMEOUT;
    let answers = spec.exchange != Exchange::OneWay;
    while Instant::now() <= until {
        if let Some(stream) = acceptor.accept(CHECK_INTERVAL, spec.message_bytes, answers)? {
            return serve_messages(stream, spec, stop, meter);
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(Span::default());
        }
    }
    Err(LoadError::NoConnection)
}

/// Serves one request and one answer per connection, until the client has finished.
fn serve_tcp_connections(
    arrivals: Arrivals<'_>,
    spec: &Spec,
    stop: &AtomicBool,
    meter: &Meter,
) -> Result<Span, LoadError> {
    let mut span = Span::default();
    while !stop.load(Ordering::Relaxed) {
        if let Some(stream) = arrivals.accept(spec)? {
            let dialogue = match spec.method {
                Method::SctpSockets => tcp::Conversation::messages(stream, stop),
                _ => tcp::Conversation::new(stream, stop)?,
            };
            let one = answer_all(dialogue, spec.message_bytes, meter)?;
            span.first = span.first.or(one.first);
            span.last = one.last.or(span.last);
        }
    }
    Ok(span)
}

impl Arrivals<'_> {
    /// Returns the next connection that belongs to the test, if one comes soon. Rejects others.
    fn accept(self, spec: &Spec) -> Result<Option<TcpStream>, LoadError> {
        let during = "accepting a TCP connection";
        let accepted = sockets::accept_within(self.listener, CHECK_INTERVAL);
        let Some((stream, _)) = accepted.map_err(LoadError::during(during))? else { return Ok(None) };
        if !self.clients.admit(&stream) {
            return Ok(None);
        }
        match Purpose::read(&stream, READ_TIMEOUT) {
            Ok(Some(Purpose::Data { token })) if token == self.token => {
                stream.set_read_timeout(Some(READ_TIMEOUT)).map_err(LoadError::during(during))?;
                sockets::set_stream_buffers(&stream, spec.buffer_bytes)
                    .map_err(LoadError::during("setting the socket's buffers"))?;
                Ok(Some(stream))
            }
            Ok(Some(Purpose::Control)) => {
                turn_away(stream);
                Ok(None)
            }
            _ => Ok(None),
        }
    }
}

fn turn_away(stream: TcpStream) {
    use super::control::{Control, FromServer};
    let reason = "the server is busy with another test; try again when it is over".to_owned();
    if let Ok(mut control) = Control::new(stream) {
        let _ = control.say(&FromServer::Refused { reason });
    }
}

fn serve_udp(socket: &UdpSocket, spec: &Spec, stop: &AtomicBool, meter: &Meter) -> Result<Span, LoadError> {
    let socket = socket.try_clone().map_err(LoadError::during("sharing the UDP socket"))?;
    match (spec.exchange, spec.method) {
        (Exchange::OneWay, Method::UdpLimit) => {
            let packet_bytes = spec.packet_bytes.unwrap_or_else(host::loopback_packet_bytes);
            receive_all(&mut udp_limit::BatchIn::new(socket, packet_bytes, stop)?, None, meter)
        }
        (Exchange::OneWay, _) => {
            receive_all(&mut udp::DatagramIn::new(socket, stop)?, Some(spec.message_bytes), meter)
        }
        _ => answer_all(udp::UdpResponder::new(socket, stop)?, spec.message_bytes, meter),
    }
}

fn serve_sctp(
    acceptor: &SctpAcceptor,
    spec: &Spec,
    stop: &AtomicBool,
    meter: &Meter,
) -> Result<Span, LoadError> {
    if spec.exchange == Exchange::ConnectRequestResponse {
        return serve_sctp_associations(acceptor, spec, stop, meter);
    }
    let Some(association) = acceptor.accept(Instant::now() + CONNECTIONS_TIMEOUT, stop)? else {
        return if stop.load(Ordering::Relaxed) { Ok(Span::default()) } else { Err(LoadError::NoConnection) };
    };
    acceptor.remember(&association);
    let (mut incoming, message_bytes) = match (spec.exchange, spec.method) {
        (Exchange::OneWay, Method::SctpStream) => (SctpIn::endless(association), None),
        (Exchange::OneWay, Method::SctpBatch) => {
            let mut incoming = SctpBatchIn::new(association);
            let span = receive_all(&mut incoming, Some(spec.message_bytes), meter)?;
            return incoming.finish().map(|()| span);
        }
        (Exchange::OneWay, _) => {
            (SctpIn::messages(association, spec.message_bytes), Some(spec.message_bytes))
        }
        _ => return answer_all(SctpDialogue(association), spec.message_bytes, meter),
    };
    let span = receive_all(&mut incoming, message_bytes, meter)?;
    incoming.finish()?;
    Ok(span)
}

/// Serves one request and one answer per association, until the client has finished.
fn serve_sctp_associations(
    acceptor: &SctpAcceptor,
    spec: &Spec,
    stop: &AtomicBool,
    meter: &Meter,
) -> Result<Span, LoadError> {
    let mut span = Span::default();
    while !stop.load(Ordering::Relaxed) {
        if let Some(association) = acceptor.accept(Instant::now() + CHECK_INTERVAL, stop)? {
            let one = answer_all(SctpDialogue(association), spec.message_bytes, meter)?;
            span.first = span.first.or(one.first);
            span.last = one.last.or(span.last);
        }
    }
    Ok(span)
}
