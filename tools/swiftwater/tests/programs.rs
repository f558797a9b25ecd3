//! Tests of unmodified programs with both ends under `swiftwater run`, with a daemon for each test. Programs outside Debian's
//! packages are in `tests/programs`.
#![allow(missing_docs)]

mod daemon;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;

use daemon::Daemon;
use rustix::process::{Pid, Signal, kill_process};
use swiftwater_tests::tools;

/// Returns a command under `swiftwater run` that ends with the test, and after 30 s at most.
fn run(daemon: &Daemon, program: &[&str]) -> Command {
    let mut command = daemon.run("timeout");
    command.args(["--kill-after", "1", "30"]).args(program);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Returns whether all of these programs are installed; otherwise reports the test as skipped.
fn there(programs: &[&str]) -> bool {
    programs.iter().all(|name| tools::program(name).is_some())
}

/// Returns the path of a file in `tests/programs`.
fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
    path.to_string_lossy().into_owned()
}

/// A server under `swiftwater run`, which ends with the test.
struct Server(Option<Child>);

impl Server {
    /// Starts a server that listens on this port.
    fn start(daemon: &Daemon, program: &[&str], port: u16) -> Server {
        let server = Server(Some(run(daemon, program).spawn().expect("the command starts")));
        daemon.await_listener(port);
        server
    }

    /// Waits for its end.
    fn finish(mut self) -> Output {
        let server = self.0.take().expect("it was started");
        server.wait_with_output().expect("it ends")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(server) = &mut self.0 {
            // `timeout` passes the signal on to the program. It may have ended already.
            let _ = kill_process(Pid::from_child(server), Signal::TERM);
            let _ = server.wait();
        }
    }
}

/// Sends `text` through a client and reads as much. Its input ends only then: SCTP cannot end one direction alone, so data on its
/// way back would be lost.
fn talk(mut client: Command, text: &str) -> Output {
    let mut client = client.spawn().expect("the command starts");
    let mut input = client.stdin.take().expect("it is piped");
    // A client that was refused reads nothing.
    let _ = input.write_all(text.as_bytes());
    let mut answer = Vec::new();
    let output = client.stdout.as_mut().expect("it is piped");
    output.take(text.len() as u64).read_to_end(&mut answer).expect("a pipe");
    drop(input);
    let rest = client.wait_with_output().expect("it ends");
    Output { stdout: [answer, rest.stdout].concat(), ..rest }
}

fn assert_success(what: &str, output: &Output) {
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {}: {said}", output.status);
}

fn assert_echoed(output: &Output, text: &str) {
    assert_success("the client", output);
    assert_eq!(String::from_utf8_lossy(&output.stdout), text);
}

#[test]
#[ignore = "needs socat: ./test --all"]
fn socat_serves_each_client_in_a_child() {
    if !there(&["socat"]) {
        return;
    }
    let daemon = Daemon::start("socat");
    let _server = Server::start(&daemon, &["socat", "SCTP-LISTEN:6001,reuseaddr,fork", "EXEC:cat"], 6001);
    for text in ["hello\n", "again\n"] {
        let client = run(&daemon, &["socat", "-", "SCTP:127.0.0.1:6001"]);
        assert_echoed(&talk(client, text), text);
    }
}

#[test]
#[ignore = "needs socat: ./test --all"]
fn a_service_writes_to_its_connection_as_standard_output() {
    if !there(&["socat"]) {
        return;
    }
    let daemon = Daemon::start("service");
    let service = ["socat", "SCTP-LISTEN:6022,reuseaddr,fork", "EXEC:date -u -d @0,nofork"];
    let _server = Server::start(&daemon, &service, 6022);
    let client = run(&daemon, &["socat", "-u", "SCTP:127.0.0.1:6022", "-"]).output().expect("it starts");
    assert_success("the client", &client);
    let said = String::from_utf8_lossy(&client.stdout);
    assert!(said.contains("1970"), "{said}");
}

/// Builds `tests/programs/SOURCE` with a compiler that takes `-o`.
fn built(name: &str, compiler: &[&str], source: &str) -> String {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut command = Command::new(compiler[0]);
    command.args(&compiler[1..]).arg("-o").arg(&program).arg(file(source)).env("CGO_ENABLED", "0");
    assert_success(compiler[0], &command.output().expect("the compiler starts"));
    program.to_string_lossy().into_owned()
}

