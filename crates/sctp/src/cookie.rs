//! The state cookie: the sealed state of an association, so that an INIT leaves no state behind (RFC 9260 §5.1.3).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use hmac::{Hmac, Mac};
use sctp_wire::{Tsn, VerificationTag};
use sha2::Sha256;
use siphasher::sip::SipHasher13;

use crate::config::PEER_ADDRESSES_MAX;
use crate::extensions::Extensions;
use crate::time::Time;

/// Lifetime of a sealing key. The previous key still opens cookies.
const KEY_LIFE: Duration = Duration::from_secs(600);
/// HMAC-SHA-256 truncated to its first half (RFC 2104 §5), so that an INIT ACK is not much longer than its INIT.
const MAC_BYTES: usize = 16;
/// A keyed hash of the sealed bytes, in front of the MAC. It costs a few nanoseconds instead of hundreds, so that a
/// flood of random cookies is cheap to refuse; nothing else depends on it.
const SIEVE_BYTES: usize = 4;
/// The mark at the beginning, by which a link can refuse random cookies (see [`CookieMark`]).
const MARK_BYTES: usize = 4;
const WORDS: usize = 8;
const HALVES: usize = 5;
const FIXED_BYTES: usize = MARK_BYTES + 8 + WORDS * 4 + HALVES * 2;
/// Kinds of the parts behind the fixed part: one byte for the kind, then the content.
const ADAPTATION: u8 = 1;
const V4: u8 = 4;
const V6: u8 = 6;
const BYTES_MAX: usize = FIXED_BYTES + 5 + 17 * PEER_ADDRESSES_MAX + SIEVE_BYTES + MAC_BYTES;

/// Contents of the cookie. Numbers are in host terms; the cookie is opaque to the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StateCookie {
    pub(crate) created: Time,
    /// Lifetime of the cookie. No cookie outlives the keys.
    pub(crate) life: Duration,
    pub(crate) local_tag: VerificationTag,
    pub(crate) peer_tag: VerificationTag,
    pub(crate) local_initial_tsn: Tsn,
    pub(crate) peer_initial_tsn: Tsn,
    pub(crate) peer_window_bytes: u32,
    pub(crate) local_port: u16,
    pub(crate) peer_port: u16,
    pub(crate) streams_out: u16,
    pub(crate) streams_in: u16,
    /// Extensions that both sides support.
    pub(crate) extensions: Extensions,
    /// Adaptation layer indication of the peer.
    pub(crate) adaptation: Option<u32>,
    /// Tie-tags of the association that the INIT has met, if any (RFC 9260 §5.2.2).
    pub(crate) ties: TieTags,
    /// The peer's addresses. The first is the source of the INIT; the cookie is valid only from these addresses.
    pub(crate) addresses: Vec<IpAddr>,
}

/// Numbers that identify an association in a cookie for a possible restart. They are not its verification tags, since
/// any sender can request such a cookie. Zero: no association existed (RFC 9260 §5.2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TieTags {
    local: u32,
    peer: u32,
}

/// The relation between the verification tag of a COOKIE ECHO and the first four bytes of its cookie, which a link can check in
/// the kernel. Whoever has received cookies can compute it, or repeat one with its tag; so a right mark proves nothing, and a
/// wrong one that the cookie is not from this endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CookieMark {
    /// Combined with the tag by exclusive or.
    pub mask: u32,
    /// Factor of the result; an odd number.
    pub factor: u32,
}

impl CookieMark {
    /// Returns the first bytes of a cookie for this tag, as a big-endian number.
    fn of(self, tag: VerificationTag) -> u32 {
        (tag.0 ^ self.mask).wrapping_mul(self.factor)
    }
}

/// Reason why a cookie was not accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum CookieError {
    /// The cookie was not made by this endpoint, or was changed on the way.
    Invalid,
    /// The cookie is valid, but too old.
    Stale {
        /// Time since the end of its lifetime.
        by: Duration,
        /// Contents of the cookie.
        cookie: Box<StateCookie>,
    },
}

