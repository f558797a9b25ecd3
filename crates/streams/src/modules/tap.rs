//! A module that records messages for Wireshark.

use super::sink::RecordSink;
use crate::identifiers::Side;
use crate::message::{Kind, Message};
use crate::module::{Module, Q};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};
use tpi::{RecvInfo, SendInfo};

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
    next_ssn: HashMap<u16, u16>,
    /// Records that were begun by a message with more to come, by direction and stream.
    open: HashSet<(bool, u16)>,
    recorded: u64,
    lost: u64,
    /// Number of these lost since the last packet that the sink has taken.
    lost_since: u64,
    /// The sink has taken the beginning of the file.
    begun: bool,
    /// The block that is being written.
    block: Vec<u8>,
}

impl std::fmt::Debug for Tap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tap").field("lost", &self.lost).finish_non_exhaustive()
    }
}

/// Bytes of a message that are recorded at most, as many as an IP packet can hold in a DATA chunk: analysers compute with lengths of
/// 16 bits. A comment says how long the message was.
const SNAPPED_BYTES: usize = u16::MAX as usize / 4 * 4 - COMMON_HEADER_BYTES - DATA_HEADER_BYTES;
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
            next_ssn: HashMap::new(),
            open: HashSet::new(),
            recorded: 0,
            lost: 0,
            lost_since: 0,
            begun: false,
            block: Vec::new(),
        }
    }

    /// Returns the number of records that the sink had no room for.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    fn record(&mut self, now: Instant, side: Side, m: &Message) {
        if self.sink.is_closed() {
            return;
        }
        self.block.clear();
        if !self.begun {
            self.block.extend(BEGINNING);
        }
        let block_at = self.block.len();
        let header = match side {
            Side::Write => m.send_info().map(|info| self.sent_header(&info)),
            Side::Read => m.recv_info().map(|info| self.received_header(&info)),
        };
        match header {
            Some(header) => {
                let packet_at = self.begin_packet(now, side);
                self.write_data(&header, m);
                let bytes = m.data.len();
                let cut = (bytes > SNAPPED_BYTES)
                    .then(|| format!("a message of {bytes} bytes, of which {SNAPPED_BYTES} are recorded"));
                self.end_packet(packet_at, side, cut.as_deref());
            }
            None => {
                let packet_at = self.begin_packet(now, side);
                self.end_packet(packet_at, side, Some(m.what()));
            }
        }
        self.put_u32_at(block_at + 4, self.block.len() - block_at);
        if self.sink.take(&self.block) {
            self.begun = true;
            self.recorded += 1;
            self.lost_since = 0;
        } else {
            self.lost += 1;
            self.lost_since += 1;
        }
    }

    /// Writes the beginning of an Enhanced Packet Block (§4.3) and the common header of its packet. Returns the packet's offset.
    fn begin_packet(&mut self, now: Instant, side: Side) -> usize {
        let (instant, since_1970) = self.epoch;
        // 64 bits of nanoseconds last until 2554.
        let at = (since_1970 + now.saturating_duration_since(instant)).as_nanos() as u64;
        // The length of the block, the interface's number and both lengths of the packet are 0 until they are known.
        for word in [ENHANCED_PACKET, 0, 0, (at >> 32) as u32, at as u32, 0, 0] {
            self.block.extend(word.to_le_bytes());
        }
        let packet_at = self.block.len();
        let (source, destination) = match side {
            Side::Write => self.ports,
            Side::Read => (self.ports.1, self.ports.0),
        };
        self.block.extend(source.to_be_bytes());
        self.block.extend(destination.to_be_bytes());
        // The verification tag and the checksum are known only to the provider, below.
        self.block.extend([0; 8]);
        packet_at
    }

    /// Writes the options of a packet and the end of its block.
    fn end_packet(&mut self, packet_at: usize, side: Side, comment: Option<&str>) {
        let packet_bytes = self.block.len() - packet_at;
        self.put_u32_at(packet_at - 8, packet_bytes);
        self.put_u32_at(packet_at - 4, packet_bytes);
        let flags = if side == Side::Read { INBOUND } else { OUTBOUND };
        self.write_option(EPB_FLAGS, &flags.to_le_bytes());
        if self.lost_since > 0 {
            self.write_option(EPB_DROPCOUNT, &self.lost_since.to_le_bytes());
        }
        if let Some(comment) = comment {
            self.write_option(OPT_COMMENT, comment.as_bytes());
        }
        self.write_option(0, &[]);
        // The block has 28 bytes before the packet, and its length again at the end.
        let block_bytes = self.block.len() - packet_at + 28 + 4;
        self.block.extend((block_bytes as u32).to_le_bytes());
    }

    fn write_option(&mut self, code: u16, value: &[u8]) {
        self.block.extend(code.to_le_bytes());
        // Values are names and numbers.
        self.block.extend((value.len() as u16).to_le_bytes());
        self.block.extend_from_slice(value);
        self.pad();
    }

    /// Pads to a multiple of 4 bytes. All blocks begin at one.
    fn pad(&mut self) {
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    fn put_u32_at(&mut self, at: usize, value: usize) {
        // A block is shorter than 2^32 bytes.
        self.block[at..at + 4].copy_from_slice(&(value as u32).to_le_bytes());
    }

    /// Writes a DATA chunk (RFC 9260 §3.3.1).
    fn write_data(&mut self, header: &DataHeader, m: &Message) {
        let bytes = m.data.len().min(SNAPPED_BYTES);
        self.block.extend([0, header.flags]);
        self.block.extend(((DATA_HEADER_BYTES + bytes) as u16).to_be_bytes());
        self.block.extend(header.tsn.to_be_bytes());
        self.block.extend(header.stream.to_be_bytes());
        self.block.extend(header.ssn.to_be_bytes());
        self.block.extend(header.ppid.to_be_bytes());
        let at = self.block.len();
        self.block.resize(at + bytes, 0);
        m.data.copy_to(&mut self.block[at..]);
        self.pad();
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
            false => self.open.remove(&record),
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
        let next = self.next_ssn.entry(info.stream).or_insert(0);
        let ssn = *next;
        *next = if info.more { ssn } else { ssn.wrapping_add(1) };
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

    fn wput(&mut self, q: &mut Q<'_>, m: Message) {
        if let Kind::Ioctl(ioctl) = &m.kind
            && ioctl.command == Self::GET_LOST
        {
            return q.ack(ioctl, 0, self.lost.to_ne_bytes().to_vec().into());
        }
        self.record(q.now(), Side::Write, &m);
        q.pass(m);
    }

    fn rput(&mut self, q: &mut Q<'_>, m: Message) {
        self.record(q.now(), Side::Read, &m);
        q.pass(m);
    }
}
