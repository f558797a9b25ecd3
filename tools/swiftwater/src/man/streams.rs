//! The manual pages of section 7: modules and drivers of STREAMS, and the control of streams.

use std::io;
use std::path::Path;

use crate::regular_file;

macro_rules! pages {
    ($($name:literal,)*) => {
        &[$((concat!("swiftwater-", $name, ".7"), include_str!(concat!("../../man/swiftwater-", $name, ".7"))),)*]
    };
}

/// File names and texts of the pages.
const PAGES: &[(&str, &str)] = pages! {
    "bufmod",
    "clone",
    "compress",
    "connld",
    "counter",
    "echo",
    "filter",
    "limit",
    "log",
    "loop",
    "mux",
    "null",
    "nullmod",
    "nuls",
    "pipemod",
    "sad",
    "sctp_t",
    "splice",
    "streamio",
    "tap",
    "timod",
    "tirdwr",
    "trace",
};

/// Writes the pages.
pub(super) fn write_pages(directory: &Path) -> io::Result<()> {
    PAGES.iter().try_for_each(|(name, text)| regular_file::replace(&directory.join(name), text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn every_module_and_driver_has_a_page_with_all_sections() {
        let mut executive = streams::Executive::new(Instant::now());
        streams::modules::add_all(&mut executive);
        let by_owner = ["tap", "trace", "streamio", "sctp_t"];
        let drivers = ["clone", "echo", "log", "loop", "mux", "null", "nuls", "sad", "splice"];
        for name in executive.module_names().into_iter().chain(by_owner).chain(drivers) {
            let file = format!("swiftwater-{name}.7");
            let page = PAGES.iter().find(|(page, _)| *page == file);
            let (_, text) = page.unwrap_or_else(|| panic!("{name} has no page"));
            for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "\"SEE ALSO\""] {
                assert!(text.contains(&format!(".SH {section}\n")), "{name} lacks {section}");
            }
        }
    }

    /// A page that nothing refers to is not found.
    #[test]
    fn the_page_of_streamio_refers_to_every_driver() {
        let (_, streamio) = PAGES.iter().find(|(page, _)| *page == "swiftwater-streamio.7").expect("a page");
        let drivers = include_str!("../../../../crates/streams/src/drivers.rs");
        let modules = drivers.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
        let names = modules.filter(|module| *module != "pause").map(|module| match module {
            "pipe" => "loop",
            name => name,
        });
        for name in names.chain(["nuls", "clone"]) {
            assert!(streamio.contains(&format!("swiftwater\\-{name}\\fR(7)")), "{name}");
        }
    }

    #[test]
    fn pages_refer_to_pages_that_are_there() {
        for (name, text) in PAGES {
            let see_also = text.rsplit(".SH \"SEE ALSO\"\n").next().unwrap_or_default();
            for line in see_also.lines().filter(|line| line.contains("(7)")) {
                let page = line.trim_start_matches("\\fB").replace("\\-", "-").replace("\\fR", "");
                let page = page.trim_end_matches(',').replace("(7)", ".7");
                let is_ours = PAGES.iter().any(|(other, _)| *other == page);
                assert!(is_ours || page == "sctp.7", "{name} refers to {page}");
            }
        }
    }
}
