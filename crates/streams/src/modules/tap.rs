//! A module that records messages for Wireshark.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use tpi::{RecvInfo, SendInfo};

use super::sink::RecordSink;
use crate::identifiers::Side;
use crate::message::{Kind, Message, Seen};
use crate::module::{Module, Q};

/// Records user data and primitives in a pcapng file with the link type of SCTP (`tap`). A message becomes a packet with one DATA
/// chunk; a primitive becomes a packet without chunks, with its name as the comment. On its way down a message has no TSN yet, so
/// the packet gets a number that only counts. A packet after lost ones records their number.
pub struct Tap {
    sink: Box<dyn RecordSink>,
    /// An instant, and its time since 1970.
    epoch: (Instant, Duration),
    /// The ports of this end and of the peer.
    ports: (u16, u16),
    next_tsn: u32,
    /// The next stream sequence number of each stream up to the highest one that was used.
    next_ssn: Vec<u16>,
    /// Records that were begun by a message with more to come, by direction and stream.
    open: HashSet<(bool, u16)>,
    recorded: u64,
    lost: u64,
    /// Number of these lost since the last packet that the sink has taken.
    lost_since: u64,
    /// The sink has taken the beginning of the file.
    begun: bool,
    /// Memory for the part of a record before the data of its message, and for the part behind it.
    begin: Vec<u8>,
    end: Vec<u8>,
}

impl std::fmt::Debug for Tap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tap").field("lost", &self.lost).finish_non_exhaustive()
    }
}

/// Bytes of a message that are recorded at most, as many as an IP packet can hold in a DATA chunk: analysers compute with
/// lengths of 16 bits. A comment says how long the message was.
const SNAPPED_BYTES: usize = u16::MAX as usize / 4 * 4 - COMMON_HEADER_BYTES - DATA_HEADER_BYTES;
/// The fields of an Enhanced Packet Block before its packet.
const BLOCK_HEADER_BYTES: usize = 28;
const COMMON_HEADER_BYTES: usize = 12;
const DATA_HEADER_BYTES: usize = 16;
/// `epb_flags`: the packet was received, or sent.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// A section header and the description of one interface (draft-ietf-opsawg-pcapng §4.1, §4.2), in little-endian order. The link
/// type is SCTP (248), and times are in nanoseconds.
#[rustfmt::skip]
const BEGINNING: [u8; 60] = [
    0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0,
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 28, 0, 0, 0,
    1, 0, 0, 0, 32, 0, 0, 0, 248, 0, 0, 0, 0, 0, 0, 0,
    9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0,
];
const ENHANCED_PACKET: u32 = 6;
/// Options of an Enhanced Packet Block.
const OPT_COMMENT: u16 = 1;
const EPB_FLAGS: u16 = 2;
const EPB_DROPCOUNT: u16 = 4;

/// Flags of a DATA chunk.
const ENDS: u8 = 1;
const BEGINS: u8 = 2;
const UNORDERED: u8 = 4;
const IMMEDIATE: u8 = 8;

/// The fields of a DATA chunk that differ by message.
struct DataHeader {
    flags: u8,
    tsn: u32,
    stream: u16,
    ssn: u16,
    ppid: u32,
}

impl DataHeader {
    /// Returns the header of a DATA chunk (RFC 9260 §3.3.1) with this many bytes of data, at most [`SNAPPED_BYTES`].
    fn encode(&self, data_bytes: usize) -> [u8; DATA_HEADER_BYTES] {
        let length = (DATA_HEADER_BYTES + data_bytes) as u32;
        let words = [
            u32::from(self.flags) << 16 | length,
            self.tsn,
            u32::from(self.stream) << 16 | u32::from(self.ssn),
            self.ppid,
        ];
        let mut header = [0; DATA_HEADER_BYTES];
        header.copy_from_slice(words.map(u32::to_be_bytes).as_flattened());
        header
    }
}

/// Returns the length of the padding behind this many bytes, which begin at a multiple of 4.
fn padding_bytes(bytes: usize) -> usize {
    bytes.next_multiple_of(4) - bytes
}

impl Tap {
    /// Ioctl that returns the number of lost records, 64 bits in native byte order.
    pub const GET_LOST: u32 = 0x5441_5001;

