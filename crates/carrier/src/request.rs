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
pub const FRAME_BYTES_MAX: usize = 4096;
/// The longest value of a socket option.
pub const OPTION_BYTES_MAX: usize = 4000;
/// The longest record of a [`Request::PutBack`].
pub const PUT_BACK_BYTES_MAX: usize = 4000;
/// Most addresses of a peer that an association is set up with.
pub const ADDRESSES_MAX: usize = 64;

/// In front of every frame: "swcr".
const MAGIC: u32 = u32::from_le_bytes(*b"swcr");
const OVERHEAD_BYTES: usize = 24;

const _: () = assert!(OVERHEAD_BYTES + OPTION_BYTES_MAX <= FRAME_BYTES_MAX);
const _: () = assert!(OVERHEAD_BYTES + PUT_BACK_BYTES_MAX <= FRAME_BYTES_MAX);
const _: () = assert!(OVERHEAD_BYTES + ADDRESSES_MAX * address::BYTES_MAX <= FRAME_BYTES_MAX);

/// The addresses of a peer, at least one and at most [`ADDRESSES_MAX`].
#[derive(Clone, Copy)]
pub struct Addresses<'a>(Form<'a>);

#[derive(Clone, Copy)]
enum Form<'a> {
    List(&'a [SocketAddr]),
    /// As they stand in a frame; each was seen to be one.
    Encoded(&'a [u8]),
}

impl<'a> Addresses<'a> {
    /// `None`: there are none, or too many.
    pub fn new(list: &'a [SocketAddr]) -> Option<Self> {
        (1..=ADDRESSES_MAX).contains(&list.len()).then_some(Addresses(Form::List(list)))
    }

    fn read(r: &mut Reader<'a>) -> Option<Self> {
        let encoded = r.0;
        let mut count = 0;
        while !r.0.is_empty() {
            address::read(r)?;
            count += 1;
        }
        (1..=ADDRESSES_MAX).contains(&count).then_some(Addresses(Form::Encoded(encoded)))
    }

    fn write(self, w: &mut Writer<'_>) {
        match self.0 {
            Form::List(list) => list.iter().for_each(|one| address::write(w, one)),
            Form::Encoded(bytes) => drop(w.bytes(bytes)),
        }
    }

    /// One after the other.
    pub fn iter(self) -> impl Iterator<Item = SocketAddr> + 'a {
        let (list, mut encoded) = match self.0 {
            Form::List(list) => (list, Reader(&[])),
            Form::Encoded(bytes) => (&[][..], Reader(bytes)),
        };
        list.iter().copied().chain(std::iter::from_fn(move || address::read(&mut encoded)))
    }
}

impl PartialEq for Addresses<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Addresses<'_> {}

impl std::fmt::Debug for Addresses<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// When an association begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Start {
    /// At once, and so comes the answer.
    Now = 0,
    /// At once, and the answer comes when it is known how that ends.
    AnswerLate = 1,
    /// Of one-to-many: with the first message for it. Otherwise at once.
    WithMessage = 2,
}

impl Start {
    fn from_u8(number: u8) -> Option<Start> {
        [Start::Now, Start::AnswerLate, Start::WithMessage].into_iter().find(|start| *start as u8 == number)
    }
}

/// `struct sctp_initmsg`: what the first message to a peer says of the association that it sets up. Zero says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InitMessage {
    /// Outbound streams.
    pub streams_out: u16,
    /// Most inbound streams.
    pub streams_in_max: u16,
    /// Most transmissions of INIT.
    pub attempts_max: u16,
    /// The longest retransmission time-out meanwhile, in milliseconds.
    pub timeout_max_ms: u16,
}

/// What records a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Recorder {
    /// Messages and primitives as packets of a pcapng file.
    Tap = 0,
    /// A line of text for each message.
    Trace = 1,
}

impl Recorder {
    fn from_u8(number: u8) -> Option<Recorder> {
        [Recorder::Tap, Recorder::Trace].into_iter().find(|recorder| *recorder as u8 == number)
    }
}

