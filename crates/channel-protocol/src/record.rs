//! Records on a pair: a header and the bytes of one message.
//!
//! A message of more than [`PAYLOAD_BYTES_MAX`] lies in a ring, if that has memory for it and the message has at most
//! [`LONG_BYTES_MAX`]. Otherwise it is one record, too, so that it stays whole among all sharers of the descriptor: its bytes are
//! in a sealed memfd that comes with the record.
//!
//! Messages to the program that are there at the same time may share a record, a *bundle*: they lie in the receive ring of the
//! socket, each with its header, one after the other, and the record says where (see
//! [`StatusPage::bundles`](crate::status_page::StatusPage::bundles)).

use std::net::SocketAddr;
use std::ops::Range;

use crate::address;
use crate::assoc_id::AssocId;
use crate::bytes::{Reader, Writer};
use crate::status_page::{RING_BYTES, RING_SHARED_BYTES};

/// Beginning of every record: "swrd". Data that a program writes past the shim does not begin so by accident.
const MAGIC: u32 = u32::from_le_bytes(*b"swrd");

/// Length of a [`Header`].
pub const HEADER_BYTES: usize = 64;
/// Largest number of bytes of a message that travel in the record itself.
pub const PAYLOAD_BYTES_MAX: usize = 64 * 1024;
/// The longest packet that the daemon puts into a pair in plain form. A read that is shorter than a packet loses the rest, so
/// this is no more than the standard I/O of musl reads at once; other C libraries and Go's `bufio` read more.
pub const PLAIN_BYTES_MAX: usize = 1024;
/// The longest record.
pub const RECORD_BYTES_MAX: usize = HEADER_BYTES + PAYLOAD_BYTES_MAX;
/// The longest message that lies in a ring.
pub const LONG_BYTES_MAX: usize = 1 << 20;
/// The longest bundle that several messages share.
pub const SHARED_BYTES_MAX: usize = 2 * RECORD_BYTES_MAX;
/// The longest bundle: one long message.
pub const BUNDLE_BYTES_MAX: usize = HEADER_BYTES + LONG_BYTES_MAX;
const _: () = assert!(RING_SHARED_BYTES + BUNDLE_BYTES_MAX <= RING_BYTES);
const _: () = assert!(BUNDLE_BYTES_MAX <= ring::LONG_RECORD_BYTES_MAX);
/// The longest message that the daemon takes from a program, or passes to it in one piece.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// The part of the length of a message in a memfd that its record to the daemon is padded by. The kernel counts the padding in
/// the send buffer, and not the memfd: without padding a pair would hold hundreds of such messages.
const PADDING_PART: usize = 8;
/// Padding comes in blocks of this length.
pub const PADDING_BLOCK_BYTES: usize = 4096;
/// The longest padding. A send buffer of the usual 208 KB holds five records with it, and a writer that waits for room continues
/// when one is left.
pub const PADDING_BYTES_MAX: usize = 10 * PADDING_BLOCK_BYTES;
/// Number of bytes after the header of a [`Kind::Accepted`]: one such record fills the smallest pair, which polls writable
/// again when the program has taken the record.
pub const ACCEPTED_BYTES: usize = 1024;

/// Types of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// User data, in either direction.
    Data,
    /// To the program: a `union sctp_notification` (RFC 6458 §6.1).
    Notification,
    /// To a listener: an association, with the descriptors of its pair and its two pages, and the peer's address.
    Accepted,
    /// To the program: the messages that follow are longer than before (see
    /// [`StatusPage::longest`](crate::status_page::StatusPage::longest)), or are bundles. The record is empty; a reader that
    /// finds it removes it and waits for the next record, which follows at once.
    SizeHint,
    /// To the program: messages in the receive ring. [`Header::bytes`] is their length with their headers, and
    /// [`Header::bundle`] says where they lie.
    Bundle,
    /// From the program's end: keeps that end from polling writable while it connects, or while the ring is full. Discarded.
    Filler,
    /// From the program's end: the ring of a daemon that slept holds messages.
    Wake,
    /// From the program's end: the memory of a ring, in a memfd, for the messages behind this record; [`Header::ring_number`]
    /// is its number.
    Ring,
}

