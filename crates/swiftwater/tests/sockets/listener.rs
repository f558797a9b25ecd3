//! Listeners: backlog, time limits, ports.

use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use swiftwater::{
    AcceptError, Address, Association, AssociationOptions, BindError, ConnectError, Listener,
    ListenerOptions, ReceivePool, Stack, StackOptions,
};

use crate::pair::{listen, listen_with, must_end};

#[test]
fn accepting_can_be_given_up() {
    must_end(|| {
        let listener = listen();
        assert_eq!(listener.try_accept().unwrap_err(), AcceptError::WouldBlock);
        let none = listener.accept_timeout(Duration::from_millis(5)).unwrap_err();
        assert_eq!(none, AcceptError::TimedOut);
        let client = Association::connect(listener.address()).unwrap();
        let (server, _) = listener.accept_timeout(Duration::MAX).unwrap();
        client.send(b"in time").unwrap();
        assert_eq!(server.recv().unwrap().unwrap().to_vec(), b"in time");
    });
}

#[test]
fn one_more_than_the_backlog_waits_for_room() {
    must_end(|| {
        let listener = listen_with(&ListenerOptions::default().with_backlog(2).into());
        let address = listener.address();
        let ask_soon_again = AssociationOptions::default().with_rto_initial(Duration::from_millis(5)).into();
        let connect = || Association::connect_with(&address, &ask_soon_again).unwrap();
        let (first, second) = (connect(), connect());
        first.send(b"first").unwrap();
        second.send(b"second").unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                let third = connect();
                third.send(b"third").unwrap();
                third.close().unwrap();
            });
            while listener.stack().statistics().endpoint.accepts_put_off == 0 {
                thread::yield_now();
            }
            for text in ["first", "second", "third"] {
                let (server, _) = listener.accept().unwrap();
                assert_eq!(server.recv().unwrap().unwrap().to_vec(), text.as_bytes());
            }
        });
    });
}

#[test]
fn one_more_than_the_backlog_is_refused_if_that_is_wanted() {
    must_end(|| {
        let options = ListenerOptions::default().with_backlog(1).with_refuse_beyond_backlog(true).into();
        let listener = listen_with(&options);
        let first = Association::connect(listener.address()).unwrap();
        let refused = Association::connect(listener.address()).unwrap_err();
        assert!(matches!(refused, ConnectError::Refused), "{refused}");
        listener.accept().unwrap();
        Association::connect(listener.address()).unwrap();
        drop(first);
    });
}

#[test]
fn associations_that_wait_are_charged_to_the_pool_of_their_listener() {
    must_end(|| {
        let pool = ReceivePool::with_limit(40 << 10);
        let options = StackOptions::default()
            .with_listener(ListenerOptions::default().with_refuse_beyond_backlog(true))
            .with_association(AssociationOptions::default().with_receive_pool(pool.clone()));
        let listener = listen_with(&options);
        let clients = Stack::bind(&StackOptions::default().with_udp_port(0)).unwrap();
        let connect = || clients.connect(listener.address());
        let waiting: Vec<_> = (0..4).map(|_| connect().unwrap()).collect();
        let refused = connect().unwrap_err();
        assert!(matches!(refused, ConnectError::Refused), "{refused}");
        let (accepted, _) = listener.accept().unwrap();
        let more = connect().unwrap();
        assert!(!pool.has(10 << 10));
        drop(listener);
        // A listener that was closed returns the memory with the end of each association.
        while !pool.has(40 << 10) {
            thread::sleep(Duration::from_millis(1));
        }
        drop((waiting, accepted, more));
    });
}

#[test]
fn each_further_address_of_a_peer_that_waits_is_charged() {
    must_end(|| {
        let pool = ReceivePool::with_limit(40 << 10);
        let options = StackOptions::default()
            .with_listener(ListenerOptions::default().with_refuse_beyond_backlog(true))
            .with_association(AssociationOptions::default().with_receive_pool(pool.clone()));
        let listener = listen_with(&options);
        let connect = |addresses: u8| {
            let local_addresses: Vec<IpAddr> = (1..=addresses).map(|host| [127, 0, 0, host].into()).collect();
            let options = StackOptions::default().with_local_addresses(local_addresses).with_udp_port(0);
            let client = Stack::bind(&options).unwrap();
            client.connect(listener.address())
        };
        // 10 KiB, and 1.5 KiB for each of fifteen further addresses.
        let first = connect(16).unwrap();
        assert!(pool.has(7680) && !pool.has(7681));
        let refused = connect(1).unwrap_err();
        assert!(matches!(refused, ConnectError::Refused), "{refused}");
        let (accepted, _) = listener.accept().unwrap();
        let second = connect(2).unwrap();
        assert!(pool.has((40 << 10) - (10 << 10) - 1536) && !pool.has((40 << 10) - (10 << 10) - 1535));
        assert!(connect(16).is_err(), "its addresses count before it is accepted");
        drop((first, second, accepted));
    });
}

