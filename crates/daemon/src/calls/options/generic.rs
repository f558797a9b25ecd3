//! `SOL_SOCKET`, `IPPROTO_IP` and `IPPROTO_IPV6`.

use rustix::io::Errno;

use super::value::{Build, Value, number};
use super::{Access, FUTURE};
use crate::state::socket_options::{IP_TOS, IPPROTO_IP, IPPROTO_IPV6, IPV6_TCLASS, SO_REUSEPORT, SOL_SOCKET};
use crate::system::addresses::Family;

const SO_REUSEADDR: i32 = 2;
const SO_DONTROUTE: i32 = 5;
const SO_BROADCAST: i32 = 6;
const SO_SNDBUF: i32 = 7;
const SO_RCVBUF: i32 = 8;
const SO_KEEPALIVE: i32 = 9;
const SO_OOBINLINE: i32 = 10;
const SO_PRIORITY: i32 = 12;
const SO_LINGER: i32 = 13;
const SO_RCVLOWAT: i32 = 18;
const SO_SNDLOWAT: i32 = 19;
const SO_BINDTODEVICE: i32 = 25;
const SO_TIMESTAMP: i32 = 29;
const SO_ACCEPTCONN: i32 = 30;
const SO_SNDBUFFORCE: i32 = 32;
const SO_RCVBUFFORCE: i32 = 33;
const SO_TIMESTAMPNS: i32 = 35;
const SO_MARK: i32 = 36;
const SO_PEERCRED: i32 = 17;
const SO_PEEK_OFF: i32 = 42;
const SO_BUSY_POLL: i32 = 46;
const IP_TTL: i32 = 2;
const IP_RECVOPTS: i32 = 6;
const IP_RETOPTS: i32 = 7;
const IP_PKTINFO: i32 = 8;
const IP_MTU_DISCOVER: i32 = 10;
const IP_RECVERR: i32 = 11;
const IP_RECVTTL: i32 = 12;
const IP_RECVTOS: i32 = 13;
const IP_MTU: i32 = 14;
const IP_FREEBIND: i32 = 15;
const IP_TRANSPARENT: i32 = 19;
const IP_RECVORIGDSTADDR: i32 = 20;
const IPV6_V6ONLY: i32 = 26;

/// `IP_PMTUDISC_WANT`, and the largest valid value.
const IP_PMTUDISC_WANT: i32 = 1;
const IP_PMTUDISC_MAX: i32 = 5;
/// The bits of ECN in a traffic class (RFC 3168 §5), and the codepoint for ECN-capable packets.
const ECN: i32 = 3;
const ECT_0: i32 = 2;
const LINGER_BYTES: usize = 8;
/// The largest buffer that a program may request; it gets, and reads back, twice that size.
const BUFFER_BYTES_MAX: i32 = 32 << 20;
/// The smallest send buffer that a program gets.
const SEND_BUFFER_BYTES_MIN: i32 = 4608;
const RECEIVE_BUFFER_BYTES_MIN: i32 = 2304;

/// Returns whether an option of the socket is a boolean that is stored, most of them without further effect.
fn is_switch(name: i32) -> bool {
    let of_delivery = matches!(name, SO_DONTROUTE | SO_BROADCAST | SO_KEEPALIVE | SO_OOBINLINE);
    of_delivery || matches!(name, SO_REUSEPORT | SO_TIMESTAMP | SO_TIMESTAMPNS)
}

pub(super) fn set(access: &mut Access<'_>, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
    match level {
        SOL_SOCKET => set_of_socket(access, name, value),
        IPPROTO_IP => set_of_ip(access, name, value),
        IPPROTO_IPV6 if access.socket.family() == Family::V6 => set_of_ipv6(access, name, value),
        _ => Err(Errno::NOPROTOOPT),
    }
}

pub(super) fn get(access: &Access<'_>, level: i32, name: i32, given: &[u8]) -> Result<Vec<u8>, Errno> {
    match level {
        SOL_SOCKET => of_socket(access, name),
        IPPROTO_IP => of_ip(access, name, given),
        IPPROTO_IPV6 if access.socket.family() == Family::V6 => of_ipv6(access, name),
        _ if access.socket.family() == Family::V6 => Err(Errno::NOPROTOOPT),
        _ => Err(Errno::OPNOTSUPP),
    }
}

