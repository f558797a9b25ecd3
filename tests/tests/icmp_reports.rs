//! Forged ICMP reports, on the loopback interface of a host of its own: the kernel accepts each that names a
//! socket, and only a report that quotes the verification tag may change anything.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::os::fd::AsRawFd;

use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, recv, sendto, setsockopt, socket,
};
use nix::sys::time::{TimeVal, TimeValLike};
use swiftwater::{Association, Listener, Stack, StackOptions};
use swiftwater_tests::namespace::Host;
use swiftwater_tests::process::PATIENCE;
use swiftwater_tests::wait;

/// Bytes before the IP packet in a frame on the loopback interface.
const ETHERNET_BYTES: usize = 14;
/// IPv4, UDP, and the header of SCTP.
const QUOTE_BYTES: usize = 20 + 8 + 12;
const UDP_DESTINATION: std::ops::Range<usize> = 22..24;
/// The last byte of the verification tag.
const TAG_END: usize = 20 + 8 + 7;
/// RFC 792: type and code.
const PROTOCOL_UNREACHABLE: [u8; 2] = [3, 2];
const HOST_UNREACHABLE: [u8; 2] = [3, 1];
const TOO_BIG: [u8; 2] = [3, 4];

/// An association with itself, and the packets to the server on the wire.
struct Talk {
    stack: Stack,
    listener: Listener,
    client: Association,
    server: Association,
    quote: Vec<u8>,
}

impl Talk {
    fn new() -> Self {
        let options = StackOptions::default().with_local_addresses(vec![[127, 0, 0, 1].into()]);
        let listener = Listener::bind_with("127.0.0.1:5001", &options).unwrap();
        let stack = Stack::bind(&options.with_udp_port(0)).unwrap();
        let client = stack.connect(listener.address()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let frames =
            socket(AddressFamily::Packet, SockType::Raw, SockFlag::empty(), SockProtocol::EthAll).unwrap();
        setsockopt(&frames, ReceiveTimeout, &TimeVal::seconds(PATIENCE.as_secs() as i64)).unwrap();
        client.send(b"on the wire").unwrap();
        let to = listener.address().encapsulation_port().to_be_bytes();
        let mut frame = [0; 2048];
        let quote = wait::found("a packet to the server on the wire", || {
            let bytes = recv(frames.as_raw_fd(), &mut frame, MsgFlags::empty()).unwrap();
            let packet = &frame[ETHERNET_BYTES.min(bytes)..bytes];
            (packet.get(UDP_DESTINATION) == Some(&to[..])).then(|| packet[..QUOTE_BYTES].to_vec())
        });
        server.recv().unwrap().unwrap();
        Talk { stack, listener, client, server, quote }
    }

    /// Returns a quote with a tag that is not the association's.
    fn forged_quote(&self) -> Vec<u8> {
        let mut quote = self.quote.clone();
        quote[TAG_END] ^= 1;
        quote
    }

    /// Exchanges a message and its answer. Returns false if the association is gone.
    fn goes_on(&self) -> bool {
        self.client.send(b"ping").is_ok()
            && matches!(self.server.recv_timeout(PATIENCE), Ok(Some(_)))
            && self.server.send(b"pong").is_ok()
            && matches!(self.client.recv_timeout(PATIENCE), Ok(Some(_)))
    }

    fn mtu_bytes(&self) -> usize {
        self.client.statistics().unwrap().paths[0].mtu_bytes
    }

    fn ignored(&self) -> u64 {
        self.stack.statistics().endpoint.reports_ignored
    }

    /// Checks that a forged report arrives and is ignored.
    fn ignores(&self, report: [u8; 2], mtu_bytes: u16) {
        let before = (self.ignored(), self.mtu_bytes());
        send_report(report, mtu_bytes, &self.forged_quote());
        wait::until("the forged report is counted", || {
            assert!(self.goes_on());
            self.ignored() > before.0
        });
        assert_eq!((self.ignored(), self.mtu_bytes()), (before.0 + 1, before.1));
    }
}

/// Sends an ICMP report as a router would.
fn send_report([kind, code]: [u8; 2], mtu_bytes: u16, quote: &[u8]) {
    let [mtu_high, mtu_low] = mtu_bytes.to_be_bytes();
    let mut report = vec![kind, code, 0, 0, 0, 0, mtu_high, mtu_low];
    report.extend_from_slice(quote);
    let words = report.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    report[2..4].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    let icmp = socket(AddressFamily::Inet, SockType::Raw, SockFlag::empty(), SockProtocol::Icmp).unwrap();
    sendto(icmp.as_raw_fd(), &report, &SockaddrIn::new(127, 0, 0, 1, 0), MsgFlags::empty()).unwrap();
}

/// Runs on a host of its own, if this user may make one.
fn on_a_host(name: &str, work: fn()) {
    let Some(host) = Host::new(name) else { return };
    host.ip("link set lo up");
    host.run(work).join().unwrap();
}

#[test]
#[ignore = "needs network namespaces: ./test --all"]
fn too_big_is_believed_with_the_tag_alone() {
    on_a_host("icmp-big", || {
        let talk = Talk::new();
        let before = talk.mtu_bytes();
        talk.ignores(TOO_BIG, 1500);
        assert_eq!(talk.mtu_bytes(), before);
        // Nor is it for associations to come, though the kernel believes it.
        let another = talk.stack.connect(talk.listener.address()).unwrap();
        assert_eq!(another.statistics().unwrap().paths[0].mtu_bytes, before);
        send_report(TOO_BIG, 1500, &talk.quote);
        wait::until("the report changes the MTU", || {
            assert!(talk.goes_on());
            talk.mtu_bytes() != before
        });
        assert!(talk.mtu_bytes() <= 1472);
    });
}

#[test]
#[ignore = "needs network namespaces: ./test --all"]
fn an_end_is_believed_with_the_tag_alone() {
    on_a_host("icmp-end", || {
        let talk = Talk::new();
        talk.ignores(PROTOCOL_UNREACHABLE, 0);
        talk.ignores(HOST_UNREACHABLE, 0);
        send_report(PROTOCOL_UNREACHABLE, 0, &talk.quote);
        wait::until("the report ends the association", || !talk.goes_on());
        assert_eq!(talk.stack.statistics().associations, 0);
    });
}
