//! The instructions of classic BPF programs.

use libc::{BPF_JA, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, BPF_X, sock_filter};

/// Return values of a socket filter that accept all of a packet, and drop it. The kernel also drops a packet if the program loads
/// bytes beyond its end.
pub(crate) const TAKE: u32 = u32::MAX;
pub(crate) const DROP: u32 = 0;
/// Number of values that are compared one by one at the end of a binary search.
const LEAF_VALUES: usize = 4;

/// Returns an instruction that does not branch.
pub(crate) fn plain(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// Returns an instruction that skips `jt` instructions if the comparison is true, and `jf` otherwise.
pub(crate) fn jump(comparison: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: (BPF_JMP | comparison | BPF_K) as u16, jt, jf, k }
}

/// Returns an instruction that skips `jt` instructions if the loaded value is that of the index register, and `jf` otherwise.
pub(crate) fn jump_if_equal_to_index(jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: (BPF_JMP | BPF_JEQ | BPF_X) as u16, jt, jf, k: 0 }
}

/// Appends instructions that search the loaded value among sorted ones, by halves, and execute `found` or `missing`, which end
/// the program.
pub(crate) fn search(
    sorted: &[u32],
    found: sock_filter,
    missing: sock_filter,
    program: &mut Vec<sock_filter>,
) {
    if sorted.len() <= LEAF_VALUES {
        let past_missing = |n: usize| (sorted.len() - n) as u8;
        program.extend(sorted.iter().enumerate().map(|(n, &value)| jump(BPF_JEQ, value, past_missing(n), 0)));
        program.extend([missing, found]);
        return;
    }
    let (lower, upper) = sorted.split_at(sorted.len() / 2);
    program.push(jump(BPF_JGE, upper[0], 0, 1));
    let to_upper = program.len();
    program.push(plain(BPF_JMP | BPF_JA, 0));
    search(lower, found, missing, program);
    program[to_upper].k = (program.len() - to_upper - 1) as u32;
    search(upper, found, missing, program);
}

/// Input of a program.
#[cfg(test)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Input<'a> {
    pub(crate) packet: &'a [u8],
    /// The packet from its IP header on.
    pub(crate) network: &'a [u8],
    pub(crate) random: u32,
}

/// Runs a program that reads nothing but the packet; returns its result.
#[cfg(test)]
pub(crate) fn run(program: &[sock_filter], packet: &[u8]) -> u32 {
    run_on(program, Input { packet, ..Input::default() })
}

/// Runs a program like the kernel; returns its result.
#[cfg(test)]
pub(crate) fn run_on(program: &[sock_filter], input: Input<'_>) -> u32 {
    use libc::{
        BPF_A, BPF_ABS, BPF_ADD, BPF_ALU, BPF_AND, BPF_B, BPF_H, BPF_IND, BPF_JGT, BPF_LD, BPF_LDX, BPF_LEN,
        BPF_MEM, BPF_MISC, BPF_MSH, BPF_MUL, BPF_RET, BPF_RSH, BPF_ST, BPF_TAX, BPF_W, BPF_XOR,
    };
    const BY_ABS: u32 = BPF_LD | BPF_ABS;
    const BY_INDEX: u32 = BPF_LD | BPF_IND;
    let (mut at, mut accumulator, mut index, mut memory) = (0, 0u32, 0u32, [0; libc::BPF_MEMWORDS as usize]);
    loop {
        let sock_filter { code, jt, jf, k } = program[at];
        at += 1;
        let branch = |holds: bool| usize::from(if holds { jt } else { jf });
        let code = u32::from(code);
        match code {
            _ if code == BPF_RET | BPF_K => return k,
            _ if code == BPF_RET | BPF_A => return accumulator,
            _ if code == BPF_LD | BPF_W | BPF_LEN => accumulator = input.packet.len() as u32,
            _ if code == BPF_LDX | BPF_B | BPF_MSH => match input.packet.get(k as usize) {
                Some(byte) => index = u32::from(byte & 0xf) * 4,
                None => return DROP,
            },
            _ if code == BY_ABS | BPF_W && k as i32 == libc::SKF_AD_OFF + libc::SKF_AD_RANDOM => {
                accumulator = input.random;
            }
            _ if [BY_ABS, BY_INDEX].contains(&(code & !(BPF_B | BPF_H))) => {
                let (bytes, offset) = match k.checked_sub(libc::SKF_NET_OFF as u32) {
                    Some(offset) if code & BY_INDEX != BY_INDEX => (input.network, offset),
                    _ => (input.packet, k),
                };
                let base = if code & BY_INDEX == BY_INDEX { index } else { 0 } as usize + offset as usize;
                let width = match code & (BPF_B | BPF_H) {
                    BPF_B => 1,
                    BPF_H => 2,
                    _ => 4,
                };
                let Some(loaded) = bytes.get(base..base + width) else { return DROP };
                accumulator = loaded.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
            }
            _ if code == BPF_ST => memory[k as usize] = accumulator,
            _ if code == BPF_LDX | BPF_MEM => index = memory[k as usize],
            _ if code == BPF_MISC | BPF_TAX => index = accumulator,
            _ if code == BPF_ALU | BPF_ADD | BPF_X => accumulator = accumulator.wrapping_add(index),
            _ if code == BPF_ALU | BPF_MUL | BPF_K => accumulator = accumulator.wrapping_mul(k),
            _ if code == BPF_ALU | BPF_XOR | BPF_K => accumulator ^= k,
            _ if code == BPF_ALU | BPF_AND | BPF_K => accumulator &= k,
            _ if code == BPF_ALU | BPF_RSH | BPF_K => accumulator >>= k,
            _ if code == BPF_JMP | BPF_JA => at += k as usize,
            _ if code == BPF_JMP | BPF_JEQ | BPF_K => at += branch(accumulator == k),
            _ if code == BPF_JMP | BPF_JEQ | BPF_X => at += branch(accumulator == index),
            _ if code == BPF_JMP | BPF_JGE | BPF_K => at += branch(accumulator >= k),
            _ if code == BPF_JMP | BPF_JGT | BPF_K => at += branch(accumulator > k),
            other => panic!("unexpected instruction {other:#x}"),
        }
    }
}
