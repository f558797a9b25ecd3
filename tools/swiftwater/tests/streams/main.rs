//! Tests of `swiftwater streams`: modules on the streams of running programs.
#![allow(missing_docs)]

#[path = "../daemon/mod.rs"]
mod daemon;
mod links;
mod recording;
mod support;
mod two_hosts;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use swiftwater_tests::{tools, wait};

use daemon::{Daemon, SWIFTWATER, compiled};
use links::Between;
use support::{Flow, NOBODY, await_stream, done, limited, public, refused, rows, streams};

#[test]
fn pushing_and_popping_under_full_load_loses_duplicates_and_reorders_nothing() {
    let daemon = Daemon::start("flow");
    let flow = Flow::start(&daemon, "flow", &[]);
    let (sender, receiver) = Flow::ends(&daemon.place);
    let push = |id: &str, words: &[&str]| {
        done(streams(&daemon.place, &[&["push", id], words].concat()));
    };
    let pop = |id: &str| done(streams(&daemon.place, &["pop", id]));
    for _ in 0..10 {
        push(&sender, &["bufmod"]);
        push(&receiver, &["limit", "bits=200M"]);
        push(&sender, &["limit", "bits=300M"]);
        push(&receiver, &["filter", "way=both", "delay=1"]);
        assert_eq!([pop(&sender), pop(&receiver)], ["limit\n", "filter\n"]);
        push(&sender, &["counter"]);
        assert_eq!([pop(&sender), pop(&sender), pop(&receiver)], ["counter\n", "bufmod\n", "limit\n"]);
    }
    assert!(flow.end() > 1000);
}

#[test]
fn streams_are_shown_with_their_modules() {
    let daemon = Daemon::start("shown");
    let flow = Flow::start(&daemon, "shown", &["1000"]);
    let (sender, _) = Flow::ends(&daemon.place);
    done(streams(&daemon.place, &["push", &sender, "limit", "bits=100M"]));
    done(streams(&daemon.place, &["push", &sender, "filter", "drop=0"]));
    let tree = done(streams(&daemon.place, &[]));
    let lines: Vec<&str> = tree.lines().skip_while(|line| !line.starts_with(&format!("{sender} "))).collect();
    let begin = |line: usize| lines[line].split_whitespace().take(2).collect::<Vec<_>>();
    assert_eq!(
        [begin(1)[0], begin(2)[1], begin(3)[1], begin(4)[1]],
        ["head", "filter", "limit", "sctp"],
        "{tree}"
    );
    let documented = include_str!("../../../../docs/json.md");
    for (key, value) in rows(&daemon.place).iter().flat_map(|row| row.as_object().expect("objects")) {
        assert!(!value.is_object() && !value.is_array(), "{key} is not flat");
        assert!(documented.contains(&format!("`{key}`")), "{key} is missing in docs/json.md");
    }
    let said = |words: &[&str]| refused(streams(&daemon.place, words));
    assert!(said(&["push", &sender, "no-such"]).contains("there are bufmod"));
    assert!(said(&["push", &sender, "limit"]).contains("set bits=RATE, messages=RATE or both"));
    assert!(
        said(&["push", &sender, "limit", "bits=fast"]).contains("bits=fast is not a rate; write a number")
    );
    assert!(said(&["push", "999999", "bufmod"]).contains("no association has this number"));
    for _ in 2..8 {
        done(streams(&daemon.place, &["push", &sender, "nullmod"]));
    }
    assert!(said(&["push", &sender, "nullmod"]).contains("as many modules as it may have"));
    for _ in 0..8 {
        done(streams(&daemon.place, &["pop", &sender]));
    }
    assert!(said(&["pop", &sender]).contains("no module to pop"));
    flow.end();
}

