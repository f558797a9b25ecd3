//! The outcome of a case.

use std::ops::RangeInclusive;

use sctp::Statistics;

/// Outcome of a case, measured or published.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The case.
    pub case: String,
    /// `sctp` for this stack, or the published program.
    pub transport: String,
    /// Congestion control of this stack.
    pub algorithm: Option<&'static str>,
    /// Duration in seconds.
    pub seconds: f64,
    /// Payload delivered per second.
    pub bits_per_s: f64,
    /// Largest payload rate of the lines while they are up: [`limit_bits_per_s`](super::limit_bits_per_s), or with a
    /// message size [`message_limit_bits_per_s`](super::message_limit_bits_per_s); infinite without a limit.
    pub limit_bits_per_s: f64,
    /// Rate that theory predicts.
    pub predicted_bits_per_s: Option<f64>,
    /// Jain's index of the associations' rates; 1 if they are equal.
    pub fairness: Option<f64>,
    /// Round trips until the message was complete.
    pub round_trips: Option<f64>,
    /// Size of a message, or of a write.
    pub message_bytes: Option<usize>,
    /// Whether writes arrive as messages: the name of a [`Mode`](super::Mode).
    pub mode: Option<&'static str>,
    /// Number of paths used at once.
    pub paths: Option<usize>,
    /// The path that was used alone, counted from 1.
    pub path: Option<usize>,
    /// Number of paths of the network before the first of several that were used at once.
    pub paths_before: usize,
    /// Rate of the best path alone.
    pub best_path_bits_per_s: Option<f64>,
    /// Sum of the rates of all paths, each used alone.
    pub sum_of_paths_bits_per_s: Option<f64>,
    /// Number of messages that ten seconds suffice for.
    pub messages_in_10_s: Option<f64>,
    /// Time from a request to its answer.
    pub latency_s: Option<f64>,
    /// The longest time without a delivery.
    pub gap_s_max: Option<f64>,
    /// Use of the lines after they came back; `None` if none did.
    pub returns: Option<Returns>,
    /// Messages sent and not delivered, once all had time to arrive.
    pub missing_messages: Option<i64>,
    /// DATA chunks retransmitted.
    pub retransmissions: Option<u64>,
    /// Losses repaired without a timeout.
    pub fast_recoveries: Option<u64>,
    /// Retransmission timeouts.
    pub timeouts: Option<u64>,
    /// A published figure of other authors.
    pub published: bool,
    /// Whether the user has ended it early.
    pub interrupted: bool,
    /// Samples, for a figure.
    pub trace: Vec<Sample>,
}

/// Use of lines after they came back.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Returns {
    /// Number of times that a line came back.
    pub count: usize,
    /// Number of those after which the line was not used until the end.
    pub missed: usize,
    /// The longest time until a line was used again; `None` if none was.
    pub back_s_max: Option<f64>,
}

/// A sample of a case.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Seconds since the beginning.
    pub at_s: f64,
    /// Payload delivered per second since the previous sample.
    pub bits_per_s: f64,
    /// The paths.
    pub paths: Vec<PathSample>,
}

/// A path in a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PathSample {
    /// Rate of the packets that have left the line since the previous sample, including headers.
    pub bits_per_s: f64,
    /// Congestion window.
    pub cwnd_bytes: usize,
    /// Bytes in flight.
    pub in_flight_bytes: usize,
    /// Bytes that waited in the queue of the bottleneck.
    pub queue_bytes: usize,
    /// The smoothed round-trip time; 0 before the first measurement.
    pub srtt_s: f64,
}

/// Returns the numbers of paths as tables have them: `1+2`.
pub fn path_numbers(paths: RangeInclusive<usize>) -> String {
    paths.map(|path| path.to_string()).collect::<Vec<_>>().join("+")
}

impl Returns {
    /// Summarizes the times from each return of a line until it was used again, `None` for a line that was not used until the
    /// end. Returns `None` if no line came back.
    pub fn new(times_s: impl IntoIterator<Item = Option<f64>>) -> Option<Self> {
        let mut returns = Returns::default();
        for time_s in times_s {
            returns.count += 1;
            match time_s {
                Some(time_s) => {
                    returns.back_s_max = Some(returns.back_s_max.map_or(time_s, |most| most.max(time_s)));
                }
                None => returns.missed += 1,
            }
        }
        (returns.count > 0).then_some(returns)
    }
}

impl Outcome {
    /// Returns whether something limits the lines.
    pub fn has_limit(&self) -> bool {
        self.limit_bits_per_s.is_finite()
    }

    /// Returns the part of the limit that was reached.
    pub fn share(&self) -> f64 {
        self.bits_per_s / self.limit_bits_per_s
    }

    /// Returns the number of the path that was used alone, or of all used paths: `2`, `1+2`.
    pub fn paths_text(&self) -> Option<String> {
        let numbers = match (self.path, self.paths) {
            (Some(path), _) => path..=path,
            (None, paths) => self.paths_before + 1..=self.paths_before + paths?,
        };
        Some(path_numbers(numbers))
    }

    /// Returns the rate of all paths divided by that of the best path.
    pub fn ratio_to_best_path(&self) -> Option<f64> {
        self.best_path_bits_per_s.map(|best| self.bits_per_s / best)
    }

    /// Returns the rate of all paths divided by the sum of the rates of single paths.
    pub fn ratio_to_sum_of_paths(&self) -> Option<f64> {
        self.sum_of_paths_bits_per_s.map(|sum| self.bits_per_s / sum)
    }

    /// Returns the outcome with the counters of the sender.
    pub(super) fn counted(mut self, statistics: &Statistics) -> Self {
        self.retransmissions = Some(statistics.data_chunks_retransmitted);
        self.fast_recoveries = Some(statistics.fast_recoveries);
        self.timeouts = Some(statistics.timeouts);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paths_of_a_row_are_those_that_were_used() {
        let text = |outcome: Outcome| outcome.paths_text();
        let (alone, both) = (Some(1), Some(2));
        assert_eq!(text(Outcome::default()), None);
        assert_eq!(text(Outcome { path: Some(3), paths: alone, ..Outcome::default() }).as_deref(), Some("3"));
        assert_eq!(text(Outcome { paths: both, ..Outcome::default() }).as_deref(), Some("1+2"));
        let after_one = Outcome { paths: both, paths_before: 1, ..Outcome::default() };
        assert_eq!(text(after_one).as_deref(), Some("2+3"));
    }

    #[test]
    fn a_line_that_was_not_used_again_is_counted_beside_the_longest_time_of_the_others() {
        let returns = |times_s: &[Option<f64>]| {
            Returns::new(times_s.iter().copied())
                .map(|returns| (returns.count, returns.missed, returns.back_s_max))
        };
        assert_eq!(returns(&[]), None);
        assert_eq!(returns(&[Some(0.5), None, Some(2.0), Some(1.0)]), Some((4, 1, Some(2.0))));
        assert_eq!(returns(&[None]), Some((1, 1, None)));
    }
}
