//! UDP as programs use it: a datagram per message. Datagrams that do not fit the receiver's buffer are lost.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use links::AlignedBuffer;

use super::{Dialogue, Incoming, LoadError, Outgoing, read_every_byte};

/// Interval at which a receiver that gets nothing checks whether the test is over.
pub(crate) const RECEIVE_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Time after which a client takes its request or the answer for lost.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(200);
/// Number of times that a client repeats its request before it gives up.
const TRIES_MAX: usize = 10;

/// A datagram per message.
pub(crate) struct DatagramOut(pub UdpSocket);

impl Outgoing for DatagramOut {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<(), LoadError> {
        match self.0.send(message) {
            Ok(_) => Ok(()),
            // A full device queue loses datagrams like any other part of the path; the receiver counts the rest.
            Err(error) if error.raw_os_error() == Some(nix::libc::ENOBUFS) => Ok(()),
            Err(error) => Err(LoadError::during("sending a UDP datagram")(error)),
        }
    }

    fn finish(self) -> Result<(), LoadError> {
        Ok(())
    }
}

/// Receives datagrams until `stop` is set and none has come for a while.
pub(crate) struct DatagramIn<'a> {
    socket: UdpSocket,
    buffer: AlignedBuffer,
    stop: &'a AtomicBool,
}

impl<'a> DatagramIn<'a> {
    /// Reads every byte of each datagram.
    pub(crate) fn new(socket: UdpSocket, stop: &'a AtomicBool) -> Result<Self, LoadError> {
        socket
            .set_read_timeout(Some(RECEIVE_POLL_INTERVAL))
            .map_err(LoadError::during("setting a timeout"))?;
        Ok(Self { socket, buffer: AlignedBuffer::new(1 << 16), stop })
    }
}

impl Incoming for DatagramIn<'_> {
    #[inline]
    fn recv(&mut self) -> Result<Option<usize>, LoadError> {
        loop {
            match self.socket.recv(&mut self.buffer) {
                Ok(count) => {
                    read_every_byte(&self.buffer[..count]);
                    return Ok(Some(count));
                }
                Err(error) if is_transient(error.kind()) => {
                    if self.stop.load(Ordering::Relaxed) {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(LoadError::during("receiving UDP datagrams")(error)),
            }
        }
    }
}

/// Makes requests over a connected socket; repeats one that gets no answer.
///
/// Each request begins with a number, and an answer has the bytes of its request. So an answer that comes late or twice
/// counts for no later request.
pub(crate) struct UdpRequester {
    socket: UdpSocket,
    request: Vec<u8>,
    number: u64,
}

impl UdpRequester {
    /// Makes requests to the peer that the socket is connected to.
    pub(crate) fn new(socket: UdpSocket) -> Result<Self, LoadError> {
        socket.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(LoadError::during("setting a timeout"))?;
        Ok(Self { socket, request: Vec::new(), number: 0 })
    }

    fn send_request(&self) -> Result<(), LoadError> {
        self.socket.send(&self.request).map(drop).map_err(LoadError::during("sending a UDP datagram"))
    }

    /// Waits for the answer, passing over those to earlier requests. Returns false if it does not come in time.
    #[inline]
    fn recv_answer(&self, message: &mut [u8]) -> Result<bool, LoadError> {
        let mut passed_over_since = None;
        loop {
            match self.socket.recv(message) {
                Ok(got) if got != message.len() => {
                    return Err(LoadError::WrongSize { got, expected: message.len() });
                }
                Ok(_) if number_in(message) == number_in(&self.request) => return Ok(true),
                Ok(_) => {
                    if passed_over_since.get_or_insert_with(Instant::now).elapsed() > ANSWER_TIMEOUT {
                        return Ok(false);
                    }
                }
                Err(error) if is_transient(error.kind()) => return Ok(false),
                Err(error) => return Err(LoadError::during("receiving UDP datagrams")(error)),
            }
        }
    }
}

impl Dialogue for UdpRequester {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<(), LoadError> {
        self.request.clear();
        self.request.extend_from_slice(message);
        self.number = self.number.wrapping_add(1);
        self.request.iter_mut().zip(self.number.to_le_bytes()).for_each(|(place, byte)| *place = byte);
        self.send_request()
    }

    #[inline]
    fn recv(&mut self, message: &mut [u8]) -> Result<bool, LoadError> {
        for _ in 0..TRIES_MAX {
            if self.recv_answer(message)? {
                read_every_byte(message);
                return Ok(true);
            }
            self.send_request()?;
        }
        Ok(false)
    }
}

/// Returns the part of a message that holds the number of the request. A message of one byte holds the lowest byte of the number.
fn number_in(message: &[u8]) -> &[u8] {
    &message[..message.len().min(size_of::<u64>())]
}

/// Answers all requests until `stop` is set. A request that is repeated gets its answer again, and counts once.
pub(crate) struct UdpResponder<'a> {
    socket: UdpSocket,
    stop: &'a AtomicBool,
    requester: Option<SocketAddr>,
    /// The number of the last request, as its message holds it.
    number: Vec<u8>,
}