#[test]
fn each_further_address_of_the_listener_is_charged_for_each_of_a_peer_that_waits() {
    must_end(|| {
        const LIMIT_BYTES: usize = 40 << 10;
        let pool = ReceivePool::with_limit(LIMIT_BYTES);
        let options = StackOptions::default()
            .with_association(AssociationOptions::default().with_receive_pool(pool.clone()));
        let server = Stack::bind(&options.with_udp_port(0)).unwrap();
        let three = [1, 2, 3].map(|host| [127, 0, 0, host].into());
        let listener = server.with_local_addresses(&three).listen(0).unwrap();
        let two: [IpAddr; 2] = [[127, 0, 0, 1].into(), [127, 0, 0, 2].into()];
        let client =
            Stack::bind(&StackOptions::default().with_local_addresses(two).with_udp_port(0)).unwrap();
        let waiting = client.connect(listener.address()).unwrap();
        let free_bytes = LIMIT_BYTES - (10 << 10) - 1536 - 2 * 2 * 52;
        assert!(pool.has(free_bytes) && !pool.has(free_bytes + 1));
        drop(waiting);
    });
}

#[test]
fn clients_of_one_stack_with_pools_of_their_own_do_not_take_the_places_of_each_other() {
    must_end(|| {
        let options = StackOptions::default()
            .with_local_addresses([IpAddr::from([127, 0, 0, 1])])
            .with_udp_port(0)
            .with_prefix_associations_max(2);
        let stack = Stack::bind(&options).unwrap();
        let listener = stack.listen(0).unwrap();
        let client = || {
            let pool = ReceivePool::with_limit(1 << 20);
            stack.with_options(&AssociationOptions::default().with_receive_pool(pool))
        };
        let (one, other) = (client(), client());
        let elsewhere = Stack::bind(&StackOptions::default().with_udp_port(0)).unwrap();
        let connect = |from: &Stack| from.connect(listener.address());
        let mut connected: Vec<_> = [&one, &one].map(|from| connect(from).unwrap()).into();
        let has_no_place = |from: &Stack| {
            let refused = connect(from).unwrap_err().to_string();
            assert!(refused.contains("out of resource"), "{refused}");
        };
        has_no_place(&one);
        // Peers past this stack count for this host.
        connected.extend([&other, &elsewhere, &elsewhere, &other].map(|from| connect(from).unwrap()));
        [&other, &elsewhere].into_iter().for_each(has_no_place);
        drop(connected);
    });
}

#[test]
fn a_backlog_of_any_size_is_one() {
    must_end(|| {
        for backlog in [0, u32::MAX] {
            let listener = listen_with(&ListenerOptions::default().with_backlog(backlog).into());
            let client = Association::connect(listener.address()).unwrap();
            client.send(b"hello").unwrap();
            assert_eq!(listener.accept().unwrap().0.recv().unwrap().unwrap().to_vec(), b"hello");
        }
    });
}

#[test]
fn one_that_went_away_before_it_was_accepted_leaves_its_messages() {
    must_end(|| {
        let listener = listen_with(&ListenerOptions::default().with_backlog(1).into());
        for round in 0..3u8 {
            let client = Association::connect(listener.address()).unwrap();
            client.send(&[round]).unwrap();
            client.close().unwrap_or_default();
            let (server, from) = listener.accept().unwrap();
            assert_eq!(server.peer_addr(), from);
            assert!(from.ip().is_loopback() && from.port() > 0, "{from}");
            assert_eq!(server.recv().unwrap().unwrap().to_vec(), [round]);
            assert!(server.recv().unwrap().is_none());
            assert!(server.send(b"too late").is_err());
        }
    });
}

