//! The control exchange of a test: its parameters, its start and end, and the counters of each end.
//!
//! It is a TCP connection to the server's port with one JSON object a line. TCP tests open their connections to the same port; a
//! preamble of sixteen bytes distinguishes them, so a firewall needs one port.

use std::borrow::Borrow;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::spec::Spec;

/// Both ends must speak the same version.
pub(crate) const VERSION: u32 = 2;
/// Length of the preamble of every connection.
pub(crate) const PREAMBLE_BYTES: usize = 16;
/// Longest line. A peer that sends a longer one is no end of a test.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Time for the other end to make room for a message.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
const MAGIC: &[u8; 4] = b"SWFT";

/// Purpose of a connection to the server's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Agrees on a test.
    Control,
    /// Carries the data of the test with this token.
    Data {
        /// Token from the server.
        token: u64,
    },
}

impl Purpose {
    /// Encodes the preamble.
    pub(crate) fn to_bytes(self) -> [u8; PREAMBLE_BYTES] {
        let mut bytes = [0; PREAMBLE_BYTES];
        bytes[..4].copy_from_slice(MAGIC);
        if let Self::Data { token } = self {
            bytes[4] = 1;
            bytes[8..].copy_from_slice(&token.to_be_bytes());
        }
        bytes
    }

    /// Parses the preamble; returns `None` if another program sent the bytes.
    pub(crate) fn parse(bytes: &[u8; PREAMBLE_BYTES]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk::<4>()?;
        let token = u64::from_be_bytes(*rest.last_chunk::<8>()?);
        match (magic == MAGIC, rest[0]) {
            (true, 0) => Some(Self::Control),
            (true, 1) => Some(Self::Data { token }),
            _ => None,
        }
    }

    /// Reads the preamble of a new connection, which must come within `timeout`.
    pub(crate) fn read(stream: &TcpStream, timeout: Duration) -> io::Result<Option<Self>> {
        let mut bytes = [0; PREAMBLE_BYTES];
        Limited { stream, until: Some(Instant::now() + timeout) }.read_exact(&mut bytes)?;
        Ok(Self::parse(&bytes))
    }
}

/// Messages of the client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case")]
pub(crate) enum FromClient {
    /// Asks for a test.
    Test {
        /// [`VERSION`].
        version: u32,
        /// The test.
        spec: Spec,
    },
    /// All connections are open; the test begins.
    Go,
    /// The client has ended its side.
    Done {
        /// Time that it has sent for, in a test without answers.
        sending_s: f64,
    },
}

/// Messages of the server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case")]
pub(crate) enum FromServer {
    /// The server is ready for connections.
    Ready {
        /// Token that TCP connections carry in their preamble.
        token: u64,
        /// The ports of the server, one per flow for UDP.
        ports: Vec<u16>,
        /// The UDP port that carries the server's SCTP.
        udp_port: Option<u16>,
    },
    /// The server refuses the test.
    Refused {
        /// Reason, as a sentence.
        reason: String,
    },
    /// Data that arrived since the last report.
    Interval(Interval),
    /// All data that arrived.
    Totals(Totals),
    /// The test was aborted.
    Failed {
        /// Reason, as a sentence.
        reason: String,
    },
}

/// Data that arrived between two moments of the test.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Interval {
    /// Start, from the beginning of the test.
    pub start_s: f64,
    /// End, from the beginning of the test.
    pub end_s: f64,
    /// Messages delivered.
    pub messages: u64,
    /// Bytes delivered.
    pub bytes: u64,
}

/// Totals of one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Totals {
    /// Messages: sent by the client, or delivered to the server.
    pub messages: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Time from the first to the last message, and at least that of the sending; for the client, of the whole test.
    pub seconds: f64,
    /// Processor time of the process.
    pub cpu_s: f64,
    /// Nice value of the process.
    pub nice: i32,
}

/// Error of the exchange.
#[derive(Debug, Error)]
pub(crate) enum ControlError {
    /// The connection failed.
    #[error("the control connection failed: {0}")]
    Io(io::Error),
    /// The other end has not answered in time.
    #[error(
        "the other end of the control connection does not answer: another program may listen on that port, \
         or the server may be busy with another test"
    )]
    Silent,
    /// The other end closed.
    #[error("the other end closed the control connection; look at its own messages for the reason")]
    Closed,
    /// The other end is another program or another version.
    #[error("the other end does not speak this protocol; run the same version of swiftwater at both ends")]
    NotUnderstood,
}