/// Seals and opens cookies with keys that change over time (RFC 9260 §5.1.3). Each key is derived from the previous one
/// by a one-way function, so deleted keys cannot be recovered.
#[derive(Debug)]
pub(crate) struct CookieJar {
    epoch: u64,
    current: Key,
    previous: Option<Key>,
    tie_key: Key,
    /// The key of the keyed hash, which stays: without this hash, refusing cookies costs only a little more.
    sieve_keys: (u64, u64),
    /// It stays, too.
    mark: CookieMark,
}

type Key = [u8; 32];

impl CookieJar {
    pub(crate) fn new(secret: Key, sieve_keys: (u64, u64)) -> Self {
        let of_mark = SipHasher13::new_with_keys(sieve_keys.1, sieve_keys.0).hash(b"mark");
        CookieJar {
            epoch: 0,
            current: derive(&secret, b"seal"),
            previous: None,
            tie_key: derive(&secret, b"tie"),
            sieve_keys,
            mark: CookieMark { mask: of_mark as u32, factor: (of_mark >> 32) as u32 | 1 },
        }
    }

    /// Returns the mark of all cookies.
    pub(crate) fn mark(&self) -> CookieMark {
        self.mark
    }

    /// Returns the tie-tags for an association with these tags.
    pub(crate) fn tie_tags(&self, local_tag: VerificationTag, peer_tag: VerificationTag) -> TieTags {
        let (local, peer) = (local_tag.0.to_be_bytes(), peer_tag.0.to_be_bytes());
        let mac = keyed(&self.tie_key).chain_update(local).chain_update(peer);
        let digest: Key = mac.finalize().into_bytes().into();
        let word =
            |at: usize| u32::from_be_bytes([digest[at], digest[at + 1], digest[at + 2], digest[at + 3]]);
        TieTags { local: word(0).max(1), peer: word(4).max(1) }
    }

    /// Seals a cookie made at `now`.
    pub(crate) fn seal(&mut self, cookie: &StateCookie) -> Vec<u8> {
        self.change_keys(cookie.created);
        let mut out = Vec::with_capacity(FIXED_BYTES + cookie.addresses.len() * 17 + SIEVE_BYTES + MAC_BYTES);
        out.extend_from_slice(&self.mark.of(cookie.local_tag).to_be_bytes());
        out.extend_from_slice(&cookie.created.as_nanos().to_be_bytes());
        let life = cookie.life.min(KEY_LIFE).as_millis() as u32;
        let words: [u32; WORDS] = [
            life,
            cookie.local_tag.0,
            cookie.peer_tag.0,
            cookie.local_initial_tsn.0,
            cookie.peer_initial_tsn.0,
            cookie.peer_window_bytes,
            cookie.ties.local,
            cookie.ties.peer,
        ];
        for word in words {
            out.extend_from_slice(&word.to_be_bytes());
        }
        let halves: [u16; HALVES] = [
            cookie.local_port,
            cookie.peer_port,
            cookie.streams_out,
            cookie.streams_in,
            cookie.extensions.to_bits(),
        ];
        for half in halves {
            out.extend_from_slice(&half.to_be_bytes());
        }
        if let Some(adaptation) = cookie.adaptation {
            out.push(ADAPTATION);
            out.extend_from_slice(&adaptation.to_be_bytes());
        }
        for address in cookie.addresses.iter().take(PEER_ADDRESSES_MAX) {
            match address {
                IpAddr::V4(v4) => {
                    out.push(V4);
                    out.extend_from_slice(&v4.octets());
                }
                IpAddr::V6(v6) => {
                    out.push(V6);
                    out.extend_from_slice(&v6.octets());
                }
            }
        }
        let sieve = self.sieve(&out);
        let mac = keyed(&self.current).chain_update(&out).finalize().into_bytes();
        out.extend_from_slice(&sieve);
        out.extend_from_slice(&mac[..MAC_BYTES]);
        out
    }

