//! Requests and answers.
//!
//! A request has its own connection, which the answer ends: so the program holds no descriptor that it does not know of, and
//! might close or pass on. The descriptor that a request concerns comes with the request: a program that holds a descriptor
//! may make requests about it.

use std::net::SocketAddr;

use crate::VERSION;
use crate::address;
use crate::assoc_id::AssocId;
use crate::bytes::{Reader, Writer};

/// The longest request or answer.
pub const FRAME_BYTES_MAX: usize = 4096;
/// The longest beginning of a request: all but the value, text or record that some end with.
pub const HEAD_BYTES_MAX: usize = OVERHEAD_BYTES + ADDRESSES_MAX * address::BYTES_MAX;
/// The longest value of a socket option.
pub const OPTION_BYTES_MAX: usize = 4000;
/// The longest record of a [`SocketRequest::PutBack`].
pub const PUT_BACK_BYTES_MAX: usize = 4000;
/// Number of addresses of a peer that an association is set up with, at most.
pub const ADDRESSES_MAX: usize = 64;

/// Beginning of every frame: "swcr".
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
    /// As encoded in a frame; each address was validated.
    Encoded(&'a [u8]),
}

impl<'a> Addresses<'a> {
    /// Returns `None` if there are no addresses, or too many.
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

    /// Returns the addresses in order.
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

/// When an association begins, and when that is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Start {
    /// The association begins at once, and is answered at once.
    Now = 0,
    /// The association begins at once, and is answered once setup has succeeded or failed.
    AnswerLate = 1,
    /// On a one-to-many socket, the association begins with its first message; on others at once.
    WithMessage = 2,
}

impl Start {
    fn from_u8(number: u8) -> Option<Start> {
        [Start::Now, Start::AnswerLate, Start::WithMessage].into_iter().find(|start| *start as u8 == number)
    }
}

/// `struct sctp_initmsg`: parameters of the association that a message sets up. Zero means the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InitMessage {
    /// Outbound streams.
    pub streams_out: u16,
    /// Limit for inbound streams.
    pub streams_in_max: u16,
    /// Limit for transmissions of INIT.
    pub attempts_max: u16,
    /// Longest retransmission timeout during setup, in milliseconds.
    pub timeout_max_ms: u16,
}

/// Module that records a stream.
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

/// A request of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// A request that concerns no socket.
    Daemon(DaemonRequest<'a>),
    /// A request about the socket whose pair comes with it.
    Socket(SocketRequest<'a>),
}

/// Requests that concern no socket, and come without a descriptor. Those about streams name an association and are
/// reserved for its owner and root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DaemonRequest<'a> {
    /// Identifies the daemon: the [`Answer::Value`] is JSON with its version, its process, whether it ends when no program needs
    /// it, and the transport of SCTP.
    Describe,
    /// Reports the daemon's state, as far as the caller may see it. The answer comes with a file of JSON.
    Status,
    /// Reports the streams of all associations that the caller may see. The answer comes with a file of JSON.
    Streams,
    /// `I_PUSH` on the stream of an association.
    Push {
        /// The association.
        assoc_id: AssocId,
        /// The name of the module and its arguments, separated by blanks; at most [`OPTION_BYTES_MAX`].
        module: &'a str,
    },
    /// `I_POP` on the stream of an association. The answer is the name of the module.
    Pop {
        /// The association.
        assoc_id: AssocId,
    },
    /// Pushes a module that records the stream of an association. Behind the answer, records follow on the same connection until
    /// the caller shuts its side or the association ends: 8 bytes with the number of records lost so far, in little-endian order,
    /// and bytes of the file.
    Record {
        /// The association.
        assoc_id: AssocId,
        /// The module.
        recorder: Recorder,
    },
    /// `I_PLINK` of the streams of two associations under a multiplexor that passes the data of each peer to the other. The
    /// programs wait until the link ends.
    Link {
        /// One association.
        assoc_id: AssocId,
        /// The other.
        other: AssocId,
    },
    /// `I_PUNLINK` of the stream of an association, and of the one that it is linked with. The answer is the number of the other
    /// association.
    Unlink {
        /// One of the two associations.
        assoc_id: AssocId,
    },
    /// `socket`. The answer comes with a pair and a page.
    Open {
        /// Whether it is `AF_INET6`.
        v6: bool,
        /// The kind of the socket.
        kind: SocketKind,
    },
    /// Makes an empty memfd, which comes with the answer and which the daemon does not keep: the program fills it, seals it and
    /// sends it with a long message, where it may make none itself.
    Memfd,
    /// Answered when the daemon has handled the calls that were made on descriptors before, such as a close.
    Barrier,
    /// As `Barrier`. If a socket of the caller's user has been closed for good by then, answered when its association has
    /// ended, too, or the time is over for which it lingers.
    Linger {
        /// The kernel's cookie of the program's end of the socket's pair (`SO_COOKIE`).
        cookie: u64,
    },
}

