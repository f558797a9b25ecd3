//! Thins a flood in the kernel, before its packets take room and time.
//!
//! A stranger's packet costs some microseconds until the protocol finds that it has no answer left for its sender. Where most
//! packets of a flood meet that end, the socket gets a [`Filter`] that keeps as many of them as there are answers, chosen at
//! random. It thins only *busy* prefixes (/24, /56), those that send more than [`PREFIX_RATE`]: they share one part of the
//! answers in any case, and all other strangers arrive as before. A flood from everywhere has no busy prefixes and is not
//! thinned, because a repeated INIT is worth more than a new one, and a filter has no memory: of new peers that send at 0, 1 and
//! 3 s, a filter that keeps a part q serves q² by the second INIT and 3q² - 2q³ by the third. To serve 95 %, q is 0.975 or 0.865,
//! so it could drop an eighth at most. Strays are all thinned.
//!
//! All rates are leaky buckets that count each received packet as those for which the filter kept it. So they know the rate of
//! the flood while it is thinned, and the filter ends with it. A keyed hash assigns prefixes to buckets ([`prefix_hash`]); the
//! key changes every ten seconds.

pub(crate) mod filter;
pub(crate) mod prefix_hash;

use std::net::IpAddr;
use std::time::{Duration, Instant};

use self::filter::{Filter, Thinned};
use self::prefix_hash::{BUCKETS, PrefixHash};
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

/// A leaky bucket, kept as the time at which it is empty.
#[derive(Clone, Copy, Debug, Default)]
struct Leaky {
    empty_at: Option<Instant>,
}

