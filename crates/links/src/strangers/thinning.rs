//! Thins a flood in the kernel, before its packets take room and time.
//!
//! A stranger's packet costs some microseconds until the protocol finds that it has no answer left for its sender. Where most
//! packets of a flood meet that end, the socket gets a [`Filter`]:
//!
//! - Of *busy* prefixes (/24, /56), those that send more than [`PREFIX_RATE`], a [`Sample`] keeps as many packets as there are
//!   answers. They share one part of the answers in any case, and all other strangers arrive as before. Strays are all sampled.
//! - A flood of INITs from everywhere has no busy prefixes. There a repeated INIT is worth more than a new one: of new peers that
//!   send at 0, 1 and 3 s, a sample of a part q serves q² by the second INIT and 3q² - 2q³ by the third, so it could drop an
//!   eighth at most to serve 95 %. [`Repetitions`] has the memory that this wants. It needs a privilege (`CAP_BPF`); without
//!   it all INITs of such a flood are received.
//!
//! All rates are leaky buckets that count each received packet as those for which the sample kept it. So they know the rate of
//! the flood while it is thinned, and the filter ends with it. A keyed hash assigns prefixes to buckets ([`prefix_hash`]); the
//! key changes every ten seconds.

pub(crate) mod prefix_hash;
pub(crate) mod repetitions;
pub(crate) mod sample;

use std::net::IpAddr;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use self::prefix_hash::{BUCKETS, PrefixHash};
use self::repetitions::{Counts, Headers, Repetitions};
use self::sample::{Sample, Thinned};
use super::Class;

/// Rate of one busy prefix in packets a second.
const PREFIX_RATE: u32 = 1_000;
/// Time in which a leaky bucket becomes empty. A burst of so long at the permitted rate is no flood.
const CAPACITY: Duration = Duration::from_secs(2);
/// Level at which a rate that was exceeded is no longer.
const LEVEL_AT_END: Duration = Duration::from_secs(1);
/// Interval between changes of the filter.
pub(crate) const INTERVAL: Duration = Duration::from_millis(100);
/// Time after which prefixes that share a bucket by chance are separated.
const HASH_LIFE: Duration = Duration::from_secs(10);
/// Maximum number of buckets that are thinned. A flood from more prefixes comes from everywhere.
const THINNED_BUCKETS_MAX: usize = BUCKETS / 8;
/// Largest ratio of a flood to the packets that are kept.
const KEEP_ONE_IN_MAX: f64 = 1000.0;
/// Rate of INITs beyond which those that come for the first time are dropped. To receive so many takes 3 % of a processor.
const INITS_RATE: u32 = 10_000;
/// Level of a prefix up to which its INITs count for that rate: those of a prefix that is about to be busy do not.
const QUIET_LEVEL: Duration = Duration::from_millis(32);
/// Time in which the bucket of that rate becomes empty, and the level at which such a flood is over. A burst of twice the INITs
/// that are answered at once is no flood. A peer whose first INIT comes before the kernel remembers them needs a third one.
const INITS_CAPACITY: Duration = Duration::from_millis(500);
const INITS_LEVEL_AT_END: Duration = Duration::from_millis(250);
/// Time after a flood in which the kernel still remembers INITs, and drops none. If it forgot them after each of many bursts,
/// peers would always seem to come for the first time.
const REMEMBERED_FOR: Duration = Duration::from_secs(10);

/// A leaky bucket, kept as the time at which it is empty.
#[derive(Clone, Copy, Debug, Default)]
struct Leaky {
    empty_at: Option<Instant>,
}

impl Leaky {
    /// Adds packets. Returns whether the bucket has overflowed.
    fn add(&mut self, now: Instant, packets: u32, per_s: u32, capacity: Duration) -> bool {
        let drained = Duration::from_nanos(1_000_000_000 * u64::from(packets) / u64::from(per_s));
        let (empty_at, full) = (self.empty_at.map_or(now, |at| at.max(now)) + drained, now + capacity);
        self.empty_at = Some(empty_at.min(full));
        empty_at > full
    }

    fn level(&self, now: Instant) -> Duration {
        self.empty_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now))
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    rate: Leaky,
    is_busy: bool,
    /// Whether the filter thins it, if there is one.
    is_thinned: bool,
}

