//! Congestion control coupled over the paths of an association.
//!
//! If paths share a bottleneck, an association with a controller for each takes as much of it as that many
//! associations. Coupled paths together take about as much as one, and traffic moves from congested paths to the
//! others.
//!
//! A coupling replaces the increase and the decrease of congestion avoidance (RFC 9260 §7.2.2, §7.2.3) and nothing
//! else. A single path follows RFC 9260. With x_r the window of path r divided by its smoothed round-trip time, a
//! window w_r grows in a round trip, and shrinks for a loss:
//!
//! | coupling | grows by packets | shrinks by |
//! |---|---|---|
//! | CMT/RPv2 | x_r / Σx | w_r · max(1/2, Σx / 2x_r) |
//! | BALIA, with α = max x / x_r | (x_r / Σx)² · (1 + α)/2 · (4 + α)/5 | w_r/2 · min(α, 3/2) |

use std::time::Duration;

use super::window::PACKETS_MIN;
use crate::error::by_name;

/// Whether the paths of an association share one congestion control.
///
/// Any value but `None` replaces the [`Algorithm`](crate::congestion::Algorithm): every path has the controller of RFC 9260
/// §7.2 with the increase and the decrease of the coupling. While a single path carries data, its controller follows RFC
/// 9260. Initial windows and slow start are those of a single path. The numbers are the values of FreeBSD's
/// `SCTP_CMT_ON_OFF`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Coupling {
    /// One controller for each path (1), for paths without a common bottleneck.
    #[default]
    None,
    /// CMT/RPv2 (3; T. Dreibholz, "Evaluation and Optimisation of Multi-Path Transport using the Stream Control
    /// Transmission Protocol", 2012; draft-tuexen-tsvwg-sctp-multipath). A loss on a path reduces its rate by half of
    /// the rate of the whole association. So the association never fills several lines of similar rate at once; of two
    /// equal lines it uses three quarters.
    ResourcePooling,
    /// BALIA (draft-walid-mptcp-congestion-control); FreeBSD has an older algorithm of MPTCP under this number (4). It
    /// fills separate lines, and takes slightly more of a shared line than one flow.
    Balia,
}

impl Coupling {
    /// All values, the default first.
    pub const ALL: [Coupling; 3] = [Coupling::None, Coupling::ResourcePooling, Coupling::Balia];

    /// Returns the name that [`FromStr`](std::str::FromStr) parses.
    pub fn name(self) -> &'static str {
        match self {
            Coupling::None => "none",
            Coupling::ResourcePooling => "rpv2",
            Coupling::Balia => "balia",
        }
    }

    /// Returns the growth of a window after a full window was acknowledged.
    pub(super) fn growth_bytes(self, share: &Share, mtu_bytes: usize) -> usize {
        let fraction = match self {
            Coupling::None => ONE,
            Coupling::ResourcePooling => share.own(),
            Coupling::Balia => {
                let (own, fastest) = (share.own(), share.fastest());
                (own + fastest) * (4 * own + fastest) / (10 * ONE)
            }
        };
        (mtu_bytes as u128 * fraction).div_ceil(ONE).max(1) as usize
    }

    /// Returns the window that remains after a loss.
    pub(super) fn reduced_bytes(self, share: &Share, cwnd_bytes: usize) -> usize {
        let (own, fastest, total) = share.rates();
        let (given_up, of) = match self {
            Coupling::None => (1, 2),
            Coupling::ResourcePooling => (total, 2 * own),
            Coupling::Balia => ((2 * fastest).min(3 * own), 4 * own),
        };
        (cwnd_bytes as u128 * of.saturating_sub(given_up) / of) as usize
    }

    /// Returns the minimum window after a loss. The four packets of RFC 9260 §7.2.3 belong to the association, and each path has
    /// its share.
    pub(super) fn floor_bytes(self, share: &Share, mtu_bytes: usize) -> usize {
        let floor = PACKETS_MIN * mtu_bytes;
        match self {
            Coupling::None => floor,
            _ => ((floor as u128 * share.own() / ONE) as usize).max(mtu_bytes),
        }
    }
}

by_name!(Coupling, "no such coupling of congestion control: choose none, rpv2 or balia");

/// Returns the rate of a window: its bytes per round trip.
pub(crate) fn rate_bytes_per_s(cwnd_bytes: usize, srtt: Duration) -> u64 {
    let rate = cwnd_bytes as u128 * 1_000_000_000 / srtt.as_nanos().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX).max(1)
}

/// The rates of the paths of an association that carry data.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pool {
    fastest_bytes_per_s: u64,
    total_bytes_per_s: u64,
}

impl Pool {
    /// Returns the share that one of its paths has.
    pub(crate) fn share(self, own_bytes_per_s: u64) -> Share {
        Share { own_bytes_per_s, pool: self }
    }
}

