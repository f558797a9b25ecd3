//! An extended BPF program that receives the INITs which come again at the interval of peers, and drops the others during a
//! flood.
//!
//! It remembers each INIT by a keyed hash of its source address, ports and tag, with the time. A peer repeats an INIT without an
//! answer after RTO.Initial, one second (RFC 9260 §5.1 and §16); a flood of forged addresses does not repeat itself, or too soon.
//! So the kernel drops such a flood before it takes room in a buffer, at a fraction of what it costs to read it.
//!
//! Nobody who does not know the keys can choose INITs that displace those of others. Two processors that handle INITs of one set
//! at the same time may lose one of them, as a full set may.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libc::{BPF_B, BPF_H, BPF_W, SKF_NET_OFF};
use nix::errno::Errno;

use crate::ebpf::Comparison::{AtLeast, Below, Equal, NotEqual};
use crate::ebpf::Operation::{Add, And, Move, Multiply, Or, ShiftLeft, ShiftRight, Subtract, Xor};
use crate::ebpf::Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9};
use crate::ebpf::{Assembler, Jump};
use crate::ebpf_syscalls::{Table, attach_loaded_filter, load_filter};

/// Sets of four remembered INITs. A new one replaces the one that came first: at 100,000 INITs a second one in 1,500 within a
/// second, and one in a hundred within two. A set is a word.
const SET_BITS: i32 = 18;
const ENTRY_BITS: i32 = 16;
const ENTRIES: i32 = 4;
/// An entry has a part of the hash, whose lowest bit is set so that it differs from an empty entry, and above it the time in
/// ticks of 0.27 s, which overflows after 17 s.
const HASH_BITS: i32 = 10;
const TICK_NS_BITS: i32 = 28;
const TICKS_MASK: i32 = 0x3f;
/// The least interval of repetitions, 0.27 to 0.54 s, and the greatest, 10 s. An older entry is mistaken for a younger one at
/// times.
const INTERVAL_TICKS_MIN: i32 = 2;
const INTERVAL_TICKS_MAX: i32 = 38;

const WORD_BITS: i32 = u64::BITS as i32;
const WORD_BYTES: i32 = size_of::<u64>() as i32;

const UDP_HEADER_BYTES: i32 = 8;
/// Offsets in the SCTP packet, and of the tag in an INIT, which is the first chunk (RFC 9260 §3.1, §3.3.2).
const PORTS: i32 = 0;
const DESTINATION_PORT: i32 = 2;
const TAG: i32 = 4;
const INITIATE_TAG: i32 = 16;
/// Words of a set of ports.
const PORT_WORDS: usize = (1 << 16) / 64;
/// Offsets in the IP header, as in [`prefix_hash`](super::prefix_hash).
const V4_SOURCE: i32 = 12;
const V6_SOURCE: [i32; 4] = [8, 12, 16, 20];

/// What precedes SCTP in the packets that a filter sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Headers {
    Udp,
    Ipv4,
    /// A raw IPv6 socket sees none.
    Nothing,
}

/// Number of INITs since the program was loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Counts {
    pub(super) offered: u64,
    pub(super) dropped: u64,
}

/// The tables of the program.
struct Tables {
    /// Sets of remembered INITs.
    sets: Table<{ 1 << SET_BITS }>,
    /// Bits of the ports whose INITs a raw socket receives.
    ports: Table<PORT_WORDS>,
    /// [`Counts`].
    counts: Table<2>,
    /// A word that is not 0 while INITs are remembered only, and none is dropped.
    passes: Table<1>,
}

/// Places in the table of counts.
const OFFERED: usize = 0;
const DROPPED: usize = 1;

/// The loaded program, which keeps its memory of 2 MiB.
#[derive(Debug)]
pub(crate) struct Repetitions {
    filter: OwnedFd,
    ports: Table<PORT_WORDS>,
    counts: Table<2>,
    passes: Table<1>,
}