    /// Returns a tap that passes its file to `sink`. `epoch` is an instant and its time since 1970; the ports are those of this
    /// end and of the peer.
    pub fn new(sink: Box<dyn RecordSink>, epoch: (Instant, Duration), ports: (u16, u16)) -> Self {
        Self {
            sink,
            epoch,
            ports,
            next_tsn: 1,
            next_ssn: Vec::new(),
            open: HashSet::new(),
            recorded: 0,
            lost: 0,
            lost_since: 0,
            begun: false,
            begin: Vec::new(),
            end: Vec::new(),
        }
    }

    /// Returns the number of records that the sink had no room for.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    fn record(&mut self, now: Instant, side: Side, m: &Seen<'_>) {
        if self.sink.is_closed() {
            return;
        }
        let header = match side {
            Side::Write => m.send_info().map(|info| self.sent_header(&info)),
            Side::Read => m.recv_info().map(|info| self.received_header(&info)),
        };
        let bytes = m.len();
        let data_bytes = if header.is_some() { bytes.min(SNAPPED_BYTES) } else { 0 };
        let cut;
        let comment = match header {
            None => Some(m.kind.what()),
            Some(_) if bytes > SNAPPED_BYTES => {
                cut = format!("a message of {bytes} bytes, of which {SNAPPED_BYTES} are recorded");
                Some(cut.as_str())
            }
            Some(_) => None,
        };
        self.write_end(side, data_bytes, comment);
        self.write_begin(now, side, header.map(|header| (header, data_bytes)));
        if self.hand_over(m, data_bytes) {
            self.begun = true;
            self.recorded += 1;
            self.lost_since = 0;
        } else {
            self.lost += 1;
            self.lost_since += 1;
        }
    }

    /// Passes the record to the sink with the data of its message, which is not copied before.
    fn hand_over(&mut self, m: &Seen<'_>, data_bytes: usize) -> bool {
        match m.whole() {
            Some(data) => self.sink.take(&[&self.begin, &data[..data_bytes], &self.end]),
            None => {
                let mut left_bytes = data_bytes;
                let data = m.pieces().map(|block| {
                    let piece = &block[..block.len().min(left_bytes)];
                    left_bytes -= piece.len();
                    piece
                });
                let begin = std::iter::once(&self.begin[..]);
                let pieces: Vec<&[u8]> = begin.chain(data).chain([&self.end[..]]).collect();
                self.sink.take(&pieces)
            }
        }
    }

    /// Writes the beginning of an Enhanced Packet Block (§4.3), the common header of its packet and the header of its DATA chunk
    /// with the number of data bytes. The end of the block is written before, so its length is known.
    fn write_begin(&mut self, now: Instant, side: Side, chunk: Option<(DataHeader, usize)>) {
        let unpadded_bytes =
            COMMON_HEADER_BYTES + chunk.as_ref().map_or(0, |(_, data_bytes)| DATA_HEADER_BYTES + data_bytes);
        let packet_bytes = unpadded_bytes.next_multiple_of(4);
        let block_bytes = BLOCK_HEADER_BYTES + unpadded_bytes + self.end.len();
        // A block is shorter than 2^32 bytes.
        let length = (block_bytes as u32).to_le_bytes();
        let end_at = self.end.len() - length.len();
        self.end[end_at..].copy_from_slice(&length);
        self.begin.clear();
        if !self.begun {
            self.begin.extend(BEGINNING);
        }
        let (instant, since_1970) = self.epoch;
        let since_1970 = since_1970 + now.saturating_duration_since(instant);
        // 64 bits of nanoseconds last until 2554.
        let at = since_1970.as_secs().wrapping_mul(1_000_000_000) + u64::from(since_1970.subsec_nanos());
        let (high, low) = ((at >> 32) as u32, at as u32);
        // The only interface has the number 0.
        let words =
            [ENHANCED_PACKET, block_bytes as u32, 0, high, low, packet_bytes as u32, packet_bytes as u32];
        self.begin.extend_from_slice(words.map(u32::to_le_bytes).as_flattened());
        let (source, destination) = match side {
            Side::Write => self.ports,
            Side::Read => (self.ports.1, self.ports.0),
        };
        // The verification tag and the checksum are known only to the provider, below: they are 0.
        let words = [u32::from(source) << 16 | u32::from(destination), 0, 0];
        self.begin.extend_from_slice(words.map(u32::to_be_bytes).as_flattened());
        if let Some((header, data_bytes)) = chunk {
            self.begin.extend_from_slice(&header.encode(data_bytes));
        }
    }

    /// Writes the part of a block behind the data of its packet: padding, options and room for the length of the block.
    fn write_end(&mut self, side: Side, data_bytes: usize, comment: Option<&str>) {
        self.end.clear();
        self.end.resize(padding_bytes(data_bytes), 0);
        let flags = if side == Side::Read { INBOUND } else { OUTBOUND };
        self.write_option(EPB_FLAGS, &flags.to_le_bytes());
        if self.lost_since > 0 {
            self.write_option(EPB_DROPCOUNT, &self.lost_since.to_le_bytes());
        }
        if let Some(comment) = comment {
            self.write_option(OPT_COMMENT, comment.as_bytes());
        }
        self.write_option(0, &[]);
        self.end.extend_from_slice(&[0; 4]);
    }

    fn write_option(&mut self, code: u16, value: &[u8]) {
        self.end.extend_from_slice(&code.to_le_bytes());
        // Values are names and numbers.
        self.end.extend_from_slice(&(value.len() as u16).to_le_bytes());
        self.end.extend_from_slice(value);
        self.end.extend_from_slice(&[0; 3][..padding_bytes(value.len())]);
    }

    /// Returns the header of a message on its way down, which has no sequence numbers yet.
    fn sent_header(&mut self, info: &SendInfo) -> DataHeader {
        let immediate = if info.immediate { IMMEDIATE } else { 0 };
        DataHeader {
            flags: immediate | self.record_flags(Side::Write, info.stream, info.unordered, info.more),
            tsn: self.take_tsn(),
            stream: info.stream,
            ssn: self.take_ssn(info),
            ppid: info.ppid,
        }
    }

    fn received_header(&mut self, info: &RecvInfo) -> DataHeader {
        DataHeader {
            flags: self.record_flags(Side::Read, info.stream, info.unordered, info.more),
            tsn: info.tsn,
            stream: info.stream,
            ssn: info.ssn,
            ppid: info.ppid,
        }
    }

    /// Returns whether the message begins its record, ends it, and is unordered.
    fn record_flags(&mut self, side: Side, stream: u16, unordered: bool, more: bool) -> u8 {
        let record = (side == Side::Write, stream);
        let goes_on = match more {
            true => !self.open.insert(record),
            // Nearly every message is a whole record.
            false => !self.open.is_empty() && self.open.remove(&record),
        };
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        flag(!more, ENDS) | flag(!goes_on, BEGINS) | flag(unordered, UNORDERED)
    }

    fn take_tsn(&mut self) -> u32 {
        let tsn = self.next_tsn;
        self.next_tsn = tsn.wrapping_add(1);
        tsn
    }

    fn take_ssn(&mut self, info: &SendInfo) -> u16 {
        if info.unordered {
            return 0;
        }
        let stream = usize::from(info.stream);
        if self.next_ssn.len() <= stream {
            self.next_ssn.resize(stream + 1, 0);
        }
        let ssn = self.next_ssn[stream];
        self.next_ssn[stream] = if info.more { ssn } else { ssn.wrapping_add(1) };
        ssn
    }
}

impl Module for Tap {
    fn name(&self) -> &str {
        "tap"
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        vec![("recorded", self.recorded), ("lost", self.lost)]
    }

    fn is_finished(&self) -> bool {
        self.sink.is_closed()
    }

    fn observes(&self) -> bool {
        true
    }

    fn observe(&mut self, side: Side, now: Instant, m: &Seen<'_>) -> bool {
        if matches!(m.kind, Kind::Ioctl(_)) {
            return false;
        }
        self.record(now, side, m);
        true
    }

    fn wput(&mut self, q: &mut Q<'_>, m: Message) {
        if let Kind::Ioctl(ioctl) = &m.kind
            && ioctl.command == Self::GET_LOST
        {
            return q.ack(ioctl, 0, self.lost.to_ne_bytes().to_vec().into());
        }
        self.record(q.now(), Side::Write, &Seen::from(&m));
        q.pass(m);
    }

    fn rput(&mut self, q: &mut Q<'_>, m: Message) {
        self.record(q.now(), Side::Read, &Seen::from(&m));
        q.pass(m);
    }
}
