//! Tests of `swiftwater run`, and of the daemon that it starts and finds.
#![allow(missing_docs)]

mod daemon;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use daemon::{Daemon, SWIFTWATER, alone, compiled, preload};
use swiftwater_tests::programs::{self, library};
use swiftwater_tests::{tools, wait};

fn assert_success(what: &str, output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {}: {said}", output.status);
}

#[test]
fn a_program_says_which_udp_port_its_peer_has() {
    let (server_daemon, client_daemon) =
        (Daemon::start("encapsulation-server"), Daemon::start("encapsulation-client"));
    let program = compiled("encapsulation", "encapsulation");
    let mut server = server_daemon.run(&program).arg("serve").spawn().expect("the command starts");
    server_daemon.await_listener(6400);
    let client = client_daemon.run(&program).args(["client", &server_daemon.udp_port().to_string()]).output();
    assert_success("client", &client.expect("the command starts"));
    assert!(server.wait().expect("it ends").success());
}

#[test]
fn a_file_that_cannot_be_executed_starts_no_daemon() {
    let place = format!("@swiftwater-test-not-executable-{}", std::process::id());
    for path in [concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"), env!("CARGO_MANIFEST_DIR")] {
        let output = Command::new(SWIFTWATER)
            .args(["run", "--", path])
            .env("SWIFTWATER_DAEMON", &place)
            .output()
            .expect("the command starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(126), "{said}");
        assert!(said.contains("`ls -l` shows whether it is an executable file"), "{said}");
    }
    let status = Command::new(SWIFTWATER).args(["status"]).env("SWIFTWATER_DAEMON", &place).output();
    assert!(!status.expect("the command starts").status.success(), "there is no daemon");
}

/// A program may wait for all of its children, as kamailio does at its end.
#[test]
#[ignore = "needs iproute2, python3 and namespaces without privileges: ./test --all"]
fn a_daemon_that_is_started_is_no_child_of_the_program() {
    preload();
    let asks = "import os\ntry:\n  os.waitpid(-1, os.WNOHANG)\nexcept ChildProcessError:\n  print('none')";
    let output = alone(Path::new(SWIFTWATER)).args(["run", "--", "python3", "-c", asks]).output();
    let output = output.expect("the command starts");
    assert_success("python3", &output);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "none\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains("SCTP in UDP"), "it has started a daemon");
}

/// A shell that waits for the end of a pipe would wait for the daemon, and a folder of it could not be unmounted.
#[test]
#[ignore = "needs iproute2, python3 and namespaces without privileges: ./test --all"]
fn a_daemon_that_is_started_keeps_nothing_of_its_caller() {
    preload();
    let looks = "import os\nfor p in filter(str.isdigit, os.listdir('/proc')):\n  \
        if b'\\0daemon\\0' in open(f'/proc/{p}/cmdline', 'rb').read():\n    \
        files = [os.readlink(f'/proc/{p}/fd/{n}') for n in os.listdir(f'/proc/{p}/fd')]\n    \
        print(os.readlink(f'/proc/{p}/cwd'), any(f.endswith('Cargo.toml') for f in files))";
    let mut command = alone(Path::new("sh"));
    command.args(["-c", "exec 9<Cargo.toml; exec \"$0\" run -- python3 -c \"$1\"", SWIFTWATER, looks]);
    let output = command.current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("the command starts");
    assert_success("python3", &output);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "/ False\n");
}

#[test]
fn run_says_which_daemon_it_joins() {
    let daemon = Daemon::start("says");
    let output = daemon.run("true").output().expect("the command starts");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let output = Command::new(SWIFTWATER)
        .args(["run", "--", "true"])
        .env("SWIFTWATER_DAEMON", &daemon.place)
        .output()
        .expect("the command starts");
    let said = String::from_utf8_lossy(&output.stderr);
    let expected = format!("daemon {} at {}: SCTP in UDP, port ", daemon.process.id(), daemon.place);
    assert!(output.status.success() && said.contains(&expected), "{said}");
}

