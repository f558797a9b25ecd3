//! The manual pages: those of section 1, generated from the definition of the command line, and those of STREAMS.
//!
//! The help text after the options of each command becomes the sections EXAMPLES and NOTES; sections that all commands share are
//! added.

mod streams;

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use crate::args::Cli;

/// Heading of the examples in the help of a command. An empty line ends them.
const EXAMPLES: &str = "Examples:";

/// Environment variables that the commands read.
const ENVIRONMENT: [(&str, &str); 4] = [
    (
        "SWIFTWATER_DAEMON",
        "Where the daemon of SCTP sockets is: @ and an abstract name, or the path of a socket. Default: @swiftwater.",
    ),
    ("LD_PRELOAD", "swiftwater run puts its shim before what this names."),
    (
        "LISTEN_PID, LISTEN_FDS",
        "By these a service manager hands swiftwater daemon its socket; see sd_listen_fds(3).",
    ),
    ("PATH", "Where swiftwater run looks for the program."),
];

/// Meaning of the exit status of all commands.
const EXIT_STATUS: [(&str, &str); 6] = [
    ("0", "The command did what it should."),
    ("1", "It did not, and has said why on standard error."),
    ("2", "The command line is invalid."),
    ("130", "Ctrl-C ended it early; a measurement has printed its totals so far."),
    ("141", "Nobody reads its standard output any more."),
    ("other", "swiftwater run becomes the program, whose status it is."),
];

/// Related programs.
const SEE_ALSO: [&str; 6] = ["sctp(7)", "ss(8)", "socat(1)", "iperf3(1)", "systemd.socket(5)", "ld.so(8)"];

/// Writes a page for the command and for each of its subcommands.
pub(crate) fn write_pages(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let mut command = without_help(Cli::command());
    command.build();
    let mut names = Vec::new();
    collect_names(&command, &mut names);
    write_page(&command, &[], &names, directory)?;
    streams::write_pages(directory)
}

/// Removes the command `help`, which has no page.
fn without_help(command: Command) -> Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}

/// Returns whether a command has a page.
fn is_visible(command: &&Command) -> bool {
    !command.is_hide_set()
}

fn collect_names(command: &Command, names: &mut Vec<String>) {
    names.push(Man::new(command.clone()).get_filename().trim_end_matches(".1").to_owned());
    command.get_subcommands().filter(is_visible).for_each(|sub| collect_names(sub, names));
}

/// Writes the page of a command, and those of its subcommands; `above` has the examples of the command that it belongs to.
fn write_page(command: &Command, above: &[String], names: &[String], directory: &Path) -> io::Result<()> {
    let examples = examples_of(command, above);
    let file = Man::new(command.clone()).get_filename();
    fs::write(directory.join(file), page(command, &examples, names)?)?;
    let mut subcommands = command.get_subcommands().filter(is_visible);
    subcommands.try_for_each(|sub| write_page(sub, &examples, names, directory))
}

fn page(command: &Command, examples: &[String], names: &[String]) -> io::Result<Vec<u8>> {
    let page = Man::new(command.clone());
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if command.get_subcommands().any(|sub| is_visible(&sub)) {
        page.render_subcommands_section(&mut text)?;
    }
    let (_, notes) = split_help(&help_of(command));
    if !notes.is_empty() {
        writeln!(text, ".SH NOTES\n{}", lines(&notes))?;
    }
    if !examples.is_empty() {
        writeln!(text, ".SH EXAMPLES\n.nf\n{}\n.fi", lines(examples))?;
    }
    write_terms(&mut text, "ENVIRONMENT", &ENVIRONMENT)?;
    write_terms(&mut text, "EXIT STATUS", &EXIT_STATUS)?;
    let own = page.get_filename();
    let others = names.iter().filter(|name| format!("{name}.1") != own).map(|name| format!("{name}(1)"));
    let all: Vec<String> = others.chain(SEE_ALSO.map(str::to_owned)).map(|name| escape(&name)).collect();
    writeln!(text, ".SH \"SEE ALSO\"\n{}", all.join(",\n"))?;
    Ok(text)
}

fn help_of(command: &Command) -> String {
    command.get_after_help().map(ToString::to_string).unwrap_or_default()
}