impl Repetitions {
    /// Loads the program for a socket of INITs with these headers. For a raw socket it replaces the filter for its class, and
    /// receives nothing before `set_ports`.
    ///
    /// # Errors
    ///
    /// `EPERM` without `CAP_BPF`; others if the kernel lacks memory or does not know the program.
    pub(super) fn load(headers: Headers) -> Result<Self, Errno> {
        if !may_load()? {
            return Err(Errno::EPERM);
        }
        let tables = Tables {
            sets: Table::create()?,
            ports: Table::create()?,
            counts: Table::create()?,
            passes: Table::create()?,
        };
        let filter = load_filter(program(headers, &tables).instructions())?;
        let Tables { ports, counts, passes, .. } = tables;
        Ok(Repetitions { filter, ports, counts, passes })
    }

    /// Sets whether INITs that have not come before are dropped, as after `load`. All are remembered in any case.
    pub(super) fn set_drops(&self, drops: bool) -> Result<(), Errno> {
        self.passes.write(&[u64::from(!drops)])
    }

    /// Sets the ports whose INITs a raw socket receives.
    pub(crate) fn set_ports(&self, ports: &[u16]) -> Result<(), Errno> {
        let mut words = [0_u64; PORT_WORDS];
        for port in ports {
            words[usize::from(port >> 6)] |= 1 << (port & 63);
        }
        self.ports.write(&words)
    }

    /// Makes the program the filter of a socket.
    pub(crate) fn attach_to(&self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        attach_loaded_filter(socket, self.filter.as_fd())
    }

    pub(super) fn counts(&self) -> Result<Counts, Errno> {
        let [offered, dropped] = self.counts.read()?;
        Ok(Counts { offered, dropped })
    }
}

/// Returns whether this thread has the capability, if in a user namespace only there. Without it nobody makes the system call: a
/// sandbox may end a process that makes one which it does not expect.
fn may_load() -> Result<bool, Errno> {
    /// Bits of `CAP_SYS_ADMIN` and of `CAP_BPF` (capabilities(7)).
    const SUFFICIENT: u64 = 1 << 21 | 1 << 39;
    let status = std::fs::read_to_string("/proc/thread-self/status").map_err(|_| Errno::EAGAIN)?;
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    Ok(effective.is_some_and(|effective| effective & SUFFICIENT != 0))
}

/// Returns the program. Register 6 has the address of the packet's description, 7 the hash and later the new entry, 8 the length
/// of the IP header and later the part of the hash in entries, and 9 the address of the set.
fn program(headers: Headers, tables: &Tables) -> Assembler {
    let mut code = Assembler::default();
    code.combine(Move, R6, R1);
    let others = if headers == Headers::Udp { Vec::new() } else { select(&mut code, headers, tables) };
    code.count(tables.counts.word(OFFERED));
    hash(&mut code, headers);

    code.combine(Move, R8, R7);
    code.calculate(ShiftRight, R8, WORD_BITS - SET_BITS - HASH_BITS);
    code.calculate(And, R8, (1 << HASH_BITS) - 1);
    code.calculate(Or, R8, 1);
    code.calculate(ShiftRight, R7, WORD_BITS - SET_BITS);
    code.calculate(Multiply, R7, WORD_BYTES);
    code.load_address(R9, tables.sets.word(0));
    code.combine(Add, R9, R7);

    code.load_time();
    code.calculate(ShiftRight, R0, TICK_NS_BITS);
    code.calculate(And, R0, TICKS_MASK);
    code.combine(Move, R7, R0);
    code.calculate(ShiftLeft, R7, HASH_BITS);
    code.combine(Or, R7, R8);

    // Register 2 has the set, 0 the present time, and 5 the interval.
    code.load(R2, R9);
    let found: Vec<Jump> = (0..ENTRIES).map(|entry| look_at(&mut code, entry * ENTRY_BITS)).collect();
    code.calculate(ShiftLeft, R2, ENTRY_BITS);
    code.combine(Or, R2, R7);
    code.calculate(Move, R5, 0);
    found.into_iter().for_each(|jump| code.land(jump));
    code.store(R9, R2);
    let too_soon = code.jump_if(Below, R5, INTERVAL_TICKS_MIN);
    let too_late = code.jump_if(AtLeast, R5, INTERVAL_TICKS_MAX);
    code.calculate(Move, R0, -1);
    code.exit();
    code.land(too_soon);
    code.land(too_late);
    code.load_address(R1, tables.passes.word(0));
    code.load(R1, R1);
    let drops = code.jump_if(Equal, R1, 0);
    code.calculate(Move, R0, -1);
    code.exit();
    code.land(drops);
    code.count(tables.counts.word(DROPPED));
    others.into_iter().for_each(|jump| code.land(jump));
    code.calculate(Move, R0, 0);
    code.exit();
    code
}

