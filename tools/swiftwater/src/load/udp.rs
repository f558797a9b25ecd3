//! UDP as programs use it: a datagram per message. Datagrams that do not fit the receiver's buffer are lost.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::read_buffer::ReadBuffer;
use super::{Dialogue, Incoming, LoadError, Outgoing, read_every_byte};

/// Interval at which a quiet receiver checks whether the test is over.
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
    buffer: ReadBuffer,
    stop: &'a AtomicBool,
}

impl<'a> DatagramIn<'a> {
    /// Reads every byte of each datagram.
    pub(crate) fn new(socket: UdpSocket, stop: &'a AtomicBool) -> Result<Self, LoadError> {
        socket
            .set_read_timeout(Some(RECEIVE_POLL_INTERVAL))
            .map_err(LoadError::during("setting a timeout"))?;
        Ok(Self { socket, buffer: ReadBuffer::new(1 << 16), stop })
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
pub(crate) struct UdpRequester {
    socket: UdpSocket,
    request: Vec<u8>,
}

impl UdpRequester {
    /// Makes requests to the peer that the socket is connected to.
    pub(crate) fn new(socket: UdpSocket) -> Result<Self, LoadError> {
        socket.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(LoadError::during("setting a timeout"))?;
        Ok(Self { socket, request: Vec::new() })
    }
}

impl Dialogue for UdpRequester {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<(), LoadError> {
        self.request.clear();
        self.request.extend_from_slice(message);
        self.socket.send(message).map_err(LoadError::during("sending a UDP datagram"))?;
        Ok(())
    }

    #[inline]
    fn recv(&mut self, message: &mut [u8]) -> Result<bool, LoadError> {
        for _ in 0..TRIES_MAX {
            match self.socket.recv(message) {
                Ok(count) if count == message.len() => {
                    read_every_byte(message);
                    return Ok(true);
                }
                Ok(got) => return Err(LoadError::WrongSize { got, expected: message.len() }),
                Err(error) if is_transient(error.kind()) => {
                    self.socket.send(&self.request).map_err(LoadError::during("sending a UDP datagram"))?;
                }
                Err(error) => return Err(LoadError::during("receiving UDP datagrams")(error)),
            }
        }
        Ok(false)
    }
}

/// Answers all requests until `stop` is set.
pub(crate) struct UdpResponder<'a> {
    socket: UdpSocket,
    stop: &'a AtomicBool,
    requester: Option<SocketAddr>,
}

impl<'a> UdpResponder<'a> {
    /// Answers on the bound socket.
    pub(crate) fn new(socket: UdpSocket, stop: &'a AtomicBool) -> Result<Self, LoadError> {
        socket
            .set_read_timeout(Some(RECEIVE_POLL_INTERVAL))
            .map_err(LoadError::during("setting a timeout"))?;
        Ok(Self { socket, stop, requester: None })
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
                Ok((_, requester)) => {
                    self.requester = Some(requester);
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
