//! A keyed hash of source prefixes, which this process and a classic BPF program compute alike.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;

use libc::{
    BPF_ABS, BPF_ADD, BPF_ALU, BPF_AND, BPF_B, BPF_JA, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_MISC, BPF_MUL,
    BPF_RSH, BPF_TAX, BPF_W, BPF_X, BPF_XOR, SKF_NET_OFF, sock_filter,
};

use crate::bpf::{jump, plain};

/// Number of buckets.
pub(crate) const BUCKETS: usize = 1 << BUCKET_BITS;
const BUCKET_BITS: u32 = 10;
/// The bits of an IPv4 address that are its prefix, a /24.
const V4_PREFIX: u32 = !0xff;
/// The bits of the second word of an IPv6 address that are in its prefix, a /56.
const V6_PREFIX_SECOND_WORD: u32 = !0xff;
/// Offsets in the IP header: of the version, of the source address of IPv4, and of the first words of that of IPv6.
const VERSION: u32 = 0;
const V4_SOURCE: u32 = 12;
const V6_SOURCE: [u32; 2] = [8, 12];

/// A multiply-shift hash with secret factors. Two prefixes share a bucket with a probability of at most 2 / `BUCKETS`, and no
/// sender knows which ones do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PrefixHash {
    mask: u32,
    /// Odd numbers.
    factors: [u32; 2],
}

impl PrefixHash {
    /// Returns a hash with keys from the system's random numbers.
    pub(crate) fn random() -> Self {
        let random = RandomState::new();
        Self::with_key(random.hash_one(0_u8), random.hash_one(1_u8))
    }

    pub(crate) fn with_key(mask: u64, factors: u64) -> Self {
        PrefixHash { mask: mask as u32, factors: [factors as u32 | 1, (factors >> 32) as u32 | 1] }
    }

    /// Returns the bucket of an address, less than `BUCKETS`.
    pub(crate) fn bucket(&self, source: IpAddr) -> usize {
        let [first, second] = match source.to_canonical() {
            IpAddr::V4(v4) => [v4.to_bits() & V4_PREFIX, 0],
            IpAddr::V6(v6) => {
                let bits = v6.to_bits();
                [(bits >> 96) as u32, (bits >> 64) as u32 & V6_PREFIX_SECOND_WORD]
            }
        };
        let product = (first ^ self.mask)
            .wrapping_mul(self.factors[0])
            .wrapping_add(second.wrapping_mul(self.factors[1]));
        (product >> (u32::BITS - BUCKET_BITS)) as usize
    }

    /// Returns instructions that load the bucket of a packet's source.
    pub(super) fn instructions(&self) -> Vec<sock_filter> {
        let first_word = [calculate(BPF_XOR, self.mask), calculate(BPF_MUL, self.factors[0])];
        let mut v4 = vec![load(BPF_W, V4_SOURCE), calculate(BPF_AND, V4_PREFIX)];
        v4.extend(first_word);
        let mut v6 = vec![
            load(BPF_W, V6_SOURCE[1]),
            calculate(BPF_AND, V6_PREFIX_SECOND_WORD),
            calculate(BPF_MUL, self.factors[1]),
            plain(BPF_MISC | BPF_TAX, 0),
            load(BPF_W, V6_SOURCE[0]),
        ];
        v6.extend(first_word);
        v6.push(plain(BPF_ALU | BPF_ADD | BPF_X, 0));
        v4.push(plain(BPF_JMP | BPF_JA, v6.len() as u32));
        let is_v4 = [load(BPF_B, VERSION), calculate(BPF_AND, 0xf0), jump(BPF_JEQ, 0x40, 0, v4.len() as u8)];
        let shift = calculate(BPF_RSH, u32::BITS - BUCKET_BITS);
        is_v4.into_iter().chain(v4).chain(v6).chain([shift]).collect()
    }
}

/// Loads a part of the IP header, wherever the program is attached.
fn load(width: u32, offset: u32) -> sock_filter {
    plain(BPF_LD | width | BPF_ABS, (SKF_NET_OFF as u32).wrapping_add(offset))
}

fn calculate(operation: u32, k: u32) -> sock_filter {
    plain(BPF_ALU | operation | BPF_K, k)
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::HashSet;

    use libc::{BPF_A, BPF_RET};

    use super::*;
    use crate::bpf::{Input, run_on};

    /// Returns the start of the IP header of a packet.
    pub(in super::super) fn header(source: IpAddr) -> Vec<u8> {
        match source {
            IpAddr::V4(v4) => [&[0x46; 12][..], &v4.octets(), &[9; 8]].concat(),
            IpAddr::V6(v6) => [&[0x6f; 8][..], &v6.octets(), &[9; 16]].concat(),
        }
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_program_computes_the_same_bucket() {
        let mixed = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for key in 0..200 {
            let hash = PrefixHash::with_key(mixed(key), mixed(!key));
            let mut program = hash.instructions();
            program.push(plain(BPF_RET | BPF_A, 0));
            for source in ["10.1.2.3", "223.255.255.9", "2001:db8:1:200::1", "fe80::1", "::1"] {
                let network = header(address(source));
                let bucket = run_on(&program, Input { network: &network, ..Input::default() });
                assert_eq!(bucket as usize, hash.bucket(address(source)), "{source}");
            }
        }
    }

    #[test]
    fn the_addresses_of_a_prefix_share_a_bucket_and_prefixes_spread() {
        let hash = PrefixHash::random();
        assert_eq!(hash.bucket(address("192.0.2.1")), hash.bucket(address("::ffff:192.0.2.250")));
        let v6 =
            |last: u128| hash.bucket(IpAddr::from((0x2001_0db8_0000_1200_u128 << 64 | last).to_be_bytes()));
        assert_eq!(v6(1), v6(0xff_ffff_ffff_ffff_ffff));
        let buckets: HashSet<usize> =
            (0..1000_u32).map(|n| hash.bucket(IpAddr::from(((n * 7919) << 8).to_be_bytes()))).collect();
        assert!(buckets.len() > 300, "{}", buckets.len());
        assert!(buckets.iter().all(|bucket| *bucket < BUCKETS));
    }

    #[test]
    fn two_prefixes_share_a_bucket_for_few_keys() {
        let (one, other) = (address("10.0.0.0"), address("10.0.1.0"));
        let shared = (0..2_000).filter(|_| {
            let hash = PrefixHash::random();
            hash.bucket(one) == hash.bucket(other)
        });
        // 4 are expected at most.
        assert!(shared.count() < 40);
    }
}
