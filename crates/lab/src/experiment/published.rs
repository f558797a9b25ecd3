//! Published figures of other authors.

use super::limit::Mode;

const DATATAG: &str = include_str!("../../../../docs/published/datatag-lksctp.csv");
const DISSERTATION: &str = include_str!("../../../../docs/published/dissertation-multihomed.csv");
const OPENSS7_SEQPACKET: &str = include_str!("../../../../docs/published/openss7-iperf-seqpacket.csv");
const OPENSS7_STREAM: &str = include_str!("../../../../docs/published/openss7-iperf-stream.csv");
const SCTPLIB: &str = include_str!("../../../../docs/published/sctplib-tftp.csv");

/// A published figure.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    /// The program, with a note if the run is not a whole one.
    pub(super) transport: String,
    /// Duration of the run.
    pub(super) seconds: f64,
    /// Its rate.
    pub(super) bits_per_s: f64,
}

/// A published figure for this many paths.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PathFigure {
    pub(super) figure: Figure,
    pub(super) paths: usize,
    /// The published limit.
    pub(super) limit_bits_per_s: Option<f64>,
}

/// Size of a KB, and of an MB in KB, for the authors of all these figures; scp and iperf use the same.
const KB_BYTES: f64 = 1024.0;
pub(super) const MB_BYTES: f64 = 1_048_576.0;
/// Duration of an iperf run.
const OPENSS7_SECONDS: f64 = 10.0;

/// Messages of this many bytes between two hosts with one and with two cards of 100 Mbit/s. Limits are those of native
/// SCTP on Ethernet, and were published for messages alone.
pub(super) fn openss7(mode: Mode, message_bytes: usize) -> Vec<PathFigure> {
    let (text, columns): (_, &[(&str, usize, &str, &str)]) = match mode {
        Mode::Message => (
            OPENSS7_SEQPACKET,
            &[
                ("openss7 2007", 1, "sctp_1if_mbps", "limit_1if_mbps"),
                ("openss7 2007", 2, "sctp_2if_mbps", "limit_2if_mbps"),
            ],
        ),
        Mode::Stream => (
            OPENSS7_STREAM,
            &[
                ("tcp 2007", 1, "tcp_mbps", ""),
                ("openss7 2007", 1, "sctp_1if_mbps", ""),
                ("openss7 2007", 2, "sctp_2if_mbps", ""),
            ],
        ),
    };
    let figure = |&(transport, paths, rate, limit): &(&'static str, usize, &str, &str)| {
        let row = message_bytes.to_string();
        let bits_per_s = cell(text, &[&row], rate)? * 1e6;
        let figure = Figure { transport: transport.to_owned(), seconds: OPENSS7_SECONDS, bits_per_s };
        let limit_bits_per_s = cell(text, &[&row], limit).map(|mbits| mbits * 1e6);
        Some(PathFigure { figure, paths, limit_bits_per_s })
    };
    columns.iter().filter_map(figure).collect()
}

/// A network of the dissertation, by the name of its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// 10 Mbit/s.
    Wired,
    /// 11 Mbit/s by name, wireless.
    Wireless,
    /// Both networks. The wired one is blocked for ten seconds in every twenty.
    Both,
}

/// Returns the throughput of TCP and of SCTP in a network, and the latency of each in seconds.
pub(super) fn dissertation(network: Network) -> Vec<(PathFigure, f64)> {
    let (column, paths) = match network {
        Network::Wired => ("net_10mbps", 1),
        Network::Wireless => ("net_11mbps_wireless", 1),
        Network::Both => ("multihomed", 2),
    };
    let figure = |(transport, name, paths): (&'static str, &str, usize)| {
        let kbits = cell(DISSERTATION, &["throughput_kbps", name], column)?;
        let latency_us = cell(DISSERTATION, &["latency_us", name], column)?;
        // The duration of the runs was not published.
        let figure = Figure { transport: transport.to_owned(), seconds: 0.0, bits_per_s: kbits * 1e3 };
        Some((PathFigure { figure, paths, limit_bits_per_s: None }, latency_us / 1e6))
    };
    // TCP has no second path: with both networks it uses the one that comes and goes.
    let all = [("tcp, dissertation", "TCPM", 1), ("lksctp, dissertation", "SCTP", paths)];
    all.into_iter().filter_map(figure).collect()
}

/// Returns the number in a column of the row that begins with this text.
fn cell(text: &str, row: &[&str], column: &str) -> Option<f64> {
    let mut rows = text.lines().map(|line| line.split(',').map(str::trim).collect::<Vec<_>>());
    let column = rows.next()?.iter().position(|name| *name == column)?;
    rows.find(|cells| cells.starts_with(row))?.get(column)?.parse().ok()
}