/// Flags of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u16);

impl Flags {
    /// The message ends here (`MSG_EOR`).
    pub const END: Flags = Flags(1);
    /// `SCTP_UNORDERED`.
    pub const UNORDERED: Flags = Flags(1 << 1);
    /// The bytes are in the memfd that comes with the record.
    pub const IN_MEMFD: Flags = Flags(1 << 2);
    /// `SCTP_EOF`: shut the association down after this message, which may be empty.
    pub const SHUTDOWN: Flags = Flags(1 << 3);
    /// `SCTP_ABORT`: abort the association; the bytes are the reason.
    pub const ABORT: Flags = Flags(1 << 4);
    /// `SCTP_SACK_IMMEDIATELY` (RFC 7053).
    pub const IMMEDIATE: Flags = Flags(1 << 5);
    /// The program gave no attributes: its defaults apply (`SCTP_DEFAULT_SNDINFO`).
    pub const BY_DEFAULT: Flags = Flags(1 << 6);

    /// `SCTP_ADDR_OVER`: the message goes to [`Header::address`] instead of the primary path.
    pub const TO_ADDRESS: Flags = Flags(1 << 7);

    /// The ring has a record with the same header and no content: it says when it is the turn of this message. The
    /// [`Turn`] makes the header unique.
    pub const IN_TURN: Flags = Flags(1 << 8);

    const ALL: u16 = (1 << 9) - 1;

    /// Returns whether all of `other` are in this set.
    pub fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the union.
    #[must_use]
    pub fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Returns this set without the flags of `other`.
    #[must_use]
    pub fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }

    /// Returns the flags as a number, for [`Flags::from_number`].
    pub fn number(self) -> u32 {
        self.0.into()
    }

    /// Returns the known flags of a number.
    #[must_use]
    pub fn from_number(number: u32) -> Flags {
        Flags(number as u16 & Flags::ALL)
    }
}

/// Identifies a long message among those that wait for their turn ([`Flags::IN_TURN`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Number of long messages that the process had sent before.
    pub counter: u32,
    /// Identifier of the thread that sends the message.
    pub thread: u32,
}

/// Where a bundle lies in the receive ring, as a record or the sharers' page says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Offset of the first message in the ring.
    pub offset: u32,
    /// Length of all messages with their headers.
    pub bytes: u32,
}

impl Extent {
    /// Returns the range in the receive ring; `None` if no bundle can lie there.
    pub fn range(self) -> Option<Range<usize>> {
        let (offset, bytes) = (self.offset as usize, self.bytes as usize);
        let end = offset.checked_add(bytes).filter(|end| *end <= RING_BYTES)?;
        (bytes <= BUNDLE_BYTES_MAX).then_some(offset..end)
    }
}

/// Where a record stands among others: two numbers whose meaning follows from the record's kind, flags and direction. The
/// constructors name what they write, and methods of [`Header`] read it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sequence([u32; 2]);

impl Sequence {
    /// Returns the numbers of a received message: the TSN of its first chunk, and the cumulative TSN when it was passed up.
    pub fn received(tsn: u32, cumulative_tsn: u32) -> Sequence {
        Sequence([tsn, cumulative_tsn])
    }

    /// Returns the numbers of a message or a filler to the daemon that begins after this many records
    /// ([`SharersPage::records_sent`](crate::sharers_page::SharersPage::records_sent)).
    pub fn sent_after(records_before: u32) -> Sequence {
        Sequence([records_before, 0])
    }

    /// Returns the numbers of a long message to the daemon that waits for its turn.
    pub fn in_turn(turn: Turn) -> Sequence {
        Sequence([turn.counter, turn.thread])
    }

    /// Returns the numbers of a [`Kind::Ring`].
    pub fn ring(number: u32) -> Sequence {
        Sequence([number, 0])
    }

