//! usrsctp, the user-space SCTP of the FreeBSD authors, in Debian's `libusrsctp-examples`.
//!
//! Its programs speak SCTP over UDP encapsulation when they are given both UDP ports, their own first. As root they
//! open raw sockets too, which no test uses.

use std::net::{Ipv4Addr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use sctp_wire::chunk::{Init, InitAck};
use sctp_wire::packet::{self, Header, Packet};
use sctp_wire::parameter::Parameters;
use sctp_wire::{Tsn, VerificationTag};

use crate::process::{PATIENCE, Process};
use crate::tools;

/// The SCTP port of `echo_server`. It returns whole messages of up to 10,240 bytes.
pub const ECHO_PORT: u16 = 7;
/// The SCTP port of `discard_server`.
pub const DISCARD_PORT: u16 = 9;
/// The largest message that `echo_server` returns whole.
pub const ECHO_BYTES_MAX: usize = 10_240;

/// The UDP ports of an association.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpPorts {
    /// Address on which usrsctp listens.
    pub peer: u16,
    /// Address to which usrsctp sends.
    pub local: u16,
}

impl UdpPorts {
    /// Returns two ports that were free a moment ago.
    ///
    /// # Panics
    /// If the host has no UDP port left.
    #[must_use]
    pub fn free() -> Self {
        let bind =
            || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|s| Ok((s.local_addr()?.port(), s)));
        // Both sockets are open at once, or the second could be given the first one's port.
        match (bind(), bind()) {
            (Ok((peer, _first)), Ok((local, _second))) => Self { peer, local },
            (a, b) => panic!("no free UDP port: {a:?}, {b:?}"),
        }
    }
}

/// Returns whether usrsctp is installed; if not, the test has been reported as skipped.
#[must_use]
pub fn available() -> bool {
    tools::program("tsctp").is_some() && tools::program("stdbuf").is_some()
}

/// Starts `echo_server`: it returns every message on its stream, with its PPID and its order, and prints it.
#[must_use]
pub fn echo_server(udp: UdpPorts) -> Process {
    server("echo_server", ECHO_PORT, udp)
}

/// Starts `discard_server`: it prints a line for every message; [`Discarded::parse`] reads it.
#[must_use]
pub fn discard_server(udp: UdpPorts) -> Process {
    server("discard_server", DISCARD_PORT, udp)
}

/// Starts `client`: it sends each line of its input, newline included, and prints what it receives.
#[must_use]
pub fn client(sctp_port: u16, udp: UdpPorts) -> Process {
    client_of(Ipv4Addr::LOCALHOST, sctp_port, udp)
}

/// Starts a client for a server at `address`.
#[must_use]
pub fn client_of(address: Ipv4Addr, sctp_port: u16, udp: UdpPorts) -> Process {
    let ports = [sctp_port, 0, udp.peer, udp.local].map(|port| port.to_string());
    Process::start(program("client").arg(address.to_string()).args(ports))
}

/// Starts `tsctp` as a client, which sends `count` messages of `bytes` and closes.
#[must_use]
pub fn tsctp_client(sctp_port: u16, udp: UdpPorts, count: usize, bytes: usize, unordered: bool) -> Process {
    let mut command = tsctp(sctp_port, udp);
    command.args(["-n", &count.to_string(), "-l", &bytes.to_string()]);
    if unordered {
        command.arg("-u");
    }
    Process::start(command.arg("127.0.0.1"))
}

/// Starts `tsctp` as a server, which prints a line for each association when that ends; [`Totals::parse`] reads it.
#[must_use]
pub fn tsctp_server(sctp_port: u16, udp: UdpPorts) -> Process {
    let mut process = Process::start(&mut tsctp(sctp_port, udp));
    wait_for_listener(sctp_port, udp, &mut process);
    process
}

/// Report of `discard_server` about a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Discarded {
    /// Bytes of the piece that it read.
    pub bytes: usize,
    /// The message's stream.
    pub stream: u16,
    /// Its stream sequence number.
    pub ssn: u16,
    /// Its payload protocol identifier.
    pub ppid: u32,
    /// Whether the piece ends the message.
    pub complete: bool,
}

impl Discarded {
    /// Reads a line of `discard_server` or `echo_server`; `None` for its other lines.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        line.strip_prefix("Msg of length ")?;
        let number = |before: &str| -> Option<u64> {
            let rest = line.split_once(before)?.1;
            rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())].parse().ok()
        };
        Some(Self {
            bytes: number("length ")? as usize,
            stream: number("stream ")? as u16,
            ssn: number("SSN ")? as u16,
            ppid: number("PPID ")? as u32,
            complete: number("complete ")? == 1,
        })
    }
}

/// Totals that `tsctp` prints as a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    /// Bytes of the first message.
    pub first_bytes: u64,
    /// Whole messages.
    pub messages: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

impl Totals {
    /// Reads the line that it prints at an association's end; `None` for its other lines.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split(", ").collect();
        let [first, messages, _calls, bytes, _seconds, _rate, _notifications] = fields[..] else {
            return None;
        };
        Some(Self {
            first_bytes: first.parse().ok()?,
            messages: messages.parse().ok()?,
            bytes: bytes.parse().ok()?,
        })
    }
}

