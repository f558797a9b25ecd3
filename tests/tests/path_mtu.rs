//! Path MTU discovery through a router of the kernel: two hosts with Ethernet's MTU, and a narrower line behind the router,
//! each in a network namespace.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::thread;

use swiftwater::{Association, Listener, MtuState, PathStatistics, StackOptions};
use swiftwater_tests::namespace::Host;
use swiftwater_tests::swiftwater_end;

const ROUTER: &str = "10.77.1.1";
const SERVER: &str = "10.77.2.2";
const MESSAGE_BYTES: usize = 8000;
/// Far longer than any search takes.
const MESSAGES_MAX: u64 = 10_000_000;

/// Two hosts and the router between them.
struct Hosts {
    client: Host,
    router: Host,
    server: Host,
}

impl Hosts {
    /// Makes the hosts; `None` if this user may not.
    fn new(name: &str) -> Option<Self> {
        let host = |role: &str| Host::new(&format!("mtu-{name}-{role}"));
        let Hosts { client, router, server } =
            Hosts { client: host("a")?, router: host("r")?, server: host("b")? };
        client.ip(&format!("link add e0 mtu 1500 type veth peer name e0 mtu 1500 netns {}", router.name()));
        router.ip(&format!("link add e1 mtu 1400 type veth peer name e0 mtu 1400 netns {}", server.name()));
        client.ip("address add 10.77.1.2/24 dev e0");
        router.ip(&format!("address add {ROUTER}/24 dev e0"));
        router.ip("address add 10.77.2.1/24 dev e1");
        server.ip(&format!("address add {SERVER}/24 dev e0"));
        client.ip("link set e0 up");
        router.ip("link set e0 up");
        router.ip("link set e1 up");
        server.ip("link set e0 up");
        client.ip(&format!("route add default via {ROUTER}"));
        server.ip("route add default via 10.77.2.1");
        router.exec("sysctl -qw net.ipv4.ip_forward=1");
        Some(Hosts { client, router, server })
    }

    /// Stops the router's reports of dropped packets.
    fn silence(&self) {
        // ICMP errors are its own packets; those that it forwards come in through an interface.
        self.router.ip("rule add iif lo to 10.77.1.0/24 blackhole");
    }

    /// Changes the MTU of the line behind the router.
    fn narrow(&self, mtu_bytes: usize) {
        self.router.ip(&format!("link set e1 mtu {mtu_bytes}"));
        self.server.ip(&format!("link set e0 mtu {mtu_bytes}"));
    }
}

/// Sends numbered messages until the path is as expected.
fn send_until(association: &Association, next: &mut u64, done: impl Fn(&PathStatistics) -> bool) -> usize {
    loop {
        let path = association.statistics().unwrap().paths[0].clone();
        if done(&path) {
            return path.mtu_bytes;
        }
        assert!(*next < MESSAGES_MAX, "{path:?}");
        for _ in 0..100 {
            swiftwater_end::send_number(association, *next, MESSAGE_BYTES);
            *next += 1;
        }
    }
}

/// Returns an association between two hosts, and the counter of arrivals.
fn connect(client: &Host, server: &Host, address: &'static str) -> (Association, thread::JoinHandle<u64>) {
    let listener = server.run(move || {
        Listener::bind_with(format!("{address}:5001").as_str(), &StackOptions::default()).unwrap()
    });
    let listener = listener.join().unwrap();
    let counts = thread::spawn(move || swiftwater_end::count_numbers(&listener, MESSAGE_BYTES, |_| ()));
    let association = client.run(move || Association::connect(format!("{address}:5001").as_str()).unwrap());
    (association.join().unwrap(), counts)
}

fn is_complete(path: &PathStatistics) -> bool {
    path.mtu_state == MtuState::SearchComplete
}

/// Returns the MTU that the client finds before and after the line becomes narrower.
fn run(hosts: &Hosts) -> (usize, usize) {
    let (association, counts) = connect(&hosts.client, &hosts.server, SERVER);
    let mut sent = 0;
    let first = send_until(&association, &mut sent, is_complete);
    hosts.narrow(1300);
    let second = send_until(&association, &mut sent, |path| is_complete(path) && path.mtu_bytes != first);
    association.close().unwrap();
    assert_eq!(counts.join().unwrap(), sent);
    (first, second)
}

/// Returns the MTU that a client finds on the way to a server.
fn found(client: &Host, server: &Host, address: &'static str) -> usize {
    let (association, counts) = connect(client, server, address);
    let mut sent = 0;
    let found = send_until(&association, &mut sent, is_complete);
    association.close().unwrap();
    assert_eq!(counts.join().unwrap(), sent);
    found
}

#[test]
#[ignore = "needs network namespaces: ./test --all"]
fn ethernet_takes_1500_bytes() {
    let Some(hosts) = Hosts::new("ether") else { return };
    // 28 of them are the headers of IPv4 and UDP.
    assert_eq!(found(&hosts.client, &hosts.router, ROUTER), 1472);
}

#[test]
#[ignore = "needs network namespaces: ./test --all"]
fn loopback_takes_the_largest_packet_of_ip() {
    let Some(host) = Host::new("mtu-lo") else { return };
    host.ip("link set lo up");
    // 65,535 without those headers, and a multiple of four.
    assert_eq!(found(&host, &host, "127.0.0.1"), 65_504);
}

#[test]
#[ignore = "needs network namespaces: ./test --all"]
fn a_router_that_reports_what_it_drops() {
    let Some(hosts) = Hosts::new("loud") else { return };
    assert_eq!(run(&hosts), (1372, 1272));
}

#[test]
#[ignore = "needs network namespaces: ./test --all"]
fn a_router_that_drops_in_silence() {
    let Some(hosts) = Hosts::new("mute") else { return };
    hosts.silence();
    // The lengths in use next below: 1400 and 1280 bytes with IP and UDP.
    assert_eq!(run(&hosts), (1372, 1252));
}
