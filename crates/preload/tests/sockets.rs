//! Tests of C programs with the shim, with a daemon for each test. The programs of `tests/sockets/*.c` know nothing of
//! Swiftwater and contain the checks.
#![allow(missing_docs)]

use std::env;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use channel_protocol::request::{Answer, DaemonRequest, FRAME_BYTES_MAX};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType};
use rustix::process::{Pid, Signal, kill_process};
use swiftwater_tests::daemon::{Daemon, REQUEST_WAIT, serve_or_check};
use swiftwater_tests::{programs, tools, wait};

/// The variable by which `swiftwater run --tcp-as-sctp` turns TCP sockets into SCTP sockets.
const TCP_AS_SCTP: &str = "SWIFTWATER_TCP_AS_SCTP";

#[test]
fn daemon_of_a_test() {
    serve_or_check();
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sockets").join(name).with_extension("c")
}

fn compiled(name: &str, test: &str) -> PathBuf {
    programs::compiled(&source(name), &format!("sockets-{test}"), &[])
}

fn compiled_statically(name: &str, test: &str) -> PathBuf {
    programs::compiled(&source(name), &format!("sockets-{test}"), &["-static"])
}

fn assert_success(what: &str, output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {}: {said}", output.status);
}

fn run(name: &str, arguments: &[&str]) {
    run_for(name, name, arguments);
}

/// Runs a program that several tests use.
fn run_for(test: &str, name: &str, arguments: &[&str]) {
    let daemon = Daemon::start(test);
    let output = daemon.run(compiled(name, test)).args(arguments).output().expect("the program starts");
    assert_success(name, &output);
}

#[test]
fn messages_of_all_sizes_go_there_and_back() {
    run("echo", &[]);
}

#[test]
fn connect_and_accept_need_not_wait() {
    run("nonblocking", &[]);
}

#[test]
fn a_client_knows_from_which_of_its_addresses_it_has_connected() {
    run("bound", &[]);
}

#[test]
fn long_messages_among_short_ones_arrive_from_a_sender_that_waits_for_room() {
    run("long_and_short", &[]);
}

#[test]
fn a_message_that_is_longer_than_a_record_arrives_whole_and_in_its_place() {
    run("long_messages", &[]);
}

#[test]
fn a_sender_may_die_at_each_of_its_calls_while_it_announces_a_ring() {
    run("killed_senders", &[]);
}

#[test]
fn a_reader_may_die_at_each_of_its_calls_while_it_reads_long_messages() {
    run("killed_readers", &[]);
}

#[test]
fn a_ring_that_cannot_be_replaced_stays_in_use() {
    run("ring_replaced", &[]);
}

#[test]
fn a_sender_is_held_back_however_long_its_messages_are() {
    run("held_back", &[]);
}

#[test]
fn a_sender_that_waits_for_room_loses_no_message_when_its_association_ends() {
    run("last_record", &[]);
}

#[test]
fn records_that_the_daemon_has_not_read_do_not_replace_the_end_of_file() {
    run("unread_at_end", &[]);
}

#[test]
fn messages_are_read_in_parts() {
    run("partial", &[]);
}

#[test]
fn messages_that_share_a_record_are_read_one_by_one() {
    run("bundles", &[]);
}

#[test]
fn messages_that_share_a_record_move_with_their_association() {
    run_for("bundles-peeled-off", "bundles", &["peeled-off"]);
}

#[test]
fn calls_for_several_messages_are_as_many_calls_for_one() {
    run("batches", &[]);
}

#[test]
fn a_stream_of_short_messages_costs_few_system_calls() {
    run("few_calls", &[]);
    run_for("few_calls-at-once", "few_calls", &["at-once"]);
    run_for("few_calls-dialogue", "few_calls", &["dialogue"]);
}

#[test]
fn readers_need_not_know_how_long_messages_are() {
    run("lengths", &[]);
}

#[test]
fn ancillary_data_arrives_with_its_message() {
    run("ancillary", &[]);
}

#[test]
fn descriptors_are_shared_copied_and_handed_on() {
    run("sharing", &[]);
}

#[test]
fn messages_that_come_together_wake_all_who_wait() {
    run("readers", &[]);
}

