use links::device::PartialChecksum;
use proptest::prelude::*;

use super::*;

/// Fields of a super-packet as a kernel makes it.
#[derive(Clone, Debug)]
struct Made {
    is_v6: bool,
    is_tcp: bool,
    /// Bytes of options, or of an extension header of IPv6.
    ip_extra_bytes: usize,
    tcp_option_bytes: usize,
    tcp_flags: u8,
    sequence: u32,
    id: u16,
    class: u8,
    segment_bytes: usize,
    payload: Vec<u8>,
}

impl Made {
    fn ip_bytes(&self) -> usize {
        if self.is_v6 { 40 + self.ip_extra_bytes } else { 20 + self.ip_extra_bytes }
    }

    fn transport_bytes(&self) -> usize {
        if self.is_tcp { 20 + self.tcp_option_bytes } else { 8 }
    }

    fn protocol(&self) -> u8 {
        if self.is_tcp { 6 } else { 17 }
    }

    fn ip_header(&self, transport_bytes: usize) -> Vec<u8> {
        let mut ip;
        if self.is_v6 {
            let payload_bytes = (self.ip_extra_bytes + transport_bytes) as u16;
            ip = vec![0x60 | self.class >> 4, self.class << 4 | 0x0b, 1, 2];
            ip.extend(payload_bytes.to_be_bytes());
            ip.extend([if self.ip_extra_bytes > 0 { 60 } else { self.protocol() }, 64]);
            ip.extend((1..=32).collect::<Vec<u8>>());
            if self.ip_extra_bytes > 0 {
                // Destination options of padding alone.
                ip.extend([self.protocol(), 0, 1, 4, 0, 0, 0, 0]);
            }
        } else {
            let total_bytes = (self.ip_bytes() + transport_bytes) as u16;
            ip = vec![0x40 | (self.ip_bytes() / 4) as u8, self.class];
            ip.extend(total_bytes.to_be_bytes());
            ip.extend(self.id.to_be_bytes());
            ip.extend([0x40, 0, 64, self.protocol(), 0, 0, 198, 18, 0, 1, 198, 18, 0, 2]);
            ip.extend(vec![1; self.ip_extra_bytes]);
            let checksum = !plain_sum(&[&ip]);
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        ip
    }

    /// Returns the super-packet, with the sum of the pseudo header in place of its checksum.
    fn packet(&self) -> (VnetHeader, Vec<u8>) {
        let transport_bytes = self.transport_bytes() + self.payload.len();
        let mut packet = self.ip_header(transport_bytes);
        let pseudo = plain_sum(&[&pseudo_header(&packet, self.protocol(), transport_bytes)]);
        packet.extend([0x13, 0x89, 0xc0, 0x01]);
        let checksum_offset = if self.is_tcp {
            packet.extend(self.sequence.to_be_bytes());
            packet.extend([9, 8, 7, 6, ((self.transport_bytes() / 4) << 4) as u8, self.tcp_flags, 1, 0]);
            packet.extend(pseudo.to_be_bytes());
            packet.extend([0, 0]);
            packet.extend(vec![1; self.tcp_option_bytes]);
            16
        } else {
            packet.extend((transport_bytes as u16).to_be_bytes());
            packet.extend(pseudo.to_be_bytes());
            6
        };
        packet.extend(&self.payload);
        let kind = match (self.is_tcp, self.is_v6) {
            (true, false) => SegmentKind::TcpV4,
            (true, true) => SegmentKind::TcpV6,
            (false, _) => SegmentKind::Udp,
        };
        let header = VnetHeader {
            checksum: Some(PartialChecksum { start: self.ip_bytes() as u16, offset: checksum_offset }),
            segmentation: Some(Segmentation {
                kind,
                segment_bytes: self.segment_bytes as u16,
                reduced_window: self.is_tcp && self.tcp_flags & TCP_CWR != 0,
            }),
            headers_bytes: (self.ip_bytes() + self.transport_bytes()) as u16,
        };
        (header, packet)
    }

    fn super_packet(&self) -> SuperPacket {
        let (header, bytes) = self.packet();
        SuperPacket::new(header, &bytes, &MemoryBudget::default())
    }
}

/// Returns the checksum of RFC 1071 as its first paragraph describes it: 16-bit words, each carry added at once.
fn plain_sum(parts: &[&[u8]]) -> u16 {
    let bytes = parts.concat();
    bytes.chunks(2).fold(0u16, |sum, word| {
        let word = u16::from(word[0]) << 8 | u16::from(word.get(1).copied().unwrap_or(0));
        let (sum, carry) = sum.overflowing_add(word);
        sum + u16::from(carry)
    })
}

fn pseudo_header(packet: &[u8], protocol: u8, transport_bytes: usize) -> Vec<u8> {
    let length = (transport_bytes as u32).to_be_bytes();
    let addresses = if packet[0] >> 4 == 6 { &packet[8..40] } else { &packet[12..20] };
    [addresses, &length, &[0, 0, 0, protocol]].concat()
}

/// Checks lengths and checksums of a packet on the line, and returns its transport header and payload.
fn receive(made: &Made, packet: &[u8]) -> Vec<u8> {
    let transport_at = made.ip_bytes();
    if made.is_v6 {
        assert_eq!(usize::from(u16::from_be_bytes([packet[4], packet[5]])), packet.len() - 40);
    } else {
        assert_eq!(usize::from(u16::from_be_bytes([packet[2], packet[3]])), packet.len());
        assert_eq!(plain_sum(&[&packet[..transport_at]]), 0xffff, "the checksum of IPv4");
    }
    let transport = &packet[transport_at..];
    if !made.is_tcp {
        assert_eq!(usize::from(u16::from_be_bytes([transport[4], transport[5]])), transport.len());
    }
    let pseudo = pseudo_header(packet, made.protocol(), transport.len());
    assert_eq!(plain_sum(&[&pseudo, transport]), 0xffff, "the checksum of the transport");
    transport.to_vec()
}

fn any_made() -> impl Strategy<Value = Made> {
    let shape = (any::<bool>(), any::<bool>(), 0usize..3, 0usize..=10);
    let fields = (any::<u8>(), any::<u32>(), any::<u16>(), any::<u8>());
    let payload = (1usize..1500, prop::collection::vec(any::<u8>(), 1..9000));
    (shape, fields, payload).prop_map(|(shape, fields, (segment_bytes, payload))| {
        let (is_v6, is_tcp, extra, option_words) = shape;
        let (tcp_flags, sequence, id, class) = fields;
        let ip_extra_bytes = if is_v6 { extra.min(1) * 8 } else { extra * 4 };
        let tcp_option_bytes = option_words * 4;
        Made {
            is_v6,
            is_tcp,
            ip_extra_bytes,
            tcp_option_bytes,
            tcp_flags,
            sequence,
            id,
            class,
            segment_bytes,
            payload,
        }
    })
}

fn joined(packet: &SuperPacket, segments: Range<u16>, ecn: Ecn) -> (VnetHeader, Vec<u8>) {
    let mut head = Vec::new();
    let (header, rest) = packet.write(segments, ecn, &mut head);
    (header, [&head[..], rest].concat())
}

/// Returns consecutive ranges, one for each place where the packet is broken.
fn ranges(segments: u16, breaks: &[u16]) -> Vec<Range<u16>> {
    let mut at: Vec<u16> = breaks.iter().map(|at| at % segments).chain([0, segments]).collect();
    at.sort_unstable();
    at.dedup();
    at.windows(2).map(|ends| ends[0]..ends[1]).collect()
}

proptest! {
    /// Joining all segments of a super-packet restores the super-packet.
    #[test]
    fn joining_all_segments_gives_the_same_bytes(made in any_made()) {
        let (header, bytes) = made.packet();
        let packet = made.super_packet();
        prop_assert_eq!(usize::from(packet.segments()), made.payload.len().div_ceil(made.segment_bytes));
        let (joined_header, joined_bytes) = joined(&packet, 0..packet.segments(), packet.ecn());
        prop_assert_eq!(&joined_bytes, &bytes);
        prop_assert_eq!(joined_header.checksum, header.checksum);
        if packet.segments() > 1 {
            prop_assert_eq!(joined_header, header);
        }
    }

    /// Every segment is a packet that a receiver accepts, and together they carry the payload in order.
    #[test]
    fn each_segment_is_a_good_packet(made in any_made()) {
        let packet = made.super_packet();
        let last = packet.segments() - 1;
        let mut payload = Vec::new();
        for segment in 0..packet.segments() {
            let on_line = packet.on_line(segment, packet.ecn());
            prop_assert_eq!(on_line.len(), packet.segment_bytes(segment));
            let transport = receive(&made, &on_line);
            if !made.is_v6 {
                let id = u16::from_be_bytes([on_line[4], on_line[5]]);
                prop_assert_eq!(id, made.id.wrapping_add(segment));
            }
            if made.is_tcp {
                let sequence = u32::from_be_bytes([transport[4], transport[5], transport[6], transport[7]]);
                prop_assert_eq!(sequence, made.sequence.wrapping_add(payload.len() as u32));
                let mut flags = made.tcp_flags;
                if segment != last { flags &= !0x09; }
                if segment != 0 { flags &= !0x80; }
                prop_assert_eq!(transport[13], flags);
            }
            payload.extend_from_slice(&transport[made.transport_bytes()..]);
        }
        prop_assert_eq!(payload, made.payload);
    }

    /// Wherever the line breaks a super-packet, the pieces are super-packets whose segments are those of the whole.
    #[test]
    fn pieces_have_the_segments_of_the_whole(made in any_made(), breaks in prop::collection::vec(any::<u16>(), 0..5)) {
        let packet = made.super_packet();
        for range in ranges(packet.segments(), &breaks) {
            let (header, bytes) = joined(&packet, range.clone(), packet.ecn());
            let piece = SuperPacket::new(header, &bytes, &MemoryBudget::default());
            prop_assert_eq!(piece.segments(), range.end - range.start);
            for (number, segment) in range.enumerate() {
                let ecn = packet.ecn();
                prop_assert_eq!(piece.on_line(number as u16, ecn), packet.on_line(segment, ecn));
            }
        }
    }

    /// A mark changes only the ECN field and the checksum of IPv4.
    #[test]
    fn a_mark_keeps_the_packet_good(made in any_made()) {
        let packet = made.super_packet();
        let ecn = Ecn::CongestionExperienced;
        let (_, marked) = joined(&packet, 0..packet.segments(), ecn);
        let on_line = packet.on_line(0, ecn);
        receive(&made, &on_line);
        for bytes in [marked, on_line] {
            prop_assert_eq!(SuperPacket::new(VnetHeader::default(), &bytes, &MemoryBudget::default()).ecn(), ecn);
            let class = (bytes[0] << 4) | (bytes[1] >> 4);
            prop_assert_eq!(if made.is_v6 { class } else { bytes[1] }, made.class | 0b11);
        }
    }

    /// No header and no bytes of a host cause a panic; a malformed packet passes unchanged as one packet.
    #[test]
    fn malformed_packets_pass_unchanged(
        start in prop::collection::vec(any::<u8>(), 0..90),
        version in prop::sample::select(vec![4u8, 5, 6, 0]),
        numbers in any::<(u16, u16, u16)>(),
        small in any::<bool>(),
        kind in prop::sample::select(vec![SegmentKind::TcpV4, SegmentKind::TcpV6, SegmentKind::Udp]),
        ecn in 0u8..4,
    ) {
        let mut bytes = start;
        if let Some(first) = bytes.first_mut() { *first = version << 4 | *first & 0xf; }
        let place = |number: u16| if small { number % 64 } else { number };
        let header = VnetHeader {
            checksum: Some(PartialChecksum { start: place(numbers.0), offset: place(numbers.1) }),
            segmentation: Some(Segmentation { kind, segment_bytes: place(numbers.2), reduced_window: small }),
            headers_bytes: numbers.0,
        };
        let packet = SuperPacket::new(header, &bytes, &MemoryBudget::default());
        let segments = packet.segments();
        if packet.cut.is_none() {
            let (same_header, same_bytes) = joined(&packet, 0..1, packet.ecn());
            prop_assert_eq!((same_header, &same_bytes), (header, &bytes));
        }
        for segment in [0, segments - 1] {
            let _ = packet.damaged(segment, Ecn::from_bits(ecn), Flips { first_bit: 7, bits: 3 });
        }
        joined(&packet, 0..segments, Ecn::from_bits(ecn));
    }
}

#[test]
fn a_damaged_packet_fails_its_checksum() {
    let payload = vec![7; 3000];
    let made = Made {
        is_v6: false,
        is_tcp: true,
        ip_extra_bytes: 0,
        tcp_option_bytes: 12,
        tcp_flags: 0x18,
        sequence: u32::MAX,
        id: u16::MAX,
        class: 0,
        segment_bytes: 1448,
        payload,
    };
    let packet = made.super_packet();
    let damaged = packet.damaged(1, Ecn::NotCapable, Flips { first_bit: 8 * 100, bits: 1 });
    let whole = packet.on_line(1, Ecn::NotCapable);
    assert_eq!(damaged.iter().zip(&whole).filter(|(a, b)| a != b).count(), 1);
    let transport = &damaged[20..];
    assert_ne!(plain_sum(&[&pseudo_header(&damaged, 6, transport.len()), transport]), 0xffff);
}
