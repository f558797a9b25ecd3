//! Limits answers to strangers by token buckets, with a share for each source prefix.
//!
//! A stranger is a sender that has not shown a verification tag of ours, so its address may be forged. The buckets bound the cost
//! of all answers; the shares determine which strangers a flood takes answers from:
//!
//! - A prefix that asks for little draws from a part that prefixes which ask for much cannot touch.
//! - A flood from forged addresses everywhere asks for little from each. Then peers in a prefix whose peers have completed
//!   a handshake before have a part of their own ([`KnownPrefixes`]): whoever forges addresses has not seen an answer there.
//! - An INIT from another prefix that was not answered is remembered by a hash, and is answered from a part of its own when it
//!   comes again after the time that peers wait (RFC 9260 §5.1: T1-init starts at RTO.Initial). A flood of addresses that are
//!   drawn at random does not repeat itself, and one that sends the same packets over and over repeats them too soon. The same
//!   INIT counts as repeated for the first time once only; later repetitions have a smaller part. So a flood that keeps to the
//!   timing of peers sends two packets for each answer that it takes from first repetitions.
//!
//! Answers of the last two parts count for the share of their prefix, too: a prefix that has had as many as a quiet one may have
//! is busy, and leaves them to others.
//!
//! A keyed hash selects the share, so that no sender can target the share of another; the key changes every ten seconds, so that
//! two prefixes that share one by chance do not do so for long.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use sctp_wire::VerificationTag;
use siphasher::sip::SipHasher13;

use super::known_prefixes::KnownPrefixes;
use crate::source_prefix::SourcePrefix;
use crate::time::Time;

/// Number of shares; prefixes whose hashes collide share one.
const SHARES: usize = 4096;
/// Time after which prefixes that collide are separated.
const SHARES_LIFE: Duration = Duration::from_secs(10);
/// Number of sets of remembered INITs without an answer. Each set drops its oldest: at 100,000 per second one in fifteen is
/// dropped within the 3 s after which Linux repeats an INIT.
const REMEMBERED_SETS: usize = 1 << 16;
const REMEMBERED_IN_SET: usize = 8;
/// Minimum time between an INIT of a peer and its repetition (RFC 9260 §16: RTO.Initial is 1 s). With a shorter RTO.Initial a
/// later repetition qualifies, once the RTO has doubled.
const REPETITION_GAP_MIN: Duration = Duration::from_millis(500);
/// Time after which a repeated INIT counts as a new one.
const REPETITION_GAP_MAX: Duration = Duration::from_secs(10);

/// Rates of answers to INIT and COOKIE ECHO. An answer costs some 6 µs, most of it in the kernel, so a flood from everywhere
/// takes one or two percent of a processor, and one from a few networks as much again; a flood that repeats its INITs as peers do
/// takes a tenth more. An association that a sender sets up costs some 50 µs, so those of a busy prefix have no more than a
/// second's answers at once. Of ten thousand peers behind one address that connect at once, the last are answered when they send
/// their INIT for the fourth time.
const HANDSHAKES: Rates = Rates {
    quiet_share: Rate::per_second(64).for_seconds(1),
    quiet: Rate::per_second(2_500).for_seconds(1),
    busy_share: Rate::per_second(2_500).for_seconds(1),
    busy: Rate::per_second(2_500).for_seconds(1),
};
/// Rates of answers to all other packets.
const OUT_OF_THE_BLUE: Rates = Rates {
    quiet_share: Rate::per_second(64).for_seconds(1),
    quiet: Rate::per_second(1_000).for_seconds(1),
    busy_share: Rate::per_second(500).for_seconds(1),
    busy: Rate::per_second(1_000).for_seconds(1),
};
/// Rate of answers to INITs from prefixes of earlier peers.
const RETURNING: Rate = Rate::per_second(2_500).for_seconds(1);
/// Rate of answers to INITs that come for the second time. A flood that sends each of its INITs twice must send 30,000 a second
/// to ask for all of them, which takes a tenth of a processor.
const FIRST_REPETITIONS: Rate = Rate::per_second(15_000).for_seconds(1);
/// Rate of answers to INITs that come again after that.
const FURTHER_REPETITIONS: Rate = Rate::per_second(2_500).for_seconds(1);

/// A rate at which a bucket fills, and the time to fill an empty one.
#[derive(Clone, Copy, Debug)]
struct Rate {
    token: Duration,
    capacity: Duration,
}