/// The kind of a new socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketKind {
    /// `SOCK_STREAM`: it has one association, or listens.
    OneToOne = 0,
    /// `SOCK_SEQPACKET`: it has any number of associations.
    OneToMany = 1,
    /// As `OneToOne`, for a program that takes it for a socket of TCP.
    TcpStream = 2,
}

impl SocketKind {
    fn from_number(number: u8) -> Option<SocketKind> {
        [SocketKind::OneToOne, SocketKind::OneToMany, SocketKind::TcpStream].get(usize::from(number)).copied()
    }
}

/// Requests about a socket. Each comes with a descriptor of the socket's pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketRequest<'a> {
    /// Returns the page of a descriptor that the program does not know, as after `exec`.
    Attach,
    /// `bind`.
    Bind(SocketAddr),
    /// `listen`.
    Listen {
        /// Associations that may wait to be accepted.
        backlog: i32,
    },
    /// `connect`, `sctp_connectx`, and a send to an address without an association. The answer is the association. For a
    /// one-to-one socket it means that setup has begun; page and pair report the outcome.
    Connect {
        /// The peer's addresses.
        peer: Addresses<'a>,
        /// When the association begins, and when that is answered.
        start: Start,
        /// The initiation parameters that came with the message.
        init: InitMessage,
    },
    /// Finds the association of a one-to-many socket with the peer of this address.
    Find(SocketAddr),
    /// Answered when a message can be sent to this association of a one-to-many socket.
    AwaitRoom {
        /// The association.
        assoc_id: AssocId,
    },
    /// Lists associations of a one-to-many socket, the smallest numbers first. The answer is an [`Answer::Value`] of four bytes
    /// for each.
    Associations {
        /// Only associations with greater numbers than this.
        after: AssocId,
    },
    /// Answered when the association of a one-to-one socket has ended, so that nothing more will come.
    AwaitEnd,
    /// The program is about to `shutdown` one or both directions of the pair of a one-to-one socket: from now on a
    /// hang-up does not mean that the program has closed the socket.
    Shutdown,
    /// `sctp_peeloff`. The answer comes with a pair and a page.
    PeelOff {
        /// The association.
        assoc_id: AssocId,
        /// Whether the message at the front was read in part.
        front_begun: bool,
        /// Bytes before that message in its bundle: messages that were read.
        front_at: u32,
    },
    /// Keeps the daemon from putting more into the pair of a one-to-one socket until [`SocketRequest::SetForm`]. Fails with
    /// `ESHUTDOWN` if the end is in the pair already, so that nothing can be put back.
    Hold,
    /// Returns a record that a sharer has taken out of a held pair; the daemon puts it there again before all that follows it.
    /// At most [`PUT_BACK_BYTES_MAX`].
    PutBack(&'a [u8]),
    /// Makes the daemon continue after [`SocketRequest::Hold`], from now on in this form.
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
        /// As the program passes it.
        level: i32,
        /// As the program passes it.
        name: i32,
        /// At most [`OPTION_BYTES_MAX`].
        value: &'a [u8],
    },
    /// `getsockopt`.
    GetOption {
        /// As the program passes it.
        level: i32,
        /// As the program passes it.
        name: i32,
        /// The value that the program passes, which some options read; at most [`OPTION_BYTES_MAX`].
        value: &'a [u8],
    },
}

/// How a request is answered, if it does not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerKind {
    /// By a frame alone, as soon as the daemon has carried the request out.
    Frame,
    /// As `Frame`, but descriptors come with the frame. Until the caller has received them, they count as in flight for the
    /// user of the daemon.
    Descriptors,
    /// By a frame alone, once an event has happened that may take any time. Signals and `SO_SNDTIMEO` end the wait for it as they
    /// end a wait in the kernel.
    LateFrame,
}

impl Request<'_> {
    /// Returns how the request is answered.
    pub fn answer_kind(&self) -> AnswerKind {
        match self {
            Request::Daemon(request) => request.answer_kind(),
            Request::Socket(request) => request.answer_kind(),
        }
    }
}

