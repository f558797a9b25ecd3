//! Two hosts with two lines between them, each host in a network namespace: SCTP directly over IP, and paths that are bound to
//! their interfaces.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::net::IpAddr;

use swiftwater::{Association, LinkKind, PathStatistics, Stack, StackOptions};
use swiftwater_tests::namespace::Host;
use swiftwater_tests::swiftwater_end;

const PORT: u16 = 5001;
const MESSAGE_BYTES: usize = 4000;
/// Number of bytes on a path that is no accident.
const MUCH_BYTES: u64 = 1_000_000;
/// Far longer than that takes.
const MESSAGES_MAX: u64 = 1_000_000;

struct Hosts {
    client: Host,
    server: Host,
}

impl Hosts {
    /// Makes the hosts; `None` if this user may not.
    fn new(name: &str) -> Option<Self> {
        let hosts = Hosts {
            client: Host::new(&format!("raw-{name}-a"))?,
            server: Host::new(&format!("raw-{name}-b"))?,
        };
        let Hosts { client, server } = &hosts;
        for line in 0..2 {
            client.ip(&format!("link add e{line} type veth peer name e{line} netns {}", server.name()));
            for (host, number) in [(client, 1), (server, 2)] {
                host.ip(&format!("address add {}/24 dev e{line}", address(line, number)));
                host.ip(&format!("link set e{line} up"));
            }
        }
        Some(hosts)
    }

    /// Returns numbered messages from the client until both paths have carried some of them: each arrives once, in
    /// order. Returns what the second path carried, and what left the client on the second line.
    fn transfer(&self, options: StackOptions) -> (u64, u64) {
        let at = |number| options.clone().with_local_addresses((0..2).map(|line| address(line, number)));
        let (at_client, at_server) = (at(1), at(2));
        let listener = self.server.run(move || Stack::bind(&at_server).unwrap().listen(PORT).unwrap());
        let listener = listener.join().unwrap();
        let count = self.server.run(move || swiftwater_end::count_numbers(&listener, MESSAGE_BYTES, |_| ()));
        let work = self.client.run(move || {
            let stack = Stack::bind(&at_client).unwrap();
            assert_eq!(stack.link(), at_client.link);
            let before = sent_bytes("e1");
            let association = stack.connect(format!("{}:{PORT}", address(0, 2)).as_str()).unwrap();
            let sent = send_until(&association, |path| path.delivered_bytes > MUCH_BYTES);
            let carried = paths(&association)[1].delivered_bytes;
            let on_line = sent_bytes("e1") - before;
            association.close().unwrap();
            (sent, carried, on_line)
        });
        let (sent, carried, on_line) = work.join().unwrap();
        assert_eq!(count.join().unwrap(), sent);
        (carried, on_line)
    }
}

fn address(line: u8, number: u8) -> IpAddr {
    IpAddr::from([10, 79, line, number])
}

/// Returns the paths over the first line and over the second, once there are two.
fn paths(association: &Association) -> Vec<PathStatistics> {
    let mut paths = association.statistics().unwrap().paths;
    paths.sort_by_key(|path| path.remote.ip());
    paths
}

/// Sends until the condition holds for both paths. Returns the number of messages.
fn send_until(association: &Association, done: impl Fn(&PathStatistics) -> bool) -> u64 {
    let mut sent = 0;
    loop {
        let paths = paths(association);
        if paths.len() == 2 && paths.iter().all(&done) {
            return sent;
        }
        assert!(sent < MESSAGES_MAX, "{paths:#?}");
        for _ in 0..10 {
            swiftwater_end::send_number(association, sent, MESSAGE_BYTES);
            sent += 1;
        }
    }
}

/// Returns the bytes sent by an interface of the host on which this thread is.
fn sent_bytes(interface: &str) -> u64 {
    // Eight columns about received packets come first.
    const SENT_BYTES: usize = 8;
    let table = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let line = table.lines().find_map(|line| line.trim().strip_prefix(&format!("{interface}:"))).unwrap();
    line.split_whitespace().nth(SENT_BYTES).unwrap().parse().unwrap()
}

#[test]
#[ignore = "needs network namespaces: ./test --all"]
fn both_lines_carry_raw_ip() {
    let Some(hosts) = Hosts::new("both") else { return };
    let (carried, on_line) = hosts.transfer(StackOptions::default().with_link(LinkKind::Raw));
    assert!(on_line > carried, "{on_line} bytes on the line of a path that carried {carried}");
}

/// Makes the route to the server's second address begin at the client's second address, and lead over the first line.
fn against_the_route(name: &str, options: StackOptions) -> Option<(u64, u64)> {
    let hosts = Hosts::new(name)?;
    hosts.client.ip(&format!("route add {} dev e0 src {}", address(1, 2), address(1, 1)));
    Some(hosts.transfer(options))
}

fn is_bound_where_asked(name: &str, link: LinkKind) {
    let options =
        |bind_interfaces| StackOptions::default().with_link(link).with_bind_interfaces(bind_interfaces);
    let Some((carried, on_line)) = against_the_route(&format!("{name}-free"), options(false)) else { return };
    assert!(on_line < carried, "{on_line} bytes where the route does not lead, {carried} on the path");
    let Some((carried, on_line)) = against_the_route(&format!("{name}-bound"), options(true)) else { return };
    assert!(on_line > carried, "{on_line} bytes where the path is bound, {carried} on the path");
}

#[test]
#[ignore = "needs network namespaces: ./test --all"]
fn a_path_that_is_bound_to_its_interface_leaves_there() {
    is_bound_where_asked("udp", LinkKind::Udp);
}

#[test]
#[ignore = "needs network namespaces: ./test --all"]
fn a_path_over_raw_ip_that_is_bound_to_its_interface_leaves_there() {
    is_bound_where_asked("ip", LinkKind::Raw);
}
