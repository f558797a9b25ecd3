//! The table on the terminal.

use super::caller::CONNECT_PATIENCE;
use super::result::Row;
use crate::bench::table::{align, ratio};
use crate::units::{grouped, mbits};

const HEAD: [&str; 15] = [
    "packets/s",
    "flood",
    "sent",
    "Mbit/s",
    "dead port",
    "ratio",
    "from .. to",
    "connect ms p50",
    "p95",
    "failed",
    "answered",
    "amplification",
    "associations",
    "memory MB",
    "growth",
];

/// Renders all rows as aligned text.
pub(super) fn render(rows: &[Row]) -> String {
    let mut out = String::new();
    let lines: Vec<_> = rows.iter().map(|row| (row.packets_per_s, cells(row))).collect();
    align(&mut out, &HEAD, &lines);
    if let Some(row) = rows.first() {
        out.push_str(&notes(row));
    }
    out
}

fn cells(row: &Row) -> Vec<String> {
    let live = &row.live;
    let mut cells = vec![grouped(row.packets_per_s), row.flood.to_owned()];
    let against = row.against.as_ref();
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    cells.push(or_dash(against.map(|a| grouped(a.sent_packets_per_s.round() as u64))));
    cells.push(mbits(live.goodput_bits_per_s));
    cells.push(or_dash(against.map(|a| mbits(a.dead_port_goodput_bits_per_s))));
    cells.push(ratio(against.and_then(|a| a.ratio_to_dead_port)));
    cells.push(match against.map(|a| (a.ratio_to_dead_port_min, a.ratio_to_dead_port_max)) {
        Some((Some(min), Some(max))) if row.runs > 1 => format!("{min:.2} .. {max:.2}"),
        _ => String::new(),
    });
    cells.extend([live.connect_ms_p50, live.connect_ms_p95].map(milliseconds));
    cells.push(format!("{} of {}", live.connects_failed, live.connects));
    cells.push(or_dash(against.map(|a| share(a.answers, a.received_packets))));
    cells.push(or_dash(against.map(|a| format!("{:.2}", a.amplification))));
    cells.push(grouped(live.associations_max as u64));
    let megabytes = |bytes: f64| format!("{:.1}", bytes / f64::from(1 << 20));
    cells.push(megabytes(live.resident_bytes_max as f64));
    cells.push(megabytes(live.resident_growth_bytes));
    cells
}

fn milliseconds(value: Option<f64>) -> String {
    match value {
        None => format!("> {}", CONNECT_PATIENCE.as_millis()),
        Some(ms) if ms < 10.0 => format!("{ms:.2}"),
        Some(ms) => format!("{ms:.0}"),
    }
}

/// Returns the number of answers for each received packet, in per cent.
fn share(answers: u64, packets: u64) -> String {
    format!("{:.1} %", answers as f64 * 100.0 / packets.max(1) as f64)
}

fn notes(row: &Row) -> String {
    format!(
        "the server ran on processor {}, the sending peer and new peers on {}, the flood on {}\n\
         dead port: the peer's rate beside the same flood at a UDP port without socket; ratio: the median of the pairs, {} of {:.2} s\n\
         answered: of the packets that came; amplification: the bytes of all answers by theirs, IP headers included\n\
         associations: at the end of a run, those of peers among them; growth: of the memory during a run, median\n",
        row.victim_processors, row.peer_processors, row.flood_processors, row.runs, row.seconds_per_run
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attack::result::tests::rows;

    #[test]
    fn every_case_has_a_line_and_the_notes_say_what_ran_where() {
        let text = render(&rows());
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("packets/s  flood"), "{text}");
        assert!(lines[1].contains("none") && lines[1].contains("6,000"), "{text}");
        assert!(lines[2].is_empty(), "another rate is set apart: {text}");
        assert!(lines[3].contains("0.50x") && lines[3].contains("0.20 .. 1.00"), "{text}");
        assert!(lines[3].contains("> 3500") && lines[3].contains("1 of 10"), "{text}");
        assert!(
            text.contains(
                "server ran on processor 0, the sending peer and new peers on 1,2, the flood on 0\n"
            ),
            "{text}"
        );
    }
}
