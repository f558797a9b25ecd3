//! The state cookie: everything that an association needs, sealed, so that an INIT leaves no state
//! behind (RFC 9260 §5.1.3).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use hmac::{Hmac, Mac};
use sha2::Sha256;

use crate::config::PEER_ADDRESSES_MAX;
use crate::time::Time;

/// Life of a sealing key; the one before it is still accepted.
const KEY_LIFE: Duration = Duration::from_secs(600);
const MAC_BYTES: usize = 32;
const FIXED_BYTES: usize = 8 + 7 * 4 + 4 * 2;

/// What the cookie carries. Numbers are in host terms; the cookie is opaque to the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StateCookie {
    pub(crate) created: Time,
    pub(crate) local_tag: u32,
    pub(crate) peer_tag: u32,
    pub(crate) local_initial_tsn: u32,
    pub(crate) peer_initial_tsn: u32,
    pub(crate) peer_window_bytes: u32,
    pub(crate) local_port: u16,
    pub(crate) peer_port: u16,
    pub(crate) streams_out: u16,
    pub(crate) streams_in: u16,
    /// Tags of the association that the INIT met, if any (RFC 9260 §5.2.2); zero otherwise.
    pub(crate) tie_local_tag: u32,
    pub(crate) tie_peer_tag: u32,
    /// The peer's addresses. The first is the one that the INIT came from; the cookie is good from these alone.
    pub(crate) addresses: Vec<IpAddr>,
}

/// Why a cookie was not accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum CookieError {
    /// Not ours, or changed on the way.
    Invalid,
    /// Ours, but too old.
    Stale {
        /// By how much.
        by: Duration,
        /// What it carries.
        cookie: Box<StateCookie>,
    },
}

/// Seals and opens cookies with keys that change with time.
#[derive(Debug)]
pub(crate) struct CookieJar {
    secret: [u8; 32],
}

impl CookieJar {
    pub(crate) fn new(secret: [u8; 32]) -> Self {
        CookieJar { secret }
    }

    pub(crate) fn seal(&self, cookie: &StateCookie) -> Vec<u8> {
        let mut out = Vec::with_capacity(FIXED_BYTES + cookie.addresses.len() * 17 + MAC_BYTES);
        out.extend_from_slice(&cookie.created.as_nanos().to_be_bytes());
        for word in [
            cookie.local_tag,
            cookie.peer_tag,
            cookie.local_initial_tsn,
            cookie.peer_initial_tsn,
            cookie.peer_window_bytes,
            cookie.tie_local_tag,
            cookie.tie_peer_tag,
        ] {
            out.extend_from_slice(&word.to_be_bytes());
        }
        for half in [cookie.local_port, cookie.peer_port, cookie.streams_out, cookie.streams_in] {
            out.extend_from_slice(&half.to_be_bytes());
        }
        for address in cookie.addresses.iter().take(PEER_ADDRESSES_MAX) {
            match address {
                IpAddr::V4(v4) => {
                    out.push(4);
                    out.extend_from_slice(&v4.octets());
                }
                IpAddr::V6(v6) => {
                    out.push(6);
                    out.extend_from_slice(&v6.octets());
                }
            }
        }
        let mac = self.mac(epoch(cookie.created), &out).finalize().into_bytes();
        out.extend_from_slice(&mac);
        out
    }

