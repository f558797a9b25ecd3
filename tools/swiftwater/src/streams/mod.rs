//! `swiftwater streams`: shows the streams of programs under `run`, and pushes, pops and reads modules while they run.

mod row;
mod tree;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use swiftwater_daemon::{AssocId, DaemonAddress, Recording, StreamCommandError, Streams};

use crate::daemon::stop::explain;
use crate::failure::Failure;
use crate::interrupt;
use crate::offered::Offered;
use crate::output::{Json, JsonArgs, OutputError, note, print};
use crate::result_file::ResultFile;
use crate::status::CLEAR;
use crate::units::{grouped, parse_seconds};

/// Name that stands for standard output as a file.
const STANDARD_OUTPUT: &str = "-";

/// Modules that every daemon has. A daemon may have others.
const MODULES: [&str; 10] =
    ["bufmod", "compress", "connld", "counter", "filter", "limit", "nullmod", "pipemod", "timod", "tirdwr"];

/// Streams of associations.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Each association has a stream: the head that the program reads and writes, modules, and the driver that speaks SCTP. ID is the number \
of the association. Recv-Q and Send-Q are what waits in a queue on its way up and down, with the high mark at which senders wait \
behind it. You see and change your own streams; root, and the user of the daemon, those of all users, and only these two pop \
what one of them has pushed. Like programs, the command asks only a daemon of root, or of its own user.

Modules are pushed and popped while messages pass: none is lost, duplicated or reordered.

Examples:
  swiftwater streams                            streams with their modules as a tree
  swiftwater streams --watch                    again each second
  swiftwater streams push 5 limit bits=10M      10 Mbit/s each way, until it is popped
  swiftwater streams push 5 filter drop=0.01    lose one message in a hundred
  swiftwater streams push 5 compress            at both ends: LZ4
  swiftwater streams pop 5
  swiftwater streams trace 5                    a line for each message
  swiftwater streams tap 5 -w call.pcapng       for Wireshark, until Ctrl-C
  swiftwater streams tap 5 | tshark -r -
  swiftwater streams link 5 7                   their peers talk with each other, past the program
  swiftwater streams unlink 5                   the program goes on")]
pub(crate) struct StreamsArgs {
    #[command(subcommand)]
    command: Option<StreamsCommand>,
    #[command(flatten)]
    place: PlaceArgs,
    /// Repeat every so many seconds.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = parse_seconds, allow_negative_numbers = true)]
    watch: Option<f64>,
    #[command(flatten)]
    json: JsonArgs,
}

#[derive(Debug, Args)]
struct PlaceArgs {
    /// Address of the daemon: @ and an abstract name, or a path [default: SWIFTWATER_DAEMON, or @swiftwater].
    #[arg(long, value_name = "ADDRESS", value_parser = NonEmptyStringValueParser::new())]
    place: Option<String>,
}

impl PlaceArgs {
    fn place(&self) -> DaemonAddress {
        self.place.as_deref().map_or_else(DaemonAddress::from_environment, DaemonAddress::from)
    }
}

