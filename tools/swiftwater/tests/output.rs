//! Tests of commands when the reader of their output has gone, when the device is full, and when a user interrupts them.
#![allow(missing_docs)]

mod daemon;

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use daemon::{Daemon, SWIFTWATER};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// 128 and SIGPIPE, as a shell reports it.
const CLOSED: Option<i32> = Some(141);
/// 128 and SIGINT.
const INTERRUPTED: Option<i32> = Some(130);
const FAILED: Option<i32> = Some(1);
const MISUSED: Option<i32> = Some(2);

fn swiftwater(line: &str) -> Command {
    let mut command = Command::new(SWIFTWATER);
    command.args(line.split(' '));
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Commands that print little or much, at their end or while they run.
const PRINTING: [&str; 6] =
    ["doctor", "doctor --json", "lab --list", "--help", "--version", "lab --virtual tail-loss --case last"];

#[test]
fn a_reader_that_has_gone_ends_a_command_quietly() {
    let daemon = Daemon::start("closed");
    let place = format!("status --place {}", daemon.place);
    for line in PRINTING.iter().copied().chain([place.as_str()]) {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = swiftwater(line).stdout(writer).output().expect("the command starts");
        assert_eq!((output.status.code(), said(&output).as_str()), (CLOSED, ""), "{line}");
    }
}

#[test]
fn a_full_device_is_named() {
    let daemon = Daemon::start("full");
    let place = format!("status --place {}", daemon.place);
    for line in PRINTING.iter().copied().chain([place.as_str()]) {
        let full = OpenOptions::new().write(true).open("/dev/full").expect("every Linux has it");
        let output = swiftwater(line).stdout(full).output().expect("the command starts");
        assert_eq!(output.status.code(), FAILED, "{line}");
        let sentence = "swiftwater: cannot write to standard output: No space left on device";
        assert!(said(&output).starts_with(sentence), "{line}: {}", said(&output));
    }
}

#[test]
fn notes_that_nobody_can_read_end_nothing() {
    let full = OpenOptions::new().write(true).open("/dev/full").expect("every Linux has it");
    let line = "perf client 127.0.0.1 -p 1 --proto tcp";
    let status = swiftwater(line).stderr(full).status().expect("the command starts");
    assert_eq!(status.code(), FAILED, "a panic would have another status");
}

#[test]
fn a_test_ends_when_nobody_reads_of_it_or_the_user_interrupts_it() {
    for signal in [None, Some(Signal::SIGINT)] {
        let mut server = swiftwater("perf server -B 127.0.0.1 -p 0 --udp-port 0")
            .stdout(Stdio::piped())
            .spawn()
            .expect("the command starts");
        let mut lines = BufReader::new(server.stdout.take().expect("it is piped"));
        let mut line = String::new();
        lines.read_line(&mut line).expect("it says where it waits");
        let port = line.split(';').next().and_then(|words| words.rsplit(':').next()).expect("a port");
        let mut client = swiftwater(&format!("perf client 127.0.0.1 -p {port} --proto tcp -t 600 -i 0.05"));
        let mut client = client.stdout(Stdio::piped()).spawn().expect("the command starts");
        let mut report = BufReader::new(client.stdout.take().expect("it is piped"));
        report.read_line(&mut String::new()).expect("it says what it does");
        let expected = match signal {
            // Its next line finds the pipe closed.
            None => CLOSED,
            Some(signal) => {
                kill(Pid::from_raw(client.id() as i32), signal).expect("it runs");
                std::io::copy(&mut report, &mut std::io::sink()).expect("it prints the totals");
                INTERRUPTED
            }
        };
        drop(report);
        assert_eq!(client.wait().expect("it ends").code(), expected);
        kill(Pid::from_raw(server.id() as i32), Signal::SIGINT).expect("it runs");
        assert_eq!(server.wait().expect("it ends").code(), INTERRUPTED);
    }
}

#[test]
fn json_takes_the_place_of_text_or_goes_to_a_file_beside_it() {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("json").join("rows.json");
    let daemon = Daemon::start("json");
    let status = format!("status --place {}", daemon.place);
    fs::create_dir_all(file.parent().expect("it has one")).expect("a folder of our own");
    let folder = file.parent().expect("it has one").display();
    let bench = format!(
        "bench --sizes 64 --series tcp --cpus 1 --seconds 0.02 --repeat 1 --html {folder}/bench.html"
    );
    for line in [&status, &bench, "doctor", "lab --list", "lab --virtual tail-loss --case last"] {
        let printed = swiftwater(&format!("{line} --json")).output().expect("the command starts").stdout;
        let rows: Vec<serde_json::Value> =
            serde_json::from_slice(&printed).expect("an array and nothing else");
        let text = swiftwater(&format!("{line} --json={}", file.display())).output().expect("starts").stdout;
        assert!(serde_json::from_slice::<serde_json::Value>(&text).is_err(), "{line}: this is for people");
        let written: Vec<serde_json::Value> =
            serde_json::from_slice(&fs::read(&file).expect("it is written")).expect("an array");
        assert_eq!(written.len(), rows.len(), "{line}");
    }
}

#[test]
fn a_folder_that_is_missing_is_an_error_before_the_work_begins() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("no-folder");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder of our own");
    fs::write(folder.join("empty.sqlog"), "").expect("room");
    for line in [
        "bench --json=gone/rows.json",
        "bench --html gone/page.html",
        "bench attack --json=gone/rows.json",
        "bench neighbours --json=gone/rows.json",
        "perf client 127.0.0.1 -p 1 --json=gone/rows.json",
        "perf client 127.0.0.1 -p 1 --qlog gone/trace",
        "perf server -B 127.0.0.1 -p 0 --udp-port 0 --json=gone/rows.json",
        "lab --list --json=gone/rows.json",
        "lab --virtual datatag --json=gone/rows.json",
        "lab --virtual datatag --plot gone/page.html",
        "lab --virtual datatag --capture gone/packets.pcapng",
        "lab --virtual datatag --qlog gone/trace",
        "lab --live all --out gone/results/",
        "status --place @sw-output-nobody --json=gone/rows.json",
        "streams --place @sw-output-nobody --json=gone/rows.json",
        "streams tap 5 --place @sw-output-nobody -w gone/packets.pcapng",
        "trace plot empty.sqlog -o gone/page.svg",
        "man gone/pages",
    ] {
        let output = swiftwater(line).current_dir(&folder).output().expect("the command starts");
        let said = said(&output);
        assert!(said.contains("there is no folder gone (`mkdir -p gone` makes it)"), "{line}: {said}");
        assert_eq!((output.status.code(), output.stdout.len()), (FAILED, 0), "{line}");
        assert_eq!(fs::read_dir(&folder).expect("ours").count(), 1, "{line} makes something");
    }
    let output = swiftwater("man pages").current_dir(&folder).output().expect("the command starts");
    assert!(output.status.success() && folder.join("pages").is_dir(), "the folder itself is made");
}

