//! Classic BPF programs that choose the socket of a group for each datagram.
//!
//! One program is always there: packets with verification tag 0 and COOKIE ECHOs have sockets of their own. The other one
//! also knows every tag that may come, so that all other packets go to the socket of strays. Whatever a program chooses,
//! the packet is handled alike; only its chance to be read differs.

use libc::{
    BPF_ABS, BPF_B, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, BPF_LD, BPF_LEN, BPF_RET, BPF_W, sock_filter,
};

use super::Class;

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

/// Steers by tag 0 and COOKIE ECHO alone. A datagram that is too short for a load goes to the first socket, as the kernel
/// ends a program with 0 then.
pub(super) fn by_kind() -> Vec<sock_filter> {
    let mut program = handshakes();
    program.push(choose(Class::Peers));
    program
}

/// Steers all packets to the strays that have none of the expected tags, as well as by tag 0 and COOKIE ECHO. `None`: these
/// are too many tags for a program.
pub(super) fn by_tag(expected: &[u32]) -> Option<Vec<sock_filter>> {
    if expected.len() > EXPECTED_TAGS_MAX {
        return None;
    }
    let mut tags = expected.to_vec();
    tags.sort_unstable();
    tags.dedup();
    let mut program = vec![
        plain(BPF_LD | BPF_W | BPF_LEN, 0),
        jump(BPF_JGE, CHUNK_TYPE_OFFSET + 1, 1, 0),
        choose(Class::Strays),
    ];
    program.extend(handshakes());
    program.push(load(BPF_W, TAG_OFFSET));
    search(&tags, &mut program);
    Some(program)
}

fn handshakes() -> Vec<sock_filter> {
    vec![
        load(BPF_W, TAG_OFFSET),
        jump(BPF_JEQ, 0, 0, 1),
        choose(Class::Inits),
        load(BPF_B, CHUNK_TYPE_OFFSET),
        jump(BPF_JEQ, COOKIE_ECHO, 0, 1),
        choose(Class::Cookies),
    ]
}

/// Looks for the loaded tag among sorted ones by halves.
fn search(tags: &[u32], program: &mut Vec<sock_filter>) {
    if tags.len() <= LEAF_TAGS {
        let past_strays = |n: usize| (tags.len() - n) as u8;
        program.extend(tags.iter().enumerate().map(|(n, &tag)| jump(BPF_JEQ, tag, past_strays(n), 0)));
        program.extend([choose(Class::Strays), choose(Class::Peers)]);
        return;
    }
    let (lower, upper) = tags.split_at(tags.len() / 2);
    program.push(jump(BPF_JGE, upper[0], 0, 1));
    let to_upper = program.len();
    program.push(plain(BPF_JMP | BPF_JA, 0));
    search(lower, program);
    program[to_upper].k = (program.len() - to_upper - 1) as u32;
    search(upper, program);
}

fn plain(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

fn load(width: u32, offset: u32) -> sock_filter {
    plain(BPF_LD | width | BPF_ABS, offset)
}

/// Skips `jt` instructions where the comparison holds, `jf` where not.
fn jump(comparison: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: (BPF_JMP | comparison | BPF_K) as u16, jt, jf, k }
}

/// Ends a program: the number of a socket is its place in the group.
fn choose(class: Class) -> sock_filter {
    plain(BPF_RET | BPF_K, class as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program as the kernel does.
    fn run(program: &[sock_filter], datagram: &[u8]) -> u32 {
        let (mut at, mut accumulator) = (0, 0);
        loop {
            let sock_filter { code, jt, jf, k } = program[at];
            at += 1;
            let from = |bytes: usize| datagram.get(k as usize..k as usize + bytes);
            let branch = |holds: bool| usize::from(if holds { jt } else { jf });
            match u32::from(code) {
                code if code == BPF_RET | BPF_K => return k,
                code if code == BPF_LD | BPF_W | BPF_LEN => accumulator = datagram.len() as u32,
                code if code == BPF_LD | BPF_W | BPF_ABS => match from(4) {
                    Some(word) => {
                        accumulator = word.iter().fold(0, |word, byte| word << 8 | u32::from(*byte))
                    }
                    None => return 0,
                },
                code if code == BPF_LD | BPF_B | BPF_ABS => match from(1) {
                    Some(byte) => accumulator = u32::from(byte[0]),
                    None => return 0,
                },
                code if code == BPF_JMP | BPF_JA => at += k as usize,
                code if code == BPF_JMP | BPF_JEQ | BPF_K => at += branch(accumulator == k),
                code if code == BPF_JMP | BPF_JGE | BPF_K => at += branch(accumulator >= k),
                other => panic!("unexpected instruction {other:#x}"),
            }
        }
    }

    fn packet(tag: u32, chunk_type: u8) -> Vec<u8> {
        [&[1, 2, 3, 4][..], &tag.to_be_bytes(), &[0; 4], &[chunk_type, 0, 0, 4]].concat()
    }

    #[test]
    fn handshakes_have_sockets_of_their_own_in_both_programs() {
        for program in [by_kind(), by_tag(&[5, 6]).unwrap()] {
            assert_eq!(run(&program, &packet(0, 1)), Class::Inits as u32);
            assert_eq!(run(&program, &packet(5, 10)), Class::Cookies as u32);
            assert_eq!(run(&program, &packet(99, 10)), Class::Cookies as u32);
            assert_eq!(run(&program, &packet(5, 0)), Class::Peers as u32);
        }
        assert_eq!(run(&by_kind(), &packet(99, 0)), Class::Peers as u32);
        assert_eq!(run(&by_kind(), &[0; 3]), Class::Peers as u32);
    }

    #[test]
    fn exactly_the_expected_tags_go_to_the_peers() {
        for count in [0, 1, 2, 3, 4, 5, 9, 100, EXPECTED_TAGS_MAX] {
            let tags: Vec<u32> = (1..=count as u32).rev().map(|n| n.wrapping_mul(0x9e37_79b1) | 1).collect();
            let program = by_tag(&tags).unwrap();
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
        assert_eq!(run(&by_tag(&[5]).unwrap(), &packet(5, 0)[..12]), Class::Strays as u32);
    }

    #[test]
    fn programs_have_a_bounded_length() {
        let tags: Vec<u32> = (1..=EXPECTED_TAGS_MAX as u32 + 1).collect();
        assert!(by_tag(&tags).is_none());
        assert_eq!(by_tag(&tags[1..]).unwrap().len(), 2056);
    }
}
