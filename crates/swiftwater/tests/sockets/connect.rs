//! Connecting, and the errors of failed attempts.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use swiftwater::{
    Address, AddressError, Association, AssociationOptions, ConnectError, Endpoint, Event, Listener,
    Received, Stack, StackOptions,
};

use crate::pair::{listen, must_end};

#[test]
fn where_no_server_runs_it_is_refused_at_once() {
    must_end(|| {
        let address = listen().address();
        let refused = Association::connect(&address).unwrap_err();
        assert!(matches!(refused, ConnectError::Refused), "{refused}");
        assert!(refused.to_string().contains("start the server"), "{refused}");
    });
}

#[test]
fn where_no_server_runs_it_is_refused_at_once_over_ipv6() {
    must_end(|| {
        let Ok(socket) = UdpSocket::bind("[::1]:0") else {
            eprintln!("skipped: this host has no IPv6");
            return;
        };
        let port = socket.local_addr().unwrap().port();
        drop(socket);
        let refused = Association::connect(format!("[::1]:7/udp:{port}")).unwrap_err();
        assert!(matches!(refused, ConnectError::Refused), "{refused}");
    });
}

#[test]
fn where_the_sctp_port_has_no_listener_it_is_refused() {
    must_end(|| {
        let listener = listen();
        let address = listener.address();
        let other = Address { port: address.port.wrapping_add(1), ..address };
        let refused = Association::connect(other).unwrap_err();
        assert!(matches!(refused, ConnectError::Refused), "{refused}");
    });
}

/// Also before it has had one, and after it has closed the last.
#[test]
fn where_the_stack_has_no_socket_it_is_refused() {
    must_end(|| {
        let options =
            StackOptions::default().with_local_addresses(vec![[127, 0, 0, 1].into()]).with_udp_port(0);
        let stack = Stack::bind(&options).unwrap();
        for _ in 0..2 {
            let refused = Association::connect(format!("127.0.0.1:7/udp:{}", stack.udp_port())).unwrap_err();
            assert!(matches!(refused, ConnectError::Refused), "{refused}");
            drop(stack.listen(0).unwrap());
        }
    });
}

#[test]
fn where_one_address_refuses_another_is_asked() {
    must_end(|| {
        let local_addresses = vec![[127, 0, 0, 1].into()];
        let options = StackOptions::default().with_local_addresses(local_addresses).with_udp_port(0);
        let listener = Stack::bind(&options).unwrap().listen(0).unwrap();
        let Address { port, udp_port, .. } = listener.address();
        let hosts = vec![[127, 0, 0, 9].into(), [127, 0, 0, 8].into(), [127, 0, 0, 1].into()];
        // No second INIT is sent.
        let options = AssociationOptions::default().with_init_retries_max(0).into();
        Association::connect_with(Address { hosts, port, udp_port }, &options).unwrap();
    });
}

#[test]
fn where_nobody_answers_it_times_out() {
    must_end(|| {
        // A UDP socket that receives everything and answers nothing.
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = silent.local_addr().unwrap().port();
        let options = AssociationOptions::default()
            .with_rto_initial(Duration::from_millis(10))
            .with_rto_max(Duration::from_millis(20))
            .with_rto_min(Duration::from_millis(10))
            .with_init_retries_max(3)
            .into();
        let none = Association::connect_with(format!("127.0.0.1:7/udp:{port}"), &options).unwrap_err();
        assert!(matches!(none, ConnectError::TimedOut), "{none}");
        assert!(none.to_string().contains("firewall"), "{none}");
    });
}

#[test]
fn an_attempt_that_is_given_up_leaves_nothing() {
    must_end(|| {
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = silent.local_addr().unwrap().port();
        let options = StackOptions::default().with_udp_port(0);
        let stack = Stack::bind(&options).unwrap();
        let server = format!("127.0.0.1:7/udp:{port}").parse().unwrap();
        for _ in 0..2 {
            let none = stack.connect_timeout(&server, Duration::from_millis(1)).unwrap_err();
            assert!(matches!(none, ConnectError::TimedOut), "{none}");
            assert_eq!(stack.association_count(), 0);
        }
        let listener = listen();
        let client = stack.connect_timeout(&listener.address(), Duration::from_secs(30)).unwrap();
        assert_eq!(client.peer_addr(), listener.local_addr());
    });
}

