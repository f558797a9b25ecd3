//! ICMP errors as the socket's error queue reports them (`ip(7)`, `IP_RECVERR`).

use std::net::IpAddr;

use crate::UnreachableReason;
use crate::control;
use crate::route::payload_bytes;

/// The start of `struct sock_extended_err`.
const EXTENDED_ERROR_BYTES: usize = size_of::<libc::sock_extended_err>();
const ORIGIN: usize = 4;
const KIND: usize = 5;
const CODE: usize = 6;
const INFO: std::ops::Range<usize> = 8..12;

/// Returns why the datagram to `remote` was returned, according to its control messages. `None` if that is no reason to abandon
/// the address, such as a report about a parameter or a time stamp. `encapsulation_bytes`: the header between IP and SCTP.
pub(crate) fn reason(
    control_bytes: &[u8],
    remote: IpAddr,
    encapsulation_bytes: usize,
) -> Option<UnreachableReason> {
    let report = control::messages(control_bytes).find(|message| {
        (message.level, message.kind) == (libc::SOL_IP, libc::IP_RECVERR)
            || (message.level, message.kind) == (libc::SOL_IPV6, libc::IPV6_RECVERR)
    })?;
    let error = report.data.get(..EXTENDED_ERROR_BYTES)?;
    let info = u32::from_ne_bytes(error.get(INFO)?.try_into().ok()?);
    let too_big =
        || UnreachableReason::TooBig { mtu_bytes: payload_bytes(info as usize, remote, encapsulation_bytes) };
    match error[ORIGIN] {
        libc::SO_EE_ORIGIN_ICMP => icmp4_reason(error[KIND], error[CODE], too_big),
        libc::SO_EE_ORIGIN_ICMP6 => icmp6_reason(error[KIND], error[CODE], too_big),
        _ => None,
    }
}

/// Returns the reason that an ICMP error reports (RFC 792, RFC 1122 §3.2.2.1): type 3 is destination unreachable, type 11 time
/// exceeded.
fn icmp4_reason(
    kind: u8,
    code: u8,
    too_big: impl FnOnce() -> UnreachableReason,
) -> Option<UnreachableReason> {
    use UnreachableReason::{Admin, Host, Net, Port, Protocol};
    match (kind, code) {
        (3, 0 | 6 | 11) => Some(Net),
        (3, 2) => Some(Protocol),
        (3, 3) => Some(Port),
        (3, 4) => Some(too_big()),
        (3, 9 | 10 | 13) => Some(Admin),
        (3, _) => Some(Host),
        (11, 0) => Some(Net),
        _ => None,
    }
}

/// Returns the reason that an ICMPv6 error reports (RFC 4443 §3): type 1 is destination unreachable, 2 packet too big, 3 time
/// exceeded, 4 parameter problem.
fn icmp6_reason(
    kind: u8,
    code: u8,
    too_big: impl FnOnce() -> UnreachableReason,
) -> Option<UnreachableReason> {
    use UnreachableReason::{Admin, Host, Net, Port, Protocol};
    match (kind, code) {
        (1, 0) => Some(Net),
        (1, 1 | 5 | 6) => Some(Admin),
        (1, 4) => Some(Port),
        (1, _) => Some(Host),
        (2, _) => Some(too_big()),
        (3, 0) => Some(Net),
        (4, 1) => Some(Protocol),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::ControlBuilder;

    fn reported(level: i32, kind: i32, origin: u8, icmp: (u8, u8), info: u32) -> Option<UnreachableReason> {
        let mut error = [0; EXTENDED_ERROR_BYTES];
        error[ORIGIN] = origin;
        (error[KIND], error[CODE]) = icmp;
        error[INFO].copy_from_slice(&info.to_ne_bytes());
        let mut builder = ControlBuilder::new();
        builder.push(level, kind, &error);
        reason(builder.as_bytes(), "192.0.2.1".parse().unwrap(), 8)
    }

    fn v4(kind: u8, code: u8, info: u32) -> Option<UnreachableReason> {
        reported(libc::SOL_IP, libc::IP_RECVERR, libc::SO_EE_ORIGIN_ICMP, (kind, code), info)
    }

    fn v6(kind: u8, code: u8, info: u32) -> Option<UnreachableReason> {
        reported(libc::SOL_IPV6, libc::IPV6_RECVERR, libc::SO_EE_ORIGIN_ICMP6, (kind, code), info)
    }

    #[test]
    fn the_reasons() {
        use UnreachableReason::*;
        assert_eq!(v4(3, 0, 0), Some(Net));
        assert_eq!(v4(3, 1, 0), Some(Host));
        assert_eq!(v4(3, 2, 0), Some(Protocol));
        assert_eq!(v4(3, 3, 0), Some(Port));
        assert_eq!(v4(3, 4, 1400), Some(TooBig { mtu_bytes: 1372 }));
        assert_eq!(v4(3, 13, 0), Some(Admin));
        assert_eq!(v4(12, 0, 0), None);
        assert_eq!(v6(1, 0, 0), Some(Net));
        assert_eq!(v6(1, 1, 0), Some(Admin));
        assert_eq!(v6(1, 3, 0), Some(Host));
        assert_eq!(v6(1, 4, 0), Some(Port));
        assert_eq!(v6(2, 0, 1280), Some(TooBig { mtu_bytes: 1252 }));
        assert_eq!(v6(4, 1, 0), Some(Protocol));
        assert_eq!(v6(4, 0, 0), None);
    }

    #[test]
    fn an_absurd_mtu_is_not_believed() {
        assert_eq!(v4(3, 4, 0), Some(UnreachableReason::TooBig { mtu_bytes: 548 }));
        assert_eq!(v4(3, 4, u32::MAX), Some(UnreachableReason::TooBig { mtu_bytes: 65_504 }));
    }

    #[test]
    fn other_bytes_are_no_icmp_report() {
        assert_eq!(reported(libc::SOL_IP, libc::IP_RECVERR, libc::SO_EE_ORIGIN_TXSTATUS, (3, 3), 0), None);
        assert_eq!(reported(libc::SOL_UDP, 5, libc::SO_EE_ORIGIN_ICMP, (3, 3), 0), None);
        assert_eq!(reason(&[], "192.0.2.1".parse().unwrap(), 8), None);
        let mut builder = ControlBuilder::new();
        builder.push(libc::SOL_IP, libc::IP_RECVERR, &[0; 7]);
        assert_eq!(reason(builder.as_bytes(), "192.0.2.1".parse().unwrap(), 8), None);
    }
}
