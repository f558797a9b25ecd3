//! What each live experiment compares, and on which lines.

use ::lab::experiment::{Mode, message_limit_bits_per_s};

use crate::args::LiveName;
use crate::lab::line::spec::PathSpec;

/// Small writes, and large ones.
const SIZES: &[usize] = &[64, 16384];
/// Writes that fill many packets.
const LARGE: &[usize] = &[16384];
/// The receive buffers that sctplib was measured with.
const BUFFERS_SCTPLIB: &[Option<usize>] = &[Some(655_335), Some(67_107_840)];
/// What iperf was told between two continents: -w 32M.
const BUFFERS_DATATAG: &[Option<usize>] = &[Some(32 << 20)];
/// How long a measurement takes, on lines of a short round trip and of a long one.
const SECONDS: f64 = 3.0;
const SECONDS_FAR: f64 = 10.0;
/// The sizes that OpenSS7 was measured with.
const SIZES_OPENSS7: &[usize] = &[8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384];
/// Headers of IPv4 and of TCP with timestamps.
const TCP_HEADERS_BYTES: f64 = 52.0;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Series {
    pub(super) name: &'static str,
    /// Options of `swiftwater perf client`.
    pub(super) words: &'static [&'static str],
    pub(super) paths: usize,
    /// The name of the series that shows what the best path makes alone.
    pub(super) alone: &'static str,
}

const TCP_CUBIC: Series = Series {
    name: "tcp-cubic",
    words: &["--proto", "tcp", "--congestion", "cubic"],
    paths: 1,
    alone: "tcp-cubic",
};
const TCP_BBR: Series =
    Series { name: "tcp-bbr", words: &["--proto", "tcp", "--congestion", "bbr"], paths: 1, alone: "tcp-bbr" };
const TCP_RENO: Series = Series {
    name: "tcp-reno",
    words: &["--proto", "tcp", "--congestion", "reno"],
    paths: 1,
    alone: "tcp-reno",
};
/// TCP with the congestion control of this host.
const TCP: Series = Series { name: "tcp", words: &["--proto", "tcp"], paths: 1, alone: "tcp" };
pub(super) const MPTCP: Series =
    Series { name: "mptcp", words: &["--proto", "mptcp"], paths: 2, alone: "tcp-cubic" };
const MESSAGE: Series =
    Series { name: "sctp-message", words: &["--mode", "message"], paths: 2, alone: "sctp-message" };
const STREAM: Series =
    Series { name: "sctp-stream", words: &["--mode", "stream"], paths: 2, alone: "sctp-stream" };

impl Series {
    pub(super) const fn on_one_path(self) -> Self {
        Series { paths: 1, ..self }
    }

    /// Returns whether this is TCP on one path, which others are compared with.
    pub(super) fn is_tcp(self) -> bool {
        self.name.starts_with("tcp")
    }

    fn mode(self) -> Mode {
        if self.name == MESSAGE.name { Mode::Message } else { Mode::Stream }
    }

    pub(super) fn mode_name(self) -> &'static str {
        self.mode().name()
    }
}

/// Each size with each series, on these lines; without lines, on loopback.
pub(super) struct Plan {
    pub(super) name: &'static str,
    pub(super) case: &'static str,
    pub(super) lines: Vec<PathSpec>,
    pub(super) series: Vec<Series>,
    pub(super) sizes: &'static [usize],
    /// Buffers at both ends; `None` is the default.
    pub(super) buffers: &'static [Option<usize>],
    /// Seconds of each measurement, if the user does not say.
    pub(super) seconds: f64,
}