#[test]
fn a_command_that_fails_keeps_the_files_of_before() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("kept");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder of our own");
    let kept = folder.join("kept");
    fs::write(&kept, "of before").expect("room");
    let name = kept.display();
    let failing = [
        format!("status --place @sw-output-nobody --json={name}"),
        format!("streams --place @sw-output-nobody --json={name}"),
        format!("streams tap 5 --place @sw-output-nobody -w {name}"),
        format!("perf client 127.0.0.1 -p 1 --json={name}"),
        format!("perf client 127.0.0.1 -p 1 --qlog {name}"),
        format!("perf server -B 203.0.113.9 --json={name}"),
        format!("lab --virtual tail-loss --case nosuch --json={name}"),
        format!("lab --live loopback --case nosuch --json={name}"),
        format!("bench --cpus 9999 --json={name}"),
    ];
    for line in &failing {
        // Cases and processors that do not exist are errors of the command line.
        let is_misuse = ["nosuch", "9999"].iter().any(|word| line.contains(word));
        let status = if is_misuse { MISUSED } else { FAILED };
        let output = swiftwater(line).output().expect("the command starts");
        assert_eq!(output.status.code(), status, "{line}: {}", said(&output));
        assert_eq!(fs::read_to_string(&kept).expect("it is there"), "of before", "{line}");
        // Where there was no file, none is left.
        let new = line.replace(&kept.display().to_string(), &folder.join("new").display().to_string());
        let output = swiftwater(&new).output().expect("the command starts");
        assert_eq!(output.status.code(), status, "{new}: {}", said(&output));
        assert!(!folder.join("new").exists(), "{new}");
    }
}