fn set_of_socket(access: &mut Access<'_>, name: i32, value: &[u8]) -> Result<(), Errno> {
    if name == SO_BINDTODEVICE {
        return bind_to_device(value);
    }
    let plain = Value::at_least(value, 4)?.i32(0);
    let is_roots = access.socket.owner().user == 0;
    let mut options = access.options_mut();
    match name {
        SO_SNDBUFFORCE | SO_RCVBUFFORCE | SO_MARK if !is_roots => return Err(Errno::PERM),
        // All packets leave through the daemon's socket, which cannot be marked for one program.
        SO_MARK if plain != 0 => return Err(Errno::PERM),
        SO_MARK => {}
        SO_PEEK_OFF => return Err(Errno::OPNOTSUPP),
        SO_BUSY_POLL if plain < 0 => return Err(Errno::INVAL),
        SO_BUSY_POLL if plain > 0 && !is_roots => return Err(Errno::PERM),
        SO_REUSEADDR => options.set_reuse_address(plain != 0),
        SO_SNDBUF | SO_SNDBUFFORCE => {
            options.set_send_buffer_bytes(twice(plain).max(SEND_BUFFER_BYTES_MIN));
        }
        SO_RCVBUF | SO_RCVBUFFORCE => {
            options.set_receive_buffer_bytes(twice(plain).max(RECEIVE_BUFFER_BYTES_MIN));
        }
        SO_LINGER => {
            let value = Value::at_least(value, LINGER_BYTES)?;
            options.set_linger(value.i32(0) != 0, value.i32(4));
        }
        SO_RCVLOWAT => {
            let bytes = if plain < 0 { i32::MAX } else { plain.max(1) };
            options.keep((SOL_SOCKET, name), bytes);
        }
        SO_PRIORITY | SO_BUSY_POLL => options.keep((SOL_SOCKET, name), plain),
        name if is_switch(name) => options.keep((SOL_SOCKET, name), (plain != 0).into()),
        _ => return Err(Errno::NOPROTOOPT),
    }
    drop(options);
    match name {
        SO_SNDBUF | SO_RCVBUF | SO_SNDBUFFORCE | SO_RCVBUFFORCE => access.apply_to_all(),
        SO_LINGER => access.socket.show_linger(),
        _ => {}
    }
    Ok(())
}

/// Refuses to bind to a device: packets leave through the daemon's socket by the routes. An empty name is accepted.
fn bind_to_device(name: &[u8]) -> Result<(), Errno> {
    if name.first().is_none_or(|first| *first == 0) { Ok(()) } else { Err(Errno::NOPROTOOPT) }
}

fn of_socket(access: &Access<'_>, name: i32) -> Result<Vec<u8>, Errno> {
    let options = access.options();
    Ok(number(match name {
        SO_REUSEADDR => options.reuses_address().into(),
        SO_SNDBUF => i32::try_from(options.send_buffer_bytes()).unwrap_or(i32::MAX),
        SO_RCVBUF => i32::try_from(options.receive_buffer_bytes()).unwrap_or(i32::MAX),
        SO_ACCEPTCONN => access.socket.listens().into(),
        SO_LINGER => {
            let linger = options.linger();
            return Ok(Build::new().u32(linger.on.into()).u32(linger.seconds.cast_unsigned()).finish());
        }
        SO_RCVLOWAT => options.kept((SOL_SOCKET, name)).unwrap_or(1),
        SO_SNDLOWAT => 1,
        SO_BINDTODEVICE => return Ok(Vec::new()),
        SO_MARK => 0,
        SO_PRIORITY | SO_BUSY_POLL => options.kept((SOL_SOCKET, name)).unwrap_or(0),
        // No process: only AF_UNIX sockets know their peer's.
        SO_PEERCRED => return Ok(Build::new().u32(0).u32(u32::MAX).u32(u32::MAX).finish()),
        SO_PEEK_OFF => return Err(Errno::OPNOTSUPP),
        name if is_switch(name) => options.kept((SOL_SOCKET, name)).unwrap_or(0),
        _ => return Err(Errno::NOPROTOOPT),
    }))
}

fn twice(asked: i32) -> i32 {
    2 * asked.clamp(0, BUFFER_BYTES_MAX)
}

/// Returns the ECN bits of packets: associations mark them ECN-capable.
fn ecn(access: &Access<'_>) -> i32 {
    if access.socket.associations().is_empty() { 0 } else { ECT_0 }
}

/// Sets `IP_TOS` or `IPV6_TCLASS`. On a one-to-one socket, programs cannot set the ECN bits.
fn set_class(access: &mut Access<'_>, option: (i32, i32), asked: i32) {
    let class = if access.is_one_to_one() { asked & !ECN | ecn(access) } else { asked };
    access.options_mut().keep(option, class & 0xff);
    access.apply_to_all();
}

fn class(access: &Access<'_>, option: (i32, i32)) -> i32 {
    access.options().kept(option).unwrap_or(0) | ecn(access)
}

/// Returns the initial value of an IP option. UDP carries the packets, so these options are stored without effect,
/// except for the traffic class.
fn default_of_ip(access: &Access<'_>, name: i32) -> Result<i32, Errno> {
    match name {
        IP_TOS => Ok(ecn(access)),
        IP_TTL => Ok(64),
        IP_MTU_DISCOVER => Ok(IP_PMTUDISC_WANT),
        IP_FREEBIND | IP_RECVERR | IP_TRANSPARENT => Ok(0),
        name if is_told_with_messages(name) => Ok(0),
        _ => Err(Errno::NOPROTOOPT),
    }
}

