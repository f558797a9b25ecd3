//! Two hosts with two lines between them, each host in a network namespace: addresses and interfaces vanish under an
//! association and return.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use swiftwater::{Association, AssociationOptions, LinkKind, PathState, PathStatistics, Stack, StackOptions};
use swiftwater_tests::namespace::Host;
use swiftwater_tests::{swiftwater_end, wait};

const PORT: u16 = 5001;
const MESSAGE_BYTES: usize = 4000;
/// Far more than any failover takes.
const MESSAGES_MAX: u64 = 200_000;

/// Rate of a line: without a limit the bottleneck is the processor, which the paths share.
const LINE_RATE: &str = "tbf rate 200mbit burst 64kb latency 20ms";

/// The protocol of the network.
#[derive(Clone, Copy)]
enum Family {
    V4,
    V6,
}

impl Family {
    /// Returns the address of the client (number 1) or the server (number 2) on a line.
    fn address(self, line: usize, number: u8) -> IpAddr {
        match self {
            Family::V4 => [10, 78, line as u8, number].into(),
            Family::V6 => [0xfd78, 0, 0, line as u16, 0, 0, 0, u16::from(number)].into(),
        }
    }

    /// Returns the arguments for `ip address`. An IPv6 address is usable at once, without duplicate address detection.
    fn text(self, line: usize, number: u8) -> String {
        let address = self.address(line, number);
        match self {
            Family::V4 => format!("{address}/24 dev e{line}"),
            Family::V6 => format!("{address}/64 dev e{line} nodad"),
        }
    }
}

/// The hosts; their first line is that of the primary path.
struct Hosts {
    family: Family,
    client: Host,
    server: Host,
}

impl Hosts {
    /// Makes the hosts; `None` if this user may not.
    fn new(name: &str, family: Family) -> Option<Self> {
        let hosts = Hosts {
            family,
            client: Host::new(&format!("gone-{name}-a"))?,
            server: Host::new(&format!("gone-{name}-b"))?,
        };
        (0..2).for_each(|line| hosts.add_line(line));
        Some(hosts)
    }

    fn add_line(&self, line: usize) {
        let Hosts { client, server, family } = self;
        client.ip(&format!("link add e{line} type veth peer name e{line} netns {}", server.name()));
        for (host, number) in [(client, 1), (server, 2)] {
            host.ip(&format!("address add {}", family.text(line, number)));
            host.exec(&format!("tc qdisc add dev e{line} root {LINE_RATE}"));
            host.ip(&format!("link set e{line} up"));
        }
    }
}

fn options(family: Family, number: u8) -> StackOptions {
    let local_addresses = (0..2).map(|line| family.address(line, number));
    StackOptions::default().with_local_addresses(local_addresses)
}

/// Binds the sockets of a host.
type Bind = fn(StackOptions) -> Stack;

/// A client that sends numbered messages, and a server that checks that each comes once, in order.
struct Transfer {
    family: Family,
    stack: Stack,
    association: Association,
    sent: u64,
    received: Arc<AtomicU64>,
    server: thread::JoinHandle<u64>,
}

impl Transfer {
    /// Begins a transfer from the host of the client.
    fn new(hosts: &Hosts, bind: Bind) -> Self {
        let family = hosts.family;
        let received = Arc::new(AtomicU64::new(0));
        let stack = hosts.server.run(move || bind(options(family, 2))).join().unwrap();
        let listener = stack.listen(PORT).unwrap();
        let counter = Arc::clone(&received);
        let server = hosts.server.run(move || {
            swiftwater_end::count_numbers(&listener, MESSAGE_BYTES, |n| counter.store(n, Ordering::Relaxed))
        });
        let stack = bind(options(family, 1).with_udp_port(0));
        let server_address = SocketAddr::new(family.address(0, 2), PORT);
        let association = stack.connect(server_address).unwrap();
        Transfer { family, stack, association, sent: 0, received, server }
    }

    fn path(&self, line: usize) -> Option<PathStatistics> {
        let wanted = self.family.address(line, 2);
        let paths = self.association.statistics().unwrap().paths;
        paths.into_iter().find(|path| path.remote.ip() == wanted)
    }

    fn is_active(&self, line: usize) -> bool {
        self.path(line).is_some_and(|path| path.state == PathState::Active)
    }

    /// Returns the bytes delivered on a line, which has a path.
    fn delivered_bytes(&self, line: usize) -> u64 {
        self.path(line).unwrap().delivered_bytes
    }

    fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Sends until the condition holds.
    fn send_until(&mut self, what: &str, done: impl Fn(&Transfer) -> bool) {
        while !done(self) {
            assert!(self.sent < MESSAGES_MAX, "{what}: {:#?}", self.association.statistics());
            (0..10).for_each(|_| self.send());
        }
    }

    fn send(&mut self) {
        swiftwater_end::send_number(&self.association, self.sent, MESSAGE_BYTES);
        self.sent += 1;
    }

    /// Returns how often the system refused to send.
    fn refused(&self) -> u64 {
        self.stack.statistics().link.send_failed
    }

    /// Closes the association, and checks that all messages have arrived.
    fn close(self) {
        self.association.close().unwrap();
        assert_eq!(self.server.join().unwrap(), self.sent);
    }
}

