//! The events of a path, sorted into columns of equal time.

use crate::plot::Chart;
use crate::trace::names;
use crate::trace::reader::Body;
use crate::trace::schema::{Chunk, MetricsUpdated, Packet};

/// Columns of a figure: one for each pixel, with the least and the largest value in it.
const COLUMNS: usize = Chart::plot_width(super::WIDTH);
/// Number of time spans whose mean rates are drawn.
const RATE_SPANS: usize = 160;
/// Minimum duration of a figure.
const SPAN_S_MIN: f64 = 1e-6;

/// Marks, from the top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Lost,
    SentAgain,
    Timeout,
    Probe,
    Undone,
}

impl Mark {
    pub(super) const ALL: [Mark; 5] = [Mark::Lost, Mark::SentAgain, Mark::Timeout, Mark::Probe, Mark::Undone];

    pub(super) fn name(self) -> &'static str {
        match self {
            Mark::Lost => "lost",
            Mark::SentAgain => "sent again",
            Mark::Timeout => "timeout",
            Mark::Probe => "probe",
            Mark::Undone => "undone",
        }
    }
}

/// Range of a value in a column.
#[derive(Clone, Copy, Debug)]
struct Span {
    least: f64,
    most: f64,
    last: f64,
}

/// A value over time, constant between changes.
#[derive(Clone, Debug)]
pub(super) struct Series {
    columns: Vec<Option<Span>>,
    /// Value before the first column.
    before: Option<f64>,
}

/// The content of a figure.
#[derive(Debug)]
pub(super) struct Columns {
    pub(super) from_s: f64,
    pub(super) to_s: f64,
    pub(super) cwnd: Series,
    pub(super) ssthresh: Series,
    pub(super) in_flight: Series,
    pub(super) latest_rtt: Series,
    pub(super) smoothed_rtt: Series,
    pub(super) min_rtt: Series,
    pub(super) pacing: Series,
    /// Bytes that arrived at the peer, by time span.
    acked: Vec<f64>,
    /// Bytes that came from the peer, by time span.
    received: Vec<f64>,
    /// Number of each mark, by column.
    marks: [Vec<u32>; Mark::ALL.len()],
    pub(super) totals: Totals,
}

/// Sums over the drawn part.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Totals {
    pub(super) packets_sent: u64,
    pub(super) packets_received: u64,
    pub(super) acked_bytes: u64,
    pub(super) received_bytes: u64,
    pub(super) marks: [u64; Mark::ALL.len()],
}

impl Series {
    fn new() -> Self {
        Self { columns: vec![None; COLUMNS], before: None }
    }

    fn set(&mut self, column: Option<usize>, value: Option<f64>) {
        let Some(column) = column else {
            self.before = value;
            return;
        };
        // A value that ceases to exist is drawn to the end of its column.
        let Some(value) = value else { return };
        let span = self.columns[column].get_or_insert(Span { least: value, most: value, last: value });
        (span.least, span.most, span.last) = (span.least.min(value), span.most.max(value), value);
    }

    /// Returns whether there is anything to draw.
    pub(super) fn is_empty(&self) -> bool {
        self.before.is_none() && self.columns.iter().all(Option::is_none)
    }

    /// Returns the largest value.
    pub(super) fn most(&self) -> f64 {
        let inside = self.columns.iter().flatten().map(|span| span.most);
        inside.chain(self.before).fold(0.0, f64::max)
    }

    /// Returns a line of steps from `from_s` to `to_s`.
    pub(super) fn line(&self, from_s: f64, to_s: f64) -> Vec<(f64, f64)> {
        let width = (to_s - from_s) / COLUMNS as f64;
        let mut points = Vec::new();
        let mut last = self.before.inspect(|value| points.push((from_s, *value)));
        for (index, span) in self.columns.iter().enumerate() {
            let Some(span) = span else { continue };
            let x = from_s + (index as f64 + 0.5) * width;
            let steps = [last.unwrap_or(span.last), span.least, span.most, span.last];
            for y in steps {
                if points.last() != Some(&(x, y)) {
                    points.push((x, y));
                }
            }
            last = Some(span.last);
        }
        if let Some(value) = last {
            points.push((to_s, value));
        }
        points
    }

    /// Returns single values, as points.
    pub(super) fn points(&self, from_s: f64, to_s: f64) -> Vec<(f64, f64)> {
        let width = (to_s - from_s) / COLUMNS as f64;
        let mut points = Vec::new();
        for (index, span) in self.columns.iter().enumerate() {
            let Some(span) = span else { continue };
            let x = from_s + (index as f64 + 0.5) * width;
            points.push((x, span.most));
            if span.least < span.most {
                points.push((x, span.least));
            }
        }
        points
    }

    /// Returns the value in a column, or the last one before it.
    fn at(&self, column: usize) -> Option<f64> {
        self.columns[..=column].iter().rev().flatten().next().map(|span| span.last).or(self.before)
    }
}

impl Columns {
    pub(super) fn new(from_s: f64, to_s: f64) -> Self {
        Self {
            from_s,
            to_s: to_s.max(from_s + SPAN_S_MIN),
            cwnd: Series::new(),
            ssthresh: Series::new(),
            in_flight: Series::new(),
            latest_rtt: Series::new(),
            smoothed_rtt: Series::new(),
            min_rtt: Series::new(),
            pacing: Series::new(),
            acked: vec![0.0; RATE_SPANS],
            received: vec![0.0; RATE_SPANS],
            marks: std::array::from_fn(|_| vec![0; COLUMNS]),
            totals: Totals::default(),
        }
    }

