//! Path MTU discovery through a router of the kernel: two hosts with Ethernet's MTU, and a narrower line behind the router,
//! each in a network namespace.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{self, JoinHandle};

use nix::sched::{CloneFlags, setns};
use swiftwater::{Association, Listener, MtuState, Options, PathStatistics};
use swiftwater_tests::tools;

const SERVER: &str = "10.77.2.2";
const MESSAGE_BYTES: usize = 8000;
/// Far more than any search takes.
const MESSAGES_MAX: u64 = 10_000_000;

/// Two hosts and the router between them.
struct Hosts {
    ip: PathBuf,
    client: String,
    router: String,
    server: String,
}

impl Hosts {
    /// None: this user may not make any.
    fn new(name: &str) -> Option<Self> {
        let ip = tools::program("ip")?;
        let named = |role: &str| format!("sw-mtu-{name}-{role}-{}", std::process::id());
        let hosts = Hosts { ip, client: named("a"), router: named("r"), server: named("b") };
        if !hosts.runs(&format!("netns add {}", hosts.client)) {
            tools::skip("no right to make network namespaces");
            return None;
        }
        let Hosts { client, router, server, .. } = &hosts;
        for command in [
            format!("netns add {router}"),
            format!("netns add {server}"),
            format!("-n {client} link add e0 mtu 1500 type veth peer name e0 mtu 1500 netns {router}"),
            format!("-n {router} link add e1 mtu 1400 type veth peer name e0 mtu 1400 netns {server}"),
            format!("-n {client} address add 10.77.1.2/24 dev e0"),
            format!("-n {router} address add 10.77.1.1/24 dev e0"),
            format!("-n {router} address add 10.77.2.1/24 dev e1"),
            format!("-n {server} address add {SERVER}/24 dev e0"),
            format!("-n {client} link set e0 up"),
            format!("-n {router} link set e0 up"),
            format!("-n {router} link set e1 up"),
            format!("-n {server} link set e0 up"),
            format!("-n {client} route add default via 10.77.1.1"),
            format!("-n {server} route add default via 10.77.2.1"),
            format!("netns exec {router} sysctl -qw net.ipv4.ip_forward=1"),
        ] {
            assert!(hosts.runs(&command), "ip {command}");
        }
        Some(hosts)
    }

    /// The router no longer says what it drops.
    fn silence(&self) {
        // ICMP errors are its own packets; those that it forwards come in through an interface.
        assert!(self.runs(&format!("-n {} rule add iif lo to 10.77.1.0/24 blackhole", self.router)));
    }

    /// The line behind the router takes that much from now on.
    fn narrow(&self, mtu_bytes: usize) {
        assert!(self.runs(&format!("-n {} link set e1 mtu {mtu_bytes}", self.router)));
        assert!(self.runs(&format!("-n {} link set e0 mtu {mtu_bytes}", self.server)));
    }

    fn runs(&self, command: &str) -> bool {
        Command::new(&self.ip).args(command.split(' ')).status().is_ok_and(|status| status.success())
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for namespace in [&self.client, &self.router, &self.server] {
            self.runs(&format!("netns delete {namespace}"));
        }
    }
}

/// Runs something on a host. The sockets that it opens, and the threads that it starts, stay there.
fn on<T: Send + 'static>(host: &str, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let namespace = Path::new("/var/run/netns").join(host);
    thread::spawn(move || {
        setns(File::open(namespace).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
        work()
    })
}

/// Numbered messages leave until the path is as it should be.
fn send_until(association: &Association, next: &mut u64, done: impl Fn(&PathStatistics) -> bool) -> usize {
    loop {
        let path = association.statistics().paths[0].clone();
        if done(&path) {
            return path.mtu_bytes;
        }
        assert!(*next < MESSAGES_MAX, "{path:?}");
        for _ in 0..100 {
            let mut message = vec![0; MESSAGE_BYTES];
            message[..8].copy_from_slice(&next.to_be_bytes());
            association.send(&message).unwrap();
            *next += 1;
        }
    }
}

/// Takes messages to the end and sees that each number comes once, in order.
fn count(listener: Listener) -> u64 {
    let association = listener.accept().unwrap();
    let mut message = vec![0; MESSAGE_BYTES];
    let mut next = 0u64;
    while let Some(info) = association.recv_into(&mut message).unwrap() {
        assert_eq!(info.bytes, MESSAGE_BYTES);
        assert_eq!(message[..8], next.to_be_bytes());
        next += 1;
    }
    next
}

/// What the client finds before and after the line becomes narrower, and what comes of its messages.
fn run(hosts: &Hosts) -> (usize, usize) {
    let listener = on(&hosts.server, || {
        Listener::bind_with(format!("{SERVER}:5001").as_str(), &Options::default()).unwrap()
    });
    let listener = listener.join().unwrap();
    let counts = thread::spawn(move || count(listener));
    let association = on(&hosts.client, || Association::connect(format!("{SERVER}:5001").as_str()).unwrap());
    let association = association.join().unwrap();
    let complete = |path: &PathStatistics| path.mtu_state == MtuState::SearchComplete;
    let mut sent = 0;
    let first = send_until(&association, &mut sent, complete);
    hosts.narrow(1300);
    let second = send_until(&association, &mut sent, |path| complete(path) && path.mtu_bytes != first);
    association.close().unwrap();
    assert_eq!(counts.join().unwrap(), sent);
    (first, second)
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
