//! The function tests of lksctp-tools, unmodified: they check the sockets API of a kernel with SCTP in one process that plays
//! both ends. They run under the shim with libsctp, and linked with our library, each with its own daemon. `./test --all` fetches
//! their source.
#![allow(missing_docs)]

mod daemon;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use daemon::Daemon;
use swiftwater_tests::programs::library;
use swiftwater_tests::tools;

/// The library's own header, for programs that link with it.
const HEADER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/capi/include");

/// Compiles a test with these compiler arguments; the tests whose names end with `_v6` are compiled for IPv6.
fn compiled(test: &str, how: &str, words: &[&str]) -> Option<PathBuf> {
    let source = tools::fetched("lksctp-tools/src")?;
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("function-{test}-{how}"));
    let (name, family) = test.strip_suffix("_v6").map_or((test, "-UTEST_V6"), |name| (name, "-DTEST_V6=1"));
    let output = Command::new("cc")
        .args(["-w", "-DHAVE_SCTP_SENDV=1", family, "-I"])
        .arg(source.join("testlib"))
        .arg("-o")
        .args([&program, &source.join("func_tests").join(name).with_extension("c")])
        .arg(source.join("testlib/sctputil.c"))
        .args(words)
        .arg("-lpthread")
        .output()
        .expect("a C compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

fn passes(test: &str) {
    let Some(program) = compiled(test, "preloaded", &["-lsctp"]) else { return };
    let daemon = Daemon::start(test);
    run(daemon.run("timeout"), &program);
    let folder = library().to_str().expect("text");
    let (header, rpath) = (format!("-I{HEADER}"), format!("-Wl,-rpath,{folder}"));
    let words = [&header, "-L", folder, "-lswiftwater", &rpath];
    let Some(program) = compiled(test, "linked", &words) else { return };
    let daemon = Daemon::start(&format!("{test}-linked"));
    let mut timeout = Command::new("timeout");
    timeout.env("SWIFTWATER_DAEMON", &daemon.place);
    run(timeout, &program);
}

/// Makes `malloc` return zeros: `test_1_to_1_connectx` connects to an address that it has not written.
const ZEROED_HEAP: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.perturb=255:glibc.malloc.tcache_count=0");

/// Runs a test under `timeout`.
fn run(mut timeout: Command, program: &Path) {
    timeout
        .args(["--kill-after", "1", "60"])
        .arg(program)
        .stdin(Stdio::null())
        .env(ZEROED_HEAP.0, ZEROED_HEAP.1);
    let output = timeout.output().expect("the command starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}: {said}{}", output.status, String::from_utf8_lossy(&output.stderr));
}

macro_rules! function_tests {
    ($($test:ident)*) => {$(
        #[test]
        #[ignore = "needs the source of lksctp-tools: ./test --all"]
        fn $test() {
            passes(stringify!($test));
        }
    )*};
}

function_tests! {
    test_1_to_1_accept_close
    test_1_to_1_addrs
    test_1_to_1_connect
    test_1_to_1_connectx
    test_1_to_1_events
    test_1_to_1_initmsg_connect
    test_1_to_1_nonblock
    test_1_to_1_recvfrom
    test_1_to_1_recvmsg
    test_1_to_1_rtoinfo
    test_1_to_1_send
    test_1_to_1_sendmsg
    test_1_to_1_sendto
    test_1_to_1_shutdown
    test_1_to_1_socket_bind_listen
    test_1_to_1_sockopt
    test_1_to_1_threads
    test_assoc_abort
    test_assoc_shutdown
    test_autoclose
    test_basic
    test_basic_v6
    test_connect
    test_connectx
    test_fragments
    test_fragments_v6
    test_getname
    test_getname_v6
    test_inaddr_any
    test_inaddr_any_v6
    test_peeloff
    test_peeloff_v6
    test_recvmsg
    test_sctp_sendrecvmsg
    test_sctp_sendrecvmsg_v6
    test_sctp_sendvrecvv
    test_sctp_sendvrecvv_v6
    test_sockopt
    test_sockopt_v6
    test_tcp_style
    test_tcp_style_v6
    test_timetolive
    test_timetolive_v6
}
