//! Several local addresses: each path leaves from its own address.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use swiftwater::{
    Address, Association, BindError, ConnectError, Endpoint, LinkBindError, LinkKind, Listener, PathState,
    Stack, StackOptions,
};

use crate::pair::{must_end, recv_whole};

fn addresses(local: &[&str]) -> Vec<IpAddr> {
    local.iter().map(|ip| ip.parse().unwrap()).collect()
}

fn options(link: LinkKind, local: &[&str]) -> StackOptions {
    StackOptions::default().with_link(link).with_local_addresses(addresses(local)).with_udp_port(0)
}

/// Returns a listener, or `None` if this user may not use the link; fails instead if the test run requires all links.
fn listen(options: &StackOptions, port: u16) -> Option<Listener> {
    match Stack::bind(options) {
        Err(BindError::Link(error @ LinkBindError::RawNotPermitted { .. })) => {
            assert!(std::env::var("SWIFTWATER_REQUIRE_TOOLS").is_err(), "{error}");
            println!("skipped: {error}");
            None
        }
        stack => Some(stack.unwrap().listen(port).unwrap()),
    }
}

/// Returns the ends of each path that the peer has confirmed, the local one first.
fn ways(association: &Association) -> Vec<(Option<IpAddr>, IpAddr)> {
    let paths = association.statistics().unwrap().paths;
    let active = paths.iter().filter(|path| path.state == PathState::Active);
    active.map(|path| (path.local, path.remote.ip())).collect()
}

/// Checks that each path joins an address with itself if both ends have these addresses.
fn each_address_has_a_path_of_its_own(link: LinkKind, addresses: &[&str], port: u16) {
    let options = options(link, addresses);
    let Some(listener) = listen(&options, port) else { return };
    let client = Association::connect_with(listener.address(), &options).unwrap();
    let (server, _) = listener.accept().unwrap();
    let all: Vec<IpAddr> = options.local_addresses.clone();
    let expected: Vec<(Option<IpAddr>, IpAddr)> = all.iter().map(|ip| (Some(*ip), *ip)).collect();
    // Exchange requests and answers until heartbeats have confirmed every path.
    loop {
        client.send(b"still there?").unwrap();
        assert_eq!(recv_whole(&server).unwrap(), b"still there?");
        server.send(b"yes").unwrap();
        assert_eq!(recv_whole(&client).unwrap(), b"yes");
        let (mut a, mut b) = (ways(&client), ways(&server));
        if a.len() == all.len() && b.len() == all.len() {
            a.sort();
            b.sort();
            assert_eq!((&a, &b), (&expected, &expected));
            break;
        }
    }
    client.close().unwrap();
}

#[test]
fn two_addresses() {
    must_end(|| each_address_has_a_path_of_its_own(LinkKind::Udp, &["127.0.0.1", "127.0.0.2"], 0));
}

#[test]
fn both_families() {
    must_end(|| each_address_has_a_path_of_its_own(LinkKind::Udp, &["127.0.0.1", "::1"], 0));
}

#[test]
#[ignore = "needs CAP_NET_RAW: ./test --all"]
fn two_addresses_over_raw_ip() {
    must_end(|| each_address_has_a_path_of_its_own(LinkKind::Raw, &["127.0.0.1", "127.0.0.2"], 5101));
}

#[test]
#[ignore = "needs CAP_NET_RAW: ./test --all"]
fn both_families_over_raw_ip() {
    must_end(|| each_address_has_a_path_of_its_own(LinkKind::Raw, &["127.0.0.1", "::1"], 5102));
}

#[test]
#[ignore = "needs CAP_NET_RAW: ./test --all"]
fn an_association_over_raw_ip_on_all_addresses() {
    must_end(|| {
        let options = options(LinkKind::Auto, &["::"]);
        let Some(listener) = listen(&options.clone().with_link(LinkKind::Raw), 5103) else {
            return;
        };
        assert_eq!(listener.address().to_string(), "127.0.0.1,[::1]:5103");
        let stack = Stack::bind(&options).unwrap();
        assert_eq!((stack.link(), stack.udp_port()), (LinkKind::Raw, 0));
        for server in ["127.0.0.1:5103", "[::1]:5103"] {
            let client = stack.connect(server).unwrap();
            // Packets of the maximum size on loopback, and messages larger than those.
            let message: Vec<u8> = (0..1_000_000u32).map(|i| (i % 251) as u8).collect();
            let sending = {
                let (client, message) = (client.clone(), message.clone());
                std::thread::spawn(move || (0..20).try_for_each(|_| client.send(&message)))
            };
            let (accepted, _) = listener.accept().unwrap();
            for _ in 0..20 {
                assert!(recv_whole(&accepted).unwrap() == message);
            }
            sending.join().unwrap().unwrap();
            assert_eq!(client.peer().unwrap().to_string(), server);
            assert_eq!(accepted.peer().unwrap().udp_port, None);
            client.close().unwrap();
        }
    });
}