impl Rate {
    const fn per_second(tokens: u32) -> Self {
        Rate { token: Duration::from_nanos(1_000_000_000 / tokens as u64), capacity: Duration::ZERO }
    }

    const fn for_seconds(self, seconds: u64) -> Self {
        Rate { capacity: Duration::from_secs(seconds), ..self }
    }

    /// Returns the rate of a bucket whose last part is for others.
    fn sparing(self, spared: Duration) -> Self {
        Rate { capacity: self.capacity.saturating_sub(spared), ..self }
    }
}

/// A token bucket, kept as the time at which it is full again (the generic cell rate algorithm).
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    full_at: Time,
}

impl Bucket {
    fn has(&self, now: Time, rate: Rate) -> bool {
        self.full_at.saturating_since(now) + rate.token <= rate.capacity
    }

    fn take(&mut self, now: Time, rate: Rate) {
        self.full_at = self.full_at.max(now) + rate.token;
    }

    /// Takes a token if there is one that is not spared for others. Returns whether there was.
    fn draw(&mut self, now: Time, rate: Rate, spared: Duration) -> bool {
        let has = self.has(now, rate.sparing(spared));
        if has {
            self.take(now, rate);
        }
        has
    }
}

/// Rates of each prefix, and of all together.
#[derive(Debug)]
struct Rates {
    /// Rate up to which a prefix is quiet.
    quiet_share: Rate,
    /// Rate of all quiet prefixes together.
    quiet: Rate,
    /// Rate of a busy prefix.
    busy_share: Rate,
    /// Rate of all busy prefixes together.
    busy: Rate,
}

#[derive(Clone, Copy, Debug, Default)]
struct Share {
    quiet: Bucket,
    busy: Bucket,
}

/// The outcome of drawing an answer; a refusal states whether the prefix is quiet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Grant {
    Given,
    QuietWithout,
    BusyWithout,
}

/// The buckets of one kind of answers.
#[derive(Debug)]
struct Allowance {
    rates: Rates,
    quiet: Bucket,
    busy: Bucket,
    /// Empty until the first answer.
    shares: Vec<Share>,
}

impl Allowance {
    fn new(rates: Rates) -> Self {
        Allowance { rates, quiet: Bucket::default(), busy: Bucket::default(), shares: Vec::new() }
    }

    /// Draws an answer. `spared` is the part of the quiet prefixes' bucket that this answer leaves to others.
    fn draw(&mut self, now: Time, share: usize, spared: Duration) -> Grant {
        if self.shares.is_empty() {
            self.shares = vec![Share::default(); SHARES];
        }
        let (rates, share) = (&self.rates, &mut self.shares[share % SHARES]);
        if share.quiet.has(now, rates.quiet_share) {
            if !self.quiet.has(now, rates.quiet.sparing(spared)) {
                return Grant::QuietWithout;
            }
            share.quiet.take(now, rates.quiet_share);
            self.quiet.take(now, rates.quiet);
        } else {
            if !share.busy.has(now, rates.busy_share) || !self.busy.has(now, rates.busy) {
                return Grant::BusyWithout;
            }
            share.busy.take(now, rates.busy_share);
            self.busy.take(now, rates.busy);
        }
        Grant::Given
    }

    /// Takes an answer that a quiet prefix gets from another part out of its share, so that it is busy after as many.
    fn charge(&mut self, now: Time, share: usize) {
        self.shares[share % SHARES].quiet.take(now, self.rates.quiet_share);
    }
}

/// Tells how often an INIT has come again at the interval of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Repetition {
    First,
    Further,
}

/// An INIT that was not answered.
#[derive(Clone, Copy, Debug, Default)]
struct RememberedInit {
    /// High bits of its hash; 0 for an empty entry.
    hash: u16,
    /// Tick of its last arrival, modulo 2^15, and in the lowest bit whether it has been repeated.
    arrival: u16,
}

impl RememberedInit {
    fn new(hash: u16, tick: u16, was_repeated: bool) -> Self {
        RememberedInit { hash, arrival: tick << 1 | u16::from(was_repeated) }
    }

    fn was_repeated(self) -> bool {
        self.arrival & 1 == 1
    }

    /// Returns the number of ticks since its last arrival.
    fn ticks_until(self, tick: u16) -> u16 {
        (tick << 1).wrapping_sub(self.arrival & !1) >> 1
    }
}

