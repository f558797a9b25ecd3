use std::fmt;

use crate::chunk::{ChunkError, RawChunk};
use crate::framing::{LENGTH_MAX, padded};
use crate::{Ppid, Ssn, StreamId, Tsn};

/// Size of a DATA chunk without its user data.
pub const DATA_HEADER_BYTES: usize = 16;
/// Maximum user data of one DATA chunk.
pub const DATA_PAYLOAD_BYTES_MAX: usize = LENGTH_MAX - DATA_HEADER_BYTES;
const FIXED_BYTES: usize = 12;

const IMMEDIATE: u8 = 0x08;
const UNORDERED: u8 = 0x04;
const BEGINNING: u8 = 0x02;
const ENDING: u8 = 0x01;

/// The flags of a DATA chunk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct DataFlags {
    /// I: acknowledge without delay (RFC 7053).
    pub immediate: bool,
    /// U: unordered; the stream sequence number has no meaning.
    pub unordered: bool,
    /// B: the first fragment of a message.
    pub beginning: bool,
    /// E: the last fragment of a message.
    pub ending: bool,
}

impl DataFlags {
    /// An ordered message in one chunk.
    pub const WHOLE: Self = Self { immediate: false, unordered: false, beginning: true, ending: true };

    /// Returns the flags in the flags field of a chunk; ignores reserved bits.
    #[inline]
    pub const fn from_bits(bits: u8) -> Self {
        Self {
            immediate: bits & IMMEDIATE != 0,
            unordered: bits & UNORDERED != 0,
            beginning: bits & BEGINNING != 0,
            ending: bits & ENDING != 0,
        }
    }

    /// Returns the value of the flags field.
    #[inline]
    pub const fn to_bits(self) -> u8 {
        (self.immediate as u8) << 3
            | (self.unordered as u8) << 2
            | (self.beginning as u8) << 1
            | self.ending as u8
    }
}

/// The letters of the flags that are set.
impl fmt::Display for DataFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (set, letter) in
            [(self.immediate, "I"), (self.unordered, "U"), (self.beginning, "B"), (self.ending, "E")]
        {
            f.write_str(if set { letter } else { "" })?;
        }
        Ok(())
    }
}

/// DATA: a user message or a fragment of one (RFC 9260 §3.3.1).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |   Type = 0    |  Res  |I|U|B|E|            Length             |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |                              TSN                              |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |      Stream Identifier S      |   Stream Sequence Number n    |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |                  Payload Protocol Identifier                  |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// \                                                               \
/// /                 User Data (seq n of Stream S)                 /
/// \                                                               \
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Data<'a> {
    /// The flags.
    pub flags: DataFlags,
    /// The TSN of this chunk.
    pub tsn: Tsn,
    /// The stream of the message.
    pub stream: StreamId,
    /// The stream sequence number of the message.
    pub ssn: Ssn,
    /// The payload protocol identifier.
    pub ppid: Ppid,
    /// The user data: at least one byte, at most [`DATA_PAYLOAD_BYTES_MAX`].
    pub payload: &'a [u8],
}

impl<'a> Data<'a> {
    /// The chunk type.
    pub const KIND: u8 = 0;

    /// Reads the chunk. The caller has checked the kind.
    #[inline]
    pub fn parse(raw: &RawChunk<'a>) -> Result<Self, ChunkError> {
        let Some((&[t0, t1, t2, t3, s0, s1, n0, n1, p0, p1, p2, p3], payload)) =
            raw.value.split_first_chunk::<FIXED_BYTES>()
        else {
            return Err(ChunkError::too_short(raw, FIXED_BYTES));
        };
        let tsn = Tsn(u32::from_be_bytes([t0, t1, t2, t3]));
        if payload.is_empty() {
            return Err(ChunkError::NoUserData { tsn });
        }
        Ok(Self {
            flags: DataFlags::from_bits(raw.flags),
            tsn,
            stream: StreamId(u16::from_be_bytes([s0, s1])),
            ssn: Ssn(u16::from_be_bytes([n0, n1])),
            ppid: Ppid(u32::from_be_bytes([p0, p1, p2, p3])),
            payload,
        })
    }

    /// Reads a header whose user data, without padding, lies elsewhere. `None` if it is not the header of a DATA chunk with that
    /// much user data.
    #[inline]
    pub fn of_header(header: &[u8; DATA_HEADER_BYTES], payload: &'a [u8]) -> Option<Self> {
        let DataHeader { flags, stream, ppid, payload_bytes } = DataHeader::read(header);
        if header[0] != Self::KIND || payload.is_empty() || payload.len() != payload_bytes {
            return None;
        }
        let (tsn, ssn) = DataHeader::numbers(header);
        Some(Self { flags, tsn, stream, ssn, ppid, payload })
    }

