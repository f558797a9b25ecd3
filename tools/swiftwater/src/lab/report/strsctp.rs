//! Drawings of `strsctp`: performance, delay, throughput and improvement by message size, of our transports alone and beside
//! those of each machine of the paper, as its figures 4 to 31 have them.

use serde_json::Value;

use super::Row;
use crate::bench::curve::{Curve, Point};
use crate::bench::page::figures;
use crate::bench::published::{self, Machine};
use crate::bench::series::Series;
use crate::plot::escape;

/// Minimum number of sizes for a curve.
const SIZES_MIN: usize = 3;

/// Renders the drawings for each number of processors, if there are rows of `strsctp` with enough sizes.
pub(super) fn render(rows: &[(usize, &Row)]) -> String {
    let mut measured: Vec<Measured> = rows.iter().filter_map(|(_, row)| Measured::of(row)).collect();
    measured.sort_by_key(|one| one.point.message_bytes);
    let mut counts: Vec<usize> = measured.iter().map(|one| one.processors).collect();
    counts.sort_unstable();
    counts.dedup();
    counts.into_iter().map(|processors| of_processors(processors, &measured)).collect()
}

/// Renders the drawings of runs on so many processors.
fn of_processors(processors: usize, measured: &[Measured]) -> String {
    let curve = |series: Series| {
        let own = measured.iter().filter(|one| (one.processors, one.series) == (processors, series));
        Curve::measured(series, processors, own.map(|one| one.point).collect())
    };
    let ours: Vec<Curve> =
        Series::ALL.into_iter().map(curve).filter(|curve| curve.points.len() >= SIZES_MIN).collect();
    if ours.is_empty() {
        return String::new();
    }
    let name = if processors == 1 { "1 processor".to_owned() } else { format!("{processors} processors") };
    let mut machines: Vec<&Machine> =
        published::machines().iter().filter(|machine| machine.processors == processors).collect();
    machines.sort_by_key(|machine| machine.first_figure);
    let beside = machines.iter().map(|machine| {
        let (first, last) = (machine.first_figure, machine.first_figure + 3);
        let title = format!("Figures {first} to {last}: {}, beside this host on {name}", machine.name);
        let curves: Vec<Curve> = ours.iter().cloned().chain(machine.curves()).collect();
        section(&title, &curves, Some(first))
    });
    let alone = section(&format!("This host on {name}"), &ours, None);
    std::iter::once(alone).chain(beside).collect()
}

fn section(title: &str, curves: &[Curve], first_number: Option<usize>) -> String {
    format!(
        "<details open><summary>{}</summary>{}{}</details>\n",
        escape(title),
        figures::all(curves, first_number),
        figures::costs(curves)
    )
}

/// A size of one of our curves.
struct Measured {
    processors: usize,
    series: Series,
    point: Point,
}

impl Measured {
    /// Returns the measurement of a row; `None` for published rows and those of other experiments.
    fn of(row: &Row) -> Option<Self> {
        let number = |key: &str| row.get(key).and_then(Value::as_f64);
        let word = |key: &str| row.get(key).and_then(Value::as_str);
        if !is_per_message(row) || row.get("published") == Some(&Value::Bool(true)) {
            return None;
        }
        let message_bytes = row.get("message_bytes")?.as_u64()? as usize;
        let bits_per_s = number("bits_per_s").filter(|rate| *rate > 0.0)?;
        let messages_per_s = bits_per_s / 8.0 / message_bytes as f64;
        Some(Measured {
            processors: word("case")?.split_once(' ')?.0.parse().ok()?,
            series: Series::parse(word("transport")?).ok()?,
            point: Point::new(message_bytes, messages_per_s, number("ratio_to_tcp")),
        })
    }
}

