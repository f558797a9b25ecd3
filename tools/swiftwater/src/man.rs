//! The manual pages: those of section 1, generated from the definition of the command line, and those of STREAMS.
//!
//! The help text after the options of each command becomes the sections EXAMPLES and NOTES; sections that all commands share are
//! added.

mod streams;

use std::io::{self, Write};
use std::path::Path;

use clap::{Arg, Command, CommandFactory};
use clap_mangen::Man;

use crate::args::Cli;
use crate::folder::Folder;
use crate::regular_file;

/// Heading of the examples in the help of a command. An empty line ends them.
const EXAMPLES: &str = "Examples:";

/// Beginning of a line that goes on with an explanation in the help of a command: it stands where explanations stand.
const CONTINUED: &str = "        ";

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
const EXIT_STATUS: [(&str, &str); 7] = [
    ("0", "Success."),
    ("1", "Failure; standard error has the reason."),
    ("2", "The command line is invalid."),
    ("126, 127", "swiftwater run cannot execute the program: 127 if there is none, 126 otherwise."),
    (
        "130, 143, 129",
        "Ctrl-C, SIGTERM or SIGHUP ended it early; a measurement has printed its totals so far, lab --live and lab check those of complete runs.",
    ),
    ("141", "Nobody reads its standard output any more."),
    ("other", "swiftwater run becomes the program, whose status it is."),
];

/// Related programs.
const SEE_ALSO: [&str; 6] = ["sctp(7)", "ss(8)", "socat(1)", "iperf3(1)", "systemd.socket(5)", "ld.so(8)"];

/// Writes a page for the command and for each of its subcommands.
pub(crate) fn write_pages(directory: &Path) -> io::Result<()> {
    Folder::create(directory)?;
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
    regular_file::replace(&directory.join(file), &page(command, &examples, names)?)?;
    let mut subcommands = command.get_subcommands().filter(is_visible);
    subcommands.try_for_each(|sub| write_page(sub, &examples, names, directory))
}

fn page(command: &Command, examples: &[String], names: &[String]) -> io::Result<Vec<u8>> {
    let page = Man::new(command.clone()).source(concat!("swiftwater ", env!("CARGO_PKG_VERSION")));
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    writeln!(text, ".SH SYNOPSIS\n{}", synopsis(command))?;
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

/// Returns the command line: options with their values, then operands, then the subcommand.
fn synopsis(command: &Command) -> String {
    let shown = |arg: &&Arg| !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str());
    let (operands, options): (Vec<_>, Vec<_>) =
        command.get_arguments().filter(shown).partition(|arg| arg.is_positional());
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let mut words = vec![format!("\\fB{}\\fR", escape(name))];
    words.extend(options.into_iter().map(|arg| format!("[{}]", option(arg))));
    words.extend(operands.into_iter().map(operand));
    if command.get_subcommands().any(|sub| is_visible(&sub)) {
        words.push(
            if command.is_subcommand_required_set() { "\\fICOMMAND\\fR" } else { "[\\fICOMMAND\\fR]" }
                .to_owned(),
        );
    }
    words.join("\n")
}

/// Returns an option as the synopsis shows it: its names and its value.
fn option(arg: &Arg) -> String {
    let short = arg.get_short().map(|letter| format!("-{letter}"));
    let long = arg.get_long().map(|word| format!("--{word}"));
    let names: Vec<String> =
        short.into_iter().chain(long).map(|name| format!("\\fB{}\\fR", escape(&name))).collect();
    let separator = if arg.is_require_equals_set() { "=" } else { " " };
    let value = match value_of(arg) {
        None => String::new(),
        // The value may be left out, and a blank separator then stays outside.
        Some(value) if is_optional(arg) && separator == " " => format!(" [{value}]"),
        Some(value) if is_optional(arg) => format!("[{separator}{value}]"),
        Some(value) => format!("{separator}{value}"),
    };
    format!("{}{value}", names.join("|"))
}

/// Returns an operand as the synopsis shows it.
fn operand(arg: &Arg) -> String {
    let value = value_of(arg).unwrap_or_default();
    let more = if arg.get_num_args().is_some_and(|range| range.max_values() > 1) { "..." } else { "" };
    if arg.is_required_set() { format!("{value}{more}") } else { format!("[{value}{more}]") }
}

/// Returns the name of an argument's value, if it takes one.
fn value_of(arg: &Arg) -> Option<String> {
    let takes_value = arg.is_positional() || arg.get_num_args().is_some_and(|range| range.takes_values());
    let name = arg.get_value_names().and_then(|names| names.first()).filter(|_| takes_value)?;
    Some(format!("\\fI{}\\fR", escape(name)))
}

fn is_optional(arg: &Arg) -> bool {
    arg.get_num_args().is_some_and(|range| range.min_values() == 0)
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

/// Renders lines of prose: an empty line ends a paragraph, and an indented one is a term with its explanation after two blanks or
/// more; without these it stands alone, or goes on with the explanation before it.
fn lines(lines: &[impl AsRef<str>]) -> String {
    let line = |line: &_| match AsRef::<str>::as_ref(line) {
        "" => ".PP".to_owned(),
        line if line.starts_with(' ') => match line.trim_start().rsplit_once("  ") {
            Some((term, words)) => format!(".TP\n\\fB{}\\fR\n{}", escape(term.trim_end()), escape(words)),
            None if line.starts_with(CONTINUED) => escape(line.trim_start()),
            None => format!(".br\n{}", escape(line.trim_start())),
        },
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
        let table = ["  loss=1%  burst=4      lost, or in bursts", "                        of so many"];
        assert_eq!(lines(&table), ".TP\n\\fBloss=1%  burst=4\\fR\nlost, or in bursts\nof so many");
    }

    #[test]
    fn the_synopsis_has_values() {
        let command = Command::new("x")
            .arg(Arg::new("path").long("path").value_name("SPEC").num_args(1))
            .arg(Arg::new("json").long("json").value_name("FILE").num_args(0..=1).require_equals(true))
            .arg(Arg::new("watch").long("watch").value_name("S").num_args(0..=1))
            .arg(Arg::new("quick").short('q').long("quick").num_args(0))
            .arg(Arg::new("program").value_name("PROGRAM").num_args(1..).required(true));
        let plain = synopsis(&command).replace("\\fB", "").replace("\\fI", "").replace("\\fR", "");
        let words =
            "x\n[\\-\\-path SPEC]\n[\\-\\-json[=FILE]]\n[\\-\\-watch [S]]\n[\\-q|\\-\\-quick]\nPROGRAM...";
        assert_eq!(plain, words);
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

    /// Help is wrapped at 100 columns where there is no terminal.
    #[test]
    fn examples_are_not_wrapped() {
        fn check(command: &Command) {
            let (examples, _) = split_help(&help_of(command));
            let long = examples.iter().find(|line| line.chars().count() + 2 > 100);
            assert_eq!(long, None, "{}", command.get_name());
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
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
