//! The page of a live experiment in a browser.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::support::{Folder, lab, live, output, possible};

/// Opens a page in a headless browser. Returns the document after its script has run, and the output of its console.
fn browse(page: &Path, folder: &Folder) -> (String, String) {
    let mut chromium = Command::new("chromium");
    chromium.args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"]);
    chromium.arg(format!("--user-data-dir={}", folder.file("profile").display()));
    let (output, said) = output(chromium.arg(format!("file://{}", page.display())));
    assert!(output.status.success(), "{said}");
    let console = said.lines().filter(|line| line.contains("CONSOLE")).collect::<Vec<_>>().join("\n");
    (String::from_utf8_lossy(&output.stdout).into_owned(), console)
}

/// Returns the text of a cell of the page's tables.
fn cell<'a>(document: &'a str, row: usize, key: &str) -> Option<&'a str> {
    let (_, rest) = document.split_once(&format!("<tr data-row=\"{row}\""))?;
    let (row, _) = rest.split_once("</tr>")?;
    let (_, rest) = row.split_once(&format!("data-key=\"{key}\">"))?;
    rest.split_once('<').map(|(text, _)| text)
}

#[test]
#[ignore = "needs namespaces, ip and chromium: ./test --all"]
fn a_browser_shows_the_report_with_the_numbers_of_the_json_and_no_error() {
    if !possible(&["chromium"]) {
        return;
    }
    let folder = Folder::new("report");
    let words = ["flapping", "--case", "wireless", "--seconds", "1", "--repeat", "1"];
    let (rows, _) = live(None, &words, &folder);
    let out = folder.file("out");
    let (output, said) = output(&mut lab(None, &["report", out.to_str().expect("ours")]));
    assert!(output.status.success(), "{said}");
    let (document, console) = browse(&out.join("report.html"), &folder);
    assert_eq!(console, "", "the page complains");
    let traces = fs::read_dir(out.join("traces")).expect("a folder").count();
    assert_eq!(traces, 2, "one of TCP and one of ours");
    // The script has run to its end, and has shown the values at the end of each run.
    assert!(document.contains(&format!("data-runs=\"{traces}\"")), "{document}");
    assert_eq!(document.matches("s · delivered: ").count(), traces);
    let mega = |value: f64| format!("{:.2}", value / 1e6);
    for (place, row) in rows.iter().enumerate() {
        assert_eq!(cell(&document, place, "transport"), row["transport"].as_str());
        assert_eq!(cell(&document, place, "case"), row["case"].as_str());
        for key in ["bits_per_s", "published_bits_per_s"] {
            let told = row[key].as_f64().map(mega).unwrap_or_default();
            assert_eq!(cell(&document, place, key), Some(told.as_str()), "{key} of {row}");
        }
        let late = row["late_us_p99"].as_f64().map(|us| format!("{us:.0}")).unwrap_or_default();
        let shown = cell(&document, place, "late_us_p99").map(|text| text.replace(',', ""));
        assert_eq!(shown, Some(late), "{row}");
    }
    assert_eq!(document.matches("<tr data-row=").count(), rows.len());
}