    /// Returns the sixteen bytes in front of `payload_bytes` bytes of user data, which are at most [`DATA_PAYLOAD_BYTES_MAX`].
    #[inline]
    pub const fn header_bytes(
        flags: DataFlags,
        tsn: Tsn,
        stream: StreamId,
        ssn: Ssn,
        ppid: Ppid,
        payload_bytes: usize,
    ) -> [u8; DATA_HEADER_BYTES] {
        debug_assert!(payload_bytes <= DATA_PAYLOAD_BYTES_MAX);
        let [l0, l1] = ((DATA_HEADER_BYTES + payload_bytes) as u16).to_be_bytes();
        let [t0, t1, t2, t3] = tsn.0.to_be_bytes();
        let [s0, s1] = stream.0.to_be_bytes();
        let [n0, n1] = ssn.0.to_be_bytes();
        let [p0, p1, p2, p3] = ppid.0.to_be_bytes();
        [Self::KIND, flags.to_bits(), l0, l1, t0, t1, t2, t3, s0, s1, n0, n1, p0, p1, p2, p3]
    }

    /// Appends what [`Data::header_bytes`] yields, for a sender that gathers the user data from elsewhere. The
    /// user data and its padding to four bytes must follow.
    #[inline]
    pub fn write_header(
        flags: DataFlags,
        tsn: Tsn,
        stream: StreamId,
        ssn: Ssn,
        ppid: Ppid,
        payload_bytes: usize,
        out: &mut Vec<u8>,
    ) {
        out.extend_from_slice(&Self::header_bytes(flags, tsn, stream, ssn, ppid, payload_bytes));
    }

    /// Appends header, user data and padding. User data over [`DATA_PAYLOAD_BYTES_MAX`] is cut off there.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        let payload = self.payload.get(..DATA_PAYLOAD_BYTES_MAX).unwrap_or(self.payload);
        let Self { flags, tsn, stream, ssn, ppid, .. } = *self;
        Self::write_header(flags, tsn, stream, ssn, ppid, payload.len(), out);
        out.extend_from_slice(payload);
        out.resize(out.len() + padded(payload.len()) - payload.len(), 0);
    }

    /// Returns the number of bytes that [`Data::write`] appends.
    #[inline]
    pub fn wire_bytes(&self) -> usize {
        DATA_HEADER_BYTES + padded(self.payload.len().min(DATA_PAYLOAD_BYTES_MAX))
    }
}

impl fmt::Display for Data<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { flags, tsn, stream, ssn, ppid, payload } = self;
        let bytes = payload.len();
        write!(f, "DATA tsn={tsn} stream={stream} ssn={ssn} ppid={ppid} flags={flags} bytes={bytes}")
    }
}

/// The sixteen bytes in front of the user data of a DATA chunk: for senders, which keep chunks in wire form.
///
/// Nothing is checked, so the bytes must be a sender's own, or must have been parsed before.
///
/// ```
/// use sctp_wire::chunk::{Data, DataFlags, DataHeader};
/// use sctp_wire::{Ppid, Ssn, StreamId, Tsn};
///
/// let mut bytes = Data::header_bytes(DataFlags::WHOLE, Tsn(0), StreamId(3), Ssn(0), Ppid(46), 5);
/// let header = DataHeader::read(&bytes);
/// assert_eq!((header.stream, header.ppid, header.payload_bytes), (StreamId(3), Ppid(46), 5));
/// assert_eq!(header.wire_bytes(), 24); // with three bytes of padding
/// // The packet leaves.
/// DataHeader::set_numbers(&mut bytes, Tsn(7), Ssn(1));
/// assert_eq!(bytes, Data::header_bytes(DataFlags::WHOLE, Tsn(7), StreamId(3), Ssn(1), Ppid(46), 5));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DataHeader {
    /// The flags.
    pub flags: DataFlags,
    /// The stream.
    pub stream: StreamId,
    /// The payload protocol identifier.
    pub ppid: Ppid,
    /// The length of the user data, without padding.
    pub payload_bytes: usize,
}

impl DataHeader {
    /// Reads a header.
    #[inline]
    pub const fn read(bytes: &[u8; DATA_HEADER_BYTES]) -> Self {
        let &[_, flags, l0, l1, _, _, _, _, s0, s1, _, _, p0, p1, p2, p3] = bytes;
        Self {
            flags: DataFlags::from_bits(flags),
            stream: StreamId(u16::from_be_bytes([s0, s1])),
            ppid: Ppid(u32::from_be_bytes([p0, p1, p2, p3])),
            payload_bytes: (u16::from_be_bytes([l0, l1]) as usize).saturating_sub(DATA_HEADER_BYTES),
        }
    }