    /// Takes one event. Events before the start only set the initial values.
    pub(super) fn add(&mut self, time_s: f64, body: &Body) {
        if time_s > self.to_s {
            return;
        }
        let part = (time_s - self.from_s) / (self.to_s - self.from_s);
        let of = |count: usize| (part >= 0.0).then(|| ((part * count as f64) as usize).min(count - 1));
        let (column, span) = (of(COLUMNS), of(RATE_SPANS));
        if let Body::Metrics(metrics) = body {
            return self.add_metrics(column, metrics);
        }
        let (Some(column), Some(span)) = (column, span) else { return };
        match body {
            Body::Sent(packet) => {
                self.totals.packets_sent += 1;
                let again = packet.chunks.iter().map(retransmitted).sum::<u32>();
                self.mark(Mark::SentAgain, column, again);
            }
            Body::Received(packet) => {
                self.totals.packets_received += 1;
                let bytes = payload_bytes(packet);
                self.totals.received_bytes += bytes;
                self.received[span] += bytes as f64;
            }
            Body::Acked(acked) => {
                self.totals.acked_bytes += acked.bytes;
                self.acked[span] += acked.bytes as f64;
            }
            Body::Lost(_) => self.mark(Mark::Lost, column, 1),
            Body::Timer(timer) if timer.timer == names::T3 => self.mark(Mark::Timeout, column, 1),
            Body::Probe(_) => self.mark(Mark::Probe, column, 1),
            Body::Undone(_) => self.mark(Mark::Undone, column, 1),
            _ => {}
        }
    }

    fn add_metrics(&mut self, column: Option<usize>, metrics: &MetricsUpdated) {
        let bytes = |value: Option<u64>| value.map(|value| value as f64);
        let to_set = [
            (&mut self.cwnd, metrics.congestion_window.map(bytes)),
            (&mut self.ssthresh, metrics.ssthresh.map(bytes)),
            (&mut self.in_flight, metrics.bytes_in_flight.map(bytes)),
            (&mut self.pacing, metrics.pacing_rate.map(bytes)),
            (&mut self.latest_rtt, metrics.latest_rtt),
            (&mut self.smoothed_rtt, metrics.smoothed_rtt),
            (&mut self.min_rtt, metrics.min_rtt),
        ];
        for (series, value) in to_set {
            if let Some(value) = value {
                series.set(column, value);
            }
        }
    }

    fn mark(&mut self, mark: Mark, column: usize, count: u32) {
        self.marks[mark as usize][column] += count;
        self.totals.marks[mark as usize] += u64::from(count);
    }

    /// Returns the times with this mark.
    pub(super) fn marked(&self, mark: Mark) -> impl Iterator<Item = f64> {
        self.marked_columns(mark).map(|column| self.time_s(column))
    }

    /// Returns these times with the congestion window at each.
    pub(super) fn marked_windows(&self, mark: Mark) -> impl Iterator<Item = (f64, f64)> {
        self.marked_columns(mark)
            .map(|column| (self.time_s(column), self.cwnd.at(column).unwrap_or_default()))
    }

    fn marked_columns(&self, mark: Mark) -> impl Iterator<Item = usize> {
        let columns = self.marks[mark as usize].iter().enumerate();
        columns.filter(|(_, count)| **count > 0).map(|(column, _)| column)
    }

    fn time_s(&self, column: usize) -> f64 {
        self.from_s + (column as f64 + 0.5) / COLUMNS as f64 * (self.to_s - self.from_s)
    }

    /// Returns the bits per second that arrived at the peer.
    pub(super) fn acked_rate(&self) -> Vec<(f64, f64)> {
        self.rate(&self.acked)
    }

    /// Returns the bits per second that came from the peer.
    pub(super) fn received_rate(&self) -> Vec<(f64, f64)> {
        self.rate(&self.received)
    }

    fn rate(&self, bytes: &[f64]) -> Vec<(f64, f64)> {
        if bytes.iter().all(|bytes| *bytes == 0.0) {
            return Vec::new();
        }
        let span_s = (self.to_s - self.from_s) / RATE_SPANS as f64;
        let point = |(index, bytes): (usize, &f64)| {
            (self.from_s + (index as f64 + 0.5) * span_s, bytes * 8.0 / span_s)
        };
        bytes.iter().enumerate().map(point).collect()
    }
}

fn retransmitted(chunk: &Chunk) -> u32 {
    match chunk {
        Chunk::Data { retransmitted, .. } => u32::from(*retransmitted),
        _ => 0,
    }
}

fn payload_bytes(packet: &Packet) -> u64 {
    let bytes = |chunk: &Chunk| match chunk {
        Chunk::Data { payload_length, .. } => u64::from(*payload_length),
        _ => 0,
    };
    packet.chunks.iter().map(bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_stays_until_it_changes() {
        let mut series = Series::new();
        series.set(None, Some(1.0));
        series.set(Some(500), Some(4.0));
        series.set(Some(500), Some(2.0));
        let line = series.line(0.0, COLUMNS as f64);
        let expected =
            [(0.0, 1.0), (500.5, 1.0), (500.5, 2.0), (500.5, 4.0), (500.5, 2.0), (COLUMNS as f64, 2.0)];
        assert_eq!(line, expected);
        assert_eq!((series.at(499), series.at(500), series.most()), (Some(1.0), Some(2.0), 4.0));
    }

    #[test]
    fn a_rate_is_bytes_by_time() {
        let mut columns = Columns::new(0.0, 160.0);
        let acked = crate::trace::schema::DataAcked { bytes: 1000, cum_tsn: 7 };
        columns.add(0.5, &Body::Acked(acked));
        assert_eq!(columns.acked_rate()[..2], [(0.5, 8000.0), (1.5, 0.0)]);
        assert!(columns.received_rate().is_empty());
    }
}