#[test]
fn each_message_is_an_edge_and_a_signal_also_while_earlier_ones_lie_there() {
    run("edges", &[]);
}

#[test]
fn programs_that_share_a_socket_send_as_one_would() {
    run("senders", &[]);
}

#[test]
fn misuse_fails_as_with_the_kernel() {
    run("errors", &[]);
}

#[test]
fn signals_and_time_limits_end_the_wait_for_a_peer() {
    run("signals", &[]);
}

#[test]
fn a_cancelled_thread_leaves_its_call_and_nothing_else() {
    run("cancel", &[]);
}

#[test]
fn a_handler_that_jumps_out_of_a_call_leaves_no_lock_behind() {
    run("jumps", &[]);
}

#[test]
fn a_library_that_binds_deeply_gets_sockets() {
    let _library =
        programs::compiled(&source("deep"), "libsockets-deep.so", &["-shared", "-fPIC", "-DLIBRARY"]);
    let here = ["-ldl", "-Wl,--enable-new-dtags,-rpath,$ORIGIN"];
    let program = programs::compiled(&source("deep"), "sockets-deep", &here);
    let daemon = Daemon::start("deep");
    assert_success("deep", &daemon.run(program).output().expect("the program starts"));
}

#[test]
fn a_message_has_as_many_parts_as_in_the_kernel() {
    run("parts", &[]);
}

#[test]
fn a_sharer_that_writes_into_the_page_keeps_nobody_beyond_time_limits() {
    run("page", &[]);
}

#[test]
#[ignore = "needs namespaces without privileges: ./test --all"]
fn sharers_in_other_pid_namespaces_wait_for_each_other() {
    run("namespaces", &[]);
}

#[test]
#[ignore = "needs namespaces without privileges: ./test --all"]
fn a_socket_from_another_network_namespace_works_where_the_daemon_can_be_reached() {
    let run = |daemon: &Daemon, arguments: &[&str]| {
        let program = compiled("elsewhere", "elsewhere");
        let output = daemon.run(program).args(arguments).output().expect("the program starts");
        assert_success("elsewhere", &output);
    };
    run(&Daemon::start_at_path("elsewhere"), &[]);
    run(&Daemon::start("elsewhere"), &["unreachable"]);
}

#[test]
fn sockets_take_calls_for_files_and_standard_io() {
    run("bypass", &[]);
}

#[test]
fn a_program_may_clear_its_environment() {
    let daemon = Daemon::start("environment");
    let mut program = daemon.run(compiled("environment", "environment"));
    let output = program.env(TCP_AS_SCTP, "1").output().expect("the program starts");
    assert_success("environment", &output);
}

#[test]
fn a_socket_whose_daemon_cannot_be_reached_is_not_read_as_a_file() {
    run("stranded", &[]);
}

#[test]
fn a_tcp_program_reads_across_messages() {
    let daemon = Daemon::start("tcp");
    let mut program = daemon.run(compiled("tcp", "tcp"));
    assert_success("tcp", &program.env(TCP_AS_SCTP, "1").output().expect("the program starts"));
}

#[test]
fn calls_need_little_stack() {
    run("stack", &[]);
}

#[test]
fn an_allocator_may_make_system_calls_while_it_holds_its_lock() {
    run("allocator", &[]);
}

/// A program without the shim whose standard input is a socket reads the content that peers send.
#[test]
fn a_program_without_the_shim_reads_plain_content() {
    let daemon = Daemon::start("plain");
    let service = compiled_statically("plain", "plain-service");
    let forbidden = service.with_file_name("sockets-plain-forbidden");
    fs::copy(&service, &forbidden).expect("a folder of our own");
    fs::set_permissions(&forbidden, Permissions::from_mode(0o644)).expect("our own file");
    let mut driver = daemon.run(compiled("plain", "plain"));
    let output = driver.arg("drive").args([service, forbidden]).output().expect("the program starts");
    assert_success("plain", &output);
}

