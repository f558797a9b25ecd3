//! Packets as hosts send them, and the segments that a line carries.

use std::ops::Range;

use links::device::{SegmentKind, Segmentation, VnetHeader};
use netsim::{Ecn, Flips};

use crate::checksum;
use crate::flow::{FlowKey, V6_HEADER_BYTES};
use crate::memory::{MemoryBudget, PacketBytes};

const V4_HEADER_BYTES_MIN: usize = 20;
const V4_TOTAL_LENGTH: Range<usize> = 2..4;
const V4_ID: Range<usize> = 4..6;
const V4_CHECKSUM: Range<usize> = 10..12;
const V6_PAYLOAD_LENGTH: Range<usize> = 4..6;

const TCP_HEADER_BYTES_MIN: usize = 20;
const TCP_SEQUENCE: Range<usize> = 4..8;
const TCP_DATA_OFFSET: usize = 12;
const TCP_FLAGS: usize = 13;
const TCP_CHECKSUM_OFFSET: u16 = 16;
/// FIN and PSH belong to the last segment.
const TCP_LAST_FLAGS: u8 = 0x01 | 0x08;
/// CWR belongs to the first one (RFC 3168 §6.1.2).
const TCP_CWR: u8 = 0x80;
const UDP_HEADER_BYTES: usize = 8;
const UDP_LENGTH: Range<usize> = 4..6;
const UDP_CHECKSUM_OFFSET: u16 = 6;

/// An IP packet, of one segment or of many. Clones share the bytes.
///
/// A packet whose header describes no segments, or describes them wrongly, is one segment and passes unchanged: whatever the
/// protocol, only the ECN field is interpreted.
#[derive(Clone, Debug)]
pub struct SuperPacket {
    bytes: PacketBytes,
    header: VnetHeader,
    cut: Option<Cut>,
}

/// Division of a super-packet into segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    segmentation: Segmentation,
    /// Offset of the transport header.
    transport_at: usize,
    /// Offset of the payload; the bytes before it are repeated in each segment.
    payload_at: usize,
    /// Offset of the transport's checksum.
    checksum_at: usize,
    segments: u16,
}

impl SuperPacket {
    /// Copies a packet that a device has delivered.
    #[must_use]
    pub fn new(header: VnetHeader, bytes: &[u8], budget: &MemoryBudget) -> Self {
        SuperPacket { bytes: budget.copy(bytes), header, cut: Cut::of(&header, bytes) }
    }

    /// Returns the number of packets on the line, at least one.
    #[must_use]
    pub fn segments(&self) -> u16 {
        self.cut.map_or(1, |cut| cut.segments)
    }

    /// Returns the length of a segment on the line, from the IP header on.
    #[must_use]
    pub fn segment_bytes(&self, segment: u16) -> usize {
        match &self.cut {
            Some(cut) => cut.payload_at + cut.payload(segment..segment + 1, self.bytes.len()).len(),
            None => self.bytes.len(),
        }
    }

    /// Returns the ECN field.
    #[must_use]
    pub fn ecn(&self) -> Ecn {
        match (self.bytes.first().map(|byte| byte >> 4), self.bytes.get(1)) {
            (Some(4), Some(class)) => Ecn::from_bits(*class),
            (Some(6), Some(class)) => Ecn::from_bits(class >> 4),
            _ => Ecn::NotCapable,
        }
    }

    /// Returns the flow, if this is an IP packet.
    #[must_use]
    pub fn flow(&self) -> Option<FlowKey> {
        FlowKey::of(&self.bytes)
    }

    /// Writes the headers of a packet that has these segments, with this ECN field, to `head`. Returns the virtual network header
    /// of the packet, and its payload. One segment makes an ordinary packet; several make a super-packet again.
    pub fn write(&self, segments: Range<u16>, ecn: Ecn, head: &mut Vec<u8>) -> (VnetHeader, &[u8]) {
        head.clear();
        let Some(cut) = &self.cut else {
            let (ip, rest) = self.bytes.split_at(self.bytes.len().min(V6_HEADER_BYTES));
            head.extend_from_slice(ip);
            if ecn != self.ecn() {
                set_ecn(head, ecn);
            }
            return (self.header, rest);
        };
        let payload = cut.payload(segments.clone(), self.bytes.len());
        head.extend_from_slice(&self.bytes[..cut.payload_at]);
        let mut header = self.header;
        if segments.len() == 1 {
            header.segmentation = None;
        } else if let Some(segmentation) = &mut header.segmentation {
            segmentation.reduced_window &= segments.start == 0;
        }
        if segments != (0..cut.segments) {
            cut.write_transport(head, &segments, payload.len(), self.bytes.len());
            cut.write_ip(head, segments.start, payload.len());
        }
        if ecn != self.ecn() {
            set_ecn(head, ecn);
        }
        (header, &self.bytes[payload])
    }