impl FromIterator<u64> for Pool {
    fn from_iter<I: IntoIterator<Item = u64>>(rates: I) -> Self {
        rates.into_iter().fold(Pool::default(), |pool, rate| Pool {
            fastest_bytes_per_s: pool.fastest_bytes_per_s.max(rate),
            total_bytes_per_s: pool.total_bytes_per_s.saturating_add(rate),
        })
    }
}

/// One, as a fixed-point number.
const ONE: u128 = 1 << 32;

/// Share that one path has of the rate of its association.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    own_bytes_per_s: u64,
    pool: Pool,
}

impl Default for Share {
    /// Returns the share of a single path: all of it.
    fn default() -> Self {
        Pool::from_iter([1]).share(1)
    }
}

impl Share {
    /// Returns the own, the fastest and the total rate.
    fn rates(&self) -> (u128, u128, u128) {
        let Pool { fastest_bytes_per_s, total_bytes_per_s } = self.pool;
        (self.own_bytes_per_s.into(), fastest_bytes_per_s.into(), total_bytes_per_s.into())
    }

    /// Returns the own rate divided by the total.
    fn own(&self) -> u128 {
        let (own, _, total) = self.rates();
        own * ONE / total
    }

    /// Returns the fastest rate divided by the total.
    fn fastest(&self) -> u128 {
        let (_, fastest, total) = self.rates();
        fastest * ONE / total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU: usize = 1000;

    /// Returns the shares of two paths that have these rates.
    fn shares(rates: [u64; 2]) -> [Share; 2] {
        let pool = Pool::from_iter(rates);
        rates.map(|rate| pool.share(rate))
    }

    #[test]
    fn a_path_alone_does_what_rfc_9260_says() {
        for coupling in Coupling::ALL {
            for share in [Share::default(), Pool::from_iter([12_345]).share(12_345)] {
                assert_eq!(coupling.growth_bytes(&share, MTU), MTU, "{coupling}");
                assert_eq!(coupling.reduced_bytes(&share, 40_001), 20_000, "{coupling}");
                assert_eq!(coupling.floor_bytes(&share, MTU), 4 * MTU, "{coupling}");
            }
        }
    }

    #[test]
    fn a_path_of_several_does_what_the_formulas_say() {
        let rates = [[1, 1], [1, 3], [5, 6], [999_999, 1], [7, 1_000_000_007]];
        for share in rates.into_iter().flat_map(shares) {
            let (own, fastest, total) = share.rates();
            let (own, fastest, total) = (own as f64, fastest as f64, total as f64);
            let alpha = fastest / own;
            let balia_growth = (own / total).powi(2) * (1.0 + alpha) / 2.0 * (4.0 + alpha) / 5.0;
            let expected = [
                (Coupling::ResourcePooling, own / total, (total / (2.0 * own)).max(0.5)),
                (Coupling::Balia, balia_growth, alpha.min(1.5) / 2.0),
            ];
            for (coupling, growth, given_up) in expected {
                let grown = coupling.growth_bytes(&share, MTU) as f64;
                assert!((grown - growth * MTU as f64).abs() <= 1.0, "{coupling} {share:?} {grown}");
                let left = coupling.reduced_bytes(&share, 100 * MTU) as f64;
                let expected = (1.0 - given_up).max(0.0) * 100.0 * MTU as f64;
                assert!((left - expected).abs() <= 1.0, "{coupling} {share:?} {left}");
            }
        }
    }

    #[test]
    fn four_packets_are_shared_but_each_path_has_one() {
        let floors = |rates| shares(rates).map(|share| Coupling::Balia.floor_bytes(&share, MTU));
        assert_eq!(floors([1, 1]), [2 * MTU, 2 * MTU]);
        assert_eq!(floors([1, 3]), [MTU, 3 * MTU]);
        assert_eq!(floors([1, 15]), [MTU, 3750]);
    }

    #[test]
    fn absurd_rates_are_no_overflow_and_every_window_grows() {
        for share in shares([1, u64::MAX]) {
            for coupling in Coupling::ALL {
                assert!((1..=65_535).contains(&coupling.growth_bytes(&share, 65_535)), "{coupling}");
                assert!(coupling.reduced_bytes(&share, 1 << 50) < 1 << 50, "{coupling}");
            }
        }
        assert_eq!(rate_bytes_per_s(0, Duration::ZERO), 1);
    }

    #[test]
    fn rates_are_windows_in_round_trips() {
        assert_eq!(rate_bytes_per_s(10_000, Duration::from_millis(50)), 200_000);
    }

    #[test]
    fn every_name_is_understood_and_named_in_the_advice() {
        let error = "olia".parse::<Coupling>().expect_err("there is none");
        for coupling in Coupling::ALL {
            assert_eq!(coupling.to_string().parse(), Ok(coupling));
            assert!(error.to_string().contains(coupling.name()));
        }
    }
}
