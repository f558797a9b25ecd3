//! Classic BPF programs that select the socket of each packet.
//!
//! One program is always attached: packets with verification tag 0 and COOKIE ECHOs have separate sockets. The other one also
//! knows all valid tags, so that all other packets go to the socket of strays. The selection decides only how likely a
//! packet is received: all sockets handle it in the same way.

use libc::{BPF_ABS, BPF_B, BPF_IND, BPF_JEQ, BPF_JGE, BPF_K, BPF_LD, BPF_LEN, BPF_RET, BPF_W, sock_filter};

use super::Class;
use crate::bpf::{DROP, TAKE, jump, plain, search};

/// Offset of the verification tag in an SCTP packet (RFC 9260 §3.1).
const TAG_OFFSET: u32 = 4;
/// Offset of the type of the first chunk.
const CHUNK_TYPE_OFFSET: u32 = 12;
/// The type of COOKIE ECHO (RFC 9260 §3.2).
const COOKIE_ECHO: u32 = 10;
/// Maximum number of tags in a program. It then has 2,056 of the 4,096 instructions that the kernel permits, and executes 24 of
/// them for a packet.
pub(crate) const EXPECTED_TAGS_MAX: usize = 1024;

/// The attachment point of a program, which determines its input and its result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AttachPoint {
    /// At a group of UDP sockets: the result is the index of a socket in the group.
    Group,
    /// At the raw socket of a class: the program accepts packets of this class, and drops the rest.
    RawIpv4(Class),
    RawIpv6(Class),
}

impl AttachPoint {
    /// Loads a part of the SCTP packet. A raw IPv4 socket sees the IP header, whose length an earlier instruction has loaded as
    /// the index.
    fn load(self, width: u32, offset: u32) -> sock_filter {
        let mode = if matches!(self, AttachPoint::RawIpv4(_)) { BPF_IND } else { BPF_ABS };
        plain(BPF_LD | width | mode, offset)
    }

    /// Ends a program for a packet of a class.
    fn choose(self, class: Class) -> sock_filter {
        let chosen = match self {
            AttachPoint::Group => class as u32,
            AttachPoint::RawIpv4(own) | AttachPoint::RawIpv6(own) if own == class => TAKE,
            AttachPoint::RawIpv4(_) | AttachPoint::RawIpv6(_) => DROP,
        };
        plain(BPF_RET | BPF_K, chosen)
    }
}

/// Steers only by tag 0 and COOKIE ECHO. A datagram that is too short for a load goes to the first socket of a group, because the
/// kernel then ends a program with 0; raw sockets drop it.
pub(crate) fn by_kind(attach_point: AttachPoint) -> Vec<sock_filter> {
    let mut program = handshakes(attach_point);
    program.push(attach_point.choose(Class::Peers));
    program
}

/// Steers packets without an expected tag to the strays, and the others by tag 0 and COOKIE ECHO. `None`: these are too many tags
/// for a program.
pub(crate) fn by_tag(attach_point: AttachPoint, expected: &[u32]) -> Option<Vec<sock_filter>> {
    if expected.len() > EXPECTED_TAGS_MAX {
        return None;
    }
    let mut tags = expected.to_vec();
    tags.sort_unstable();
    tags.dedup();
    let mut program = Vec::new();
    if attach_point == AttachPoint::Group {
        program.extend([
            plain(BPF_LD | BPF_W | BPF_LEN, 0),
            jump(BPF_JGE, CHUNK_TYPE_OFFSET + 1, 1, 0),
            attach_point.choose(Class::Strays),
        ]);
    }
    program.extend(handshakes(attach_point));
    program.push(attach_point.load(BPF_W, TAG_OFFSET));
    search(&tags, attach_point.choose(Class::Peers), attach_point.choose(Class::Strays), &mut program);
    Some(program)
}

fn handshakes(attach_point: AttachPoint) -> Vec<sock_filter> {
    vec![
        attach_point.load(BPF_W, TAG_OFFSET),
        jump(BPF_JEQ, 0, 0, 1),
        attach_point.choose(Class::Inits),
        attach_point.load(BPF_B, CHUNK_TYPE_OFFSET),
        jump(BPF_JEQ, COOKIE_ECHO, 0, 1),
        attach_point.choose(Class::Cookies),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::run;

    fn packet(tag: u32, chunk_type: u8) -> Vec<u8> {
        [&[1, 2, 3, 4][..], &tag.to_be_bytes(), &[0; 4], &[chunk_type, 0, 0, 4]].concat()
    }

    #[test]
    fn handshakes_have_sockets_of_their_own_in_both_programs() {
        for program in [by_kind(AttachPoint::Group), by_tag(AttachPoint::Group, &[5, 6]).unwrap()] {
            assert_eq!(run(&program, &packet(0, 1)), Class::Inits as u32);
            assert_eq!(run(&program, &packet(5, 10)), Class::Cookies as u32);
            assert_eq!(run(&program, &packet(99, 10)), Class::Cookies as u32);
            assert_eq!(run(&program, &packet(5, 0)), Class::Peers as u32);
        }
        assert_eq!(run(&by_kind(AttachPoint::Group), &packet(99, 0)), Class::Peers as u32);
        assert_eq!(run(&by_kind(AttachPoint::Group), &[0; 3]), Class::Peers as u32);
    }

    #[test]
    fn exactly_the_expected_tags_go_to_the_peers() {
        for count in [0, 1, 2, 3, 4, 5, 9, 100, EXPECTED_TAGS_MAX] {
            let tags: Vec<u32> = (1..=count as u32).rev().map(|n| n.wrapping_mul(0x9e37_79b1) | 1).collect();
            let program = by_tag(AttachPoint::Group, &tags).unwrap();
            for &tag in &tags {
                assert_eq!(run(&program, &packet(tag, 0)), Class::Peers as u32, "{tag} of {count}");
                // All of them are odd.
                assert_eq!(run(&program, &packet(tag ^ 1 | 2, 0)), Class::Strays as u32, "{tag} of {count}");
            }
            assert_eq!(run(&program, &packet(u32::MAX - 1, 0)), Class::Strays as u32);
        }
    }

    #[test]
    fn a_packet_without_chunks_is_a_stray_where_tags_are_known() {
        assert_eq!(
            run(&by_tag(AttachPoint::Group, &[5]).unwrap(), &packet(5, 0)[..12]),
            Class::Strays as u32
        );
    }

    #[test]
    fn programs_have_a_bounded_length() {
        let tags: Vec<u32> = (1..=EXPECTED_TAGS_MAX as u32 + 1).collect();
        assert!(by_tag(AttachPoint::Group, &tags).is_none());
        assert_eq!(by_tag(AttachPoint::Group, &tags[1..]).unwrap().len(), 2056);
    }
}
