//! The floods: IPv4 packets that are built completely before the first of them leaves.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::net::Ipv4Addr;

use sctp_wire::cause::Causes;
use sctp_wire::chunk::{Abort, CookieEcho, Data, DataFlags, Heartbeat, Init};
use sctp_wire::parameter::Parameters;
use sctp_wire::{Header, Ppid, Ssn, StreamId, Tsn, VerificationTag, packet};

use super::arena::{
    ATTACKER, ATTACKER_UDP_PORT, CALLER, CALLER_PORT, DEAD_UDP_PORT, MEETING_PORT, SINK_PORT, UDP_PORT,
};
use super::encapsulation::{IP_HEADER_BYTES, encapsulate};
use super::handshakes;

/// Number of packets that are sent in turn, each with its own tag, port and source; a victim that kept state for each would show
/// it.
const PACKETS: usize = 16_384;
/// An SCTP port without listener.
const CLOSED_PORT: u16 = 5999;
/// Number of handshakes that are sent in turn: more than a server accepts from one network.
const HANDSHAKES: usize = 32_768;
/// Length of one of our cookies for a peer with one address.
const COOKIE_BYTES: usize = 87;
const PAYLOAD_BYTES: usize = 64;
const HEARTBEAT_BYTES: usize = 40;
const GARBAGE_BYTES: usize = 48;

/// Floods of the victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flood {
    /// INITs to a listening port, from one network of 256 addresses.
    InitOnePrefix,
    /// INITs to a listening port, from random addresses.
    Init,
    /// INITs to a listening port, from random addresses, each sent again after a second, as a peer does.
    InitRepeated,
    /// INITs to a listening port, from one network of 256 addresses, and a COOKIE ECHO for each answer.
    Handshakes,
    /// INITs to a port without listener, from random addresses.
    InitClosed,
    /// DATA of associations that do not exist, from random addresses.
    Data,
    /// COOKIE ECHOs with forged cookies, from random addresses.
    CookieEcho,
    /// Packets whose checksum is wrong.
    BadChecksum,
    /// Packets whose checksum is right and whose chunks are noise.
    BadChunks,
    /// ABORTs that name the peer's association, with a wrong tag.
    Abort,
    /// HEARTBEATs that name the peer's association, with a wrong tag.
    Heartbeat,
}

impl Flood {
    /// All floods, in the order of tables.
    pub(crate) const ALL: [Self; 11] = [
        Self::InitOnePrefix,
        Self::Init,
        Self::InitRepeated,
        Self::Handshakes,
        Self::InitClosed,
        Self::Data,
        Self::CookieEcho,
        Self::BadChecksum,
        Self::BadChunks,
        Self::Abort,
        Self::Heartbeat,
    ];