/// INITs of quiet prefixes that were not answered.
#[derive(Debug, Default)]
struct RememberedInits {
    /// Empty until the first. The low bits of a hash select the set, whose newest entry is first.
    sets: Vec<[RememberedInit; REMEMBERED_IN_SET]>,
}

impl RememberedInits {
    /// 2^15 ticks are 5 minutes: an older entry is mistaken for a repetition three times in a hundred, which is harmless.
    const TICK: Duration = Duration::from_millis(10);

    /// Remembers an INIT that has just arrived. Returns which repetition it is, if it arrived before at the interval of a peer's
    /// repetition.
    fn note_arrival(&mut self, now: Time, hash: u64) -> Option<Repetition> {
        if self.sets.is_empty() {
            self.sets = vec![[RememberedInit::default(); REMEMBERED_IN_SET]; REMEMBERED_SETS];
        }
        let tick = (u128::from(now.as_nanos()) / Self::TICK.as_nanos()) as u16;
        let bits = (hash >> 48) as u16 | 1;
        let set = &mut self.sets[hash as usize % REMEMBERED_SETS];
        let Some(at) = set.iter().position(|known| known.hash == bits) else {
            set.rotate_right(1);
            set[0] = RememberedInit::new(bits, tick, false);
            return None;
        };
        let known = set[at];
        let gap = Self::TICK * u32::from(known.ticks_until(tick));
        let was_repeated = known.was_repeated() && gap <= REPETITION_GAP_MAX;
        let is_timely = (REPETITION_GAP_MIN..=REPETITION_GAP_MAX).contains(&gap);
        set[..=at].rotate_right(1);
        set[0] = RememberedInit::new(bits, tick, was_repeated || is_timely);
        is_timely.then_some(if was_repeated { Repetition::Further } else { Repetition::First })
    }
}

/// The claimed sender of an INIT.
#[derive(Clone, Copy, Debug)]
pub(super) struct InitSource {
    pub(super) remote: SocketAddr,
    pub(super) ports: (u16, u16),
    pub(super) tag: VerificationTag,
}

/// The budget of answers to strangers.
#[derive(Debug)]
pub(super) struct AnswerBudget {
    keys: (u64, u64),
    handshakes: Allowance,
    out_of_the_blue: Allowance,
    returning: Bucket,
    first_repetitions: Bucket,
    further_repetitions: Bucket,
    remembered: RememberedInits,
    known: KnownPrefixes,
}

impl AnswerBudget {
    /// Returns a full budget. `keys` must come from a good random source.
    pub(super) fn new(keys: (u64, u64)) -> Self {
        AnswerBudget {
            keys,
            handshakes: Allowance::new(HANDSHAKES),
            out_of_the_blue: Allowance::new(OUT_OF_THE_BLUE),
            returning: Bucket::default(),
            first_repetitions: Bucket::default(),
            further_repetitions: Bucket::default(),
            remembered: RememberedInits::default(),
            known: KnownPrefixes::new((keys.1, !keys.0)),
        }
    }

    /// Records that a peer at this address has completed a handshake.
    pub(super) fn on_accepted(&mut self, peer: IpAddr) {
        self.known.enter(SourcePrefix::of(peer));
    }

    /// Draws the answer to an INIT from the budget. Returns false if none is left. An INIT for an unused port leaves half
    /// of the budget to peers of open ports.
    pub(super) fn draw_for_init(&mut self, now: Time, source: InitSource, is_port_in_use: bool) -> bool {
        let share = self.share(now, source.remote.ip());
        let spared = |rate: Rate| if is_port_in_use { Duration::ZERO } else { rate.capacity / 2 };
        match self.handshakes.draw(now, share, spared(HANDSHAKES.quiet)) {
            Grant::Given => true,
            Grant::BusyWithout => false,
            Grant::QuietWithout => {
                let is_given = self.draw_beside_flood(now, &source, spared);
                if is_given {
                    self.handshakes.charge(now, share);
                }
                is_given
            }
        }
    }

