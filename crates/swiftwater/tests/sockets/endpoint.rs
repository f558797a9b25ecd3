//! One-to-many endpoints.

use std::collections::{HashMap, HashSet};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::thread;

use swiftwater::{
    Address, Association, AssociationId, AssociationOptions, AssociationState, Bytes, ConnectError, Endpoint,
    Event, LossKind, Received, SendError, SendInfo,
};

use crate::pair::{listen, listen_with, must_end};

fn next_message(endpoint: &Endpoint) -> (AssociationId, Vec<u8>) {
    loop {
        if let (id, Received::Message(message)) = endpoint.recv().unwrap() {
            return (id, message.to_vec());
        }
    }
}

fn next_event(endpoint: &Endpoint) -> (AssociationId, Event) {
    loop {
        if let (id, Received::Event(event)) = endpoint.recv().unwrap() {
            return (id, event);
        }
    }
}

#[test]
fn serves_many_peers() {
    must_end(|| {
        let endpoint = Endpoint::bind("127.0.0.1:0/udp:0").unwrap();
        let clients: Vec<_> = (0..20).map(|_| Association::connect(endpoint.address()).unwrap()).collect();
        for (i, client) in clients.iter().enumerate() {
            client.send(&[i as u8; 10]).unwrap();
        }
        let mut who = HashMap::new();
        for _ in 0..20 {
            let (id, message) = next_message(&endpoint);
            endpoint.send_to(id, &message, &SendInfo { ppid: 5, ..SendInfo::default() }).unwrap();
            assert!(who.insert(id, message[0]).is_none());
        }
        for (i, client) in clients.iter().enumerate() {
            let answer = client.recv().unwrap().unwrap();
            assert_eq!(answer.to_vec(), [i as u8; 10]);
            assert_eq!(answer.info.ppid, 5);
        }
        for client in clients {
            client.close().unwrap();
        }
        // Waiting for messages has skipped `Up`; each association goes down once, in order.
        let mut down = 0;
        while down < 20 {
            match next_event(&endpoint) {
                (id, Event::Down(why)) => {
                    assert_eq!(why, None);
                    assert!(who.remove(&id).is_some());
                    down += 1;
                }
                (_, Event::Up | Event::PeerShutdown) => {}
                other => panic!("{other:?}"),
            }
        }
    });
}

