//! TCP as programs use it: a write per message, or careful batches with a length before each message.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use links::AlignedBuffer;
use nix::sys::socket::{MsgFlags, recvmsg};

use super::{Dialogue, Incoming, LoadError, Outgoing, read_every_byte};

/// Bytes that netperf's receiver reads at a time.
const READ_BYTES: usize = 128 << 10;
/// The buffer of a careful program, at each end.
const BATCH_BYTES: usize = 64 << 10;
/// Length of the prefix of each message.
const PREFIX_BYTES: usize = 4;
/// Time that the end of a connection may take to be acknowledged.
const LINGER: Duration = Duration::from_secs(10);

/// A blocking write per message.
pub(crate) struct PlainOut(pub TcpStream);

impl Outgoing for PlainOut {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<(), LoadError> {
        self.0.write_all(message).map_err(LoadError::during("writing to the TCP connection"))
    }

    fn finish(self) -> Result<(), LoadError> {
        finish(self.0)
    }
}

/// Reads of 128 KB.
pub(crate) struct PlainIn<'a> {
    stream: TcpStream,
    buffer: AlignedBuffer,
    stop: &'a AtomicBool,
}

impl<'a> PlainIn<'a> {
    /// Reads from the connection until its end or until `stop` is set.
    pub(crate) fn new(stream: TcpStream, stop: &'a AtomicBool) -> Self {
        Self { stream, buffer: AlignedBuffer::new(READ_BYTES), stop }
    }

    /// Reads from a connection whose every read is a message of up to this length.
    pub(crate) fn messages(stream: TcpStream, message_bytes: usize, stop: &'a AtomicBool) -> Self {
        Self { stream, buffer: AlignedBuffer::new(READ_BYTES.max(message_bytes)), stop }
    }
}

impl Incoming for PlainIn<'_> {
    #[inline]
    fn recv(&mut self) -> Result<Option<usize>, LoadError> {
        let count = read(&mut self.stream, &mut self.buffer, self.stop)?;
        read_every_byte(&self.buffer[..count]);
        Ok((count > 0).then_some(count))
    }
}

/// Reads messages of an SCTP socket. The longest ones come in parts; only the last part has `MSG_EOR`.
pub(crate) struct SocketIn<'a> {
    stream: TcpStream,
    buffer: AlignedBuffer,
    stop: &'a AtomicBool,
}

impl<'a> SocketIn<'a> {
    /// Reads messages of up to this length until the end of the association or until `stop` is set.
    pub(crate) fn new(stream: TcpStream, message_bytes: usize, stop: &'a AtomicBool) -> Self {
        Self { stream, buffer: AlignedBuffer::new(READ_BYTES.max(message_bytes)), stop }
    }
}

impl Incoming for SocketIn<'_> {
    #[inline]
    fn recv(&mut self) -> Result<Option<usize>, LoadError> {
        let (stream, stop) = (&self.stream, self.stop);
        let count = whole_message(&mut self.buffer, |place| {
            let mut is_last = false;
            let receive = || {
                let mut parts = [IoSliceMut::new(place)];
                let received = recvmsg::<()>(stream.as_raw_fd(), &mut parts, None, MsgFlags::empty())?;
                is_last = received.flags.contains(MsgFlags::MSG_EOR);
                Ok(received.bytes)
            };
            let bytes = unless_stopped(receive, stop, "reading from the SCTP socket")?;
            Ok((bytes, is_last))
        })?;
        if let Some(count) = count {
            read_every_byte(&self.buffer[..count]);
        }
        Ok(count)
    }
}

/// Reads the parts of a message until the last one, each by `receive`, which returns its length, and whether it is the
/// last. Returns the length of the message; `None` at the end.
fn whole_message(
    buffer: &mut [u8],
    mut receive: impl FnMut(&mut [u8]) -> Result<(usize, bool), LoadError>,
) -> Result<Option<usize>, LoadError> {
    let mut filled = 0;
    loop {
        match receive(&mut buffer[filled..])? {
            (0, _) if filled == 0 => return Ok(None),
            (0, _) => return Err(LoadError::Closed),
            (bytes, is_last) => {
                filled += bytes;
                if is_last {
                    return Ok(Some(filled));
                }
            }
        }
        if filled == buffer.len() {
            return Err(LoadError::WrongSize { got: filled + 1, expected: filled });
        }
    }
}

