//! Figures that others have published.

const DATATAG: &str = include_str!("../../../../docs/published/datatag-lksctp.csv");
const SCTPLIB: &str = include_str!("../../../../docs/published/sctplib-tftp.csv");

/// A published figure.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    /// The program.
    pub(super) transport: &'static str,
    /// How long the run took.
    pub(super) seconds: f64,
    /// Its rate.
    pub(super) bits_per_s: f64,
}

/// The file transfers of so many megabytes: SCTP with this receive buffer, and TCP.
pub(super) fn sctplib(mbytes: f64, receive_buffer_bytes: usize) -> Vec<Figure> {
    let rows = SCTPLIB.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>());
    rows.filter_map(|row| {
        let number = |column: usize| row.get(column)?.trim().parse::<f64>().ok();
        let transport = match *row.get(1)? {
            "SCTP" if number(3) == Some(receive_buffer_bytes as f64) => "sctplib 2004",
            "TCP" => "tcp 2004",
            _ => return None,
        };
        let figure = Figure { transport, seconds: number(4)?, bits_per_s: number(5)? * 8000.0 };
        (number(2) == Some(mbytes)).then_some(figure)
    })
    .collect()
}

/// The runs of so many seconds between two continents.
pub(super) fn datatag(seconds: u64) -> Vec<Figure> {
    let rows = DATATAG.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>());
    let mut figures = Vec::new();
    for row in rows {
        let number = |column: usize| row.get(column).and_then(|text| text.trim().parse::<f64>().ok());
        if number(0) != Some(seconds as f64) {
            continue;
        }
        for (transport, mbytes, mbits) in [("lksctp", 1, 2), ("tcp of the time", 3, 4)] {
            // The first run names no rate for SCTP; what was moved says it.
            let rate = number(mbits).or_else(|| number(mbytes).map(|mbytes| mbytes * 8.0 / seconds as f64));
            let Some(rate) = rate else { continue };
            figures.push(Figure { transport, seconds: seconds as f64, bits_per_s: rate * 1e6 });
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
        assert_eq!(small[0].bits_per_s, 970.0 * 8000.0);
        assert_eq!(sctplib(114.3, 67_107_840)[1].bits_per_s, 48.31 * 8000.0);
        let hour: Vec<_> = datatag(3600).iter().map(|figure| figure.bits_per_s / 1e6).collect();
        assert_eq!(hour, [44.25, 363.0]);
        let first: Vec<_> = datatag(10).iter().map(|figure| figure.bits_per_s / 1e6).collect();
        assert_eq!(first, [51.12, 777.0]);
    }
}