#[test]
fn a_socket_in_the_present_folder_is_found_from_another() {
    let folder = std::env::temp_dir().join(format!("swiftwater-run-folder-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/preload/tests/sockets/echo.c");
    let program = programs::compiled(&source, "run-folder", &[]);
    let command = |words: &[&str]| {
        let mut command = Command::new(SWIFTWATER);
        command.args(words).current_dir(&folder).env("SWIFTWATER_DAEMON", "./socket");
        command
    };
    let mut daemon =
        command(&["daemon", "--udp-port", "0", "--place", "./socket"]).spawn().expect("it starts");
    wait::until("the daemon makes its socket", || folder.join("socket").exists());
    preload();
    let run = command(&["run", "--", "sh", "-c", "cd / && exec \"$0\""]).arg(&program).output();
    let stop = command(&["daemon", "stop"]).output();
    let _ = (daemon.kill(), daemon.wait(), fs::remove_dir_all(&folder));
    assert_success("a program in /", &run.expect("the command starts"));
    assert_success("daemon stop", &stop.expect("the command starts"));
}

/// The dynamic linker splits LD_PRELOAD at spaces and colons, and runs a program without a library that it cannot load.
#[test]
fn a_shim_that_cannot_be_preloaded_is_refused() {
    let shim = programs::shim();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("shim");
    for (name, garbage, reason) in [
        ("of mine", false, "no file with a space or a colon in its path"),
        ("co:lon", false, "no file with a space or a colon in its path"),
        ("garbage", true, "it is no shared library"),
    ] {
        let folder = folder.join(name);
        // An earlier run may have left it.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        let command = folder.join("swiftwater");
        fs::hard_link(SWIFTWATER, &command).expect("a link in the same file system");
        let its_shim = folder.join("libswiftwater_preload.so");
        match garbage {
            true => fs::write(&its_shim, "garbage").expect("room"),
            false => drop(fs::copy(shim, &its_shim).expect("room")),
        }
        let run =
            Command::new(&command).args(["run", "-q", "--", "echo", "ran"]).output().expect("it starts");
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.code() == Some(1) && run.stdout.is_empty(), "{name}: the program ran: {said}");
        assert!(said.contains("cannot be preloaded") && said.contains(reason), "{name}: {said}");
        let doctor = Command::new(&command).args(["doctor", "--json"]).output().expect("it starts");
        let checks: Vec<serde_json::Value> = serde_json::from_slice(&doctor.stdout).expect("JSON");
        let check = checks.iter().find(|check| check["check"] == "shim").expect("it looks for the shim");
        assert!(check["state"] == "fails" && check["advice"].to_string().contains(reason), "{check}");
    }
}

/// AddressSanitizer ends a program in which another library comes first, as the shim does, unless an option permits that.
#[test]
fn a_program_with_address_sanitizer_starts() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/preload/tests/sockets/echo.c");
    let options = ["-g", "-fsanitize=address", "-U_FORTIFY_SOURCE"];
    let program = programs::compiled(&source, "run-sanitized", &options);
    let daemon = Daemon::start("run-sanitized");
    for own in [None, Some("exitcode=3")] {
        let mut run = daemon.run(&program);
        run.env_remove("ASAN_OPTIONS").envs(own.map(|own| ("ASAN_OPTIONS", own)));
        assert_success("sanitized", &run.output().expect("the command starts"));
    }
}

#[test]
fn a_second_daemon_at_the_same_place_is_refused() {
    let daemon = Daemon::start("second");
    let second = Command::new(SWIFTWATER)
        .args(["daemon", "--udp-port", "0", "--place", &daemon.place])
        .output()
        .expect("the command starts");
    assert_eq!(second.status.code(), Some(1));
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(said.contains("a daemon already listens at"), "{said}");
    let stop = format!("end it with `swiftwater daemon stop --place {}`", daemon.place);
    assert!(said.contains(&stop), "{said}");
}

