//! A daemon, and a hostile program that has sockets of it: requests with any descriptors, records of any form, and what it
//! likes in the pages.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use ::channel_protocol::assoc_id::AssocId;
use ::channel_protocol::record::{HEADER_BYTES, Header, Kind, Sequence};
use ::channel_protocol::request::{
    Addresses, Answer, DaemonRequest, FRAME_BYTES_MAX, InitMessage, OPTION_BYTES_MAX, PUT_BACK_BYTES_MAX,
    Recorder, Request, SocketKind, SocketRequest, Start,
};
use arbitrary::{Arbitrary, Unstructured};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::net::sockopt::socket_cookie;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use shared_memory::OfferedMapping;
use swiftwater::StackOptions;
use swiftwater_daemon::{Daemon, DaemonAddress, DaemonOptions};

/// Maximum number of steps of a script.
const STEPS_MAX: usize = 40;
/// Maximum number of sockets and other descriptors of the program.
const HELD_MAX: usize = 16;
/// Maximum number of descriptors with a request or a record.
const PASSED_MAX: usize = 4;
/// An answer that needs no peer comes within this time, however busy the machine is.
const ANSWER_WAIT: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };
/// The thread of the daemon.
const THREAD: &str = "fuzzed daemon";

/// Modules that the program pushes, with arguments that they take and others.
const MODULES: [&str; 8] = [
    "nullmod",
    "bufmod",
    "compress",
    "counter",
    "limit bits=1M per-stream=yes",
    "filter drop=0.5 duplicate=0.5 delay=1 way=both",
    "limit bits=1e308",
    "no such",
];

static PANICS: AtomicUsize = AtomicUsize::new(0);

/// A step of the program.
#[derive(Arbitrary, Debug)]
enum Step {
    Open {
        v6: bool,
        kind: u8,
    },
    Hold(Thing),
    Ask {
        about: u8,
        more: Vec<u8>,
        request: Asked,
    },
    AskBytes {
        about: u8,
        bytes: Vec<u8>,
    },
    Send {
        on: u8,
        header: Head,
        payload: Vec<u8>,
        passed: Vec<u8>,
    },
    SendBytes {
        on: u8,
        bytes: Vec<u8>,
    },
    Read {
        on: u8,
    },
    WritePage {
        of: u8,
        at: u16,
        bytes: [u8; 8],
    },
    /// Writes into a ring: near its beginning, or anywhere.
    WriteRing {
        of: u8,
        is_control: bool,
        at: u16,
        word: u64,
    },
    Close {
        which: u8,
    },
}

/// A descriptor that is no pair.
#[derive(Arbitrary, Debug)]
enum Thing {
    Null,
    Pipe,
    Pair { seqpacket: bool },
    Memfd { bytes: u16, sealed: bool },
    Ring,
}

/// A request, as far as the script chooses it.
#[derive(Arbitrary, Debug)]
enum Asked {
    Status,
    Attach,
    Memfd,
    Bind { port: u8 },
    Listen { backlog: i8 },
    Connect { port: u8, start: u8, init: [u16; 4] },
    Find { port: u8 },
    Barrier,
    AwaitRoom { association: u8 },
    Associations { after: u8 },
    AwaitEnd,
    PeelOff { association: u8, begun: bool, at: u32 },
    LocalAddress,
    PeerAddress,
    Set { level: bool, name: u8, value: Vec<u8> },
    Get { level: bool, name: u8, value: Vec<u8> },
    Streams,
    Push { association: u8, module: u8 },
    Pop { association: u8 },
    Record { association: u8, trace: bool },
    Link { association: u8, other: u8 },
    Unlink { association: u8 },
    Linger { cookie: u8 },
    Hold,
    PutBack { head: Head, content: Vec<u8> },
    SetForm { plain: bool },
}

/// The header of a record, as far as the script chooses it.
#[derive(Arbitrary, Debug)]
struct Head {
    kind: u8,
    flags: u8,
    stream: u8,
    association: u8,
    lifetime_ms: u8,
    /// Length that the record claims; `None`: the true one.
    bytes: Option<u32>,
    port: Option<u8>,
}

/// A descriptor of the program: a pair with the page of its sharers, a ring, or something else.
struct Held {
    descriptor: OwnedFd,
    page: Option<OwnedFd>,
    ring: Option<OfferedMapping>,
}

impl From<OwnedFd> for Held {
    fn from(descriptor: OwnedFd) -> Held {
        Held { descriptor, page: None, ring: None }
    }
}