    /// Returns the name in tables, JSON and on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::InitOnePrefix => "init-one-prefix",
            Self::Init => "init",
            Self::InitRepeated => "init-repeated",
            Self::Handshakes => "handshakes",
            Self::InitClosed => "init-closed-port",
            Self::Data => "data",
            Self::CookieEcho => "cookie-echo",
            Self::BadChecksum => "bad-checksum",
            Self::BadChunks => "bad-chunks",
            Self::Abort => "abort",
            Self::Heartbeat => "heartbeat",
        }
    }

    /// Returns the flood of this name.
    pub(crate) fn parse(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|flood| flood.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("there is no flood `{name}`; choose from {names}")
        })
    }

    /// Builds the packets of a flood of this rate, with IP and UDP headers, for the victim's port or for one without socket.
    pub(crate) fn packets(self, packets_per_s: u64, to_dead_port: bool) -> io::Result<Vec<Vec<u8>>> {
        let mut chance = Chance::open()?;
        let udp_port = if to_dead_port { DEAD_UDP_PORT } else { UDP_PORT };
        let numbers = 0..self.packet_count(packets_per_s);
        numbers.map(|number| self.packet(number, &mut chance, udp_port)).collect()
    }

    /// Gives a packet that names no association another UDP source port before it is sent again. With the same port it would look
    /// like the retransmission of a peer whose first packet was lost. `times_sent` counts how often all packets have been sent.
    pub(super) fn renew(self, (number, packet): (usize, &mut [u8]), times_sent: u64) {
        let is_kept = match self {
            Self::Handshakes | Self::Abort | Self::Heartbeat => true,
            // Every packet is sent twice, and at any time half of those that are sent are repeated.
            Self::InitRepeated => (number as u64 + times_sent).is_multiple_of(2),
            _ => false,
        };
        if is_kept {
            return;
        }
        if let Some(port) = packet.get_mut(IP_HEADER_BYTES..).and_then(<[u8]>::first_chunk_mut) {
            *port = u16::from_be_bytes(*port).wrapping_add(1).max(1).to_be_bytes();
        }
    }

    fn packet_count(self, packets_per_s: u64) -> usize {
        match self {
            Self::Handshakes => HANDSHAKES,
            // All packets in turn take a second.
            Self::InitRepeated => packets_per_s as usize,
            _ => PACKETS,
        }
    }

    fn packet(self, number: usize, chance: &mut Chance, udp_port: u16) -> io::Result<Vec<u8>> {
        let sctp = self.sctp_packet(number, chance)?;
        let (source, source_udp_port) = match self {
            // An off-path attacker that knows both addresses and all ports, but not the tag.
            Self::Abort | Self::Heartbeat => (CALLER, UDP_PORT),
            Self::InitOnePrefix => {
                let [a, b, c] = ATTACKER;
                (Ipv4Addr::new(a, b, c, chance.bytes::<1>()?[0]), chance.port()?)
            }
            Self::Handshakes => (handshakes::source(number).0, ATTACKER_UDP_PORT),
            _ => (chance.address()?, chance.port()?),
        };
        Ok(encapsulate(source, source_udp_port, udp_port, &sctp))
    }

    fn sctp_packet(self, number: usize, chance: &mut Chance) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        packet::write_header(&self.header(number, chance)?, &mut out);
        match self {
            Self::InitOnePrefix | Self::Init | Self::InitRepeated | Self::Handshakes | Self::InitClosed => {
                init(chance)?.write(&mut out)
            }
            Self::Data => stray_data(chance, &mut out)?,
            Self::CookieEcho => CookieEcho { cookie: &chance.bytes::<COOKIE_BYTES>()? }.write(&mut out),
            Self::BadChecksum => stray_data(chance, &mut out)?,
            Self::BadChunks => out.extend_from_slice(&chance.bytes::<GARBAGE_BYTES>()?),
            Self::Abort => Abort { reflected_tag: false, causes: Causes::new(&[]) }.write(&mut out),
            Self::Heartbeat => Heartbeat { info: &chance.bytes::<HEARTBEAT_BYTES>()? }.write(&mut out),
        }
        packet::finish(&mut out);
        if self == Self::BadChecksum {
            packet::store_checksum(&mut out, chance.number()?);
        }
        Ok(out)
    }

    fn header(self, number: usize, chance: &mut Chance) -> io::Result<Header> {
        let verification_tag = match self {
            Self::InitOnePrefix | Self::Init | Self::InitRepeated | Self::Handshakes | Self::InitClosed => {
                VerificationTag(0)
            }
            _ => VerificationTag(chance.number()? | 1),
        };
        let (source_port, destination_port) = match self {
            Self::InitClosed => (chance.port()?, CLOSED_PORT),
            Self::Handshakes => (handshakes::source(number).1, MEETING_PORT),
            Self::Abort | Self::Heartbeat => (CALLER_PORT, SINK_PORT),
            _ => (chance.port()?, MEETING_PORT),
        };
        Ok(Header { source_port, destination_port, verification_tag })
    }
}

fn init(chance: &mut Chance) -> io::Result<Init<'static>> {
    Ok(Init {
        initiate_tag: VerificationTag(chance.number()? | 1),
        a_rwnd: 1 << 20,
        outbound_streams: 10,
        inbound_streams: u16::MAX,
        initial_tsn: Tsn(chance.number()?),
        parameters: Parameters::new(&[]),
    })
}

fn stray_data(chance: &mut Chance, out: &mut Vec<u8>) -> io::Result<()> {
    let data = Data {
        flags: DataFlags::WHOLE,
        tsn: Tsn(chance.number()?),
        stream: StreamId(0),
        ssn: Ssn(0),
        ppid: Ppid(0),
        payload: &chance.bytes::<PAYLOAD_BYTES>()?,
    };
    data.write(out);
    Ok(())
}

/// Random numbers from the system.
struct Chance(BufReader<File>);

impl Chance {
    fn open() -> io::Result<Self> {
        Ok(Self(BufReader::with_capacity(64 << 10, File::open("/dev/urandom")?)))
    }

