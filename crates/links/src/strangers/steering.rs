//! Classic BPF programs that select the socket of each packet.
//!
//! One program is always attached: packets with verification tag 0 and COOKIE ECHOs have separate sockets. The other one also
//! knows what the endpoint expects ([`Expected`]): all valid tags, the ports of INITs, and the mark of its cookies; all other
//! packets go to the socket of strays. The selection decides only how likely a packet is received: all sockets handle it in the
//! same way.

use libc::{
    BPF_ABS, BPF_ALU, BPF_B, BPF_H, BPF_IND, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, BPF_LD, BPF_LDX,
    BPF_LEN, BPF_MEM, BPF_MUL, BPF_RET, BPF_ST, BPF_W, BPF_XOR, sock_filter,
};

use super::Class;
use crate::bpf::{DROP, TAKE, jump, jump_if_equal_to_index, plain, search};
use crate::link::{CookieMark, Expected};

/// Offsets of the destination port and of the verification tag in an SCTP packet (RFC 9260 §3.1).
const DESTINATION_PORT_OFFSET: u32 = 2;
const TAG_OFFSET: u32 = 4;
/// Offset of the type of the first chunk, and of the cookie if that is COOKIE ECHO.
const CHUNK_TYPE_OFFSET: u32 = 12;
const COOKIE_OFFSET: u32 = 16;
/// The type of COOKIE ECHO (RFC 9260 §3.2).
const COOKIE_ECHO: u32 = 10;
/// Maximum number of tags in a program, and of ports. It then has some 2,300 of the 4,096 instructions that the kernel permits,
/// which fit the memory for filters of older kernels (20 KB), and executes 26 of them for a packet. With more ports, every port
/// is expected: they are those of a program that connects to many peers.
pub(crate) const EXPECTED_TAGS_MAX: usize = 1024;
pub(crate) const INIT_PORTS_MAX: usize = 128;

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

/// Returns the program for what is expected. `None`: these are too many tags for a program.
pub(crate) fn of(attach_point: AttachPoint, expected: Expected<'_>) -> Option<Vec<sock_filter>> {
    match expected == Expected::default() {
        true => Some(by_kind(attach_point)),
        false => by_expectation(attach_point, expected),
    }
}

/// Steers only by tag 0 and COOKIE ECHO. A datagram that is too short for a load goes to the first socket of a group, because the
/// kernel then ends a program with 0; raw sockets drop it.
pub(super) fn by_kind(attach_point: AttachPoint) -> Vec<sock_filter> {
    vec![
        attach_point.load(BPF_W, TAG_OFFSET),
        jump(BPF_JEQ, 0, 0, 1),
        attach_point.choose(Class::Inits),
        attach_point.load(BPF_B, CHUNK_TYPE_OFFSET),
        jump(BPF_JEQ, COOKIE_ECHO, 0, 1),
        attach_point.choose(Class::Cookies),
        attach_point.choose(Class::Peers),
    ]
}

/// Steers packets that are not expected to the strays, and the others by tag 0 and COOKIE ECHO. `None`: these are too many tags
/// for a program.
fn by_expectation(attach_point: AttachPoint, expected: Expected<'_>) -> Option<Vec<sock_filter>> {
    if expected.tags.is_some_and(|tags| tags.len() > EXPECTED_TAGS_MAX) {
        return None;
    }
    let mut program = Vec::new();
    require_bytes(CHUNK_TYPE_OFFSET + 1, attach_point, &mut program);
    program.push(attach_point.load(BPF_W, TAG_OFFSET));
    if_equal(0, inits(attach_point, expected.init_ports), &mut program);
    program.push(attach_point.load(BPF_B, CHUNK_TYPE_OFFSET));
    if_equal(COOKIE_ECHO, cookies(attach_point, expected.cookies), &mut program);
    match expected.tags {
        Some(tags) => {
            program.push(attach_point.load(BPF_W, TAG_OFFSET));
            let strays = attach_point.choose(Class::Strays);
            search(&sorted(tags.to_vec()), attach_point.choose(Class::Peers), strays, &mut program);
        }
        None => program.push(attach_point.choose(Class::Peers)),
    }
    Some(program)
}

/// Appends instructions that make shorter datagrams strays. A group would get the result 0, the socket of peers, for a load
/// beyond the end of a datagram; raw sockets drop the packet then.
fn require_bytes(bytes: u32, attach_point: AttachPoint, program: &mut Vec<sock_filter>) {
    if attach_point == AttachPoint::Group {
        let length = plain(BPF_LD | BPF_W | BPF_LEN, 0);
        program.extend([length, jump(BPF_JGE, bytes, 1, 0), attach_point.choose(Class::Strays)]);
    }
}