#[test]
fn a_file_that_cannot_be_written_costs_no_results() {
    let daemon = Daemon::start("full-file");
    let place = format!("--place {}", daemon.place);
    let bench = "bench --sizes 64 --series tcp --cpus 1 --seconds 0.02 --repeat 1 --html";
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("full-file");
    fs::create_dir_all(&folder).expect("a folder of our own");
    for (line, heading) in [
        (format!("status --json=/dev/full {place}"), "State"),
        ("doctor --json=/dev/full".into(), "kernel"),
        ("lab --list --json=/dev/full".into(), "sctplib"),
        ("lab --virtual tail-loss --case last --json=/dev/full".into(), "transport"),
        ("lab --virtual tail-loss --case last --plot /dev/full".into(), "transport"),
        (format!("{bench} {}/bench.html --json=/dev/full", folder.display()), "tcp"),
        (format!("{bench} /dev/full --json={}/bench.json", folder.display()), "tcp"),
    ] {
        let output = swiftwater(&line).output().expect("the command starts");
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(printed.contains(heading), "{line}: {printed}");
        assert_eq!(output.status.code(), FAILED, "{line}");
        assert!(said(&output).contains("cannot write /dev/full: No space left"), "{line}: {}", said(&output));
    }
    assert!(fs::read_to_string(folder.join("bench.html")).expect("it is written").contains("</html>"));
    assert!(fs::read_to_string(folder.join("bench.json")).expect("it is written").contains("tcp"));
}

#[test]
fn a_capture_on_a_full_disk_has_one_advice() {
    let output =
        swiftwater("lab --virtual tail-loss --case last --capture /dev/full").output().expect("it starts");
    let expected = "swiftwater: cannot write /dev/full: No space left on device; make room there, or choose another place";
    assert!(said(&output).lines().any(|line| line == expected), "{}", said(&output));
    assert_eq!(output.status.code(), FAILED);
}

#[test]
fn bench_begins_only_if_its_arguments_and_files_are_right() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bench-begins");
    // An earlier run may have left it.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    for (line, complaint) in [
        ("bench --sizes 0", "size"),
        ("bench --series sctp", "sctp"),
        ("bench --cpus 0", "processor"),
        ("bench --packet-bytes 10", "10"),
        ("bench --quick -P 0", "0"),
        ("bench --quick --json --html /proc/nowhere/page.html", "cannot write /proc/nowhere/page.html"),
    ] {
        let output = swiftwater(line).current_dir(&folder).output().expect("the command starts");
        let said = said(&output);
        assert!(!output.status.success() && said.contains(complaint), "{line}: {said}");
        assert!(!said.contains("Ctrl-C prints"), "{line}: it has begun");
        assert_eq!(fs::read_dir(&folder).expect("ours").count(), 0, "{line} leaves a file");
    }
}

#[test]
fn a_place_that_cannot_be_read_is_refused() {
    for line in ["status", "run -- true", "daemon --udp-port 0", "doctor"] {
        let mut command = swiftwater(line);
        let output = command.env("SWIFTWATER_DAEMON", OsStr::from_bytes(b"@\xff")).output();
        let output = output.expect("the command starts");
        assert!(said(&output).contains("SWIFTWATER_DAEMON is not UTF-8"), "{line}: {}", said(&output));
        assert_eq!(output.status.code(), FAILED, "{line}");
    }
}

/// Returns the bits of signals in a line of /proc/PID/status.
fn signals(process: u32, key: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let bits = status.lines().find_map(|line| line.strip_prefix(key)).expect("Linux has it");
    u64::from_str_radix(bits.trim(), 16).expect("a number")
}

#[test]
fn a_signal_that_is_ignored_at_the_start_stays_ignored() {
    let place = format!("@swiftwater-test-nohup-{}", std::process::id());
    let bit = |signal: Signal| 1_u64 << (signal as i32 - 1);
    for (words, reads_error) in [
        (format!("daemon --udp-port 0 --place {place}"), true),
        ("perf server -B 127.0.0.1 -p 0 --udp-port 0".into(), false),
    ] {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("trap '' HUP; exec \"$0\" {words}"), SWIFTWATER]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a shell");
        let (out, error) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
        let mut said = String::new();
        match reads_error {
            true => BufReader::new(error).read_line(&mut said).expect("a line"),
            false => BufReader::new(out).read_line(&mut said).expect("a line"),
        };
        let (ignored, caught) = (signals(child.id(), "SigIgn:"), signals(child.id(), "SigCgt:"));
        kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).expect("it runs");
        child.wait().expect("it ends");
        assert!(ignored & bit(Signal::SIGHUP) != 0 && caught & bit(Signal::SIGHUP) == 0, "{words}: {said}");
        assert!(caught & bit(Signal::SIGTERM) != 0 && caught & bit(Signal::SIGINT) != 0, "{words}: {said}");
    }
}

