//! A program that puts any messages on the streams of the SCTP provider: raw control parts, primitives out of
//! state, ioctls, modules.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arbitrary::{Arbitrary, Unstructured};
use bytes::Bytes;
use links::{BatchLimits, Datagrams, Link, LinkStats, PathInfo, Sink, Transmit};
use providers::{SctpDriver, SctpDriverConfig};
use streams::{
    Chain, Control, DriverId, Executive, FlushScope, IoctlRequest, Kind, Message, Primitive, SendInfo,
    StreamId, Which, modules,
};

/// Maximum number of steps of a script.
const STEPS_MAX: usize = 64;
/// Maximum number of streams that the program has open.
const STREAMS_MAX: usize = 6;
/// Nothing that the program puts waits in more memory than this.
const WAITING_BYTES_MAX: usize = 64 << 20;
const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9899);
/// Modules that the program pushes.
const MODULES: [&str; 11] = [
    "nullmod",
    "bufmod",
    "compress",
    "counter",
    "pipemod",
    "limit bits=1M",
    "filter drop=0.5 delay=1 way=both",
    "no",
    "timod",
    "tirdwr",
    "connld",
];

static PANICS: AtomicUsize = AtomicUsize::new(0);

/// A step of the program.
#[derive(Arbitrary, Debug)]
enum Step {
    Open,
    Close { on: u8 },
    Raw { on: u8, high: bool, control: Vec<u8>, data: Vec<u8> },
    Tpi { on: u8, high: bool, what: Request, data: Vec<u8> },
    Write { on: u8, stream: u8, flags: u8, bytes: u16 },
    Read { on: u8 },
    Ioctl { on: u8, command: u32, data: Vec<u8> },
    Push { on: u8, module: u8 },
    Pop { on: u8 },
    Time { ms: u16 },
}

/// A primitive, as far as the script chooses it.
#[derive(Arbitrary, Debug)]
enum Request {
    Bind { port: u8, backlog: u8 },
    Unbind,
    Connect { port: u8 },
    Accept { sequence: u8, acceptor: u8 },
    Disconnect { sequence: u8 },
    Release,
    Info,
    Address,
    Options { flags: u32, options: Vec<u8> },
    Data { more: bool },
    Expedited { more: bool },
    Indication { more: bool },
}

impl Request {
    fn primitive(&self) -> Primitive {
        let at = |port: u8| Box::new(SocketAddr::new(ADDRESS.ip(), 1 + u16::from(port % 4)).into());
        match *self {
            Request::Bind { port, backlog } => {
                Primitive::BindReq { addresses: at(port), backlog: backlog.into() }
            }
            Request::Unbind => Primitive::UnbindReq,
            Request::Connect { port } => Primitive::ConnReq { addresses: at(port) },
            Request::Accept { sequence, acceptor } => {
                Primitive::ConnRes { sequence: sequence.into(), acceptor: acceptor.into() }
            }
            Request::Disconnect { sequence } => {
                Primitive::DisconReq { sequence: sequence.into(), reason: 0, association: Which::Only }
            }
            Request::Release => Primitive::OrdrelReq { association: Which::Only },
            Request::Info => Primitive::InfoReq,
            Request::Address => Primitive::AddrReq,
            Request::Options { flags, ref options } => {
                Primitive::OptmgmtReq(Box::new(tpi::Optmgmt { flags, options: options.clone() }))
            }
            Request::Data { more } => Primitive::DataReq { more },
            Request::Expedited { more } => Primitive::ExdataReq { more },
            Request::Indication { more } => Primitive::DataInd { more },
        }
    }
}

/// A link that returns each packet to its sender.
#[derive(Default)]
struct Loop {
    datagrams: VecDeque<Bytes>,
}

impl Link for Loop {
    fn local_addresses(&self) -> Vec<SocketAddr> {
        vec![ADDRESS]
    }

    fn path_info(&self, _remote: SocketAddr) -> PathInfo {
        PathInfo {
            mtu_bytes: 1452,
            header_bytes: 28,
            same_host: true,
            on_link: true,
            in_flight_limit_bytes: None,
            local: None,
            route_local: Some(ADDRESS.ip()),
        }
    }

    fn batch_limits(&self) -> BatchLimits {
        BatchLimits { segments_max: 1, bytes_max: 1452 }
    }

    fn receive(&mut self, sink: &mut dyn Sink) -> io::Result<bool> {
        let Some(payload) = self.datagrams.pop_front() else { return Ok(false) };
        let segment_bytes = payload.len();
        sink.datagrams(Datagrams {
            remote: ADDRESS,
            local: ADDRESS.ip(),
            ecn: 0,
            segment_bytes,
            block_bytes: segment_bytes,
            payload,
            shared: Vec::new(),
        });
        Ok(!self.datagrams.is_empty())
    }

    fn transmit(&mut self, transmit: &Transmit<'_>) -> io::Result<()> {
        let bytes: Vec<u8> = transmit.slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        if transmit.remote == ADDRESS {
            self.datagrams.extend(bytes.chunks(transmit.segment_bytes).map(Bytes::copy_from_slice));
        }
        Ok(())
    }

    fn held_bytes(&self) -> usize {
        self.datagrams.iter().map(Bytes::len).sum()
    }

