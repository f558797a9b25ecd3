//! Requests about streams.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::Duration;

use channel_protocol::assoc_id::AssocId;
use channel_protocol::request::{Answer, DaemonRequest, FRAME_BYTES_MAX, OPTION_BYTES_MAX, Recorder};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, Shutdown};

use super::inquiry::{NoDaemon, parts, read_all};
use crate::calls::streams::{Part, StreamStatus};
use crate::system::daemon_address::DaemonAddress;

/// Interval at which an idle recording returns an empty result.
const LOOKS: Duration = Duration::from_millis(100);
/// Length of the counter of lost records at the beginning of each packet.
const LOST_BYTES: usize = 8;
/// Maximum length of a packet.
const PACKET_BYTES_MAX: usize = 64 * 1024;

/// The streams that a user may see: those of its own associations; for root, all.
#[derive(Clone, Debug)]
pub struct Streams {
    /// The streams, in the order in which their sockets were opened.
    pub streams: Vec<StreamStatus>,
    /// Number of streams left out of a very long answer.
    pub omitted: usize,
}

/// Reason why a daemon does not carry out a command on a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamCommandError {
    /// No daemon can be used.
    NoDaemon(NoDaemon),
    /// The daemon has no association with this number.
    NoStream,
    /// The stream belongs to another user, or root has pushed the module.
    NotYours,
    /// The association is being set up, or has ended.
    NotUp,
    /// The user has reached its limit of memory or of recordings.
    NoRoom,
    /// The module's name and arguments are too long.
    TooLong,
    /// Linked, the two streams would send messages round in a circle.
    Loop,
    /// The module or the daemon refused, for this reason.
    Refused(String),
}