#[test]
fn messages_blame_what_is_wrong() {
    let taken = UdpSocket::bind("127.0.0.1:0").and_then(|socket| Ok((socket.local_addr()?.port(), socket)));
    let (port, _socket) = taken.expect("a port");
    let any = UdpSocket::bind("0.0.0.0:0").and_then(|socket| Ok((socket.local_addr()?.port(), socket)));
    let (port_of_all, _all) = any.expect("a port");
    // 192.0.2.0/24 belongs to no host (RFC 5737).
    let cases = [
        ("perf client 127.0.0.1 -p 1 -B 192.0.2.7".to_owned(), "give -B addresses of this host"),
        ("perf server -B 192.0.2.7".into(), "give -B addresses of this host"),
        (format!("perf server -p 0 -B 127.0.0.1 --udp-port {port}"), "another port with --udp-port"),
        (format!("daemon --place @sw-output-test --udp-port {port_of_all}"), "another port with --udp-port"),
        ("lab".into(), "swiftwater lab --list"),
        ("lab --seed 2".into(), "--virtual <NAME>|--live <NAME>|--list"),
        ("daemon stop --place @sw-output-nobody".into(), "no daemon is running at @sw-output-nobody"),
        (
            "status --place @sw-output-nobody".into(),
            "`swiftwater daemon --place @sw-output-nobody` starts one",
        ),
        ("streams pop x".into(), "`swiftwater streams` lists them"),
        ("daemon --place /proc/nowhere --udp-port 0".into(), "choose another place with --place"),
        ("daemon --autopush /proc/nowhere".into(), "name a file of rules with --autopush"),
        ("status --watch 0".into(), "`0` is not a number of seconds from 0.001 to 86400"),
        ("status --watch -1".into(), "`-1` is not a number of seconds from 0.001 to 86400"),
        ("bench --seconds -1".into(), "`-1` is not a number of seconds from 0.001 to 86400"),
        // The space is followed by an empty word.
        ("status --place ".into(), "a value is required for '--place <ADDRESS>'"),
        ("daemon --place ".into(), "a value is required for '--place <ADDRESS>'"),
    ];
    for (line, words) in cases {
        let output = swiftwater(&line).output().expect("the command starts");
        assert!(!output.status.success() && said(&output).contains(words), "{line}: {}", said(&output));
    }
}

