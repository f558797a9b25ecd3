//! Classic BPF programs that choose the socket for each packet.
//!
//! One program is always there: packets with verification tag 0 and COOKIE ECHOs have sockets of their own. The other one
//! also knows every tag that may come, so that all other packets go to the socket of strays. Whatever a program chooses,
//! the packet is handled alike; only its chance to be read differs.

use libc::{
    BPF_ABS, BPF_B, BPF_IND, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, BPF_LD, BPF_LEN, BPF_RET, BPF_W,
    sock_filter,
};

use super::Class;
use crate::bpf::{DROP, TAKE, jump, plain};

/// Where the verification tag is in an SCTP packet (RFC 9260 §3.1).
const TAG_OFFSET: u32 = 4;
/// Where the type of the first chunk is.
const CHUNK_TYPE_OFFSET: u32 = 12;
/// The type of COOKIE ECHO (RFC 9260 §3.2).
const COOKIE_ECHO: u32 = 10;
/// The most tags that a program tells from others. It then has 2,056 instructions of the 4,096 that the kernel takes, and
/// looks at 24 of them for a packet.
pub(crate) const EXPECTED_TAGS_MAX: usize = 1024;
/// Tags that are compared one by one, at the end of a search by halves.
const LEAF_TAGS: usize = 4;

/// Where a program meets packets, and how it says which socket takes one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Before a group of UDP sockets: the number of a socket is its place in the group.
    Group,
    /// Behind the raw socket of a class: it takes packets of this class, and drops the rest.
    RawIpv4(Class),
    RawIpv6(Class),
}

impl Place {
    /// Loads a part of the SCTP packet. Over IPv4 a raw socket sees the IP header, and a program that comes before has loaded its
    /// length as the index.
    fn load(self, width: u32, offset: u32) -> sock_filter {
        let mode = if matches!(self, Place::RawIpv4(_)) { BPF_IND } else { BPF_ABS };
        plain(BPF_LD | width | mode, offset)
    }

    /// Ends a program for a packet of a class.
    fn choose(self, class: Class) -> sock_filter {
        let chosen = match self {
            Place::Group => class as u32,
            Place::RawIpv4(own) | Place::RawIpv6(own) if own == class => TAKE,
            Place::RawIpv4(_) | Place::RawIpv6(_) => DROP,
        };
        plain(BPF_RET | BPF_K, chosen)
    }
}

/// Steers by tag 0 and COOKIE ECHO alone. A datagram that is too short for a load goes to the first socket of a group, as the
/// kernel ends a program with 0 then, and is dropped by raw sockets.
pub(crate) fn by_kind(place: Place) -> Vec<sock_filter> {
    let mut program = handshakes(place);
    program.push(place.choose(Class::Peers));
    program
}

/// Steers all packets to the strays that have none of the expected tags, as well as by tag 0 and COOKIE ECHO. `None`: these
/// are too many tags for a program.
pub(crate) fn by_tag(place: Place, expected: &[u32]) -> Option<Vec<sock_filter>> {
    if expected.len() > EXPECTED_TAGS_MAX {
        return None;
    }
    let mut tags = expected.to_vec();
    tags.sort_unstable();
    tags.dedup();
    let mut program = Vec::new();
    if place == Place::Group {
        program.extend([
            plain(BPF_LD | BPF_W | BPF_LEN, 0),
            jump(BPF_JGE, CHUNK_TYPE_OFFSET + 1, 1, 0),
            place.choose(Class::Strays),
        ]);
    }
    program.extend(handshakes(place));
    program.push(place.load(BPF_W, TAG_OFFSET));
    search(place, &tags, &mut program);
    Some(program)
}

fn handshakes(place: Place) -> Vec<sock_filter> {
    vec![
        place.load(BPF_W, TAG_OFFSET),
        jump(BPF_JEQ, 0, 0, 1),
        place.choose(Class::Inits),
        place.load(BPF_B, CHUNK_TYPE_OFFSET),
        jump(BPF_JEQ, COOKIE_ECHO, 0, 1),
        place.choose(Class::Cookies),
    ]
}

/// Looks for the loaded tag among sorted ones by halves.
fn search(place: Place, tags: &[u32], program: &mut Vec<sock_filter>) {
    if tags.len() <= LEAF_TAGS {
        let past_strays = |n: usize| (tags.len() - n) as u8;
        program.extend(tags.iter().enumerate().map(|(n, &tag)| jump(BPF_JEQ, tag, past_strays(n), 0)));
        program.extend([place.choose(Class::Strays), place.choose(Class::Peers)]);
        return;
    }
    let (lower, upper) = tags.split_at(tags.len() / 2);
    program.push(jump(BPF_JGE, upper[0], 0, 1));
    let to_upper = program.len();
    program.push(plain(BPF_JMP | BPF_JA, 0));
    search(place, lower, program);
    program[to_upper].k = (program.len() - to_upper - 1) as u32;
    search(place, upper, program);
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
        for program in [by_kind(Place::Group), by_tag(Place::Group, &[5, 6]).unwrap()] {
            assert_eq!(run(&program, &packet(0, 1)), Class::Inits as u32);
            assert_eq!(run(&program, &packet(5, 10)), Class::Cookies as u32);
            assert_eq!(run(&program, &packet(99, 10)), Class::Cookies as u32);
            assert_eq!(run(&program, &packet(5, 0)), Class::Peers as u32);
        }
        assert_eq!(run(&by_kind(Place::Group), &packet(99, 0)), Class::Peers as u32);
        assert_eq!(run(&by_kind(Place::Group), &[0; 3]), Class::Peers as u32);
    }

    #[test]
    fn exactly_the_expected_tags_go_to_the_peers() {
        for count in [0, 1, 2, 3, 4, 5, 9, 100, EXPECTED_TAGS_MAX] {
            let tags: Vec<u32> = (1..=count as u32).rev().map(|n| n.wrapping_mul(0x9e37_79b1) | 1).collect();
            let program = by_tag(Place::Group, &tags).unwrap();
            for &tag in &tags {
                assert_eq!(run(&program, &packet(tag, 0)), Class::Peers as u32, "{tag} of {count}");
                // All of them are odd.
                assert_eq!(run(&program, &packet(tag ^ 1 | 2, 0)), Class::Strays as u32, "{tag} of {count}");
            }
            assert_eq!(run(&program, &packet(u32::MAX - 1, 0)), Class::Strays as u32);
        }
    }

    #[test]
    fn what_has_no_chunk_is_a_stray_where_tags_are_known() {
        assert_eq!(run(&by_tag(Place::Group, &[5]).unwrap(), &packet(5, 0)[..12]), Class::Strays as u32);
    }

    #[test]
    fn programs_have_a_bounded_length() {
        let tags: Vec<u32> = (1..=EXPECTED_TAGS_MAX as u32 + 1).collect();
        assert!(by_tag(Place::Group, &tags).is_none());
        assert_eq!(by_tag(Place::Group, &tags[1..]).unwrap().len(), 2056);
    }
}