/// The service as programs that the shim cannot be loaded into: static ones, one of musl and one in Go. They are built once
/// for all tests, since a program cannot run while a compiler writes it.
static SERVICES_WITHOUT_THE_SHIM: LazyLock<[String; 4]> = LazyLock::new(|| {
    [
        built("service-static", &["cc", "-O1", "-static"], "service.c"),
        built("service-musl", &["musl-gcc", "-O1"], "service.c"),
        built("service-musl-static", &["musl-gcc", "-O1", "-static"], "service.c"),
        built("service-go", &["go", "build"], "service.go"),
    ]
});

/// Each has the connection itself as its standard input and output (`nofork`), or one that socat copies from and to.
#[test]
#[ignore = "needs socat, Go and musl: ./test --all"]
fn services_read_what_clients_send_with_and_without_the_shim() {
    if !there(&["socat", "bash", "go", "musl-gcc"]) {
        return;
    }
    let daemon = Daemon::start("services");
    let mut commands = SERVICES_WITHOUT_THE_SHIM.to_vec();
    let script = format!("bash {}", file("service.sh"));
    commands.extend([script, format!("sh {}", file("service.sh"))]);
    for (port, (command, option)) in
        (6030..).zip(commands.iter().flat_map(|command| [(command, ",nofork"), (command, "")]))
    {
        let (listen, execute) =
            (format!("SCTP-LISTEN:{port},reuseaddr,fork"), format!("EXEC:{command}{option}"));
        let _server = Server::start(&daemon, &["socat", &listen, &execute], port);
        for text in ["hello\nworld\n", "again\n"] {
            let client = run(&daemon, &["socat", "-", &format!("SCTP:127.0.0.1:{port}")]);
            assert_echoed(&talk(client, text), text);
        }
    }
}

