//! Messages to and from the SCTP of the Linux kernel, over UDP encapsulation.
#![forbid(unsafe_code)]

use std::net::IpAddr;

use swiftwater::{Association, ConnectError, LinkKind, Listener, RecvError, Stack, StackOptions};
use swiftwater_tests::peers::kernel::{self, ADDRESSES, OUR_ADDRESSES, lab};
use swiftwater_tests::peers::messages::{TestMessage, messages};
use swiftwater_tests::process::PATIENCE;
use swiftwater_tests::swiftwater_end;

const SERVER_PORT: u16 = 5000;

fn connect(port: u16) -> Result<Association, ConnectError> {
    Association::connect(format!("{}:{port}", ADDRESSES[0]).as_str())
}

/// Sorts messages for comparison: unordered ones, which may overtake, as a set, and the others stream by stream.
fn by_order(list: Vec<TestMessage>) -> (Vec<TestMessage>, Vec<TestMessage>) {
    let (mut unordered, mut ordered): (Vec<_>, Vec<_>) = list.into_iter().partition(|m| m.unordered);
    unordered.sort_by_key(|m| (m.payload.len(), m.stream));
    ordered.sort_by_key(|m| m.stream);
    (unordered, ordered)
}

#[test]
#[ignore = "needs user-mode Linux and root: ./test --all"]
fn its_server_gives_back_what_we_send() {
    lab("its_server_gives_back_what_we_send", || {
        let association = connect(kernel::ECHO_PORT).unwrap();
        for message in messages(usize::MAX) {
            swiftwater_end::send(&association, &message);
            assert_eq!(swiftwater_end::receive(&association).as_ref(), Some(&message));
        }
        association.close().unwrap();
    });
}

#[test]
#[ignore = "needs user-mode Linux and root: ./test --all"]
fn messages_pass_with_two_addresses_at_both_ends() {
    lab("messages_pass_with_two_addresses_at_both_ends", || {
        let options = StackOptions::default().with_local_addresses(OUR_ADDRESSES.map(IpAddr::V4).to_vec());
        let server = format!("{},{}:{}", ADDRESSES[0], ADDRESSES[1], kernel::ECHO_PORT);
        let association = Association::connect_with(server.as_str(), &options).unwrap();
        for message in messages(usize::MAX) {
            swiftwater_end::send(&association, &message);
            assert_eq!(swiftwater_end::receive(&association).as_ref(), Some(&message));
        }
        association.close().unwrap();
    });
}

#[test]
#[ignore = "needs user-mode Linux and root: ./test --all"]
fn its_client_gets_back_what_it_sends() {
    lab("its_client_gets_back_what_it_sends", || {
        let address = format!("{}:{SERVER_PORT}", OUR_ADDRESSES[0]);
        let server = swiftwater_end::echo_once(Listener::bind(address.as_str()).unwrap());
        let said =
            kernel::shell(&kernel::peer_command(&format!("connect {} {SERVER_PORT}", OUR_ADDRESSES[0])));
        assert_eq!(said, "36 messages came back\n");
        assert_eq!(server.join().unwrap(), 36);
    });
}

#[test]
#[ignore = "needs user-mode Linux and root: ./test --all"]
fn everything_arrives_that_it_sends_in_one_go() {
    lab("everything_arrives_that_it_sends_in_one_go", || {
        let association = connect(kernel::SOURCE_PORT).unwrap();
        let mut received = Vec::new();
        while let Some(message) = swiftwater_end::receive(&association) {
            received.push(message);
        }
        association.close().unwrap();
        assert_eq!(by_order(received), by_order(messages(usize::MAX).collect()));
    });
}

#[test]
#[ignore = "needs user-mode Linux and root: ./test --all"]
fn a_burst_of_ours_comes_back_whole() {
    lab("a_burst_of_ours_comes_back_whole", || {
        let association = connect(kernel::ECHO_PORT).unwrap();
        let sent: Vec<TestMessage> = messages(usize::MAX).collect();
        for message in &sent {
            swiftwater_end::send(&association, message);
        }
        let received = sent.iter().map(|_| swiftwater_end::receive(&association).unwrap()).collect();
        association.close().unwrap();
        assert_eq!(by_order(received), by_order(sent));
    });
}

#[test]
#[ignore = "needs user-mode Linux and root: ./test --all"]
fn it_shuts_down_first() {
    lab("it_shuts_down_first", || {
        let association = connect(kernel::ECHO_ONCE_PORT).unwrap();
        association.send(b"once").unwrap();
        assert_eq!(swiftwater_end::receive(&association).map(|m| m.payload), Some(b"once".to_vec()));
        assert_eq!(swiftwater_end::receive(&association), None);
        association.close().unwrap();
    });
}

#[test]
#[ignore = "needs user-mode Linux and root: ./test --all"]
fn its_abort_is_an_error() {
    lab("its_abort_is_an_error", || {
        let association = connect(kernel::ABORT_PORT).unwrap();
        association.send(b"go away").unwrap();
        let end = association.recv_timeout(PATIENCE);
        assert!(matches!(end, Err(RecvError::Lost(_))), "{end:?}");
    });
}

#[test]
#[ignore = "needs user-mode Linux and root: ./test --all"]
fn a_port_without_a_server_refuses() {
    lab("a_port_without_a_server_refuses", || {
        // An ABORT answers for the SCTP port, an ICMP message for the UDP port.
        let no_sctp = connect(kernel::SILENT_PORT);
        assert!(matches!(no_sctp, Err(ConnectError::Refused)), "{no_sctp:?}");
        let address = format!("{}:{}/udp:9900", ADDRESSES[0], kernel::ECHO_PORT);
        let no_udp = Association::connect(address.as_str());
        assert!(matches!(no_udp, Err(ConnectError::Refused)), "{no_udp:?}");
    });
}

#[test]
#[ignore = "needs user-mode Linux and root: ./test --all"]
fn raw_ip_on_its_host_comes_with_advice() {
    let advice = |link| {
        let options = StackOptions::default().with_link(link).with_udp_port(0);
        Stack::bind(&options).unwrap().warning().map(str::to_owned)
    };
    if kernel::is_beside_it() {
        assert_eq!(advice(LinkKind::Udp), None);
        assert_eq!(advice(LinkKind::Auto), advice(LinkKind::Raw));
        return println!("{}", advice(LinkKind::Raw).unwrap());
    }
    lab("raw_ip_on_its_host_comes_with_advice", || {
        let said = kernel::beside_it("raw_ip_on_its_host_comes_with_advice");
        assert!(
            said.contains("answers packets of raw IP with ABORT") && said.contains("`rmmod sctp`"),
            "{said}"
        );
    });
}