impl From<io::Error> for ControlError {
    /// Converts an error of the connection.
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ControlError::Silent,
            _ => ControlError::Io(error),
        }
    }
}

/// A connection whose reads fail after a time, whether bytes have come in between or not.
#[derive(Debug)]
struct Limited<S> {
    stream: S,
    until: Option<Instant>,
}

impl<S: Borrow<TcpStream>> Read for Limited<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut stream: &TcpStream = self.stream.borrow();
        stream.set_read_timeout(left)?;
        stream.read(buffer)
    }
}

/// One end of the control connection.
#[derive(Debug)]
pub(crate) struct Control {
    reader: BufReader<Limited<TcpStream>>,
    writer: TcpStream,
}

impl Control {
    /// Uses a connection after its preamble.
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        let writer = stream.try_clone()?;
        Ok(Self { writer, reader: BufReader::new(Limited { stream, until: None }) })
    }

    /// Returns a second handle that only sends.
    pub(crate) fn speaker(&self) -> io::Result<Speaker> {
        Ok(Speaker(self.writer.try_clone()?))
    }

    /// Sends one message.
    pub(crate) fn say(&mut self, what: &impl Serialize) -> Result<(), ControlError> {
        say(&mut self.writer, what)
    }

    /// Waits for one message, at most for `timeout`; for ever without one.
    pub(crate) fn hear<T: DeserializeOwned>(&mut self, timeout: Option<Duration>) -> Result<T, ControlError> {
        self.reader.get_mut().until = timeout.map(|timeout| Instant::now() + timeout);
        let mut line = Vec::new();
        let count = (&mut self.reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        match (count, line.last()) {
            (0, _) => Err(ControlError::Closed),
            (_, Some(b'\n')) => serde_json::from_slice(&line).map_err(|_| ControlError::NotUnderstood),
            _ => Err(ControlError::NotUnderstood),
        }
    }
}

/// A handle that sends while another thread receives.
#[derive(Debug)]
pub(crate) struct Speaker(TcpStream);

impl Speaker {
    /// Sends one message.
    pub(crate) fn say(&mut self, what: &impl Serialize) -> Result<(), ControlError> {
        say(&mut self.0, what)
    }

    /// Shuts down both directions, so that a receiving thread stops.
    pub(crate) fn hang_up(&self) {
        let _ = self.0.shutdown(std::net::Shutdown::Both);
    }
}

fn say(writer: &mut TcpStream, what: &impl Serialize) -> Result<(), ControlError> {
    let mut line = serde_json::to_vec(what).map_err(io::Error::from)?;
    line.push(b'\n');
    Ok(writer.write_all(&line)?)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_preamble_round_trips_and_strangers_are_told_apart() {
        for purpose in [Purpose::Control, Purpose::Data { token: 0x0123_4567_89ab_cdef }] {
            assert_eq!(Purpose::parse(&purpose.to_bytes()), Some(purpose));
        }
        assert_eq!(Purpose::parse(b"GET / HTTP/1.1\r\n"), None);
        assert_eq!(Purpose::parse(b"SWFT\x02\0\0\0\0\0\0\0\0\0\0\0"), None);
    }

    #[test]
    fn a_message_that_comes_byte_by_byte_has_no_more_time() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let mut client = TcpStream::connect(listener.local_addr().expect("bound")).expect("a listener");
        let mut control = Control::new(listener.accept().expect("a client").0).expect("a live connection");
        let dripping = std::thread::spawn(move || {
            while client.write_all(b" ").is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let heard = control.hear::<FromClient>(Some(Duration::from_millis(50)));
        assert!(matches!(heard, Err(ControlError::Silent)), "{heard:?}");
        drop(control);
        dripping.join().expect("it ends with the connection");
    }

    #[test]
    fn a_line_that_is_no_message_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let mut client = TcpStream::connect(listener.local_addr().expect("bound")).expect("a listener");
        let mut control = Control::new(listener.accept().expect("a client").0).expect("a live connection");
        client.write_all(b"{\"say\":\"go\"}\nnonsense\n").expect("room");
        assert_eq!(control.hear::<FromClient>(None).expect("a message"), FromClient::Go);
        assert!(matches!(control.hear::<FromClient>(None), Err(ControlError::NotUnderstood)));
        assert!(matches!(
            control.hear::<FromClient>(Some(Duration::from_millis(1))),
            Err(ControlError::Silent)
        ));
        drop(client);
        assert!(matches!(control.hear::<FromClient>(None), Err(ControlError::Closed)));
    }
}
