//! SCTP by the `swiftwater` crate: one call of its API per message at both ends.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use links::AlignedBuffer;
use swiftwater::trace::TraceSink;
use swiftwater::{
    AcceptError, Address, Association, AssociationOptions, BindError, Checksum, LinkKind, Listener,
    PathStatistics, Reader, SendInfo, Sender, Stack, StackOptions,
};

use super::{Dialogue, Incoming, LoadError, Outgoing, read_every_byte};
use crate::interrupt;
use crate::output::note;
use crate::perf::spec::{Link, Spec};

/// Interval at which a sender checks for acknowledgement at its end.
const ACK_CHECK_INTERVAL: Duration = Duration::from_millis(1);
/// Interval at which a waiting acceptor checks whether the test is over.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Time that a server's next test may wait for its port: the sockets of the previous one are released in the background.
const REBIND_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes that a receiver of an endless message reads at a time, like a TCP receiver.
const READ_BYTES: usize = 128 << 10;
/// Bytes of an endless message that a receiver from another host waits for, at first and afterwards: as much as begins a
/// transfer. The clock of a test begins with the first bytes read. On one host the default costs less, and is reached at once.
const PART_BYTES: usize = 4096;
/// Size from which a receiver reads messages in place; copying a smaller one is cheaper.
const IN_PLACE_BYTES_MIN: usize = 8192;

/// Returns the options of a test, on these local addresses.
fn options(
    spec: &Spec,
    local_addresses: &[IpAddr],
    udp_port: u16,
    trace: Option<&TraceSink>,
) -> StackOptions {
    let mut association = AssociationOptions::default();
    if let Some(bytes) = spec.buffer_bytes {
        // A requested size is fixed.
        (association.send_buffer_bytes, association.send_buffer_bytes_max) = (bytes, 0);
        (association.receive_buffer_bytes, association.receive_buffer_bytes_max) = (bytes, 0);
    }
    association.congestion = spec.congestion.unwrap_or(association.congestion);
    association.initial_window_packets = spec.initial_window_packets;
    association.multipath = spec.multipath.unwrap_or(association.multipath);
    association.coupling = spec.coupling.unwrap_or(association.coupling);
    StackOptions::default()
        .with_link(spec.link.into())
        .with_udp_port(udp_port)
        .with_local_addresses(local_addresses.to_vec())
        .with_mtu_bytes(spec.packet_bytes)
        .with_trace(trace.cloned())
        .with_checksum(if spec.checksum { Checksum::Crc32c } else { Checksum::None })
        .with_association(association)
}

/// Returns the link for a client that asks for `auto`. Writes warnings about the link to standard error.
pub(crate) fn offered_link(spec: &Spec, local_addresses: &[IpAddr]) -> Result<Link, BindError> {
    let stack = Stack::bind(&options(spec, local_addresses, 0, None))?;
    tell_warning(&stack);
    Ok(if stack.link() == LinkKind::Raw { spec.link } else { Link::Udp })
}

fn tell_warning(stack: &Stack) {
    if let Some(warning) = stack.warning() {
        note(format_args!("swiftwater: {warning}"));
    }
}

/// The server's side: accepts the associations of one test.
#[derive(Debug)]
pub(crate) struct SctpAcceptor {
    listener: Listener,
    open: Mutex<Vec<Association>>,
    _stack: Arc<Stack>,
}

impl SctpAcceptor {
    /// Listens with the options of the test.
    pub(crate) fn open(
        spec: &Spec,
        local_addresses: &[IpAddr],
        port: u16,
        udp_port: u16,
        trace: Option<&TraceSink>,
    ) -> Result<Self, BindError> {
        let options = options(spec, local_addresses, udp_port, trace);
        let until = Instant::now() + REBIND_TIMEOUT;
        let stack = loop {
            match Stack::bind(&options) {
                Err(BindError::Link(_)) if Instant::now() < until => thread::sleep(CHECK_INTERVAL),
                other => break other?,
            }
        };
        tell_warning(&stack);
        let listener = stack.listen(port)?;
        let stack = Arc::new(stack);
        interrupt::remember(&stack);
        Ok(Self { listener, open: Mutex::default(), _stack: stack })
    }

    /// Returns the SCTP port and the UDP port that carries it; `None` with raw IP.
    pub(crate) fn ports(&self) -> (u16, Option<u16>) {
        let address = self.listener.address();
        (address.port, address.udp_port)
    }

    /// Returns the next association if one comes before `until`; `None` once `stop` is set.
    pub(crate) fn accept(&self, until: Instant, stop: &AtomicBool) -> Result<Option<Association>, LoadError> {
        while Instant::now() < until && !stop.load(Ordering::Relaxed) {
            match self.listener.accept_timeout(CHECK_INTERVAL) {
                Ok((association, _)) => return Ok(Some(association)),
                Err(AcceptError::TimedOut) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// Remembers the association, so that [`SctpAcceptor::close`] reaches it.
    pub(crate) fn remember(&self, association: &Association) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).push(association.clone());
    }

    /// Ends all associations that are still open. This does not affect those that have ended.
    pub(crate) fn close(&self) {
        for association in self.open.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            association.abort("the test is over");
        }
    }
}