/// A process may have the number of the maker by then.
#[test]
#[ignore = "needs python3: ./test --all"]
fn a_socket_whose_maker_has_ended_is_nobody_s_to_stop() {
    if tools::program("python3").is_none() {
        return;
    }
    let place = format!("@swiftwater-test-orphan-{}", std::process::id());
    let script = "import os, socket, sys\n\
                  listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n\
                  listener.bind('\\0' + sys.argv[1][1:])\n\
                  listener.listen()\n\
                  if os.fork(): os._exit(0)\n\
                  sys.stdin.read()";
    let mut maker = Command::new("python3")
        .args(["-c", script, &place])
        .stdin(Stdio::piped())
        .spawn()
        .expect("python3 starts");
    let holds = maker.stdin.take();
    assert!(maker.wait().expect("it ends").success());
    let stop = Command::new(SWIFTWATER).args(["daemon", "stop", "--place", &place]).output();
    let stop = stop.expect("the command starts");
    drop(holds);
    let said = String::from_utf8_lossy(&stop.stderr);
    assert_eq!(stop.status.code(), Some(1), "{said}");
    assert!(said.contains("has ended, and another one holds it"), "{said}");
}

#[test]
fn a_daemon_listens_where_the_environment_says() {
    let place = format!("@swiftwater-test-environment-{}", std::process::id());
    let daemon = Command::new(SWIFTWATER)
        .args(["daemon", "--udp-port", "0", "--idle-exit", "0.05"])
        .env("SWIFTWATER_DAEMON", &place)
        .output()
        .expect("the command starts");
    assert_success("daemon", &daemon);
    let said = String::from_utf8_lossy(&daemon.stderr);
    assert!(said.contains(&format!("at {place}: ")), "{said}");
}

#[test]
fn a_daemon_that_nobody_needs_ends() {
    let place = format!("@swiftwater-test-idle-{}", std::process::id());
    let daemon = Command::new(SWIFTWATER)
        .args(["daemon", "--udp-port", "0", "--place", &place, "--idle-exit", "0.05"])
        .output()
        .expect("the command starts");
    assert_success("daemon", &daemon);
}

#[test]
fn bench_measures_programs_under_the_shim_beside_a_bare_relay() {
    preload();
    let series = "sctp-sockets,relay,sctp-sockets-rr,relay-rr";
    let output = Command::new(SWIFTWATER)
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .args(["bench", "--series", series, "--sizes", "64,64k", "--cpus", "1", "--seconds", "0.05"])
        .args(["--repeat", "1", "--json"])
        .output()
        .expect("the command starts");
    assert_success("bench", &output);
    let json = String::from_utf8_lossy(&output.stdout);
    for series in series.split(',') {
        let rows = if series.ends_with("-rr") { 1 } else { 2 };
        let name = format!("\"series\": \"{series}\"");
        assert_eq!(json.matches(&name).count(), rows, "{name} in {json}");
    }
}

#[test]
#[ignore = "needs iproute2 and namespaces without privileges: ./test --all"]
fn a_daemon_that_was_started_for_a_program_is_started_again() {
    preload();
    let mut run = alone(Path::new(SWIFTWATER));
    run.args(["run", "--quiet", "--"]).arg(compiled("again", "again"));
    assert_success("again", &run.output().expect("unshare starts"));
}

/// Compiles a program linked with the C library, which starts a daemon.
fn linked(test: &str) -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/capi");
    let (include, folder) = (package.join("include"), library().to_str().expect("text"));
    let words = [
        &format!("-I{}", include.display()),
        &format!("-L{folder}"),
        "-lswiftwater",
        &format!("-Wl,-rpath,{folder}"),
    ];
    programs::compiled(&package.join("tests/library/on_demand.c"), &format!("library-{test}"), &words)
}

#[test]
#[ignore = "needs iproute2 and namespaces without privileges: ./test --all"]
fn the_first_socket_starts_a_daemon() {
    let program = linked("on-demand");
    assert_success("on_demand.c", &alone(&program).output().expect("unshare starts"));
}

#[test]
#[ignore = "needs iproute2 and namespaces without privileges: ./test --all"]
fn without_the_command_there_is_no_daemon() {
    let program = linked("no-command");
    let folder = programs::scratch().join("library-alone");
    fs::create_dir_all(&folder).expect("a folder of our own");
    fs::copy(library().join("libswiftwater.so.0"), folder.join("libswiftwater.so.0")).expect("it was built");
    let output = alone(&program).env("LD_LIBRARY_PATH", &folder).output().expect("unshare starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("Protocol not supported"), "{said}");
}