impl Plan {
    pub(super) fn of(name: LiveName) -> Self {
        let on_one = [TCP_CUBIC, TCP_BBR, TCP_RENO, MESSAGE.on_one_path(), STREAM.on_one_path()];
        let on_two = [&on_one[..], &[MPTCP, MESSAGE, STREAM]].concat();
        let far = vec![TCP_CUBIC, TCP_BBR, MESSAGE.on_one_path(), STREAM.on_one_path()];
        let loopback = vec![TCP, MESSAGE.on_one_path(), MESSAGE, STREAM.on_one_path(), STREAM];
        let (name, case, lines, series, sizes): (_, _, &[&str], _, _) = match name {
            LiveName::TwoEqual => (
                "two-equal",
                "100 + 100 Mbit/s, 0.2 ms",
                &["100mbit,100us", "100mbit,100us"],
                on_two,
                SIZES_OPENSS7,
            ),
            LiveName::AsymmetricRate => {
                ("asymmetric-rate", "100 + 10 Mbit/s", &["100mbit,5ms", "10mbit,5ms"], on_two, SIZES)
            }
            LiveName::AsymmetricDelay => {
                ("asymmetric-delay", "10 ms + 200 ms", &["100mbit,5ms", "100mbit,100ms"], on_two, SIZES)
            }
            LiveName::Lossy => {
                ("lossy", "clean + 2 % lost", &["100mbit,5ms", "100mbit,5ms,loss=2%"], on_two, SIZES)
            }
            LiveName::Sctplib => ("sctplib", "30 Mbit/s, 100 ms", &["30mbit,50ms,queue=400kB"], far, LARGE),
            LiveName::Datatag => ("datatag", "1 Gbit/s, 120 ms", &["1gbit,60ms"], far, LARGE),
            LiveName::Loopback => ("loopback", "two loopback addresses", &[], loopback, SIZES),
        };
        let lines = lines.iter().map(|line| line.parse().expect("a path of ours is one")).collect();
        let (buffers, seconds): (&[_], _) = match name {
            "sctplib" => (BUFFERS_SCTPLIB, SECONDS_FAR),
            "datatag" => (BUFFERS_DATATAG, SECONDS_FAR),
            _ => (&[None], SECONDS),
        };
        Plan { name, case, lines, series, sizes, buffers, seconds }
    }

    /// Returns what the first lines carry at best of messages of this size, counted from the IP header on.
    pub(super) fn limit_bits_per_s(&self, series: Series, message_bytes: usize) -> f64 {
        let of_line = |line: &PathSpec| {
            let loss = match line.pipe.loss {
                netsim::Loss::Random { probability } => probability,
                _ => 0.0,
            };
            let most = if series.name.starts_with("sctp") {
                message_limit_bits_per_s(&line.pipe, series.mode(), message_bytes)
            } else {
                let mtu = line.mtu_bytes as f64;
                let rate = line.pipe.rate_bits_per_s.map_or(f64::INFINITY, |rate| rate as f64);
                rate * (mtu - TCP_HEADERS_BYTES) / mtu
            };
            most * (1.0 - loss)
        };
        // Nothing limits loopback but the processor.
        if self.lines.is_empty() {
            return f64::INFINITY;
        }
        self.lines.iter().take(series.paths).map(of_line).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_counts_packets_with_their_headers() {
        let mbits =
            |name, series, bytes| (Plan::of(name).limit_bits_per_s(series, bytes) / 1e4).round() / 100.0;
        assert_eq!(mbits(LiveName::TwoEqual, STREAM, 8), 192.53);
        assert_eq!(mbits(LiveName::AsymmetricRate, TCP_CUBIC, 64), 96.53);
        assert_eq!(mbits(LiveName::AsymmetricRate, MPTCP, 64), 106.19);
    }

    #[test]
    fn all_series_of_a_plan_find_what_shows_the_best_path_alone() {
        for name in <LiveName as clap::ValueEnum>::value_variants() {
            let plan = Plan::of(*name);
            for series in &plan.series {
                let alone = |other: &&Series| other.name == series.alone && other.paths == 1;
                let found = plan.series.iter().any(|other| alone(&other));
                assert!(found, "{} of {}", series.name, plan.name);
            }
        }
    }
}