/// The warning comes when the script executes the program, once for each of them, and not with `--quiet`. A program that
/// names SCTP nowhere gets none.
#[test]
#[ignore = "needs Go and musl: ./test --all"]
fn scripts_are_told_of_programs_that_the_shim_cannot_help() {
    if !there(&["go", "musl-gcc"]) {
        return;
    }
    daemon::preload();
    let daemon = Daemon::start("warnings");
    let silent = &*SERVICES_WITHOUT_THE_SHIM;
    let naming: Vec<String> = silent.iter().map(|program| format!("{program}-sctp")).collect();
    for (program, copy) in silent.iter().zip(&naming) {
        // Bytes behind the end of an ELF file change nothing. A shell writes them: were the file open here, a process that
        // another test starts at this moment would inherit it, and the kernel executes no file that is open for writing.
        let copied = Command::new("sh")
            .args(["-c", "cp \"$0\" \"$1\" && printf SCTP >> \"$1\"", program, copy])
            .output();
        assert_success("sh", &copied.expect("a shell"));
    }
    let lines: Vec<String> =
        silent[..3].iter().chain(&naming).map(|program| format!("{program}\n")).collect();
    let script = Path::new(env!("CARGO_TARGET_TMPDIR")).join("warnings.sh");
    fs::write(&script, lines.concat().repeat(2)).expect("a folder of our own");
    let said_with = |options: &[&str]| {
        let mut run = Command::new(daemon::SWIFTWATER);
        run.arg("run").args(options).args(["--", "sh"]).arg(&script).env("SWIFTWATER_DAEMON", &daemon.place);
        let output = run.stdin(Stdio::null()).output().expect("the command starts");
        assert_success("the script", &output);
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = said_with(&[]);
    let (alone, musl) = ("is linked statically", "is linked with musl");
    let reasons = [alone, musl, alone, alone];
    for (program, reason) in naming.iter().zip(reasons) {
        assert_eq!(said.matches(&format!("swiftwater: {program} {reason}")).count(), 1, "{said}");
    }
    // The first line names the daemon.
    assert_eq!(said.lines().count(), 1 + naming.len(), "{said}");
    assert_eq!(said_with(&["--quiet"]), "");
}

/// Returns a command for a program whose TCP sockets are SCTP sockets.
fn run_tcp_as_sctp(daemon: &Daemon, program: &[&str]) -> Command {
    daemon::preload();
    let mut command = Command::new(daemon::SWIFTWATER);
    command
        .args(["run", "--quiet", "--tcp-as-sctp", "--", "timeout", "--kill-after", "1", "30"])
        .args(program)
        .env("SWIFTWATER_DAEMON", &daemon.place)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// These programs wait for edges of `epoll`, and count what there is to read.
#[test]
#[ignore = "needs nginx, haproxy and curl: ./test --all"]
fn proxies_of_tcp_pass_on_files_over_sctp() {
    if !there(&["nginx", "haproxy", "curl"]) {
        return;
    }
    let folder = std::env::temp_dir().join(format!("swiftwater-nginx-{}", std::process::id()));
    let content: Vec<u8> = (0..3_000_000_u32).map(|n| (n ^ (n >> 8)) as u8).collect();
    std::fs::create_dir_all(folder.join("files")).expect("our own folder");
    std::fs::write(folder.join("files/file"), &content).expect("our own folder");
    let daemon = Daemon::start("proxies");
    let start = |program: &[&str], port| {
        let server = Server(Some(run_tcp_as_sctp(&daemon, program).spawn().expect("the command starts")));
        daemon.await_listener(port);
        server
    };
    let prefix = folder.to_str().expect("text");
    let nginx = start(&["nginx", "-p", prefix, "-c", &file("nginx.conf"), "-e", "error.log"], 6025);
    let haproxy = start(&["haproxy", "-f", &file("haproxy.cfg")], 6026);
    for port in [6024, 6025, 6026] {
        let url = format!("http://127.0.0.1:{port}/file");
        for _ in 0..4 {
            let got = talk(run_tcp_as_sctp(&daemon, &["curl", "-sS", "--max-time", "20", &url]), "");
            let said = String::from_utf8_lossy(&got.stderr);
            assert!(got.stdout == content, "{port}: {} bytes: {said}", got.stdout.len());
        }
    }
    drop((haproxy, nginx));
    let log = std::fs::read_to_string(folder.join("error.log")).expect("a log");
    let bad: Vec<&str> = log
        .lines()
        .filter(|line| ["[alert]", "[error]", "[crit]", "[emerg]"].iter().any(|level| line.contains(level)))
        .collect();
    assert!(bad.is_empty(), "{bad:#?}");
    std::fs::remove_dir_all(folder).expect("our own folder");
}

#[test]
#[ignore = "needs socat: ./test --all"]
fn programs_of_tcp_speak_sctp_if_they_are_told_to() {
    if !there(&["socat"]) {
        return;
    }
    let daemon = Daemon::start("tcp");
    let run = |program: &[&str]| run_tcp_as_sctp(&daemon, program);
    let server = run(&["socat", "TCP-LISTEN:6023,reuseaddr,fork,nodelay", "EXEC:cat"]).spawn();
    let _server = Server(Some(server.expect("the command starts")));
    // The daemon knows the program as an SCTP listener.
    daemon.await_listener(6023);
    assert_echoed(&talk(run(&["socat", "-", "TCP:127.0.0.1:6023,nodelay"]), "hello\n"), "hello\n");
}

#[test]
#[ignore = "needs ncat: ./test --all"]
fn ncat_hands_its_socket_to_a_program() {
    if !there(&["ncat"]) {
        return;
    }
    let daemon = Daemon::start("ncat");
    let server = Server::start(&daemon, &["ncat", "--sctp", "-l", "6002", "-e", "/bin/cat"], 6002);
    assert_echoed(&talk(run(&daemon, &["ncat", "--sctp", "127.0.0.1", "6002"]), "hello\n"), "hello\n");
    assert_success("the server", &server.finish());
    let refused = talk(run(&daemon, &["ncat", "--sctp", "127.0.0.1", "6002"]), "hello\n");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("Connection refused"), "{refused:?}");
}

#[test]
#[ignore = "needs iperf3: ./test --all"]
fn iperf3_sends_blocks_of_all_sizes() {
    if !there(&["iperf3"]) {
        return;
    }
    let daemon = Daemon::start("iperf3");
    for options in ["-l 64", "-l 1400 --nstreams 4", "-l 65536", "-l 1M"] {
        let mut server = run(&daemon, &["iperf3", "-s", "-1", "--forceflush", "-p", "5299"]);
        let mut server = server.spawn().expect("the command starts");
        // The program listens on TCP first; its SCTP socket comes later.
        wait_for(server.stdout.as_mut().expect("it is piped"), "listening on");
        let mut client =
            run(&daemon, &["iperf3", "-c", "127.0.0.1", "-p", "5299", "--sctp", "-t", "1", "--json"]);
        let client = client.args(options.split(' ')).output().expect("it ends");
        let report = String::from_utf8_lossy(&client.stdout);
        assert!(client.status.success(), "{options}: {report}");
        let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
        let received = report["end"]["sum_received"]["bytes"].as_f64().expect("a number");
        assert!(received > 0.0, "{options}: {report}");
        server.wait().expect("it ends");
    }
}

/// Reads lines until one contains `text`.
fn wait_for(output: impl Read, text: &str) {
    let mut lines = BufReader::new(output).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.to_lowercase().contains(text)), "it ended");
}