    /// Returns the numbers of a [`Kind::Bundle`] whose first message lies at this offset in the receive ring.
    pub fn bundle_at(offset: u32) -> Sequence {
        Sequence([offset, 0])
    }
}

/// Header of a record: the description of a message in the bytes that a program and the daemon share (`sctp-message` says
/// why they have a format of their own).
///
/// ```
/// use swiftwater_channel_protocol::record::{Flags, Header, HEADER_BYTES, Kind};
///
/// let header = Header { stream: 3, bytes: 5, flags: Flags::END, ..Header::new(Kind::Data) };
/// let record = [&header.encode()[..], b"hello"].concat();
/// assert_eq!(Header::parse(&record), Some(header));
/// assert_eq!(&record[HEADER_BYTES..], b"hello");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The kind.
    pub kind: Kind,
    /// The flags.
    pub flags: Flags,
    /// The stream.
    pub stream: u16,
    /// Sequence number within the stream, of a received message.
    pub ssn: u16,
    /// Payload protocol identifier: the number whose bytes, most significant first, travel in the packet.
    pub ppid: u32,
    /// The TSNs of a received message; the place of a message to the daemon among the others; the number of a ring; the offset
    /// of a bundle.
    pub sequence: Sequence,
    /// A number of the program, which returns if sending fails; of a received message the value of `SCTP_CONTEXT`.
    pub context: u32,
    /// Lifetime in milliseconds, after which a message that was not sent is discarded; 0 for no limit.
    pub lifetime_ms: u32,
    /// The association. Always set in records to the program; in records from it, set if the socket has many.
    pub assoc_id: AssocId,
    /// Length of the message, wherever its bytes are.
    pub bytes: u32,
    /// The source of a received message, or the destination of one to send ([`Flags::TO_ADDRESS`]).
    pub address: Option<SocketAddr>,
}

impl Header {
    /// Returns a header of this type with all other fields zero.
    pub fn new(kind: Kind) -> Header {
        Header {
            kind,
            flags: Flags::default(),
            stream: 0,
            ssn: 0,
            ppid: 0,
            sequence: Sequence::default(),
            context: 0,
            lifetime_ms: 0,
            assoc_id: AssocId::NONE,
            bytes: 0,
            address: None,
        }
    }

