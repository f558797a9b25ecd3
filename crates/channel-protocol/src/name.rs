//! Names of the daemon, and of its end of each pair.
//!
//! Both are in the abstract namespace of AF_UNIX, which belongs to the network namespace, as a daemon does. So nothing stays in a
//! file system after a crash, and containers with their own network have their own daemon.

use std::ffi::CStr;

/// Default address for requests to the daemon, in the abstract namespace (without the leading zero byte).
pub const DAEMON: &str = "swiftwater";

/// Environment variable that names another address: a path, or `@` and an abstract name.
pub const DAEMON_VARIABLE: &CStr = c"SWIFTWATER_DAEMON";

/// Environment variable by which `swiftwater run` allows a program to start a daemon if the earlier one has ended: one that ends
/// by itself when no program needs it.
pub const ON_DEMAND_VARIABLE: &CStr = c"SWIFTWATER_ON_DEMAND";

/// Environment variable by which `swiftwater run --tcp-as-sctp` turns TCP sockets into SCTP sockets.
pub const TCP_AS_SCTP_VARIABLE: &CStr = c"SWIFTWATER_TCP_AS_SCTP";

/// Environment variable by which `swiftwater run --quiet` silences the shim's warnings.
pub const QUIET_VARIABLE: &CStr = c"SWIFTWATER_QUIET";

const PREFIX: &[u8] = b"swiftwater:";
const HEX_DIGITS: usize = 32;

/// Length of the name of a pair's end, without the leading zero byte.
pub const PAIR_NAME_BYTES: usize = PREFIX.len() + HEX_DIGITS;

/// The name of the daemon's end of a pair.
///
/// The name is a hint: a shim asks the daemon only about descriptors whose peer has a name of this form. It proves nothing,
/// because any program may bind a socket to such a name. It is random, so that no process can take it before the daemon does.
///
/// ```
/// use swiftwater_channel_protocol::name::PairName;
///
/// let name = PairName::from_random(0xfeed);
/// assert_eq!(name.as_bytes(), b"swiftwater:0000000000000000000000000000feed");
/// assert!(PairName::is_one(name.as_bytes()));
/// assert!(!PairName::is_one(b"/run/something.sock"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairName([u8; PAIR_NAME_BYTES]);

impl PairName {
    /// Makes a name from a random number.
    pub fn from_random(number: u128) -> PairName {
        const DIGITS: [u8; 16] = *b"0123456789abcdef";
        let mut name = [0; PAIR_NAME_BYTES];
        let (prefix, digits) = name.split_at_mut(PREFIX.len());
        prefix.copy_from_slice(PREFIX);
        for (place, shift) in digits.iter_mut().zip((0..u128::BITS).step_by(4).rev()) {
            *place = DIGITS[(number >> shift & 0xf) as usize];
        }
        PairName(name)
    }

    /// Returns the name without the leading zero byte of the abstract namespace.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns whether `name`, without its leading zero byte, has the form of a pair's.
    pub fn is_one(name: &[u8]) -> bool {
        let digits = name.strip_prefix(PREFIX);
        digits.is_some_and(|digits| digits.len() == HEX_DIGITS && digits.iter().all(u8::is_ascii_hexdigit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_prefix_with_so_many_digits_is_a_name() {
        let name = PairName::from_random(0x0123_4567_89ab_cdef_0f1e_2d3c_4b5a_6978);
        let text = b"swiftwater:0123456789abcdef0f1e2d3c4b5a6978";
        assert_eq!(name.as_bytes(), text);
        assert!(PairName::is_one(text));
        for length in 0..text.len() {
            assert!(!PairName::is_one(&text[..length]), "{length}");
        }
        assert!(!PairName::is_one(&[text, &b"0"[..]].concat()));
        for at in 0..text.len() {
            let mut other = *text;
            other[at] = b'g';
            assert!(!PairName::is_one(&other), "{at}");
        }
    }
}