impl fmt::Display for StreamCommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamCommandError::NoDaemon(error) => error.fmt(f),
            StreamCommandError::NoStream => {
                f.write_str("no association has this number; `swiftwater streams` lists them")
            }
            StreamCommandError::NotYours => {
                f.write_str("only its owner and root may do that (EPERM), and only root pops and unlinks what root has pushed and linked")
            }
            StreamCommandError::NotUp => f.write_str("the association is not up"),
            StreamCommandError::NoRoom => {
                f.write_str("you have too many recordings or unread messages; end a recording first")
            }
            StreamCommandError::Loop => f.write_str(
                "messages would go round for ever (EINVAL): these are one stream, or two ends of one association",
            ),
            StreamCommandError::TooLong => f.write_str("the module's name and arguments are too long"),
            StreamCommandError::Refused(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for StreamCommandError {}

impl From<NoDaemon> for StreamCommandError {
    fn from(error: NoDaemon) -> Self {
        StreamCommandError::NoDaemon(error)
    }
}

impl From<Errno> for StreamCommandError {
    fn from(error: Errno) -> Self {
        match error {
            Errno::NOENT => StreamCommandError::NoStream,
            Errno::PERM => StreamCommandError::NotYours,
            Errno::NOTCONN => StreamCommandError::NotUp,
            Errno::NOBUFS => StreamCommandError::NoRoom,
            Errno::INVAL => StreamCommandError::Loop,
            error => NoDaemon::from(error).into(),
        }
    }
}

impl DaemonAddress {
    /// Asks the daemon at this address for its streams, as far as this user may see them.
    ///
    /// # Errors
    ///
    /// No daemon is at this address, it has another version, or its answer was not read in time.
    pub fn streams(&self) -> Result<Streams, StreamCommandError> {
        let asked = ask(self.connect_for_long_answer()?, DaemonRequest::Streams)?;
        asked.value()?;
        let memfd = asked.memfd.ok_or(NoDaemon::OtherVersion)?;
        Ok(Streams::parse(&read_all(memfd)?)?)
    }

    /// Pushes a module on the stream of an association (`I_PUSH`). `module` contains its name and its arguments.
    ///
    /// # Errors
    ///
    /// The stream belongs to another user or does not exist, or the module refuses.
    pub fn push_module(&self, assoc_id: AssocId, module: &[String]) -> Result<(), StreamCommandError> {
        let module = module.join(" ");
        if module.len() > OPTION_BYTES_MAX {
            return Err(StreamCommandError::TooLong);
        }
        self.ask(DaemonRequest::Push { assoc_id, module: &module })?.value().map(drop)
    }

    /// Pops the uppermost module of the stream of an association (`I_POP`); returns its name.
    ///
    /// # Errors
    ///
    /// The stream belongs to another user or does not exist, or has no module.
    pub fn pop_module(&self, assoc_id: AssocId) -> Result<String, StreamCommandError> {
        self.ask(DaemonRequest::Pop { assoc_id })?.value()
    }

    /// Links the streams of two associations (`I_PLINK`): what comes from one peer goes to the other, and their programs wait.
    ///
    /// # Errors
    ///
    /// A stream belongs to another user, does not exist, is linked already, or has too few SCTP streams; or messages would go
    /// round in a circle.
    pub fn link(&self, assoc_id: AssocId, other: AssocId) -> Result<(), StreamCommandError> {
        self.ask(DaemonRequest::Link { assoc_id, other })?.value().map(drop)
    }

    /// Ends the link of the stream of an association (`I_PUNLINK`), so that its program and that of the other stream go on;
    /// returns the number of the other association.
    ///
    /// # Errors
    ///
    /// The stream belongs to another user, does not exist or is not linked.
    pub fn unlink(&self, assoc_id: AssocId) -> Result<String, StreamCommandError> {
        self.ask(DaemonRequest::Unlink { assoc_id })?.value()
    }

    /// Records the stream of an association as a pcapng file.
    ///
    /// # Errors
    ///
    /// Fails as [`DaemonAddress::push_module`] does.
    pub fn tap(&self, assoc_id: AssocId) -> Result<Recording, StreamCommandError> {
        self.record(assoc_id, Recorder::Tap)
    }

    /// Records the stream of an association as lines of text.
    ///
    /// # Errors
    ///
    /// Fails as [`DaemonAddress::push_module`] does.
    pub fn trace(&self, assoc_id: AssocId) -> Result<Recording, StreamCommandError> {
        self.record(assoc_id, Recorder::Trace)
    }

    fn record(&self, assoc_id: AssocId, recorder: Recorder) -> Result<Recording, StreamCommandError> {
        let asked = self.ask(DaemonRequest::Record { assoc_id, recorder })?;
        asked.value()?;
        sockopt::set_socket_timeout(&asked.connection, Timeout::Recv, Some(LOOKS))?;
        Ok(Recording { connection: asked.connection, packet: vec![0; PACKET_BYTES_MAX], lost: 0 })
    }

    fn ask(&self, request: DaemonRequest<'_>) -> Result<Asked, StreamCommandError> {
        ask(self.connect_to_trusted()?, request)
    }
}

/// Sends a request, and receives its answer.
fn ask(connection: OwnedFd, request: DaemonRequest<'_>) -> Result<Asked, StreamCommandError> {
    let mut frame = [0; FRAME_BYTES_MAX];
    let bytes = request.encode(&mut frame).ok_or(StreamCommandError::TooLong)?;
    rustix::net::send(&connection, &frame[..bytes], SendFlags::NOSIGNAL)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut place = [IoSliceMut::new(&mut frame)];
    let received = rustix::net::recvmsg(&connection, &mut place, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let memfd = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let answer = frame[..received.bytes].to_vec();
    Ok(Asked { connection, answer, memfd })
}

/// A daemon's answer.
struct Asked {
    connection: OwnedFd,
    answer: Vec<u8>,
    memfd: Option<OwnedFd>,
}

impl Asked {
    /// Returns the value of the answer; an empty one if the request has no result.
    fn value(&self) -> Result<String, StreamCommandError> {
        match Answer::parse(&self.answer) {
            Some(Answer::Done) => Ok(String::new()),
            Some(Answer::Value(value)) => Ok(String::from_utf8_lossy(value).into_owned()),
            Some(Answer::Refused(why)) => Err(StreamCommandError::Refused(why.to_owned())),
            Some(Answer::Failed(errno)) => Err(Errno::from_raw_os_error(errno).into()),
            Some(Answer::AskAgain) => Err(NoDaemon::Silent.into()),
            _ if self.answer.is_empty() => Err(NoDaemon::Silent.into()),
            _ => Err(NoDaemon::OtherVersion.into()),
        }
    }
}

impl Streams {
    /// Joins and parses the parts of an answer.
    fn parse(answer: &[u8]) -> Result<Streams, NoDaemon> {
        let mut streams = Vec::new();
        for part in parts(answer) {
            match part? {
                Part::Stream(stream) => streams.push(stream),
                Part::End { omitted } => return Ok(Streams { streams, omitted }),
            }
        }
        Err(NoDaemon::Withdrawn)
    }
}

/// The records of a module on a stream, as they arise. Dropping this ends the recording and pops the module.
#[derive(Debug)]
pub struct Recording {
    connection: OwnedFd,
    packet: Vec<u8>,
    lost: u64,
}

impl Recording {
    /// Waits a limited time for more records, and may return none; returns `None` at the end.
    ///
    /// # Errors
    ///
    /// A system call failed, or the daemon's answer is malformed.
    pub fn read(&mut self) -> io::Result<Option<&[u8]>> {
        let bytes = match rustix::net::recv(&self.connection, &mut self.packet[..], RecvFlags::empty()) {
            Ok((_, bytes)) => bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Some(&[])),
            Err(Errno::CONNRESET) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let Some((lost, records)) = self.packet[..bytes].split_first_chunk::<LOST_BYTES>() else {
            return if bytes == 0 { Ok(None) } else { Err(Errno::BADMSG.into()) };
        };
        self.lost = u64::from_le_bytes(*lost);
        Ok(Some(records))
    }

    /// Returns how many records were lost so far because they were not read in time.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Ends the recording; records made before can still be read.
    pub fn finish(&self) {
        // If the daemon is gone, the recording has ended already.
        let _ = rustix::net::shutdown(&self.connection, Shutdown::Write);
    }
}