    /// Returns a segment in its form on the line, with its checksum complete.
    #[must_use]
    pub fn on_line(&self, segment: u16, ecn: Ecn) -> Vec<u8> {
        let mut packet = Vec::with_capacity(self.segment_bytes(segment));
        let (header, payload) = self.write(segment..segment + 1, ecn, &mut packet);
        packet.extend_from_slice(payload);
        complete_checksum(&header, &mut packet);
        packet
    }

    /// Returns a segment that was damaged on the line, after its sender had completed the checksum.
    #[must_use]
    pub fn damaged(&self, segment: u16, ecn: Ecn, flips: Flips) -> Vec<u8> {
        let mut packet = self.on_line(segment, ecn);
        flips.apply(&mut packet);
        packet
    }
}

impl Cut {
    /// Returns how the packet is cut; `None` if it is one segment, or if its header does not fit it.
    fn of(header: &VnetHeader, bytes: &[u8]) -> Option<Self> {
        let (segmentation, checksum) = (header.segmentation?, header.checksum?);
        let transport_at = usize::from(checksum.start);
        let ip_bytes = match bytes.first()? >> 4 {
            4 if segmentation.kind != SegmentKind::TcpV6 => usize::from(bytes[0] & 0xf) * 4,
            6 if segmentation.kind != SegmentKind::TcpV4 => V6_HEADER_BYTES,
            _ => return None,
        };
        let is_v4 = bytes[0] >> 4 == 4;
        // IPv6 may have extension headers before the transport header.
        let fits = if is_v4 { transport_at == ip_bytes } else { transport_at >= ip_bytes };
        if !fits || ip_bytes < V4_HEADER_BYTES_MIN {
            return None;
        }
        let (transport_bytes, checksum_offset) = match segmentation.kind {
            SegmentKind::Udp => (UDP_HEADER_BYTES, UDP_CHECKSUM_OFFSET),
            SegmentKind::TcpV4 | SegmentKind::TcpV6 => {
                let bytes = usize::from(bytes.get(transport_at + TCP_DATA_OFFSET)? >> 4) * 4;
                (bytes, TCP_CHECKSUM_OFFSET)
            }
        };
        let is_tcp = segmentation.kind != SegmentKind::Udp;
        if checksum.offset != checksum_offset || (is_tcp && transport_bytes < TCP_HEADER_BYTES_MIN) {
            return None;
        }
        let payload_at = transport_at + transport_bytes;
        let payload_bytes = bytes.len().checked_sub(payload_at).filter(|bytes| *bytes > 0)?;
        let segment_bytes = Some(usize::from(segmentation.segment_bytes)).filter(|bytes| *bytes > 0)?;
        let segments = u16::try_from(payload_bytes.div_ceil(segment_bytes)).ok()?;
        let checksum_at = transport_at + usize::from(checksum_offset);
        Some(Cut { segmentation, transport_at, payload_at, checksum_at, segments })
    }

    /// Returns the range of these segments' payload in a packet of `bytes`.
    fn payload(&self, segments: Range<u16>, bytes: usize) -> Range<usize> {
        let at = |segment: u16| {
            let before = usize::from(segment) * usize::from(self.segmentation.segment_bytes);
            (self.payload_at + before).min(bytes)
        };
        at(segments.start)..at(segments.end)
    }

