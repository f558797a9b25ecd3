//! The page: one self-contained file with the figures, the published series and the table.

pub(crate) mod figures;
mod view;

use std::fmt::Write;

use super::curve::{Curve, curves};
use super::published::{self, Machine};
use super::result::{Conditions, Row};
use super::table::{of_messages, others_busy, ratio};
use crate::plot::{escape, fill, style};
use crate::units::{grouped, mbits};
use view::View;

/// Our series that are drawn beside the published ones.
const COMPARED: [&str; 3] = ["tcp", "sctp-message", "sctp-stream"];

const TEMPLATE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");

/// Renders the whole page.
pub(crate) fn render(rows: &[Row], conditions: &Conditions) -> String {
    let curves = curves(rows);
    let views = view::all(&curves, conditions.loopback_packet_bytes);
    let parts = [
        ("style", style() + STYLE),
        ("conditions", conditions_line(rows, conditions)),
        ("views", views.iter().enumerate().map(|(n, view)| section(view, n == 0)).collect()),
        ("published", views.first().map(published_sections).unwrap_or_default()),
        ("latency", latency_section(rows)),
        ("table", table(rows)),
    ];
    fill(TEMPLATE, &parts)
}

/// Renders the figures of a view, which the reader can fold away.
fn section(view: &View, open: bool) -> String {
    format!(
        "<details{}><summary>{}</summary>{}{}</details>\n",
        if open { " open" } else { "" },
        escape(&view.name),
        figures::all(&view.curves, None),
        figures::costs(&view.curves)
    )
}

/// Renders the published series of each machine beside the three comparable ones of ours.
fn published_sections(view: &View) -> String {
    let beside = |machine: &Machine| {
        let compared = view.curves.iter().filter(|curve| COMPARED.contains(&curve.label.as_str()));
        let curves: Vec<Curve> = compared.cloned().chain(machine.curves()).collect();
        section(&View { name: machine.name.to_owned(), curves }, false)
    };
    published::machines().iter().map(beside).collect()
}

fn conditions_line(rows: &[Row], conditions: &Conditions) -> String {
    let items = [
        ("Measured", conditions.date.clone()),
        ("Kernel", conditions.kernel.clone()),
        ("Processors", format!("{} × {}", conditions.processors, conditions.processor)),
        ("Loopback packets", format!("{} bytes", grouped(conditions.loopback_packet_bytes as u64))),
        ("Each run", format!("{:.2} s", conditions.seconds_per_run)),
        ("Swiftwater", conditions.build()),
    ];
    let mut out = items.iter().fold(String::new(), |mut out, (name, value)| {
        let _ = write!(out, "<div><dt>{name}</dt><dd>{}</dd></div>", escape(value));
        out
    });
    if conditions.stopped_early {
        out += "<div class=warning><dt>Stopped early</dt><dd>not all runs were done</dd></div>";
    }
    if let Some(busy) = others_busy(rows) {
        let _ = write!(
            out,
            "<div class=warning><dt>Other programs</dt><dd>kept {busy:.1} processors busy: repeat on a quiet machine</dd></div>"
        );
    }
    out
}

fn latency_section(rows: &[Row]) -> String {
    let mut out = String::new();
    for row in rows {
        let (Some(p50), Some(p99)) = (row.latency_us_p50, row.latency_us_p99) else { continue };
        let _ = write!(
            out,
            "<tr><td class=name>{}</td><td>{}</td><td>{}</td><td>{p50:.1}</td><td>{p99:.1}</td><td>{}</td><td>{}</td></tr>",
            row.series,
            row.cpus,
            row.parallel,
            grouped(row.messages_per_s.round() as u64),
            ratio(row.ratio_to_tcp),
        );
    }
    if out.is_empty() {
        return out;
    }
    format!(
        "<section><h2>Request and answer</h2><p>One byte there, one byte back; lower is better. \
         The ratio is the median of the ratios within each repeat.</p><div class=scroll><table><thead><tr><th class=name>series</th><th>processors</th>\
         <th>at a time</th><th>p50, µs</th><th>p99, µs</th><th>exchanges/s</th><th>ratio to tcp</th></tr></thead>\
         <tbody>{out}</tbody></table></div></section>"
    )
}

fn table(rows: &[Row]) -> String {
    let mut out = String::new();
    let mut previous = None;
    for row in rows.iter().filter(|row| row.latency_us_p50.is_none()) {
        let key = (row.cpus, row.parallel, row.message_bytes);
        let first = if previous.replace(key) == Some(key) { "" } else { " class=first" };
        let _ = write!(
            out,
            "<tr{first}><td>{}</td><td class=name>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            grouped(row.message_bytes as u64),
            row.series,
            grouped(row.packet_bytes as u64),
            row.cpus,
            row.parallel,
            of_messages(row, || grouped(row.messages_per_s.round() as u64)),
            mbits(row.bits_per_s),
            ratio(row.ratio_to_tcp),
            row.ratio_to_udp_limit.map_or_else(|| "-".into(), |part| format!("{:.0} %", part * 100.0)),
            of_messages(row, || {
                format!("{:.0} + {:.0}", row.sender_cpu_ns_per_message, row.receiver_cpu_ns_per_message)
            }),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::result::tests::{conditions, rows};
    use crate::bench::series::Series;
    use crate::plot::CurveStyle;

    #[test]
    fn the_page_needs_nothing_else_and_holds_everything() {
        let page = render(&rows(&[1, 64, 1024]), &conditions());
        for outside in ["src=", "href=\"http", "@import", "url(", "fetch(", "<script"] {
            assert!(!page.contains(outside), "the page asks for {outside}");
        }
        assert!(!page.contains("{{"), "a mark was left");
        assert!(page.contains("a &lt;/script&gt; processor"));
        // Two packet sizes of ours, and seven machines.
        assert_eq!(page.matches("<details").count(), 2 + 7);
        assert_eq!(page.matches("<figure class=\"improvement\">").count(), 2 + 7);
    }

    #[test]
    fn the_page_of_a_run_that_was_stopped_says_so() {
        let says_so = |stopped_early| {
            render(&rows(&[64]), &Conditions { stopped_early, ..conditions() })
                .contains("not all runs were done")
        };
        assert!(says_so(true) && !says_so(false));
    }

    #[test]
    fn each_curve_of_a_figure_has_a_colour_and_a_marker_of_its_own() {
        let views = view::all(&curves(&rows(&[1, 64, 1024])), 65_536);
        let compared = COMPARED.map(|name| Series::parse(name).expect("a series").style());
        let published = published::machines()[0].curves().map(|curve| curve.style);
        let beside: Vec<CurveStyle> = compared.into_iter().chain(published).collect();
        let ours =
            views.iter().map(|view| view.curves.iter().map(|curve| curve.style).collect::<Vec<CurveStyle>>());
        for styles in ours.chain([beside]) {
            for (index, a) in styles.iter().enumerate() {
                assert!(
                    styles[..index].iter().all(|b| a.color != b.color && a.marker != b.marker),
                    "{styles:?}"
                );
            }
        }
    }
}
