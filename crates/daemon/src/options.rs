//! Socket options (RFC 6458 §8; `SOL_SOCKET`).
//!
//! Those that a program's own side answers, from the page or the kernel, do not come here: `SO_ERROR`, `SO_TYPE`,
//! `SO_DOMAIN`, `SO_PROTOCOL`, `SO_RCVTIMEO`, `SO_SNDTIMEO`.

use std::time::Duration;

use carrier::page::{State, Wants};
use rustix::io::Errno;
use swiftwater::{Options, Stack};

use crate::notify;
use crate::socket::Socket;

// Levels and names as Linux numbers them.
const SOL_SOCKET: i32 = 1;
const SO_REUSEADDR: i32 = 2;
const SO_SNDBUF: i32 = 7;
const SO_RCVBUF: i32 = 8;
const SO_KEEPALIVE: i32 = 9;
const SO_LINGER: i32 = 13;
const SO_ACCEPTCONN: i32 = 30;
const IPPROTO_IPV6: i32 = 41;
const IPV6_V6ONLY: i32 = 26;
const IPPROTO_SCTP: i32 = 132;
const SCTP_INITMSG: i32 = 2;
const SCTP_NODELAY: i32 = 3;
const SCTP_DISABLE_FRAGMENTS: i32 = 8;
const SCTP_EVENTS: i32 = 11;
const SCTP_RECVRCVINFO: i32 = 32;

/// Bytes of the longest `struct sctp_event_subscribe`.
const EVENTS_BYTES_MAX: usize = 14;
/// The smallest and the largest buffer that a program may ask for.
const BUFFER_BYTES: std::ops::RangeInclusive<i32> = 4096..=64 << 20;
const BACKLOG_MAX: i32 = 4096;

/// What a program has set.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// What the associations of the socket begin with, where nothing else was set.
    defaults: Options,
    pub(crate) reuse_address: bool,
    keep_alive: bool,
    pub(crate) v6_only: bool,
    /// `SO_LINGER`, if it is on.
    linger_s: Option<i32>,
    /// `SO_SNDBUF` and `SO_RCVBUF`.
    send_buffer_bytes: Option<i32>,
    receive_buffer_bytes: Option<i32>,
    init: InitMessage,
    nodelay: bool,
    events: [u8; EVENTS_BYTES_MAX],
    receive_info: bool,
    pub(crate) wants: Wants,
}

/// `struct sctp_initmsg`.
#[derive(Clone, Copy, Debug)]
struct InitMessage {
    streams_out: u16,
    streams_in_max: u16,
    attempts_max: u16,
    timeout_max_ms: u16,
}

impl Settings {
    pub(crate) fn new(stack: &Stack) -> Self {
        let defaults = stack.options().clone();
        Settings {
            reuse_address: false,
            keep_alive: false,
            v6_only: false,
            linger_s: None,
            send_buffer_bytes: None,
            receive_buffer_bytes: None,
            init: InitMessage {
                streams_out: defaults.streams_out,
                streams_in_max: defaults.streams_in_max,
                attempts_max: u16::try_from(defaults.init_retries_max).unwrap_or(u16::MAX),
                timeout_max_ms: u16::try_from(defaults.rto_max.as_millis()).unwrap_or(u16::MAX),
            },
            nodelay: defaults.nodelay,
            events: [0; EVENTS_BYTES_MAX],
            receive_info: false,
            wants: Wants::default(),
            defaults,
        }
    }

    /// Whether what was sent is delivered after the socket was closed.
    pub(crate) fn lingers(&self) -> bool {
        self.linger_s != Some(0)
    }

    /// What associations of the socket are set up with.
    pub(crate) fn options(&self, backlog: i32) -> Options {
        let init = &self.init;
        let buffer = |set: Option<i32>, default: usize| {
            set.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(default)
        };
        Options {
            streams_out: init.streams_out,
            streams_in_max: init.streams_in_max,
            init_retries_max: init.attempts_max.into(),
            rto_max: self
                .defaults
                .rto_max
                .min(Duration::from_millis(init.timeout_max_ms.into()))
                .max(self.defaults.rto_min),
            send_buffer_bytes: buffer(self.send_buffer_bytes, self.defaults.send_buffer_bytes),
            receive_buffer_bytes: buffer(self.receive_buffer_bytes, self.defaults.receive_buffer_bytes),
            backlog: backlog.clamp(1, BACKLOG_MAX) as u32,
            events: true,
            ..self.defaults.clone()
        }
    }

    /// With what came with the message that begins an association.
    pub(crate) fn with_init(&self, init: carrier::request::InitMessage) -> Settings {
        let mut settings = self.clone();
        settings.init.merge([init.streams_out, init.streams_in_max, init.attempts_max, init.timeout_max_ms]);
        settings
    }

    /// Whether notifications of this kind are wanted.
    pub(crate) fn subscribes(&self, kind: notify::Type) -> bool {
        self.events.get(kind.subscription()).is_some_and(|on| *on != 0)
    }

