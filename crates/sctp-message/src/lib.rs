//! The description of one message of user data: [`SendInfo`] on its way out, [`RecvInfo`] on its way in.
//!
//! The API, the transport interface, the provider and the protocol core share these two types, so that no layer translates a
//! message for the next. They lie in a crate of their own because the core knows nothing of STREAMS, and STREAMS nothing of the
//! core. Neither names the association: an association identifier has a meaning of its own in each layer, and travels beside.
//!
//! Two boundaries keep formats of their own, because their bytes are shared with programs that were built separately: the
//! ancillary data of the sockets API (`struct sctp_sndinfo` and its relatives, which the C library of the program defines), and
//! the record header between a program and the daemon, which is the program's word, and which the daemon checks before it
//! becomes a [`SendInfo`].

#![forbid(unsafe_code)]

use std::num::NonZeroU32;
use std::time::Duration;

/// Identifies a path of one association: its index in the statistics of the association.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PathId(pub u8);

/// The time within which the first transmission of a message must begin (`sinfo_timetolive`), in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lifetime(NonZeroU32);

impl Lifetime {
    /// Returns a lifetime of `ms` milliseconds; `None` for 0, which stands for no limit.
    #[inline]
    pub const fn from_ms(ms: u32) -> Option<Self> {
        match NonZeroU32::new(ms) {
            Some(ms) => Some(Lifetime(ms)),
            None => None,
        }
    }

    /// Returns the lifetime in milliseconds.
    #[inline]
    pub const fn ms(self) -> u32 {
        self.0.get()
    }
}

impl From<Duration> for Lifetime {
    /// Rounds up to milliseconds.
    fn from(duration: Duration) -> Self {
        let ms = u32::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX);
        Lifetime(NonZeroU32::new(ms).unwrap_or(NonZeroU32::MIN))
    }
}

impl From<Lifetime> for Duration {
    fn from(lifetime: Lifetime) -> Self {
        Duration::from_millis(lifetime.ms().into())
    }
}

/// Describes how a message is sent (`struct sctp_sndinfo`, RFC 6458 §5.3.4).
///
/// ```
/// use sctp_message::SendInfo;
///
/// let urgent = SendInfo { unordered: true, ..SendInfo::stream(3) };
/// assert_eq!((urgent.stream, urgent.more), (3, false));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SendInfo {
    /// The stream (`snd_sid`), less than the number of outbound streams. Messages of one stream arrive in order; streams do not
    /// wait for each other. Default: 0.
    pub stream: u16,
    /// Payload protocol identifier (`snd_ppid`, RFC 9260 §3.3.1), which SCTP passes through. Default: 0.
    pub ppid: u32,
    /// Deliver the message as soon as it arrives, whatever is missing before it (`SCTP_UNORDERED`).
    pub unordered: bool,
    /// The record goes on with the next send: sends are put together as in a byte stream (`T_MORE`).
    pub more: bool,
    /// Ask the peer to acknowledge at once (I bit, RFC 7053; `SCTP_SACK_IMMEDIATELY`).
    pub immediate: bool,
    /// A number that comes back with the message if it cannot be delivered (`snd_context`).
    pub context: u32,
    /// Discard the message if none of it was sent within this time (`sinfo_timetolive`). A message that waits behind others is
    /// discarded when its turn comes. Parts of a record are never discarded. Default (`None`): no limit.
    pub lifetime: Option<Lifetime>,
    /// The path of the first transmission, in place of the primary path (`SCTP_ADDR_OVER`): while that path does not answer or
    /// does not exist, and for retransmissions, the message goes where other data goes. Messages that are sent after it wait for
    /// it. Default: none.
    pub path: Option<PathId>,
}

impl SendInfo {
    /// Returns the defaults on this stream.
    pub fn stream(stream: u16) -> Self {
        SendInfo { stream, ..SendInfo::default() }
    }
}

/// Describes a message that was received (`struct sctp_rcvinfo`, RFC 6458 §5.3.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RecvInfo {
    /// The stream that it came on (`rcv_sid`).
    pub stream: u16,
    /// Its stream sequence number (`rcv_ssn`).
    pub ssn: u16,
    /// Payload protocol identifier (`rcv_ppid`).
    pub ppid: u32,
    /// TSN of its first DATA chunk (`rcv_tsn`).
    pub tsn: u32,
    /// The cumulative TSN when the message was delivered (`rcv_cumtsn`).
    pub cumulative_tsn: u32,
    /// Whether it was sent unordered (`SCTP_UNORDERED`).
    pub unordered: bool,
    /// Whether the message goes on with the next read (no `MSG_EOR`): the buffer was too small, or the message is delivered in
    /// parts.
    pub more: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The description travels with each message through each queue: its size is part of the speed.
    #[test]
    fn a_description_stays_small() {
        assert_eq!((size_of::<SendInfo>(), size_of::<RecvInfo>()), (20, 20));
    }

    #[test]
    fn a_lifetime_rounds_up_to_milliseconds() {
        let ms = |duration: Duration| Lifetime::from(duration).ms();
        assert_eq!(ms(Duration::ZERO), 1, "a lifetime of nothing is not a lifetime without limit");
        assert_eq!(ms(Duration::from_micros(1001)), 2);
        assert_eq!(ms(Duration::from_millis(1000)), 1000);
        assert_eq!(ms(Duration::MAX), u32::MAX);
        assert_eq!(Lifetime::from_ms(0), None);
    }
}
