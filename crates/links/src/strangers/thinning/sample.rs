//! The classic BPF program that keeps some packets of a flood, chosen at random.

use libc::{
    BPF_ABS, BPF_JA, BPF_JGT, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, SKF_AD_OFF, SKF_AD_RANDOM, sock_filter,
};

use super::prefix_hash::PrefixHash;
use crate::bpf::{DROP, TAKE, jump, plain, search};

/// The packets that are thinned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Thinned {
    Every,
    /// Those of these buckets, sorted.
    Buckets(PrefixHash, Vec<u32>),
}

/// A filter that keeps one in so many packets of a flood, chosen at random, and all others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sample {
    pub(super) thinned: Thinned,
    pub(super) keep_one_in: u32,
}

impl Sample {
    /// Returns the program for a socket that accepts every packet otherwise.
    pub(crate) fn program(&self) -> Vec<sock_filter> {
        let random = (SKF_AD_OFF + SKF_AD_RANDOM) as u32;
        let mut program = vec![
            plain(BPF_LD | BPF_W | BPF_ABS, random),
            jump(BPF_JGT, u32::MAX / self.keep_one_in.max(1), 1, 0),
            verdict(TAKE),
        ];
        match &self.thinned {
            Thinned::Every => program.push(verdict(DROP)),
            Thinned::Buckets(hash, buckets) => {
                program.extend(hash.instructions());
                search(buckets, verdict(DROP), verdict(TAKE), &mut program);
            }
        }
        program
    }

    /// Returns the program that accepts the packets which another one and this filter accept.
    pub(crate) fn after(&self, mut first: Vec<sock_filter>) -> Vec<sock_filter> {
        let end = first.len();
        for (at, instruction) in first.iter_mut().enumerate() {
            if u32::from(instruction.code) == BPF_RET | BPF_K && instruction.k == TAKE {
                *instruction = plain(BPF_JMP | BPF_JA, (end - at - 1) as u32);
            }
        }
        first.extend(self.program());
        first
    }
}

#[cfg(test)]
impl Sample {
    /// Returns the filter with the longest program.
    pub(crate) fn of_most_buckets() -> Self {
        let buckets = (0..super::THINNED_BUCKETS_MAX as u32).collect();
        Sample { thinned: Thinned::Buckets(PrefixHash::random(), buckets), keep_one_in: 2 }
    }
}

fn verdict(result: u32) -> sock_filter {
    plain(BPF_RET | BPF_K, result)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::super::prefix_hash::tests::header;
    use super::*;
    use crate::bpf::{Input, run_on};

    fn takes(program: &[sock_filter], source: &str, random: u32) -> bool {
        let source: IpAddr = source.parse().unwrap();
        let network = header(source);
        run_on(program, Input { packet: &[7; 8], network: &network, random }) == TAKE
    }

    #[test]
    fn one_in_so_many_packets_of_a_thinned_prefix_passes_and_all_others_do() {
        let hash = PrefixHash::with_key(3, 0x1234_5677_89ab_cdef);
        let hot = ["198.51.100.1", "2001:db8::1", "10.0.0.1"];
        let mut buckets: Vec<u32> = hot.map(|text| hash.bucket(text.parse().unwrap()) as u32).into();
        buckets.sort_unstable();
        let program = Sample { thinned: Thinned::Buckets(hash, buckets), keep_one_in: 10 }.program();
        for source in ["198.51.100.77", "2001:db8::2", "10.0.0.255"] {
            assert!(takes(&program, source, u32::MAX / 10), "{source}");
            assert!(!takes(&program, source, u32::MAX / 10 + 1), "{source}");
        }
        for source in ["192.0.2.1", "fe80::1"] {
            assert!(takes(&program, source, u32::MAX), "{source}");
        }
    }

    #[test]
    fn a_filter_for_every_packet_looks_at_no_source() {
        let program = Sample { thinned: Thinned::Every, keep_one_in: 4 }.program();
        assert!(takes(&program, "10.0.0.1", 1 << 29) && !takes(&program, "10.0.0.1", 1 << 31));
    }

    #[test]
    fn a_filter_behind_another_program_takes_what_both_take() {
        let first = vec![
            plain(BPF_LD | BPF_W | BPF_ABS, 0),
            jump(libc::BPF_JEQ, 0x0707_0707, 0, 1),
            verdict(TAKE),
            verdict(DROP),
        ];
        let program = Sample { thinned: Thinned::Every, keep_one_in: 2 }.after(first);
        let result = |packet: &[u8], random| run_on(&program, Input { packet, random, network: &[] });
        assert_eq!(result(&[7; 4], 0), TAKE);
        assert_eq!(result(&[7; 4], u32::MAX), DROP);
        assert_eq!(result(&[8; 4], 0), DROP);
        // A comparison with the number of a verdict is none.
        let first = vec![
            plain(BPF_LD | BPF_W | BPF_ABS, 0),
            jump(libc::BPF_JEQ, TAKE, 0, 1),
            verdict(DROP),
            verdict(TAKE),
        ];
        let program = Sample { thinned: Thinned::Every, keep_one_in: 2 }.after(first);
        let result = |packet: &[u8]| run_on(&program, Input { packet, random: 0, network: &[] });
        assert_eq!((result(&[0xff; 4]), result(&[7; 4])), (DROP, TAKE));
    }
}