/// Returns a stack with every address of the host, and a function that restricts it to some of them.
fn parts() -> (Stack, impl Fn(&[&str]) -> Stack) {
    let stack = Stack::bind(&options(LinkKind::Udp, &[])).unwrap();
    let whole = stack.clone();
    (stack, move |local: &[&str]| whole.with_local_addresses(&addresses(local)))
}

#[test]
fn an_unspecified_address_is_all_of_its_family() {
    must_end(|| {
        let at = |host: &str| format!("{host}:0/udp:0");
        let Ok(both) = Listener::bind(at("[::]")) else {
            eprintln!("skipped: this host has no IPv6");
            return;
        };
        let ipv4 = Listener::bind_with(at("0.0.0.0"), &options(LinkKind::Udp, &["::1"])).unwrap();
        let endpoint = Endpoint::bind(at("0.0.0.0")).unwrap();
        assert_eq!([&ipv4.local_addr(), &endpoint.local_addr()].map(SocketAddr::is_ipv4), [true; 2]);
        let reaches = |host: &str, Address { port, udp_port, .. }: Address| match Association::connect(
            format!("{host}:{port}/udp:{}", udp_port.unwrap()),
        ) {
            Ok(association) => Some(association),
            Err(ConnectError::Refused) => None,
            Err(error) => panic!("{error}"),
        };
        for (server, takes_ipv6) in
            [(both.address(), true), (ipv4.address(), false), (endpoint.address(), false)]
        {
            assert!(reaches("127.0.0.1", server.clone()).is_some());
            assert_eq!(reaches("[::1]", server).is_some(), takes_ipv6);
        }
        let client =
            Association::connect_with(ipv4.address(), &options(LinkKind::Udp, &["0.0.0.0"])).unwrap();
        assert_eq!(client.local_ips(), addresses(&["127.0.0.1"]), "those of its paths");
    });
}

#[test]
fn the_address_of_a_listener_has_the_loopback_address_of_each_family_once() {
    must_end(|| {
        for (bound, named) in [
            (&["0.0.0.0"][..], "127.0.0.1"),
            (&["::"], "127.0.0.1"),
            (&["0.0.0.0", "::"], "127.0.0.1,[::1]"),
            (&["127.0.0.2", "::"], "127.0.0.2,[::1]"),
        ] {
            let Ok(stack) = Stack::bind(&options(LinkKind::Udp, bound)) else {
                eprintln!("skipped: this host has no IPv6");
                continue;
            };
            let listener = stack.listen(0).unwrap();
            let address = listener.address();
            assert!(address.to_string().starts_with(&format!("{named}:")), "{bound:?}: {address}");
            let client = Association::connect(&address).unwrap();
            let (server, _) = listener.accept().unwrap();
            assert!(server.local_ips().iter().all(|ip| !ip.is_unspecified()), "{:?}", server.local_ips());
            drop(client);
        }
    });
}

#[test]
fn listeners_at_different_addresses_share_a_port() {
    must_end(|| {
        let (stack, at) = parts();
        let one = at(&["127.0.0.1"]).listen(700).unwrap();
        let two = at(&["127.0.0.2", "::1"]).listen(700).unwrap();
        for taken in [&["127.0.0.1"][..], &["0.0.0.0"], &["::"], &[]] {
            assert!(matches!(at(taken).listen(700), Err(BindError::PortInUse { port: 700 })));
        }
        let connect = |host: &str| stack.connect(format!("{host}:700/udp:{}", stack.udp_port()));
        for (host, listener) in [("127.0.0.1", &one), ("127.0.0.2", &two), ("[::1]", &two)] {
            let client = connect(host).unwrap();
            client.send(host.as_bytes()).unwrap();
            let (server, _) = listener.accept().unwrap();
            assert_eq!(recv_whole(&server).unwrap(), host.as_bytes());
            client.close().unwrap();
        }
        assert!(matches!(connect("127.0.0.3"), Err(swiftwater::ConnectError::Refused)));
        two.set_local_addresses(&addresses(&["127.0.0.3"])).unwrap();
        let moved = connect("127.0.0.3").unwrap();
        assert_eq!(two.accept().unwrap().0.local_ips(), moved.peer_ips());
        assert!(two.set_local_addresses(&addresses(&["127.0.0.1"])).is_err());
    });
}