/// Packets of busy prefixes since a time, as the filter's sample tells their number.
#[derive(Clone, Copy, Debug)]
struct Window {
    began: Instant,
    packets: u64,
}

/// The prefixes of strangers that a socket has received from.
#[derive(Debug)]
struct Prefixes {
    hash: PrefixHash,
    hash_since: Instant,
    buckets: Vec<Bucket>,
    busy: Vec<usize>,
}

impl Prefixes {
    fn new(now: Instant, hash: PrefixHash) -> Self {
        Prefixes { hash, hash_since: now, buckets: vec![Bucket::default(); BUCKETS], busy: Vec::new() }
    }

    /// Ends the busy state of prefixes that send less now.
    fn calm(&mut self, now: Instant) {
        let buckets = &mut self.buckets;
        self.busy.retain(|&index| {
            let bucket = &mut buckets[index];
            bucket.is_busy = bucket.rate.level(now) > LEVEL_AT_END;
            bucket.is_busy
        });
    }

    /// Returns the busy buckets, which the next filter thins.
    fn thin(&mut self) -> Vec<u32> {
        for bucket in &mut self.buckets {
            bucket.is_thinned = bucket.is_busy;
        }
        let mut busy: Vec<u32> = self.busy.iter().map(|index| *index as u32).collect();
        busy.sort_unstable();
        busy
    }
}

/// What the kernel drops of the packets of a socket.
#[derive(Debug)]
pub(crate) enum Filter {
    Sample(Sample),
    Repetitions(Repetitions),
}

/// INITs from prefixes that are not busy, which may be a flood from everywhere.
#[derive(Debug)]
struct InitFlood {
    rate: Leaky,
    /// Whether the rate has been exceeded since the last look.
    begins: bool,
    /// When the flood ended, after which INITs are still remembered, but not dropped. `None`: it lasts.
    ended: Option<Instant>,
    /// `None`: this process may not have the filter.
    load: Option<fn(Headers) -> Result<Repetitions, Errno>>,
    headers: Headers,
    counts: Counts,
}

impl InitFlood {
    fn new(headers: Headers, load: fn(Headers) -> Result<Repetitions, Errno>) -> Self {
        InitFlood {
            rate: Leaky::default(),
            begins: false,
            ended: None,
            load: Some(load),
            headers,
            counts: Counts::default(),
        }
    }

    /// Records INITs.
    fn add(&mut self, now: Instant, inits: u32) {
        self.begins |= self.rate.add(now, inits, INITS_RATE, INITS_CAPACITY) && self.load.is_some();
    }

    /// Returns the filter for a flood that begins.
    fn begin(&mut self) -> Option<Repetitions> {
        (self.begins, self.ended) = (false, None);
        self.counts = Counts::default();
        let loaded = self.load?(self.headers);
        if matches!(loaded, Err(Errno::EPERM | Errno::ENOSYS | Errno::EINVAL | Errno::EACCES)) {
            self.load = None;
        }
        loaded.ok()
    }

    /// Counts what has come since the last call. Returns the number of INITs that were dropped; `None`: the flood is over, and so
    /// is the time in which another one would find INITs remembered.
    fn go_on(&mut self, now: Instant, repetitions: &Repetitions) -> Option<u64> {
        let before = self.counts;
        self.counts = repetitions.counts().ok()?;
        self.add(now, u32::try_from(self.counts.offered - before.offered).unwrap_or(u32::MAX));
        let begins = std::mem::take(&mut self.begins);
        match self.ended {
            Some(_) if begins => {
                repetitions.set_drops(true).ok()?;
                self.ended = None;
            }
            Some(ended) if now.saturating_duration_since(ended) >= REMEMBERED_FOR => return None,
            None if !begins && self.rate.level(now) <= INITS_LEVEL_AT_END => {
                repetitions.set_drops(false).ok()?;
                self.ended = Some(now);
            }
            _ => {}
        }
        Some(self.counts.dropped - before.dropped)
    }
}

/// Decides which packets of a socket for strangers the kernel drops.
#[derive(Debug)]
pub(crate) struct Thinning {
    /// Rate up to which all packets of busy prefixes are received.
    per_s: u32,
    /// `None`: every packet is thinned, whatever its source is; or the first has not come.
    prefixes: Option<Prefixes>,
    by_prefix: bool,
    new_hash: fn() -> PrefixHash,
    /// All packets that may be thinned.
    rate: Leaky,
    is_flooded: bool,
    window: Option<Window>,
    /// `None`: the packets are no INITs.
    init_flood: Option<InitFlood>,
    filter: Option<Filter>,
}

