//! The classic BPF program that passes packets for some ports.

use libc::{
    BPF_ABS, BPF_B, BPF_H, BPF_IND, BPF_JEQ, BPF_JGE, BPF_JGT, BPF_JMP, BPF_K, BPF_LD, BPF_LDX, BPF_MSH,
    BPF_RET, sock_filter,
};

/// Ranges of ports that a program tells apart; it looks at them one by one. More ports than that share ranges, so that
/// some packets pass that nobody wants.
const RANGES_MAX: usize = 256;
/// Where the destination port is in an SCTP packet (RFC 9260 §3.1).
const DESTINATION_PORT: u32 = 2;
/// What a program returns to take all of a packet, and to drop it.
const TAKE: u32 = u32::MAX;
const DROP: u32 = 0;

/// Passes packets for these ports. An IPv4 raw socket sees the IP header, an IPv6 one does not.
pub(super) fn program(ports: &[u16], ipv6: bool) -> Vec<sock_filter> {
    with_ranges(ports, ipv6, RANGES_MAX)
}

/// Passes packets from the lowest to the highest of these ports.
pub(super) fn coarse(ports: &[u16], ipv6: bool) -> Vec<sock_filter> {
    with_ranges(ports, ipv6, 1)
}

fn with_ranges(ports: &[u16], ipv6: bool, ranges_max: usize) -> Vec<sock_filter> {
    let mut sorted = ports.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let mut program = load_port(ipv6);
    for range in sorted.chunks(sorted.len().div_ceil(ranges_max).max(1)) {
        let (first, last) = (u32::from(range[0]), u32::from(range[range.len() - 1]));
        if first == last {
            program.push(jump(BPF_JEQ, first, 0, 1));
        } else {
            program.push(jump(BPF_JGE, first, 0, 2));
            program.push(jump(BPF_JGT, last, 1, 0));
        }
        program.push(plain(BPF_RET | BPF_K, TAKE));
    }
    program.push(plain(BPF_RET | BPF_K, DROP));
    program
}

/// A packet that is too short for the load is dropped.
fn load_port(ipv6: bool) -> Vec<sock_filter> {
    if ipv6 {
        return vec![plain(BPF_LD | BPF_H | BPF_ABS, DESTINATION_PORT)];
    }
    // The length of the IP header, four times the low half of its first byte, becomes the index.
    vec![plain(BPF_LDX | BPF_B | BPF_MSH, 0), plain(BPF_LD | BPF_H | BPF_IND, DESTINATION_PORT)]
}

fn plain(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// Skips `jt` instructions where the comparison holds, `jf` where not.
fn jump(comparison: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: (BPF_JMP | comparison | BPF_K) as u16, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a program says of a packet for `port`: the instructions after the load, one by one.
    fn passes(program: &[sock_filter], port: u16) -> bool {
        let port = u32::from(port);
        let mut at = 1;
        loop {
            let sock_filter { code, jt, jf, k } = program[at];
            let holds = match u32::from(code) {
                code if code == BPF_RET | BPF_K => return k == TAKE,
                code if code == BPF_JMP | BPF_JEQ | BPF_K => port == k,
                code if code == BPF_JMP | BPF_JGE | BPF_K => port >= k,
                code if code == BPF_JMP | BPF_JGT | BPF_K => port > k,
                other => panic!("unexpected instruction {other:#x}"),
            };
            at += 1 + usize::from(if holds { jt } else { jf });
        }
    }

    #[test]
    fn only_the_ports_that_are_named_pass() {
        let program = program(&[5001, 5000, 5001, 65_535], true);
        for port in [5000, 5001, 65_535] {
            assert!(passes(&program, port), "{port}");
        }
        for port in [0, 4999, 5002, 65_534] {
            assert!(!passes(&program, port), "{port}");
        }
    }

    #[test]
    fn without_ports_nothing_passes() {
        let program = program(&[], true);
        assert!((0..=u16::MAX).all(|port| !passes(&program, port)));
    }

    #[test]
    fn many_ports_all_pass_in_a_program_of_bounded_length() {
        let ports: Vec<u16> = (0..20_000).map(|n| n * 3).collect();
        let program = program(&ports, true);
        assert!(program.len() <= 2 + 3 * RANGES_MAX);
        assert!(ports.iter().all(|port| passes(&program, *port)));
        assert!(!passes(&program, 65_000));
        let coarse = coarse(&[7, 9], true);
        assert!(passes(&coarse, 8) && !passes(&coarse, 6) && !passes(&coarse, 10));
    }
}
