//! The classic BPF programs of raw sockets: each accepts packets of one class for some ports.

use libc::{
    BPF_ABS, BPF_B, BPF_H, BPF_IND, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JGT, BPF_JMP, BPF_K, BPF_LD, BPF_LDX,
    BPF_MSH, BPF_RET, sock_filter,
};

use crate::bpf::{DROP, TAKE, jump, plain};
use crate::link::Expected;
use crate::strangers::Class;
use crate::strangers::steering::{self, AttachPoint};

/// Maximum number of port ranges in a program, which it compares one by one. More ports share ranges, so that some unwanted
/// packets pass.
pub(super) const RANGES_MAX: usize = 256;
/// Offset of the destination port in an SCTP packet (RFC 9260 §3.1).
const DESTINATION_PORT: u32 = 2;

/// Packets that the sockets of an address accept together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) ports: &'a [u16],
    /// Maximum number of ranges for the ports, each from its lowest to its highest port.
    pub(super) ranges_max: usize,
    /// Packets that are no strays. INITs are expected at `ports`.
    pub(super) expected: Expected<'a>,
}

impl Wanted<'_> {
    /// Returns the program for the socket of a class, with separate sockets for strangers. `None`: these are too many tags.
    pub(super) fn of_class(self, class: Class, ipv6: bool) -> Option<Vec<sock_filter>> {
        let attach_point = if ipv6 { AttachPoint::RawIpv6(class) } else { AttachPoint::RawIpv4(class) };
        Some(self.then(ipv6, steering::of(attach_point, self.expected)?))
    }

    /// Returns the program for a socket that accepts every class.
    pub(super) fn of_every_class(self, ipv6: bool) -> Vec<sock_filter> {
        self.then(ipv6, vec![plain(BPF_RET | BPF_K, TAKE)])
    }

    /// Builds a program that drops packets for other ports and applies `rest` to those for these.
    fn then(self, ipv6: bool, rest: Vec<sock_filter>) -> Vec<sock_filter> {
        let mut sorted = self.ports.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let mut program = load_port(ipv6);
        let mut to_rest = Vec::new();
        for range in sorted.chunks(sorted.len().div_ceil(self.ranges_max).max(1)) {
            let (first, last) = (u32::from(range[0]), u32::from(range[range.len() - 1]));
            if first == last {
                program.push(jump(BPF_JEQ, first, 0, 1));
            } else {
                program.push(jump(BPF_JGE, first, 0, 2));
                program.push(jump(BPF_JGT, last, 1, 0));
            }
            to_rest.push(program.len());
            program.push(plain(BPF_JMP | BPF_JA, 0));
        }
        program.push(plain(BPF_RET | BPF_K, DROP));
        for at in to_rest {
            program[at].k = (program.len() - at - 1) as u32;
        }
        program.extend(rest);
        program
    }
}

/// Returns a program that accepts nothing.
pub(super) fn nothing() -> [sock_filter; 1] {
    [plain(BPF_RET | BPF_K, DROP)]
}