/// Jumps for packets that are no INITs for the ports of a raw socket. Puts the length of the IP header into register 8.
fn select(code: &mut Assembler, headers: Headers, tables: &Tables) -> Vec<Jump> {
    if headers == Headers::Ipv4 {
        code.load_packet(BPF_B, 0);
        code.calculate(And, R0, 0xf);
        code.calculate(ShiftLeft, R0, 2);
        code.combine(Move, R8, R0);
    }
    load_sctp(code, headers, BPF_H, DESTINATION_PORT);
    code.combine(Move, R1, R0);
    code.calculate(ShiftRight, R1, 6);
    // The kernel does not know how large what it has loaded can be.
    code.calculate(And, R1, PORT_WORDS as i32 - 1);
    code.calculate(Multiply, R1, WORD_BYTES);
    code.load_address(R2, tables.ports.word(0));
    code.combine(Add, R2, R1);
    code.load(R1, R2);
    code.calculate(And, R0, 63);
    code.combine(ShiftRight, R1, R0);
    code.calculate(And, R1, 1);
    let other_port = code.jump_if(Equal, R1, 0);
    load_sctp(code, headers, BPF_W, TAG);
    let other_class = code.jump_if(NotEqual, R0, 0);
    vec![other_port, other_class]
}

/// Loads a part of the SCTP packet.
fn load_sctp(code: &mut Assembler, headers: Headers, width: u32, offset: i32) {
    match headers {
        Headers::Udp => code.load_packet(width, UDP_HEADER_BYTES + offset),
        Headers::Ipv4 => code.load_packet_behind(R8, width, offset),
        Headers::Nothing => code.load_packet(width, offset),
    }
}

/// Calculates the hash of an INIT in register 7; the high bits are used. The hash is multilinear (Lemire and Kaser, Strongly
/// universal string hashing is fast, 2014), multiplied by another key, because INITs whose tags are in sequence would otherwise
/// share few sets.
fn hash(code: &mut Assembler, headers: Headers) {
    let random = RandomState::new();
    let mut keys = (0_u8..).map(|n| random.hash_one(n));
    let mut key = || keys.next().unwrap_or_default();
    code.load_number(R7, key());
    let last_key = key() | 1;
    let mut add = |code: &mut Assembler| {
        code.load_number(R1, key());
        code.combine(Multiply, R0, R1);
        code.combine(Add, R7, R0);
    };
    code.load_packet(BPF_B, SKF_NET_OFF);
    code.calculate(And, R0, 0xf0);
    let is_v4 = code.jump_if(Equal, R0, 0x40);
    for offset in V6_SOURCE {
        code.load_packet(BPF_W, SKF_NET_OFF + offset);
        add(code);
    }
    let from_v6 = code.jump();
    code.land(is_v4);
    code.load_packet(BPF_W, SKF_NET_OFF + V4_SOURCE);
    add(code);
    code.land(from_v6);
    if headers == Headers::Udp {
        // Its ports.
        code.load_packet(BPF_W, 0);
        add(code);
    }
    for offset in [PORTS, INITIATE_TAG] {
        load_sctp(code, headers, BPF_W, offset);
        add(code);
    }
    code.combine(Move, R1, R7);
    code.calculate(ShiftRight, R1, 32);
    code.combine(Xor, R7, R1);
    code.load_number(R1, last_key);
    code.combine(Multiply, R7, R1);
}

