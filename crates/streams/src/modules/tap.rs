//! A module that records what passes, for Wireshark.

use crate::message::{Control, Kind, Message};
use crate::module::{Module, Q};
use crate::queue::Side;
use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::time::{Duration, Instant};
use tpi::TransferInfo;

/// Takes the bytes of a pcapng file as they come. It returns at once: where it has no room for the bytes it takes none of
/// them and returns false, and the record is lost.
pub trait TapSink: Send {
    /// Takes all of these bytes, or none.
    fn take(&mut self, bytes: &[u8]) -> bool;
}

impl<F: FnMut(&[u8]) -> bool + Send> TapSink for F {
    fn take(&mut self, bytes: &[u8]) -> bool {
        self(bytes)
    }
}

/// Records user data and primitives in a pcapng file with the link type of SCTP (`tap`). A message is a packet with one DATA
/// chunk; a primitive is a packet without chunks, with its name as the comment. Downward a message has no TSN yet, and gets
/// one that only counts.
pub struct Tap {
    sink: Box<dyn TapSink>,
    /// The time from 1970 on at an instant.
    epoch: (Instant, Duration),
    /// The ports of this end and the peer's.
    ports: (u16, u16),
    next_tsn: u32,
    next_ssn: HashMap<u16, u16>,
    /// Records that were begun by a message with more to come, by way and stream.
    open: HashSet<(bool, u16)>,
    lost: u64,
    /// The beginning of the file was taken.
    begun: bool,
}

impl std::fmt::Debug for Tap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tap").field("lost", &self.lost).finish_non_exhaustive()
    }
}

/// Of each message at most so many bytes are recorded; the record says how many there were.
const SNAPPED_BYTES: usize = 256 * 1024;
const COMMON_HEADER_BYTES: usize = 12;
const DATA_HEADER_BYTES: usize = 16;
/// `epb_flags`: the packet was received, or sent.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

impl Tap {
    /// The ioctl that answers with the number of records that were lost, 64 bits in native byte order.
    pub const GET_LOST: u32 = 0x5441_5001;

    /// A tap that hands its file to `sink`. `epoch` is an instant and its time from 1970 on; the ports are those of this end
    /// and the peer's.
    pub fn new(sink: Box<dyn TapSink>, epoch: (Instant, Duration), ports: (u16, u16)) -> Self {
        Self {
            sink,
            epoch,
            ports,
            next_tsn: 1,
            next_ssn: HashMap::new(),
            open: HashSet::new(),
            lost: 0,
            begun: false,
        }
    }