    /// Encodes the header.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        let kind = match self.kind {
            Kind::Data => 1,
            Kind::Accepted => 2,
            Kind::Filler => 3,
            Kind::Notification => 4,
            Kind::SizeHint => 5,
            Kind::Wake => 6,
            Kind::Ring => 7,
            Kind::Bundle => 8,
        };
        let mut w = Writer::new(&mut out);
        w.u32(MAGIC).u16(kind).u16(self.flags.0).u16(self.stream).u16(self.ssn);
        let Sequence([first, second]) = self.sequence;
        w.u32(self.ppid).u32(first).u32(second).u32(self.context);
        w.u32(self.lifetime_ms).assoc_id(self.assoc_id).u32(self.bytes);
        if let Some(address) = &self.address {
            address::write(&mut w, address);
        }
        out
    }

    /// Parses the header at the beginning of `record`; returns `None` if the record is not of this protocol.
    pub fn parse(record: &[u8]) -> Option<Header> {
        let mut r = Reader(record.get(..HEADER_BYTES)?);
        (r.u32()? == MAGIC).then_some(())?;
        let kind = match r.u16()? {
            1 => Kind::Data,
            2 => Kind::Accepted,
            3 => Kind::Filler,
            4 => Kind::Notification,
            5 => Kind::SizeHint,
            6 => Kind::Wake,
            7 => Kind::Ring,
            8 => Kind::Bundle,
            _ => return None,
        };
        let flags = Some(r.u16()?).filter(|flags| flags & !Flags::ALL == 0).map(Flags)?;
        let header = Header {
            kind,
            flags,
            stream: r.u16()?,
            ssn: r.u16()?,
            ppid: r.u32()?,
            sequence: Sequence([r.u32()?, r.u32()?]),
            context: r.u32()?,
            lifetime_ms: r.u32()?,
            assoc_id: r.assoc_id()?,
            bytes: r.u32()?,
            address: address::read(&mut r),
        };
        let limit = match kind {
            Kind::Bundle => BUNDLE_BYTES_MAX,
            _ if flags.contains(Flags::IN_MEMFD) => MESSAGE_BYTES_MAX,
            Kind::Data => LONG_BYTES_MAX,
            _ => PAYLOAD_BYTES_MAX,
        };
        (header.bytes as usize <= limit).then_some(header)
    }

    /// Returns the TSN of the first chunk of a received message.
    pub fn tsn(&self) -> u32 {
        self.sequence.0[0]
    }

    /// Returns the cumulative TSN when a received message was passed up.
    pub fn cumulative_tsn(&self) -> u32 {
        self.sequence.0[1]
    }

    /// Returns the number of records that sharers had sent when they began a message or a filler to the daemon; `None` if
    /// its [`Turn`] decides its place.
    #[inline]
    pub fn records_before(&self) -> Option<u32> {
        (!self.flags.contains(Flags::IN_TURN)).then_some(self.sequence.0[0])
    }

    /// Returns the number of the ring that this record announces; `None` if it announces none.
    pub fn ring_number(&self) -> Option<u32> {
        (self.kind == Kind::Ring).then_some(self.sequence.0[0])
    }

    /// Returns where the bundle lies that this record announces; `None` if it announces none.
    pub fn bundle(&self) -> Option<Extent> {
        (self.kind == Kind::Bundle).then_some(Extent { offset: self.sequence.0[0], bytes: self.bytes })
    }

    /// Returns whether bytes begin like a record, even if they are malformed.
    pub fn is_meant(record: &[u8]) -> bool {
        Reader(record).u32() == Some(MAGIC)
    }

    /// Returns the length of the message in a record, with this header: its content follows, unless that is in a memfd or in
    /// the receive ring.
    #[inline]
    pub fn record_bytes(&self) -> usize {
        match self.kind == Kind::Bundle || self.flags.contains(Flags::IN_MEMFD) {
            true => HEADER_BYTES,
            false => HEADER_BYTES + self.bytes as usize,
        }
    }

    /// Returns the number of zeros that follow this header in a record to the daemon: 0 unless the message is in a memfd. A
    /// record without them is valid, too: a small send buffer has no room for them.
    pub fn padding_bytes(&self) -> usize {
        match self.kind == Kind::Data && self.flags.contains(Flags::IN_MEMFD) {
            true => {
                let blocks = self.bytes as usize / PADDING_PART / PADDING_BLOCK_BYTES;
                (blocks * PADDING_BLOCK_BYTES).min(PADDING_BYTES_MAX)
            }
            false => 0,
        }
    }

    /// Splits a whole record into header and bytes; returns `None` if it is not of this protocol, or not as long as it says.
    pub fn split(record: &[u8]) -> Option<(Header, &[u8])> {
        Header::parse(record)?.with_content(record)
    }

    /// Returns this header with the bytes behind it; `None` if the record is not as long as it says.
    fn with_content(self, record: &[u8]) -> Option<(Header, &[u8])> {
        (record.len() == self.record_bytes()).then_some((self, &record[HEADER_BYTES..]))
    }

    /// Splits a whole record of a program as [`Header::split`] does, and leaves the padding out.
    pub fn split_padded(record: &[u8]) -> Option<(Header, &[u8])> {
        let header = Header::parse(record)?;
        let is_padded = record.len() == HEADER_BYTES + header.padding_bytes();
        if is_padded && header.flags.contains(Flags::IN_MEMFD) {
            return Some((header, &[]));
        }
        header.with_content(record)
    }
}

