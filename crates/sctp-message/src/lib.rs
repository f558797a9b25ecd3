//! The description of one message of user data: [`SendInfo`] for outbound, [`RecvInfo`] for inbound messages;
//! [`SendError`], the reason why one is refused; and the identifiers of associations and their paths.
//!
//! The API, the transport interface, the provider and the protocol core share these types, so that no layer
//! translates a message or a refusal for the next. The types have a crate of their own because the core knows nothing of
//! STREAMS, and STREAMS nothing of the core. No type of a message contains the association: an [`AssociationId`]
//! accompanies them.
//!
//! Two boundaries have their own formats, because separately built programs share their bytes. The first is the
//! ancillary data of the sockets API (`struct sctp_sndinfo` and its relatives), which the program's C library defines.
//! The second is the record header between a program and the daemon; the program writes it, and the daemon checks it
//! before it becomes a [`SendInfo`].

#![forbid(unsafe_code)]

mod refusal;

pub use refusal::SendError;

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

/// Identifies an association of one stack, also after its end: the identifier of an association that has ended names no other.
/// (A stack counts its associations with 32 bits; identifiers recur after 2³² associations at the earliest.) Another stack has
/// equal identifiers for its own: a map of the associations of several stacks needs the stack in its key.
///
/// Its text is the number of associations that the stack had before this one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AssociationId {
    /// One more than the index, so that the word 0 names no association.
    place: NonZeroU32,
    serial: u32,
}

impl AssociationId {
    /// The first association of a stack. Its identifier precedes all others.
    #[doc(hidden)]
    pub const FIRST: AssociationId = AssociationId { place: NonZeroU32::MIN, serial: 0 };

    /// Returns the identifier of the association at this index of the endpoint's tables that has this serial number.
    ///
    /// # Panics
    ///
    /// Panics if `index` is [`u32::MAX`].
    #[doc(hidden)]
    #[inline]
    pub const fn new(index: u32, serial: u32) -> Self {
        AssociationId {
            place: NonZeroU32::MIN.checked_add(index).expect("a table has a place for it"),
            serial,
        }
    }

    /// Returns a small number that no other association of the endpoint has at the same time, for tables.
    #[doc(hidden)]
    #[inline]
    pub const fn index(self) -> usize {
        self.place.get() as usize - 1
    }

    /// Returns the number of associations that the endpoint had before this one, modulo 2³².
    #[doc(hidden)]
    #[inline]
    pub const fn serial(self) -> u32 {
        self.serial
    }

    /// Returns the identifier as two words. The first is never 0.
    #[doc(hidden)]
    #[inline]
    pub const fn to_words(self) -> [u32; 2] {
        [self.place.get(), self.serial]
    }

    /// Returns the identifier of these two words; `None` if the first is 0.
    #[doc(hidden)]
    #[inline]
    pub const fn from_words([place, serial]: [u32; 2]) -> Option<Self> {
        match NonZeroU32::new(place) {
            Some(place) => Some(AssociationId { place, serial }),
            None => None,
        }
    }
}

impl fmt::Debug for AssociationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AssociationId").field(&self.serial).finish()
    }
}

impl fmt::Display for AssociationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serial.fmt(f)
    }
}

/// Identifies a path of one association: its index in the statistics of the association.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PathId(pub u8);

/// Writes the number.
impl std::fmt::Display for PathId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl PathId {
    /// Returns the index of the path in the statistics of its association.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

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
/// # use sctp_message::SendInfo;
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
    /// Deliver the message as soon as it arrives, even if earlier messages are missing (`SCTP_UNORDERED`).
    pub unordered: bool,
    /// The record continues with the next send: sends are joined as in a byte stream (`T_MORE`).
    pub more: bool,
    /// Ask the peer to acknowledge at once (I bit, RFC 7053; `SCTP_SACK_IMMEDIATELY`).
    pub immediate: bool,
    /// A number that the sender gets back with the message if it cannot be delivered (`snd_context`).
    pub context: u32,
    /// Discard the message if its transmission has not begun within this time (`sinfo_timetolive`). A message that
    /// waits behind others is discarded when its turn comes. Parts of a record are never discarded. Default (`None`):
    /// no limit.
    pub lifetime: Option<Lifetime>,
    /// The path of the first transmission, instead of the primary path (`SCTP_ADDR_OVER`). Retransmissions use the path
    /// that other data uses, as does the first transmission while the named path does not answer or does not exist.
    /// Later messages wait for this one. Default: none.
    pub path: Option<PathId>,
}

impl SendInfo {
    /// Returns the defaults with this stream.
    pub fn stream(stream: u16) -> Self {
        SendInfo { stream, ..SendInfo::default() }
    }
}

/// Describes a message that was received (`struct sctp_rcvinfo`, RFC 6458 §5.3.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RecvInfo {
    /// The stream of the message (`rcv_sid`).
    pub stream: u16,
    /// The stream sequence number of the message (`rcv_ssn`).
    pub ssn: u16,
    /// Payload protocol identifier (`rcv_ppid`).
    pub ppid: u32,
    /// TSN of the first DATA chunk (`rcv_tsn`).
    pub tsn: u32,
    /// The cumulative TSN when the message was delivered (`rcv_cumtsn`).
    pub cumulative_tsn: u32,
    /// Whether the message was sent unordered (`SCTP_UNORDERED`).
    pub unordered: bool,
    /// Whether the message continues with the next read (no `MSG_EOR`): the buffer was too small, or the message is
    /// delivered in parts.
    pub more: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_association_is_shown_by_the_number_of_those_before_it() {
        assert_eq!(AssociationId::FIRST.to_string(), "0");
        assert_eq!(AssociationId::new(0, 17).to_string(), "17");
    }

    #[test]
    fn a_path_is_shown_by_its_number() {
        assert_eq!(PathId(7).to_string(), "7");
    }

    /// The description accompanies each message through each queue, so its size affects speed.
    #[test]
    fn a_description_stays_small() {
        assert_eq!((size_of::<SendInfo>(), size_of::<RecvInfo>()), (20, 20));
    }

    #[test]
    fn a_lifetime_rounds_up_to_milliseconds() {
        let ms = |duration: Duration| Lifetime::from(duration).ms();
        assert_eq!(ms(Duration::ZERO), 1, "a zero lifetime is not an unlimited one");
        assert_eq!(ms(Duration::from_micros(1001)), 2);
        assert_eq!(ms(Duration::from_millis(1000)), 1000);
        assert_eq!(ms(Duration::MAX), u32::MAX);
        assert_eq!(Lifetime::from_ms(0), None);
    }
}
