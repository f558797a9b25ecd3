//! `struct virtio_net_hdr` (virtio 1.2, section 5.1.6), in the byte order of this machine, as TUN and packet sockets have it.

/// The header before each packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VnetHeader {
    /// Position of the incomplete checksum of the packet, if there is one (`VIRTIO_NET_HDR_F_NEEDS_CSUM`).
    pub checksum: Option<PartialChecksum>,
    /// Segmentation of the packet, if it exceeds the MTU.
    pub segmentation: Option<Segmentation>,
    /// Length of the headers that each segment repeats; a hint.
    pub headers_bytes: u16,
}

/// A checksum that covers only the pseudo header; the rest must be added before transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialChecksum {
    /// Offset of the checksummed bytes, that is, of the transport header.
    pub start: u16,
    /// Offset of the checksum from there.
    pub offset: u16,
}

/// Segmentation of a super-packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segmentation {
    /// The transport, which determines the headers of the segments.
    pub kind: SegmentKind,
    /// Payload of each segment but the last, which may be shorter.
    pub segment_bytes: u16,
    /// Whether the sender's window was reduced (CWR), which the first segment alone tells (RFC 3168 §6.1.2).
    pub reduced_window: bool,
}

/// The transport of a super-packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentKind {
    /// TCP over IPv4.
    TcpV4,
    /// TCP over IPv6.
    TcpV6,
    /// UDP over either: each segment is a datagram.
    Udp,
}

/// Bytes of the header.
pub(super) const HEADER_BYTES: usize = 10;

const FLAGS: usize = 0;
const GSO_TYPE: usize = 1;
const HEADERS: std::ops::Range<usize> = 2..4;
const GSO_SIZE: std::ops::Range<usize> = 4..6;
const CHECKSUM_START: std::ops::Range<usize> = 6..8;
const CHECKSUM_OFFSET: std::ops::Range<usize> = 8..10;

const NEEDS_CHECKSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCP_V4: u8 = 1;
const GSO_TCP_V6: u8 = 4;
const GSO_UDP: u8 = 5;
const GSO_ECN: u8 = 0x80;

impl VnetHeader {
    /// Reads a header. Ignores flags and types that this code does not know.
    pub(super) fn parse(bytes: &[u8; HEADER_BYTES]) -> Self {
        let field =
            |range: std::ops::Range<usize>| u16::from_ne_bytes([bytes[range.start], bytes[range.start + 1]]);
        let checksum = (bytes[FLAGS] & NEEDS_CHECKSUM != 0)
            .then(|| PartialChecksum { start: field(CHECKSUM_START), offset: field(CHECKSUM_OFFSET) });
        let kind = match bytes[GSO_TYPE] & !GSO_ECN {
            GSO_TCP_V4 => Some(SegmentKind::TcpV4),
            GSO_TCP_V6 => Some(SegmentKind::TcpV6),
            GSO_UDP => Some(SegmentKind::Udp),
            _ => None,
        };
        let segmentation = kind.map(|kind| Segmentation {
            kind,
            segment_bytes: field(GSO_SIZE),
            reduced_window: bytes[GSO_TYPE] & GSO_ECN != 0,
        });
        VnetHeader { checksum, segmentation, headers_bytes: field(HEADERS) }
    }

    /// Writes the header.
    pub(super) fn bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[HEADERS].copy_from_slice(&self.headers_bytes.to_ne_bytes());
        if let Some(checksum) = self.checksum {
            bytes[FLAGS] = NEEDS_CHECKSUM;
            bytes[CHECKSUM_START].copy_from_slice(&checksum.start.to_ne_bytes());
            bytes[CHECKSUM_OFFSET].copy_from_slice(&checksum.offset.to_ne_bytes());
        }
        if let Some(segmentation) = self.segmentation {
            bytes[GSO_SIZE].copy_from_slice(&segmentation.segment_bytes.to_ne_bytes());
            let ecn = if segmentation.reduced_window { GSO_ECN } else { GSO_NONE };
            bytes[GSO_TYPE] = ecn
                | match segmentation.kind {
                    SegmentKind::TcpV4 => GSO_TCP_V4,
                    SegmentKind::TcpV6 => GSO_TCP_V6,
                    SegmentKind::Udp => GSO_UDP,
                };
        }
        bytes
    }

    /// Returns the header with its offsets counted from a position `by` bytes earlier in the packet.
    pub(super) fn moved_back(mut self, by: u16) -> Self {
        self.headers_bytes = self.headers_bytes.saturating_add(by);
        if let Some(checksum) = &mut self.checksum {
            checksum.start = checksum.start.saturating_add(by);
        }
        self
    }

    /// Returns the header with its offsets counted from a position `by` bytes later in the packet.
    pub(super) fn moved_on(mut self, by: u16) -> Self {
        self.headers_bytes = self.headers_bytes.saturating_sub(by);
        if let Some(checksum) = &mut self.checksum {
            checksum.start = checksum.start.saturating_sub(by);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_written_as_they_are_read() {
        let checksum = Some(PartialChecksum { start: 40, offset: 16 });
        for kind in [SegmentKind::TcpV4, SegmentKind::TcpV6, SegmentKind::Udp] {
            for reduced_window in [false, true] {
                let segmentation = Some(Segmentation { kind, segment_bytes: 1448, reduced_window });
                let header = VnetHeader { checksum, segmentation, headers_bytes: 72 };
                assert_eq!(VnetHeader::parse(&header.bytes()), header);
                assert_eq!(header.moved_back(14).moved_on(14), header);
            }
        }
        assert_eq!(VnetHeader::parse(&[0; HEADER_BYTES]), VnetHeader::default());
    }

    #[test]
    fn fields_are_where_the_kernel_has_them() {
        // Taken from a TUN device: TCP over IPv4, 66 bytes of headers without Ethernet, segments of 1448 bytes.
        let header = VnetHeader {
            checksum: Some(PartialChecksum { start: 20, offset: 16 }),
            segmentation: Some(Segmentation {
                kind: SegmentKind::TcpV4,
                segment_bytes: 1448,
                reduced_window: false,
            }),
            headers_bytes: 52,
        };
        let [size, start] = [1448u16, 20].map(u16::to_ne_bytes);
        let mut expected = [1, 1, 0, 0, size[0], size[1], start[0], start[1], 0, 0];
        expected[2..4].copy_from_slice(&52u16.to_ne_bytes());
        expected[8..].copy_from_slice(&16u16.to_ne_bytes());
        assert_eq!(header.bytes(), expected);
    }

    #[test]
    fn a_kind_of_segmentation_that_is_unknown_is_none() {
        let mut bytes = [0; HEADER_BYTES];
        bytes[GSO_TYPE] = 3; // UDP fragmentation, which Linux has removed.
        assert_eq!(VnetHeader::parse(&bytes).segmentation, None);
    }
}