/// Returns the examples of a command: its own; or else those above it that run it; or else those of its subcommands.
fn examples_of(command: &Command, above: &[String]) -> Vec<String> {
    let (own, _) = split_help(&help_of(command));
    if !own.is_empty() {
        return own;
    }
    let name = format!("{} ", command.get_bin_name().unwrap_or_else(|| command.get_name()));
    let mut runs_it = false;
    let is_of_it = |line: &&String| {
        // A line that begins with no command goes on with the one before.
        runs_it = if line.starts_with("swiftwater ") { line.starts_with(&name) } else { runs_it };
        runs_it
    };
    let found: Vec<String> = above.iter().filter(is_of_it).cloned().collect();
    let subcommands = command.get_subcommands().filter(is_visible);
    if found.is_empty() { subcommands.flat_map(|sub| examples_of(sub, &[])).collect() } else { found }
}

/// Splits help text into the lines of the examples, and all others.
fn split_help(help: &str) -> (Vec<String>, Vec<String>) {
    let (mut examples, mut notes, mut within) = (Vec::new(), Vec::new(), false);
    for line in help.lines() {
        if line == EXAMPLES {
            within = true;
        } else if within && !line.is_empty() {
            examples.push(line.trim_start());
        } else {
            within = false;
            notes.push(line);
        }
    }
    let blank = |line: &&str| line.is_empty();
    let begin = notes.iter().take_while(|line| blank(line)).count();
    let end = notes.len() - notes.iter().rev().take_while(|line| blank(line)).count();
    let notes = notes.get(begin..end).unwrap_or_default();
    let owned = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
    (owned(&examples), owned(notes))
}

fn write_terms(text: &mut Vec<u8>, title: &str, terms: &[(&str, &str)]) -> io::Result<()> {
    writeln!(text, ".SH \"{title}\"")?;
    terms
        .iter()
        .try_for_each(|(term, words)| writeln!(text, ".TP\n\\fB{}\\fR\n{}", escape(term), escape(words)))
}

/// Renders lines of prose: an empty line ends a paragraph, and an indented one stands alone.
fn lines(lines: &[impl AsRef<str>]) -> String {
    let line = |line: &_| match AsRef::<str>::as_ref(line) {
        "" => ".PP".to_owned(),
        line if line.starts_with(' ') => format!(".br\n{}", escape(line.trim_start())),
        line => escape(line),
    };
    lines.iter().map(line).collect::<Vec<String>>().join("\n")
}

/// Escapes text for troff.
fn escape(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_split_into_examples_and_notes() {
        let (examples, notes) = split_help("One.\n\nTwo.\n\nExamples:\n  a --b   does it\n  c\n\nThree.");
        assert_eq!(examples, ["a --b   does it", "c"]);
        assert_eq!(notes, ["One.", "", "Two.", "", "", "Three."]);
        assert_eq!(lines(&[".x", "", "a\\b"]), "\\&.x\n.PP\na\\eb");
    }

    #[test]
    fn every_page_has_all_sections() {
        fn check(command: &Command, above: &[String]) {
            let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
            let examples = examples_of(command, above);
            let text = page(command, &examples, &["swiftwater".to_owned()]).expect("memory");
            let text = String::from_utf8(text).expect("UTF-8");
            for section in ["NAME", "SYNOPSIS", "EXAMPLES", "ENVIRONMENT", "EXIT STATUS", "SEE ALSO"] {
                let headings = [format!(".SH {section}\n"), format!(".SH \"{section}\"\n")];
                assert!(headings.iter().any(|heading| text.contains(heading)), "{name} lacks {section}");
            }
            assert!(examples.iter().any(|line| line.starts_with(name)), "{name}: {examples:?}");
            command.get_subcommands().filter(is_visible).for_each(|sub| check(sub, &examples));
        }
        let mut command = without_help(Cli::command());
        command.build();
        check(&command, &[]);
    }

    /// The width of the terminal decides: a paragraph is one line.
    #[test]
    fn prose_in_help_has_no_line_breaks_of_its_own() {
        fn check(command: &Command) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let prose = |line: &str| !line.is_empty() && !line.starts_with(' ') && !line.ends_with(':');
            let lines: Vec<&str> = help.lines().collect();
            let broken = lines.windows(2).find(|pair| prose(pair[0]) && prose(pair[1]));
            assert_eq!(broken, None, "{}", command.get_name());
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }
}