#[test]
fn the_identifier_of_an_ended_association_names_no_other() {
    must_end(|| {
        let endpoint = Endpoint::bind("127.0.0.1:0/udp:0").unwrap();
        let ann = Association::connect(endpoint.address()).unwrap();
        ann.send(b"from ann").unwrap();
        let (old, _) = next_message(&endpoint);
        ann.close().unwrap();
        while endpoint.peer_addr(old).is_some() {
            thread::yield_now();
        }
        // The program has not read the end yet when the next association begins.
        let bob = Association::connect(endpoint.address()).unwrap();
        bob.send(b"from bob").unwrap();
        let down = loop {
            match next_event(&endpoint) {
                (id, Event::Down(why)) => break (id, why),
                (_, Event::Up | Event::PeerShutdown) => {}
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(down, (old, None));
        let (new, _) = next_message(&endpoint);
        assert_eq!((old.index(), new.index()), (0, 0), "the place in the tables is used again");
        assert_ne!(old, new);

        let info = SendInfo::default();
        assert_eq!(endpoint.send_to(old, b"for ann", &info), Err(SendError::Closed));
        assert_eq!(endpoint.try_send_to(old, b"for ann", &info), Err(SendError::Closed));
        assert_eq!(endpoint.peer_addr(old), None);
        assert_eq!(endpoint.statistics(old), None);
        assert!(endpoint.update_options(old, |options| options.nodelay = true).is_err());
        endpoint.abort(old, "for ann");
        endpoint.send_to(new, b"for bob", &info).unwrap();
        assert_eq!(bob.recv().unwrap().unwrap().to_vec(), b"for bob");
    });
}

#[test]
fn connects_and_hears_of_it() {
    must_end(|| {
        let listener = listen();
        let endpoint = Endpoint::bind("127.0.0.1:0/udp:0").unwrap();
        let id = endpoint.connect(listener.address()).unwrap();
        assert!(matches!(endpoint.connect(listener.address()), Err(ConnectError::Exists)));
        assert_eq!(next_event(&endpoint), (id, Event::Up));
        let (server, _) = listener.accept().unwrap();
        endpoint.send_to(id, b"hello", &SendInfo::stream(3)).unwrap();
        let hello = server.recv().unwrap().unwrap();
        assert_eq!((hello.to_vec(), hello.info.stream), (b"hello".to_vec(), 3));
        assert_eq!(
            endpoint.send_to(id, b"x", &SendInfo::stream(10)),
            Err(SendError::NoSuchStream { stream: 10, streams: 10 })
        );
        endpoint.shutdown(id).unwrap();
        assert!(server.recv().unwrap().is_none());
        server.close().unwrap();
        assert_eq!(next_event(&endpoint), (id, Event::Down(None)));
        assert_eq!(endpoint.send_to(id, b"late", &SendInfo::default()), Err(SendError::Closed));
    });
}

#[test]
fn each_connect_names_its_association() {
    must_end(|| {
        let listeners = [(); 3].map(|()| listen());
        let endpoint = Endpoint::bind("127.0.0.1:0/udp:0").unwrap();
        let ids = listeners.each_ref().map(|at| endpoint.connect(at.address()).unwrap());
        for (id, listener) in ids.iter().zip(&listeners) {
            assert_eq!(endpoint.peer_addr(*id), Some(listener.local_addr()));
        }
        let up: HashSet<_> = (0..ids.len()).map(|_| next_event(&endpoint).0).collect();
        assert_eq!(up, HashSet::from(ids));
    });
}

#[test]
fn messages_have_the_limit_of_their_association() {
    must_end(|| {
        let listener = listen();
        let endpoint = Endpoint::bind("127.0.0.1:0/udp:0").unwrap();
        let id = endpoint.connect(listener.address()).unwrap();
        assert_eq!(next_event(&endpoint), (id, Event::Up));
        let options = endpoint.options(id).unwrap();
        let send = |bytes| endpoint.send_to(id, &vec![7; bytes], &SendInfo::default());
        for limit_bytes in [10, 1000] {
            endpoint.set_options(id, &options.clone().with_message_bytes_max(limit_bytes)).unwrap();
            let bytes = limit_bytes + 1;
            assert_eq!(send(bytes), Err(SendError::TooLong { bytes, limit_bytes }));
            assert_eq!(send(limit_bytes), Ok(()));
        }
    });
}

#[test]
fn an_abort_says_why() {
    must_end(|| {
        let endpoint = Endpoint::bind("127.0.0.1:0/udp:0").unwrap();
        let client = Association::connect(endpoint.address()).unwrap();
        let (id, event) = next_event(&endpoint);
        assert_eq!(event, Event::Up);
        endpoint.abort(id, "out of tea");
        let lost = client.recv().unwrap_err().to_string();
        assert!(lost.contains("out of tea"), "{lost}");
        assert!(matches!(next_event(&endpoint), (_, Event::Down(Some(_)))));
    });
}

#[test]
fn only_an_association_that_is_up_can_be_shut_down() {
    must_end(|| {
        let endpoint = Endpoint::bind("127.0.0.1:0/udp:0").unwrap();
        let client = Association::connect(endpoint.address()).unwrap();
        let (id, _up) = next_event(&endpoint);
        assert_eq!(endpoint.shutdown(AssociationId::new(77, 77)), Err(SendError::Closed), "it never existed");
        // The client has not read all, so the shutdown does not complete.
        while endpoint.try_send_to(id, &[7; 100_000], &SendInfo::default()).is_ok() {}
        assert_eq!(endpoint.shutdown(id), Ok(()));
        assert_eq!(endpoint.shutdown(id), Err(SendError::Closed), "it is shutting down");
        while client.recv().unwrap().is_some() {}
        while !matches!(next_event(&endpoint), (_, Event::Down(None))) {}
        assert_eq!(endpoint.shutdown(id), Err(SendError::Closed), "it has ended");
    });
}

#[test]
fn tells_the_streams_and_addresses_of_each_association() {
    must_end(|| {
        let endpoint = Endpoint::bind("127.0.0.1:0/udp:0").unwrap();
        let options = AssociationOptions::default().with_streams_out(3).with_streams_in_max(4);
        let client = Association::connect_with(endpoint.address(), &options.into()).unwrap();
        let (id, _up) = next_event(&endpoint);
        assert_eq!((endpoint.streams_in(id), endpoint.streams_out(id)), (Some(3), Some(4)));
        assert_eq!((endpoint.peer_ips(id), endpoint.local_ips(id)), (client.local_ips(), client.peer_ips()));
        endpoint.send_bytes_to(id, Bytes::from_static(b"no copy"), &SendInfo::stream(3)).unwrap();
        endpoint.flush();
        assert_eq!(client.recv().unwrap().unwrap().to_vec(), b"no copy");
        client.abort("enough");
        while !matches!(next_event(&endpoint), (_, Event::Down(_))) {}
        assert_eq!((endpoint.streams_in(id), endpoint.streams_out(id)), (None, None));
        assert!(endpoint.peer_ips(id).is_empty() && endpoint.local_ips(id).is_empty());
        let late = endpoint.send_bytes_to(id, Bytes::from_static(b"late"), &SendInfo::default());
        assert_eq!(late, Err(SendError::Closed));
    });
}

/// Returns a socket that takes the packets of one host for another, and a function that then carries them in both directions.
fn detour(to: SocketAddr) -> (UdpSocket, impl FnOnce(UdpSocket, SocketAddr)) {
    let carry = move |between: UdpSocket, from: SocketAddr| {
        thread::spawn(move || {
            let mut packet = [0; 1 << 16];
            while let Ok((bytes, source)) = between.recv_from(&mut packet) {
                let _ = between.send_to(&packet[..bytes], if source == to { from } else { to });
            }
        });
    };
    (UdpSocket::bind("127.0.0.1:0").unwrap(), carry)
}

#[test]
fn a_message_too_early_for_the_streams_of_the_peer_fails_alone() {
    must_end(|| {
        let listener = listen_with(&AssociationOptions::default().with_streams_in_max(2).into());
        let options = AssociationOptions::default().with_events(true).with_sender_dry_events(false);
        let endpoint = Endpoint::bind_with("127.0.0.1:0/udp:0", &options.into()).unwrap();
        let at = |udp_port| SocketAddr::from((Ipv4Addr::LOCALHOST, udp_port));
        let (between, carry) = detour(at(listener.stack().udp_port()));
        let udp_port = Some(between.local_addr().unwrap().port());
        let id = endpoint.connect(Address { udp_port, ..listener.address() }).unwrap();
        assert_eq!(endpoint.statistics(id).unwrap().state, AssociationState::CookieWait);
        assert_eq!((endpoint.streams_out(id), endpoint.streams_in(id)), (None, None));
        endpoint.send_to(id, b"nine", &SendInfo::stream(9)).unwrap();
        endpoint.send_to(id, b"one", &SendInfo::stream(1)).unwrap();
        carry(between, at(endpoint.stack().udp_port()));
        match next_event(&endpoint) {
            (_, Event::SendFailed { info, data, was_sent, cause, .. }) => {
                assert_eq!((info.stream, &data[..], was_sent, cause), (9, &b"nine"[..], false, 1));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(next_event(&endpoint), (id, Event::Up));
        let (server, _) = listener.accept().unwrap();
        assert_eq!(server.recv().unwrap().unwrap().to_vec(), b"one");
        assert_eq!((endpoint.streams_out(id), endpoint.streams_in(id)), (Some(2), Some(10)));
        let late = endpoint.send_to(id, b"nine", &SendInfo::stream(9));
        assert_eq!(late, Err(SendError::NoSuchStream { stream: 9, streams: 2 }));
    });
}

#[test]
fn refused_where_nobody_listens() {
    must_end(|| {
        let server = listen();
        let address = server.address();
        drop(server);
        let endpoint = Endpoint::bind("127.0.0.1:0/udp:0").unwrap();
        let id = endpoint.connect(address).unwrap();
        match next_event(&endpoint) {
            (refused, Event::Down(Some(why))) => {
                assert_eq!(refused, id);
                assert_eq!(why.kind, LossKind::Refused);
                assert!(why.text.contains("refused"), "{why}");
            }
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn one_that_does_not_read_stops_no_other() {
    must_end(|| {
        let endpoint = Endpoint::bind("127.0.0.1:0/udp:0").unwrap();
        let stalled = Association::connect(endpoint.address()).unwrap();
        let (stalled_id, _) = next_event(&endpoint);
        while endpoint.try_send_to(stalled_id, &[0; 60_000], &SendInfo::default()).is_ok() {}
        let brisk = Association::connect(endpoint.address()).unwrap();
        let (brisk_id, _) = next_event(&endpoint);
        for _ in 0..100 {
            endpoint.send_to(brisk_id, b"quick", &SendInfo::default()).unwrap();
            assert_eq!(brisk.recv().unwrap().unwrap().to_vec(), b"quick");
        }
        drop(stalled);
    });
}