/// A length before each message, and a write for every 64 KB.
pub(crate) struct BatchedOut {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl BatchedOut {
    /// Writes to the connection.
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, buffer: Vec::with_capacity(BATCH_BYTES) }
    }

    fn flush(&mut self) -> Result<(), LoadError> {
        let outcome = self.stream.write_all(&self.buffer);
        self.buffer.clear();
        outcome.map_err(LoadError::during("writing to the TCP connection"))
    }
}

impl Outgoing for BatchedOut {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<(), LoadError> {
        let prefix = (message.len() as u32).to_be_bytes();
        if self.buffer.len() + PREFIX_BYTES + message.len() > BATCH_BYTES {
            self.flush()?;
        }
        if PREFIX_BYTES + message.len() > BATCH_BYTES {
            return write_both(&mut self.stream, &prefix, message)
                .map_err(LoadError::during("writing to the TCP connection"));
        }
        self.buffer.extend_from_slice(&prefix);
        self.buffer.extend_from_slice(message);
        Ok(())
    }

    fn finish(mut self) -> Result<(), LoadError> {
        self.flush()?;
        finish(self.stream)
    }
}

/// Splits the messages out of a buffer of 64 KB, or of one message if that is larger.
pub(crate) struct BatchedIn<'a> {
    stream: TcpStream,
    buffer: AlignedBuffer,
    start: usize,
    end: usize,
    stop: &'a AtomicBool,
}

impl<'a> BatchedIn<'a> {
    /// Reads messages of up to `message_bytes_max` from the connection until its end or until `stop` is set.
    pub(crate) fn new(stream: TcpStream, message_bytes_max: usize, stop: &'a AtomicBool) -> Self {
        let buffer = AlignedBuffer::new(BATCH_BYTES.max(PREFIX_BYTES + message_bytes_max));
        Self { stream, buffer, start: 0, end: 0, stop }
    }

    /// Reads until the buffer holds `wanted` bytes; returns false at the end of the connection.
    #[inline]
    fn fill(&mut self, wanted: usize) -> Result<bool, LoadError> {
        while self.end - self.start < wanted {
            if self.start == self.end || self.start + wanted > self.buffer.len() {
                self.buffer.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            }
            let count = read(&mut self.stream, &mut self.buffer[self.end..], self.stop)?;
            if count == 0 {
                return Ok(false);
            }
            self.end += count;
        }
        Ok(true)
    }
}

impl Incoming for BatchedIn<'_> {
    #[inline]
    fn recv(&mut self) -> Result<Option<usize>, LoadError> {
        if !self.fill(PREFIX_BYTES)? {
            return Ok(None);
        }
        let mut prefix = [0; PREFIX_BYTES];
        prefix.copy_from_slice(&self.buffer[self.start..self.start + PREFIX_BYTES]);
        let count = u32::from_be_bytes(prefix) as usize;
        let whole = PREFIX_BYTES + count;
        if whole > self.buffer.len() {
            return Err(LoadError::WrongSize { got: count, expected: self.buffer.len() - PREFIX_BYTES });
        }
        if !self.fill(whole)? {
            return Err(LoadError::Closed);
        }
        read_every_byte(&self.buffer[self.start + PREFIX_BYTES..self.start + whole]);
        self.start += whole;
        Ok(Some(count))
    }
}

/// Requests and answers of a fixed size.
pub(crate) struct Conversation<'a> {
    stream: TcpStream,
    stop: &'a AtomicBool,
}

impl<'a> Conversation<'a> {
    /// Exchanges messages over the connection until its end or until `stop` is set. Each message leaves at once.
    pub(crate) fn new(stream: TcpStream, stop: &'a AtomicBool) -> Result<Self, LoadError> {
        stream.set_nodelay(true).map_err(LoadError::during("setting TCP_NODELAY"))?;
        Ok(Self::messages(stream, stop))
    }

    /// Exchanges messages over a connection that needs no option for messages to leave at once.
    pub(crate) fn messages(stream: TcpStream, stop: &'a AtomicBool) -> Self {
        Self { stream, stop }
    }
}

impl Dialogue for Conversation<'_> {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<(), LoadError> {
        self.stream.write_all(message).map_err(LoadError::during("writing to the TCP connection"))
    }

    #[inline]
    fn recv(&mut self, message: &mut [u8]) -> Result<bool, LoadError> {
        let mut filled = 0;
        while filled < message.len() {
            let count = read(&mut self.stream, &mut message[filled..], self.stop)?;
            if count == 0 {
                return Ok(false);
            }
            filled += count;
        }
        read_every_byte(message);
        Ok(true)
    }
}