/// Returns whether a row counts messages, so that its drawings are here.
pub(super) fn is_per_message(row: &Row) -> bool {
    row.contains_key("messages_in_10_s")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn row(processors: usize, bytes: usize, transport: &str, published: bool) -> Row {
        // A microsecond for each message, and a tenth of a nanosecond for each byte.
        let messages_per_s = 1e9 / (1000.0 + 0.1 * bytes as f64);
        let plural = if processors == 1 { "" } else { "s" };
        let value = serde_json::json!({
            "experiment": "strsctp", "case": format!("{processors} processor{plural}, {bytes} bytes"), "transport": transport,
            "published": published, "message_bytes": bytes, "bits_per_s": messages_per_s * bytes as f64 * 8.0,
            "messages_in_10_s": (messages_per_s * 10.0).round(), "ratio_to_tcp": 2.5
        });
        value.as_object().expect("an object").clone()
    }

    fn rendered(rows: &[Row]) -> String {
        render(&rows.iter().enumerate().collect::<Vec<_>>())
    }

    const TRANSPORTS: [&str; 4] = ["tcp", "tcp-artificial", "sctp-message", "sctp-stream"];

    fn all_sizes(processors: usize) -> Vec<Row> {
        let of_size = |power: u32| TRANSPORTS.map(|name| row(processors, 1 << power, name, false));
        (0..15).flat_map(of_size).collect()
    }

    #[test]
    fn each_figure_of_the_paper_is_drawn_once_beside_ours() {
        let drawn = rendered(&[all_sizes(1), all_sizes(2)].concat());
        let kinds = ["Performance", "Delay", "Throughput", "Improvement"];
        for number in 4..=31 {
            let heading = format!("<h3>Figure {number}: {}</h3>", kinds[number % 4]);
            assert_eq!(drawn.matches(&heading).count(), 1, "{heading}");
        }
        assert_eq!(drawn.matches("<svg").count(), 28 + 2 * 4, "and ours alone for each number of processors");
        // The legend and each point name their curve.
        for name in TRANSPORTS.into_iter().chain(["2007 tcp, XTI", "2007 sctp, XTI", "2007 tcp artificial"]) {
            assert!(drawn.contains(&format!(">{name}</text>")), "{name}");
        }
        let daisy = "Figures 24 to 27: Fedora Core 6, 3.0 GHz i630 HT, 2 processors (daisy), beside this host on 2 processors";
        assert!(drawn.contains(daisy), "{daisy}");
    }

    #[test]
    fn a_point_tells_messages_bits_delay_and_ratio() {
        let drawn = rendered(&all_sizes(1));
        let words = "<title>sctp-message, 16,384 bytes: 379,018 messages/s, 49,679 Mbit/s, 2.64 µs a message, 2.50 times tcp</title>";
        let told = drawn.split("<title>sctp-message, 16,384 bytes").nth(1).map(|rest| &rest[..90]);
        assert!(drawn.contains(words), "{told:?}");
        // The paper's model of the delay: a cost for each message and one for each byte.
        assert!(drawn.contains("<td>1,000</td><td>0.100</td>"), "{:?}", drawn.split("costs").nth(1));
    }

    #[test]
    fn rows_of_few_sizes_and_published_rows_are_no_curves() {
        let few = [row(1, 64, "tcp", false), row(1, 128, "tcp", false)];
        assert_eq!(rendered(&few), "");
        let published: Vec<Row> = (0..15).map(|power| row(1, 1 << power, "tcp", true)).collect();
        assert_eq!(rendered(&published), "");
    }

    #[test]
    fn curves_of_one_drawing_differ_in_colour_and_in_marker() {
        let ours = TRANSPORTS.map(|name| Series::parse(name).expect("a series").style());
        for machine in published::machines() {
            let styles = || ours.into_iter().chain(machine.curves().map(|curve| curve.style));
            let colors: HashSet<_> = styles().map(|style| style.color).collect();
            let markers: HashSet<_> = styles().map(|style| style.marker).collect();
            assert_eq!((colors.len(), markers.len()), (8, 8), "{}", machine.name);
        }
    }
}