/// Checks that no program makes a task of the daemon panic, and that the daemon still answers.
pub fn daemon(bytes: &[u8]) {
    let place = place();
    let mut script = Unstructured::new(bytes);
    let mut held: Vec<Held> = Vec::new();
    for _ in 0..STEPS_MAX {
        match Step::arbitrary(&mut script) {
            Ok(step) if !script.is_empty() => perform(place, &mut held, &step),
            _ => break,
        }
    }
    drop(held);
    let (answer, _) = ask(place, &DaemonRequest::Describe.into(), &[]).expect("the daemon answers");
    assert!(matches!(Answer::parse(&answer), Some(Answer::Value(_))));
    assert_eq!(PANICS.load(Ordering::Relaxed), 0, "a task of the daemon has panicked");
}

/// Returns the daemon that all cases share.
fn place() -> &'static SocketAddrUnix {
    static PLACE: OnceLock<SocketAddrUnix> = OnceLock::new();
    PLACE.get_or_init(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if std::thread::current().name() == Some(THREAD) {
                PANICS.fetch_add(1, Ordering::Relaxed);
            }
            before(panic);
        }));
        let name = format!("swiftwater-fuzz-{}", std::process::id());
        let options = DaemonOptions {
            address: DaemonAddress::Abstract(name.clone()),
            // Nothing leaves this host.
            stack: StackOptions::default()
                .with_udp_port(0)
                .with_local_addresses(vec![Ipv4Addr::LOCALHOST.into()]),
            ..DaemonOptions::default()
        };
        let daemon = Daemon::bind(&options).expect("a free port and a free name");
        let run = move || daemon.run().expect("the system lets it run");
        std::thread::Builder::new().name(THREAD.into()).spawn(run).expect("a thread");
        SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("a short name")
    })
}

fn perform(place: &SocketAddrUnix, held: &mut Vec<Held>, step: &Step) {
    match step {
        Step::Open { v6, kind } if held.len() < HELD_MAX => {
            let kinds = [SocketKind::OneToOne, SocketKind::OneToMany, SocketKind::TcpStream];
            let kind = kinds[usize::from(*kind) % kinds.len()];
            let opened = ask(place, &DaemonRequest::Open { v6: *v6, kind }.into(), &[]);
            take_socket(held, opened.map(|(_, descriptors)| descriptors).unwrap_or_default());
        }
        Step::Hold(thing) if held.len() < HELD_MAX => {
            held.extend(make(thing));
        }
        Step::Open { .. } | Step::Hold(_) => {}
        Step::Ask { about, more, request } => {
            let passed = [&[*about], &more[..]].concat();
            let opened = ask_as_chosen(place, request, &chosen(held, &passed));
            take_socket(held, opened);
        }
        Step::AskBytes { about, bytes } => {
            if let Ok(connection) = connect(place) {
                // The daemon may refuse it, and closes the connection then.
                let _ = send(&connection, &[bytes], &chosen(held, &[*about]));
            }
        }
        Step::Send { on, header, payload, passed } => {
            let Some(pair) = pick(held, *on) else { return };
            let header = header.encode(payload.len());
            // The pair may be full or closed, or is none.
            let _ = send(&pair.descriptor, &[&header, payload], &chosen(held, passed));
        }
        Step::SendBytes { on, bytes } => {
            let Some(pair) = pick(held, *on) else { return };
            let _ = send(&pair.descriptor, &[bytes], &[]);
        }
        Step::Read { on } => {
            let Some(pair) = pick(held, *on) else { return };
            // There may be nothing.
            let _ = receive(&pair.descriptor, &mut [0; 256]);
        }
        Step::WritePage { of, at, bytes } => {
            let Some(page) = pick(held, *of).and_then(|held| held.page.as_ref()) else { return };
            let size = rustix::fs::fstat(page).expect("a page of our own").st_size as usize;
            let at = usize::from(*at) % (size - bytes.len());
            rustix::io::pwrite(page, bytes, at as u64).expect("a page of our own");
        }
        Step::WriteRing { of, is_control, at, word } => {
            let Some(ring) = pick(held, *of).and_then(|held| held.ring.as_ref()) else { return };
            let count = if *is_control { ring::CONTROL_WORDS + 8 } else { ring::WORDS };
            ring.words_u64()[usize::from(*at) % count].store(*word, Ordering::Relaxed);
        }
        Step::Close { which } => {
            if !held.is_empty() {
                held.swap_remove(usize::from(*which) % held.len());
            }
        }
    }
}

/// Keeps the pair and the sharers' page that came with an answer, if any.
fn take_socket(held: &mut Vec<Held>, descriptors: Vec<OwnedFd>) {
    if let Ok([descriptor, _status, sharers]) = <[OwnedFd; 3]>::try_from(descriptors)
        && held.len() < HELD_MAX
    {
        held.push(Held { descriptor, page: Some(sharers), ring: None });
    }
}

