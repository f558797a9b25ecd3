//! The page: one file that needs nothing else, with the figures, the published series and the table.

use std::fmt::Write;

use serde::Serialize;

use super::curve::{Curve, curves};
use super::published;
use super::result::{Conditions, Row};
use super::table::{others_busy, ratio};
use crate::units::{grouped, mbits};

const TEMPLATE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

/// What the script draws.
#[derive(Serialize)]
struct Data<'a> {
    conditions: &'a Conditions,
    machines: Vec<&'static str>,
    curves: Vec<Curve>,
}

/// The whole page.
pub(crate) fn render(rows: &[Row], conditions: &Conditions) -> serde_json::Result<String> {
    let curves = curves(rows).into_iter().chain(published::curves()).collect();
    let data = Data { conditions, machines: published::machines(), curves };
    // Text in JSON may not end the script element that holds it.
    let data = serde_json::to_string(&data)?.replace('<', "\\u003c");
    let parts = [
        ("{{style}}", STYLE.to_owned()),
        ("{{conditions}}", conditions_line(rows, conditions)),
        ("{{latency}}", latency_section(rows)),
        ("{{table}}", table(rows)),
        ("{{data}}", data),
        ("{{script}}", SCRIPT.to_owned()),
    ];
    Ok(parts.iter().fold(TEMPLATE.to_owned(), |page, (mark, text)| page.replacen(mark, text, 1)))
}

fn conditions_line(rows: &[Row], conditions: &Conditions) -> String {
    let items = [
        ("Measured", conditions.date.clone()),
        ("Kernel", conditions.kernel.clone()),
        ("Processors", format!("{} × {}", conditions.processors, conditions.processor)),
        ("Loopback packets", format!("{} bytes", grouped(conditions.loopback_packet_bytes as u64))),
        ("Each run", format!("{:.2} s", conditions.seconds_per_run)),
        ("Swiftwater", conditions.version.clone()),
    ];
    let mut out = items.iter().fold(String::new(), |mut out, (name, value)| {
        let _ = write!(out, "<div><dt>{name}</dt><dd>{}</dd></div>", escape(value));
        out
    });
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
         The ratio is that of the medians.</p><div class=scroll><table><thead><tr><th class=name>series</th><th>processors</th>\
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
            "<tr{first}><td>{}</td><td class=name>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.0} + {:.0}</td></tr>",
            grouped(row.message_bytes as u64),
            row.series,
            grouped(row.packet_bytes as u64),
            row.cpus,
            row.parallel,
            grouped(row.messages_per_s.round() as u64),
            mbits(row.bits_per_s),
            ratio(row.ratio_to_tcp),
            row.ratio_to_udp_limit.map_or_else(|| "-".into(), |part| format!("{:.0} %", part * 100.0)),
            row.sender_cpu_ns_per_message,
            row.receiver_cpu_ns_per_message,
        );
    }
    out
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::result::tests::{conditions, rows};

    #[test]
    fn the_page_needs_nothing_else_and_holds_everything() {
        let page = render(&rows(&[1, 64, 1024]), &conditions()).expect("rows are JSON");
        for outside in ["src=", "href=\"http", "@import", "url(", "fetch("] {
            assert!(!page.contains(outside), "the page asks for {outside}");
        }
        assert!(!page.contains("{{"), "a mark was left");
        assert!(page.contains("a &lt;/script&gt; processor"));
        let data = page.split("<script type=\"application/json\" id=\"data\">").nth(1).expect("the data");
        let data = data.split("</script>").next().expect("its end");
        let data: serde_json::Value = serde_json::from_str(data).expect("JSON");
        assert_eq!(data["machines"].as_array().map(Vec::len), Some(7));
        assert_eq!(data["curves"].as_array().map(Vec::len), Some(4 + 28));
        assert_eq!(data["conditions"]["processor"], "a </script> processor");
    }
}