#[test]
#[ignore = "needs lksctp-tools: ./test --all"]
fn sctp_test_sends_to_a_one_to_many_socket() {
    if !there(&["sctp_test", "stdbuf"]) {
        return;
    }
    let daemon = Daemon::start("sctp_test");
    let server = ["stdbuf", "-oL", "sctp_test", "-H", "127.0.0.1", "-P", "6003", "-l"];
    let mut server = Server::start(&daemon, &server, 6003);
    let options = ["-H", "127.0.0.1", "-P", "6004", "-h", "127.0.0.1", "-p", "6003", "-s", "-x", "2"];
    let client = run(&daemon, &["sctp_test"]).args(options).output().expect("it ends");
    assert_success("the client", &client);
    wait_for(
        server.0.as_mut().and_then(|server| server.stdout.take()).expect("it is piped"),
        "shutdown_complete",
    );
}

#[test]
#[ignore = "needs lksctp-tools: ./test --all"]
fn sctp_darn_sends_what_is_typed() {
    if !there(&["sctp_darn", "stdbuf"]) {
        return;
    }
    let daemon = Daemon::start("sctp_darn");
    let server = ["stdbuf", "-oL", "sctp_darn", "-H", "127.0.0.1", "-P", "6013", "-l"];
    let mut server = Server::start(&daemon, &server, 6013);
    let client = ["sctp_darn", "-H", "127.0.0.1", "-P", "6014", "-h", "127.0.0.1", "-p", "6013", "-s"];
    let mut client = run(&daemon, &client).spawn().expect("the command starts");
    let mut input = client.stdin.take().expect("it is piped");
    input.write_all(b"hello there\n").expect("it reads");
    let said = server.0.as_mut().and_then(|server| server.stdout.take()).expect("it is piped");
    wait_for(said, "hello there");
    drop(input);
    client.wait().expect("it ends");
}

#[test]
#[ignore = "needs a JDK: ./test --all"]
fn java_uses_both_styles_and_a_selector() {
    if !there(&["java", "javac"]) {
        return;
    }
    let daemon = Daemon::start("java");
    let classes = env!("CARGO_TARGET_TMPDIR");
    let compiler = Command::new("javac").args(["-d", classes]).arg(file("SctpPrograms.java")).output();
    assert_success("javac", &compiler.expect("it starts"));
    assert_success(
        "java",
        &run(&daemon, &["java", "-cp", classes, "SctpPrograms"]).output().expect("it starts"),
    );
}

#[test]
#[ignore = "needs Python: ./test --all"]
fn python_has_sockets_of_its_own() {
    if !there(&["python3"]) {
        return;
    }
    let daemon = Daemon::start("python");
    assert_success(
        "python",
        &run(&daemon, &["python3", &file("python_sockets.py")]).output().expect("it starts"),
    );
}

#[test]
#[ignore = "needs Python: ./test --all"]
fn asyncio_serves_a_hundred_clients() {
    if !there(&["python3"]) {
        return;
    }
    let daemon = Daemon::start("asyncio");
    let clients = run(&daemon, &["python3", &file("asyncio_clients.py")]).output();
    assert_success("asyncio", &clients.expect("it starts"));
}

#[test]
#[ignore = "needs pysctp: ./test --all"]
fn pysctp_brings_its_own_library() {
    let Some(python) = tools::fetched("python/bin/python") else { return };
    let daemon = Daemon::start("pysctp");
    let program = [&*python.to_string_lossy(), &file("pysctp_sockets.py")];
    assert_success("pysctp", &run(&daemon, &program).output().expect("it starts"));
}

#[test]
#[ignore = "needs osmo-stp: ./test --all"]
fn osmo_stp_takes_a_signalling_peer() {
    if !there(&["osmo-stp", "python3", "socat"]) {
        return;
    }
    let daemon = Daemon::start("osmo-stp");
    let _server = Server::start(&daemon, &["osmo-stp", "-c", &file("osmo-stp.cfg")], 2905);
    assert_success("asp_up", &run(&daemon, &["python3", &file("asp_up.py")]).output().expect("it starts"));
    // The server accepts data that is no M3UA, and does not answer. A child of socat would end with a signal, which may interrupt
    // connect.
    let text = format!("OPEN:{}", file("osmo-stp.cfg"));
    let socat = ["socat", "-u", &text, "SCTP:127.0.0.1:2905"];
    assert_success("socat", &run(&daemon, &socat).output().expect("it starts"));
}

