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

use swiftwater_tests::tools;

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
    while rows(&daemon.place).iter().filter(|row| row["row"] == "stream").count() > 1 {
        std::thread::yield_now();
    }
    let mut read = Vec::new();
    reader_output.read_to_end(&mut read).expect("a pipe");
    assert_eq!(read.len(), BYTES);
    assert!(reader.wait().expect("it ends").success());
}

#[test]
#[ignore = "needs iperf3: ./test --all"]
fn a_limit_holds_on_a_running_iperf3_until_it_is_popped() {
    if tools::program("iperf3").is_none() {
        return;
    }
    let daemon = Daemon::start("iperf3");
    let mut server = limited(&daemon, "iperf3 -s -1 -p 5311 --forceflush");
    let said = BufReader::new(server.stdout.take().expect("it is piped"));
    let mut lines = said.lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("listening")));
    let mut client = limited(&daemon, "iperf3 -c 127.0.0.1 -p 5311 --sctp -t 15 -i 1 -f k --forceflush");
    let said = BufReader::new(client.stdout.take().expect("it is piped"));
    let mut rates = said.lines().map_while(Result::ok).filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let unit = words.iter().position(|word| *word == "Kbits/sec")?;
        words[unit - 1].parse::<f64>().ok()
    });
    let mut next_rate = || rates.next().expect("an interval");
    let stream = await_stream(&daemon.place, "peer", 5311);
    let full = next_rate();
    // Other programs may slow a run down, but not as far.
    let limit = (full / 20.0).round();
    done(streams(&daemon.place, &["push", &stream, "limit", &format!("bits={limit}k")]));
    // The module was pushed within an interval, and the buffers before it are filled in one.
    let [_, _, held] = [next_rate(), next_rate(), next_rate()];
    assert!(held < 2.0 * limit, "{held} kbit/s, and the limit is {limit}");
    done(streams(&daemon.place, &["pop", &stream]));
    let [_, back] = [next_rate(), next_rate()];
    assert!(back > 4.0 * limit, "{back} kbit/s after {full} before, and {limit} is no limit any more");
    println!("{full} kbit/s, {held} of {limit} with the module, {back} without it again");
    rates.for_each(drop);
    assert!(client.wait().expect("it ends").success() && server.wait().expect("it ends").success());
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