/// Returns whether an IP option asks for information with each message, which the daemon cannot deliver to the program.
fn is_told_with_messages(name: i32) -> bool {
    let of_packets = matches!(name, IP_RECVOPTS | IP_RETOPTS | IP_RECVTTL | IP_RECVTOS);
    of_packets || matches!(name, IP_PKTINFO | IP_RECVORIGDSTADDR)
}

/// Sets an IP option from an `int` or a single byte.
fn set_of_ip(access: &mut Access<'_>, name: i32, value: &[u8]) -> Result<(), Errno> {
    default_of_ip(access, name)?;
    let plain = match (Value::at_least(value, 4), value.first()) {
        (Ok(value), _) => value.i32(0),
        (Err(_), Some(byte)) => (*byte).into(),
        (Err(_), None) if name == IP_TOS => 0,
        (Err(_), None) => return Err(Errno::INVAL),
    };
    let value = match name {
        IP_TOS => {
            set_class(access, (IPPROTO_IP, name), plain);
            return Ok(());
        }
        IP_TTL if plain == -1 => 64,
        IP_TTL if !(1..=255).contains(&plain) => return Err(Errno::INVAL),
        IP_TTL => plain,
        IP_MTU_DISCOVER if !(0..=IP_PMTUDISC_MAX).contains(&plain) => return Err(Errno::INVAL),
        IP_MTU_DISCOVER => plain,
        name if is_told_with_messages(name) && plain != 0 => return Err(Errno::NOPROTOOPT),
        IP_TRANSPARENT if plain != 0 => return Err(Errno::PERM),
        _ => (plain != 0).into(),
    };
    access.options_mut().keep((IPPROTO_IP, name), value);
    Ok(())
}

fn of_ip(access: &Access<'_>, name: i32, given: &[u8]) -> Result<Vec<u8>, Errno> {
    if name == IP_MTU {
        return mtu(access).map(number).ok_or(Errno::NOTCONN);
    }
    let default = default_of_ip(access, name)?;
    let value = match name {
        IP_TOS => class(access, (IPPROTO_IP, name)),
        _ => access.options().kept((IPPROTO_IP, name)).unwrap_or(default),
    };
    Ok(match (given.len(), u8::try_from(value)) {
        (1..4, Ok(byte)) => vec![byte],
        _ => number(value),
    })
}

/// Returns the MTU of the narrowest path of a one-to-one socket's association.
fn mtu(access: &Access<'_>) -> Option<i32> {
    let assoc = access.is_one_to_one().then(|| access.association(FUTURE)).flatten()?;
    i32::try_from(assoc.narrowest_mtu()?).ok()
}

fn set_of_ipv6(access: &mut Access<'_>, name: i32, value: &[u8]) -> Result<(), Errno> {
    let plain = Value::at_least(value, 4).map(|value| value.i32(0));
    match name {
        // As in the kernel: the ports that the socket holds, and the addresses of its associations, depend on the option.
        IPV6_V6ONLY if access.socket.has_port() => return Err(Errno::INVAL),
        IPV6_V6ONLY => access.options_mut().set_v6_only(plain? != 0),
        IPV6_TCLASS => match plain? {
            // The initial value of RFC 3542 §6.5.
            -1 => set_class(access, (IPPROTO_IPV6, name), 0),
            class @ 0..=0xff => set_class(access, (IPPROTO_IPV6, name), class),
            _ => return Err(Errno::INVAL),
        },
        _ => return Err(Errno::NOPROTOOPT),
    }
    Ok(())
}

fn of_ipv6(access: &Access<'_>, name: i32) -> Result<Vec<u8>, Errno> {
    match name {
        IPV6_V6ONLY => Ok(number(access.options().v6_only().into())),
        IPV6_TCLASS => Ok(number(class(access, (IPPROTO_IPV6, name)))),
        _ => Err(Errno::NOPROTOOPT),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{get, set_now};
    use super::*;
    use crate::calls::bind::bound;
    use crate::channel::style::Style;
    use crate::testing::{opened_v6, registry};

    #[tokio::test(flavor = "local")]
    async fn the_families_of_a_socket_are_final_once_it_has_a_port() {
        let registry = registry();
        for style in [Style::OneToOne, Style::OneToMany] {
            let (socket, _program_end) = opened_v6(&registry, style);
            let option = (IPPROTO_IPV6, IPV6_V6ONLY);
            let set = |on: i32| set_now(&socket, option, &on.to_ne_bytes()).map(drop);
            assert_eq!((set(0), set(1)), (Ok(()), Ok(())), "{style:?}");
            bound(&registry, &socket).expect("a free port");
            assert_eq!((set(0), set(1)), (Err(Errno::INVAL), Err(Errno::INVAL)), "{style:?}");
            assert_eq!(get(&socket, option, &[0; 4]), Ok(number(1)), "{style:?}");
        }
    }
}
