//! Requests and answers.
//!
//! A request has a connection of its own, which the answer ends: so the program keeps no descriptor that it does not know
//! of, which it might close, or hand on. What is asked about goes with the request: one that holds a descriptor may ask
//! about it.

use std::net::SocketAddr;

use crate::VERSION;
use crate::address;
use crate::bytes::{Reader, Writer};

/// The longest request or answer.
pub const FRAME_BYTES_MAX: usize = 1024;
/// The longest value of a socket option.
pub const OPTION_BYTES_MAX: usize = 512;

/// In front of every frame: "swcr".
const MAGIC: u32 = u32::from_le_bytes(*b"swcr");
const OVERHEAD_BYTES: usize = 24;

const _: () = assert!(OVERHEAD_BYTES + OPTION_BYTES_MAX <= FRAME_BYTES_MAX);

/// What a program asks for. All but `Describe` and `Open` come with the descriptor that they are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Which daemon it is: the [`Answer::Value`] is its version, a line feed, and what carries SCTP there in words.
    Describe,
    /// `socket`. The answer comes with a carrier and a page.
    Open {
        /// Whether it is `AF_INET6`.
        v6: bool,
    },
    /// The page of a descriptor that the program does not know, as after `exec`. It comes with the answer.
    Attach,
    /// `bind`.
    Bind(SocketAddr),
    /// `listen`.
    Listen {
        /// Associations that may wait to be accepted.
        backlog: i32,
    },
    /// `connect`. The answer says whether it is tried; the page and the carrier how it ends.
    Connect(SocketAddr),
    /// `getsockname`.
    LocalAddress,
    /// `getpeername`.
    PeerAddress,
    /// `setsockopt`.
    SetOption {
        /// As the program says it.
        level: i32,
        /// As the program says it.
        name: i32,
        /// At most [`OPTION_BYTES_MAX`].
        value: &'a [u8],
    },
    /// `getsockopt`.
    GetOption {
        /// As the program says it.
        level: i32,
        /// As the program says it.
        name: i32,
        /// What the program hands over, which some options look at; at most [`OPTION_BYTES_MAX`].
        value: &'a [u8],
    },
}

/// Why bytes are no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// The program's shim is of this version, which is not ours.
    Version(u16),
    /// They make no sense.
    Malformed,
}

impl<'a> Request<'a> {
    /// Writes the request; says how long it is. `None`: the value of an option is too long.
    pub fn encode(&self, out: &mut [u8; FRAME_BYTES_MAX]) -> Option<usize> {
        let mut w = Writer::new(out);
        w.u32(MAGIC).u16(VERSION);
        match self {
            Request::Open { v6 } => w.u8(0).u8(u8::from(*v6)),
            Request::Attach => w.u8(1),
            Request::Bind(address) => {
                w.u8(2);
                address::write(&mut w, address);
                &mut w
            }
            Request::Listen { backlog } => w.u8(3).i32(*backlog),
            Request::Connect(address) => {
                w.u8(4);
                address::write(&mut w, address);
                &mut w
            }
            Request::Describe => w.u8(9),
            Request::LocalAddress => w.u8(5),
            Request::PeerAddress => w.u8(6),
            Request::SetOption { level, name, value } => w.u8(7).i32(*level).i32(*name).bytes(value),
            Request::GetOption { level, name, value } => w.u8(8).i32(*level).i32(*name).bytes(value),
        };
        w.finish()
    }

    /// Reads a request.
    ///
    /// # Errors
    ///
    /// It is of another version, or none.
    pub fn parse(frame: &'a [u8]) -> Result<Request<'a>, RequestError> {
        let mut r = Reader(frame);
        let version = Request::version(&mut r).ok_or(RequestError::Malformed)?;
        if version != VERSION {
            return Err(RequestError::Version(version));
        }
        Request::body(&mut r).ok_or(RequestError::Malformed)
    }

    fn version(r: &mut Reader<'_>) -> Option<u16> {
        (r.u32()? == MAGIC).then_some(())?;
        r.u16()
    }

    fn body(r: &mut Reader<'a>) -> Option<Request<'a>> {
        let request = match r.u8()? {
            0 => Request::Open { v6: r.u8()? != 0 },
            1 => Request::Attach,
            2 => Request::Bind(address::read(r)?),
            3 => Request::Listen { backlog: r.i32()? },
            4 => Request::Connect(address::read(r)?),
            5 => Request::LocalAddress,
            6 => Request::PeerAddress,
            7 => Request::SetOption { level: r.i32()?, name: r.i32()?, value: option_value(r)? },
            8 => Request::GetOption { level: r.i32()?, name: r.i32()?, value: option_value(r)? },
            9 => Request::Describe,
            _ => return None,
        };
        r.end().map(|()| request)
    }
}

fn option_value<'a>(r: &mut Reader<'a>) -> Option<&'a [u8]> {
    let count = r.0.len();
    (count <= OPTION_BYTES_MAX).then(|| r.bytes(count)).flatten()
}

/// What the daemon answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// It is done.
    Done,
    /// An errno.
    Failed(i32),
    /// An address that was asked for.
    Address(SocketAddr),
    /// The value of an option, at most [`OPTION_BYTES_MAX`].
    Value(&'a [u8]),
}

impl<'a> Answer<'a> {
    /// Writes the answer; says how long it is. `None`: the value is too long.
    pub fn encode(&self, out: &mut [u8; FRAME_BYTES_MAX]) -> Option<usize> {
        let mut w = Writer::new(out);
        w.u32(MAGIC);
        match self {
            Answer::Done => w.u8(0),
            Answer::Failed(errno) => w.u8(1).i32(*errno),
            Answer::Address(address) => {
                w.u8(2);
                address::write(&mut w, address);
                &mut w
            }
            Answer::Value(value) => w.u8(3).bytes(value),
        };
        w.finish()
    }

    /// Reads an answer. `None`: it is none.
    pub fn parse(frame: &'a [u8]) -> Option<Answer<'a>> {
        let mut r = Reader(frame);
        (r.u32()? == MAGIC).then_some(())?;
        let answer = match r.u8()? {
            0 => Answer::Done,
            1 => Answer::Failed(r.i32()?),
            2 => Answer::Address(address::read(&mut r)?),
            3 => Answer::Value(option_value(&mut r)?),
            _ => return None,
        };
        r.end().map(|()| answer)
    }
}