/// Compiles a program with AddressSanitizer and runs it with these arguments. No memory of ours counts as leaked, even if a
/// socket is still open at the end.
fn assert_sanitized(name: &str, arguments: &[&str]) {
    let options = ["-g", "-fsanitize=address", "-U_FORTIFY_SOURCE"];
    let program = programs::compiled(&source(name), &format!("sockets-sanitized-{name}"), &options);
    let daemon = Daemon::start(&format!("sanitized-{name}"));
    let output = daemon.run(program).args(arguments).output().expect("the program starts");
    assert_success("sanitized", &output);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("Sanitizer"), "{said}");
}

#[test]
fn address_sanitizer_finds_nothing() {
    assert_sanitized("listeners", &["leave-open"]);
    assert_sanitized("echo", &[]);
}

/// One program opens sockets, sends, receives and closes them, and so does its child; the other leaves sockets open at its end.
#[test]
#[ignore = "needs valgrind: ./test --all"]
fn valgrind_finds_nothing() {
    if tools::program("valgrind").is_none() {
        return;
    }
    let daemon = Daemon::start("valgrind");
    let options =
        ["--quiet", "--error-exitcode=9", "--leak-check=full", "--show-leak-kinds=definite,possible"];
    for (name, arguments) in [("echo", &[][..]), ("listeners", &["leave-open"])] {
        let program = compiled(name, &format!("valgrind-{name}"));
        let mut run = daemon.run("valgrind");
        run.args(options).arg(program).args(arguments);
        let output = run.output().expect("the program starts");
        assert_success(name, &output);
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_full_descriptor_table_leaves_sockets_usable() {
    run("full", &[]);
}

#[test]
fn a_limit_on_the_length_of_files_raises_no_signal() {
    run_for("limit-of-files", "limits", &["files"]);
}

#[test]
fn a_limit_of_no_descriptors_leaves_sockets_usable() {
    run_for("limit-of-descriptors", "limits", &["descriptors"]);
}

#[test]
fn a_daemon_without_descriptors_keeps_nobody_waiting() {
    let mut few = Command::new("sh");
    few.args(["-c", "ulimit -n 600; exec \"$@\"", "sh"]).arg(env::current_exe().expect("it has a file"));
    let daemon = Daemon::start_by("few-descriptors", few);
    let program = compiled("few_descriptors", "few-descriptors");
    assert_success("few_descriptors", &daemon.run(program).output().expect("the program starts"));
}

#[test]
fn a_daemon_that_may_send_no_descriptors_says_so() {
    // Root may have any number of descriptors on their way.
    if !rustix::process::geteuid().is_root() {
        return tools::skip("only root becomes another user");
    }
    let as_other = ["--reuid", "41006", "--regid", "41006", "--clear-groups"];
    let mut other = Command::new("sh");
    other.args(["-c", "ulimit -n 600; exec setpriv \"$@\"", "sh"]).args(as_other);
    other.arg(env::current_exe().expect("it has a file"));
    let daemon = Daemon::start_by("in-flight", other);
    let program = compiled("in_flight", "in-flight");
    let output = daemon.run("setpriv").args(as_other).arg(program).output().expect("the program starts");
    assert_success("in_flight", &output);
}

#[test]
fn long_messages_need_no_right_to_make_memfds() {
    run("seccomp", &[]);
}

#[test]
fn a_message_arrives_although_the_record_that_wakes_the_daemon_finds_no_memory() {
    run("wakes", &[]);
}

#[test]
fn no_reader_of_a_half_closed_socket_is_told_the_end_too_soon() {
    run("half_closed", &[]);
}

#[test]
fn a_program_that_may_not_change_its_send_buffer_any_more_goes_on_sending() {
    run("sandboxed", &[]);
}

#[test]
fn listeners_change_their_backlog_and_share_ports() {
    run("listeners", &[]);
}

#[test]
fn a_socket_has_any_number_of_associations() {
    run("one_to_many", &[]);
}

#[test]
fn a_small_receive_buffer_bounds_what_a_peer_gets_rid_of() {
    run("window", &[]);
}

#[test]
fn a_small_receive_buffer_costs_no_retransmissions() {
    run("small_buffer", &[]);
}

/// A daemon that waits for the processor finds answers and expired timers at the same time: answers count first.
#[test]
fn a_daemon_that_is_often_stopped_sends_nothing_again() {
    const STOPS_MIN: usize = 5;
    const STOPS_MAX: usize = 100;
    let daemon = Daemon::start("stopped");
    let id = Pid::from_child(daemon.process());
    let mut program = daemon.run(compiled("small_buffer", "stopped")).spawn().expect("the program starts");
    let runs = |program: &mut Child| program.try_wait().expect("a child of ours").is_none();
    let stops = (0..STOPS_MAX).take_while(|_| {
        kill_process(id, Signal::STOP).expect("a child of ours");
        // Longer than a probe waits for an answer.
        thread::sleep(Duration::from_millis(20));
        kill_process(id, Signal::CONT).expect("a child of ours");
        thread::sleep(Duration::from_millis(5));
        runs(&mut program)
    });
    let stops = stops.count();
    assert!(stops >= STOPS_MIN, "the program has met {stops} stops");
    let status = wait::end_of("the program", &mut program);
    assert!(status.success(), "{status}");
}

/// Connections whose request comes while the daemon is stopped for longer than it waits for requests.
#[test]
fn a_daemon_that_was_stopped_for_long_answers_what_was_asked_meanwhile() {
    const CALLERS: usize = 12;
    let daemon = Daemon::start("stopped-for-long");
    let id = Pid::from_child(daemon.process());
    let address = SocketAddrUnix::new_abstract_name(&daemon.place.as_bytes()[1..]).expect("it is short");
    let call = |_| {
        let caller = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
        rustix::net::connect(&caller, &address).expect("the daemon listens");
        caller
    };
    let callers: Vec<_> = (0..CALLERS).map(call).collect();
    // The daemon attends to connections in turn: it waits for the requests of all by now.
    assert_success(
        "first",
        &daemon
            .run(compiled("environment", "stopped-for-long"))
            .env(TCP_AS_SCTP, "1")
            .output()
            .expect("it starts"),
    );
    kill_process(id, Signal::STOP).expect("a child of ours");
    let state = || fs::read_to_string(format!("/proc/{}/stat", daemon.process().id())).expect("it lives");
    wait::until("the daemon is stopped", || state().rsplit(") ").next().is_some_and(|s| s.starts_with('T')));
    // Its time limit for requests passes. A stopped daemon reports nothing, so only the clock tells.
    thread::sleep(REQUEST_WAIT);
    let mut frame = [0; FRAME_BYTES_MAX];
    let bytes = DaemonRequest::Describe.encode(&mut frame).expect("it is short");
    for caller in &callers {
        rustix::net::send(caller, &frame[..bytes], SendFlags::NOSIGNAL).expect("there is room");
    }
    kill_process(id, Signal::CONT).expect("a child of ours");
    for caller in &callers {
        let (_, bytes) = rustix::net::recv(caller, &mut frame[..], RecvFlags::empty()).expect("an answer");
        assert!(matches!(Answer::parse(&frame[..bytes]), Some(Answer::Value(_))), "{bytes} bytes");
    }
}

#[test]
fn a_long_message_is_taken_only_if_nobody_can_change_it() {
    run("memfd", &[]);
}

#[test]
fn packets_have_the_traffic_class_that_was_set() {
    run("classes", &[]);
}

#[test]
fn messages_of_a_killed_program_arrive() {
    run("deaths", &["sender"]);
}

#[test]
fn messages_arrive_at_whatever_moment_the_program_is_killed() {
    run_for("moments", "deaths", &["one-to-one"]);
}

#[test]
fn messages_to_one_of_many_arrive_at_whatever_moment_the_program_is_killed() {
    run_for("moments-one-to-many", "deaths", &["one-to-many"]);
}

#[test]
fn a_killed_daemon_fails_every_call_at_once() {
    let mut daemon = Daemon::start("killed");
    let mut program = daemon
        .run(compiled("deaths", "killed"))
        .arg("daemon")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut line = String::new();
    BufReader::new(program.stdout.as_mut().expect("it is piped")).read_line(&mut line).expect("a line");
    daemon.kill();
    let output = program.wait_with_output().expect("it ends");
    assert_eq!(line, "ready\n", "{}", String::from_utf8_lossy(&output.stderr));
    assert_success("deaths", &output);
}
