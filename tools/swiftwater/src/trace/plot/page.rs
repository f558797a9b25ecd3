//! The drawing as a self-contained page.

use std::fmt::Write;

use super::columns::Mark;
use super::{Drawing, draw};
use crate::plot::escape;
use crate::units::grouped;

const STYLE: &str = ":root{color-scheme:light dark}\
body{font:15px/1.5 system-ui,sans-serif;margin:2rem;background:#fff;color:#16202b}\
table{border-collapse:collapse;margin:1rem 0}\
td,th{padding:.2rem .8rem;text-align:right;border-bottom:1px solid #8884}td:first-child,th:first-child{text-align:left}\
@media (prefers-color-scheme:dark){body{background:#171f27;color:#e6ecf2}}";

/// Renders the whole page.
pub(super) fn render(drawing: &Drawing, svg: &str) -> String {
    let mut rows = String::new();
    for figure in &drawing.figures {
        let totals = &figure.columns.totals;
        let name = escape(&draw::heading(figure, &drawing.title));
        let counts =
            [totals.packets_sent, totals.packets_received, totals.acked_bytes, totals.received_bytes];
        let cells = counts.iter().chain(&totals.marks).fold(String::new(), |mut cells, count| {
            let _ = write!(cells, "<td>{}</td>", grouped(*count));
            cells
        });
        let _ = write!(rows, "<tr><td>{name}</td>{cells}</tr>");
    }
    let marks = Mark::ALL.iter().fold(String::new(), |mut heads, mark| {
        let _ = write!(heads, "<th>{}</th>", mark.name());
        heads
    });
    let title = escape(&drawing.title);
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{STYLE}</style>\
         <h1>{title}</h1><table><thead><tr><th>path</th><th>packets sent</th><th>received</th>\
         <th>bytes delivered</th><th>bytes received</th>{marks}</tr></thead><tbody>{rows}</tbody></table>{svg}</html>\n"
    )
}