/// Encodes a whole [`Kind::Accepted`] record.
pub fn encode_accepted(peer: &SocketAddr) -> [u8; HEADER_BYTES + ACCEPTED_BYTES] {
    let header = Header { bytes: ACCEPTED_BYTES as u32, address: Some(*peer), ..Header::new(Kind::Accepted) };
    let mut out = [0; HEADER_BYTES + ACCEPTED_BYTES];
    out[..HEADER_BYTES].copy_from_slice(&header.encode());
    out
}

/// Returns the peer's address in a [`Kind::Accepted`].
pub fn parse_accepted(record: &[u8]) -> Option<SocketAddr> {
    let (header, _) = Header::split(record)?;
    header.address.filter(|_| header.kind == Kind::Accepted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EACH: [Flags; 9] = [
        Flags::END,
        Flags::UNORDERED,
        Flags::IN_MEMFD,
        Flags::SHUTDOWN,
        Flags::ABORT,
        Flags::IMMEDIATE,
        Flags::BY_DEFAULT,
        Flags::TO_ADDRESS,
        Flags::IN_TURN,
    ];

    #[test]
    fn each_flag_stands_for_itself() {
        for (n, flag) in EACH.into_iter().enumerate() {
            let others = EACH.into_iter().filter(|other| *other != flag).fold(Flags::default(), Flags::with);
            assert!(!others.contains(flag) && others.with(flag).contains(flag), "{n}");
            assert_eq!(others.with(flag).with(flag).0, Flags::ALL);
            assert!(!flag.contains(flag.with(EACH[(n + 1) % EACH.len()])), "one of two is not both");
        }
    }

    #[test]
    fn flags_pass_through_a_number_and_those_that_nobody_knows_do_not() {
        for (n, flag) in EACH.into_iter().enumerate() {
            assert_eq!((flag.number(), Flags::from_number(1 << n)), (1 << n, flag));
            let all = Flags::from_number(u32::MAX);
            assert_eq!(all.without(flag).with(flag), all);
            assert!(!all.without(flag).contains(flag) && all.without(flag).number().count_ones() == 8, "{n}");
        }
    }

    #[test]
    fn the_numbers_of_a_record_have_the_meaning_of_its_kind() {
        let sequence = Sequence::ring(7);
        let (data, ring) = (Header::new(Kind::Data), Header::new(Kind::Ring));
        let in_turn = Sequence::in_turn(Turn { counter: 7, thread: 0 });
        let of = |header: Header| (header.records_before(), header.ring_number());
        assert_eq!(of(Header { sequence, ..data }), (Some(7), None));
        assert_eq!(of(Header { sequence: in_turn, flags: Flags::IN_TURN, ..data }), (None, None));
        assert_eq!(Header { sequence, ..ring }.ring_number(), Some(7));
    }

    #[test]
    fn other_bytes_are_no_record() {
        let mut header =
            Header { address: Some(([192, 0, 2, 1], 7).into()), ..Header::new(Kind::Data) }.encode();
        assert!(Header::is_meant(&header) && Header::parse(&header).is_some());
        header[0] ^= 1;
        assert!(!Header::is_meant(&header) && Header::parse(&header).is_none());
        assert!(!Header::is_meant(b"swr"), "too short");
    }

    #[test]
    fn a_record_has_the_content_of_its_message_unless_that_is_in_a_memfd() {
        let split = |header: Header, content: &[u8]| {
            let record = [&header.encode()[..], content].concat();
            assert_eq!(record.len() == header.record_bytes(), Header::split(&record).is_some());
            Header::split(&record).map(|(_, content)| content.to_vec())
        };
        let header = Header { bytes: 3, ..Header::new(Kind::Data) };
        assert_eq!(split(header, b"one"), Some(b"one".to_vec()));
        assert_eq!((split(header, b"on"), split(header, b"ones")), (None, None));
        let in_memfd = Header { flags: Flags::IN_MEMFD, ..header };
        assert_eq!((split(in_memfd, b""), split(in_memfd, b"one")), (Some(Vec::new()), None));
    }

    #[test]
    fn the_record_of_a_long_message_is_padded_by_a_part_of_its_length() {
        let padding = |bytes: usize, flags| {
            Header { bytes: bytes as u32, flags, ..Header::new(Kind::Data) }.padding_bytes()
        };
        let in_memfd = |bytes| padding(bytes, Flags::IN_MEMFD.with(Flags::END));
        assert_eq!(padding(PAYLOAD_BYTES_MAX, Flags::END), 0, "the kernel counts its content");
        assert_eq!((in_memfd(32_767), in_memfd(32_768), in_memfd(65_537)), (0, 4096, 8192));
        assert_eq!(
            (in_memfd(327_679), in_memfd(327_680), in_memfd(MESSAGE_BYTES_MAX)),
            (36_864, 40_960, 40_960)
        );
    }

    #[test]
    fn the_record_of_a_long_message_has_all_of_its_padding_or_none() {
        let header = Header { bytes: 100_000, flags: Flags::IN_MEMFD, ..Header::new(Kind::Data) };
        let split = |header: Header, more: usize| {
            let record = [&header.encode()[..], &vec![0; more]].concat();
            let (found, content) = Header::split_padded(&record)?;
            assert_eq!(found, header);
            Some(content.len())
        };
        assert_eq!((split(header, 0), split(header, 12_288)), (Some(0), Some(0)));
        assert_eq!((split(header, 12_287), split(header, 12_289), split(header, 4096)), (None, None, None));
        let in_record = Header { bytes: 12_288, flags: Flags::END, ..header };
        assert_eq!((split(in_record, 12_288), split(in_record, 0)), (Some(12_288), None));
        let ring = Header { kind: Kind::Ring, ..header };
        assert_eq!((split(ring, 0), split(ring, 12_288)), (Some(0), None));
    }

    #[test]
    fn the_content_of_a_bundle_is_elsewhere() {
        let bundle = |bytes: usize| Header {
            bytes: bytes as u32,
            sequence: Sequence::bundle_at(7),
            ..Header::new(Kind::Bundle)
        };
        let longest = bundle(BUNDLE_BYTES_MAX);
        assert_eq!(Header::split(&longest.encode()), Some((longest, &[][..])));
        assert_eq!(Header::parse(&bundle(BUNDLE_BYTES_MAX + 1).encode()), None);
    }

    #[test]
    fn the_longest_header_has_room() {
        let address = SocketAddr::new("fe80::1".parse().expect("an address"), 7);
        let header = Header { address: Some(address), ..Header::new(Kind::Data) };
        assert_eq!(Header::parse(&header.encode()), Some(header));
    }

    #[test]
    fn a_flag_that_nobody_has_given_makes_no_record() {
        let mut header = Header { flags: Flags(Flags::ALL), ..Header::new(Kind::Data) }.encode();
        assert!(Header::parse(&header).is_some());
        header[7] = 2;
        assert_eq!(Header::parse(&header), None);
    }

    #[test]
    fn a_message_is_no_longer_than_what_carries_it() {
        let longest = |kind, flags, longest: usize| {
            let is_taken = |bytes: usize| {
                let header = Header { flags, bytes: bytes as u32, ..Header::new(kind) };
                Header::parse(&header.encode()).is_some()
            };
            assert!(is_taken(longest) && !is_taken(longest + 1), "{kind:?} {flags:?}");
        };
        longest(Kind::Data, Flags::END, LONG_BYTES_MAX);
        longest(Kind::Notification, Flags::END, PAYLOAD_BYTES_MAX);
        longest(Kind::Data, Flags::IN_MEMFD, MESSAGE_BYTES_MAX);
        longest(Kind::Notification, Flags::IN_MEMFD, MESSAGE_BYTES_MAX);
        assert_eq!((PAYLOAD_BYTES_MAX, RECORD_BYTES_MAX, MESSAGE_BYTES_MAX), (65_536, 65_600, 16_777_216));
    }
}