impl Thinning {
    /// Returns the state for the socket of a class, whose filters see these headers. `None`: its packets are never thinned.
    pub(crate) fn of_class(class: Class, headers: Headers) -> Option<Self> {
        let (per_s, by_prefix) = match class {
            Class::Peers => return None,
            // Twice the answers to busy prefixes.
            Class::Inits | Class::Cookies => (5_000, true),
            // Twice the rate of answers to packets out of the blue. Most of those get no answer.
            Class::Strays => (2_000, false),
        };
        let init_flood = (class == Class::Inits).then(|| InitFlood::new(headers, Repetitions::load));
        Some(Thinning { init_flood, ..Self::new(per_s, by_prefix, PrefixHash::random) })
    }

    fn new(per_s: u32, by_prefix: bool, new_hash: fn() -> PrefixHash) -> Self {
        Thinning {
            per_s,
            prefixes: None,
            by_prefix,
            new_hash,
            rate: Leaky::default(),
            is_flooded: false,
            window: None,
            init_flood: None,
            filter: None,
        }
    }

    /// Returns the filter that the socket must have.
    pub(crate) fn filter(&self) -> Option<&Filter> {
        self.filter.as_ref()
    }

    /// Records a received packet. Returns the number of packets that a sample has probably dropped for it.
    pub(crate) fn on_packet(&mut self, now: Instant, source: IpAddr) -> u32 {
        let kept_one_in = match &self.filter {
            None => 1,
            Some(Filter::Sample(sample)) => sample.keep_one_in,
            // It counts itself.
            Some(Filter::Repetitions(_)) => return 0,
        };
        let window = self.window.get_or_insert(Window { began: now, packets: 0 });
        let mut stands_for = kept_one_in;
        if self.by_prefix {
            let prefixes = self.prefixes.get_or_insert_with(|| Prefixes::new(now, (self.new_hash)()));
            let index = prefixes.hash.bucket(source);
            let bucket = &mut prefixes.buckets[index];
            stands_for = if bucket.is_thinned { kept_one_in } else { 1 };
            let overflows = bucket.rate.add(now, stands_for, PREFIX_RATE, CAPACITY);
            if overflows && !bucket.is_busy && prefixes.busy.len() < THINNED_BUCKETS_MAX {
                bucket.is_busy = true;
                prefixes.busy.push(index);
            }
            if !bucket.is_busy {
                if bucket.rate.level(now) <= QUIET_LEVEL {
                    self.init_flood.iter_mut().for_each(|flood| flood.add(now, 1));
                }
                return 0;
            }
        }
        self.is_flooded |= self.rate.add(now, stands_for, self.per_s, CAPACITY);
        window.packets += u64::from(stands_for);
        stands_for - 1
    }

    /// Adapts the filter to the flood, once in `INTERVAL`, and as soon as one of INITs begins. Adds the packets that the kernel
    /// has counted as dropped. Returns whether the socket needs another filter, or none any more.
    pub(crate) fn adapt(&mut self, now: Instant, dropped: &mut u64) -> bool {
        let Some(window) = self.window else { return false };
        if let Some(repetitions) =
            self.init_flood.as_mut().filter(|flood| flood.begins).and_then(InitFlood::begin)
        {
            self.filter = Some(Filter::Repetitions(repetitions));
            return true;
        }
        let elapsed = now.saturating_duration_since(window.began);
        if elapsed < INTERVAL {
            return false;
        }
        self.window = Some(Window { began: now, packets: 0 });
        if let (Some(flood), Some(Filter::Repetitions(repetitions))) = (&mut self.init_flood, &self.filter) {
            match flood.go_on(now, repetitions) {
                Some(more) => *dropped += more,
                None => (self.filter, self.prefixes) = (None, None),
            }
            return self.filter.is_none();
        }
        let sample = self.fitting_sample(now, window.packets as f64 / elapsed.as_secs_f64());
        let changed = sample.as_ref() != self.sample();
        self.filter = sample.map(Filter::Sample);
        changed
    }

