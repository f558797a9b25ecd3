//! Names: of the daemon, and of its end of each carrier.
//!
//! Both are in the abstract namespace of AF_UNIX, which belongs to the network namespace, as a daemon does. So nothing is
//! left in a file system after a crash, and containers with a network of their own have a daemon of their own.

use std::ffi::CStr;

/// Where the daemon takes requests, in the abstract namespace (without the leading zero byte).
pub const DAEMON: &str = "swiftwater";

/// The variable of the environment that names another: a path, or `@` and an abstract name.
pub const DAEMON_VARIABLE: &CStr = c"SWIFTWATER_DAEMON";

/// The variable of the environment by which `swiftwater run` says that a program may start a daemon where the one that it had is
/// gone: one that ends by itself when nobody needs it.
pub const ON_DEMAND_VARIABLE: &CStr = c"SWIFTWATER_ON_DEMAND";

const PREFIX: &[u8] = b"swiftwater:";
const HEX_DIGITS: usize = 16;

/// Bytes of the name of a carrier's end, without the leading zero byte.
pub const CARRIER_NAME_BYTES: usize = PREFIX.len() + HEX_DIGITS + 1 + HEX_DIGITS;

/// The name of the daemon's end of a carrier: which daemon, and which of its sockets.
///
/// ```
/// use swiftwater_carrier::name::CarrierName;
///
/// let name = CarrierName { daemon: 0xfeed, socket: 7 };
/// assert_eq!(&name.encode(), b"swiftwater:000000000000feed:0000000000000007");
/// assert_eq!(CarrierName::parse(&name.encode()), Some(name));
/// assert_eq!(CarrierName::parse(b"/run/something.sock"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CarrierName {
    /// A random number that each daemon draws when it starts.
    pub daemon: u64,
    /// The number of the socket there.
    pub socket: u64,
}

impl CarrierName {
    /// The name, without the leading zero byte of the abstract namespace.
    pub fn encode(&self) -> [u8; CARRIER_NAME_BYTES] {
        let mut out = [0; CARRIER_NAME_BYTES];
        let (prefix, numbers) = out.split_at_mut(PREFIX.len());
        prefix.copy_from_slice(PREFIX);
        numbers[HEX_DIGITS] = b':';
        write_hex(&mut numbers[..HEX_DIGITS], self.daemon);
        write_hex(&mut numbers[HEX_DIGITS + 1..], self.socket);
        out
    }

    /// `None`: it names something else.
    pub fn parse(name: &[u8]) -> Option<CarrierName> {
        let numbers = name.strip_prefix(PREFIX)?;
        let (daemon, socket) = numbers.split_at_checked(HEX_DIGITS)?;
        Some(CarrierName { daemon: read_hex(daemon)?, socket: read_hex(socket.strip_prefix(b":")?)? })
    }
}

fn write_hex(out: &mut [u8], number: u64) {
    const DIGITS: [u8; 16] = *b"0123456789abcdef";
    for (place, shift) in out.iter_mut().zip((0..64).step_by(4).rev()) {
        *place = DIGITS[(number >> shift & 0xf) as usize];
    }
}

fn read_hex(digits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok()?;
    let plain = digits.len() == HEX_DIGITS && digits.iter().all(u8::is_ascii_hexdigit);
    plain.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}