    pub(crate) fn open(&self, bytes: &[u8], now: Time, life: Duration) -> Result<StateCookie, CookieError> {
        let body_bytes = bytes.len().checked_sub(MAC_BYTES).ok_or(CookieError::Invalid)?;
        let (body, mac) = bytes.split_at(body_bytes);
        let created = Time::from_nanos(u64::from_be_bytes(array(body, 0)?));
        let current = epoch(now);
        let sealed = epoch(created);
        if sealed > current || sealed + 1 < current {
            return Err(CookieError::Invalid);
        }
        self.mac(sealed, body).verify_slice(mac).map_err(|_| CookieError::Invalid)?;
        let word = |i: usize| array(body, 8 + 4 * i).map(u32::from_be_bytes);
        let half = |i: usize| array(body, 36 + 2 * i).map(u16::from_be_bytes);
        let cookie = StateCookie {
            created,
            local_tag: word(0)?,
            peer_tag: word(1)?,
            local_initial_tsn: word(2)?,
            peer_initial_tsn: word(3)?,
            peer_window_bytes: word(4)?,
            tie_local_tag: word(5)?,
            tie_peer_tag: word(6)?,
            local_port: half(0)?,
            peer_port: half(1)?,
            streams_out: half(2)?,
            streams_in: half(3)?,
            addresses: addresses(&body[44..])?,
        };
        let age = now.saturating_since(created);
        if age > life {
            return Err(CookieError::Stale { by: age - life, cookie: Box::new(cookie) });
        }
        Ok(cookie)
    }

    fn mac(&self, epoch: u64, body: &[u8]) -> Hmac<Sha256> {
        let mut mac =
            <Hmac<Sha256> as Mac>::new_from_slice(&self.secret).expect("HMAC takes a key of any length");
        mac.update(&epoch.to_be_bytes());
        mac.update(body);
        mac
    }
}

fn epoch(t: Time) -> u64 {
    t.as_nanos() / KEY_LIFE.as_nanos() as u64
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], CookieError> {
    bytes.get(at..at + N).and_then(|b| b.try_into().ok()).ok_or(CookieError::Invalid)
}

fn addresses(mut rest: &[u8]) -> Result<Vec<IpAddr>, CookieError> {
    let mut out = Vec::new();
    while let [family, tail @ ..] = rest {
        let used = match family {
            4 => {
                out.push(IpAddr::V4(Ipv4Addr::from(array::<4>(tail, 0)?)));
                4
            }
            6 => {
                out.push(IpAddr::V6(Ipv6Addr::from(array::<16>(tail, 0)?)));
                16
            }
            _ => return Err(CookieError::Invalid),
        };
        rest = &tail[used..];
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cookie(created: Time) -> StateCookie {
        StateCookie {
            created,
            local_tag: 1,
            peer_tag: 2,
            local_initial_tsn: 3,
            peer_initial_tsn: 4,
            peer_window_bytes: 5,
            local_port: 6,
            peer_port: 7,
            streams_out: 8,
            streams_in: 9,
            tie_local_tag: 10,
            tie_peer_tag: 11,
            addresses: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
        }
    }

    #[test]
    fn what_was_sealed_opens() {
        let jar = CookieJar::new([7; 32]);
        let now = Time::from_nanos(5);
        assert_eq!(jar.open(&jar.seal(&cookie(now)), now, Duration::from_secs(60)), Ok(cookie(now)));
    }

    #[test]
    fn any_changed_or_missing_byte_is_noticed() {
        let jar = CookieJar::new([7; 32]);
        let now = Time::from_nanos(5);
        let sealed = jar.seal(&cookie(now));
        for i in 0..sealed.len() {
            let mut bad = sealed.clone();
            bad[i] ^= 1;
            assert!(jar.open(&bad, now, Duration::from_secs(60)).is_err(), "byte {i}");
            assert!(jar.open(&sealed[..i], now, Duration::from_secs(60)).is_err(), "length {i}");
        }
        assert_eq!(
            CookieJar::new([8; 32]).open(&sealed, now, Duration::from_secs(60)),
            Err(CookieError::Invalid)
        );
    }

    #[test]
    fn an_old_cookie_is_stale_and_a_very_old_one_invalid() {
        let jar = CookieJar::new([7; 32]);
        let sealed = jar.seal(&cookie(Time::ZERO));
        let life = Duration::from_secs(60);
        assert_eq!(
            jar.open(&sealed, Time::ZERO + Duration::from_secs(61), life),
            Err(CookieError::Stale { by: Duration::from_secs(1), cookie: Box::new(cookie(Time::ZERO)) })
        );
        assert_eq!(jar.open(&sealed, Time::ZERO + KEY_LIFE * 2, life), Err(CookieError::Invalid));
    }
}