    fn set(&mut self, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
        match (level, name) {
            (SOL_SOCKET, SO_REUSEADDR) => self.reuse_address = number(value)? != 0,
            (SOL_SOCKET, SO_KEEPALIVE) => self.keep_alive = number(value)? != 0,
            // The kernel doubles what it is asked for and says so; a buffer here holds what it is said to.
            (SOL_SOCKET, SO_SNDBUF) => self.send_buffer_bytes = Some(buffer_bytes(value)?),
            (SOL_SOCKET, SO_RCVBUF) => self.receive_buffer_bytes = Some(buffer_bytes(value)?),
            (SOL_SOCKET, SO_LINGER) => {
                let [on, seconds] = words(value)?;
                self.linger_s = (on != 0).then_some(seconds);
            }
            (IPPROTO_IPV6, IPV6_V6ONLY) => self.v6_only = number(value)? != 0,
            (IPPROTO_SCTP, SCTP_INITMSG) => self.init.set(value)?,
            (IPPROTO_SCTP, SCTP_NODELAY) => self.nodelay = number(value)? != 0,
            // Messages longer than a packet are fragmented; what would refuse them is not there.
            (IPPROTO_SCTP, SCTP_DISABLE_FRAGMENTS) if number(value)? == 0 => {}
            (IPPROTO_SCTP, SCTP_DISABLE_FRAGMENTS) => return Err(Errno::OPNOTSUPP),
            (IPPROTO_SCTP, SCTP_EVENTS) => {
                let known = value.len().min(EVENTS_BYTES_MAX);
                self.events[..known].copy_from_slice(&value[..known]);
                self.wants = self.wants.set(Wants::SNDRCV, self.events[0] != 0);
            }
            (IPPROTO_SCTP, SCTP_RECVRCVINFO) => {
                self.receive_info = number(value)? != 0;
                self.wants = self.wants.set(Wants::RCVINFO, self.receive_info);
            }
            _ => return Err(Errno::NOPROTOOPT),
        }
        Ok(())
    }

    fn get(&self, level: i32, name: i32, stage: State) -> Result<Vec<u8>, Errno> {
        let number = match (level, name) {
            (SOL_SOCKET, SO_REUSEADDR) => self.reuse_address.into(),
            (SOL_SOCKET, SO_KEEPALIVE) => self.keep_alive.into(),
            (SOL_SOCKET, SO_SNDBUF) => {
                self.send_buffer_bytes.unwrap_or(self.defaults.send_buffer_bytes as i32)
            }
            (SOL_SOCKET, SO_RCVBUF) => {
                self.receive_buffer_bytes.unwrap_or(self.defaults.receive_buffer_bytes as i32)
            }
            (SOL_SOCKET, SO_ACCEPTCONN) => (stage == State::Listening).into(),
            (SOL_SOCKET, SO_LINGER) => {
                let linger = [self.linger_s.is_some().into(), self.linger_s.unwrap_or(0)];
                return Ok(linger.map(i32::to_ne_bytes).as_flattened().to_vec());
            }
            (IPPROTO_IPV6, IPV6_V6ONLY) => self.v6_only.into(),
            (IPPROTO_SCTP, SCTP_INITMSG) => return Ok(self.init.bytes()),
            (IPPROTO_SCTP, SCTP_NODELAY) => self.nodelay.into(),
            (IPPROTO_SCTP, SCTP_DISABLE_FRAGMENTS) => 0,
            (IPPROTO_SCTP, SCTP_EVENTS) => return Ok(self.events.to_vec()),
            (IPPROTO_SCTP, SCTP_RECVRCVINFO) => self.receive_info.into(),
            _ => return Err(Errno::NOPROTOOPT),
        };
        Ok(i32::to_ne_bytes(number).to_vec())
    }
}

impl InitMessage {
    fn set(&mut self, value: &[u8]) -> Result<(), Errno> {
        self.merge(halves(value)?);
        Ok(())
    }

    /// Zero leaves a field as it is (RFC 6458 §8.1.3).
    fn merge(&mut self, [streams_out, streams_in_max, attempts_max, timeout_max_ms]: [u16; 4]) {
        let set = |field: &mut u16, to: u16| *field = if to == 0 { *field } else { to };
        set(&mut self.streams_out, streams_out);
        set(&mut self.streams_in_max, streams_in_max);
        set(&mut self.attempts_max, attempts_max);
        set(&mut self.timeout_max_ms, timeout_max_ms);
    }

    fn bytes(&self) -> Vec<u8> {
        [self.streams_out, self.streams_in_max, self.attempts_max, self.timeout_max_ms]
            .map(u16::to_ne_bytes)
            .as_flattened()
            .to_vec()
    }
}

impl Socket {
    pub(crate) fn set_option(&self, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
        let mut inner = self.lock();
        inner.settings.set(level, name, value)?;
        self.page.set_wants(inner.settings.wants);
        Ok(())
    }

    pub(crate) fn option(&self, level: i32, name: i32) -> Result<Vec<u8>, Errno> {
        let inner = self.lock();
        inner.settings.get(level, name, inner.stage)
    }
}

fn number(value: &[u8]) -> Result<i32, Errno> {
    value.first_chunk().copied().map(i32::from_ne_bytes).ok_or(Errno::INVAL)
}

fn words<const N: usize>(value: &[u8]) -> Result<[i32; N], Errno> {
    let mut out = [0; N];
    let chunks = value.as_chunks().0.get(..N).ok_or(Errno::INVAL)?;
    out.iter_mut().zip(chunks).for_each(|(to, bytes)| *to = i32::from_ne_bytes(*bytes));
    Ok(out)
}

fn halves<const N: usize>(value: &[u8]) -> Result<[u16; N], Errno> {
    let mut out = [0; N];
    let chunks = value.as_chunks().0.get(..N).ok_or(Errno::INVAL)?;
    out.iter_mut().zip(chunks).for_each(|(to, bytes)| *to = u16::from_ne_bytes(*bytes));
    Ok(out)
}

fn buffer_bytes(value: &[u8]) -> Result<i32, Errno> {
    Ok(number(value)?.clamp(*BUFFER_BYTES.start(), *BUFFER_BYTES.end()))
}