impl DaemonRequest<'_> {
    /// Returns how the request is answered.
    pub fn answer_kind(&self) -> AnswerKind {
        match self {
            DaemonRequest::Open { .. }
            | DaemonRequest::Memfd
            | DaemonRequest::Status
            | DaemonRequest::Streams => AnswerKind::Descriptors,
            DaemonRequest::Linger { .. } => AnswerKind::LateFrame,
            DaemonRequest::Describe
            | DaemonRequest::Push { .. }
            | DaemonRequest::Pop { .. }
            | DaemonRequest::Record { .. }
            | DaemonRequest::Link { .. }
            | DaemonRequest::Unlink { .. }
            | DaemonRequest::Barrier => AnswerKind::Frame,
        }
    }
}

impl SocketRequest<'_> {
    /// Returns how the request is answered.
    pub fn answer_kind(&self) -> AnswerKind {
        match self {
            SocketRequest::Attach | SocketRequest::PeelOff { .. } => AnswerKind::Descriptors,
            SocketRequest::AwaitRoom { .. }
            | SocketRequest::AwaitEnd
            | SocketRequest::Connect { start: Start::AnswerLate, .. } => AnswerKind::LateFrame,
            SocketRequest::Bind(_)
            | SocketRequest::Listen { .. }
            | SocketRequest::Connect { start: Start::Now | Start::WithMessage, .. }
            | SocketRequest::Find(_)
            | SocketRequest::Associations { .. }
            | SocketRequest::Shutdown
            | SocketRequest::Hold
            | SocketRequest::PutBack(_)
            | SocketRequest::SetForm { .. }
            | SocketRequest::LocalAddress
            | SocketRequest::PeerAddress
            | SocketRequest::SetOption { .. }
            | SocketRequest::GetOption { .. } => AnswerKind::Frame,
        }
    }
}

impl<'a> From<DaemonRequest<'a>> for Request<'a> {
    fn from(request: DaemonRequest<'a>) -> Self {
        Request::Daemon(request)
    }
}

impl<'a> From<SocketRequest<'a>> for Request<'a> {
    fn from(request: SocketRequest<'a>) -> Self {
        Request::Socket(request)
    }
}

/// Error of parsing a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// The program's shim has this version, which is not the daemon's.
    Version(u16),
    /// The bytes are malformed.
    Malformed,
}

impl<'a> Request<'a> {
    /// Encodes the request and returns its length; `None` if the value of an option is too long.
    pub fn encode(&self, out: &mut [u8; FRAME_BYTES_MAX]) -> Option<usize> {
        let (bytes, value) = self.encode_head(out.first_chunk_mut()?)?;
        out.get_mut(bytes..bytes + value.len())?.copy_from_slice(value);
        Some(bytes + value.len())
    }

    /// Encodes the beginning of the request, and returns its length and the bytes that follow it in the frame; `None` if they are
    /// too many.
    pub fn encode_head(&self, out: &mut [u8; HEAD_BYTES_MAX]) -> Option<(usize, &'a [u8])> {
        let mut w = Writer::new(out);
        w.u32(MAGIC).u16(VERSION);
        let value = match self {
            Request::Daemon(request) => request.write(&mut w),
            Request::Socket(request) => request.write(&mut w),
        };
        let bytes = w.finish()?;
        (bytes + value.len() <= FRAME_BYTES_MAX).then_some((bytes, value))
    }

