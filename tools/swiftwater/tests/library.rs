//! Tests of C programs that link with the library, without preloading and `swiftwater run`. The programs of `tests/library/*.c`
//! contain the checks; those of `tests/sockets` behave as they do under `swiftwater run`.
#![allow(missing_docs)]

#[allow(dead_code, reason = "nothing is preloaded here")]
mod daemon;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use daemon::{Daemon, alone, library};

const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");
const LIBRARY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/capi");

/// Compiles a program of a test with these compiler arguments.
fn compiled(source: &Path, test: &str, words: &[&str]) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("library-{test}"));
    let compiler = Command::new("cc")
        .args(["-O1", "-Wall", "-Wextra", "-Werror", "-D_FORTIFY_SOURCE=2", "-pthread", "-I"])
        .arg(Path::new(LIBRARY).join("include"))
        .args(["-Wno-missing-field-initializers", "-Wno-unused-result", "-o"])
        .args([&program, source])
        .args(words)
        .output()
        .expect("a C compiler");
    assert!(compiler.status.success(), "{}", String::from_utf8_lossy(&compiler.stderr));
    program
}

/// Compiles a program linked with the library.
fn linked(source: &Path, test: &str) -> PathBuf {
    let folder = library().to_str().expect("text");
    compiled(source, test, &[&format!("-L{folder}"), "-lswiftwater", &format!("-Wl,-rpath,{folder}")])
}

fn assert_success(what: &str, output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {}: {said}", output.status);
}

fn run(source: &str, test: &str) {
    run_linked(source, test, &linked(&Path::new(TESTS).join(source), test));
}

fn run_linked(source: &str, test: &str, program: &Path) {
    let daemon = Daemon::start(&format!("library-{test}"));
    let output = Command::new(program).env("SWIFTWATER_DAEMON", &daemon.place).output().expect("it starts");
    assert_success(source, &output);
}

#[test]
fn an_echo_takes_ten_lines() {
    let daemon = Daemon::start("library-ten-lines");
    let example =
        |name: &str| linked(&Path::new(LIBRARY).join("examples").join(name).with_extension("c"), name);
    let start = |name: &str| {
        let mut command = Command::new(example(name));
        command.env("SWIFTWATER_DAEMON", &daemon.place);
        command
    };
    let mut server = start("echo-server").stdout(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    BufReader::new(server.stdout.as_mut().expect("it is piped")).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    for _ in 0..2 {
        let client = start("echo-client").output().expect("it starts");
        assert_success("echo-client", &client);
        assert_eq!(String::from_utf8_lossy(&client.stdout), "hello\n");
    }
    server.kill().expect("it runs");
    server.wait().expect("it was killed");
}

#[test]
fn the_functions_of_the_rfc_are_there() {
    run("library/functions.c", "functions");
}

#[test]
fn descriptors_are_the_kernels_in_linked_programs() {
    for name in ["echo", "nonblocking", "partial", "ancillary", "sharing", "errors", "many"] {
        run(&format!("sockets/{name}.c"), name);
    }
}

#[test]
fn they_are_there_for_one_to_many_sockets() {
    run("library/many.c", "many");
}

/// Compiles a program that contains the whole library.
fn carrying(source: &str, test: &str) -> PathBuf {
    let archive = library().join("libswiftwater.a");
    let words = ["-Wl,--whole-archive", archive.to_str().expect("text"), "-Wl,--no-whole-archive"];
    compiled(&Path::new(TESTS).join(source), test, &words)
}

#[test]
fn a_program_may_carry_the_library_in_itself() {
    let source = "library/functions.c";
    run_linked(source, "static", &carrying(source, "static"));
}

/// Such a program has two shims. The one that comes first in the link order serves it: the preloaded one before a shared library,
/// the program's own before the preloaded one.
#[test]
fn linked_programs_run_under_the_preloaded_shim_too() {
    let daemon = Daemon::start("library-two-shims");
    let run = |source: &str, program: &Path| {
        assert_success(source, &daemon.run(program).output().expect("the command starts"));
    };
    for source in ["library/functions.c", "library/many.c"] {
        let name = source.replace(['/', '.'], "-");
        run(source, &linked(&Path::new(TESTS).join(source), &format!("both-{name}")));
        run(source, &carrying(source, &format!("both-static-{name}")));
    }
    for name in [
        "echo",
        "nonblocking",
        "partial",
        "ancillary",
        "sharing",
        "errors",
        "many",
        "bypass",
        "cancel",
        "full",
    ] {
        let source = format!("sockets/{name}.c");
        run(&source, &linked(&Path::new(TESTS).join(&source), &format!("both-{name}")));
        run(&source, &carrying(&source, &format!("both-static-{name}")));
    }
}

#[test]
fn numbers_and_layouts_are_those_of_the_kernel() {
    let source = Path::new(TESTS).join("library/layout.c");
    let said = |test: &str, header: &str| {
        // GNU C defines a macro whose name is a part of the name of the kernel's header.
        let program = compiled(&source, test, &["-Ulinux", &format!("-DHEADER={header}")]);
        let output = Command::new(program).output().expect("it starts");
        assert_success(test, &output);
        String::from_utf8(output.stdout).expect("text")
    };
    let (kernels, ours) = (said("layout-kernel", "<linux/sctp.h>"), said("layout", "<netinet/sctp.h>"));
    for (kernels, ours) in kernels.lines().zip(ours.lines()) {
        assert_eq!(kernels, ours);
    }
    assert!(ours.lines().count() > 400 && ours == kernels);
}

#[test]
#[ignore = "needs iproute2 and namespaces without privileges: ./test --all"]
fn the_first_socket_starts_a_daemon() {
    let program = linked(&Path::new(TESTS).join("library/on_demand.c"), "on-demand");
    assert_success("on_demand.c", &alone(&program).output().expect("unshare starts"));
}

#[test]
#[ignore = "needs iproute2 and namespaces without privileges: ./test --all"]
fn without_the_command_there_is_no_daemon() {
    let program = linked(&Path::new(TESTS).join("library/on_demand.c"), "no-command");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("library-alone");
    fs::create_dir_all(&folder).expect("a folder of our own");
    fs::copy(library().join("libswiftwater.so.0"), folder.join("libswiftwater.so.0")).expect("it was built");
    let output = alone(&program).env("LD_LIBRARY_PATH", &folder).output().expect("unshare starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("Protocol not supported"), "{said}");
}