/// Returns the file transfers of this many megabytes: SCTP with this receive buffer, and TCP.
pub(super) fn sctplib(mbytes: f64, receive_buffer_bytes: usize) -> Vec<Figure> {
    let rows = SCTPLIB.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>());
    rows.filter_map(|row| {
        let number = |column: usize| row.get(column)?.trim().parse::<f64>().ok();
        let transport = match *row.get(1)? {
            "SCTP" if number(3) == Some(receive_buffer_bytes as f64) => "sctplib 2009",
            "TCP" => "tcp 2009",
            _ => return None,
        };
        let transport = match row.get(6).map(|note| note.trim()) {
            Some(note) if !note.is_empty() => format!("{transport}, {note}"),
            _ => transport.to_owned(),
        };
        let figure = Figure { transport, seconds: number(4)?, bits_per_s: number(5)? * KB_BYTES * 8.0 };
        (number(2) == Some(mbytes)).then_some(figure)
    })
    .collect()
}

/// Returns the runs of this many seconds between two continents.
pub(super) fn datatag(seconds: u64) -> Vec<Figure> {
    let rows = DATATAG.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>());
    let mut figures = Vec::new();
    for row in rows {
        let number = |column: usize| row.get(column).and_then(|text| text.trim().parse::<f64>().ok());
        if number(0) != Some(seconds as f64) {
            continue;
        }
        for (transport, mbytes, mbits) in [("lksctp 2003", 1, 2), ("tcp 2003", 3, 4)] {
            // The first run has no published rate for SCTP; it follows from the transferred amount.
            let moved = || number(mbytes).map(|mbytes| mbytes * MB_BYTES * 8.0 / seconds as f64);
            let Some(bits_per_s) = number(mbits).map(|mbits| mbits * 1e6).or_else(moved) else { continue };
            figures.push(Figure { transport: transport.to_owned(), seconds: seconds as f64, bits_per_s });
        }
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_figures_are_where_they_were_published() {
        let small = sctplib(114.3, 655_335);
        assert_eq!(small.len(), 2, "{small:?}");
        assert_eq!(small[0].bits_per_s, 970.0 * 8192.0);
        let stopped = &sctplib(114.3, 67_107_840)[1];
        assert_eq!(stopped.bits_per_s, 48.31 * 8192.0);
        assert_eq!(stopped.transport, "sctplib 2009, stopped after 23.63 MB", "it is no whole file");
        // The amount moved when the transfer was stopped gives the same, if a KB has 1024 bytes and an MB 1024 KB.
        let moved = 23.63 * MB_BYTES * 8.0 / stopped.seconds;
        assert!((moved / stopped.bits_per_s - 1.0).abs() < 0.001, "{moved}");
        let hour: Vec<_> = datatag(3600).iter().map(|figure| figure.bits_per_s / 1e6).collect();
        assert_eq!(hour, [44.25, 363.0]);
        let first: Vec<_> = datatag(10).iter().map(|figure| figure.bits_per_s / 1e6).collect();
        assert!((first[0] - 53.6).abs() < 0.01 && first[1] == 777.0, "{first:?}");
    }

    #[test]
    fn figures_of_several_paths_have_their_limits_where_they_were_published() {
        let small = openss7(Mode::Message, 8);
        let both = PathFigure {
            figure: Figure { transport: "openss7 2007".to_owned(), seconds: 10.0, bits_per_s: 5.17e6 },
            paths: 2,
            limit_bits_per_s: Some(61.6e6),
        };
        assert_eq!((small.len(), &small[1]), (2, &both));
        let large: Vec<_> = openss7(Mode::Stream, 16384).iter().map(|f| f.figure.bits_per_s / 1e6).collect();
        assert_eq!(large, [94.0, 94.4, 189.0]);
        assert_eq!(openss7(Mode::Stream, 7), []);
        let cells = |network| {
            let cell =
                |(figure, latency_s): &(PathFigure, f64)| (figure.figure.bits_per_s / 1e3, latency_s * 1e6);
            dissertation(network).iter().map(cell).collect::<Vec<_>>()
        };
        assert_eq!(cells(Network::Wired), [(3746.0, 1773.5), (2586.0, 1886.0)]);
        assert_eq!(cells(Network::Wireless), [(1786.0, 5757.5), (1128.5, 6868.5)]);
        assert_eq!(cells(Network::Both), [(1064.0, 4319.0), (1750.0, 4505.5)]);
        let paths =
            |network| dissertation(network).iter().map(|(figure, _)| figure.paths).collect::<Vec<_>>();
        assert_eq!([Network::Wired, Network::Both].map(paths), [[1, 1], [1, 2]], "TCP has one path");
    }
}