    /// Parses a request.
    ///
    /// # Errors
    ///
    /// The request is of another version, or malformed.
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
        let request: Request<'_> = match r.u8()? {
            0 => DaemonRequest::Open { v6: r.u8()? != 0, kind: SocketKind::from_number(r.u8()?)? }.into(),
            1 => SocketRequest::Attach.into(),
            21 => DaemonRequest::Memfd.into(),
            2 => SocketRequest::Bind(address::read(r)?).into(),
            3 => SocketRequest::Listen { backlog: r.i32()? }.into(),
            4 => SocketRequest::Connect {
                start: Start::from_u8(r.u8()?)?,
                init: InitMessage {
                    streams_out: r.u16()?,
                    streams_in_max: r.u16()?,
                    attempts_max: r.u16()?,
                    timeout_max_ms: r.u16()?,
                },
                peer: Addresses::read(r)?,
            }
            .into(),
            5 => SocketRequest::LocalAddress.into(),
            6 => SocketRequest::PeerAddress.into(),
            7 => SocketRequest::SetOption { level: r.i32()?, name: r.i32()?, value: option_value(r)? }.into(),
            8 => SocketRequest::GetOption { level: r.i32()?, name: r.i32()?, value: option_value(r)? }.into(),
            9 => DaemonRequest::Describe.into(),
            13 => DaemonRequest::Status.into(),
            17 => DaemonRequest::Streams.into(),
            18 => DaemonRequest::Push {
                assoc_id: r.assoc_id()?,
                module: std::str::from_utf8(option_value(r)?).ok()?,
            }
            .into(),
            19 => DaemonRequest::Pop { assoc_id: r.assoc_id()? }.into(),
            20 => DaemonRequest::Record { assoc_id: r.assoc_id()?, recorder: Recorder::from_u8(r.u8()?)? }
                .into(),
            25 => DaemonRequest::Link { assoc_id: r.assoc_id()?, other: r.assoc_id()? }.into(),
            26 => DaemonRequest::Unlink { assoc_id: r.assoc_id()? }.into(),
            10 => SocketRequest::Find(address::read(r)?).into(),
            15 => DaemonRequest::Barrier.into(),
            28 => DaemonRequest::Linger { cookie: r.u64()? }.into(),
            11 => SocketRequest::AwaitRoom { assoc_id: r.assoc_id()? }.into(),
            14 => SocketRequest::AwaitEnd.into(),
            27 => SocketRequest::Shutdown.into(),
            16 => SocketRequest::Associations { after: r.assoc_id()? }.into(),
            12 => SocketRequest::PeelOff {
                assoc_id: r.assoc_id()?,
                front_begun: r.u8()? != 0,
                front_at: r.u32()?,
            }
            .into(),
            22 => SocketRequest::Hold.into(),
            23 => SocketRequest::PutBack(rest(r, PUT_BACK_BYTES_MAX)?).into(),
            24 => SocketRequest::SetForm { plain: r.u8()? != 0 }.into(),
            _ => return None,
        };
        r.end().map(|()| request)
    }
}

impl<'a> DaemonRequest<'a> {
    /// Encodes the request, as [`Request::encode`] does.
    pub fn encode(self, out: &mut [u8; FRAME_BYTES_MAX]) -> Option<usize> {
        Request::Daemon(self).encode(out)
    }

    /// Writes the number of the request and its fields. Returns the bytes that follow them in the frame.
    fn write(&self, w: &mut Writer<'_>) -> &'a [u8] {
        let mut value: &[u8] = &[];
        match self {
            DaemonRequest::Open { v6, kind } => w.u8(0).u8(u8::from(*v6)).u8(*kind as u8),
            DaemonRequest::Memfd => w.u8(21),
            DaemonRequest::Describe => w.u8(9),
            DaemonRequest::Status => w.u8(13),
            DaemonRequest::Streams => w.u8(17),
            DaemonRequest::Push { assoc_id, module } => {
                value = module.as_bytes();
                w.u8(18).assoc_id(*assoc_id)
            }
            DaemonRequest::Pop { assoc_id } => w.u8(19).assoc_id(*assoc_id),
            DaemonRequest::Record { assoc_id, recorder } => w.u8(20).assoc_id(*assoc_id).u8(*recorder as u8),
            DaemonRequest::Link { assoc_id, other } => w.u8(25).assoc_id(*assoc_id).assoc_id(*other),
            DaemonRequest::Unlink { assoc_id } => w.u8(26).assoc_id(*assoc_id),
            DaemonRequest::Barrier => w.u8(15),
            DaemonRequest::Linger { cookie } => w.u8(28).u64(*cookie),
        };
        value
    }
}

impl<'a> SocketRequest<'a> {
    /// Writes the number of the request and its fields. Returns the bytes that follow them in the frame.
    fn write(&self, w: &mut Writer<'_>) -> &'a [u8] {
        let mut value: &[u8] = &[];
        match self {
            SocketRequest::Attach => w.u8(1),
            SocketRequest::Bind(address) => {
                w.u8(2);
                address::write(w, address);
                w
            }
            SocketRequest::Listen { backlog } => w.u8(3).i32(*backlog),
            SocketRequest::Connect { peer, start, init } => {
                w.u8(4).u8(*start as u8);
                w.u16(init.streams_out)
                    .u16(init.streams_in_max)
                    .u16(init.attempts_max)
                    .u16(init.timeout_max_ms);
                peer.write(w);
                w
            }
            SocketRequest::Find(address) => {
                w.u8(10);
                address::write(w, address);
                w
            }
            SocketRequest::AwaitRoom { assoc_id } => w.u8(11).assoc_id(*assoc_id),
            SocketRequest::AwaitEnd => w.u8(14),
            SocketRequest::Shutdown => w.u8(27),
            SocketRequest::Associations { after } => w.u8(16).assoc_id(*after),
            SocketRequest::PeelOff { assoc_id, front_begun, front_at } => {
                w.u8(12).assoc_id(*assoc_id).u8(u8::from(*front_begun)).u32(*front_at)
            }
            SocketRequest::Hold => w.u8(22),
            SocketRequest::PutBack(record) => {
                value = record;
                w.u8(23)
            }
            SocketRequest::SetForm { plain } => w.u8(24).u8(u8::from(*plain)),
            SocketRequest::LocalAddress => w.u8(5),
            SocketRequest::PeerAddress => w.u8(6),
            SocketRequest::SetOption { level, name, value: given } => {
                value = given;
                w.u8(7).i32(*level).i32(*name)
            }
            SocketRequest::GetOption { level, name, value: given } => {
                value = given;
                w.u8(8).i32(*level).i32(*name)
            }
        };
        value
    }
}

fn option_value<'a>(r: &mut Reader<'a>) -> Option<&'a [u8]> {
    rest(r, OPTION_BYTES_MAX)
}