/// The client's side: makes associations with one server.
#[derive(Debug)]
pub(crate) struct SctpConnector {
    stack: Arc<Stack>,
    server: Address,
}

impl SctpConnector {
    /// Binds the client's sockets with the options of the test. UDP port 0 stands for any.
    pub(crate) fn bind(
        spec: &Spec,
        local_addresses: &[IpAddr],
        local_udp_port: u16,
        server: SocketAddr,
        server_udp_port: Option<u16>,
        trace: Option<&TraceSink>,
    ) -> Result<Self, BindError> {
        let stack = Arc::new(Stack::bind(&options(spec, local_addresses, local_udp_port, trace))?);
        interrupt::remember(&stack);
        let server = Address { hosts: vec![server.ip()], port: server.port(), udp_port: server_udp_port };
        Ok(Self { stack, server })
    }

    /// Makes one more association.
    pub(crate) fn connect(&self) -> Result<Association, LoadError> {
        Ok(self.stack.connect(&self.server)?)
    }
}

/// Sends a message per call, or an endless message that every call continues.
pub(crate) struct SctpOut<'a> {
    association: Association,
    info: SendInfo,
    /// Log for the statistics of its paths at the end.
    paths: &'a PathLog,
}

/// Statistics of the paths of a test's associations.
#[derive(Debug, Default)]
pub(crate) struct PathLog {
    noted: Mutex<Vec<PathStatistics>>,
    /// Associations that send.
    watched: Mutex<Vec<Association>>,
}

impl PathLog {
    /// Keeps a clone of an association for [`PathLog::watched`]; closing the association ends it nevertheless.
    pub(crate) fn watch(&self, association: &Association) {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).push(association.clone());
    }

    /// Returns the present paths of the watched associations.
    pub(crate) fn watched(&self) -> Vec<PathStatistics> {
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched
            .iter()
            .filter_map(|association| association.statistics())
            .flat_map(|statistics| statistics.paths)
            .collect()
    }

    /// Logs the paths of an association once all its data is acknowledged, or the association is lost. The round-trip times
    /// are those at the time of the call: the last packet may wait for a delayed SACK, whose 200 ms are no property of the path.
    pub(crate) fn note(&self, association: &Association) {
        let before = association.statistics().unwrap_or_default().paths;
        loop {
            let statistics = association.statistics().unwrap_or_default();
            if statistics.send_buffered_bytes == 0 {
                let paths = statistics.paths.into_iter().map(|path| with_earlier_srtt(path, &before));
                return self.noted.lock().unwrap_or_else(PoisonError::into_inner).extend(paths);
            }
            // Waiting for the end lets the stack handle what has arrived.
            let _ = association.recv_timeout(ACK_CHECK_INTERVAL);
        }
    }

    /// Returns all logged paths.
    pub(crate) fn take(&self) -> Vec<PathStatistics> {
        std::mem::take(&mut self.noted.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Returns the statistics of a path with its smoothed round-trip time of an earlier time, if it was measured then.
fn with_earlier_srtt(mut path: PathStatistics, earlier: &[PathStatistics]) -> PathStatistics {
    let same = |other: &&PathStatistics| (other.local, other.remote) == (path.local, path.remote);
    path.srtt = earlier.iter().find(same).and_then(|other| other.srtt).or(path.srtt);
    path
}

impl<'a> SctpOut<'a> {
    /// Returns a sender whose every call sends a message of its own.
    pub(crate) fn messages(association: Association, paths: &'a PathLog) -> Self {
        Self { association, info: SendInfo::default(), paths }
    }

    /// Returns a sender whose every call continues the message, as a write to TCP continues the stream.
    pub(crate) fn endless(association: Association, paths: &'a PathLog) -> Self {
        Self { association, info: SendInfo { more: true, ..SendInfo::default() }, paths }
    }
}

impl Outgoing for SctpOut<'_> {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<(), LoadError> {
        Ok(self.association.send_with(message, &self.info)?)
    }

    fn finish(self) -> Result<(), LoadError> {
        self.paths.note(&self.association);
        Ok(self.association.close()?)
    }
}

/// Sends messages through a sender, which hands over many at once.
pub(crate) struct SctpBatchOut<'a> {
    association: Association,
    sender: Sender,
    /// Log for the statistics of its paths at the end.
    paths: &'a PathLog,
}

impl<'a> SctpBatchOut<'a> {
    pub(crate) fn new(association: Association, paths: &'a PathLog) -> Self {
        Self { sender: association.sender(), association, paths }
    }
}

impl Outgoing for SctpBatchOut<'_> {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<(), LoadError> {
        Ok(self.sender.feed(message)?)
    }

    fn finish(mut self) -> Result<(), LoadError> {
        self.sender.flush()?;
        self.paths.note(&self.association);
        Ok(self.association.close()?)
    }
}

/// Receives messages through a reader, which takes many at once.
pub(crate) struct SctpBatchIn {
    association: Association,
    reader: Reader,
}