    fn write_transport(
        &self,
        head: &mut [u8],
        segments: &Range<u16>,
        payload_bytes: usize,
        whole_bytes: usize,
    ) {
        let transport_bytes = self.payload_at - self.transport_at + payload_bytes;
        let transport = &mut head[self.transport_at..];
        match self.segmentation.kind {
            // The length fits: a datagram is no longer than the super-packet, whose length the host could write.
            SegmentKind::Udp => set_u16(transport, UDP_LENGTH, transport_bytes as u16),
            SegmentKind::TcpV4 | SegmentKind::TcpV6 => {
                let before = u32::from(segments.start) * u32::from(self.segmentation.segment_bytes);
                let field = &mut transport[TCP_SEQUENCE];
                let sequence = u32::from_be_bytes([field[0], field[1], field[2], field[3]]);
                field.copy_from_slice(&sequence.wrapping_add(before).to_be_bytes());
                if segments.end != self.segments {
                    transport[TCP_FLAGS] &= !TCP_LAST_FLAGS;
                }
                if segments.start != 0 {
                    transport[TCP_FLAGS] &= !TCP_CWR;
                }
            }
        }
        // The partial checksum is the sum over the pseudo header, which includes the length.
        let at = self.checksum_at..self.checksum_at + 2;
        let partial = u16::from_be_bytes([head[at.start], head[at.start + 1]]);
        let partial = checksum::replace_length(partial, whole_bytes - self.transport_at, transport_bytes);
        set_u16(head, at, partial);
    }

    fn write_ip(&self, head: &mut [u8], first_segment: u16, payload_bytes: usize) {
        let bytes = self.payload_at + payload_bytes;
        if head[0] >> 4 == 6 {
            set_u16(head, V6_PAYLOAD_LENGTH, (bytes - V6_HEADER_BYTES) as u16);
            return;
        }
        set_u16(head, V4_TOTAL_LENGTH, bytes as u16);
        let id = u16::from_be_bytes([head[V4_ID.start], head[V4_ID.start + 1]]);
        set_u16(head, V4_ID, id.wrapping_add(first_segment));
        set_v4_checksum(head);
    }
}

fn set_u16(bytes: &mut [u8], field: Range<usize>, value: u16) {
    bytes[field].copy_from_slice(&value.to_be_bytes());
}

/// Writes the checksum of the IPv4 header at the start of `head`, if the header is complete there.
fn set_v4_checksum(head: &mut [u8]) {
    let header_bytes = usize::from(head[0] & 0xf) * 4;
    let Some(header) = head.get_mut(..header_bytes).filter(|header| header.len() >= V4_HEADER_BYTES_MIN)
    else {
        return;
    };
    set_u16(header, V4_CHECKSUM, 0);
    let checksum = !checksum::sum(header);
    set_u16(header, V4_CHECKSUM, checksum);
}

/// Changes the ECN field of the IP header at the start of `head`.
fn set_ecn(head: &mut [u8], ecn: Ecn) {
    match head.first().map(|byte| byte >> 4) {
        Some(4) if head.len() >= V4_HEADER_BYTES_MIN => {
            let old = [head[0], head[1]];
            head[1] = head[1] & !0b11 | ecn.bits();
            // The header may be longer than `head`, so the checksum is adjusted, not recomputed (RFC 1624).
            let field = [head[V4_CHECKSUM.start], head[V4_CHECKSUM.start + 1]];
            let [old, new] = [old, [head[0], head[1]]].map(|word| usize::from(u16::from_be_bytes(word)));
            let checksum = !checksum::replace_length(!u16::from_be_bytes(field), old, new);
            set_u16(head, V4_CHECKSUM, checksum);
        }
        Some(6) if head.len() >= V6_HEADER_BYTES => head[1] = head[1] & !(0b11 << 4) | ecn.bits() << 4,
        _ => {}
    }
}

/// Completes the checksum if a header says that it is partial.
fn complete_checksum(header: &VnetHeader, packet: &mut [u8]) {
    let Some(partial) = header.checksum else { return };
    let start = usize::from(partial.start);
    let at = start + usize::from(partial.offset);
    if at + 2 > packet.len() {
        return;
    }
    let checksum = match !checksum::sum(&packet[start..]) {
        // RFC 768: zero means no checksum.
        0 if partial.offset == UDP_CHECKSUM_OFFSET => 0xffff,
        checksum => checksum,
    };
    set_u16(packet, at..at + 2, checksum);
}

#[cfg(test)]
mod tests;