/// Returns all remaining bytes; `None` if they are more than `bytes_max`.
fn rest<'a>(r: &mut Reader<'a>, bytes_max: usize) -> Option<&'a [u8]> {
    let count = r.0.len();
    (count <= bytes_max).then(|| r.bytes(count)).flatten()
}

/// Answers of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// Success.
    Done,
    /// An errno.
    Failed(i32),
    /// The daemon has not carried out the request, for lack of places: the caller makes it again on another connection.
    AskAgain,
    /// The address that was asked for.
    Address(SocketAddr),
    /// The association that was asked for.
    Association(AssocId),
    /// The value of an option, at most [`OPTION_BYTES_MAX`].
    Value(&'a [u8]),
    /// The daemon refuses the request; the reason in words, at most [`OPTION_BYTES_MAX`].
    Refused(&'a str),
}

impl<'a> Answer<'a> {
    /// Place of the value in the frame of an [`Answer::Value`].
    pub const VALUE_AT: usize = size_of::<u32>() + size_of::<u8>();

    /// Encodes the answer and returns its length; `None` if the value is too long.
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
            Answer::Association(id) => w.u8(4).assoc_id(*id),
            Answer::Refused(why) => w.u8(5).bytes(why.as_bytes()),
            Answer::AskAgain => w.u8(6),
        };
        w.finish()
    }

    /// Parses an answer; returns `None` if it is malformed.
    pub fn parse(frame: &'a [u8]) -> Option<Answer<'a>> {
        let mut r = Reader(frame);
        (r.u32()? == MAGIC).then_some(())?;
        let answer = match r.u8()? {
            0 => Answer::Done,
            1 => Answer::Failed(r.i32()?),
            2 => Answer::Address(address::read(&mut r)?),
            3 => Answer::Value(option_value(&mut r)?),
            4 => Answer::Association(r.assoc_id()?),
            5 => Answer::Refused(std::str::from_utf8(option_value(&mut r)?).ok()?),
            6 => Answer::AskAgain,
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
    fn a_request_of_the_daemon_is_encoded_like_every_request() {
        let (mut frame, mut same) = ([0; FRAME_BYTES_MAX], [0; FRAME_BYTES_MAX]);
        let request = DaemonRequest::Pop { assoc_id: AssocId::new(7) };
        let bytes = request.encode(&mut frame).expect("a short request");
        assert_eq!(Request::Daemon(request).encode(&mut same), Some(bytes));
        assert_eq!(frame, same);
        assert_eq!(Request::parse(&frame[..bytes]), Ok(request.into()));
    }

    #[test]
    fn a_request_may_fill_its_frame() {
        let value = [0; FRAME_BYTES_MAX];
        let encode = |bytes: usize| {
            let request = SocketRequest::SetOption { level: 1, name: 2, value: &value[..bytes] };
            Request::Socket(request).encode(&mut [0; FRAME_BYTES_MAX])
        };
        let head_bytes = encode(0).expect("a short request");
        assert_eq!(encode(FRAME_BYTES_MAX - head_bytes), Some(FRAME_BYTES_MAX));
        assert_eq!(encode(FRAME_BYTES_MAX - head_bytes + 1), None);
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