#[test]
fn one_that_aborted_before_it_was_accepted_says_so() {
    must_end(|| {
        let listener = listen();
        let aborted = Association::connect(listener.address()).unwrap();
        aborted.abort("never mind");
        let client = Association::connect(listener.address()).unwrap();
        let lost = listener.accept().unwrap().0.recv().unwrap_err().to_string();
        assert!(lost.contains("never mind"), "{lost}");
        // The second association is a different one, although it reuses the identifier of the first.
        let (server, _) = listener.accept().unwrap();
        client.send(b"another").unwrap();
        assert_eq!(server.recv().unwrap().unwrap().to_vec(), b"another");
    });
}

#[test]
fn a_closed_listener_leaves_its_associations_alone() {
    must_end(|| {
        let listener = listen();
        let address = listener.address();
        let accepted = Association::connect(&address).unwrap();
        let (server, _) = listener.accept().unwrap();
        let (waiting, silent) =
            (Association::connect(&address).unwrap(), Association::connect(&address).unwrap());
        waiting.send(b"nobody reads this").unwrap();
        // The listener has the message once it is acknowledged.
        while waiting.statistics().unwrap().send_buffered_bytes > 0 {
            thread::sleep(Duration::from_millis(1));
        }
        drop(listener);
        assert!(silent.recv().unwrap().is_none(), "an end in order");
        let lost = waiting.recv().unwrap_err().to_string();
        assert!(lost.contains("the listener was closed"), "{lost}");
        accepted.send(b"still here").unwrap();
        assert_eq!(server.recv().unwrap().unwrap().to_vec(), b"still here");
        assert!(matches!(Association::connect(&address), Err(ConnectError::Refused)));
    });
}

#[test]
fn ports_in_use_are_named() {
    must_end(|| {
        let listener = listen();
        let address = listener.address();
        let in_stack = listener.stack().listen(address.port).unwrap_err();
        assert!(matches!(in_stack, BindError::PortInUse { port } if port == address.port));
        assert!(in_stack.to_string().contains("choose another port"), "{in_stack}");
        let udp_port = address.udp_port.unwrap();
        let taken = Listener::bind(format!("127.0.0.1:1/udp:{udp_port}")).unwrap_err().to_string();
        assert!(taken.contains(&udp_port.to_string()) && taken.contains("in use"), "{taken}");
    });
}

#[test]
fn a_port_is_free_as_soon_as_its_last_user_is_gone() {
    must_end(|| {
        let address = listen().address();
        for _ in 0..20 {
            let listener = Listener::bind(&address).unwrap();
            let client = Association::connect(&address).unwrap();
            let (server, _) = listener.accept().unwrap();
            server.shutdown().unwrap();
            assert!(client.recv().unwrap().is_none());
            client.close().unwrap();
            server.close().unwrap();
        }
    });
}

#[test]
fn several_listeners_share_a_stack() {
    must_end(|| {
        let options = StackOptions::default().with_udp_port(0);
        let stack = Stack::bind(&options).unwrap();
        let (one, two) = (stack.listen(1).unwrap(), stack.listen(2).unwrap());
        let (to_one, to_two) =
            (Association::connect(one.address()).unwrap(), Association::connect(two.address()).unwrap());
        to_one.send(b"one").unwrap();
        to_two.send(b"two").unwrap();
        assert_eq!(two.accept().unwrap().0.recv().unwrap().unwrap().to_vec(), b"two");
        assert_eq!(one.accept().unwrap().0.recv().unwrap().unwrap().to_vec(), b"one");
    });
}

#[test]
fn a_process_with_the_udp_port_of_this_endpoint_at_another_address_takes_no_peers_place() {
    let stack = |ip: &str, udp_port| {
        let local_addresses = vec![ip.parse().unwrap()];
        Stack::bind(&StackOptions::default().with_udp_port(udp_port).with_local_addresses(local_addresses))
            .unwrap()
    };
    let server = stack("127.0.0.1", 0);
    let options = ListenerOptions::default().with_distinct_peers(true);
    let listener = server.listen_with(7, &options).unwrap();
    let udp_port = Some(server.udp_port());
    let to = Address { hosts: vec!["127.0.0.1".parse().unwrap()], port: 7, udp_port };
    let peer = stack("127.0.0.2", 0).connect_from(5000, to.clone()).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    assert!(stack("127.0.0.2", server.udp_port()).connect_from(5000, to).is_err());
    peer.send(b"still there").unwrap();
    assert_eq!(accepted.recv().unwrap().unwrap().to_vec(), b"still there");
}