/// Operation on a stream.
#[derive(Debug, Subcommand)]
enum StreamsCommand {
    /// Push a module below the head (`I_PUSH`).
    #[command(after_help = PUSH_HELP)]
    Push {
        /// The number of the association.
        #[arg(value_parser = association_number)]
        id: AssocId,
        /// The module: bufmod, compress, connld, counter, filter, limit, nullmod, pipemod, timod, tirdwr.
        #[arg(value_parser = Offered(|| MODULES.to_vec()), hide_possible_values = true)]
        module: String,
        /// Its arguments, NAME=VALUE.
        #[arg(value_name = "ARGUMENT")]
        arguments: Vec<String>,
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Pop the module below the head (`I_POP`).
    #[command(after_help = POP_HELP)]
    Pop {
        /// The number of the association.
        #[arg(value_parser = association_number)]
        id: AssocId,
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Link two streams (`I_PLINK`): what comes from one peer goes to the other, and their programs wait.
    #[command(after_help = LINK_HELP)]
    Link {
        /// The number of an association.
        #[arg(value_parser = association_number)]
        id: AssocId,
        /// The number of the other association.
        #[arg(value_parser = association_number, value_name = "OTHER")]
        other: AssocId,
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// End the link of a stream and of the one that it is linked with (`I_PUNLINK`).
    #[command(after_help = UNLINK_HELP)]
    Unlink {
        /// The number of an association.
        #[arg(value_parser = association_number)]
        id: AssocId,
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Print a line for each message and primitive, until Ctrl-C or the association ends.
    #[command(after_help = TRACE_HELP)]
    Trace {
        /// The number of the association.
        #[arg(value_parser = association_number)]
        id: AssocId,
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Write messages and primitives as a pcapng file, until Ctrl-C or the association ends.
    #[command(after_help = TAP_HELP)]
    Tap {
        /// The number of the association.
        #[arg(value_parser = association_number)]
        id: AssocId,
        /// File to write; - is standard output.
        #[arg(short, long = "write", value_name = "FILE", default_value = STANDARD_OUTPUT)]
        write: PathBuf,
        #[command(flatten)]
        place: PlaceArgs,
    },
}

/// End of the help of `push`.
const PUSH_HELP: &str = "\
Each module has a manual page with its arguments, such as swiftwater-limit(7).

Examples:
  swiftwater streams push 5 limit bits=10M      10 Mbit/s each way, until it is popped
  swiftwater streams push 5 filter drop=0.01    lose one message in a hundred
  swiftwater streams push 5 compress            at both ends: LZ4";

/// End of the help of `pop`.
const POP_HELP: &str = "\
Examples:
  swiftwater streams        shows which module is below the head
  swiftwater streams pop 5  prints the name of the module that it pops";

/// End of the help of `unlink`.
const UNLINK_HELP: &str = "\
Examples:
  swiftwater streams unlink 5  prints the number of the association that it was linked with";

/// End of the help of `trace`.
const TRACE_HELP: &str = "\
Examples:
  swiftwater streams trace 5                  a line for each message, until Ctrl-C
  swiftwater streams trace 5 > messages.txt   the same, to a file";

/// End of the help of `tap`.
const TAP_HELP: &str = "\
Examples:
  swiftwater streams tap 5 -w call.pcapng   for Wireshark, until Ctrl-C
  swiftwater streams tap 5 | tshark -r -    without a file";

/// End of the help of `link`.
const LINK_HELP: &str = "\
Both streams are linked under the multiplexor `splice` of the daemon. It passes messages with their SCTP stream, payload protocol \
identifier and order, and flow control reaches from peer to peer. The programs find nothing to read and no room to write. The link \
ends by `unlink`, with either association, or when a program closes its socket; what was not passed on is the programs'. What a \
program has read before the link and not sent on yet goes on after it.

Use it to take a proxy out of its way while you look into it or stop it in a debugger, or to find out whether it is the proxy that is \
slow. Modules stay: `tap` and `limit` work on linked streams.

Examples:
  swiftwater streams link 5 7        5 and 7 are the two associations of a proxy
  swiftwater streams                 shows the link and what it has passed on
  swiftwater streams unlink 7        ends the link of 5 and 7";

/// Parses the number of an association.
fn association_number(text: &str) -> Result<AssocId, String> {
    text.parse()
        .map(AssocId::new)
        .map_err(|_| format!("`{text}` is not the number of an association; `swiftwater streams` lists them"))
}

/// Shows streams, or changes one.
pub(crate) fn run(args: &StreamsArgs) -> Result<(), Failure> {
    match &args.command {
        None => show_all(args),
        Some(StreamsCommand::Push { id, module, arguments, place }) => {
            let place = place.place();
            let words: Vec<String> = std::iter::once(module).chain(arguments).cloned().collect();
            let pushed = place.push_module(*id, &words);
            pushed.map_err(|error| failure(&place, &format!("cannot push {module} on {id}"), &error))
        }
        Some(StreamsCommand::Pop { id, place }) => {
            let place = place.place();
            let popped = place.pop_module(*id);
            let name = popped.map_err(|error| failure(&place, &format!("cannot pop from {id}"), &error))?;
            Ok(print(&format!("{name}\n"))?)
        }
        Some(StreamsCommand::Link { id, other, place }) => {
            let place = place.place();
            let linked = place.link(*id, *other);
            linked.map_err(|error| failure(&place, &format!("cannot link {id} with {other}"), &error))
        }
        Some(StreamsCommand::Unlink { id, place }) => {
            let place = place.place();
            let unlinked = place.unlink(*id);
            let other = unlinked.map_err(|error| failure(&place, &format!("cannot unlink {id}"), &error))?;
            Ok(print(&format!("{other}\n"))?)
        }
        Some(StreamsCommand::Trace { id, place }) => {
            let place = place.place();
            let recording = place.trace(*id);
            let recording =
                recording.map_err(|error| failure(&place, &format!("cannot trace {id}"), &error))?;
            write_all(recording, &mut io::stdout().lock(), &standard_output_failed)
        }
        Some(StreamsCommand::Tap { id, write, place }) => tap(*id, write, &place.place()),
    }
}

fn tap(id: AssocId, path: &Path, place: &DaemonAddress) -> Result<(), Failure> {
    let to_standard_output = path.as_os_str() == STANDARD_OUTPUT;
    if to_standard_output && io::stdout().is_terminal() {
        return Err("a pcapng file is nothing for a terminal; name a file with -w".to_owned().into());
    }
    let file_failed = |error: io::Error| {
        Failure::Said(format!("cannot write {}: {error}; choose another file with -w", path.display()))
    };
    let record = || place.tap(id).map_err(|error| failure(place, &format!("cannot tap {id}"), &error));
    if to_standard_output {
        return write_all(record()?, &mut io::stdout().lock(), &standard_output_failed);
    }
    // The file is opened before the module is pushed, so that a failure does not affect the stream.
    let mut file = ResultFile::open(path).map_err(file_failed)?;
    let recording = record()?;
    file.begin().map_err(file_failed)?;
    write_all(recording, &mut file, &file_failed)
}

fn standard_output_failed(error: io::Error) -> Failure {
    OutputError::from(error).into()
}

/// Writes the recording until its end, or until a signal asks for the end; reports lost records.
fn write_all(
    mut recording: Recording,
    out: &mut impl Write,
    failed: &dyn Fn(io::Error) -> Failure,
) -> Result<(), Failure> {
    interrupt::listen().map_err(|error| format!("cannot listen for signals: {error}"))?;
    let mut ending = false;
    loop {
        if interrupt::requested() && !ending {
            recording.finish();
            ending = true;
        }
        let records =
            recording.read().map_err(|error| format!("cannot read more records from the daemon: {error}"))?;
        let Some(records) = records else { break };
        out.write_all(records).and_then(|()| out.flush()).map_err(failed)?;
    }
    if recording.lost() > 0 {
        note(format_args!("{} records were lost: they were not read fast enough", grouped(recording.lost())));
    }
    Ok(())
}

fn show_all(args: &StreamsArgs) -> Result<(), Failure> {
    let mut json = args.json.open()?;
    let place = args.place.place();
    loop {
        let streams =
            place.streams().map_err(|error| failure(&place, "cannot list streams of a daemon", &error))?;
        show(args, &mut json, &streams)?;
        match args.watch {
            Some(seconds) => thread::sleep(Duration::from_secs_f64(seconds)),
            None => return Ok(()),
        }
    }
}

fn show(args: &StreamsArgs, json: &mut Json, streams: &Streams) -> Result<(), OutputError> {
    let clear = if args.watch.is_some() && io::stdout().is_terminal() { CLEAR } else { "" };
    let text = format!("{clear}{}", tree::of(streams));
    match args.watch {
        Some(_) => json.write_line_beside(&text, &row::of(streams)),
        None => json.write_beside(&text, &row::of(streams)),
    }
}

fn failure(place: &DaemonAddress, what: &str, error: &StreamCommandError) -> Failure {
    let why = match error {
        StreamCommandError::NoDaemon(error) => explain(place, error),
        error => error.to_string(),
    };
    format!("{what} at {place}: {why}").into()
}

#[cfg(test)]
mod tests {
    use swiftwater_daemon::{LinkStatus, PartStatus, QueueStatus, StreamStatus};

    use super::*;

    /// Returns a stream with one module that makes its sender wait.
    pub(super) fn example() -> Streams {
        let queue = |bytes: usize| QueueStatus {
            messages: bytes / 100,
            bytes,
            hiwat_bytes: 65_536,
            lowat_bytes: 32_768,
            is_full: bytes >= 65_536,
        };
        let part = |name: &str, write_bytes: usize, counts: &[(&str, u64)]| PartStatus {
            name: name.into(),
            read: queue(0),
            write: queue(write_bytes),
            counts: counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
        };
        let stream = StreamStatus {
            socket: 3,
            association: 5,
            user: 1000,
            // No process has this number.
            process: i32::MAX,
            local: Some("192.0.2.1:7".parse().expect("an address")),
            peer: "192.0.2.2:9".parse().expect("an address"),
            parts: vec![
                part("head", 0, &[("messages written", 1200)]),
                part("limit", 70_000, &[]),
                part("sctp", 0, &[("messages sent", 500)]),
            ],
            link: Some(LinkStatus { with: 7, user: 0, messages: 1200, bytes: 34_000 }),
        };
        Streams { streams: vec![stream], omitted: 0 }
    }
}
