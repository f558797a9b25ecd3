//! A peer on a link of this host is recognized: there is no router in between. The test has a network namespace of its own.

use links::{Link, UdpEncap, UdpEncapConfig};
use netns::{Host, HostError};

use crate::common::config;

/// Address of ours, address of a peer, and whether it is on the link.
type Case = (&'static str, &'static str, bool);

fn check(wildcard: &str, cases: &[Case]) {
    for bound in [None, Some(())] {
        for &(ours, peer, on_link) in cases {
            let link = UdpEncap::bind(&config(bound.map_or(wildcard, |()| ours))).unwrap();
            let info = link.path_info(std::net::SocketAddr::new(peer.parse().unwrap(), 9899));
            assert_eq!((info.on_link, info.same_host), (on_link, false), "{ours} to {peer}: {info:?}");
        }
    }
}

/// Returns a host with its own network namespace, after these commands of `ip`; `None` if this machine permits none.
fn host_with(commands: &[&str]) -> Option<Host> {
    let host = match Host::new() {
        Err(error @ HostError::Refused(_)) => {
            assert!(std::env::var("SWIFTWATER_REQUIRE_TOOLS").is_err(), "{error}");
            println!("skipped: {error}");
            return None;
        }
        host => host.unwrap(),
    };
    commands.iter().for_each(|command| host.ip(command).unwrap());
    Some(host)
}

#[test]
#[ignore = "needs root and network namespaces: ./test --all"]
fn a_route_without_a_router_is_told_from_others() {
    let Some(host) = host_with(&[
        "link set lo up",
        "link add v0 type veth peer name v1",
        "link set v1 up",
        "link set v0 up",
        "addr add 10.9.0.1/24 dev v0",
        "addr add 2001:db8:9::1/64 dev v0 nodad",
        "route add 192.0.2.0/24 via 10.9.0.2",
        "route add 198.51.100.0/24 dev v0",
        "route add 203.0.113.0/24 dev v0 mtu 1400",
        "route add 198.18.0.0/24 dev v0 mtu 1500",
        "route add 198.18.1.0/24 via inet6 2001:db8:9::2 dev v0",
        "-6 route add 2001:db8:a::/64 via 2001:db8:9::2",
        "-6 route add 2001:db8:b::/64 dev v0",
        "-6 route add 2001:db8:c::/64 dev v0 mtu 1400",
        "tuntap add dev t0 mode tun",
        "addr add 10.8.0.1 peer 10.8.0.2 dev t0",
        "link set t0 up",
    ]) else {
        return;
    };
    host.run(|| {
        let v4 = [
            ("10.9.0.1", "10.9.0.2", true),
            ("10.9.0.1", "198.51.100.1", true),
            ("10.9.0.1", "198.18.0.1", true),
            ("10.9.0.1", "192.0.2.1", false),
            ("10.9.0.1", "203.0.113.1", false),
            ("10.9.0.1", "198.18.1.1", false),
            // Nothing shows what lies behind the other end of a tunnel.
            ("10.8.0.1", "10.8.0.2", false),
        ];
        check("0.0.0.0", &v4);
        let v6 = [
            ("2001:db8:9::1", "2001:db8:9::2", true),
            ("2001:db8:9::1", "2001:db8:b::1", true),
            ("2001:db8:9::1", "2001:db8:a::1", false),
            ("2001:db8:9::1", "2001:db8:c::1", false),
        ];
        check("::", &v6);
    })
    .unwrap();
}

#[test]
#[ignore = "needs root and network namespaces: ./test --all"]
fn packets_to_neighbours_that_do_not_exist_stop_no_packet_of_a_peer() {
    let Some(host) = host_with(&[
        "link set lo up",
        "link add v0 type veth peer name v1",
        "link set v1 up",
        "link set v0 up",
        "addr add 10.9.0.1/16 dev v0",
        "neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev v0",
        "route add default via 10.9.0.2",
    ]) else {
        return;
    };
    host.run(|| {
        // A small send buffer takes fewer packets to fill.
        let small =
            UdpEncapConfig { strangers_apart: true, send_buffer_bytes: 64 << 10, ..config("10.9.0.1") };
        let mut link = UdpEncap::bind(&small).unwrap();
        let to = |a: u8, b: u8| std::net::SocketAddr::from(([10, 9, a, b], 9899));
        for size in [100, 1000] {
            let bytes = vec![7; size];
            let slices = [std::io::IoSlice::new(&bytes)];
            let transmit = |remote| links::Transmit {
                remote,
                local: None,
                traffic_class: 0,
                may_fragment: true,
                segment_bytes: bytes.len(),
                slices: &slices,
            };
            for a in 1..17 {
                let answers: Vec<_> = (1..255).map(|b| transmit(to(a, b))).collect();
                link.transmit_answers(&answers);
            }
            let lost = link.stats().send_lost;
            assert!(lost > 0, "the buffer for answers is full");
            for a in 17..33 {
                (1..255).for_each(|b| link.transmit_apart(&transmit(to(a, b))).expect("sent or lost"));
            }
            assert!(link.stats().send_lost > lost, "so is the buffer for other packets that may stay");
            link.transmit(&transmit(to(0, 2))).expect("that of peers is not");
            let lost = link.stats().send_lost;
            link.transmit_apart(&transmit(std::net::SocketAddr::from(([192, 0, 2, 1], 9899)))).expect("sent");
            assert_eq!(link.stats().send_lost, lost, "nor is that for hosts behind the router");
        }
    })
    .unwrap();
}