/// Lets the first line fail and recover while messages flow. Returns how often the client's system refused to send.
fn survives(
    (name, family): (&str, Family),
    bind: Bind,
    go: impl Fn(&Hosts) + Send + 'static,
    come: impl Fn(&Hosts) + Send + 'static,
) -> Option<u64> {
    let hosts = Arc::new(Hosts::new(name, family)?);
    let at_client = Arc::clone(&hosts);
    let work = hosts.client.run(move || {
        let hosts = at_client;
        let mut transfer = Transfer::new(&hosts, bind);
        transfer.send_until("both paths are there", |t| t.is_active(0) && t.is_active(1));
        for _ in 0..2 {
            go(&hosts);
            transfer.send_until("the first path is left", |t| !t.is_active(0));
            let before = transfer.received();
            transfer.send_until("the other carries on", |t| t.received() > before + 1000);
            come(&hosts);
            let before = transfer.delivered_bytes(0);
            transfer.send_until("the first is back", |t| {
                t.is_active(0) && t.delivered_bytes(0) > before + 100_000
            });
        }
        let refused = transfer.refused();
        transfer.close();
        refused
    });
    Some(work.join().unwrap())
}

/// Returns a stack in which each address has a socket of its own.
fn as_it_is(options: StackOptions) -> Stack {
    Stack::bind(&options).unwrap()
}

/// Returns a stack with one socket for all addresses; the associations use the named ones.
fn of_all_addresses(options: StackOptions) -> Stack {
    let sockets = options.clone().with_local_addresses(Vec::new());
    Stack::bind(&sockets).unwrap().with_local_addresses(&options.local_addresses)
}

#[test]
#[ignore = "needs network namespaces: ./test --all"]
fn an_address_of_the_sender() {
    let Some(refused) = survives(("own", Family::V4), as_it_is, del_address, add_address) else { return };
    assert!(refused > 0);
}

#[test]
#[ignore = "needs network namespaces: ./test --all"]
fn an_ipv6_address_of_the_sender() {
    // The system continues to send from it, but receives nothing.
    survives(("own6", Family::V6), as_it_is, del_address, add_address);
}

fn del_address(hosts: &Hosts) {
    hosts.client.ip(&format!("address del {}", hosts.family.text(0, 1)));
}

fn add_address(hosts: &Hosts) {
    hosts.client.ip(&format!("address add {}", hosts.family.text(0, 1)));
}

#[test]
#[ignore = "needs network namespaces: ./test --all"]
fn an_address_of_the_receiver() {
    let go = |hosts: &Hosts| hosts.server.ip(&format!("address del {}", hosts.family.text(0, 2)));
    let come = |hosts: &Hosts| hosts.server.ip(&format!("address add {}", hosts.family.text(0, 2)));
    survives(("peer", Family::V4), as_it_is, go, come);
}

#[test]
#[ignore = "needs network namespaces: ./test --all"]
fn an_interface_that_is_switched_off() {
    let go = |hosts: &Hosts| hosts.client.ip("link set e0 down");
    let come = |hosts: &Hosts| hosts.client.ip("link set e0 up");
    let Some(refused) = survives(("down", Family::V4), as_it_is, go, come) else { return };
    assert!(refused > 0);
}

#[test]
#[ignore = "needs network namespaces: ./test --all"]
fn an_interface_of_the_receiver_whose_sockets_have_all_addresses() {
    let go = |hosts: &Hosts| hosts.server.ip("link set e0 down");
    let come = |hosts: &Hosts| hosts.server.ip("link set e0 up");
    survives(("whole", Family::V4), of_all_addresses, go, come);
}

#[test]
#[ignore = "needs network namespaces: ./test --all"]
fn an_interface_that_is_taken_out() {
    let go = |hosts: &Hosts| hosts.client.ip("link delete e0");
    let come = |hosts: &Hosts| hosts.add_line(0);
    let Some(refused) = survives(("out", Family::V4), as_it_is, go, come) else { return };
    assert!(refused > 0);
}

#[test]
#[ignore = "needs network namespaces: ./test --all"]
fn an_interface_that_sockets_are_bound_to() {
    let go = |hosts: &Hosts| hosts.client.ip("link delete e0");
    let come = |hosts: &Hosts| hosts.add_line(0);
    // The server finds out when it sends there, which is a heartbeat.
    let bound = |options: StackOptions| {
        let heartbeat_interval = Some(Duration::from_millis(100));
        let association = AssociationOptions::default().with_heartbeat_interval(heartbeat_interval);
        as_it_is(options.with_bind_interfaces(true).with_association(association))
    };
    let Some(refused) = survives(("bound", Family::V4), bound, go, come) else { return };
    assert!(refused > 0);
}

#[test]
#[ignore = "needs network namespaces: ./test --all"]
fn an_address_and_an_interface_under_raw_ip() {
    let raw = |options: StackOptions| as_it_is(options.with_link(LinkKind::Raw));
    let Some(refused) = survives(("raw-own", Family::V4), raw, del_address, add_address) else { return };
    assert!(refused > 0);
    let go = |hosts: &Hosts| hosts.client.ip("link delete e0");
    let come = |hosts: &Hosts| hosts.add_line(0);
    let Some(refused) = survives(("raw-out", Family::V4), raw, go, come) else { return };
    assert!(refused > 0);
}

#[test]
#[ignore = "needs network namespaces: ./test --all"]
fn every_interface_at_once() {
    for family in [Family::V4, Family::V6] {
        let Some(hosts) = Hosts::new("all", family) else { return };
        let hosts = Arc::new(hosts);
        let at_client = Arc::clone(&hosts);
        let work = hosts.client.run(move || {
            let mut transfer = Transfer::new(&at_client, as_it_is);
            transfer.send_until("both paths are there", |t| t.is_active(0) && t.is_active(1));
            let is_acked = || transfer.association.statistics().unwrap().send_buffered_bytes == 0;
            wait::until("everything is acknowledged", is_acked);
            (0..2).for_each(|line| at_client.client.ip(&format!("link delete e{line}")));
            // Nothing is outstanding, so the shutdown leaves at once.
            transfer.send();
            assert!(transfer.refused() > 0);
            (0..2).for_each(|line| at_client.add_line(line));
            transfer.close();
        });
        work.join().unwrap();
    }
}
