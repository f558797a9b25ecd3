//! A peer whose process was killed and started again on the same ports: the existing association continues, and its
//! user is told (RFC 9260 §5.2.4 A).

use std::future::Future;
use std::io::{BufRead, BufReader};
use std::pin::pin;
use std::process::{Child, Command, Stdio};
use std::task::{Context, Waker};

use swiftwater::{AssociationOptions, Endpoint, Event, Listener, Received, RecvError, SendInfo, internals};

use crate::pair::{for_tasks, must_end};

/// Set in the process that plays the peer: its address, and the address that it connects to.
const ROLE: &str = "SWIFTWATER_TEST_RESTART";

/// Not a test: runs the process of the peer.
#[test]
fn peer_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (own, other) = role.split_once(' ').unwrap();
    let endpoint = Endpoint::bind(own).unwrap();
    endpoint.connect(other).unwrap();
    loop {
        match endpoint.recv().unwrap() {
            (id, Received::Event(Event::Up)) => endpoint.send_to(id, b"hello", &SendInfo::default()).unwrap(),
            (id, Received::Message(message)) => {
                if message.to_vec() == b"shut down" {
                    endpoint.shutdown(id).unwrap();
                }
                println!("\nanswered");
            }
            _ => {}
        }
    }
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start_peer(role: &str) -> Killed {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["restarted_peer::peer_process", "--exact", "--nocapture"])
        .env(ROLE, role)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    Killed(child)
}

/// Returns whether the peer has printed that it got an answer.
fn is_answered(peer: &mut Killed) -> bool {
    let lines = BufReader::new(peer.0.stdout.take().unwrap()).lines();
    lines.map_while(Result::ok).any(|line| line == "answered")
}

/// Returns an address for the peer, with a free UDP port.
fn own_address() -> String {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    format!("127.0.0.1:6001/udp:{}", socket.local_addr().unwrap().port())
}

#[test]
fn is_told_to_the_reader_of_its_association() {
    must_end(|| {
        let listener = Listener::bind("127.0.0.1:0/udp:0").unwrap();
        let role = format!("{} {}", own_address(), listener.address());
        let mut peer = start_peer(&role);
        let (association, _) = listener.accept().unwrap();
        assert_eq!(association.recv().unwrap().unwrap().to_vec(), b"hello");
        association.send(b"welcome").unwrap();
        assert!(is_answered(&mut peer));
        drop(peer);
        let mut peer = start_peer(&role);
        let told = association.recv().unwrap_err();
        assert!(matches!(&told, RecvError::Restarted(_)), "{told}");
        assert_eq!(association.recv().unwrap().unwrap().to_vec(), b"hello");
        association.send(b"welcome back").unwrap();
        assert!(is_answered(&mut peer));
    });
}

#[test]
fn ends_the_shutdown_of_the_peer_before_it() {
    must_end(|| {
        let listener = Listener::bind("127.0.0.1:0/udp:0").unwrap();
        let role = format!("{} {}", own_address(), listener.address());
        let mut peer = start_peer(&role);
        let (association, _) = listener.accept().unwrap();
        assert_eq!(association.recv().unwrap().unwrap().to_vec(), b"hello");
        let association = for_tasks(&association);
        // The association waits for more of this end.
        internals::set_has_upper_data(&association, true);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            association.send(b"shut down").await.unwrap();
            internals::peer_shutdown(&association).await;
            assert!(is_answered(&mut peer));
            drop(peer);
            let _peer = start_peer(&role);
            let told = loop {
                if let Err(told) = association.recv().await {
                    break told;
                }
            };
            assert!(matches!(&told, RecvError::Restarted(_)), "{told}");
            let peer_shutdown = pin!(internals::peer_shutdown(&association));
            assert!(peer_shutdown.poll(&mut Context::from_waker(Waker::noop())).is_pending());
        });
    });
}

#[test]
fn is_an_event_of_its_association() {
    must_end(|| {
        let options = AssociationOptions::default().with_events(true).into();
        let listener = Listener::bind_with("127.0.0.1:0/udp:0", &options).unwrap();
        let role = format!("{} {}", own_address(), listener.address());
        let mut peer = start_peer(&role);
        let (association, _) = listener.accept().unwrap();
        assert!(matches!(association.recv_any().unwrap(), Some(Received::Event(Event::Up))));
        assert!(matches!(association.recv_any().unwrap(), Some(Received::Message(_))));
        association.send(b"welcome").unwrap();
        assert!(is_answered(&mut peer));
        drop(peer);
        let _peer = start_peer(&role);
        assert!(matches!(association.recv_any().unwrap(), Some(Received::Event(Event::SenderDry))));
        assert!(matches!(association.recv_any().unwrap(), Some(Received::Event(Event::Restarted(_)))));
        assert!(matches!(association.recv_any().unwrap(), Some(Received::Message(_))));
    });
}

#[test]
fn is_an_event_of_an_endpoint() {
    must_end(|| {
        let endpoint = Endpoint::bind("127.0.0.1:0/udp:0").unwrap();
        let role = format!("{} {}", own_address(), endpoint.address());
        let mut seen = Vec::new();
        let mut hears = || loop {
            match endpoint.recv().unwrap() {
                (from, Received::Message(message)) => {
                    assert_eq!(message.to_vec(), b"hello");
                    endpoint.send_to(from, b"welcome", &SendInfo::default()).unwrap();
                    return seen.clone();
                }
                (_, Received::Event(Event::Up)) => seen.push("up"),
                (_, Received::Event(Event::Restarted(_))) => seen.push("restarted"),
                (_, other) => panic!("{other:?}"),
            }
        };
        let mut peer = start_peer(&role);
        assert_eq!(hears(), ["up"]);
        assert!(is_answered(&mut peer));
        drop(peer);
        let mut peer = start_peer(&role);
        assert_eq!(hears(), ["up", "restarted"]);
        assert!(is_answered(&mut peer));
    });
}