#[test]
#[ignore = "needs sipp: ./test --all"]
fn sipp_makes_calls() {
    if !there(&["sipp"]) {
        return;
    }
    let daemon = Daemon::start("sipp");
    let options = "-t s1 -i 127.0.0.1 -m 2 -nostdin";
    let server = format!("sipp -sn uas -p 5070 {options}");
    let server = Server::start(&daemon, &server.split(' ').collect::<Vec<_>>(), 5070);
    let client = format!("sipp -sn uac -p 5071 -r 20 {options} 127.0.0.1:5070");
    let client = run(&daemon, &client.split(' ').collect::<Vec<_>>()).output().expect("it starts");
    assert_success("the client", &client);
    assert_success("the server", &server.finish());
}

#[test]
#[ignore = "needs netperfmeter: ./test --all"]
fn netperfmeter_measures_a_flow() {
    if !there(&["netperfmeter"]) {
        return;
    }
    let daemon = Daemon::start("netperfmeter");
    let _server = Server::start(&daemon, &["netperfmeter", "6007", "-control-over-tcp"], 6007);
    let flow = "const0:const1400:const0:const0:onoff=0,+2";
    let client = ["netperfmeter", "127.0.0.1:6007", "-control-over-tcp", "-runtime=1", "-sctp", flow];
    let client = run(&daemon, &client).output().expect("it starts");
    assert_success("the client", &client);
    let said = String::from_utf8_lossy(&client.stdout);
    assert!(transmitted(&said) > 0, "{said}");
}

/// Starts a freeDiameter daemon in its own folder, with the certificate that it requires.
fn diameter(daemon: &Daemon, folder: &Path, [name, port]: [&str; 2], [peer, peer_port]: [&str; 2]) -> Server {
    let template = fs::read_to_string(file("freediameter.conf")).expect("a file of ours");
    let words = [("SELF_PORT", port), ("PEER_PORT", peer_port), ("SELF", name), ("PEER", peer)];
    let config = words.into_iter().fold(template, |text, (word, value)| text.replace(word, value));
    fs::create_dir_all(folder).expect("a folder of our own");
    fs::write(folder.join(name), config).expect("a folder of our own");
    let certificate = format!(
        "req -x509 -newkey rsa:2048 -nodes -subj /CN={name}.local -keyout {name}.key -out {name}.pem"
    );
    let made = Command::new("openssl").current_dir(folder).args(certificate.split(' ')).output();
    assert_success("openssl", &made.expect("it starts"));
    let mut command = run(daemon, &["stdbuf", "-oL", "freeDiameterd", "-c", name]);
    Server(Some(command.current_dir(folder).spawn().expect("the command starts")))
}

#[test]
#[ignore = "needs freediameter: ./test --all"]
fn two_diameter_daemons_meet_and_end_when_they_are_told() {
    if !there(&["freeDiameterd", "openssl", "stdbuf"]) {
        return;
    }
    let daemon = Daemon::start("diameter");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("diameter");
    let (one, two) = (["one", "3868"], ["two", "3870"]);
    let mut servers = [diameter(&daemon, &folder, one, two), diameter(&daemon, &folder, two, one)];
    let outputs = servers.each_mut().map(|server| {
        let mut output = server.0.as_mut().and_then(|server| server.stdout.take()).expect("it is piped");
        wait_for(&mut output, "-> 'state_open'");
        output
    });
    for (server, output) in servers.into_iter().zip(outputs) {
        kill_process(Pid::from_child(server.0.as_ref().expect("it was started")), Signal::TERM)
            .expect("it is there");
        // Its remaining output must be read.
        let reader = std::thread::spawn(move || std::io::read_to_string(output));
        // `timeout` returns the daemon's status, and another number if it had to kill the daemon.
        assert_success("freeDiameterd", &server.finish());
        reader.join().expect("it ends").expect("a pipe");
    }
}

/// Returns the bytes that netperfmeter reports as sent over all flows.
fn transmitted(said: &str) -> u64 {
    let mut lines = said.lines().skip_while(|line| !line.contains("Transmission"));
    let line = lines.find(|line| line.contains("Bytes:")).unwrap_or_default();
    line.split_whitespace().find_map(|word| word.parse().ok()).unwrap_or(0)
}
