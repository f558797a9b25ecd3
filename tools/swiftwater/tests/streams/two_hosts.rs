//! Modules at both ends of an association between two hosts.

use std::fs;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use swiftwater_tests::namespace::Host;
use swiftwater_tests::tools;

use crate::daemon::{Daemon, SWIFTWATER};
use crate::support::{await_stream, done, streams};

/// Two hosts on one line, with a daemon each.
struct TwoHosts {
    hosts: [Host; 2],
    daemons: [Daemon; 2],
}

impl TwoHosts {
    /// Makes the hosts, or reports the test as skipped.
    fn new(test: &'static str) -> Option<TwoHosts> {
        let hosts = [Host::new(test)?, Host::new(test)?];
        hosts[0].ip(&format!("link add line type veth peer name line netns {}", hosts[1].name()));
        let daemons = [0, 1].map(|which| {
            hosts[which].ip("link set lo up");
            hosts[which].ip(&format!("address add 10.20.0.{}/24 dev line", which + 1));
            hosts[which].ip("link set line up");
            on(&hosts[which], move || Daemon::start_at(test, "9899"))
        });
        Some(TwoHosts { hosts, daemons })
    }

    /// Starts a program under `swiftwater run`.
    fn start(&self, which: usize, words: &'static str) -> Child {
        let place = self.daemons[which].place.clone();
        on(&self.hosts[which], move || {
            let mut command = Command::new(SWIFTWATER);
            command.args(["run", "--quiet", "--", "timeout", "60"]).args(words.split(' '));
            command.env("SWIFTWATER_DAEMON", place).stdin(Stdio::piped()).stdout(Stdio::piped());
            command.spawn().expect("the command starts")
        })
    }

    /// Waits until a program of the second host listens on this port.
    fn await_listener(&self, port: u16) {
        std::thread::scope(|scope| {
            let (host, daemon) = (&self.hosts[1], &self.daemons[1]);
            scope.spawn(|| {
                host.enter();
                daemon.await_listener(port);
            });
        });
    }

    /// Pushes a module on the stream one of whose ends, `local` or `peer`, has this port.
    fn push(&self, which: usize, end: &'static str, port: u16, module: &'static str) {
        let place = self.daemons[which].place.clone();
        on(&self.hosts[which], move || {
            let stream = await_stream(&place, end, port);
            done(streams(&place, &["push", &stream, module]));
        });
    }

    /// Returns the bytes that a host has sent on the line.
    fn sent_bytes(&self, which: usize) -> u64 {
        on(&self.hosts[which], || {
            let devices = fs::read_to_string("/proc/thread-self/net/dev").expect("proc");
            let line =
                devices.lines().find_map(|line| line.trim_start().strip_prefix("line:")).expect("the line");
            line.split_whitespace().nth(8).and_then(|count| count.parse().ok()).expect("a count")
        })
    }
}

/// Does something on a host, with the programs that it starts.
fn on<T: Send + 'static>(host: &Host, work: impl FnOnce() -> T + Send + 'static) -> T {
    host.run(work).join().expect("it does not fail")
}

/// Copies text from one host to the other; returns the bytes that the sender's host has sent.
fn copied_by_socat(
    hosts: &TwoHosts,
    listen: &'static str,
    connect: &'static str,
    port: u16,
    module: Option<&'static str>,
) -> u64 {
    let line = |number: usize| {
        format!("{number:08} GET /index.html HTTP/1.1 200 {} bytes\n", number * 7919 % 10_007)
    };
    let text: String = (0..40_000).map(line).collect();
    let mut receiver = hosts.start(1, listen);
    hosts.await_listener(port);
    let mut sender = hosts.start(0, connect);
    if let Some(module) = module {
        hosts.push(0, "peer", port, module);
        hosts.push(1, "local", port, module);
    }
    // The modules know of each other once something was sent each way.
    for _ in 0..2 {
        pass_line(&mut sender, &mut receiver);
        pass_line(&mut receiver, &mut sender);
    }
    let before = hosts.sent_bytes(0);
    let mut output = receiver.stdout.take().expect("it is piped");
    let mut read = vec![0; text.len()];
    let reader = std::thread::spawn(move || {
        output.read_exact(&mut read).expect("all of it comes");
        read
    });
    sender.stdin.as_mut().expect("it is piped").write_all(text.as_bytes()).expect("it reads");
    assert!(reader.join().expect("it reads") == text.as_bytes(), "the text has arrived");
    let sent = hosts.sent_bytes(0) - before;
    // The end of its input makes a program shut the association down.
    for program in [&mut sender, &mut receiver] {
        drop(program.stdin.take());
        assert!(program.wait().expect("it ends").success());
    }
    println!("{} bytes of text in {sent} bytes on the line, with {module:?}", text.len());
    assert!(module.is_some() || sent > text.len() as u64);
    sent
}

/// Passes a line from the input of one program to the output of the other.
fn pass_line(from: &mut Child, to: &mut Child) {
    from.stdin.as_mut().expect("it is piped").write_all(b"line\n").expect("it reads");
    let mut line = [0; 5];
    to.stdout.as_mut().expect("it is piped").read_exact(&mut line).expect("it comes");
    assert_eq!(line, *b"line\n");
}

#[test]
#[ignore = "needs namespaces, ip and socat: ./test --all"]
fn compress_at_both_ends_shortens_what_passes_between_two_hosts() {
    if tools::program("socat").is_none() {
        return;
    }
    let Some(hosts) = TwoHosts::new("compress") else { return };
    crate::daemon::preload();
    let plain =
        copied_by_socat(&hosts, "socat SCTP-LISTEN:7021 -", "socat - SCTP:10.20.0.2:7021", 7021, None);
    let compressed = copied_by_socat(
        &hosts,
        "socat SCTP-LISTEN:7022 -",
        "socat - SCTP:10.20.0.2:7022",
        7022,
        Some("compress"),
    );
    assert!(2 * compressed < plain, "{compressed} bytes on the line in place of {plain}");
}