/// Appends instructions that are executed if this value is loaded, and that end the program.
fn if_equal(value: u32, instructions: Vec<sock_filter>, program: &mut Vec<sock_filter>) {
    program.extend([jump(BPF_JEQ, value, 1, 0), plain(BPF_JMP | BPF_JA, instructions.len() as u32)]);
    program.extend(instructions);
}

/// Returns instructions for packets with tag 0. A raw socket has another program for ports.
fn inits(attach_point: AttachPoint, ports: Option<&[u16]>) -> Vec<sock_filter> {
    let inits = attach_point.choose(Class::Inits);
    match ports {
        Some(ports) if attach_point == AttachPoint::Group && ports.len() <= INIT_PORTS_MAX => {
            let mut program = vec![attach_point.load(BPF_H, DESTINATION_PORT_OFFSET)];
            let ports = sorted(ports.iter().copied().map(u32::from).collect());
            search(&ports, inits, attach_point.choose(Class::Strays), &mut program);
            program
        }
        _ => vec![inits],
    }
}

/// Returns instructions for COOKIE ECHOs.
fn cookies(attach_point: AttachPoint, mark: Option<CookieMark>) -> Vec<sock_filter> {
    let cookies = attach_point.choose(Class::Cookies);
    let Some(CookieMark { mask, factor }) = mark else { return vec![cookies] };
    let mut program = Vec::new();
    require_bytes(COOKIE_OFFSET + size_of::<u32>() as u32, attach_point, &mut program);
    program.extend([
        attach_point.load(BPF_W, COOKIE_OFFSET),
        plain(BPF_ST, 0),
        attach_point.load(BPF_W, TAG_OFFSET),
        plain(BPF_ALU | BPF_XOR | BPF_K, mask),
        plain(BPF_ALU | BPF_MUL | BPF_K, factor),
        plain(BPF_LDX | BPF_MEM, 0),
        jump_if_equal_to_index(0, 1),
        cookies,
        attach_point.choose(Class::Strays),
    ]);
    program
}