    /// Draws the answer to an INIT from a quiet prefix when others have used up the part of these prefixes. `spared` returns the
    /// part of a bucket that this answer leaves to others.
    fn draw_beside_flood(
        &mut self,
        now: Time,
        source: &InitSource,
        spared: impl Fn(Rate) -> Duration,
    ) -> bool {
        let is_known = self.known.has(SourcePrefix::of(source.remote.ip()));
        if is_known && self.returning.draw(now, RETURNING, spared(RETURNING)) {
            return true;
        }
        let hash = self.hash_init(source);
        let (bucket, rate) = match self.remembered.note_arrival(now, hash) {
            None => return false,
            Some(Repetition::First) => (&mut self.first_repetitions, FIRST_REPETITIONS),
            Some(Repetition::Further) => (&mut self.further_repetitions, FURTHER_REPETITIONS),
        };
        bucket.draw(now, rate, spared(rate))
    }

    /// Draws the answer to a COOKIE ECHO with a cookie of ours that leads to no association.
    pub(super) fn draw_for_cookie(&mut self, now: Time, source: IpAddr) -> bool {
        let share = self.share(now, source);
        self.handshakes.draw(now, share, Duration::ZERO) == Grant::Given
    }

    /// Draws the answer to a packet out of the blue.
    pub(super) fn draw_out_of_the_blue(&mut self, now: Time, source: IpAddr) -> bool {
        let share = self.share(now, source);
        self.out_of_the_blue.draw(now, share, Duration::ZERO) == Grant::Given
    }

    fn share(&self, now: Time, source: IpAddr) -> usize {
        let life = now.as_nanos() / SHARES_LIFE.as_nanos() as u64;
        let hasher = SipHasher13::new_with_keys(self.keys.0, self.keys.1 ^ life);
        hasher.hash(&SourcePrefix::of(source).to_bits().to_ne_bytes()) as usize
    }