impl<'a> UdpResponder<'a> {
    /// Answers on the bound socket.
    pub(crate) fn new(socket: UdpSocket, stop: &'a AtomicBool) -> Result<Self, LoadError> {
        socket
            .set_read_timeout(Some(RECEIVE_POLL_INTERVAL))
            .map_err(LoadError::during("setting a timeout"))?;
        Ok(Self { socket, stop, requester: None, number: Vec::new() })
    }
}

impl Dialogue for UdpResponder<'_> {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<(), LoadError> {
        let Some(requester) = self.requester else { return Ok(()) };
        self.socket.send_to(message, requester).map_err(LoadError::during("sending a UDP datagram"))?;
        Ok(())
    }

    #[inline]
    fn recv(&mut self, message: &mut [u8]) -> Result<bool, LoadError> {
        loop {
            match self.socket.recv_from(message) {
                Ok((_, requester))
                    if self.requester == Some(requester) && self.number == number_in(message) =>
                {
                    self.send(message)?;
                }
                Ok((_, requester)) => {
                    self.requester = Some(requester);
                    self.number.clear();
                    self.number.extend_from_slice(number_in(message));
                    read_every_byte(message);
                    return Ok(true);
                }
                Err(error) if is_transient(error.kind()) => {
                    if self.stop.load(Ordering::Relaxed) {
                        return Ok(false);
                    }
                }
                Err(error) => return Err(LoadError::during("receiving UDP datagrams")(error)),
            }
        }
    }
}

/// Returns whether nothing came in time, or an earlier datagram of ours met a closed port (which says nothing about this one).
pub(super) fn is_transient(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted | ErrorKind::ConnectionRefused
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::thread;

    use crate::load::payload;

    fn bound() -> UdpSocket {
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port")
    }

    /// Answers each datagram at once, and again before the answer to the next, until an empty one comes.
    fn answer_twice(socket: &UdpSocket) {
        let (mut message, mut earlier) = ([0; 64], Vec::new());
        loop {
            let (bytes, requester) = socket.recv_from(&mut message).expect("a request");
            if bytes == 0 {
                return;
            }
            if !earlier.is_empty() {
                socket.send_to(&earlier, requester).expect("loopback");
            }
            earlier = message[..bytes].to_vec();
            socket.send_to(&earlier, requester).expect("loopback");
        }
    }

    #[test]
    fn an_answer_that_comes_twice_counts_once() {
        const REQUESTS: u64 = 300;
        for bytes in [1, 7, 8, 64] {
            let (client, server) = (bound(), bound());
            client.connect(server.local_addr().expect("bound")).expect("loopback");
            let answering = thread::spawn(move || answer_twice(&server));
            let mut requester = UdpRequester::new(client).expect("a socket");
            let mut answer = vec![0; bytes];
            for number in 1..=REQUESTS {
                requester.send(&payload(bytes)).expect("loopback");
                assert!(requester.recv(&mut answer).expect("loopback"));
                assert_eq!(number_in(&answer), number_in(&number.to_le_bytes()[..bytes.min(8)]), "{bytes}");
                assert_eq!(answer.get(8..), payload(bytes).get(8..));
            }
            requester.socket.send(&[]).expect("loopback");
            answering.join().expect("no panic");
        }
    }

    #[test]
    fn a_request_that_comes_twice_is_answered_twice_and_counts_once() {
        let (client, server, stop) = (bound(), bound(), AtomicBool::new(true));
        client.connect(server.local_addr().expect("bound")).expect("loopback");
        for request in [b"1 ask", b"1 ask", b"2 ask"] {
            client.send(request).expect("loopback");
        }
        let mut responder = UdpResponder::new(server, &stop).expect("a socket");
        let mut message = [0; 5];
        for expected in [b"1 ask", b"2 ask"] {
            assert!(responder.recv(&mut message).expect("loopback"));
            assert_eq!(&message, expected);
            responder.send(&message).expect("loopback");
        }
        assert!(!responder.recv(&mut message).expect("loopback"), "there were two");
        for expected in [b"1 ask", b"1 ask", b"2 ask"] {
            client.recv(&mut message).expect("loopback");
            assert_eq!(&message, expected);
        }
    }
}