#[test]
fn nobody_listens_at_an_address_that_the_host_does_not_have() {
    must_end(|| {
        let (_, at) = parts();
        // RFC 5737: an address of documentation.
        let stack = at(&["127.0.0.1", "192.0.2.77"]);
        for error in [stack.listen(0).unwrap_err(), stack.endpoint(0).unwrap_err()] {
            assert!(error.to_string().starts_with("192.0.2.77 is not an address of this host"), "{error}");
        }
        at(&["127.0.0.1", "127.0.0.77"]).listen(0).unwrap();
    });
}

#[test]
fn a_restricted_listener_names_the_addresses_at_which_it_listens() {
    must_end(|| {
        let (all, at) = parts();
        let two = options(LinkKind::Udp, &["127.0.0.1", "127.0.0.2"]);
        let two = Stack::bind(&two).unwrap();
        let only = |ips: &[&str]| two.with_local_addresses(&addresses(ips));
        for (stack, first, named) in [
            (only(&["127.0.0.2"]), "127.0.0.2", "127.0.0.2"),
            (only(&["0.0.0.0"]), "127.0.0.1", "127.0.0.1,127.0.0.2"),
            (only(&["::ffff:127.0.0.2"]), "127.0.0.2", "127.0.0.2"),
            (only(&[]), "127.0.0.1", "127.0.0.1,127.0.0.2"),
            (at(&["127.0.0.3", "::1"]), "127.0.0.3", "127.0.0.3,[::1]"),
            (at(&["::"]), "[::]", "[::1]"),
            (at(&["0.0.0.0"]), "0.0.0.0", "127.0.0.1"),
        ] {
            if named.contains("::1") && UdpSocket::bind("[::1]:0").is_err() {
                eprintln!("skipped: this host has no IPv6");
                continue;
            }
            let (listener, endpoint) = (stack.listen(0).unwrap(), stack.endpoint(0).unwrap());
            for (addr, address) in
                [(listener.local_addr(), listener.address()), (endpoint.local_addr(), endpoint.address())]
            {
                assert_eq!(addr.to_string(), format!("{first}:{}", address.port));
                let udp_port = stack.udp_port();
                assert_eq!(address.to_string(), format!("{named}:{}/udp:{udp_port}", address.port));
                if !named.contains(':') {
                    Association::connect(address).unwrap();
                }
            }
        }
        let listener = all.listen(0).unwrap();
        listener.set_local_addresses(&addresses(&["127.0.0.2"])).unwrap();
        assert_eq!(listener.local_addr().ip(), addresses(&["127.0.0.2"])[0]);
        assert_eq!(Association::connect(listener.address()).unwrap().peer_addr(), listener.local_addr());
    });
}

#[test]
fn an_association_leaves_from_its_addresses_alone() {
    must_end(|| {
        let (stack, at) = parts();
        let listener = stack.listen(701).unwrap();
        let server_at = format!("127.0.0.1:701/udp:{}", stack.udp_port());
        let from = at(&["127.0.0.2", "127.0.0.3"]);
        let client = from.connect_from(800, &*server_at).unwrap();
        let mine: [IpAddr; 2] = ["127.0.0.2".parse().unwrap(), "127.0.0.3".parse().unwrap()];
        assert_eq!(client.local_ips(), mine);
        let (server, _) = listener.accept().unwrap();
        let mut seen = server.peer_ips();
        seen.sort_unstable();
        assert_eq!(seen, mine);
        // From the same port at another address, it is another association.
        let other = at(&["127.0.0.4"]).connect_from(800, &*server_at).unwrap();
        assert_eq!(listener.accept().unwrap().0.peer_ips(), other.local_ips());
    });
}