    /// Opens a cookie (RFC 9260 §5.1.5, 1, 2 and 4).
    pub(crate) fn open(&mut self, bytes: &[u8], now: Time) -> Result<StateCookie, CookieError> {
        self.change_keys(now);
        // Cookies of other lengths are refused without a digest.
        if bytes.len() > BYTES_MAX {
            return Err(CookieError::Invalid);
        }
        let body_bytes = bytes.len().checked_sub(SIEVE_BYTES + MAC_BYTES).ok_or(CookieError::Invalid)?;
        let (body, seal) = bytes.split_at(body_bytes);
        let (sieve, mac) = seal.split_at(SIEVE_BYTES);
        if sieve != self.sieve(body) {
            return Err(CookieError::Invalid);
        }
        let created = Time::from_nanos(u64::from_be_bytes(array(body, MARK_BYTES)?));
        let key = match self.epoch.checked_sub(epoch(created)) {
            Some(0) => Some(&self.current),
            Some(1) => self.previous.as_ref(),
            _ => None,
        };
        let mac_of_body = keyed(key.ok_or(CookieError::Invalid)?).chain_update(body);
        mac_of_body.verify_truncated_left(mac).map_err(|_| CookieError::Invalid)?;
        let word = |i: usize| array(body, MARK_BYTES + 8 + 4 * i).map(u32::from_be_bytes);
        let half = |i: usize| array(body, MARK_BYTES + 8 + 4 * WORDS + 2 * i).map(u16::from_be_bytes);
        let (adaptation, addresses) = tail(&body[FIXED_BYTES..])?;
        let cookie = StateCookie {
            created,
            life: Duration::from_millis(word(0)?.into()),
            local_tag: VerificationTag(word(1)?),
            peer_tag: VerificationTag(word(2)?),
            local_initial_tsn: Tsn(word(3)?),
            peer_initial_tsn: Tsn(word(4)?),
            peer_window_bytes: word(5)?,
            ties: TieTags { local: word(6)?, peer: word(7)? },
            local_port: half(0)?,
            peer_port: half(1)?,
            streams_out: half(2)?,
            streams_in: half(3)?,
            extensions: Extensions::from_bits(half(4)?),
            adaptation,
            addresses,
        };
        let age = now.saturating_since(created);
        if age > cookie.life {
            return Err(CookieError::Stale { by: age - cookie.life, cookie: Box::new(cookie) });
        }
        Ok(cookie)
    }

    fn sieve(&self, body: &[u8]) -> [u8; SIEVE_BYTES] {
        let hash = SipHasher13::new_with_keys(self.sieve_keys.0, self.sieve_keys.1).hash(body);
        (hash as u32).to_be_bytes()
    }

    /// Derives new keys when the lifetime of the old ones has ended.
    fn change_keys(&mut self, now: Time) {
        let passed = epoch(now).saturating_sub(self.epoch);
        // After two changes, no key is left that opens an old cookie.
        for _ in 0..passed.min(2) {
            let next = derive(&self.current, b"next");
            self.previous = Some(std::mem::replace(&mut self.current, next));
        }
        self.epoch += passed;
    }
}

/// Derives a key that reveals nothing about the original one.
fn derive(key: &Key, purpose: &[u8]) -> Key {
    keyed(key).chain_update(purpose).finalize().into_bytes().into()
}

fn keyed(key: &Key) -> Hmac<Sha256> {
    <Hmac<Sha256> as Mac>::new_from_slice(key).expect("HMAC takes a key of any length")
}

fn epoch(t: Time) -> u64 {
    t.as_nanos() / KEY_LIFE.as_nanos() as u64
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], CookieError> {
    bytes.get(at..at + N).and_then(|b| b.try_into().ok()).ok_or(CookieError::Invalid)
}