impl Leaky {
    /// Adds packets. Returns whether the bucket has overflowed.
    fn add(&mut self, now: Instant, packets: u32, per_s: u32) -> bool {
        let drained = Duration::from_nanos(1_000_000_000 * u64::from(packets) / u64::from(per_s));
        let (empty_at, full) = (self.empty_at.map_or(now, |at| at.max(now)) + drained, now + CAPACITY);
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
    /// Whether the filter thins it.
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

    /// Returns the busy buckets, which are thinned from now on if `thins`.
    fn thin(&mut self, thins: bool) -> Vec<u32> {
        for bucket in &mut self.buckets {
            bucket.is_thinned = thins && bucket.is_busy;
        }
        let mut busy: Vec<u32> = self.busy.iter().map(|index| *index as u32).collect();
        busy.sort_unstable();
        busy
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
    filter: Option<Filter>,
}

impl Thinning {
    /// Returns the state for the socket of a class. `None`: its packets are never thinned.
    pub(crate) fn of_class(class: Class) -> Option<Self> {
        let (per_s, by_prefix) = match class {
            Class::Peers => return None,
            // Twice the answers to busy prefixes.
            Class::Inits | Class::Cookies => (5_000, true),
            // Twice the rate of answers to packets out of the blue. Most of those get no answer.
            Class::Strays => (2_000, false),
        };
        Some(Self::new(per_s, by_prefix, PrefixHash::random))
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
            filter: None,
        }
    }

    /// Returns the filter that the socket must have.
    pub(crate) fn filter(&self) -> Option<&Filter> {
        self.filter.as_ref()
    }

    /// Records a received packet. Returns the number of packets that the filter has probably dropped for it.
    pub(crate) fn on_packet(&mut self, now: Instant, source: IpAddr) -> u32 {
        let kept_one_in = self.filter.as_ref().map_or(1, |filter| filter.keep_one_in);
        let mut stands_for = kept_one_in;
        if self.by_prefix {
            let prefixes = self.prefixes.get_or_insert_with(|| Prefixes::new(now, (self.new_hash)()));
            let index = prefixes.hash.bucket(source);
            let bucket = &mut prefixes.buckets[index];
            stands_for = if bucket.is_thinned { kept_one_in } else { 1 };
            let overflows = bucket.rate.add(now, stands_for, PREFIX_RATE);
            if overflows && !bucket.is_busy && prefixes.busy.len() < THINNED_BUCKETS_MAX {
                bucket.is_busy = true;
                prefixes.busy.push(index);
            }
            if !bucket.is_busy {
                return 0;
            }
        }
        self.is_flooded |= self.rate.add(now, stands_for, self.per_s);
        let window = self.window.get_or_insert(Window { began: now, packets: 0 });
        window.packets += u64::from(stands_for);
        stands_for - 1
    }

    /// Adapts the filter to the flood, once in `INTERVAL`. Returns whether the socket needs another one, or none any more.
    pub(crate) fn adapt(&mut self, now: Instant) -> bool {
        let Some(window) = self.window else { return false };
        let elapsed = now.saturating_duration_since(window.began);
        if elapsed < INTERVAL {
            return false;
        }
        self.window = Some(Window { began: now, packets: 0 });
        self.is_flooded &= self.rate.level(now) > LEVEL_AT_END;
        let busy_per_s = window.packets as f64 / elapsed.as_secs_f64();
        let keep_one_in = if self.is_flooded { self.keep_one_in(busy_per_s) } else { 1 };
        let filter = match &mut self.prefixes {
            None => (keep_one_in > 1).then_some(Filter { thinned: Thinned::Every, keep_one_in }),
            Some(prefixes) => {
                if now.saturating_duration_since(prefixes.hash_since) >= HASH_LIFE {
                    *prefixes = Prefixes::new(now, (self.new_hash)());
                }
                prefixes.calm(now);
                let thins = keep_one_in > 1 && !prefixes.busy.is_empty();
                let thinned = Thinned::Buckets(prefixes.hash, prefixes.thin(thins));
                thins.then_some(Filter { thinned, keep_one_in })
            }
        };
        let changed = filter != self.filter;
        self.filter = filter;
        changed
    }

    /// Returns the ratio for a flood of this rate: the present one unless it is far off, since each change costs a system call.
    fn keep_one_in(&self, busy_per_s: f64) -> u32 {
        let present = self.filter.as_ref().map_or(1, |filter| filter.keep_one_in);
        let fitting = (busy_per_s / f64::from(self.per_s)).round().clamp(1.0, KEEP_ONE_IN_MAX) as u32;
        if fitting > 1 && fitting.abs_diff(present) <= present / 4 { present } else { fitting }
    }

    /// Records that the kernel does not accept the filter, so that the socket receives all packets.
    pub(crate) fn on_refused(&mut self) {
        self.filter = None;
        if let Some(prefixes) = &mut self.prefixes {
            prefixes.thin(false);
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
            let keeps = |filter: &Filter| crate::bpf::run_on(&filter.program(), input) == crate::bpf::TAKE;
            let kept = self.thinning.filter().is_none_or(keeps);
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
                self.changes += usize::from(self.thinning.adapt(self.now));
            }
            kept
        }
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
                if thinning.adapt(now) {
                    let filter = thinning.filter().expect("the flood goes on");
                    attach_filter(socket.as_fd(), &filter.program()).unwrap();
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
        let everywhere = |n: u32| IpAddr::from(n.wrapping_mul(0x9e37_79b1).to_be_bytes());
        assert_eq!(socket.play(3000, 100, everywhere), 300_000);
        assert_eq!(socket.changes, 0);
    }

    #[test]
    fn strays_are_thinned_whatever_their_source_is() {
        let mut socket = Socket::new(Thinning::of_class(Class::Strays).unwrap());
        let everywhere = |n: u32| IpAddr::from(n.wrapping_mul(0x9e37_79b1).to_be_bytes());
        socket.play(500, 100, everywhere);
        let kept = socket.play(1000, 100, everywhere);
        assert!((1_000..4_000).contains(&kept), "{kept} of 100,000");
        assert!(Thinning::of_class(Class::Peers).is_none());
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
}