#[test]
fn alternatives_are_tried_one_after_the_other() {
    must_end(|| {
        let listener = listen();
        let good = listener.address();
        // The stack of the listener refuses another port, and no socket reaches the other family.
        let refusing = Address { port: 6, ..good.clone() };
        let options = StackOptions::default().with_local_addresses(["127.0.0.1".parse().unwrap()]);
        let foreign: Address = "[2001:db8::1]:7".parse().unwrap();
        let servers = [refusing.clone(), foreign.clone(), good.clone()];
        let client = Association::connect_with(&servers[..], &options).unwrap();
        assert_eq!(client.peer_addr(), listener.local_addr());
        let last = Association::connect_with(&[foreign, refusing][..], &options).unwrap_err();
        assert!(matches!(last, ConnectError::Refused), "{last}");
        let none = Association::connect_with(&Vec::<Address>::new()[..], &options).unwrap_err();
        assert!(matches!(none, ConnectError::Address(AddressError::NoHost)), "{none}");
        let local: [Address; 2] =
            ["192.0.2.77:7/udp:0", "127.0.0.1:7/udp:0"].map(|text| text.parse().unwrap());
        let listener = Listener::bind(&local[..]).unwrap();
        assert_eq!(listener.local_addr(), "127.0.0.1:7".parse().unwrap());
    });
}

#[test]
fn an_address_that_no_server_can_have_is_refused_at_once() {
    must_end(|| {
        let endpoint = Endpoint::bind("127.0.0.1:0/udp:0").unwrap();
        for (server, named) in [
            ("127.0.0.1:0", "127.0.0.1:0: no server has port 0"),
            ("[::1]:0", "[::1]:0: no server has port 0"),
            ("0.0.0.0:0", "127.0.0.1:0: no server has port 0"),
            ("127.0.0.1:7/udp:0", "127.0.0.1:7/udp:0: no server has UDP port 0"),
            ("127.0.0.1:0/udp:0", "127.0.0.1:0/udp:0: no server has UDP port 0"),
            ("224.0.0.1:7", "224.0.0.1:7: it is the address of several hosts"),
            ("127.0.0.1,255.255.255.255:7", "255.255.255.255:7: it is the address of several hosts"),
            ("[ff02::1]:7", "[ff02::1]:7: it is the address of several hosts"),
        ] {
            let errors = [
                Association::connect(server).unwrap_err(),
                Association::connect_timeout(&server.parse().unwrap(), Duration::MAX).unwrap_err(),
                endpoint.connect(server).unwrap_err(),
            ];
            for error in errors {
                let is_udp_port = matches!(error, ConnectError::InvalidUdpPort(_));
                assert_eq!(is_udp_port, server.ends_with("/udp:0"), "{server}: {error}");
                assert!(is_udp_port || matches!(error, ConnectError::InvalidRemote(_)), "{server}: {error}");
                assert!(error.to_string().contains(named), "{server}: {error}");
                assert_eq!(io::Error::from(error).kind(), io::ErrorKind::InvalidInput);
            }
        }
    });
}

#[test]
fn an_unspecified_host_is_this_host() {
    must_end(|| {
        let listener = listen();
        let Address { port, udp_port, .. } = listener.address();
        let udp_port = udp_port.unwrap();
        let client = Association::connect(format!("0.0.0.0:{port}/udp:{udp_port}")).unwrap();
        assert_eq!(client.peer_addr(), listener.local_addr());
        let stack = Stack::bind(&StackOptions::default().with_udp_port(0)).unwrap();
        let listener = stack.listen(0).unwrap();
        let server = Address { hosts: vec![listener.local_addr().ip()], ..listener.address() };
        assert!(server.hosts[0].is_unspecified());
        assert!(stack.connect(server).unwrap().peer_addr().ip().is_loopback());
    });
}

#[test]
fn an_ipv4_mapped_address_is_its_ipv4_address() {
    must_end(|| {
        let listener = listen();
        let Address { port, udp_port, .. } = listener.address();
        let mapped = SocketAddr::from((Ipv4Addr::LOCALHOST.to_ipv6_mapped(), port));
        let server = Address { udp_port, ..Address::try_from(mapped).unwrap() };
        let text = format!("{mapped}/udp:{}", udp_port.unwrap());
        let ipv4 = StackOptions::default().with_local_addresses(["127.0.0.1".parse().unwrap()]);
        for client in [
            Association::connect(text.as_str()).unwrap(),
            Association::connect_timeout(&server, Duration::MAX).unwrap(),
            Association::connect_with(&server, &ipv4).unwrap(),
        ] {
            assert_eq!(client.peer_addr(), listener.local_addr());
            assert_eq!(client.peer_ips(), [Ipv4Addr::LOCALHOST]);
        }
        let endpoint = Endpoint::bind("127.0.0.1:0/udp:0").unwrap();
        let id = endpoint.connect(server).unwrap();
        assert!(matches!(endpoint.recv().unwrap(), (up, Received::Event(Event::Up)) if up == id));
        assert_eq!(endpoint.peer_addr(id), Some(listener.local_addr()));
    });
}