fn server(name: &str, sctp_port: u16, udp: UdpPorts) -> Process {
    let mut process = Process::start(program(name).args([udp.peer, udp.local].map(|port| port.to_string())));
    wait_for_listener(sctp_port, udp, &mut process);
    process
}

fn tsctp(sctp_port: u16, udp: UdpPorts) -> Command {
    let mut command = program("tsctp");
    let [sctp, peer, local] = [sctp_port, udp.peer, udp.local].map(|port| port.to_string());
    command.args(["-v", "-p", &sctp, "-E", &peer, "-U", &local]);
    command
}

/// Returns the command for a program of usrsctp that prints line by line (`stdbuf`): to a pipe it would print block by block.
fn program(name: &str) -> Command {
    let mut command = Command::new("stdbuf");
    command.arg("-oL").arg(format!("/usr/lib/usrsctp/{name}"));
    command
}

/// Waits until a program listens. The programs do not report that: they answer an INIT with INIT ACK then, and with ABORT or not
/// at all before. The INIT leaves no state there (RFC 9260 §5.1).
fn wait_for_listener(sctp_port: u16, udp: UdpPorts, process: &mut Process) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, udp.local)).expect("our UDP port is free");
    socket.set_read_timeout(Some(Duration::from_millis(20))).expect("sockets have time limits");
    let init = init_to(sctp_port);
    let deadline = Instant::now() + PATIENCE;
    let mut answer = [0; 2048];
    loop {
        assert!(Instant::now() < deadline, "{process:?} does not listen");
        // The peer may not have started yet, which the system reports at the next call.
        let _ = socket.send_to(&init, (Ipv4Addr::LOCALHOST, udp.peer));
        match socket.recv(&mut answer) {
            Ok(bytes) if is_init_ack(&answer[..bytes]) => return,
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn init_to(sctp_port: u16) -> Vec<u8> {
    let mut packet = Vec::new();
    let header = Header { source_port: 1, destination_port: sctp_port, verification_tag: VerificationTag(0) };
    packet::write_header(&header, &mut packet);
    let init = Init {
        initiate_tag: VerificationTag(1),
        a_rwnd: 65_536,
        outbound_streams: 1,
        inbound_streams: 1,
        initial_tsn: Tsn(1),
        parameters: Parameters::new(&[]),
    };
    init.write(&mut packet);
    packet::finish(&mut packet);
    packet
}

fn is_init_ack(packet: &[u8]) -> bool {
    let first = Packet::parse(packet).ok().and_then(|packet| packet.chunks().next()?.ok());
    first.is_some_and(|chunk| chunk.kind == InitAck::KIND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_line_of_the_discard_server() {
        let line = "Msg of length 6 received from ::ffff:127.0.0.1:53008 on stream 3 with SSN 1 and TSN 2010872326, PPID 9, context 47, complete 1.";
        let expected = Discarded { bytes: 6, stream: 3, ssn: 1, ppid: 9, complete: true };
        assert_eq!(Discarded::parse(line), Some(expected));
        assert_eq!(Discarded::parse("Notification of length 20 received."), None);
    }

    #[test]
    fn reads_the_totals_of_tsctp() {
        let line = "1024, 100, 103, 102400, 0.010000, 10240000.000000, 0";
        assert_eq!(Totals::parse(line), Some(Totals { first_bytes: 1024, messages: 100, bytes: 102_400 }));
        assert_eq!(Totals::parse("Start sending 100 messages ..."), None);
    }

    #[test]
    #[ignore = "needs usrsctp: ./test --all"]
    fn its_client_and_its_echo_server_understand_each_other() {
        if !available() {
            return;
        }
        let udp = UdpPorts::free();
        let mut server = echo_server(udp);
        let mut client = client(ECHO_PORT, UdpPorts { peer: udp.local, local: udp.peer });
        client.line(|line| line.contains("SCTP_COMM_UP"));
        client.write_line("hello");
        assert_eq!(client.line(|line| line == "hello"), "hello");
        let got = server.line(|line| Discarded::parse(line).is_some());
        assert_eq!(Discarded::parse(&got).map(|d| (d.bytes, d.complete)), Some((6, true)));
        assert!(client.finish().0.success());
    }

    #[test]
    #[ignore = "needs usrsctp: ./test --all"]
    fn its_tsctp_counts_messages_of_many_packets() {
        if !available() {
            return;
        }
        let udp = UdpPorts::free();
        let mut server = tsctp_server(5001, udp);
        let client = tsctp_client(5001, UdpPorts { peer: udp.local, local: udp.peer }, 20, 65_536, false);
        let totals = server.line(|line| Totals::parse(line).is_some());
        let expected = Totals { first_bytes: 65_536, messages: 20, bytes: 20 * 65_536 };
        assert_eq!(Totals::parse(&totals), Some(expected));
        assert!(client.finish().0.success());
    }
}