impl SctpBatchIn {
    /// Returns a receiver of messages of any size.
    pub(crate) fn new(association: Association) -> Self {
        Self { reader: association.reader(), association }
    }

    /// Answers the peer's shutdown with ours.
    pub(crate) fn finish(self) -> Result<(), LoadError> {
        Ok(self.association.close()?)
    }
}

impl Incoming for SctpBatchIn {
    #[inline]
    fn recv(&mut self) -> Result<Option<usize>, LoadError> {
        let mut bytes = 0;
        loop {
            let Some(message) = self.reader.recv()? else {
                return if bytes == 0 { Ok(None) } else { Err(LoadError::Closed) };
            };
            message.blocks().for_each(read_every_byte);
            bytes += message.len();
            if !message.info.more {
                return Ok(Some(bytes));
            }
        }
    }
}

/// Receives single messages, or an endless message in pieces of up to 128 KB.
pub(crate) struct SctpIn {
    association: Association,
    buffer: AlignedBuffer,
    /// Size of whole messages; `None` for pieces of an endless one.
    message_bytes: Option<usize>,
}

impl SctpIn {
    /// Returns a receiver of whole messages of this size.
    pub(crate) fn messages(association: Association, message_bytes: usize) -> Self {
        let buffer = AlignedBuffer::new(if message_bytes < IN_PLACE_BYTES_MIN { message_bytes } else { 0 });
        Self { association, buffer, message_bytes: Some(message_bytes) }
    }

    /// Returns a receiver of pieces of an endless message.
    pub(crate) fn endless(association: Association) -> Self {
        if !association.peer_addr().ip().is_loopback() && association.options().is_some() {
            let later = |options: &mut AssociationOptions| options.partial_delivery_bytes = PART_BYTES;
            if let Err(error) = association.update_options(later) {
                // The rate of a long test hardly changes.
                note(format_args!("swiftwater: the first bytes of a stream are read late: {error}"));
            }
        }
        Self { association, buffer: AlignedBuffer::new(READ_BYTES), message_bytes: None }
    }

    /// Answers the peer's shutdown with ours.
    pub(crate) fn finish(self) -> Result<(), LoadError> {
        Ok(self.association.close()?)
    }

    /// Reads a message in place. Parts of a message that was too long to wait for come one by one.
    fn recv_in_place(&self) -> Result<Option<usize>, LoadError> {
        let mut bytes = 0;
        while let Some(message) = self.association.recv()? {
            message.blocks().iter().for_each(|block| read_every_byte(block));
            bytes += message.len();
            if !message.info.more {
                return Ok(Some(bytes));
            }
        }
        if bytes == 0 { Ok(None) } else { Err(LoadError::Closed) }
    }
}

impl Incoming for SctpIn {
    #[inline]
    fn recv(&mut self) -> Result<Option<usize>, LoadError> {
        if self.buffer.is_empty() {
            return self.recv_in_place();
        }
        let Some((bytes, info)) = self.association.recv_into(&mut self.buffer)? else { return Ok(None) };
        read_every_byte(&self.buffer[..bytes]);
        match self.message_bytes {
            Some(expected) if info.more => Err(LoadError::WrongSize { got: expected + 1, expected }),
            _ => Ok(Some(bytes)),
        }
    }
}

/// Exchanges requests and answers, one message each.
pub(crate) struct SctpDialogue(pub Association);

impl Dialogue for SctpDialogue {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<(), LoadError> {
        Ok(self.0.send(message)?)
    }

    #[inline]
    fn recv(&mut self, message: &mut [u8]) -> Result<bool, LoadError> {
        let mut filled = 0;
        while let Some((bytes, info)) = self.0.recv_into(&mut message[filled..])? {
            filled += bytes;
            if !info.more && filled == message.len() {
                read_every_byte(message);
                return Ok(true);
            }
            if !info.more || filled == message.len() {
                return Err(LoadError::WrongSize { got: filled, expected: message.len() });
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_round_trip_time_of_a_path_is_that_before_the_last_acknowledgement() {
        let local = StackOptions::default()
            .with_udp_port(0)
            .with_local_addresses(vec![Ipv4Addr::LOCALHOST.into()])
            .with_hairpin(true);
        let stack = Stack::bind(&local).expect("a free port");
        let listener = stack.listen(7).expect("a free port");
        let association = stack.connect(listener.address()).expect("it listens");
        let path = association.statistics().expect("it is there").paths.remove(0);
        let with_srtt = |srtt| {
            let mut path = path.clone();
            path.srtt = srtt;
            path
        };
        let [early, late] = [1, 25].map(|ms| Some(Duration::from_millis(ms)));
        let chosen = |earlier| with_earlier_srtt(with_srtt(late), &[earlier]).srtt;
        assert_eq!(chosen(with_srtt(early)), early);
        assert_eq!(chosen(with_srtt(None)), late);
        let mut other = with_srtt(early);
        other.remote = ([127, 0, 0, 2], 9899).into();
        assert_eq!(chosen(other), late);
    }
}