    fn bytes<const COUNT: usize>(&mut self) -> io::Result<[u8; COUNT]> {
        let mut bytes = [0; COUNT];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn number(&mut self) -> io::Result<u32> {
        Ok(u32::from_ne_bytes(self.bytes()?))
    }

    fn port(&mut self) -> io::Result<u16> {
        Ok(u16::from_ne_bytes(self.bytes()?).max(1))
    }

    /// Returns a random host address outside the networks that the kernel reserves (0/8, 127/8, 224/3) and those of the arena (in
    /// 100/8 and 198/8).
    fn address(&mut self) -> io::Result<Ipv4Addr> {
        loop {
            let address = Ipv4Addr::from(self.bytes::<4>()?);
            let [first, ..] = address.octets();
            if (1..224).contains(&first) && !matches!(first, 100 | 127 | 198) {
                return Ok(address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use sctp_wire::Packet;

    use super::super::arena::newcomer;
    use super::super::encapsulation::UDP_HEADER_BYTES;
    use super::*;

    const SCTP_OFFSET: usize = IP_HEADER_BYTES + UDP_HEADER_BYTES;
    const RATE: u64 = 1_000;

    fn source(packet: &[u8]) -> [u8; 4] {
        packet[12..16].try_into().expect("four bytes")
    }

    #[test]
    fn names_round_trip() {
        for flood in Flood::ALL {
            assert_eq!(Flood::parse(flood.name()), Ok(flood));
        }
        assert!(Flood::parse("smurf").expect_err("no such flood").contains("init-one-prefix"));
    }

    #[test]
    fn only_the_checksum_that_is_meant_to_be_wrong_is() {
        for flood in Flood::ALL {
            let packets = flood.packets(RATE, false).expect("the system has random numbers");
            assert_eq!(packets.len(), flood.packet_count(RATE));
            let right = packets
                .iter()
                .filter(|packet| Packet::parse(&packet[SCTP_OFFSET..]).expect("a header").checksum_ok());
            let right = right.count();
            assert!(
                if flood == Flood::BadChecksum { right < 2 } else { right == packets.len() },
                "{flood:?}"
            );
        }
    }

    #[test]
    fn sources_are_those_of_the_flood() {
        let sources = |flood: Flood| -> Vec<[u8; 4]> {
            flood.packets(RATE, false).expect("random numbers").iter().map(|packet| source(packet)).collect()
        };
        assert!(sources(Flood::InitOnePrefix).iter().all(|source| source[..3] == ATTACKER));
        assert!(sources(Flood::Abort).iter().all(|source| *source == CALLER.octets()));
        let prefixes: HashSet<_> = sources(Flood::Init).iter().map(|s| [s[0], s[1], s[2]]).collect();
        assert!(prefixes.len() > PACKETS / 2, "{}", prefixes.len());
        let of_peers = [CALLER, newcomer(0)].map(|address| address.octets()[0]);
        assert!(!prefixes.iter().any(|prefix| of_peers.contains(&prefix[0])), "a peer has such an address");
    }

    #[test]
    fn a_stranger_never_comes_again_from_the_same_port() {
        for flood in Flood::ALL {
            let mut packet = flood.packets(RATE, false).expect("random numbers").swap_remove(0);
            let known = matches!(flood, Flood::Handshakes | Flood::Abort | Flood::Heartbeat);
            for times_sent in [1, 3, 5] {
                let before = packet.clone();
                flood.renew((0, &mut packet), times_sent);
                assert_eq!(packet == before, known, "{flood:?}");
                let rest = IP_HEADER_BYTES + 2..;
                assert_eq!(packet[rest.clone()], before[rest], "{flood:?}");
            }
        }
    }

    #[test]
    fn half_of_the_repeated_inits_are_the_same_as_a_second_before() {
        let mut packets = Flood::InitRepeated.packets(RATE, false).expect("random numbers");
        for times_sent in 1..4 {
            let before = packets.clone();
            for (number, packet) in packets.iter_mut().enumerate() {
                Flood::InitRepeated.renew((number, packet), times_sent);
            }
            let kept = packets.iter().zip(&before).map(|(packet, before)| packet == before);
            let kept: Vec<usize> =
                kept.enumerate().filter_map(|(number, kept)| kept.then_some(number)).collect();
            assert_eq!(kept.len() as u64, RATE / 2);
            assert!(kept.iter().all(|number| number % 2 == times_sent as usize % 2), "those that were new");
        }
    }

    #[test]
    fn lengths_and_ports_are_those_of_the_packet() {
        for (to_dead_port, port) in [(false, UDP_PORT), (true, DEAD_UDP_PORT)] {
            let packet = &Flood::Init.packets(RATE, to_dead_port).expect("random numbers")[0];
            let half = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
            assert_eq!((usize::from(half(2)), half(22)), (packet.len(), port));
            assert_eq!(usize::from(half(24)), packet.len() - IP_HEADER_BYTES);
        }
    }
}