#[test]
fn rules_push_modules_when_associations_are_set_up() {
    let rules = Path::new(env!("CARGO_TARGET_TMPDIR")).join("streams.rules");
    let text = "# senders and receivers of flow\nprogram=sockets-rules port=6510 counter limit(bits=1G)\n";
    fs::write(&rules, text).expect("our own folder");
    let mut command = Command::new("sh");
    let path = rules.to_str().expect("text");
    command.args(["-c", "exec \"$0\" \"$@\" --autopush \"$RULES\"", SWIFTWATER]).env("RULES", path);
    let daemon = Daemon::start_with("rules", command);
    let flow = Flow::start(&daemon, "rules", &["1000"]);
    let parts = rows(&daemon.place);
    let names: Vec<&str> =
        parts.iter().filter(|row| row["row"] == "part").filter_map(|row| row["name"].as_str()).collect();
    assert_eq!(names, ["head", "limit", "counter", "sctp"].repeat(2));
    flow.end();
    fs::write(&rules, "\nport=7 no-such-module\n").expect("our own folder");
    let mut wrong = Command::new(SWIFTWATER);
    wrong.args(["daemon", "--udp-port", "0", "--place", "@swiftwater-test-wrong-rules", "--autopush", path]);
    let sentence = refused(wrong);
    let words =
        format!("swiftwater: {path}: line 2: no-such-module: no module has this name; there are bufmod, ");
    assert!(sentence.starts_with(&words), "nothing else comes before: {sentence}");
}

#[test]
fn a_program_finds_what_a_filter_drops() {
    let daemon = Daemon::start("dropped");
    let mut flow = Flow::start(&daemon, "dropped", &["100"]);
    let (sender, _) = Flow::ends(&daemon.place);
    done(streams(&daemon.place, &["push", &sender, "filter", "drop=0.01"]));
    // Closing its input would end it, and so would a wait.
    let input = flow.program.stdin.take();
    assert!(!flow.program.wait().expect("it ends").success(), "a message is missing");
    drop(input);
}

#[test]
#[ignore = "needs socat: ./test --all"]
fn messages_held_by_a_module_reach_a_program_whose_peer_has_closed() {
    const BYTES: usize = 400_000;
    if tools::program("socat").is_none() {
        return;
    }
    let daemon = Daemon::start("held");
    // A pipe that nobody reads yet holds it up.
    let mut reader = limited(&daemon, "socat -u SCTP-LISTEN:7011,reuseaddr -");
    daemon.await_listener(7011);
    let mut reader_output = reader.stdout.take().expect("it is piped");
    let mut writer = limited(&daemon, "socat -u - SCTP:127.0.0.1:7011");
    let stream = await_stream(&daemon.place, "local", 7011);
    done(streams(&daemon.place, &["push", &stream, "bufmod"]));
    let mut input = writer.stdin.take().expect("it is piped");
    input.write_all(&[b'x'; BYTES]).expect("it reads");
    drop(input);
    assert!(writer.wait().expect("it ends").success());
    // The association ends, and no packet comes any more.
    let streams = || rows(&daemon.place).iter().filter(|row| row["row"] == "stream").count();
    wait::until("the end of the writer's association", || streams() <= 1);
    let mut read = Vec::new();
    reader_output.read_to_end(&mut read).expect("a pipe");
    assert_eq!(read.len(), BYTES);
    assert!(reader.wait().expect("it ends").success());
}

/// Returns the bytes that have passed the counter of a stream downward.
fn bytes_down(place: &str, stream: &str) -> u64 {
    let (rows, stream): (_, u64) = (rows(place), stream.parse().expect("a number"));
    let is_it = |row: &&Value| row["stream"] == stream && row["what"] == "bytes down";
    rows.iter().find(is_it).and_then(|row| row["count"].as_u64()).expect("the counter is pushed")
}