    fn descriptors<'a>(&'a self, _visit: &mut dyn FnMut(BorrowedFd<'a>)) {}

    fn stats(&self) -> LinkStats {
        LinkStats::default()
    }
}

/// Checks that no control part panics the codec, and that decoded ones are encoded so that they decode as the same
/// again.
pub fn primitive(bytes: &[u8]) {
    if let Ok(primitive) = Primitive::decode(bytes) {
        assert_eq!(Primitive::decode(&primitive.encode()).as_ref(), Ok(&primitive));
    }
}

/// Runs a script. Nothing panics, modules included, and what waits on a stream is bounded.
pub fn putmsg(bytes: &[u8]) {
    static HOOK: OnceLock<()> = OnceLock::new();
    HOOK.get_or_init(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.fetch_add(1, Ordering::Relaxed);
            before(panic);
        }));
    });
    let panics = PANICS.load(Ordering::Relaxed);
    let mut input = Unstructured::new(bytes);
    let mut program = Program::new();
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        let Ok(step) = Step::arbitrary(&mut input) else { break };
        program.take(&step);
        program.run_until_idle();
        program.check();
    }
    drop(program);
    assert_eq!(PANICS.load(Ordering::Relaxed), panics, "a module has panicked");
}

pub(crate) struct Program {
    pub(crate) executive: Executive,
    driver: DriverId,
    pub(crate) streams: Vec<StreamId>,
    pub(crate) now: Instant,
}

impl Program {
    pub(crate) fn new() -> Program {
        let now = Instant::now();
        let mut executive = Executive::new(now);
        modules::add_all(&mut executive);
        let driver = SctpDriver::new(Box::<Loop>::default(), SctpDriverConfig::default(), [7; 32], now);
        let driver = executive.add_driver("sctp", Box::new(driver));
        let streams = (0..2).filter_map(|_| executive.open(driver).ok()).collect();
        Program { executive, driver, streams, now }
    }

    fn take(&mut self, step: &Step) {
        let on = |on: u8| self.streams.get(usize::from(on) % self.streams.len().max(1)).copied();
        match step {
            Step::Open if self.streams.len() < STREAMS_MAX => {
                self.streams.extend(self.executive.open(self.driver).ok());
            }
            Step::Open => {}
            Step::Close { on: which } => {
                if let Some(s) = on(*which) {
                    self.executive.at(self.now).close(s);
                    self.streams.retain(|other| *other != s);
                }
            }
            Step::Raw { on: which, high, control, data } => {
                self.put(on(*which), *high, Control::from(&control[..]), data);
            }
            Step::Tpi { on: which, high, what, data } => {
                self.put(on(*which), *high, Control::Tpi(what.primitive()), data);
            }
            Step::Write { on: which, stream, flags, bytes } => {
                let info = SendInfo {
                    unordered: flags & 1 != 0,
                    more: flags & 2 != 0,
                    immediate: flags & 4 != 0,
                    ..SendInfo::stream((stream % 16).into())
                };
                if let Some(s) = on(*which) {
                    // A stream that is not connected takes nothing.
                    let now = || self.now;
                    let _ = self.executive.write(s, Which::Only, info, &vec![7; usize::from(*bytes)], now);
                }
            }
            Step::Read { on: which } => {
                while let Some(s) = on(*which)
                    && let Ok(Some(_)) = self.executive.getmsg(s)
                {}
            }
            Step::Ioctl { on: which, command, data } => {
                if let Some(s) = on(*which) {
                    let _ = self.executive.ioctl_begin(s, IoctlRequest::str(*command, data.clone()));
                }
            }
            Step::Push { on: which, module } => {
                let mut words = MODULES[usize::from(*module) % MODULES.len()].split(' ').map(str::to_owned);
                if let (Some(s), Some(name)) = (on(*which), words.next()) {
                    let _ = self.executive.push_named(s, &name, &words.collect::<Vec<_>>());
                }
            }
            Step::Pop { on: which } => {
                if let Some(s) = on(*which) {
                    let _ = self.executive.pop(s);
                }
            }
            Step::Time { ms } => self.now += Duration::from_millis((*ms).into()),
        }
    }

    fn put(&mut self, s: Option<StreamId>, high: bool, control: Control, data: &[u8]) {
        let Some(s) = s else { return };
        let kind = if high { Kind::PcProto(control) } else { Kind::Proto(control) };
        // A refused call has changed nothing.
        let _ = self.executive.at(self.now).putmsg(s, Message::with_data(kind, Chain::from(data.to_vec())));
    }

    /// Runs the executive until nothing is left to do now.
    pub(crate) fn run_until_idle(&mut self) {
        for _ in 0..64 {
            if self.executive.deadline().is_some_and(|at| at <= self.now) {
                self.executive.timeout(self.now);
            }
            self.executive.at(self.now).run();
            self.executive.flush(self.now, FlushScope::All);
            if !self.executive.has_arrivals() {
                break;
            }
            let _ = self.executive.receive(self.now);
        }
    }

    fn check(&self) {
        for stream in self.streams.iter().filter_map(|s| self.executive.describe(*s)) {
            let queues =
                stream.modules.iter().chain([&stream.driver]).flat_map(|part| [part.read, part.write]);
            let waiting: usize = queues.chain([stream.head_queue]).map(|queue| queue.bytes).sum();
            assert!(waiting <= WAITING_BYTES_MAX, "{waiting} bytes wait");
        }
    }
}