/// Requests of a program. They come with the descriptor that they are about, but `Describe`, `Status`, `Open`, `Settle`, `Memfd` and those about
/// streams, which name an association and are for its owner and root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Which daemon it is: the [`Answer::Value`] is a line each of its version, its process,
    /// whether it ends when nobody needs it (`true`), and what carries SCTP there.
    Describe,
    /// State of the daemon, as far as the caller may see it. The answer comes with a file of JSON.
    Status,
    /// The streams of all associations that the caller may see. The answer comes with a file of JSON.
    Streams,
    /// `I_PUSH` on the stream of an association.
    Push {
        /// Which.
        association: u32,
        /// The name of the module and its arguments, with blanks between; at most [`OPTION_BYTES_MAX`].
        module: &'a str,
    },
    /// `I_POP` on the stream of an association. The answer is the name of the module.
    Pop {
        /// Which.
        association: u32,
    },
    /// Pushes a module that records the stream of an association. Behind the answer come records on the same connection, until the
    /// caller shuts its side or the association ends: 8 bytes with the number of records that were lost so far, in little-endian
    /// order, and bytes of the file.
    Record {
        /// Which.
        association: u32,
        /// By which module.
        recorder: Recorder,
    },
    /// `socket`. The answer comes with a carrier and a page.
    Open {
        /// Whether it is `AF_INET6`.
        v6: bool,
        /// `SOCK_SEQPACKET`: it has any number of associations.
        one_to_many: bool,
    },
    /// An empty memfd that the program fills, seals and sends along with a long message, where it may make none itself. It comes
    /// with the answer, and the daemon keeps no descriptor of it.
    Memfd,
    /// The page of a descriptor that the program does not know, as after `exec`. It comes with the answer.
    Attach,
    /// `bind`.
    Bind(SocketAddr),
    /// `listen`.
    Listen {
        /// Associations that may wait to be accepted.
        backlog: i32,
    },
    /// `connect`, `sctp_connectx`, and what is sent to an address without an association. The answer is the association. Of a
    /// one-to-one socket it says that it is tried; the page and the carrier say how it ends.
    Connect {
        /// Where the peer is.
        peer: Addresses<'a>,
        /// When it begins, and when that is answered.
        start: Start,
        /// The initiation parameters that came with the message.
        init: InitMessage,
    },
    /// The association of a one-to-many socket with the peer that has this address.
    Find(SocketAddr),
    /// Answered when what was done to a descriptor just now, such as closing it, is known to the daemon.
    Settle,
    /// Answered when a message can be sent to this association of a one-to-many socket.
    AwaitRoom {
        /// Which.
        association: u32,
    },
    /// Associations of a one-to-many socket, the smallest numbers first. The answer is an [`Answer::Value`] of four bytes for each.
    Associations {
        /// Those with greater numbers than this.
        after: u32,
    },
    /// Answered when the association of a one-to-one socket has ended, so that nothing more will come.
    AwaitEnd,
    /// `sctp_peeloff`. The answer comes with a carrier and a page.
    PeelOff {
        /// Which.
        association: u32,
        /// Whether the message at the front was read in part.
        front_begun: bool,
        /// Bytes before it in its bundle: messages that were read.
        front_at: u32,
    },
    /// Keeps the daemon from putting more into the carrier of a one-to-one socket until [`Request::SetForm`]. It fails with
    /// `ESHUTDOWN` where the end is in the carrier already, so that nothing can be put back.
    Hold,
    /// A record that a sharer has taken out of a carrier which is held, to be put there again before all that follows it. At most
    /// [`PUT_BACK_BYTES_MAX`].
    PutBack(&'a [u8]),
    /// Lets the daemon go on after [`Request::Hold`], from now on in this form.
    SetForm {
        /// Content without headers, in packets of at most [`PLAIN_BYTES_MAX`](crate::record::PLAIN_BYTES_MAX), and no
        /// notifications: for programs without the shim.
        plain: bool,
    },
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
        /// The value that the program passes, which some options read; at most [`OPTION_BYTES_MAX`].
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
            Request::Open { v6, one_to_many } => w.u8(0).u8(u8::from(*v6)).u8(u8::from(*one_to_many)),
            Request::Attach => w.u8(1),
            Request::Memfd => w.u8(21),
            Request::Bind(address) => {
                w.u8(2);
                address::write(&mut w, address);
                &mut w
            }
            Request::Listen { backlog } => w.u8(3).i32(*backlog),
            Request::Connect { peer, start, init } => {
                w.u8(4).u8(*start as u8);
                w.u16(init.streams_out)
                    .u16(init.streams_in_max)
                    .u16(init.attempts_max)
                    .u16(init.timeout_max_ms);
                peer.write(&mut w);
                &mut w
            }
            Request::Describe => w.u8(9),
            Request::Status => w.u8(13),
            Request::Streams => w.u8(17),
            Request::Push { association, module } => w.u8(18).u32(*association).bytes(module.as_bytes()),
            Request::Pop { association } => w.u8(19).u32(*association),
            Request::Record { association, recorder } => w.u8(20).u32(*association).u8(*recorder as u8),
            Request::Find(address) => {
                w.u8(10);
                address::write(&mut w, address);
                &mut w
            }
            Request::Settle => w.u8(15),
            Request::AwaitRoom { association } => w.u8(11).u32(*association),
            Request::AwaitEnd => w.u8(14),
            Request::Associations { after } => w.u8(16).u32(*after),
            Request::PeelOff { association, front_begun, front_at } => {
                w.u8(12).u32(*association).u8(u8::from(*front_begun)).u32(*front_at)
            }
            Request::Hold => w.u8(22),
            Request::PutBack(record) => w.u8(23).bytes(record),
            Request::SetForm { plain } => w.u8(24).u8(u8::from(*plain)),
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
            0 => Request::Open { v6: r.u8()? != 0, one_to_many: r.u8()? != 0 },
            1 => Request::Attach,
            21 => Request::Memfd,
            2 => Request::Bind(address::read(r)?),
            3 => Request::Listen { backlog: r.i32()? },
            4 => Request::Connect {
                start: Start::from_u8(r.u8()?)?,
                init: InitMessage {
                    streams_out: r.u16()?,
                    streams_in_max: r.u16()?,
                    attempts_max: r.u16()?,
                    timeout_max_ms: r.u16()?,
                },
                peer: Addresses::read(r)?,
            },
            5 => Request::LocalAddress,
            6 => Request::PeerAddress,
            7 => Request::SetOption { level: r.i32()?, name: r.i32()?, value: option_value(r)? },
            8 => Request::GetOption { level: r.i32()?, name: r.i32()?, value: option_value(r)? },
            9 => Request::Describe,
            13 => Request::Status,
            17 => Request::Streams,
            18 => {
                Request::Push { association: r.u32()?, module: std::str::from_utf8(option_value(r)?).ok()? }
            }
            19 => Request::Pop { association: r.u32()? },
            20 => Request::Record { association: r.u32()?, recorder: Recorder::from_u8(r.u8()?)? },
            10 => Request::Find(address::read(r)?),
            15 => Request::Settle,
            11 => Request::AwaitRoom { association: r.u32()? },
            14 => Request::AwaitEnd,
            16 => Request::Associations { after: r.u32()? },
            12 => Request::PeelOff { association: r.u32()?, front_begun: r.u8()? != 0, front_at: r.u32()? },
            22 => Request::Hold,
            23 => Request::PutBack(rest(r, PUT_BACK_BYTES_MAX)?),
            24 => Request::SetForm { plain: r.u8()? != 0 },
            _ => return None,
        };
        r.end().map(|()| request)
    }
}

