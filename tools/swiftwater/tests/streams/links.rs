//! Streams of two associations that are linked past their program.

use std::io::{BufRead, Write};

use serde_json::Value;

use crate::daemon::Daemon;
use crate::support::{Flow, done, output, refused, rows, streams};

/// The program `between`, and the numbers of the two associations of its proxy.
pub(crate) struct Between {
    pub(crate) flow: Flow,
    pub(crate) proxy: [String; 2],
}

impl Between {
    pub(crate) fn start(daemon: &Daemon, test: &str) -> Between {
        Between::of(daemon, Flow::start_program(daemon, "between", test))
    }

    pub(crate) fn of(daemon: &Daemon, flow: Flow) -> Between {
        let is_proxys = |row: &&Value| {
            row["row"] == "stream" && row["local"].as_str().is_some_and(|local| local.ends_with(":6511"))
        };
        let rows = rows(&daemon.place);
        let proxy: Vec<String> = rows.iter().filter(is_proxys).map(|row| row["stream"].to_string()).collect();
        Between { flow, proxy: proxy.try_into().expect("two associations") }
    }

    pub(crate) fn begin(&mut self, command: &[u8]) {
        self.flow.program.stdin.as_mut().expect("it is piped").write_all(command).expect("it reads");
    }

    /// Waits for the end of a command; returns the number of messages that the proxy has copied.
    pub(crate) fn ended(&mut self) -> u64 {
        let mut line = String::new();
        self.flow.said.read_line(&mut line).expect("a line");
        let count = line.trim_end().strip_prefix("copied ").and_then(|count| count.parse().ok());
        count.unwrap_or_else(|| panic!("{line}"))
    }

    pub(crate) fn copied(&mut self, command: &[u8]) -> u64 {
        self.begin(command);
        self.ended()
    }
}

#[test]
fn linked_streams_pass_messages_on_while_their_program_waits() {
    let daemon = Daemon::start("linked");
    let mut between = Between::start(&daemon, "linked");
    let [a, b] = between.proxy.clone();
    let command = |words: &[&str]| streams(&daemon.place, words);
    assert_eq!(between.copied(b"e"), 400);
    done(command(&["link", &a, &b]));
    assert_eq!(between.copied(b"e"), 0, "the proxy is not on the way");
    let passed: Vec<(String, u64)> = rows(&daemon.place)
        .iter()
        .filter(|row| row["row"] == "link")
        .map(|row| (row["linked_with"].to_string(), row["messages"].as_u64().expect("a count")))
        .collect();
    assert_eq!(passed, [(b.clone(), 200), (a.clone(), 200)]);
    let tree = done(command(&[]));
    assert!(tree.contains(&format!("   splice with {b}: 200 messages passed on, 120,000 bytes\n")), "{tree}");
    assert!(refused(command(&["link", &b, &a])).contains("linked already"));
    assert_eq!(done(command(&["unlink", &b])), format!("{a}\n"));
    assert!(refused(command(&["unlink", &b])).contains("not linked"));
    assert_eq!(between.copied(b"e"), 400);

    between.begin(b"l");
    for _ in 0..5 {
        done(command(&["link", &a, &b]));
        done(command(&["unlink", &a]));
    }
    assert!(between.ended() > 0, "no message was lost or doubled");

    done(command(&["link", &a, &b]));
    assert_eq!(between.copied(b"c"), 0, "the proxy has found the end");
    assert!(between.flow.program.try_wait().expect("a child").is_none());
    drop(between.flow.program.stdin.take());
    assert!(between.flow.program.wait().expect("it ends").success());
}

#[test]
fn no_message_goes_round_through_links() {
    let daemon = Daemon::start("circle");
    let between = Between::start(&daemon, "circle");
    let [a, b] = &between.proxy;
    let rows = rows(&daemon.place);
    let clients: Vec<String> = rows
        .iter()
        .filter(|row| row["peer"].as_str().is_some_and(|peer| peer.ends_with(":6511")))
        .map(|row| row["stream"].to_string())
        .collect();
    let link = |one: &str, other: &str| streams(&daemon.place, &["link", one, other]);
    assert!(refused(link(a, a)).contains("EINVAL"), "one stream");
    for client in &clients {
        let to_its_peer = [a, b].map(|end| output(link(client, end)));
        let failed = to_its_peer.iter().filter(|output| !output.status.success());
        let said: Vec<_> = failed.map(|output| String::from_utf8_lossy(&output.stderr)).collect();
        assert_eq!(said.len(), 1, "both ends of one association");
        assert!(said[0].contains("EINVAL"), "{}", said[0]);
        done(streams(&daemon.place, &["unlink", client]));
    }
    done(link(a, b));
    assert!(refused(link(&clients[0], &clients[1])).contains("EINVAL"), "through the other link");
    assert!(refused(link(a, "999999")).contains("no association has this number"));
}