    fn hash_init(&self, source: &InitSource) -> u64 {
        let address = match source.remote.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        let mut bytes = [0; 26];
        bytes[..16].copy_from_slice(&address.octets());
        bytes[16..18].copy_from_slice(&source.remote.port().to_ne_bytes());
        bytes[18..20].copy_from_slice(&source.ports.0.to_ne_bytes());
        bytes[20..22].copy_from_slice(&source.ports.1.to_ne_bytes());
        bytes[22..].copy_from_slice(&source.tag.0.to_ne_bytes());
        SipHasher13::new_with_keys(self.keys.1, self.keys.0).hash(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{RngCore, SeedableRng};

    use super::*;

    const FLOOD_PER_S: u64 = 100_000;

    fn init(address: u32, tag: u32) -> InitSource {
        InitSource {
            remote: SocketAddr::new(IpAddr::from(address.to_be_bytes()), 9899),
            ports: (5, 6),
            tag: VerificationTag(tag),
        }
    }

    #[test]
    fn an_init_that_comes_again_is_forgotten_after_those_that_came_before_it() {
        let hash = |n: u64| n << 49;
        let mut inits = RememberedInits::default();
        for n in 1..=REMEMBERED_IN_SET as u64 {
            inits.note_arrival(Time::from_nanos(0), hash(n));
        }
        // The oldest comes again, and one that has no room beside the others.
        inits.note_arrival(Time::from_nanos(0), hash(1));
        inits.note_arrival(Time::from_nanos(0), hash(100));
        let second = Time::from_nanos(1_000_000_000);
        assert_eq!(inits.note_arrival(second, hash(1)), Some(Repetition::First));
        assert_eq!(inits.note_arrival(second, hash(2)), None, "it was the oldest");
    }

    /// Floods a budget for three seconds with INITs whose source is drawn by `source`. Returns the answers that they got,
    /// and of 200 peers that ask for open ports after 1 s, and again 1 s later, how many were answered.
    fn flood(source: impl Fn(u32) -> u32) -> (u64, u64) {
        let (answers, _, served) = flood_ports(true, source);
        (answers, served)
    }

    /// Floods a budget as [`flood`] does, for ports in use or for others. Returns the answers, how many of the 200 peers were
    /// answered at once, and how many in all.
    fn flood_ports(is_port_in_use: bool, source: impl Fn(u32) -> u32) -> (u64, u64, u64) {
        let mut budget = AnswerBudget::new((1, 2));
        let mut random = ChaCha8Rng::from_seed([3; 32]);
        let (mut answers, mut at_once, mut served) = (0, 0, 0);
        let mut waiting = Vec::new();
        for n in 0..3 * FLOOD_PER_S {
            let now = Time::from_nanos(n * 1_000_000_000 / FLOOD_PER_S);
            answers += u64::from(budget.draw_for_init(
                now,
                init(source(random.next_u32()), random.next_u32()),
                is_port_in_use,
            ));
            // 200 peers, one every millisecond, each from a network of its own.
            let peer = (n % FLOOD_PER_S) / (FLOOD_PER_S / 1000);
            if n % (FLOOD_PER_S / 1000) == 0 && peer < 200 {
                let peer = init(0xc000_0000 + ((peer as u32) << 8), 77);
                match n / FLOOD_PER_S {
                    1 if budget.draw_for_init(now, peer, true) => at_once += 1,
                    1 => waiting.push(peer),
                    2 if waiting.iter().any(|waiting| waiting.remote == peer.remote) => {
                        served += u64::from(budget.draw_for_init(now, peer, true));
                    }
                    _ => {}
                }
            }
        }
        (answers, at_once, at_once + served)
    }

    #[test]
    fn a_flood_for_closed_ports_leaves_answers_to_peers_of_open_ones() {
        let (answers, at_once, _) = flood_ports(false, |random| random);
        assert!(answers <= (1 + 3) * 2_500 + 200, "{answers}");
        assert_eq!(at_once, 200);
    }

    #[test]
    fn a_flood_from_a_few_networks_leaves_the_answers_of_others() {
        let (answers, served) = flood(|random| 0x0a63_0000 | random & 0x3ff);
        // Answers that one busy prefix gets in three seconds, a full bucket included, and quiet shares until their buckets are
        // empty.
        assert!(answers <= (1 + 3) * 2_500 + 2 * 64 * 4 * 4, "{answers}");
        assert_eq!(served, 200);
    }

    #[test]
    fn a_flood_from_everywhere_delays_others_by_one_repetition() {
        let (answers, served) = flood(|random| random);
        // A full bucket and three seconds; nothing of the flood counts as a repetition, and it takes nothing from the busy.
        assert!(answers <= (1 + 3) * 2_500 + 200, "{answers}");
        assert!(served >= 190, "{served} of 200 within a second");
    }

    #[test]
    fn no_init_is_taken_for_an_entry_that_is_empty() {
        let second = Time::ZERO + Duration::from_secs(1);
        for high_bits in [0, 1, 2] {
            assert_eq!(RememberedInits::default().note_arrival(second, high_bits << 48), None, "{high_bits}");
        }
    }

    #[test]
    fn a_source_that_repeats_without_pause_is_no_peer() {
        let met = repetitions([0, 150, 300, 750, 1750, 1800, 12_300]);
        assert_eq!(met, [None, None, None, None, Some(Repetition::First), None, None]);
    }

    /// Returns which repetition the arrivals of one INIT at these times are.
    fn repetitions<const COUNT: usize>(times_ms: [u64; COUNT]) -> [Option<Repetition>; COUNT] {
        let mut inits = RememberedInits::default();
        times_ms.map(|ms| inits.note_arrival(Time::ZERO + Duration::from_millis(ms), 0xabcd_0000_0000_0001))
    }

    #[test]
    fn an_init_is_repeated_for_the_first_time_once_unless_it_was_away() {
        use Repetition::{First, Further};
        let met = repetitions([0, 1000, 3000, 3100, 7000, 17_010, 18_010]);
        assert_eq!(met, [None, Some(First), Some(Further), None, Some(Further), None, Some(First)]);
        // The ticks begin again.
        let met = repetitions([327_000, 328_000, 329_000]);
        assert_eq!(met, [None, Some(First), Some(Further)]);
    }

    /// The peers of a flood, each from a network of its own.
    fn peers() -> Vec<InitSource> {
        (0..200).map(|number| init(0xc000_0000 + (number << 8), 77)).collect()
    }

    /// Floods a budget for four seconds with INITs from everywhere, whose numbers are given. Meanwhile peers ask in the third
    /// second, and those that were not answered again a second later. Returns how many were answered at once, and in all.
    fn served_beside(budget: &mut AnswerBudget, per_s: u64, number: impl Fn(u64) -> u64) -> (usize, usize) {
        let mut waiting: Vec<Option<InitSource>> = peers().into_iter().map(Some).collect();
        let left = |waiting: &[Option<InitSource>]| waiting.iter().flatten().count();
        let (all, step) = (waiting.len(), per_s / waiting.len() as u64);
        let mut at_once = 0;
        for n in 0..4 * per_s {
            let now = Time::from_nanos(n * 1_000_000_000 / per_s);
            let number = number(n) as u32;
            budget.draw_for_init(now, init(number.wrapping_mul(0x9e37_79b1), number), true);
            if n == 3 * per_s {
                at_once = all - left(&waiting);
            }
            if n >= 2 * per_s && n.is_multiple_of(step) {
                let peer = &mut waiting[(n % per_s / step) as usize];
                *peer = peer.take().filter(|peer| !budget.draw_for_init(now, *peer, true));
            }
        }
        (at_once, all - left(&waiting))
    }

    /// Returns the numbers of INITs that are all sent twice, a second apart.
    fn twice(per_s: u64) -> impl Fn(u64) -> u64 {
        move |n| n / (2 * per_s) * per_s + n % per_s
    }

    #[test]
    fn a_flood_that_repeats_its_inits_every_second_delays_others_by_one_repetition() {
        for per_s in [20_000, 100_000] {
            let (_, served) = served_beside(&mut AnswerBudget::new((1, 2)), per_s, |n| n % per_s);
            assert!(served >= 190, "{served} of 200 beside {per_s} a second");
        }
    }

    #[test]
    fn a_flood_that_sends_each_init_twice_delays_others_by_one_repetition() {
        let per_s = 25_000;
        let (_, served) = served_beside(&mut AnswerBudget::new((1, 2)), per_s, twice(per_s));
        assert!(served >= 190, "{served} of 200");
    }

    #[test]
    fn peers_in_networks_of_earlier_peers_are_answered_at_once_in_any_flood() {
        let mut budget = AnswerBudget::new((1, 2));
        for peer in peers() {
            budget.on_accepted(peer.remote.ip());
        }
        let per_s = FLOOD_PER_S;
        assert_eq!(served_beside(&mut budget, per_s, twice(per_s)), (200, 200));
    }

    #[test]
    fn answers_to_peers_in_known_networks_have_a_limit() {
        let mut budget = AnswerBudget::new((1, 2));
        let sources: Vec<InitSource> = (0..5_000).map(|number| init(number << 8, 7)).collect();
        for source in &sources {
            budget.on_accepted(source.remote.ip());
        }
        budget.handshakes.quiet.full_at = Time::ZERO + HANDSHAKES.quiet.capacity;
        let answered =
            sources.iter().filter(|source| budget.draw_for_init(Time::ZERO, **source, true)).count();
        assert_eq!(answered, 2_500);
    }

    /// Returns a budget whose part of quiet prefixes others have used up.
    fn budget_in_a_flood() -> AnswerBudget {
        let mut budget = AnswerBudget::new((1, 2));
        budget.handshakes.quiet.full_at = Time::ZERO + 10 * HANDSHAKES.quiet.capacity;
        budget
    }

    #[test]
    fn a_known_network_that_asks_for_much_leaves_answers_to_others() {
        let mut budget = budget_in_a_flood();
        let [greedy, other] = [1 << 8, 2 << 8];
        for address in [greedy, other] {
            budget.on_accepted(init(address, 0).remote.ip());
        }
        // A busy prefix has answers of its own.
        budget.handshakes.busy.full_at = Time::ZERO + 10 * HANDSHAKES.busy.capacity;
        let answered =
            (0..5_000).filter(|&tag| budget.draw_for_init(Time::ZERO, init(greedy, tag), true)).count();
        assert_eq!(answered, 64);
        assert!(budget.draw_for_init(Time::ZERO, init(other, 7), true));
    }

    #[test]
    fn repetitions_for_closed_ports_leave_half_of_their_answers_to_peers_of_open_ones() {
        let mut budget = budget_in_a_flood();
        let sources: Vec<InitSource> = (0..20_000).map(|n| init(n << 8, 7)).collect();
        let mut answered = |now, is_port_in_use| {
            let draw = |source: &&InitSource| budget.draw_for_init(now, **source, is_port_in_use);
            sources.iter().filter(draw).count()
        };
        let second = Time::ZERO + Duration::from_secs(1);
        assert_eq!(answered(Time::ZERO, false), 0);
        assert_eq!(answered(second, false), 7_500);
    }

    #[test]
    fn a_repetition_has_the_addresses_the_ports_and_the_tag_of_the_first_init() {
        let budget = AnswerBudget::new((1, 2));
        let first = init(1, 2);
        let with_ports = |ports| InitSource { ports, ..first };
        let with_remote = |address, port| InitSource { remote: SocketAddr::new(address, port), ..first };
        let others = [
            init(3, 2),
            init(1, 3),
            with_ports((4, 6)),
            with_ports((5, 7)),
            with_remote(first.remote.ip(), 9900),
            with_remote("fd00::1".parse().unwrap(), 9899),
        ];
        assert_eq!(budget.hash_init(&first), budget.hash_init(&init(1, 2)));
        for other in others {
            assert_ne!(budget.hash_init(&first), budget.hash_init(&other), "{other:?}");
        }
        for keys in [(1, 3), (3, 2)] {
            let hash = AnswerBudget::new(keys).hash_init(&first);
            assert_ne!(budget.hash_init(&first), hash, "a sender that lacks the keys");
        }
    }

    #[test]
    fn answers_to_repeated_inits_have_a_limit() {
        let mut budget = AnswerBudget::new((1, 2));
        let again = Time::ZERO + REPETITION_GAP_MIN;
        let limit = |rate: Rate| (rate.capacity.as_nanos() / rate.token.as_nanos()) as usize;
        // Each INIT is from a prefix of its own.
        let sources: Vec<InitSource> = (0..20_000).map(|n| init(n << 8, 7)).collect();
        // Others have used up the part of all quiet prefixes, so only repetitions are answered.
        budget.handshakes.quiet.full_at = again + 2 * HANDSHAKES.quiet.capacity;
        let mut answered =
            |now| sources.iter().filter(|source| budget.draw_for_init(now, **source, true)).count();
        assert_eq!(answered(Time::ZERO), 0);
        assert_eq!(answered(again), limit(FIRST_REPETITIONS));
        assert_eq!(answered(again + REPETITION_GAP_MIN), limit(FURTHER_REPETITIONS));
    }

    #[test]
    fn ten_thousand_peers_behind_one_address_are_answered_by_their_fourth_inits() {
        let mut budget = AnswerBudget::new((1, 2));
        let mut peers: Vec<InitSource> = (0..10_000).map(|tag| init(1, tag)).collect();
        // RTO.Initial is 1 s, and doubles with each repetition.
        let left = [0, 1, 3, 7].map(|seconds| {
            let now = Time::ZERO + Duration::from_secs(seconds);
            peers.retain(|peer| !budget.draw_for_init(now, *peer, true));
            peers.len()
        });
        // Each time a second's answers, and those of a quiet prefix until they are used up.
        assert!(left[0] <= 7_500 && left[1] <= 5_000 && left[2] <= 2_500, "{left:?}");
        assert_eq!(left[3], 0);
    }

    #[test]
    fn packets_out_of_the_blue_take_no_answers_from_handshakes() {
        let mut budget = AnswerBudget::new((1, 2));
        let source = IpAddr::from([10, 0, 0, 1]);
        let answered = (0..10_000).filter(|_| budget.draw_out_of_the_blue(Time::ZERO, source)).count();
        assert_eq!(answered, 64 + 500);
        let answered = (0..20_000).filter(|_| budget.draw_for_cookie(Time::ZERO, source)).count();
        assert_eq!(answered, 64 + 2_500);
    }

    #[test]
    fn a_bucket_fills_again_with_time() {
        let mut bucket = Bucket::default();
        let rate = Rate::per_second(10).for_seconds(1);
        let mut drain = |now| {
            let mut taken = 0;
            while bucket.has(now, rate) {
                bucket.take(now, rate);
                taken += 1;
            }
            taken
        };
        assert_eq!(drain(Time::ZERO), 10);
        assert_eq!(drain(Time::ZERO + Duration::from_millis(300)), 3);
        assert_eq!(drain(Time::ZERO + Duration::from_secs(100)), 10);
    }

    #[test]
    fn prefixes_that_share_by_chance_part_again() {
        for keys in [(1, 2), (1, 3)] {
            let budget = AnswerBudget::new(keys);
            let share = |address: u32, now| budget.share(now, IpAddr::from(address.to_be_bytes())) % SHARES;
            let first = share(0, Time::ZERO);
            let other =
                (1..1 << 20).map(|n| n << 8).find(|&other| share(other, Time::ZERO) == first).unwrap();
            let later = Time::ZERO + SHARES_LIFE;
            assert_ne!(share(0, later), share(other, later));
        }
    }
}