fn sorted(mut values: Vec<u32>) -> Vec<u32> {
    values.sort_unstable();
    values.dedup();
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::run;

    const MARK: CookieMark = CookieMark { mask: 0x1234_5678, factor: 0x9e37_79b1 };

    fn packet(tag: u32, chunk_type: u8) -> Vec<u8> {
        [&[1, 2, 3, 4][..], &tag.to_be_bytes(), &[0; 4], &[chunk_type, 0, 0, 4]].concat()
    }

    fn init_to(port: u16) -> Vec<u8> {
        [&[1, 2][..], &port.to_be_bytes(), &packet(0, 1)[4..]].concat()
    }

    fn cookie_echo(tag: u32, mark: u32) -> Vec<u8> {
        [&packet(tag, 10)[..], &mark.to_be_bytes(), &[7; 20]].concat()
    }

    fn tags(tags: &[u32]) -> Expected<'_> {
        Expected { tags: Some(tags), ..Expected::default() }
    }

    fn by_tag(expected: &[u32]) -> Vec<sock_filter> {
        by_expectation(AttachPoint::Group, tags(expected)).unwrap()
    }

    #[test]
    fn handshakes_have_sockets_of_their_own_in_both_programs() {
        for program in [by_kind(AttachPoint::Group), by_tag(&[5, 6])] {
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
            let program = by_tag(&tags);
            for &tag in &tags {
                assert_eq!(run(&program, &packet(tag, 0)), Class::Peers as u32, "{tag} of {count}");
                // All of them are odd.
                assert_eq!(run(&program, &packet(tag ^ 1 | 2, 0)), Class::Strays as u32, "{tag} of {count}");
            }
            assert_eq!(run(&program, &packet(u32::MAX - 1, 0)), Class::Strays as u32);
        }
    }

    #[test]
    fn an_init_for_a_port_that_is_not_expected_is_a_stray() {
        for count in [0, 1, 2, 9, INIT_PORTS_MAX] {
            let ports: Vec<u16> = (0..count as u16).rev().map(|n| n * 311 + 7).collect();
            let expected = Expected { init_ports: Some(&ports), ..tags(&[5]) };
            let program = by_expectation(AttachPoint::Group, expected).unwrap();
            for &port in &ports {
                assert_eq!(run(&program, &init_to(port)), Class::Inits as u32, "{port} of {count}");
                assert_eq!(run(&program, &init_to(port + 1)), Class::Strays as u32, "{port} of {count}");
            }
            assert_eq!(run(&program, &init_to(6)), Class::Strays as u32);
            assert_eq!(run(&program, &packet(5, 0)), Class::Peers as u32, "whatever its port is");
        }
        let many: Vec<u16> = (1..=INIT_PORTS_MAX as u16 + 1).collect();
        let expected = Expected { init_ports: Some(&many), ..Expected::default() };
        let program = by_expectation(AttachPoint::Group, expected).unwrap();
        assert_eq!(run(&program, &init_to(5000)), Class::Inits as u32, "too many ports for a program");
    }

    #[test]
    fn a_raw_socket_takes_inits_for_all_ports() {
        // Another program at the socket knows the ports.
        let expected = Expected { init_ports: Some(&[7]), ..tags(&[5]) };
        let program = by_expectation(AttachPoint::RawIpv6(Class::Inits), expected).unwrap();
        assert_eq!((run(&program, &init_to(7)), run(&program, &init_to(8))), (TAKE, TAKE));
    }

    #[test]
    fn the_programs_for_no_expectation_and_for_one_twice_are_the_short_ones() {
        let program = of(AttachPoint::Group, Expected::default()).unwrap();
        assert_eq!(program.len(), by_kind(AttachPoint::Group).len());
        let program = of(AttachPoint::Group, tags(&[5, 6, 5])).unwrap();
        assert_eq!(program.len(), by_tag(&[5, 6]).len());
        assert_eq!(run(&program, &packet(7, 0)), Class::Strays as u32);
        let many = vec![5; EXPECTED_TAGS_MAX + 1];
        assert!(of(AttachPoint::Group, tags(&many)).is_none());
    }

    #[test]
    fn a_cookie_without_the_mark_is_a_stray_whatever_its_tag_is() {
        let expected = Expected { cookies: Some(MARK), ..tags(&[5]) };
        let program = by_expectation(AttachPoint::Group, expected).unwrap();
        for tag in [1, 5, 0x8000_0000, u32::MAX] {
            let right = MARK.of(tag);
            assert_eq!(run(&program, &cookie_echo(tag, right)), Class::Cookies as u32, "{tag}");
            for bit in 0..u32::BITS {
                let wrong = cookie_echo(tag, right ^ 1 << bit);
                assert_eq!(run(&program, &wrong), Class::Strays as u32, "{tag} {bit}");
            }
        }
        assert_eq!(run(&program, &packet(5, 0)), Class::Peers as u32);
    }

    #[test]
    fn a_packet_that_is_too_short_is_a_stray_where_something_is_expected() {
        let expected = Expected { cookies: Some(MARK), init_ports: Some(&[0x0304]), ..tags(&[5]) };
        let program = by_expectation(AttachPoint::Group, expected).unwrap();
        for bytes in 0..13 {
            assert_eq!(run(&program, &packet(5, 0)[..bytes]), Class::Strays as u32, "{bytes}");
        }
        for bytes in 13..20 {
            let cut = &cookie_echo(5, MARK.of(5))[..bytes];
            assert_eq!(run(&program, cut), Class::Strays as u32, "{bytes}");
        }
    }

    #[test]
    fn a_raw_socket_for_cookies_takes_those_with_the_mark() {
        let expected = Expected { cookies: Some(MARK), ..tags(&[5]) };
        let raw_v4 = |class| {
            // The first instruction loads the length of the IP header.
            let mut program = vec![plain(BPF_LDX | BPF_B | libc::BPF_MSH, 0)];
            program.extend(by_expectation(AttachPoint::RawIpv4(class), expected).unwrap());
            program
        };
        for (mark, taken, dropped) in
            [(MARK.of(9), Class::Cookies, Class::Strays), (MARK.of(9) + 1, Class::Strays, Class::Cookies)]
        {
            let packet = [&[0x46; 24][..], &cookie_echo(9, mark)].concat();
            assert_eq!(run(&raw_v4(taken), &packet), TAKE);
            assert_eq!(run(&raw_v4(dropped), &packet), DROP);
            let v6 = |class| by_expectation(AttachPoint::RawIpv6(class), expected).unwrap();
            assert_eq!(run(&v6(taken), &packet[24..]), TAKE);
            assert_eq!(run(&v6(dropped), &packet[24..]), DROP);
        }
    }

    #[test]
    fn programs_have_a_bounded_length() {
        let tags: Vec<u32> = (1..=EXPECTED_TAGS_MAX as u32 + 1).collect();
        let ports: Vec<u16> = (0..INIT_PORTS_MAX as u16).collect();
        let expected = Expected { tags: Some(&tags), init_ports: Some(&ports), cookies: Some(MARK) };
        assert!(by_expectation(AttachPoint::Group, expected).is_none());
        let most = Expected { tags: Some(&tags[1..]), ..expected };
        let bytes = size_of::<sock_filter>() * by_expectation(AttachPoint::Group, most).unwrap().len();
        assert!(bytes < 20_000, "{bytes}");
    }
}