fn option_value<'a>(r: &mut Reader<'a>) -> Option<&'a [u8]> {
    rest(r, OPTION_BYTES_MAX)
}

/// All that is left. `None`: that is more than `bytes_max`.
fn rest<'a>(r: &mut Reader<'a>, bytes_max: usize) -> Option<&'a [u8]> {
    let count = r.0.len();
    (count <= bytes_max).then(|| r.bytes(count)).flatten()
}

/// Answers of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// It is done.
    Done,
    /// An errno.
    Failed(i32),
    /// An address that was asked for.
    Address(SocketAddr),
    /// An association that was asked for.
    Association(u32),
    /// The value of an option, at most [`OPTION_BYTES_MAX`].
    Value(&'a [u8]),
    /// It is refused, for this reason in words, at most [`OPTION_BYTES_MAX`].
    Refused(&'a str),
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
            Answer::Association(id) => w.u8(4).u32(*id),
            Answer::Refused(why) => w.u8(5).bytes(why.as_bytes()),
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
            4 => Answer::Association(r.u32()?),
            5 => Answer::Refused(std::str::from_utf8(option_value(&mut r)?).ok()?),
            _ => return None,
        };
        r.end().map(|()| answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_the_same_in_a_list_and_in_a_frame() {
        let list: [SocketAddr; 2] =
            ["192.0.2.1:7", "[2001:db8::1]:7"].map(|text| text.parse().expect("an address"));
        let listed = Addresses::new(&list).expect("not too many");
        let mut frame = [0; FRAME_BYTES_MAX];
        let mut w = Writer::new(&mut frame);
        listed.write(&mut w);
        let bytes = w.finish().expect("they fit");
        let read = Addresses::read(&mut Reader(&frame[..bytes])).expect("addresses");
        assert_eq!(read, listed);
        assert!(read.iter().eq(list));
        assert_ne!(Some(read), Addresses::new(&list[..1]));
        assert_eq!(format!("{read:?}"), "[192.0.2.1:7, [2001:db8::1]:7]");
    }

    #[test]
    fn addresses_are_some_and_not_too_many() {
        let list = [SocketAddr::from(([192, 0, 2, 1], 7)); ADDRESSES_MAX + 1];
        assert!(Addresses::new(&list[..ADDRESSES_MAX]).is_some());
        assert!(Addresses::new(&list).is_none() && Addresses::new(&[]).is_none());
        let mut frame = [0; FRAME_BYTES_MAX];
        let mut w = Writer::new(&mut frame);
        list.iter().for_each(|one| address::write(&mut w, one));
        let bytes = w.finish().expect("they fit");
        assert!(Addresses::read(&mut Reader(&frame[..bytes])).is_none());
        assert!(Addresses::read(&mut Reader(&frame[..bytes / list.len() * ADDRESSES_MAX])).is_some());
    }
}
