//! Several local addresses: each path leaves from its own.

use std::net::IpAddr;

use swiftwater::{Association, BindError, LinkKind, Listener, Options, PathState, Stack};

use crate::pair::{must_end, recv_whole};

fn options(link: LinkKind, local: &[&str]) -> Options {
    let local_addresses = local.iter().map(|ip| ip.parse().unwrap()).collect();
    Options { link, local_addresses, udp_port: Some(0), ..Options::default() }
}

/// A listener, if this user may have the link. Where everything can be had, it must.
fn listen(options: &Options, port: u16) -> Option<Listener> {
    match Stack::bind(options) {
        Err(BindError::Link(error @ links::BindError::RawNotPermitted { .. })) => {
            assert!(std::env::var("SWIFTWATER_REQUIRE_TOOLS").is_err(), "{error}");
            println!("skipped: {error}");
            None
        }
        stack => Some(stack.unwrap().listen(port).unwrap()),
    }
}

/// The ends of each path that the peer has confirmed, ours first.
fn ways(association: &Association) -> Vec<(Option<IpAddr>, IpAddr)> {
    let paths = association.statistics().paths;
    let active = paths.iter().filter(|path| path.state == PathState::Active);
    active.map(|path| (path.local, path.remote.ip())).collect()
}

/// Both ends have these addresses; each path joins an address with itself.
fn each_address_has_a_path_of_its_own(link: LinkKind, addresses: &[&str], port: u16) {
    let options = options(link, addresses);
    let Some(listener) = listen(&options, port) else { return };
    let client = Association::connect_with(listener.local_address(), &options).unwrap();
    let server = listener.accept().unwrap();
    let all: Vec<IpAddr> = options.local_addresses.clone();
    let expected: Vec<(Option<IpAddr>, IpAddr)> = all.iter().map(|ip| (Some(*ip), *ip)).collect();
    // A question and its answer, until heartbeats have confirmed every path.
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
        let options = options(LinkKind::Auto, &[]);
        let Some(listener) = listen(&Options { link: LinkKind::Raw, ..options.clone() }, 5103) else {
            return;
        };
        assert_eq!(listener.local_address().udp_port, None);
        let stack = Stack::bind(&options).unwrap();
        assert_eq!((stack.link(), stack.udp_port()), (LinkKind::Raw, 0));
        for server in ["127.0.0.1:5103", "[::1]:5103"] {
            let client = stack.connect(server).unwrap();
            // Packets as large as loopback carries, and messages larger than those.
            let message: Vec<u8> = (0..1_000_000u32).map(|i| (i % 251) as u8).collect();
            let sending = {
                let (client, message) = (client.clone(), message.clone());
                std::thread::spawn(move || (0..20).try_for_each(|_| client.send(&message)))
            };
            let accepted = listener.accept().unwrap();
            for _ in 0..20 {
                assert!(recv_whole(&accepted).unwrap() == message);
            }
            sending.join().unwrap().unwrap();
            assert_eq!(client.peer_address().unwrap().to_string(), server);
            assert_eq!(accepted.peer_address().unwrap().udp_port, None);
            client.close().unwrap();
        }
    });
}
