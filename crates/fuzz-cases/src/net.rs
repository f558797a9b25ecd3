//! The nets that packets cross: what they lose, and how long they take while the middle is honest.

use std::net::IpAddr;
use std::time::Duration;

/// How many there are. The number of its net is the second byte of an address.
pub(crate) const COUNT: usize = 2;
/// The least time that an honest net takes.
pub(crate) const DELAY_MIN: Duration = Duration::from_millis(1);

/// Fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Crosses,
    Lost,
    /// It is too long, and its sender hears of that.
    Returned {
        mtu_bytes: usize,
    },
}

/// One net.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Net {
    pub(crate) up: bool,
    pub(crate) delay: Duration,
    /// The longest packet that crosses it uncut.
    mtu_bytes: usize,
    /// Whether it says so to who has sent a longer one.
    tells: bool,
}

impl Default for Net {
    fn default() -> Self {
        Net { up: true, delay: DELAY_MIN, mtu_bytes: usize::MAX, tells: true }
    }
}

impl Net {
    /// Changes one property of the net. A net with an MTU below RFC 8899's base reports packets that are too long, because
    /// path MTU discovery would not find it otherwise.
    pub(crate) fn change(&mut self, what: u8) {
        let ms = Duration::from_millis;
        match what % 16 {
            0..=3 => self.up = !self.up,
            4 => self.delay = DELAY_MIN,
            5 => self.delay = ms(10),
            6 => self.delay = ms(100),
            7 => self.delay = ms(400),
            8 => (self.mtu_bytes, self.tells) = (usize::MAX, true),
            9 => (self.mtu_bytes, self.tells) = (1400, true),
            10 => (self.mtu_bytes, self.tells) = (1200, true),
            11 => (self.mtu_bytes, self.tells) = (600, true),
            12 => (self.mtu_bytes, self.tells) = (9000, false),
            13 => (self.mtu_bytes, self.tells) = (1400, false),
            _ => (self.mtu_bytes, self.tells) = (1200, false),
        }
    }

    /// Returns the fate of a packet of `bytes`; `uncut`: routers may not cut it.
    pub(crate) fn fate(&self, bytes: usize, uncut: bool) -> Fate {
        match self {
            Net { up: false, .. } => Fate::Lost,
            _ if !uncut || bytes <= self.mtu_bytes => Fate::Crosses,
            Net { tells: true, mtu_bytes, .. } => Fate::Returned { mtu_bytes: *mtu_bytes },
            _ => Fate::Lost,
        }
    }
}

/// Returns the net of an address; the first one for those that are on none.
pub(crate) fn of(address: IpAddr) -> usize {
    match address.to_canonical() {
        IpAddr::V4(v4) => usize::from(v4.octets()[1]) % COUNT,
        IpAddr::V6(_) => 0,
    }
}
