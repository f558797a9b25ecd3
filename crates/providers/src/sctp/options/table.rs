//! The table of options: the access to each, and the location of its value.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use ::sctp::config::{RECEIVE_WINDOW_BYTES_MIN, RtoConfig};
use ::sctp::{AssociationConfig, Checksum, PathOptions};
use tpi::options::generic::*;
use tpi::options::ip::*;
use tpi::options::sctp::*;
use tpi::options::{Status, T_INET_IP, T_INET_SCTP, T_NO, T_UNSPEC, T_YES, XTI_GENERIC};

use super::{Draft, Outcome, Values};

/// Permission to set an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// The user may set it at any time.
    ReadWrite,
    /// The user may set it until an association exists: the value is part of the handshake.
    Handshake,
    /// The user cannot set it.
    ReadOnly,
    /// The core does not support it.
    Unsupported,
}

impl Access {
    /// Returns the status of an option before its value is examined.
    pub(super) fn status(self, is_connected: bool) -> Status {
        match self {
            Self::ReadWrite => Status::Success,
            Self::Handshake if !is_connected => Status::Success,
            Self::Handshake | Self::ReadOnly => Status::ReadOnly,
            Self::Unsupported => Status::NotSupported,
        }
    }
}

/// An option of this provider.
pub(super) struct Known {
    pub(super) name: u32,
    pub(super) access: Access,
    /// The size of the value. A value of one byte is a number, too.
    value_bytes: usize,
    get: fn(&Values<'_>) -> Vec<u32>,
    pub(super) set: fn(&mut Draft, &[u32]) -> Outcome,
}

impl Known {
    /// Returns the value in its list format.
    pub(super) fn read(&self, values: &Values<'_>) -> Vec<u8> {
        let words = (self.get)(values);
        if self.value_bytes == 1 {
            return words.iter().map(|word| *word as u8).collect();
        }
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    /// Returns the words of a value; `None` if it has another length.
    pub(super) fn words(&self, value: &[u8]) -> Option<Vec<u32>> {
        if value.len() != self.value_bytes {
            return None;
        }
        Some(match value {
            [byte] => vec![u32::from(*byte)],
            _ => value
                .chunks_exact(4)
                .map(|word| u32::from_ne_bytes(word.try_into().unwrap_or_default()))
                .collect(),
        })
    }
}

/// Returns the options of a level; `None` if the level is unknown.
pub(super) fn of_level(level: u32) -> Option<&'static [Known]> {
    match level {
        XTI_GENERIC => Some(GENERIC),
        T_INET_IP => Some(IP),
        T_INET_SCTP => Some(SCTP),
        _ => None,
    }
}

/// Maximum size of a buffer.
const BUFFER_BYTES_MAX: usize = 64 << 20;
/// Minimum size of a send buffer.
const SEND_BUFFER_BYTES_MIN: usize = 4096;
/// SACK.Delay is 500 ms at most (RFC 9260 §6.2).
const SACK_DELAY_MS_MAX: u32 = 500;
/// Maximum time of a timer, an hour.
const TIME_MS_MAX: u32 = 3_600_000;
/// Maximum of every retry counter.
const RETRIES_MAX: u32 = 255;
/// The number of CRC32C for `T_SCTP_CKSUM_TYPE`.
const CSUM_CRC32C: u32 = 1;
/// The words of each destination in `T_SCTP_STATUS`.
const STATUS_DESTINATION_WORDS: usize = 7;

const fn word(
    name: u32,
    access: Access,
    get: fn(&Values<'_>) -> Vec<u32>,
    set: fn(&mut Draft, &[u32]) -> Outcome,
) -> Known {
    Known { name, access, value_bytes: 4, get, set }
}

const fn read_only(name: u32, get: fn(&Values<'_>) -> Vec<u32>) -> Known {
    word(name, Access::ReadOnly, get, |_, _| Outcome::Failed)
}

const fn unsupported(name: u32) -> Known {
    word(name, Access::Unsupported, |_| Vec::new(), |_, _| Outcome::Failed)
}

const GENERIC: &[Known] = &[
    unsupported(XTI_DEBUG),
    unsupported(XTI_LINGER),
    word(
        XTI_SNDBUF,
        Access::ReadWrite,
        |v| vec![bytes(v.config.send_buffer_bytes)],
        |d, v| {
            let outcome = set_bytes(&mut d.config.send_buffer_bytes, v, SEND_BUFFER_BYTES_MIN);
            d.config.send_buffer_tuned_bytes = d.config.send_buffer_bytes;
            outcome
        },
    ),
    word(
        XTI_RCVBUF,
        Access::ReadWrite,
        |v| vec![bytes(v.config.receive_buffer_bytes)],
        |d, v| {
            let outcome = set_bytes(&mut d.config.receive_buffer_bytes, v, RECEIVE_WINDOW_BYTES_MIN);
            d.config.receive_buffer_tuned_bytes = d.config.receive_buffer_bytes;
            outcome
        },
    ),
    unsupported(XTI_SNDLOWAT),
    unsupported(XTI_RCVLOWAT),
];

const IP: &[Known] = &[
    unsupported(T_IP_OPTIONS),
    Known {
        name: T_IP_TOS,
        access: Access::ReadWrite,
        value_bytes: 1,
        get: |v| vec![u32::from(v.config.dscp << 2)],
        // The two lowest bits are the ECN field, which the user cannot set (RFC 3168).
        set: |d, v| {
            d.config.dscp = (v[0] >> 2) as u8;
            if v[0] & 3 == 0 { Outcome::Done } else { Outcome::Lessened }
        },
    },
    unsupported(T_IP_TTL),
    unsupported(T_IP_REUSEADDR),
    unsupported(T_IP_DONTROUTE),
    unsupported(T_IP_BROADCAST),
    unsupported(T_IP_ADDR),
];

const SCTP: &[Known] = &[
    word(
        T_SCTP_NODELAY,
        Access::ReadWrite,
        |v| vec![yes_no(v.config.nodelay)],
        |d, v| set_flag(&mut d.config.nodelay, v),
    ),
    unsupported(T_SCTP_CORK),
    word(
        T_SCTP_PPI,
        Access::ReadWrite,
        |v| vec![v.send.ppid],
        |d, v| {
            d.send.ppid = v[0];
            Outcome::Done
        },
    ),
    word(T_SCTP_SID, Access::ReadWrite, |v| vec![v.send.stream.into()], set_stream),
    read_only(T_SCTP_SSN, |_| vec![T_UNSPEC]),
    read_only(T_SCTP_TSN, |_| vec![T_UNSPEC]),
    // Received data always has its options.
    read_only(T_SCTP_RECVOPT, |_| vec![T_YES]),
    word(
        T_SCTP_COOKIE_LIFE,
        Access::Handshake,
        |v| vec![ms(v.config.cookie_life)],
        |d, v| set_time(&mut d.config.cookie_life, v, TIME_MS_MAX),
    ),
    word(
        T_SCTP_SACK_DELAY,
        Access::ReadWrite,
        |v| vec![ms(v.config.sack_delay)],
        |d, v| {
            let delay_ms = v[0].min(SACK_DELAY_MS_MAX);
            d.config.sack_delay = Duration::from_millis(delay_ms.into());
            if delay_ms == v[0] { Outcome::Done } else { Outcome::Lessened }
        },
    ),
    word(
        T_SCTP_PATH_MAX_RETRANS,
        Access::ReadWrite,
        |v| vec![v.config.path_retries_max],
        |d, v| set_number(&mut d.config.path_retries_max, v, 0, RETRIES_MAX),
    ),
    word(
        T_SCTP_ASSOC_MAX_RETRANS,
        Access::ReadWrite,
        |v| vec![v.config.association_retries_max],
        |d, v| set_number(&mut d.config.association_retries_max, v, 0, RETRIES_MAX),
    ),
    word(
        T_SCTP_MAX_INIT_RETRIES,
        Access::Handshake,
        |v| vec![v.config.init_retries_max],
        |d, v| set_number(&mut d.config.init_retries_max, v, 0, RETRIES_MAX),
    ),
    word(
        T_SCTP_HEARTBEAT_ITVL,
        Access::ReadWrite,
        |v| vec![v.config.heartbeat_interval.map_or(0, ms)],
        |d, v| set_heartbeats(d, v[0]),
    ),
    word(
        T_SCTP_RTO_INITIAL,
        Access::ReadWrite,
        |v| vec![ms(v.config.rto.initial)],
        |d, v| set_rto(d, |rto| set_time(&mut rto.initial, v, TIME_MS_MAX)),
    ),
    word(
        T_SCTP_RTO_MIN,
        Access::ReadWrite,
        |v| vec![ms(v.config.rto.min)],
        |d, v| set_rto(d, |rto| set_time(&mut rto.min, v, TIME_MS_MAX)),
    ),
    word(
        T_SCTP_RTO_MAX,
        Access::ReadWrite,
        |v| vec![ms(v.config.rto.max)],
        |d, v| set_rto(d, |rto| set_time(&mut rto.max, v, TIME_MS_MAX)),
    ),
    word(
        T_SCTP_OSTREAMS,
        Access::Handshake,
        |v| vec![v.statistics.map_or(v.config.streams_out, |known| known.streams_out).into()],
        |d, v| set_count(&mut d.config.streams_out, v),
    ),
    word(
        T_SCTP_ISTREAMS,
        Access::Handshake,
        |v| vec![v.statistics.map_or(v.config.streams_in_max, |known| known.streams_in).into()],
        |d, v| set_count(&mut d.config.streams_in_max, v),
    ),
    unsupported(T_SCTP_COOKIE_INC),
    unsupported(T_SCTP_THROTTLE_ITVL),
    unsupported(T_SCTP_MAC_TYPE),
    read_only(T_SCTP_CKSUM_TYPE, |v| {
        vec![if v.checksum == Checksum::Crc32c { CSUM_CRC32C } else { T_UNSPEC }]
    }),
    word(
        T_SCTP_ECN,
        Access::Handshake,
        |v| vec![yes_no(v.config.ecn)],
        |d, v| set_flag(&mut d.config.ecn, v),
    ),
    word(
        T_SCTP_ALI,
        Access::Handshake,
        |v| vec![v.config.adaptation_indication],
        |d, v| {
            d.config.adaptation_indication = v[0];
            Outcome::Done
        },
    ),
    unsupported(T_SCTP_ADD),
    unsupported(T_SCTP_SET),
    unsupported(T_SCTP_ADD_IP),
    unsupported(T_SCTP_DEL_IP),
    unsupported(T_SCTP_SET_IP),
    unsupported(T_SCTP_PR),
    word(
        T_SCTP_LIFETIME,
        Access::ReadWrite,
        |v| vec![if v.send.lifetime_ms == 0 { T_UNSPEC } else { v.send.lifetime_ms }],
        |d, v| {
            d.send.lifetime_ms = if v[0] == T_UNSPEC { 0 } else { v[0] };
            Outcome::Done
        },
    ),
    unsupported(T_SCTP_DISPOSITION),
    word(
        T_SCTP_MAX_BURST,
        Access::ReadWrite,
        |v| vec![v.config.burst_packets_max.unwrap_or(T_UNSPEC)],
        |d, v| {
            d.config.burst_packets_max = Some(v[0]).filter(|packets| *packets != T_UNSPEC);
            if v[0] == 0 { Outcome::Illegal } else { Outcome::Done }
        },
    ),
    Known {
        name: T_SCTP_HB,
        access: Access::ReadWrite,
        value_bytes: 12,
        get: |v| {
            let interval = v.config.heartbeat_interval;
            vec![0, yes_no(interval.is_some()), interval.map_or(0, ms)]
        },
        set: set_heartbeats_of,
    },
    Known {
        name: T_SCTP_RTO,
        access: Access::ReadWrite,
        value_bytes: 20,
        get: |v| {
            let RtoConfig { initial, min, max } = &v.config.rto;
            vec![0, ms(*initial), ms(*min), ms(*max), v.config.path_retries_max]
        },
        set: set_rto_of,
    },
    read_only(T_SCTP_MAXSEG, |v| {
        vec![match (v.statistics, v.config.fragment_bytes_max) {
            (Some(known), _) => bytes(known.fragmentation_point_bytes as usize),
            (None, Some(limit)) => bytes(limit),
            (None, None) => T_UNSPEC,
        }]
    }),
    read_only(T_SCTP_STATUS, status),
    unsupported(T_SCTP_DEBUG),
    word(
        T_SCTP_SACK_FREQUENCY,
        Access::ReadWrite,
        |v| vec![v.config.sack_frequency],
        |d, v| set_number(&mut d.config.sack_frequency, v, 1, RETRIES_MAX),
    ),
];

fn yes_no(is: bool) -> u32 {
    if is { T_YES } else { T_NO }
}

fn ms(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

fn bytes(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn set_flag(field: &mut bool, value: &[u32]) -> Outcome {
    match value[0] {
        T_NO => *field = false,
        T_YES => *field = true,
        _ => return Outcome::Illegal,
    }
    Outcome::Done
}

/// Sets a number, lowered to at most `max`; a number below `min` is illegal.
fn set_number(field: &mut u32, value: &[u32], min: u32, max: u32) -> Outcome {
    if value[0] < min {
        return Outcome::Illegal;
    }
    *field = value[0].min(max);
    if *field == value[0] { Outcome::Done } else { Outcome::Lessened }
}

fn set_count(field: &mut u16, value: &[u32]) -> Outcome {
    let mut count = u32::from(*field);
    let outcome = set_number(&mut count, value, 1, u16::MAX.into());
    *field = count as u16;
    outcome
}

/// Sets a time that is not zero, lowered to at most `max_ms`.
fn set_time(field: &mut Duration, value: &[u32], max_ms: u32) -> Outcome {
    let mut time_ms = 0;
    let outcome = set_number(&mut time_ms, value, 1, max_ms);
    if !matches!(outcome, Outcome::Illegal) {
        *field = Duration::from_millis(time_ms.into());
    }
    outcome
}

/// Sets the size of a buffer, raised to at least `min` and lowered to at most [`BUFFER_BYTES_MAX`].
fn set_bytes(field: &mut usize, value: &[u32], min: usize) -> Outcome {
    let wanted = value[0] as usize;
    *field = wanted.clamp(min, BUFFER_BYTES_MAX);
    if *field == wanted { Outcome::Done } else { Outcome::Lessened }
}

fn set_stream(draft: &mut Draft, value: &[u32]) -> Outcome {
    let Ok(stream) = u16::try_from(value[0]) else { return Outcome::Illegal };
    if draft.streams_out.is_some_and(|streams| stream >= streams) {
        return Outcome::Failed;
    }
    draft.send.stream = stream;
    Outcome::Done
}

/// Sets HB.interval of all paths; 0 disables heartbeats.
fn set_heartbeats(draft: &mut Draft, interval_ms: u32) -> Outcome {
    let ms = interval_ms.min(TIME_MS_MAX);
    draft.config.heartbeat_interval = Some(Duration::from_millis(ms.into())).filter(|time| !time.is_zero());
    if ms == interval_ms { Outcome::Done } else { Outcome::Lessened }
}

/// Changes the limits of the retransmission timeout, provided that RTO.Min ≤ RTO.Initial ≤ RTO.Max.
fn set_rto(draft: &mut Draft, change: impl FnOnce(&mut RtoConfig) -> Outcome) -> Outcome {
    let before = draft.config.rto.clone();
    let outcome = change(&mut draft.config.rto);
    let RtoConfig { initial, min, max } = &draft.config.rto;
    if min <= initial && initial <= max {
        return outcome;
    }
    draft.config.rto = before;
    Outcome::Failed
}

/// Returns the address in a `dest` field; `None` for all addresses.
fn destination(word: u32) -> Option<IpAddr> {
    (word != 0).then(|| IpAddr::V4(Ipv4Addr::from(word.to_ne_bytes())))
}

/// Sets `T_SCTP_HB`: destination, whether heartbeats are enabled, interval.
fn set_heartbeats_of(draft: &mut Draft, value: &[u32]) -> Outcome {
    let is_on = match value[1] {
        T_NO => false,
        T_YES => true,
        _ => return Outcome::Illegal,
    };
    let interval_ms = value[2].min(TIME_MS_MAX);
    if is_on && interval_ms == 0 {
        return Outcome::Illegal;
    }
    let Some(address) = destination(value[0]) else {
        return set_heartbeats(draft, if is_on { value[2] } else { 0 });
    };
    if !draft.peer.contains(&address) {
        return Outcome::Failed;
    }
    let heartbeat_interval = is_on.then(|| Duration::from_millis(interval_ms.into()));
    let options = PathOptions { heartbeats: Some(is_on), heartbeat_interval, ..PathOptions::default() };
    draft.paths.push((Some(address), options));
    Outcome::Done
}

/// Sets `T_SCTP_RTO`: destination, RTO.Initial, RTO.Min, RTO.Max, Path.Max.Retrans. The core has timeouts for all paths
/// together only.
fn set_rto_of(draft: &mut Draft, value: &[u32]) -> Outcome {
    if destination(value[0]).is_some() {
        return Outcome::Failed;
    }
    if value[1..4].contains(&0) {
        return Outcome::Illegal;
    }
    let [initial, min, max] = [1, 2, 3].map(|at| Duration::from_millis(value[at].min(TIME_MS_MAX).into()));
    let retries_max = value[4].min(RETRIES_MAX);
    let outcome = set_rto(draft, |rto| {
        *rto = RtoConfig { initial, min, max };
        let is_less = value[1..4].iter().any(|ms| *ms > TIME_MS_MAX) || retries_max < value[4];
        if is_less { Outcome::Lessened } else { Outcome::Done }
    });
    if !matches!(outcome, Outcome::Failed) {
        draft.config.path_retries_max = retries_max;
    }
    outcome
}

/// Returns the value of `T_SCTP_STATUS`: our receive window, the unread bytes, the number of destinations, and for each
/// destination its address (0 for IPv6), congestion window, chunks in flight (`T_UNSPEC`: the core does not count them
/// for each path), SRTT, RTTVAR, RTO and slow start threshold. Times are in milliseconds.
fn status(values: &Values<'_>) -> Vec<u32> {
    let AssociationConfig { receive_buffer_bytes, .. } = *values.config;
    let Some(known) = values.statistics else { return vec![bytes(receive_buffer_bytes), 0, 0] };
    let buffered_bytes = known.receive_buffered_bytes as usize;
    let window_bytes = receive_buffer_bytes.saturating_sub(buffered_bytes);
    let mut words = vec![bytes(window_bytes), bytes(buffered_bytes), bytes(known.paths.len())];
    for path in &known.paths {
        let address = match path.remote.ip().to_canonical() {
            IpAddr::V4(address) => u32::from_ne_bytes(address.octets()),
            IpAddr::V6(_) => 0,
        };
        let destination: [u32; STATUS_DESTINATION_WORDS] = [
            address,
            bytes(path.cwnd_bytes),
            T_UNSPEC,
            path.srtt.map_or(T_UNSPEC, ms),
            path.rttvar.map_or(T_UNSPEC, ms),
            ms(path.rto),
            path.ssthresh_bytes.map_or(T_UNSPEC, bytes),
        ];
        words.extend(destination);
    }
    words
}
