//! The instructions of classic BPF programs.

use libc::{BPF_JMP, BPF_K, sock_filter};

/// Return values of a socket filter that accept all of a packet, and drop it. The kernel also drops a packet if the program loads
/// bytes beyond its end.
pub(crate) const TAKE: u32 = u32::MAX;
pub(crate) const DROP: u32 = 0;

/// Returns an instruction that does not branch.
pub(crate) fn plain(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// Returns an instruction that skips `jt` instructions if the comparison is true, and `jf` otherwise.
pub(crate) fn jump(comparison: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: (BPF_JMP | comparison | BPF_K) as u16, jt, jf, k }
}

/// Runs a program like the kernel; returns its result.
#[cfg(test)]
pub(crate) fn run(program: &[sock_filter], packet: &[u8]) -> u32 {
    use libc::{
        BPF_ABS, BPF_B, BPF_H, BPF_IND, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JGT, BPF_LD, BPF_LDX, BPF_LEN, BPF_MSH,
        BPF_RET, BPF_W,
    };
    const BY_ABS: u32 = BPF_LD | BPF_ABS;
    const BY_INDEX: u32 = BPF_LD | BPF_IND;
    let (mut at, mut accumulator, mut index) = (0, 0u32, 0u32);
    loop {
        let sock_filter { code, jt, jf, k } = program[at];
        at += 1;
        let branch = |holds: bool| usize::from(if holds { jt } else { jf });
        let code = u32::from(code);
        match code {
            _ if code == BPF_RET | BPF_K => return k,
            _ if code == BPF_LD | BPF_W | BPF_LEN => accumulator = packet.len() as u32,
            _ if code == BPF_LDX | BPF_B | BPF_MSH => match packet.get(k as usize) {
                Some(byte) => index = u32::from(byte & 0xf) * 4,
                None => return DROP,
            },
            _ if [BY_ABS, BY_INDEX].contains(&(code & !(BPF_B | BPF_H))) => {
                let base = if code & BY_INDEX == BY_INDEX { index } else { 0 } as usize + k as usize;
                let bytes = match code & (BPF_B | BPF_H) {
                    BPF_B => 1,
                    BPF_H => 2,
                    _ => 4,
                };
                let Some(loaded) = packet.get(base..base + bytes) else { return DROP };
                accumulator = loaded.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
            }
            _ if code == BPF_JMP | BPF_JA => at += k as usize,
            _ if code == BPF_JMP | BPF_JEQ | BPF_K => at += branch(accumulator == k),
            _ if code == BPF_JMP | BPF_JGE | BPF_K => at += branch(accumulator >= k),
            _ if code == BPF_JMP | BPF_JGT | BPF_K => at += branch(accumulator > k),
            other => panic!("unexpected instruction {other:#x}"),
        }
    }
}