    fn sample(&self) -> Option<&Sample> {
        match &self.filter {
            Some(Filter::Sample(sample)) => Some(sample),
            Some(Filter::Repetitions(_)) | None => None,
        }
    }

    /// Returns the sample that fits a flood of this rate.
    fn fitting_sample(&mut self, now: Instant, busy_per_s: f64) -> Option<Sample> {
        self.is_flooded &= self.rate.level(now) > LEVEL_AT_END;
        let keep_one_in = if self.is_flooded { self.keep_one_in(busy_per_s) } else { 1 };
        match &mut self.prefixes {
            None => (keep_one_in > 1).then_some(Sample { thinned: Thinned::Every, keep_one_in }),
            Some(prefixes) => {
                if now.saturating_duration_since(prefixes.hash_since) >= HASH_LIFE {
                    *prefixes = Prefixes::new(now, (self.new_hash)());
                }
                prefixes.calm(now);
                let thins = keep_one_in > 1 && !prefixes.busy.is_empty();
                let thinned = Thinned::Buckets(prefixes.hash, prefixes.thin());
                thins.then_some(Sample { thinned, keep_one_in })
            }
        }
    }

    /// Returns the ratio for a flood of this rate: the present one unless it is far off, since each change costs a system call.
    fn keep_one_in(&self, busy_per_s: f64) -> u32 {
        let present = self.sample().map_or(1, |sample| sample.keep_one_in);
        let fitting = (busy_per_s / f64::from(self.per_s)).round().clamp(1.0, KEEP_ONE_IN_MAX) as u32;
        if fitting.abs_diff(present) <= present / 4 { present } else { fitting }
    }

