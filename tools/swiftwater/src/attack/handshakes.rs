//! The answering half of a flood of handshakes: an attacker that owns the addresses it sends from.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sctp_wire::chunk::{Chunk, CookieEcho, InitAck};
use sctp_wire::parameter::Parameter;
use sctp_wire::{Header, Packet, packet};
use socket2::Socket;

use super::arena::{ATTACKER, ATTACKER_UDP_PORT, UDP_PORT};
use super::encapsulation::encapsulate;

/// Interval at which the attacker checks whether the flood is over.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Longest INIT ACK.
const ANSWER_BYTES_MAX: usize = 2048;

/// Returns the address and the SCTP port of the attacker's handshake of this number. The victim answers to the port, which
/// implies the address.
pub(super) fn source(number: usize) -> (Ipv4Addr, u16) {
    let port = (number % 0xff00) as u16 + 0x100;
    (address(port), port)
}

/// Returns the address for a port: its low byte is the port's.
fn address(port: u16) -> Ipv4Addr {
    let ([a, b, c], [_, host]) = (ATTACKER, port.to_be_bytes());
    Ipv4Addr::new(a, b, c, host)
}

/// Echoes each received cookie, until `stop` is set.
pub(super) fn answer(raw: &Socket, stop: &AtomicBool) -> io::Result<()> {
    let answers = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, ATTACKER_UDP_PORT))?;
    answers.set_read_timeout(Some(CHECK_INTERVAL))?;
    let mut buffer = [0; ANSWER_BYTES_MAX];
    while !stop.load(Ordering::Relaxed) {
        let Ok(bytes) = answers.recv(&mut buffer) else { continue };
        if let Some(echo) = echo(&buffer[..bytes]) {
            // A packet that the line does not accept is lost, as any packet may be.
            let _ = raw.send(&echo);
        }
    }
    Ok(())
}

/// Builds the COOKIE ECHO for an INIT ACK, with IP and UDP headers; returns `None` for any other packet.
fn echo(answer: &[u8]) -> Option<Vec<u8>> {
    let answer = Packet::parse(answer).ok()?;
    let header = answer.header();
    let first = answer.chunks().next()?.ok().filter(|chunk| chunk.kind == InitAck::KIND)?;
    let Chunk::InitAck(ack) = Chunk::parse(&first).ok()? else { return None };
    let mut sctp = Vec::new();
    let back = Header {
        source_port: header.destination_port,
        destination_port: header.source_port,
        verification_tag: ack.initiate_tag,
    };
    packet::write_header(&back, &mut sctp);
    ack.parameters().flatten().find_map(|parameter| match parameter {
        Parameter::StateCookie(found) => {
            CookieEcho { cookie: found.cookie }.write(&mut sctp);
            Some(())
        }
        _ => None,
    })?;
    packet::finish(&mut sctp);
    Some(encapsulate(address(header.destination_port), ATTACKER_UDP_PORT, UDP_PORT, &sctp))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_handshake_has_a_source_of_its_own_that_its_port_names() {
        let sources: HashSet<_> = (0..32_768).map(source).collect();
        assert_eq!(sources.len(), 32_768);
        for (from, port) in sources {
            assert_eq!((from.octets()[3], port > 0), ((port & 0xff) as u8, true));
        }
    }

    #[test]
    fn noise_is_not_answered() {
        assert_eq!(echo(&[]), None);
        assert_eq!(echo(&[7; 40]), None);
    }
}