fn pick(held: &[Held], number: u8) -> Option<&Held> {
    held.get(usize::from(number) % held.len().max(1))
}

fn chosen<'a>(held: &'a [Held], numbers: &[u8]) -> Vec<BorrowedFd<'a>> {
    let some = numbers.iter().take(PASSED_MAX).filter_map(|number| pick(held, *number));
    some.map(|held| held.descriptor.as_fd()).collect()
}

fn make(thing: &Thing) -> Option<Held> {
    match *thing {
        Thing::Null => std::fs::File::open("/dev/null").ok().map(|file| OwnedFd::from(file).into()),
        Thing::Pipe => rustix::pipe::pipe().ok().map(|(reader, _)| reader.into()),
        Thing::Pair { seqpacket } => {
            let kind = if seqpacket { SocketType::SEQPACKET } else { SocketType::STREAM };
            let pair = rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
            pair.ok().map(|(one, _)| one.into())
        }
        Thing::Memfd { bytes, sealed } => {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let memfd = memfd_create("fuzz", flags).ok()?;
            rustix::fs::ftruncate(&memfd, bytes.into()).ok()?;
            if sealed {
                fcntl_add_seals(&memfd, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW).ok()?;
            }
            Some(memfd.into())
        }
        Thing::Ring => {
            let ring = OfferedMapping::new("fuzz", ring::LONG_WORDS).ok()?;
            let descriptor = ring.as_fd().try_clone_to_owned().ok()?;
            Some(Held { descriptor, page: None, ring: Some(ring) })
        }
    }
}

fn ask_as_chosen(place: &SocketAddrUnix, asked: &Asked, about: &[BorrowedFd<'_>]) -> Vec<OwnedFd> {
    let at = |port: u8| SocketAddr::from((Ipv4Addr::LOCALHOST, 2000 + u16::from(port % 4)));
    let level = |sctp: bool| if sctp { 132 } else { 1 };
    let assoc_id = |number: u8| AssocId::new(number.into());
    let within = |value: &[u8]| value[..value.len().min(OPTION_BYTES_MAX)].to_vec();
    let (value, peers, record);
    let request: Request<'_> = match asked {
        Asked::Status => DaemonRequest::Status.into(),
        Asked::Attach => SocketRequest::Attach.into(),
        Asked::Memfd => DaemonRequest::Memfd.into(),
        Asked::Bind { port } => SocketRequest::Bind(at(*port)).into(),
        Asked::Listen { backlog } => SocketRequest::Listen { backlog: (*backlog).into() }.into(),
        Asked::Connect { port, start, init: [streams_out, streams_in_max, attempts_max, timeout_max_ms] } => {
            peers = [at(*port)];
            let [streams_out, streams_in_max] = [*streams_out, *streams_in_max];
            let [attempts_max, timeout_max_ms] = [*attempts_max, *timeout_max_ms];
            let init = InitMessage { streams_out, streams_in_max, attempts_max, timeout_max_ms };
            let start = [Start::Now, Start::AnswerLate, Start::WithMessage][usize::from(start % 3)];
            SocketRequest::Connect { peer: Addresses::new(&peers).expect("one address"), start, init }.into()
        }
        Asked::Find { port } => SocketRequest::Find(at(*port)).into(),
        Asked::Barrier => DaemonRequest::Barrier.into(),
        Asked::Linger { cookie } => {
            let own = about.first().and_then(|pair| socket_cookie(pair).ok());
            DaemonRequest::Linger { cookie: own.unwrap_or((*cookie).into()) }.into()
        }
        Asked::AwaitRoom { association } => {
            SocketRequest::AwaitRoom { assoc_id: assoc_id(*association) }.into()
        }
        Asked::Associations { after } => SocketRequest::Associations { after: assoc_id(*after) }.into(),
        Asked::AwaitEnd => SocketRequest::AwaitEnd.into(),
        Asked::PeelOff { association, begun, at } => {
            SocketRequest::PeelOff { assoc_id: assoc_id(*association), front_begun: *begun, front_at: *at }
                .into()
        }
        Asked::LocalAddress => SocketRequest::LocalAddress.into(),
        Asked::PeerAddress => SocketRequest::PeerAddress.into(),
        Asked::Set { level: l, name, value: v } => {
            value = within(v);
            SocketRequest::SetOption { level: level(*l), name: (*name).into(), value: &value }.into()
        }
        Asked::Get { level: l, name, value: v } => {
            value = within(v);
            SocketRequest::GetOption { level: level(*l), name: (*name).into(), value: &value }.into()
        }
        Asked::Streams => DaemonRequest::Streams.into(),
        Asked::Push { association, module } => DaemonRequest::Push {
            assoc_id: assoc_id(*association),
            module: MODULES[usize::from(*module) % MODULES.len()],
        }
        .into(),
        Asked::Pop { association } => DaemonRequest::Pop { assoc_id: assoc_id(*association) }.into(),
        Asked::Record { association, trace } => DaemonRequest::Record {
            assoc_id: assoc_id(*association),
            recorder: if *trace { Recorder::Trace } else { Recorder::Tap },
        }
        .into(),
        Asked::Link { association, other } => {
            DaemonRequest::Link { assoc_id: assoc_id(*association), other: assoc_id(*other) }.into()
        }
        Asked::Unlink { association } => DaemonRequest::Unlink { assoc_id: assoc_id(*association) }.into(),
        Asked::Hold => SocketRequest::Hold.into(),
        Asked::PutBack { head, content } => {
            let content = &content[..content.len().min(PUT_BACK_BYTES_MAX - HEADER_BYTES)];
            record = [&head.encode(content.len())[..], content].concat();
            SocketRequest::PutBack(&record).into()
        }
        Asked::SetForm { plain } => SocketRequest::SetForm { plain: *plain }.into(),
    };
    ask(place, &request, about).map(|(_, descriptors)| descriptors).unwrap_or_default()
}

