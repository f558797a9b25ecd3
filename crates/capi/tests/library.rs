//! Tests of C programs that link with the library, without preloading. The programs of `tests/library/*.c` contain the checks;
//! those of the shim's `tests/sockets` behave as they do with the shim.
#![allow(missing_docs)]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use swiftwater_tests::daemon::{Daemon, serve_or_check};
use swiftwater_tests::programs::{self, library};

const PACKAGE: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn daemon_of_a_test() {
    serve_or_check();
}

/// Returns the path of a program of these tests, or of the shim's.
fn source(name: &str) -> PathBuf {
    let folder = if name.starts_with("sockets/") { "../preload/tests" } else { "tests" };
    Path::new(PACKAGE).join(folder).join(name)
}

/// Compiles a program of a test with these compiler arguments.
fn compiled(source: &Path, test: &str, words: &[&str]) -> PathBuf {
    let include = format!("-I{PACKAGE}/include");
    let common = [&include, "-Wno-missing-field-initializers", "-Wno-unused-result"];
    programs::compiled(source, &format!("library-{test}"), &[&common, words].concat())
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

fn run(name: &str, test: &str) {
    run_linked(name, test, &linked(&source(name), test));
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
        |name: &str| linked(&Path::new(PACKAGE).join("examples").join(name).with_extension("c"), name);
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
    for name in ["echo", "nonblocking", "partial", "ancillary", "sharing", "errors", "one_to_many"] {
        run(&format!("sockets/{name}.c"), name);
    }
}

#[test]
fn they_are_there_for_one_to_many_sockets() {
    run("library/one_to_many.c", "one-to-many");
}

/// Compiles a program that contains the whole library.
fn carrying(name: &str, test: &str) -> PathBuf {
    let archive = library().join("libswiftwater.a");
    let words = ["-Wl,--whole-archive", archive.to_str().expect("text"), "-Wl,--no-whole-archive"];
    compiled(&source(name), test, &words)
}

#[test]
fn a_program_may_carry_the_library_in_itself() {
    let name = "library/functions.c";
    run_linked(name, "static", &carrying(name, "static"));
}

/// Such a program has two shims. The one that comes first in the link order serves it: the preloaded one before a shared library,
/// the program's own before the preloaded one.
#[test]
fn linked_programs_run_under_the_preloaded_shim_too() {
    let daemon = Daemon::start("library-two-shims");
    let run = |name: &str, program: &Path| {
        assert_success(name, &daemon.run(program).output().expect("the program starts"));
    };
    for name in ["library/functions.c", "library/one_to_many.c"] {
        let test = name.replace(['/', '.'], "-");
        run(name, &linked(&source(name), &format!("both-{test}")));
        run(name, &carrying(name, &format!("both-static-{test}")));
    }
    for name in [
        "echo",
        "nonblocking",
        "partial",
        "ancillary",
        "sharing",
        "errors",
        "one_to_many",
        "bypass",
        "cancel",
        "full",
    ] {
        let file = format!("sockets/{name}.c");
        run(&file, &linked(&source(&file), &format!("both-{name}")));
        run(&file, &carrying(&file, &format!("both-static-{name}")));
    }
}

#[test]
fn numbers_and_layouts_are_those_of_the_kernel() {
    let source = source("library/layout.c");
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