/// Returns instructions that load the destination port. A packet that is too short is dropped. An IPv4 raw socket sees the IP
/// header, an IPv6 one does not.
fn load_port(ipv6: bool) -> Vec<sock_filter> {
    if ipv6 {
        return vec![plain(BPF_LD | BPF_H | BPF_ABS, DESTINATION_PORT)];
    }
    // The length of the IP header, four times the low half of its first byte, becomes the index.
    vec![plain(BPF_LDX | BPF_B | BPF_MSH, 0), plain(BPF_LD | BPF_H | BPF_IND, DESTINATION_PORT)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::run;
    use crate::strangers::thinning::sample::Sample;

    fn wanted(ports: &[u16]) -> Wanted<'_> {
        Wanted { ports, ranges_max: RANGES_MAX, expected: Expected::default() }
    }

    fn packet(port: u16, tag: u32, chunk_type: u8, ipv6: bool) -> Vec<u8> {
        // An IPv4 header with options.
        let header: &[u8] = if ipv6 { &[] } else { &[0x46; 24] };
        [header, &[1, 1], &port.to_be_bytes(), &tag.to_be_bytes(), &[0; 4], &[chunk_type, 0, 0, 4]].concat()
    }

    fn passes(program: &[sock_filter], port: u16) -> bool {
        run(program, &packet(port, 1, 0, true)) == TAKE
    }

    #[test]
    fn only_the_ports_that_are_named_pass() {
        let program = wanted(&[5001, 5000, 5001, 65_535]).of_every_class(true);
        for port in [5000, 5001, 65_535] {
            assert!(passes(&program, port), "{port}");
        }
        for port in [0, 4999, 5002, 65_534] {
            assert!(!passes(&program, port), "{port}");
        }
    }

    #[test]
    fn without_ports_nothing_passes() {
        for program in [wanted(&[]).of_every_class(true), nothing().to_vec()] {
            assert!((0..=u16::MAX).all(|port| !passes(&program, port)));
        }
    }

    #[test]
    fn many_ports_all_pass_in_a_program_of_bounded_length() {
        let ports: Vec<u16> = (0..20_000).map(|n| n * 3).collect();
        let program = wanted(&ports).of_every_class(true);
        assert!(program.len() <= 3 + 3 * RANGES_MAX);
        assert!(ports.iter().all(|port| passes(&program, *port)));
        assert!(!passes(&program, 65_000));
        let coarse = Wanted { ranges_max: 1, ..wanted(&[7, 9]) }.of_every_class(true);
        assert!(passes(&coarse, 8) && !passes(&coarse, 6) && !passes(&coarse, 10));
    }

    #[test]
    fn each_packet_for_a_port_passes_to_the_socket_of_its_class_alone() {
        let classes = [Class::Peers, Class::Inits, Class::Cookies, Class::Strays];
        let packets = [
            (0, 1, Class::Inits, Class::Inits),
            (7, 10, Class::Cookies, Class::Cookies),
            (9, 10, Class::Cookies, Class::Cookies),
            (7, 0, Class::Peers, Class::Peers),
            (9, 0, Class::Peers, Class::Strays),
        ];
        for ipv6 in [false, true] {
            for (tag, chunk_type, without_tags, with_tags) in packets {
                for (tags, expected) in [(None, without_tags), (Some(&[5, 7][..]), with_tags)] {
                    for class in classes {
                        let of_tags = Expected { tags, ..Expected::default() };
                        let wanted = Wanted { expected: of_tags, ..wanted(&[80, 81, 4000]) };
                        let program = wanted.of_class(class, ipv6).unwrap();
                        let taken = |port| run(&program, &packet(port, tag, chunk_type, ipv6)) == TAKE;
                        assert_eq!(taken(4000), class == expected, "{class:?} {tag} {chunk_type} {tags:?}");
                        assert!(!taken(82));
                    }
                }
            }
        }
    }

    #[test]
    fn the_longest_program_is_one_that_the_kernel_takes() {
        let ports: Vec<u16> = (0..20_000).map(|n| n * 3).collect();
        let tags: Vec<u32> = (1..=steering::EXPECTED_TAGS_MAX as u32).collect();
        let expected = Expected { tags: Some(&tags), ..Expected::default() };
        let wanted = Wanted { expected, ..wanted(&ports) };
        assert!(wanted.of_class(Class::Peers, false).unwrap().len() <= libc::BPF_MAXINSNS as usize);
        let tags = [&tags[..], &[u32::MAX]].concat();
        let expected = Expected { tags: Some(&tags), ..Expected::default() };
        assert!(Wanted { expected, ..wanted }.of_class(Class::Peers, false).is_none());
    }
    #[test]
    fn a_filter_against_a_flood_fits_behind_the_longest_program() {
        let ports: Vec<u16> = (0..20_000).map(|n| n * 3).collect();
        let tags: Vec<u32> = (1..=steering::EXPECTED_TAGS_MAX as u32).collect();
        let expected = Expected { tags: Some(&tags), ..Expected::default() };
        let wanted = Wanted { expected, ..wanted(&ports) };
        let filter = Sample::of_most_buckets();
        let program = filter.after(wanted.of_class(Class::Inits, false).unwrap());
        assert!(program.len() <= libc::BPF_MAXINSNS as usize, "{}", program.len());
    }
}
