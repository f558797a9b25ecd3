//! The SCTP of the Linux kernel, in a kernel that runs as a process (`tests/peers/kernel-lab`).
//!
//! A test that needs it runs inside [`lab`]: there the kernel is at [`ADDRESSES`], we are at [`OUR_ADDRESSES`], and
//! both speak SCTP over UDP port 9899.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use crate::tools;

/// Set inside the lab.
const INSIDE: &str = "SWIFTWATER_INSIDE_KERNEL_LAB";
/// Set on the kernel's own host.
const BESIDE: &str = "SWIFTWATER_BESIDE_THE_KERNEL";
/// Programs that the kernel peer needs from Debian.
const PROGRAMS: [&str; 9] =
    ["linux.uml", "unshare", "ip", "tc", "insmod", "sysctl", "socat", "python3", "cc"];
/// The kernel's shell.
const SHELL_PORT: u16 = 9999;
/// Longest silence of a command in that shell: a kernel that is a process is slow beside other programs.
const SHELL_PATIENCE: Duration = Duration::from_secs(120);

/// The kernel's addresses, one on each link.
pub const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 0, 2), Ipv4Addr::new(10, 78, 0, 2)];
/// Ours.
pub const OUR_ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 78, 0, 1)];
/// The SCTP port of a server that returns every message on its stream.
pub const ECHO_PORT: u16 = 5001;
/// The SCTP port of a server that returns one message and shuts the association down.
pub const ECHO_ONCE_PORT: u16 = 5002;
/// The SCTP port of a server that sends [`super::messages`] and shuts the association down.
pub const SOURCE_PORT: u16 = 5003;
/// The SCTP port of a server that receives one message and aborts the association.
pub const ABORT_PORT: u16 = 5004;
/// The SCTP port of a server that receives numbered messages, and reports them when asked.
pub const SINK_PORT: u16 = 5005;
/// The SCTP port of a server that sends numbered messages until it is asked for their number.
pub const FLOOD_PORT: u16 = 5006;
/// The length of a numbered message.
pub const NUMBERED_BYTES: usize = 1200;
/// The payload protocol identifier of questions to those two, and of their answers.
pub const ASKED: u32 = 1;
/// An SCTP port without a listener.
pub const SILENT_PORT: u16 = 5999;

/// Runs `test` beside a kernel of its own; `name` is the test's own full name.
///
/// The network and the processes of the lab are closed to the outside, so the test program is started once more
/// inside them, for this one test.
///
/// # Panics
/// If the test fails inside the lab, or the lab cannot be set up although everything that it needs is there.
pub fn lab(name: &str, test: impl FnOnce()) {
    if env::var_os(INSIDE).is_some() {
        return test();
    }
    if !available() {
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/kernel-lab");
    let program = env::current_exe().unwrap_or_else(|error| panic!("the test program has no name: {error}"));
    let output = Command::new(script)
        .arg(program)
        .args([name, "--exact", "--include-ignored", "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap_or_else(|error| panic!("the lab cannot be started: {error}"));
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    print!("{text}");
    assert!(output.status.success(), "{name} failed beside the kernel: {}\n{text}", output.status);
    // With a wrong name no test would run, which would look like success.
    assert!(text.contains("1 passed"), "there is no test {name}");
}

/// Runs a command line in the kernel's shell and returns what it printed.
///
/// # Panics
/// If the command fails, or the shell cannot be reached.
#[must_use]
pub fn shell(command: &str) -> String {
    let talk = || -> std::io::Result<String> {
        // Tests take the first link down.
        let mut stream = TcpStream::connect((ADDRESSES[1], SHELL_PORT))?;
        stream.set_read_timeout(Some(SHELL_PATIENCE))?;
        // The exit code does not come back by itself.
        writeln!(stream, "({command}) 2>&1; echo exit=$?")?;
        stream.shutdown(Shutdown::Write)?;
        let mut output = String::new();
        stream.read_to_string(&mut output)?;
        Ok(output)
    };
    let output = talk().unwrap_or_else(|error| panic!("the kernel's shell fails at '{command}': {error}"));
    match output.trim_end().rsplit_once("exit=") {
        Some((text, "0")) => text.to_owned(),
        _ => panic!("'{command}' fails beside the kernel: {output}"),
    }
}

/// Configures one of the two links, in both directions: `netem` has the parameters, such as `delay 5ms`.
///
/// # Panics
/// As [`shell`] does.
pub fn set_link(link: usize, netem: &str) {
    let line = |interface| format!("tc qdisc replace dev {interface}{link} root netem {netem}");
    let _nothing = shell(&format!("{} && {}", line("ifb"), line("vec")));
}

/// Makes the kernel send SCTP packets directly in IP from now on.
///
/// # Panics
/// As [`shell`] does.
pub fn leave_udp() {
    let _nothing = shell("sysctl -qw net.sctp.encap_port=0");
}

/// Returns when the kernel has confirmed every address of its peers and may use it.
///
/// # Panics
/// As [`shell`] does.
pub fn wait_for_paths() {
    let _nothing = shell(&peer_command("wait-paths"));
}

/// Returns whether this is a test that [`beside_it`] runs.
#[must_use]
pub fn is_beside_it() -> bool {
    env::var_os(BESIDE).is_some()
}

/// Runs the test of this name, the one that calls it, once more where the kernel's SCTP is: on the same host. Returns what it
/// printed.
///
/// # Panics
/// As [`shell`] does.
#[must_use]
pub fn beside_it(name: &str) -> String {
    let program = env::current_exe().unwrap_or_else(|error| panic!("the test program has no name: {error}"));
    shell(&format!("{BESIDE}=1 {} {name} --exact --include-ignored --nocapture", program.display()))
}

/// Returns the command line that runs the kernel's side of a test (`tests/peers/kernel_peer.py`).
#[must_use]
pub fn peer_command(arguments: &str) -> String {
    format!("python3 {}/peers/kernel_peer.py {arguments}", env!("CARGO_MANIFEST_DIR"))
}

/// Returns whether a lab can be set up here; if not, the test has been reported as skipped.
fn available() -> bool {
    if !PROGRAMS.iter().all(|name| tools::program(name).is_some()) {
        return false;
    }
    let is_root = fs::read_to_string("/proc/self/status")
        .is_ok_and(|status| status.lines().any(|line| line.starts_with("Uid:\t0\t")));
    if !is_root {
        tools::skip("only root may make the network of the kernel lab");
        return false;
    }
    if !Path::new("/dev/net/tun").exists() {
        tools::skip("this host has no /dev/net/tun for the kernel lab");
        return false;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::usrsctp::{self, UdpPorts};

    #[test]
    #[ignore = "needs user-mode Linux and root: ./test --all"]
    fn it_understands_itself() {
        lab("peers::kernel::tests::it_understands_itself", || {
            let said = shell(&peer_command(&format!("connect {} {ECHO_PORT}", ADDRESSES[0])));
            assert_eq!(said, "36 messages came back\n");
        });
    }

    #[test]
    #[ignore = "needs user-mode Linux, usrsctp and root: ./test --all"]
    fn usrsctp_and_the_kernel_understand_each_other() {
        lab("peers::kernel::tests::usrsctp_and_the_kernel_understand_each_other", || {
            if !usrsctp::available() {
                return;
            }
            let udp = UdpPorts { peer: 9899, local: 9899 };
            let mut client = usrsctp::client_of(ADDRESSES[0], ECHO_PORT, udp);
            client.line(|line| line.contains("SCTP_COMM_UP"));
            client.write_line("hello");
            client.line(|line| line == "hello");
            assert!(client.finish().0.success());
        });
    }
}