#[test]
fn a_server_whose_udp_port_was_taken_meanwhile_names_its_option() {
    let taken = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let udp_port = taken.local_addr().expect("bound").port();
    drop(taken);
    let mut server = swiftwater(&format!("perf server -B 127.0.0.1 -p 0 --udp-port {udp_port}"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let mut line = String::new();
    BufReader::new(server.stdout.take().expect("it is piped"))
        .read_line(&mut line)
        .expect("it says where it waits");
    let port = line.split(';').next().and_then(|words| words.rsplit(':').next()).expect("a port");
    let _taken = UdpSocket::bind(("127.0.0.1", udp_port)).expect("the server has only checked it");
    let output = swiftwater(&format!("perf client 127.0.0.1 -p {port} -n 1")).output().expect("starts");
    let words = "or start `swiftwater perf server` with another --udp-port";
    assert!(said(&output).contains(words), "{}", said(&output));
    kill(Pid::from_raw(server.id() as i32), Signal::SIGINT).expect("it runs");
    server.wait().expect("it ends");
}

#[test]
fn a_program_that_is_missing_starts_no_daemon() {
    let place = format!("@sw-output-missing-{}", std::process::id());
    for (program, words) in
        [("no-such-program", "no folder in PATH has it"), ("./no/such", "there is no such file")]
    {
        let mut command = swiftwater(&format!("run -- {program}"));
        let output = command.env("SWIFTWATER_DAEMON", &place).output().expect("the command starts");
        assert_eq!(output.status.code(), Some(127), "{program}");
        assert!(said(&output).contains(words), "{}", said(&output));
    }
    let status = swiftwater(&format!("status --place {place}")).output().expect("the command starts");
    assert!(said(&status).contains("no daemon is running there"), "{}", said(&status));
}

#[test]
fn a_file_that_is_no_program_has_the_status_that_env_gives() {
    let daemon = Daemon::start("no-program");
    let output = daemon.run("/dev/null").output().expect("the command starts");
    assert_eq!(output.status.code(), Some(126));
    assert!(said(&output).contains("cannot run /dev/null: Permission denied"), "{}", said(&output));
}

#[test]
fn completions_offer_what_the_help_shows() {
    for shell in ["bash", "zsh", "fish"] {
        let output = swiftwater(&format!("completions {shell}")).output().expect("the command starts");
        let script = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(script.contains("doctor") && script.contains("autopush"), "{shell}");
        // The help of these commands begins so.
        for hidden in [
            "One end of a run",
            "manual pages",
            "swiftwater__subcmd__peer",
            "swiftwater__subcmd__man",
            "orphan",
            "detach",
        ] {
            assert!(!script.contains(hidden), "{shell}: {hidden}");
        }
    }
}

#[test]
fn completions_offer_the_names_that_an_option_takes() {
    let output = swiftwater("completions bash").output().expect("the command starts");
    let script = String::from_utf8_lossy(&output.stdout).into_owned();
    let names = ["tail-loss", "sctp-batch", "cookie-echo", "newreno", "agreed", "rpv2", "pipemod"];
    let missing: Vec<_> = names.into_iter().filter(|name| !script.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn a_daemon_is_stopped() {
    let mut daemon = Daemon::start("stop");
    let output = swiftwater(&format!("daemon stop --place {}", daemon.place)).output().expect("starts");
    assert!(output.status.success(), "{}", said(&output));
    let process = daemon.process.id();
    assert!(String::from_utf8_lossy(&output.stdout).contains(&format!("process {process}, has ended")));
    assert!(daemon.process.wait().is_ok());
}

#[test]
fn a_socket_of_somebody_else_is_left_alone() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
    let name = format!("sw-output-manager-{}", std::process::id());
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("a name");
    rustix::net::bind(&socket, &address).and_then(|()| rustix::net::listen(&socket, 4)).expect("it listens");
    // This process only listens and never answers, like a service manager before it starts the daemon.
    let output = swiftwater(&format!("daemon stop --place @{name}")).output().expect("the command starts");
    assert_eq!(output.status.code(), FAILED);
    assert!(said(&output).contains(&format!("process {}, which is not a daemon", std::process::id())));
}

#[test]
#[ignore = "needs root and setpriv: ./test --all"]
fn root_learns_whose_daemon_is_in_its_way() {
    let Some(setpriv) = swiftwater_tests::tools::program("setpriv") else { return };
    if !rustix::process::geteuid().is_root() {
        return swiftwater_tests::tools::skip("only root becomes another user");
    }
    let mut as_nobody = Command::new(setpriv);
    as_nobody.args(["--reuid=65534", "--regid=65534", "--clear-groups", SWIFTWATER]);
    let daemon = Daemon::start_with("stranger", as_nobody);
    let status = swiftwater(&format!("status --place {}", daemon.place)).output().expect("starts");
    let owner = format!("it is process {} of user 65534", daemon.process.id());
    assert!(
        said(&status).contains(&owner) && said(&status).contains("swiftwater daemon stop"),
        "{}",
        said(&status)
    );
    let stop = swiftwater(&format!("daemon stop --place {}", daemon.place)).output().expect("starts");
    assert!(stop.status.success(), "root ends the daemons of others: {}", said(&stop));
}

#[test]
#[ignore = "needs root, setpriv and user namespaces: ./test --all"]
fn an_unmapped_user_neither_asks_nor_ends_a_daemon_of_another_one() {
    let programs = ["setpriv", "unshare"].map(swiftwater_tests::tools::program);
    let [Some(setpriv), Some(unshare)] = programs else { return };
    if !rustix::process::geteuid().is_root() {
        return swiftwater_tests::tools::skip("only root becomes another user");
    }
    let as_user = |user: u32| {
        let mut command = Command::new(&setpriv);
        command.arg(format!("--reuid={user}")).arg(format!("--regid={user}")).arg("--clear-groups");
        command.current_dir("/");
        command
    };
    if !as_user(41_003).arg(&unshare).args(["--user", "true"]).status().is_ok_and(|status| status.success()) {
        return swiftwater_tests::tools::skip("no user namespaces for users here");
    }
    let mut daemon = as_user(41_002);
    daemon.arg(SWIFTWATER);
    let daemon = Daemon::start_with("unmapped", daemon);
    // The command sees both users as 65534, since its user namespace maps none.
    let asked = |arguments: &str| {
        let mut command = as_user(41_003);
        command.arg(&unshare).args(["--user", SWIFTWATER]).args(arguments.split(' '));
        command.args(["--place", &daemon.place]).output().expect("the command starts")
    };
    let (status, stop) = (asked("status"), asked("daemon stop"));
    assert!(
        said(&status).contains("of user 65534, and only programs and commands of that user trust it"),
        "{}",
        said(&status)
    );
    assert!(said(&stop).contains("only root and that user end it"), "{}", said(&stop));
}