    /// Returns the length of the chunk with header and padding.
    #[inline]
    pub const fn wire_bytes(&self) -> usize {
        DATA_HEADER_BYTES + padded(self.payload_bytes)
    }

    /// Returns the number of the chunk, and that of its message in its stream.
    #[inline]
    pub const fn numbers(bytes: &[u8; DATA_HEADER_BYTES]) -> (Tsn, Ssn) {
        let &[_, _, _, _, t0, t1, t2, t3, _, _, n0, n1, _, _, _, _] = bytes;
        (Tsn(u32::from_be_bytes([t0, t1, t2, t3])), Ssn(u16::from_be_bytes([n0, n1])))
    }

    /// Writes the numbers that a chunk gets when it is sent for the first time.
    #[inline]
    pub fn set_numbers(bytes: &mut [u8; DATA_HEADER_BYTES], tsn: Tsn, ssn: Ssn) {
        bytes[4..8].copy_from_slice(&tsn.0.to_be_bytes());
        bytes[10..12].copy_from_slice(&ssn.0.to_be_bytes());
    }

    /// Sets the I bit (RFC 7053): the peer acknowledges without delay.
    #[inline]
    pub const fn set_immediate(bytes: &mut [u8; DATA_HEADER_BYTES]) {
        bytes[1] |= IMMEDIATE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::testing::{only, round_trip};

    const DATA: Data<'_> = Data {
        flags: DataFlags { immediate: true, unordered: false, beginning: true, ending: false },
        tsn: Tsn(0x0102_0304),
        stream: StreamId(0x0506),
        ssn: Ssn(0x0708),
        ppid: Ppid(0x090a_0b0c),
        payload: b"hello",
    };

    #[test]
    fn round_trips() {
        let bytes = round_trip(DATA);
        assert_eq!(bytes, *b"\0\x0a\0\x15\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0chello\0\0\0");
        assert_eq!(
            DATA.to_string(),
            "DATA tsn=16909060 stream=1286 ssn=1800 ppid=151653132 flags=IB bytes=5"
        );
    }

    #[test]
    fn every_flag_round_trips_and_reserved_bits_are_ignored() {
        for bits in 0..16 {
            assert_eq!(DataFlags::from_bits(bits).to_bits(), bits);
            assert_eq!(DataFlags::from_bits(bits | 0xf0).to_bits(), bits);
        }
    }

    #[test]
    fn a_header_in_wire_form_has_the_fields_of_its_chunk() {
        let Data { stream, ssn, ppid, .. } = DATA;
        for bits in 0..16 {
            for payload_bytes in [1, 4, 5, DATA_PAYLOAD_BYTES_MAX] {
                let flags = DataFlags::from_bits(bits);
                let mut bytes = Data::header_bytes(flags, Tsn(0), stream, Ssn(0), ppid, payload_bytes);
                let header = DataHeader::read(&bytes);
                assert_eq!(header, DataHeader { flags, stream, ppid, payload_bytes });
                assert_eq!(header.wire_bytes(), DATA_HEADER_BYTES + payload_bytes.next_multiple_of(4));
                DataHeader::set_numbers(&mut bytes, DATA.tsn, ssn);
                assert_eq!(bytes, Data::header_bytes(flags, DATA.tsn, stream, ssn, ppid, payload_bytes));
                assert_eq!(DataHeader::numbers(&bytes), (DATA.tsn, ssn));
            }
        }
        let mut bytes = Data::header_bytes(DataFlags::WHOLE, DATA.tsn, stream, ssn, ppid, 9);
        DataHeader::set_immediate(&mut bytes);
        let immediate = DataFlags { immediate: true, ..DataFlags::WHOLE };
        assert_eq!(bytes, Data::header_bytes(immediate, DATA.tsn, stream, ssn, ppid, 9));
    }

    #[test]
    fn no_user_data_is_an_error_that_names_the_tsn() {
        let mut bytes = Vec::new();
        Data { payload: &[], ..DATA }.write(&mut bytes);
        assert_eq!(Data::parse(&only(&bytes)), Err(ChunkError::NoUserData { tsn: DATA.tsn }));
        let short = Data::parse(&only(&[0, 0, 0, 8, 1, 2, 3, 4]));
        assert_eq!(short, Err(ChunkError::ValueTooShort { kind: 0, bytes: 4, needed: 12 }));
    }

    #[test]
    fn the_largest_chunk_fits_its_length_field() {
        let payload = vec![1; DATA_PAYLOAD_BYTES_MAX + 10];
        let mut bytes = Vec::new();
        let data = Data { payload: &payload, ..DATA };
        data.write(&mut bytes);
        assert_eq!(bytes.len(), data.wire_bytes());
        assert_eq!(Data::parse(&only(&bytes)).unwrap().payload.len(), DATA_PAYLOAD_BYTES_MAX);
    }
}