/// Reads once; returns 0 at the end of the connection, and after `stop` if nothing has come for the read timeout.
#[inline]
fn read(stream: &mut TcpStream, buffer: &mut [u8], stop: &AtomicBool) -> Result<usize, LoadError> {
    unless_stopped(|| stream.read(buffer), stop, "reading from the TCP connection")
}

/// Repeats a read whose time limit has passed; returns 0 after `stop`.
#[inline]
fn unless_stopped(
    mut read: impl FnMut() -> io::Result<usize>,
    stop: &AtomicBool,
    during: &'static str,
) -> Result<usize, LoadError> {
    loop {
        match read() {
            Ok(count) => return Ok(count),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                if stop.load(Ordering::Relaxed) {
                    return Ok(0);
                }
            }
            Err(error) => return Err(LoadError::during(during)(error)),
        }
    }
}

/// Writes the prefix and the message with as few calls as the kernel allows.
fn write_both(stream: &mut TcpStream, prefix: &[u8], message: &[u8]) -> io::Result<()> {
    let written = stream.write_vectored(&[IoSlice::new(prefix), IoSlice::new(message)])?;
    if written < prefix.len() {
        stream.write_all(&prefix[written..])?;
    }
    stream.write_all(&message[written.saturating_sub(prefix.len())..])
}

/// Ends the direction and waits for the other end to have read everything.
fn finish(mut stream: TcpStream) -> Result<(), LoadError> {
    let during = "ending the TCP connection";
    stream.shutdown(Shutdown::Write).map_err(LoadError::during(during))?;
    stream.set_read_timeout(Some(LINGER)).map_err(LoadError::during(during))?;
    match stream.read(&mut [0; 1]) {
        Ok(0) => Ok(()),
        // SCTP returns this error when the association is over.
        Err(error) if error.kind() == ErrorKind::NotConnected => Ok(()),
        Ok(got) => Err(LoadError::WrongSize { got, expected: 0 }),
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            let seconds = LINGER.as_secs();
            let said = format!("the other end has not read everything within {seconds} s; try again");
            Err(LoadError::during(during)(io::Error::new(ErrorKind::TimedOut, said)))
        }
        Err(error) => Err(LoadError::during(during)(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::super::{Meter, payload, receive_all, send_all};
    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("a listener");
        (client, listener.accept().expect("a client").0)
    }

    #[test]
    fn batches_keep_the_boundaries_of_every_size() {
        for message_bytes in [1, 7, 1000, BATCH_BYTES - PREFIX_BYTES, BATCH_BYTES, 3 * BATCH_BYTES + 1] {
            let (client, server) = pair();
            let sent = 300;
            let sender = thread::spawn(move || {
                let (stop, meter) = (AtomicBool::new(false), Meter::default());
                send_all(BatchedOut::new(client), &payload(message_bytes), sent, &stop, &meter)
            });
            let (stop, meter) = (AtomicBool::new(false), Meter::default());
            let mut incoming = BatchedIn::new(server, message_bytes, &stop);
            receive_all(&mut incoming, Some(message_bytes), &meter).expect("whole messages");
            assert_eq!(meter.read(), (sent, sent * message_bytes as u64));
            drop(incoming);
            sender.join().expect("no panic").expect("all was sent");
        }
    }

    #[test]
    fn a_message_that_comes_in_parts_is_read_to_its_end() {
        let read = |parts: &[(usize, bool)]| {
            let mut parts = parts.iter();
            whole_message(&mut [0; 8], |place| {
                let (bytes, is_last) = *parts.next().unwrap_or(&(0, false));
                assert!(bytes <= place.len());
                Ok((bytes, is_last))
            })
        };
        assert!(matches!(read(&[(3, false), (4, false), (1, true)]), Ok(Some(8))));
        assert!(matches!(read(&[(8, true)]), Ok(Some(8))));
        assert!(matches!(read(&[]), Ok(None)));
        assert!(matches!(read(&[(3, false)]), Err(LoadError::Closed)), "the end comes within the message");
        assert!(matches!(read(&[(8, false)]), Err(LoadError::WrongSize { .. })), "it is longer");
    }

    #[test]
    fn a_length_above_the_limit_is_an_error_and_no_allocation() {
        let (mut client, server) = pair();
        client.write_all(&u32::MAX.to_be_bytes()).expect("room for four bytes");
        let stop = AtomicBool::new(false);
        let outcome = BatchedIn::new(server, 64, &stop).recv();
        assert!(matches!(outcome, Err(LoadError::WrongSize { .. })), "{outcome:?}");
    }
}