/// Looks at the entry at this bit of the set in register 2. If it is of the same INIT, gives it the present time, calculates the
/// interval in register 5, and jumps.
fn look_at(code: &mut Assembler, bit: i32) -> Jump {
    code.combine(Move, R4, R2);
    code.calculate(ShiftRight, R4, bit);
    code.combine(Move, R5, R4);
    code.calculate(And, R5, (1 << HASH_BITS) - 1);
    let other = code.jump_if_registers(NotEqual, R5, R8);
    code.combine(Move, R5, R0);
    code.calculate(ShiftRight, R4, HASH_BITS);
    code.combine(Subtract, R5, R4);
    code.calculate(And, R5, TICKS_MASK);
    code.load_number(R4, !(0xffff << bit));
    code.combine(And, R2, R4);
    code.combine(Move, R3, R7);
    code.calculate(ShiftLeft, R3, bit);
    code.combine(Or, R2, R3);
    let found = code.jump();
    code.land(other);
    found
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, UdpSocket};
    use std::os::fd::AsRawFd;
    use std::thread::sleep;
    use std::time::Duration;

    use nix::sys::socket::{
        self, AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, recv, sendto,
    };

    use super::*;

    /// Longer than the least interval of repetitions.
    const LONG: Duration = Duration::from_millis(600);

    /// `None`: this process may not load programs.
    fn loaded(headers: Headers) -> Option<Repetitions> {
        match Repetitions::load(headers) {
            Ok(repetitions) => Some(repetitions),
            Err(Errno::EPERM | Errno::ENOSYS) => {
                println!("skipped: no CAP_BPF");
                None
            }
            Err(error) => panic!("{headers:?}: {error}"),
        }
    }

    fn init(to_port: u8, tag: u8) -> Vec<u8> {
        [&[0, 7, 0, to_port][..], &[0; 8], &[1, 0, 0, 20, 0, 0, 0, tag], &[0; 12]].concat()
    }

    /// Sends packets; returns whether the other socket received each.
    struct Wire {
        from: OwnedFd,
        to: OwnedFd,
        at: SocketAddr,
    }

    impl Wire {
        fn passes(&self, packet: &[u8]) -> bool {
            self.passes_from(&self.from, packet)
        }

        fn passes_from(&self, from: &OwnedFd, packet: &[u8]) -> bool {
            sendto(from.as_raw_fd(), packet, &SockaddrStorage::from(self.at), MsgFlags::empty()).unwrap();
            recv(self.to.as_raw_fd(), &mut [0; 100], MsgFlags::MSG_DONTWAIT).is_ok()
        }
    }

    fn udp(ip: &str) -> Wire {
        let (from, to) = (UdpSocket::bind((ip, 0)).unwrap(), UdpSocket::bind((ip, 0)).unwrap());
        let at = to.local_addr().unwrap();
        Wire { from: from.into(), to: to.into(), at }
    }

    /// `None`: this process may have no raw sockets.
    fn raw(ip: &str) -> Option<Wire> {
        let at = SocketAddr::new(ip.parse().unwrap(), 0);
        let family = if at.is_ipv6() { AddressFamily::Inet6 } else { AddressFamily::Inet };
        let open = || {
            let fd = socket::socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Sctp);
            fd.ok().inspect(|fd| bind(fd.as_raw_fd(), &SockaddrStorage::from(at)).unwrap())
        };
        Some(Wire { from: open()?, to: open()?, at })
    }

    #[test]
    fn an_init_passes_when_it_comes_again_after_a_while() {
        let Some(repetitions) = loaded(Headers::Udp) else { return };
        for ip in ["127.0.0.1", "::1"] {
            let (wire, other) = (udp(ip), udp(ip).from);
            repetitions.attach_to(wire.to.as_fd()).unwrap();
            let before = repetitions.counts().unwrap();
            assert!(!wire.passes(&init(1, 1)), "the first time");
            assert!(!wire.passes(&init(1, 1)), "too soon");
            sleep(LONG);
            assert!(!wire.passes(&init(1, 2)), "another tag");
            assert!(!wire.passes(&init(2, 1)), "another port");
            assert!(!wire.passes_from(&other, &init(1, 1)), "another port of UDP");
            assert!(wire.passes(&init(1, 1)));
            assert!(!wire.passes(&init(1, 1)), "too soon");
            assert!(!wire.passes(&[0; 19]), "too short");
            sleep(LONG);
            assert!(wire.passes(&init(1, 1)), "once more");
            repetitions.set_drops(false).unwrap();
            assert!(wire.passes(&init(1, 1)) && wire.passes(&init(9, 9)), "all pass");
            repetitions.set_drops(true).unwrap();
            sleep(LONG);
            assert!(wire.passes(&init(9, 9)), "it is remembered");
            let after = repetitions.counts().unwrap();
            assert_eq!((after.offered - before.offered, after.dropped - before.dropped), (12, 6));
        }
    }

    #[test]
    fn a_raw_socket_receives_repeated_inits_for_its_ports_alone() {
        for (ip, headers) in [("127.0.0.1", Headers::Ipv4), ("::1", Headers::Nothing)] {
            let (Some(wire), Some(repetitions)) = (raw(ip), loaded(headers)) else { return };
            repetitions.set_ports(&[2, 64, 65535]).unwrap();
            repetitions.attach_to(wire.to.as_fd()).unwrap();
            let data = [&init(2, 1)[..4], &[0, 0, 0, 9], &init(2, 1)[8..]].concat();
            for round in 0..2 {
                assert_eq!(wire.passes(&init(2, 1)), round > 0, "{ip}, round {round}");
                assert_eq!(wire.passes(&init(64, 1)), round > 0, "{ip}, round {round}");
                assert!(!wire.passes(&init(3, 1)), "{ip}: another port");
                assert!(!wire.passes(&data), "{ip}: another class");
                sleep(LONG);
            }
            assert_eq!(repetitions.counts().unwrap(), Counts { offered: 4, dropped: 2 }, "{ip}");
            repetitions.set_ports(&[3]).unwrap();
            assert!(!wire.passes(&init(2, 1)), "{ip}: no longer");
        }
    }

    #[test]
    fn peers_of_a_flooded_socket_are_remembered_until_they_come_again() {
        const PEERS: usize = 200;
        let Some(repetitions) = loaded(Headers::Udp) else { return };
        let wire = udp("127.0.0.1");
        repetitions.attach_to(wire.to.as_fd()).unwrap();
        let numbered = |n: usize| {
            [&[0, 7, 0, 1][..], &[0; 8], &[1, 0, 0, 20], &(n as u32).to_be_bytes(), &[0; 12]].concat()
        };
        let passed = |range: std::ops::Range<usize>| range.filter(|n| wire.passes(&numbered(*n))).count();
        assert_eq!(passed(0..PEERS), 0);
        // In a full set, four of 512 that are new have the hash of another.
        let forged = passed(PEERS..20_000);
        assert!(forged < 300, "{forged} forged INITs");
        sleep(LONG);
        let served = passed(0..PEERS);
        assert!(served >= PEERS - 2, "{served} of {PEERS}");
    }

    #[test]
    fn the_hash_of_each_program_has_keys_of_its_own() {
        let code = || {
            let mut code = Assembler::default();
            hash(&mut code, Headers::Udp);
            code.instructions().to_vec()
        };
        assert_ne!(code(), code());
    }
}