    /// Records that the kernel does not accept the filter, so that the socket receives all packets.
    pub(crate) fn on_refused(&mut self) {
        if let (Some(Filter::Repetitions(_)), Some(flood)) = (self.filter.take(), &mut self.init_flood) {
            flood.load = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, UdpSocket};
    use std::os::fd::AsFd;

    use super::*;
    use crate::syscalls::attach_filter;

    /// Time after which a test gives up; far longer than loopback ever takes.
    const PATIENCE: Duration = Duration::from_secs(20);
    const FLOODED: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 7));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    /// A socket on a virtual clock, whose kernel executes the filter.
    struct Socket {
        thinning: Thinning,
        now: Instant,
        random: u32,
        changes: usize,
    }

    impl Socket {
        fn by_prefix() -> Self {
            Self::new(Thinning::new(5_000, true, || PrefixHash::with_key(7, 0x9e37_79b9_7f4a_7c15)))
        }

        fn new(thinning: Thinning) -> Self {
            Socket { thinning, now: Instant::now(), random: 1, changes: 0 }
        }

        /// Offers a packet. Returns whether the kernel keeps it.
        fn offer(&mut self, source: IpAddr) -> bool {
            let network = prefix_hash::tests::header(source);
            self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let random = self.random;
            let input = crate::bpf::Input { packet: &[], network: &network, random };
            let keeps = |sample: &Sample| crate::bpf::run_on(&sample.program(), input) == crate::bpf::TAKE;
            let kept = self.thinning.sample().is_none_or(keeps);
            if kept {
                self.thinning.on_packet(self.now, source);
            }
            kept
        }

        /// Offers packets at an even rate for some milliseconds. Returns the number that was kept.
        fn play(&mut self, ms: u64, per_ms: u32, source: impl Fn(u32) -> IpAddr) -> u32 {
            let mut kept = 0;
            for millisecond in 0..ms as u32 {
                self.now += Duration::from_millis(1);
                for n in 0..per_ms {
                    kept += u32::from(self.offer(source(millisecond * per_ms + n)));
                }
                self.changes += usize::from(self.thinning.adapt(self.now, &mut 0));
            }
            kept
        }
    }

    /// Returns a source of its own for each packet.
    fn everywhere(n: u32) -> IpAddr {
        IpAddr::from(n.wrapping_mul(0x9e37_79b1).to_be_bytes())
    }

    #[test]
    fn a_flood_from_one_prefix_is_thinned_to_the_answers_and_others_are_not() {
        let mut socket = Socket::by_prefix();
        socket.play(1000, 100, |_| FLOODED);
        for _ in 0..4 {
            let kept = socket.play(500, 100, |_| FLOODED);
            assert!((1_500..4_000).contains(&kept), "{kept} of 50,000");
            let others = (0..1000).filter(|_| socket.offer(OTHER)).count();
            assert_eq!(others, 1000, "another prefix");
            socket.play(1000, 100, |_| FLOODED);
        }
        assert!(socket.changes < 10, "{} changes of the filter", socket.changes);
    }

    /// The clock is virtual, so the rate of the flood does not depend on the machine; the kernel executes the filter.
    #[test]
    fn the_kernel_drops_a_flood_from_one_prefix_and_receives_every_packet_of_another() {
        let bound = |ip: &str| UdpSocket::bind(SocketAddr::new(ip.parse().unwrap(), 0)).unwrap();
        for (at, flooding, flooded) in [("127.0.0.1", "127.0.1.1", "127.0.0.1"), ("::", "::1", "::1")] {
            let (socket, flood, other) = (bound(at), bound(flooding), bound("127.0.3.1"));
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            let to = |ip: &str| SocketAddr::new(ip.parse().unwrap(), socket.local_addr().unwrap().port());
            let mut thinning = Socket::by_prefix().thinning;
            let (mut now, mut kept) = (Instant::now(), 0);
            for millisecond in 0..2_000 {
                now += Duration::from_millis(1);
                for _ in 0..30 {
                    flood.send_to(&[1], to(flooded)).unwrap();
                }
                other.send_to(&[2], to("127.0.0.1")).unwrap();
                let mut sender = [0];
                while sender != [2] {
                    let (_, from) = socket.recv_from(&mut sender).expect("a packet of the other prefix");
                    thinning.on_packet(now, from.ip());
                    kept += u32::from(millisecond >= 1_000 && sender == [1]);
                }
                if thinning.adapt(now, &mut 0) {
                    let sample = thinning.sample().expect("the flood goes on");
                    attach_filter(socket.as_fd(), &sample.program()).unwrap();
                }
            }
            assert!((2_500..10_000).contains(&kept), "{at}: {kept} of 30,000");
        }
    }

    #[test]
    fn the_filter_ends_with_the_flood_and_comes_back_at_once() {
        let mut socket = Socket::by_prefix();
        socket.play(1000, 100, |_| FLOODED);
        assert!(socket.thinning.filter().is_some());
        socket.play(200, 0, |_| FLOODED);
        assert!(socket.thinning.filter().is_none(), "the flood is over");
        assert_eq!(socket.play(50, 1, |_| FLOODED), 50);
        let kept = socket.play(300, 100, |_| FLOODED);
        assert!(socket.thinning.filter().is_some() && kept < 15_000, "{kept} of 30,000: it has come back");
        socket.play(3000, 1, |_| FLOODED);
        assert!(!socket.thinning.is_flooded);
    }

    #[test]
    fn ten_thousand_peers_behind_one_address_are_no_flood() {
        let mut socket = Socket::by_prefix();
        assert_eq!(socket.play(100, 100, |_| FLOODED), 10_000);
        socket.play(1000, 1, |_| FLOODED);
        assert_eq!(socket.changes, 0);
    }

    #[test]
    fn a_flood_from_everywhere_is_not_thinned_by_prefix() {
        let mut socket = Socket::by_prefix();
        assert_eq!(socket.play(3000, 100, everywhere), 300_000);
        assert_eq!(socket.changes, 0);
    }

    #[test]
    fn a_process_that_may_load_no_program_receives_a_flood_from_everywhere() {
        let mut socket = Socket::by_prefix();
        socket.thinning.init_flood = Some(InitFlood::new(Headers::Udp, |_| Err(Errno::EPERM)));
        assert_eq!(socket.play(1000, 100, everywhere), 100_000);
        assert_eq!(socket.changes, 0);
        assert!(socket.thinning.init_flood.unwrap().load.is_none(), "it does not try again");
    }

    #[test]
    fn floods_from_a_few_prefixes_are_none_from_everywhere() {
        for prefixes in [1, 3, 4, 16, 40] {
            let mut socket = Socket::by_prefix();
            socket.thinning.init_flood = Some(InitFlood::new(Headers::Udp, |_| panic!("a filter for all")));
            socket.play(3000, 100, |n| IpAddr::from([198, 51, (n % prefixes) as u8, 7]));
            assert!(socket.thinning.sample().is_some(), "{prefixes} prefixes");
        }
    }

    #[test]
    fn a_burst_of_peers_from_everywhere_is_no_flood() {
        let mut socket = Socket::by_prefix();
        socket.thinning.init_flood = Some(InitFlood::new(Headers::Udp, |_| panic!("a filter for a burst")));
        assert_eq!(socket.play(50, 100, everywhere), 5_000);
        assert_eq!(socket.play(1000, 9, everywhere), 9_000);
    }

    /// The clock is virtual, but for the interval between the INITs of a peer; the kernel executes the filter.
    #[test]
    fn beside_a_flood_from_everywhere_the_second_init_of_a_peer_is_received() {
        if matches!(Repetitions::load(Headers::Udp), Err(Errno::EPERM | Errno::ENOSYS)) {
            return println!("skipped: no CAP_BPF");
        }
        let bound = |ip: String| UdpSocket::bind((ip, 0)).unwrap();
        let (socket, peer) = (bound("127.0.0.1".into()), bound("127.0.3.1".into()));
        let flood: Vec<_> = (0..100).map(|n| bound(format!("127.1.{n}.1"))).collect();
        socket.set_nonblocking(true).unwrap();
        let at = socket.local_addr().unwrap();
        let init = |n: u32| [&[0; 12][..], &[1, 0, 0, 20], &n.to_be_bytes(), &[0; 12]].concat();
        let mut thinning = Thinning::of_class(Class::Inits, Headers::Udp).unwrap();
        let (mut now, mut sent, mut received, mut dropped) = (Instant::now(), 0, 0, 0);
        let mut millisecond = |thinning: &mut Thinning, packets: u32| {
            now += Duration::from_millis(1);
            for n in 0..packets {
                sent += 1;
                flood[n as usize % flood.len()].send_to(&init(sent), at).unwrap();
                while let Ok((_, from)) = socket.recv_from(&mut [0; 64]) {
                    thinning.on_packet(now, from.ip());
                    received += 1;
                }
            }
            if thinning.adapt(now, &mut dropped) {
                match thinning.filter() {
                    Some(Filter::Repetitions(repetitions)) => repetitions.attach_to(socket.as_fd()).unwrap(),
                    other => assert!(other.is_none(), "{other:?}"),
                }
            }
            (sent, received, dropped)
        };
        for _ in 0..80 {
            millisecond(&mut thinning, 80);
        }
        assert!(matches!(thinning.filter(), Some(Filter::Repetitions(_))));
        let passes = || {
            peer.send_to(&init(u32::MAX), at).unwrap();
            socket.recv(&mut [0; 64]).is_ok()
        };
        assert!(!passes(), "the first");
        for _ in 0..500 {
            millisecond(&mut thinning, 80);
        }
        std::thread::sleep(Duration::from_millis(600));
        assert!(passes(), "the second");
        let (sent, received, dropped) = millisecond(&mut thinning, 80);
        assert!(received < 10_000, "{received} of {sent}");
        assert!((30_000..46_000).contains(&dropped), "{dropped} of {sent}");
        for _ in 0..600 {
            millisecond(&mut thinning, 0);
        }
        let late = |n: u32| {
            peer.send_to(&init(u32::MAX - n), at).unwrap();
            socket.recv(&mut [0; 64]).is_ok()
        };
        assert!(late(1), "the flood is over");
        for _ in 0..120 {
            millisecond(&mut thinning, 80);
        }
        assert!(!late(2), "another flood");
        std::thread::sleep(Duration::from_millis(600));
        assert!(late(1) && late(2), "both come again");
        for _ in 0..11_000 {
            millisecond(&mut thinning, 0);
        }
        assert!(thinning.filter().is_none(), "no flood for long");
    }

    #[test]
    fn strays_are_thinned_whatever_their_source_is() {
        let mut socket = Socket::new(Thinning::of_class(Class::Strays, Headers::Udp).unwrap());
        socket.play(500, 100, everywhere);
        let kept = socket.play(1000, 100, everywhere);
        assert!((1_500..3_000).contains(&kept), "{kept} of 100,000");
        assert!(Thinning::of_class(Class::Peers, Headers::Udp).is_none());
    }

    #[test]
    fn prefixes_that_share_a_bucket_are_separated() {
        let mut socket = Socket::new(Thinning::new(5_000, true, PrefixHash::random));
        socket.play(1000, 100, |_| FLOODED);
        let hash = |socket: &Socket| socket.thinning.prefixes.as_ref().unwrap().hash;
        let before = hash(&socket);
        socket.play(10_000, 20, |_| FLOODED);
        assert_ne!(hash(&socket), before);
        assert!(socket.thinning.filter().is_some(), "and the flood is thinned again");
    }

    #[test]
    fn a_prefix_is_busy_beyond_its_burst_and_until_it_is_calm() {
        let mut socket = Socket::by_prefix();
        let busy =
            |socket: &Socket| socket.thinning.prefixes.as_ref().map_or(0, |prefixes| prefixes.busy.len());
        (0..2000).for_each(|_| assert!(socket.offer(FLOODED)));
        assert_eq!(busy(&socket), 0, "as many as in two seconds");
        socket.offer(FLOODED);
        assert_eq!(busy(&socket), 1);
        socket.play(1000, 100, |_| FLOODED);
        socket.play(2500, 0, |_| FLOODED);
        assert_eq!(busy(&socket), 0);
        socket.play(1000, 100, |_| OTHER);
        assert!(socket.thinning.filter().is_some());
        assert!((0..1000).all(|_| socket.offer(FLOODED)), "the flood of another prefix");
    }

    #[test]
    fn a_flood_from_several_prefixes_is_thinned_in_each_of_them() {
        let mut socket = Socket::by_prefix();
        let source = |n: u32| IpAddr::from([198, 51, (n % 16) as u8, 7]);
        socket.play(1000, 160, source);
        for n in 0..16 {
            let kept = (0..1000).filter(|_| socket.offer(source(n))).count();
            assert!(kept < 200, "{kept} of 1,000 from prefix {n}");
        }
    }

    #[test]
    fn a_filter_that_the_kernel_refuses_counts_for_nothing() {
        let mut socket = Socket::by_prefix();
        socket.play(1000, 100, |_| FLOODED);
        socket.thinning.on_refused();
        assert!(socket.thinning.filter().is_none());
        assert_eq!(socket.thinning.on_packet(socket.now, FLOODED), 0);
    }

    #[test]
    fn a_leaky_bucket_saves_no_room_while_nothing_comes() {
        let (mut leaky, begin) = (Leaky::default(), Instant::now());
        leaky.add(begin, 1, PREFIX_RATE, CAPACITY);
        let later = begin + 10 * CAPACITY;
        assert!(!leaky.add(later, 2_000, PREFIX_RATE, CAPACITY), "as many as in two seconds");
        assert!(leaky.add(later, 1, PREFIX_RATE, CAPACITY));
    }

    #[test]
    fn a_flood_and_a_busy_prefix_end_at_the_same_level() {
        let mut socket = Socket::by_prefix();
        (0..20_000).for_each(|_| _ = socket.offer(FLOODED));
        let thinning = &mut socket.thinning;
        let at_end = socket.now + CAPACITY - LEVEL_AT_END;
        let busy = |thinning: &Thinning| thinning.prefixes.as_ref().unwrap().busy.len();
        let before = at_end - Duration::from_nanos(1);
        assert!(thinning.fitting_sample(before, 200_000.0).is_some());
        assert!(thinning.is_flooded && busy(thinning) == 1);
        assert!(thinning.fitting_sample(at_end, 200_000.0).is_none());
        assert!(!thinning.is_flooded && busy(thinning) == 0);
    }

    #[test]
    fn the_filter_comes_after_one_interval_and_is_given_to_the_socket_once() {
        let mut socket = Socket::by_prefix();
        (0..20_000).for_each(|_| _ = socket.offer(FLOODED));
        let (begin, thinning) = (socket.now, &mut socket.thinning);
        assert!(!thinning.adapt(begin + INTERVAL - Duration::from_nanos(1), &mut 0));
        assert!(thinning.adapt(begin + INTERVAL, &mut 0));
        assert!(thinning.filter().is_some());
    }

    #[test]
    fn a_new_hash_has_no_filter_until_its_prefixes_are_busy() {
        let mut socket = Socket::by_prefix();
        socket.play(1000, 100, |_| FLOODED);
        assert!(socket.thinning.is_flooded);
        let since = socket.now - HASH_LIFE;
        let thinning = &mut socket.thinning;
        thinning.prefixes.as_mut().unwrap().hash_since = since + Duration::from_nanos(1);
        assert!(thinning.fitting_sample(socket.now, 100_000.0).is_some());
        thinning.prefixes.as_mut().unwrap().hash_since = since;
        assert!(thinning.fitting_sample(socket.now, 100_000.0).is_none());
        assert!(thinning.is_flooded, "the flood goes on");
    }

    #[test]
    fn the_ratio_changes_by_more_than_a_quarter_and_has_a_maximum() {
        let mut thinning = Socket::by_prefix().thinning;
        assert_eq!(thinning.keep_one_in(999.0 * 5_000.0), 999);
        assert_eq!(thinning.keep_one_in(1e9), 1000);
        thinning.filter = Some(Filter::Sample(Sample { thinned: Thinned::Every, keep_one_in: 20 }));
        for (fitting, ratio) in [(1, 1), (14, 14), (15, 20), (25, 20), (26, 26), (40, 40)] {
            assert_eq!(thinning.keep_one_in(f64::from(fitting) * 5_000.0), ratio);
        }
    }

    #[test]
    fn cookies_are_thinned_by_prefix_to_twice_the_answers_and_are_no_flood_of_inits() {
        let cookies = || Socket::new(Thinning::of_class(Class::Cookies, Headers::Udp).unwrap());
        let mut socket = cookies();
        socket.play(1000, 100, |_| FLOODED);
        let kept = socket.play(1000, 100, |_| FLOODED);
        assert!((3_500..7_000).contains(&kept), "{kept} of 100,000");
        let mut socket = cookies();
        assert_eq!(socket.play(1000, 100, everywhere), 100_000);
        assert_eq!(socket.changes, 0);
    }

    #[test]
    fn few_strays_have_no_filter() {
        let mut socket = Socket::new(Thinning::of_class(Class::Strays, Headers::Udp).unwrap());
        assert_eq!(socket.play(1000, 1, everywhere), 1_000);
        assert_eq!(socket.changes, 0);
    }

    #[test]
    fn a_flood_of_inits_begins_beyond_twice_the_answers() {
        let (mut flood, now) = (InitFlood::new(Headers::Udp, |_| Err(Errno::EPERM)), Instant::now());
        flood.add(now, 5_000);
        assert!(!flood.begins);
        flood.add(now, 1);
        assert!(flood.begins);
        assert!(flood.begin().is_none() && !flood.begins);
        flood.add(now, 1);
        assert!(!flood.begins, "this process may not have the filter");
    }

    #[test]
    fn a_flood_of_inits_ends_at_half_its_level_and_can_come_back() {
        let (mut flood, now) = (InitFlood::new(Headers::Udp, Repetitions::load), Instant::now());
        flood.add(now, 5_001);
        let Some(repetitions) = flood.begin() else { return };
        let at_end = now + INITS_CAPACITY - INITS_LEVEL_AT_END;
        assert_eq!(flood.go_on(at_end - Duration::from_nanos(1), &repetitions), Some(0));
        assert_eq!((flood.ended, flood.go_on(at_end, &repetitions)), (None, Some(0)));
        assert_eq!(flood.ended, Some(at_end), "the kernel drops none");
        flood.add(at_end, 5_001);
        assert_eq!((flood.go_on(at_end, &repetitions), flood.ended), (Some(0), None), "it drops them again");
        let at_end = at_end + INITS_CAPACITY;
        assert_eq!((flood.go_on(at_end, &repetitions), flood.ended), (Some(0), Some(at_end)));
        let at_end = at_end + REMEMBERED_FOR;
        assert_eq!(flood.go_on(at_end - Duration::from_nanos(1), &repetitions), Some(0));
        assert_eq!(flood.go_on(at_end, &repetitions), None);
        let mut thinning = Socket::by_prefix().thinning;
        (thinning.init_flood, thinning.filter) = (Some(flood), Some(Filter::Repetitions(repetitions)));
        thinning.on_refused();
        assert!(thinning.init_flood.unwrap().load.is_none(), "a refused filter is not tried again");
    }
}
