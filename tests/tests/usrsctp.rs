//! Messages to and from usrsctp, over UDP encapsulation on loopback.
#![forbid(unsafe_code)]

use std::net::{IpAddr, Ipv4Addr};
use std::thread;

use swiftwater::{Association, Listener, StackOptions};
use swiftwater_tests::peers::messages::{TestMessage, messages, payload};
use swiftwater_tests::peers::usrsctp::{
    self, DISCARD_PORT, Discarded, ECHO_BYTES_MAX, ECHO_PORT, Totals, UdpPorts,
};
use swiftwater_tests::swiftwater_end;

const SERVER_PORT: u16 = 5001;

/// Returns options with the UDP port to which usrsctp sends.
fn options(udp: UdpPorts) -> StackOptions {
    StackOptions::default()
        .with_local_addresses(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)])
        .with_udp_port(udp.local)
}

fn connect(sctp_port: u16, udp: UdpPorts) -> Association {
    let server = format!("127.0.0.1:{sctp_port}/udp:{}", udp.peer);
    Association::connect_with(server.as_str(), &options(udp)).expect("usrsctp listens there")
}

fn listen(udp: UdpPorts) -> Listener {
    let address = format!("127.0.0.1:{SERVER_PORT}/udp:{}", udp.local);
    Listener::bind_with(address.as_str(), &options(udp)).expect("the ports are free")
}

#[test]
#[ignore = "needs usrsctp: ./test --all"]
fn its_server_gives_back_what_we_send() {
    if !usrsctp::available() {
        return;
    }
    let udp = UdpPorts::free();
    let _server = usrsctp::echo_server(udp);
    let association = connect(ECHO_PORT, udp);
    for message in messages(ECHO_BYTES_MAX) {
        swiftwater_end::send(&association, &message);
        assert_eq!(swiftwater_end::receive(&association).as_ref(), Some(&message));
    }
    association.close().unwrap();
}

#[test]
#[ignore = "needs usrsctp: ./test --all"]
fn its_server_puts_our_fragments_together() {
    if !usrsctp::available() {
        return;
    }
    let udp = UdpPorts::free();
    let mut server = usrsctp::discard_server(udp);
    let association = connect(DISCARD_PORT, udp);
    let stream = 2;
    for ssn in 0..3_u16 {
        let message = TestMessage { stream, unordered: false, ppid: 7, payload: payload(65_536, stream) };
        swiftwater_end::send(&association, &message);
        let mut bytes = 0;
        loop {
            let line = server.line(|line| Discarded::parse(line).is_some());
            let piece = Discarded::parse(&line).unwrap();
            bytes += piece.bytes;
            assert_eq!((piece.stream, piece.ssn, piece.ppid), (stream, ssn, 7));
            if piece.complete {
                break;
            }
        }
        assert_eq!(bytes, 65_536);
    }
    association.close().unwrap();
}

#[test]
#[ignore = "needs usrsctp: ./test --all"]
fn its_server_counts_a_burst_of_ours_once_each() {
    if !usrsctp::available() {
        return;
    }
    for size in [1, 1500, 65_536] {
        let udp = UdpPorts::free();
        let mut server = usrsctp::tsctp_server(SERVER_PORT, udp);
        let association = connect(SERVER_PORT, udp);
        let payload = payload(size, 0);
        for _ in 0..200 {
            association.send(&payload).unwrap();
        }
        association.close().unwrap();
        let totals = server.line(|line| Totals::parse(line).is_some());
        let bytes = size as u64;
        assert_eq!(
            Totals::parse(&totals),
            Some(Totals { first_bytes: bytes, messages: 200, bytes: 200 * bytes })
        );
    }
}

#[test]
#[ignore = "needs usrsctp: ./test --all"]
fn its_client_gets_back_what_it_sends_and_ends_when_it_likes() {
    if !usrsctp::available() {
        return;
    }
    let udp = UdpPorts::free();
    let server = swiftwater_end::echo_once(listen(udp));
    let mut client = usrsctp::client(SERVER_PORT, UdpPorts { peer: udp.peer, local: udp.local });
    client.line(|line| line.contains("SCTP_COMM_UP"));
    for text in ["a", "hello", "the end"] {
        client.write_line(text);
        client.line(|line| line == text);
    }
    let (status, rest) = client.finish();
    assert!(status.success());
    assert!(rest.iter().any(|line| line.contains("SCTP_SHUTDOWN_COMP")), "{rest:?}");
    assert_eq!(server.join().unwrap(), 3);
}

#[test]
#[ignore = "needs usrsctp: ./test --all"]
fn its_client_sees_us_shut_down() {
    if !usrsctp::available() {
        return;
    }
    let udp = UdpPorts::free();
    let listener = listen(udp);
    let mut client = usrsctp::client(SERVER_PORT, udp);
    let association = swiftwater_end::accept(&listener);
    association.send(b"goodbye\n").unwrap();
    client.line(|line| line == "goodbye");
    let closing = thread::spawn(move || association.close());
    client.line(|line| line.contains("SCTP_SHUTDOWN_COMP"));
    closing.join().unwrap().unwrap();
}

#[test]
#[ignore = "needs usrsctp: ./test --all"]
fn a_burst_of_its_client_arrives_once_each() {
    if !usrsctp::available() {
        return;
    }
    for (size, unordered) in [(1, false), (1500, true), (65_536, false), (65_536, true)] {
        let udp = UdpPorts::free();
        let listener = listen(udp);
        let client = usrsctp::tsctp_client(SERVER_PORT, udp, 200, size, unordered);
        let association = swiftwater_end::accept(&listener);
        let mut count = 0;
        while let Some(message) = swiftwater_end::receive(&association) {
            assert_eq!((message.payload.len(), message.unordered), (size, unordered));
            count += 1;
        }
        assert_eq!(count, 200);
        association.close().unwrap();
        assert!(client.finish().0.success());
    }
}