    /// Returns how many records the sink had no room for.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    fn record(&mut self, now: Instant, side: Side, m: &Message) {
        let written = match m.transfer() {
            Some(info) => {
                let (packet, original_bytes) = self.data_packet(side, &info, m);
                self.write(now, side, packet, original_bytes, None)
            }
            None => {
                let what = match &m.kind {
                    Kind::Proto(Control::Tpi(primitive)) | Kind::PcProto(Control::Tpi(primitive)) => {
                        primitive.code().name()
                    }
                    other => other.name(),
                };
                let packet = self.common_header(side);
                self.write(now, side, packet, COMMON_HEADER_BYTES, Some(what))
            }
        };
        self.lost += u64::from(!written.unwrap_or(false));
    }

    fn common_header(&self, side: Side) -> Vec<u8> {
        let (source, destination) = match side {
            Side::Write => self.ports,
            Side::Read => (self.ports.1, self.ports.0),
        };
        let mut packet = Vec::with_capacity(COMMON_HEADER_BYTES);
        packet.extend(source.to_be_bytes());
        packet.extend(destination.to_be_bytes());
        // The verification tag and the checksum are the provider's, which is below.
        packet.extend([0; 8]);
        packet
    }

    /// A packet with one DATA chunk (RFC 9260 §3.3.1), and how long it would be whole.
    fn data_packet(&mut self, side: Side, info: &TransferInfo, m: &Message) -> (Vec<u8>, usize) {
        let flags = self.chunk_flags(side, info);
        let (tsn, ssn) = match side {
            Side::Read => (info.tsn, info.ssn),
            Side::Write => (self.take_tsn(), self.take_ssn(info)),
        };
        let bytes = m.data.len();
        // The length of a chunk has 16 bits; a longer message is recorded as one chunk all the same, with the most.
        let chunk_bytes = u16::try_from(DATA_HEADER_BYTES + bytes).unwrap_or(u16::MAX);
        let mut packet = self.common_header(side);
        packet.extend([0, flags]);
        packet.extend(chunk_bytes.to_be_bytes());
        packet.extend(tsn.to_be_bytes());
        packet.extend(info.stream.to_be_bytes());
        packet.extend(ssn.to_be_bytes());
        packet.extend(info.ppid.to_be_bytes());
        let at = packet.len();
        packet.resize(at + bytes.min(SNAPPED_BYTES), 0);
        m.data.copy_to(&mut packet[at..]);
        packet.resize(packet.len().next_multiple_of(4), 0);
        (packet, COMMON_HEADER_BYTES + (DATA_HEADER_BYTES + bytes).next_multiple_of(4))
    }

    fn chunk_flags(&mut self, side: Side, info: &TransferInfo) -> u8 {
        const END: u8 = 1;
        const BEGINNING: u8 = 2;
        const UNORDERED: u8 = 4;
        const IMMEDIATE: u8 = 8;
        let record = (side == Side::Write, info.stream);
        let goes_on = match info.more() {
            true => !self.open.insert(record),
            false => self.open.remove(&record),
        };
        let is = |flag: tpi::TransferFlags, bit: u8| if info.flags.contains(flag) { bit } else { 0 };
        let ends = if info.more() { 0 } else { END };
        let begins = if goes_on { 0 } else { BEGINNING };
        ends | begins
            | is(tpi::TransferFlags::UNORDERED, UNORDERED)
            | is(tpi::TransferFlags::IMMEDIATE, IMMEDIATE)
    }

    fn take_tsn(&mut self) -> u32 {
        let tsn = self.next_tsn;
        self.next_tsn = tsn.wrapping_add(1);
        tsn
    }

    fn take_ssn(&mut self, info: &TransferInfo) -> u16 {
        if info.flags.contains(tpi::TransferFlags::UNORDERED) {
            return 0;
        }
        let next = self.next_ssn.entry(info.stream).or_insert(0);
        let ssn = *next;
        *next = if info.more() { ssn } else { ssn.wrapping_add(1) };
        ssn
    }

    fn write(
        &mut self,
        now: Instant,
        side: Side,
        packet: Vec<u8>,
        original_bytes: usize,
        comment: Option<&str>,
    ) -> io::Result<bool> {
        let (instant, since_1970) = self.epoch;
        let flags = if side == Side::Read { INBOUND } else { OUTBOUND };
        let mut options = vec![EnhancedPacketOption::Flags(flags)];
        options.extend(comment.map(|comment| EnhancedPacketOption::Comment(Cow::Borrowed(comment))));
        let block = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: since_1970 + now.saturating_duration_since(instant),
            original_len: u32::try_from(original_bytes).unwrap_or(u32::MAX),
            data: Cow::Owned(packet),
            options,
        };
        // A block is written behind the beginning of a file, which the sink gets once.
        let mut file = Tail { bytes: Vec::new() };
        let mut writer = PcapNgWriter::new(&mut file).map_err(io::Error::other)?;
        let interface = InterfaceDescriptionBlock {
            linktype: DataLink::SCTP,
            snaplen: 0,
            options: vec![InterfaceDescriptionOption::IfTsResol(NANOSECONDS)],
        };
        writer.write_pcapng_block(interface).map_err(io::Error::other)?;
        let beginning = writer.get_ref().bytes.len();
        writer.write_pcapng_block(block).map_err(io::Error::other)?;
        let skipped = if self.begun { beginning } else { 0 };
        let taken = self.sink.take(file.bytes.get(skipped..).unwrap_or_default());
        self.begun |= taken;
        Ok(taken)
    }
}

/// `if_tsresol`: times are in nanoseconds.
const NANOSECONDS: u8 = 9;

/// Collects what a writer writes.
struct Tail {
    bytes: Vec<u8>,
}

impl Write for &mut Tail {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Module for Tap {
    fn name(&self) -> &str {
        "tap"
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