/// Parses the parts that follow the fixed part: the adaptation layer indication of the peer, and its addresses.
fn tail(mut rest: &[u8]) -> Result<(Option<u32>, Vec<IpAddr>), CookieError> {
    let (mut adaptation, mut addresses) = (None, Vec::new());
    while let [what, tail @ ..] = rest {
        let used = match *what {
            ADAPTATION => {
                adaptation = Some(u32::from_be_bytes(array(tail, 0)?));
                4
            }
            V4 => {
                addresses.push(IpAddr::V4(Ipv4Addr::from(array::<4>(tail, 0)?)));
                4
            }
            V6 => {
                addresses.push(IpAddr::V6(Ipv6Addr::from(array::<16>(tail, 0)?)));
                16
            }
            _ => return Err(CookieError::Invalid),
        };
        rest = &tail[used..];
    }
    Ok((adaptation, addresses))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIEVE_KEYS: (u64, u64) = (5, 6);

    fn cookie(created: Time) -> StateCookie {
        StateCookie {
            created,
            life: Duration::from_secs(60),
            local_tag: VerificationTag(1),
            peer_tag: VerificationTag(2),
            local_initial_tsn: Tsn(3),
            peer_initial_tsn: Tsn(4),
            peer_window_bytes: 5,
            local_port: 6,
            peer_port: 7,
            streams_out: 8,
            streams_in: 9,
            extensions: Extensions { ecn: true, ..Extensions::default() },
            ties: TieTags { local: 10, peer: 11 },
            adaptation: Some(12),
            addresses: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
        }
    }

    #[test]
    fn a_sealed_cookie_opens() {
        let mut jar = CookieJar::new([7; 32], SIEVE_KEYS);
        let now = Time::from_nanos(5);
        let sealed = jar.seal(&cookie(now));
        assert_eq!(jar.open(&sealed, now), Ok(cookie(now)));
    }

    #[test]
    fn any_changed_or_missing_byte_is_noticed() {
        let mut jar = CookieJar::new([7; 32], SIEVE_KEYS);
        let now = Time::from_nanos(5);
        let sealed = jar.seal(&cookie(now));
        for i in 0..sealed.len() {
            let mut bad = sealed.clone();
            bad[i] ^= 1;
            assert!(jar.open(&bad, now).is_err(), "byte {i}");
            assert!(jar.open(&sealed[..i], now).is_err(), "length {i}");
        }
        assert_eq!(CookieJar::new([8; 32], SIEVE_KEYS).open(&sealed, now), Err(CookieError::Invalid));
    }

    #[test]
    fn a_random_cookie_does_not_pass_the_sieve_and_one_that_passes_needs_the_mac() {
        let mut jar = CookieJar::new([7; 32], SIEVE_KEYS);
        let now = Time::from_nanos(5);
        let mut sealed = jar.seal(&cookie(now));
        // The right MAC alone is not enough: the sieve comes first.
        let sieve_at = sealed.len() - MAC_BYTES - SIEVE_BYTES;
        sealed[sieve_at] ^= 1;
        assert_eq!(jar.open(&sealed, now), Err(CookieError::Invalid));
        // A changed body with the sieve that belongs to it.
        sealed[20] ^= 1;
        let sieve = jar.sieve(&sealed[..sieve_at]);
        sealed[sieve_at..][..SIEVE_BYTES].copy_from_slice(&sieve);
        assert_eq!(jar.open(&sealed, now), Err(CookieError::Invalid));
    }

    #[test]
    fn the_sieve_depends_on_its_keys_and_on_every_byte_of_the_body() {
        let jar = CookieJar::new([7; 32], SIEVE_KEYS);
        let body = [1; 40];
        let sieve = jar.sieve(&body);
        for i in 0..body.len() {
            let mut other = body;
            other[i] ^= 1;
            assert_ne!(jar.sieve(&other), sieve, "byte {i}");
        }
        for keys in [(SIEVE_KEYS.0 ^ 1, SIEVE_KEYS.1), (SIEVE_KEYS.0, SIEVE_KEYS.1 ^ 1)] {
            assert_ne!(CookieJar::new([7; 32], keys).sieve(&body), sieve, "a sender that lacks the keys");
        }
    }

    #[test]
    fn a_cookie_begins_with_the_mark_of_its_tag_for_all_keys() {
        let mut jar = CookieJar::new([7; 32], SIEVE_KEYS);
        let mark = jar.mark();
        let mut began = std::collections::HashSet::new();
        for (tag, created) in [(1, Time::ZERO), (2, Time::ZERO), (u32::MAX, Time::ZERO + KEY_LIFE * 2)] {
            let local_tag = VerificationTag(tag);
            let sealed = jar.seal(&StateCookie { local_tag, ..cookie(created) });
            assert_eq!(array(&sealed, 0).map(u32::from_be_bytes), Ok(mark.of(local_tag)));
            began.insert(mark.of(local_tag));
        }
        assert_eq!(began.len(), 3);
        let other = CookieJar::new([7; 32], (SIEVE_KEYS.0, SIEVE_KEYS.1 + 1)).mark();
        assert!(mark != other && mark.factor % 2 == 1 && other.factor % 2 == 1);
    }

    #[test]
    fn a_cookie_lives_to_the_end_of_its_life_and_no_longer() {
        let mut jar = CookieJar::new([7; 32], SIEVE_KEYS);
        let made = cookie(Time::from_nanos(5));
        let sealed = jar.seal(&made);
        let end = made.created + made.life;
        assert_eq!(jar.open(&sealed, end), Ok(made.clone()));
        let by = Duration::from_nanos(1);
        assert_eq!(jar.open(&sealed, end + by), Err(CookieError::Stale { by, cookie: Box::new(made) }));
    }

    #[test]
    fn a_tie_tag_is_made_of_four_bytes_of_its_own() {
        let jar = CookieJar::new([7; 32], SIEVE_KEYS);
        let mac = keyed(&jar.tie_key).chain_update(1u32.to_be_bytes()).chain_update(2u32.to_be_bytes());
        let digest = mac.finalize().into_bytes();
        let word = |at: usize| u32::from_be_bytes(digest[at..][..4].try_into().unwrap());
        assert_eq!(
            jar.tie_tags(VerificationTag(1), VerificationTag(2)),
            TieTags { local: word(0), peer: word(4) }
        );
    }

    #[test]
    fn the_longest_cookie_of_ours_opens_and_one_byte_more_does_not() {
        let mut jar = CookieJar::new([7; 32], SIEVE_KEYS);
        let addresses = vec!["fd00::1".parse().unwrap(); PEER_ADDRESSES_MAX];
        let longest = StateCookie { addresses, ..cookie(Time::ZERO) };
        let mut sealed = jar.seal(&longest);
        assert_eq!(sealed.len(), BYTES_MAX);
        assert_eq!(jar.open(&sealed, Time::ZERO), Ok(longest));
        // Sealed with the right key, and longer than any cookie of this endpoint.
        sealed.truncate(BYTES_MAX - SIEVE_BYTES - MAC_BYTES);
        sealed.push(V4);
        sealed.extend([10, 0, 0, 1]);
        let sieve = jar.sieve(&sealed);
        let mac = keyed(&jar.current).chain_update(&sealed).finalize().into_bytes();
        sealed.extend_from_slice(&sieve);
        sealed.extend_from_slice(&mac[..MAC_BYTES]);
        assert_eq!(jar.open(&sealed, Time::ZERO), Err(CookieError::Invalid));
    }

    #[test]
    fn an_old_cookie_is_stale_and_a_very_old_one_invalid() {
        let mut jar = CookieJar::new([7; 32], SIEVE_KEYS);
        let sealed = jar.seal(&cookie(Time::ZERO));
        assert_eq!(
            jar.open(&sealed, Time::ZERO + Duration::from_secs(61)),
            Err(CookieError::Stale { by: Duration::from_secs(1), cookie: Box::new(cookie(Time::ZERO)) })
        );
        assert_eq!(jar.open(&sealed, Time::ZERO + KEY_LIFE * 2), Err(CookieError::Invalid));
    }

    #[test]
    fn a_cookie_outlives_one_change_of_keys_and_no_second() {
        let mut jar = CookieJar::new([7; 32], SIEVE_KEYS);
        let created = Time::ZERO + (KEY_LIFE * 3 - Duration::from_secs(1));
        let sealed = jar.seal(&cookie(created));
        let first = jar.current;
        assert_eq!(jar.open(&sealed, created + Duration::from_secs(2)), Ok(cookie(created)));
        assert_ne!(jar.current, first, "the key has changed");
        // Another with the key of that time, made when the key is gone.
        let key_gone = created + KEY_LIFE + Duration::from_secs(2);
        assert_eq!(jar.open(&sealed, key_gone), Err(CookieError::Invalid));
        assert!(jar.current != first && jar.previous != Some(first));
    }

    #[test]
    fn each_key_depends_on_the_secret_and_on_its_purpose() {
        let keys_of = |secret: Key| {
            let mut jar = CookieJar::new(secret, SIEVE_KEYS);
            let first = jar.current;
            jar.change_keys(Time::ZERO + KEY_LIFE);
            [secret, first, jar.current, jar.tie_key]
        };
        let keys = [keys_of([7; 32]), keys_of([8; 32])].concat();
        let distinct: std::collections::HashSet<Key> = keys.iter().copied().collect();
        assert_eq!(distinct.len(), keys.len());
    }

    #[test]
    fn no_key_is_left_after_a_pause_of_two_lives() {
        let mut jar = CookieJar::new([7; 32], SIEVE_KEYS);
        let first = jar.current;
        jar.change_keys(Time::ZERO + KEY_LIFE * 2);
        assert!(jar.current != first && jar.previous != Some(first));
    }

    #[test]
    fn more_addresses_than_a_peer_may_have_are_left_out() {
        let mut jar = CookieJar::new([7; 32], SIEVE_KEYS);
        let addresses: Vec<IpAddr> =
            (0..=PEER_ADDRESSES_MAX as u128).map(|n| Ipv6Addr::from(n).into()).collect();
        let sealed = jar.seal(&StateCookie { addresses: addresses.clone(), ..cookie(Time::ZERO) });
        let opened = jar.open(&sealed, Time::ZERO).unwrap();
        assert_eq!(opened.addresses, addresses[..PEER_ADDRESSES_MAX]);
    }

    #[test]
    fn a_peer_without_an_adaptation_indication_gets_a_shorter_cookie() {
        let mut jar = CookieJar::new([7; 32], SIEVE_KEYS);
        let without = StateCookie { adaptation: None, ..cookie(Time::ZERO) };
        let [long, short] = [&cookie(Time::ZERO), &without].map(|cookie| jar.seal(cookie));
        assert_eq!(long.len(), short.len() + 5);
        assert_eq!(jar.open(&short, Time::ZERO), Ok(without));
    }

    #[test]
    fn no_life_is_longer_than_that_of_a_key() {
        let mut jar = CookieJar::new([7; 32], SIEVE_KEYS);
        let sealed = jar.seal(&StateCookie { life: KEY_LIFE * 100, ..cookie(Time::ZERO) });
        let opened = jar.open(&sealed, Time::ZERO).unwrap();
        assert_eq!(opened.life, KEY_LIFE);
    }

    #[test]
    fn tie_tags_tell_associations_apart_and_show_no_tag() {
        let jar = CookieJar::new([7; 32], SIEVE_KEYS);
        assert_eq!(
            jar.tie_tags(VerificationTag(1), VerificationTag(2)),
            jar.tie_tags(VerificationTag(1), VerificationTag(2))
        );
        assert_ne!(
            jar.tie_tags(VerificationTag(1), VerificationTag(2)),
            jar.tie_tags(VerificationTag(2), VerificationTag(1))
        );
        let ties = jar.tie_tags(VerificationTag(1), VerificationTag(2));
        assert!(ties.local > 2 && ties.peer > 2, "they are no tags: {ties:?}");
        assert_ne!(ties, TieTags::default());
    }
}