/// A busy machine sends less, never more.
#[test]
#[ignore = "needs iperf3: ./test --all"]
fn a_limit_holds_on_a_running_iperf3_until_it_is_popped() {
    const BITS_PER_S: f64 = 1e6;
    /// Length of one write of the program. At the start and at the end of the measurement, one message may be on its way.
    const MESSAGE_BYTES: f64 = 65_536.0;
    /// Bytes that take 2 s at the limit.
    const LIMITED_BYTES: u64 = 250_000;
    /// Bytes that take longer at the limit than the test.
    const MANY_BYTES: u64 = 10_000_000;
    if tools::program("iperf3").is_none() {
        return;
    }
    let daemon = Daemon::start("iperf3");
    let mut server = limited(&daemon, "iperf3 -s -1 -p 5311 --forceflush");
    let said = BufReader::new(server.stdout.take().expect("it is piped"));
    let mut lines = said.lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("listening")));
    let mut client = limited(&daemon, "iperf3 -c 127.0.0.1 -p 5311 --sctp -l 64K -t 50");
    let stream = await_stream(&daemon.place, "peer", 5311);
    done(streams(&daemon.place, &["push", &stream, "counter"]));
    done(streams(&daemon.place, &["push", &stream, "limit", "bits=1M"]));
    let began = Instant::now();
    let before = bytes_down(&daemon.place, &stream);
    let passed = || bytes_down(&daemon.place, &stream) - before;
    wait::until("messages pass the limit", || passed() >= LIMITED_BYTES);
    let passed_bytes = passed() as f64;
    let most = BITS_PER_S / 8.0 * began.elapsed().as_secs_f64() + 2.0 * MESSAGE_BYTES;
    assert!(passed_bytes <= most, "{passed_bytes} of at most {most}");
    done(streams(&daemon.place, &["pop", &stream]));
    wait::until("many messages pass without the limit", || passed() >= MANY_BYTES);
    kill(Pid::from_raw(client.id() as i32), Signal::SIGTERM).expect("it runs");
    client.wait().expect("it ends");
    server.wait().expect("it ends");
}

#[test]
#[ignore = "needs root, for a second user: ./test --all"]
fn a_stream_is_its_owners_and_roots() {
    let daemon = Daemon::start("owners");
    let roots = Flow::start(&daemon, "owners", &["1000"]);
    let (root_stream, _) = Flow::ends(&daemon.place);
    let folder = public(&[Path::new(SWIFTWATER)]);
    let as_nobody = |words: &[&str]| {
        let mut command = Command::new(folder.join("swiftwater"));
        command.arg("streams").args(words).args(["--place", &daemon.place]);
        command.uid(NOBODY).gid(NOBODY).current_dir("/");
        command
    };
    assert_eq!(done(as_nobody(&["--json"])).trim_end(), "[]", "nothing of root's is shown");
    for words in [
        &["push", &root_stream, "nullmod"][..],
        &["pop", &root_stream],
        &["trace", &root_stream],
        &["link", &root_stream, &root_stream],
        &["unlink", &root_stream],
    ] {
        assert!(refused(as_nobody(words)).contains("EPERM"), "{words:?}");
    }
    roots.end();

    let shim = Path::new(SWIFTWATER).with_file_name("libswiftwater_preload.so");
    let program = compiled("flow", "owners");
    let folder = public(&[&shim, &program]);
    let mut command = Command::new(folder.join("swiftwater"));
    command.args(["run", "--quiet", "--"]).arg(folder.join(program.file_name().expect("a file")));
    command.uid(NOBODY).gid(NOBODY).env("SWIFTWATER_DAEMON", &daemon.place).current_dir("/");
    let nobodys = Flow::start_by(command, &["1000"]);
    let (stream, _) = Flow::ends(&daemon.place);
    done(as_nobody(&["push", &stream, "nullmod"]));
    done(streams(&daemon.place, &["push", &stream, "limit", "bits=1G"]));
    assert!(refused(as_nobody(&["pop", &stream])).contains("EPERM"), "root has pushed it");
    assert_eq!(done(streams(&daemon.place, &["pop", &stream])), "limit\n");
    assert_eq!(done(as_nobody(&["pop", &stream])), "nullmod\n");
    nobodys.end();

    let program = compiled("between", "owners");
    let folder = public(&[&shim, &program]);
    let mut command = Command::new(folder.join("swiftwater"));
    command.args(["run", "--quiet", "--"]).arg(folder.join(program.file_name().expect("a file")));
    command.uid(NOBODY).gid(NOBODY).env("SWIFTWATER_DAEMON", &daemon.place).current_dir("/");
    let between = Between::of(&daemon, Flow::start_by(command, &[]));
    let [a, b] = &between.proxy;
    done(as_nobody(&["link", a, b]));
    assert_eq!(done(streams(&daemon.place, &["unlink", a])), format!("{b}\n"));
    done(streams(&daemon.place, &["link", a, b]));
    assert!(refused(as_nobody(&["unlink", b])).contains("EPERM"), "root has linked them");
    fs::remove_dir_all(&folder).expect("our own folder");
}