#[test]
fn a_socket_bound_to_all_addresses_says_so() {
    must_end(|| {
        let listener = Listener::bind("0.0.0.0:0/udp:0").unwrap();
        assert!(listener.local_addr().ip().is_unspecified(), "{}", listener.local_addr());
        let client = Association::connect(listener.address()).unwrap();
        assert!(client.peer_addr().ip().is_loopback(), "{}", client.peer_addr());
    });
}

#[test]
fn where_no_route_leads_it_is_unreachable() {
    must_end(|| {
        // A socket bound to loopback cannot reach another host.
        let options = StackOptions::default().with_local_addresses(vec!["127.0.0.1".parse().unwrap()]);
        let none = Association::connect_with("192.0.2.1:7", &options).unwrap_err();
        assert!(matches!(none, ConnectError::Unreachable), "{none}");
        assert!(none.to_string().contains("routes"), "{none}");
    });
}

#[test]
fn an_address_of_the_wrong_family_is_named() {
    must_end(|| {
        let options = StackOptions::default().with_local_addresses(vec!["127.0.0.1".parse().unwrap()]);
        let none = Association::connect_with("[::1]:7", &options).unwrap_err();
        assert!(matches!(none, ConnectError::Family { .. }), "{none}");
        assert!(none.to_string().contains("::1"), "{none}");
    });
}

#[test]
fn an_address_that_is_not_ours_or_named_twice_is_named() {
    must_end(|| {
        for (local, named) in [("192.0.2.77", "192.0.2.77"), ("127.0.0.1,127.0.0.1", "127.0.0.1")] {
            let local_addresses = local.split(',').map(|ip| ip.parse().unwrap());
            let options = StackOptions::default().with_local_addresses(local_addresses);
            let none = Association::connect_with("127.0.0.1:7", &options).unwrap_err();
            assert!(matches!(none, ConnectError::Bind(_)), "{none}");
            assert!(none.to_string().contains(named), "{none}");
        }
        let twice = Association::connect("127.0.0.1,127.0.0.1:7").unwrap_err();
        assert!(twice.to_string().contains("127.0.0.1 is listed twice"), "{twice}");
    });
}

#[test]
fn an_unknown_host_is_named() {
    must_end(|| {
        let unknown = Association::connect("no such host:7").unwrap_err();
        assert!(
            matches!(&unknown, ConnectError::Address(AddressError::Unresolved { host, .. }) if host == "no such host"),
            "{unknown}"
        );
        assert!(unknown.to_string().contains("`no such host`"), "{unknown}");
    });
}

#[test]
fn data_may_come_before_the_accept() {
    must_end(|| {
        let listener = listen();
        let client = Association::connect(listener.address()).unwrap();
        for i in 0..100u8 {
            client.send(&[i; 100]).unwrap();
        }
        let (server, _) = listener.accept().unwrap();
        for i in 0..100u8 {
            assert_eq!(server.recv().unwrap().unwrap().to_vec(), [i; 100]);
        }
        assert_eq!(server.streams_out(), client.streams_out());
    });
}

#[test]
fn many_at_once() {
    must_end(|| {
        let listener = listen();
        let address = listener.address();
        thread::scope(|scope| {
            for i in 0..16u8 {
                let address = &address;
                scope.spawn(move || {
                    let client = Association::connect(address).unwrap();
                    client.send(&[i]).unwrap();
                    assert_eq!(client.recv().unwrap().unwrap().to_vec(), [i]);
                });
            }
            for _ in 0..16 {
                let (server, _) = listener.accept().unwrap();
                let message = server.recv().unwrap().unwrap();
                server.send_bytes(message.into_bytes(), &Default::default()).unwrap();
            }
        });
    });
}

#[test]
fn both_ends_know_each_other() {
    must_end(|| {
        let listener = listen();
        let stack = Stack::bind(&StackOptions::default().with_udp_port(0)).unwrap();
        let client = stack.connect(listener.address()).unwrap();
        let (server, _) = listener.accept().unwrap();
        assert_eq!(client.peer().unwrap(), listener.address());
        assert_eq!(server.peer().unwrap().udp_port, Some(stack.udp_port()));
    });
}
