//! Checks of the links: sockets, their offloads and their buffers.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, UdpSocket};

use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};
use swiftwater_daemon::Description;

use super::Finding;
use super::files::Files;
use crate::host::LoopbackDown;
use crate::sockets::DEFAULT_PORT;

/// Buffer that SCTP requests from the kernel for its UDP sockets, in each direction.
const BUFFER_BYTES: u64 = 4 << 20;
/// A segment size that every kernel accepts.
const SEGMENT_BYTES: i32 = 1200;

/// Opens a raw socket of IP protocol 132 and closes it.
pub(super) fn open_raw_socket() -> io::Result<()> {
    const SCTP: i32 = 132;
    Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(SCTP))).map(drop)
}

/// Checks raw IP, for `--link raw`.
pub(super) fn raw_ip(opened: io::Result<()>) -> Finding {
    const CHECK: &str = "raw-ip";
    match opened {
        Ok(()) => Finding::ok(
            CHECK,
            "permitted: `swiftwater daemon --link raw` reaches peers that speak only IP protocol 132",
        ),
        Err(error) => Finding::note(
            CHECK,
            format!("not permitted: {error}"),
            "SCTP in UDP needs none; for peers that speak only IP protocol 132, start `swiftwater daemon --link raw` as root (CAP_NET_RAW)",
        ),
    }
}

/// Binds the UDP port as a daemon would, and releases it.
pub(super) fn bind_udp_port() -> io::Result<()> {
    UdpSocket::bind((Ipv4Addr::UNSPECIFIED, DEFAULT_PORT)).map(drop)
}

/// Checks the UDP port that carries SCTP.
pub(super) fn udp_port(daemon: Option<&Description>, bound: io::Result<()>) -> Finding {
    const CHECK: &str = "udp-port";
    match (daemon, bound) {
        (Some(daemon), _) => Finding::ok(CHECK, format!("the daemon has {}", daemon.carries)),
        (None, Ok(())) => {
            let found =
                format!("{DEFAULT_PORT} is free; firewalls must let it in for associations from other hosts");
            Finding::ok(CHECK, found)
        }
        (None, Err(error)) if error.kind() == ErrorKind::AddrInUse => Finding::fails(
            CHECK,
            format!("{DEFAULT_PORT} is in use by another program"),
            format!(
                "`ss -ulpn 'sport = :{DEFAULT_PORT}'` as root says by which; or start `swiftwater daemon --udp-port PORT`, here and at every peer"
            ),
        ),
        (None, Err(error)) => Finding::fails(
            CHECK,
            format!("{DEFAULT_PORT} cannot be bound: {error}"),
            "let this user bind UDP sockets: a policy of the system, or of the container, forbids it",
        ),
    }
}

/// Checks the loopback interface.
pub(super) fn loopback(checked: Result<(), LoopbackDown>) -> Finding {
    const CHECK: &str = "loopback";
    match checked {
        Ok(()) => Finding::ok(CHECK, "programs of this host reach each other"),
        Err(LoopbackDown) => {
            Finding::fails(CHECK, "the interface lo is down", "run `ip link set lo up` as root")
        }
    }
}

/// Returns whether the kernel cuts a batch into datagrams (`UDP_SEGMENT`).
pub(super) fn can_segment() -> bool {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
    socket.is_ok_and(|socket| setsockopt(&socket, sockopt::UdpGsoSegment, &SEGMENT_BYTES).is_ok())
}

/// Returns whether the kernel delivers several datagrams at once (`UDP_GRO`).
pub(super) fn can_gather() -> bool {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
    socket.is_ok_and(|socket| setsockopt(&socket, sockopt::UdpGroSegment, &true).is_ok())
}

/// Checks segmentation and receive offload of UDP.
pub(super) fn offload(segments: bool, gathers: bool) -> Finding {
    const CHECK: &str = "udp-offload";
    let missing = match (segments, gathers) {
        (true, true) => return Finding::ok(CHECK, "the kernel takes and gives many packets in one call"),
        (false, true) => "no UDP_SEGMENT",
        (true, false) => "no UDP_GRO",
        (false, false) => "neither UDP_SEGMENT nor UDP_GRO",
    };
    let advice =
        "every packet costs a system call, and large messages are slower; Linux 5.0 and newer has both";
    Finding::note(CHECK, missing, advice)
}

/// Checks the limits of socket buffers.
pub(super) fn buffers(files: &Files) -> Finding {
    const CHECK: &str = "socket-buffers";
    let limit = |name| files.number(&format!("proc/sys/net/core/{name}"));
    let (Some(receive), Some(send)) = (limit("rmem_max"), limit("wmem_max")) else {
        return Finding::note(
            CHECK,
            "the limits are not shown in this network namespace",
            format!("the host's net.core.rmem_max and wmem_max should be {BUFFER_BYTES}"),
        );
    };
    let found = format!("net.core.rmem_max is {receive}, wmem_max {send} bytes");
    if receive >= BUFFER_BYTES && send >= BUFFER_BYTES {
        return Finding::ok(CHECK, found);
    }
    let advice = format!(
        "on fast lines a burst overflows them; `sysctl -w net.core.rmem_max={BUFFER_BYTES} net.core.wmem_max={BUFFER_BYTES}`, and in /etc/sysctl.d to keep it"
    );
    Finding::note(CHECK, found, advice)
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn an_address_in_use_fails_unless_it_is_the_daemons() {
        let in_use = || Err(ErrorKind::AddrInUse.into());
        let finding = udp_port(None, in_use());
        assert!(finding.state == State::Fails && finding.found.contains("another program"), "{finding:?}");
        let daemon = Description {
            process: 1,
            version: "1".into(),
            on_demand: true,
            carries: "SCTP in UDP, port 9899".into(),
        };
        assert_eq!(udp_port(Some(&daemon), in_use()).state, State::Ok);
        assert_eq!(udp_port(None, Ok(())).state, State::Ok);
        assert_eq!(udp_port(None, Err(ErrorKind::PermissionDenied.into())).state, State::Fails);
    }

    #[test]
    fn small_buffers_come_with_the_command_that_raises_them() {
        let limits =
            |bytes| [("proc/sys/net/core/rmem_max", bytes), ("proc/sys/net/core/wmem_max", "4194304\n")];
        assert_eq!(buffers(&Files::with("large", &limits("4194304\n"))).state, State::Ok);
        let finding = buffers(&Files::with("small", &limits("212992\n")));
        assert!(finding.found.contains("rmem_max is 212992"), "{finding:?}");
        assert!(finding.advice.is_some_and(|advice| advice.contains("sysctl -w net.core.rmem_max=4194304")));
        assert_eq!(buffers(&Files::with("hidden", &[])).state, State::Note);
    }

    #[test]
    fn a_missing_feature_is_only_a_note() {
        assert_eq!(raw_ip(Ok(())).state, State::Ok);
        assert_eq!(raw_ip(Err(ErrorKind::PermissionDenied.into())).state, State::Note);
        assert_eq!(offload(true, true).state, State::Ok);
        let finding = offload(true, false);
        assert!(finding.state == State::Note && finding.found == "no UDP_GRO", "{finding:?}");
    }
}