impl Head {
    fn encode(&self, payload_bytes: usize) -> [u8; HEADER_BYTES] {
        let kinds = [
            Kind::Data,
            Kind::Accepted,
            Kind::Filler,
            Kind::Notification,
            Kind::SizeHint,
            Kind::Wake,
            Kind::Ring,
            Kind::Bundle,
        ];
        let header = Header {
            stream: self.stream.into(),
            assoc_id: AssocId::new(self.association.into()),
            lifetime_ms: self.lifetime_ms.into(),
            context: self.lifetime_ms.into(),
            sequence: Sequence::ring(self.lifetime_ms.into()),
            bytes: self.bytes.unwrap_or(u32::try_from(payload_bytes).expect("a short input")),
            address: self.port.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, 2000 + u16::from(port)))),
            ..Header::new(kinds[usize::from(self.kind) % kinds.len()])
        };
        let mut bytes = header.encode();
        // Where the flags stand, behind the magic number and the kind.
        bytes[6] = self.flags;
        bytes
    }
}

/// Makes a request. Returns `None` if the answer waits for another program.
fn ask(
    place: &SocketAddrUnix,
    request: &Request<'_>,
    about: &[BorrowedFd<'_>],
) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
    let connection = connect(place).expect("the daemon lets programs in");
    let mut frame = [0; FRAME_BYTES_MAX];
    let bytes = request.encode(&mut frame).expect("it fits");
    send(&connection, &[&frame[..bytes]], about).expect("the daemon takes it");
    let is_late = matches!(
        request,
        Request::Daemon(DaemonRequest::Linger { .. })
            | Request::Socket(
                SocketRequest::AwaitRoom { .. }
                    | SocketRequest::AwaitEnd
                    | SocketRequest::Connect { .. }
                    | SocketRequest::PutBack(_)
            )
    );
    let wait = if is_late { Timespec { tv_sec: 0, tv_nsec: 1_000_000 } } else { ANSWER_WAIT };
    let mut ready = [PollFd::new(&connection, PollFlags::IN)];
    // The fuzzer's own timer interrupts calls.
    let came = rustix::io::retry_on_intr(|| poll(&mut ready, Some(&wait))).expect("a descriptor of our own");
    if came == 0 {
        assert!(is_late, "no answer to {request:?}");
        return None;
    }
    let mut answer = vec![0; FRAME_BYTES_MAX];
    let (bytes, descriptors) = receive(&connection, &mut answer).ok()?;
    answer.truncate(bytes);
    Some((answer, descriptors))
}

fn connect(place: &SocketAddrUnix) -> rustix::io::Result<OwnedFd> {
    let connection =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&connection, place)?;
    Ok(connection)
}

fn send(socket: &OwnedFd, parts: &[&[u8]], descriptors: &[BorrowedFd<'_>]) -> rustix::io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PASSED_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let parts: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    rustix::net::sendmsg(socket, &parts, &mut control, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
}

fn receive(socket: &OwnedFd, place: &mut [u8]) -> rustix::io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PASSED_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(place)], &mut control, flags)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            descriptors.extend(passed);
        }
    }
    Ok((received.bytes, descriptors))
}
