//! `swiftwater perf`: one test between two processes, on one host or two.

mod acceptor;
pub(crate) mod args;
pub(crate) mod client;
pub(crate) mod config;
mod connector;
pub(crate) mod control;
mod report;
pub(crate) mod server;
pub(crate) mod spec;

use std::io::{self, Write};
use std::time::Duration;

use clap::ValueEnum as _;
use thiserror::Error;

use crate::failure::EXIT_USAGE;
use crate::interrupt;
use crate::output::{Json, JsonArgs, OutputError, note};
use crate::peer::at_end_of_input;
use crate::trace::file::{TraceFile, TraceFileError};
use args::{ClientArgs, Mode, PerfCommand, ServerArgs};
use client::ClientError;
use config::{ClientConfig, Clients, ServerConfig};
use report::Row;
use server::{Server, ServerError, ServerEvent};
use spec::{Exchange, Link, Method, Protocol, Spec};

/// Duration of a test without time and count.
const DEFAULT_DURATION: Duration = Duration::from_secs(10);
/// Limit for the duration of a test, whatever its count.
const DURATION_MAX: Duration = Duration::from_secs(86_400);

/// Error of the command.
#[derive(Debug, Error)]
pub(crate) enum PerfError {
    /// Error of the client.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Error of the server.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The trace cannot be written.
    #[error(transparent)]
    Trace(#[from] TraceFileError),
    /// An option of another protocol.
    #[error("{option} has no effect with --proto {protocol}; leave it out, or choose another protocol")]
    WithoutEffect { option: &'static str, protocol: String },
    /// Ctrl-C cannot be caught.
    #[error("cannot listen for Ctrl-C: {0}")]
    Signal(#[from] interrupt::ListenError),
    /// The result cannot be printed.
    #[error(transparent)]
    Output(#[from] OutputError),
}

impl PerfError {
    /// Returns the exit status for errors that have one of their own.
    pub(crate) fn exit_status(&self) -> Option<u8> {
        let is_usage =
            matches!(self, PerfError::Client(ClientError::Spec(_)) | PerfError::WithoutEffect { .. });
        is_usage.then_some(EXIT_USAGE)
    }
}

/// Runs the command.
pub(crate) fn run(command: PerfCommand) -> Result<(), PerfError> {
    interrupt::listen()?;
    match command {
        PerfCommand::Server(args) => serve(&args),
        PerfCommand::Client(args) => ask(args),
    }
}

fn serve(args: &ServerArgs) -> Result<(), PerfError> {
    if args.end_with_input {
        at_end_of_input(interrupt::give_up).map_err(ServerError::from)?;
    }
    let trace = args.qlog.as_ref().map(|path| TraceFile::create(path, "swiftwater perf server", "server"));
    let trace = trace.transpose()?;
    let config = ServerConfig {
        addresses: args.bind.clone(),
        port: args.port,
        control: args.control,
        clients: if args.own_user { Clients::OwnUser } else { Clients::All },
        udp_port: args.udp_port,
        link: args.link,
        trace: trace.as_ref().map(TraceFile::sink),
    };
    let mut report = Report::new(&args.json)?;
    let mut server = Server::bind(config)?;
    server.check_udp_port()?;
    let address = server.local_address().map_err(ServerError::from)?;
    report.tell(|out| writeln!(out, "swiftwater: waiting for tests on {address}; Ctrl-C ends"));
    let mut running = None;
    server.run(args.once.then_some(1), None, &mut |event| {
        match &event {
            ServerEvent::Started(_, spec) => running = Some(spec.clone()),
            ServerEvent::Interval(interval) => {
                report.rows.extend(running.as_ref().map(|spec| Row::of_interval(spec, interval, None)));
            }
            ServerEvent::Served(served) => report.rows.push(Row::of_served(served)),
            ServerEvent::Failed(client, reason) if !report.json.leaves_text() => {
                note(format_args!("swiftwater: the test of {client} failed: {reason}"));
            }
            ServerEvent::Failed(..) => {}
        }
        report.tell(|out| report::tell_server_event(out, &event));
    })?;
    let traced = trace.map_or(Ok(()), TraceFile::finish);
    report.finish()?;
    Ok(traced?)
}

/// Returns an option that the protocol of the test has no use for, if one is given.
fn option_without_effect(args: &ClientArgs) -> Option<&'static str> {
    let of_sctp = [
        ("--qlog", args.qlog.is_some()),
        ("--udp-port", args.udp_port.is_some()),
        ("--link", args.link != Link::default()),
        ("--initial-window", args.initial_window.is_some()),
        ("--multipath", args.multipath.is_some()),
        ("--coupling", args.coupling.is_some()),
        ("--no-checksum", args.no_checksum),
    ];
    let of_connections = [
        ("--congestion", args.congestion.is_some()),
        ("--mode", args.mode.is_some_and(|mode| mode != Mode::Message)),
    ];
    let without_effect: &[(&'static str, bool)] = match args.proto {
        Protocol::Sctp => &[],
        Protocol::Udp => &[of_sctp.as_slice(), &of_connections].concat(),
        _ => &of_sctp,
    };
    without_effect.iter().find(|(_, given)| *given).map(|(option, _)| *option)
}

fn ask(args: ClientArgs) -> Result<(), PerfError> {
    if let Some(option) = option_without_effect(&args) {
        let named = args.proto.to_possible_value();
        let protocol = named.map_or_else(String::new, |named| named.get_name().to_owned());
        return Err(PerfError::WithoutEffect { option, protocol });
    }
    let (qlog, json) = (args.qlog.clone(), args.json.clone());
    let mut config = config_of(args);
    config.spec.check().map_err(ClientError::from)?;
    let trace = qlog.as_ref().map(|path| TraceFile::create(path, "swiftwater perf client", "client"));
    let trace = trace.transpose()?;
    let mut report = Report::new(&json)?;
    config.trace = trace.as_ref().map(TraceFile::sink);
    report.tell(|out| report::tell_test(out, &config));
    let outcome = client::run(&config, &mut |interval, window| {
        report.rows.push(Row::of_interval(&config.spec, &interval, window));
        report.tell(|out| report::tell_interval(out, &interval));
    });
    // A trace matters most when the test failed. A trace that cannot be written costs no results.
    let traced = trace.map_or(Ok(()), TraceFile::finish);
    let outcome = match outcome {
        // The report has ended the test itself, and its error explains why.
        Err(ClientError::Interrupted) if report.told.is_err() => return Ok(report.finish()?),
        outcome => outcome?,
    };
    report.rows.extend(outcome.paths.iter().map(|path| Row::of_path(&config.spec, &outcome, path)));
    report.rows.push(Row::of_outcome(&config.spec, &outcome));
    report.tell(|out| report::tell_outcome(out, &config.spec, &outcome));
    report.finish()?;
    Ok(traced?)
}

/// Output of a test: lines while it runs, and an array at its end.
struct Report {
    json: Json,
    rows: Vec<Row>,
    /// Outcome of the writes so far.
    told: Result<(), OutputError>,
}

impl Report {
    fn new(json: &JsonArgs) -> Result<Self, OutputError> {
        Ok(Report { json: json.open()?, rows: Vec::new(), told: Ok(()) })
    }

    /// Prints lines, unless standard output is for JSON. Ends the test early once the reader has gone.
    fn tell(&mut self, write: impl FnOnce(&mut io::Stdout) -> io::Result<()>) {
        if self.json.leaves_text() && self.told.is_ok() {
            self.told = write(&mut io::stdout()).map_err(OutputError::from);
            if self.told.is_err() {
                interrupt::give_up();
            }
        }
    }

    fn finish(mut self) -> Result<(), OutputError> {
        self.told?;
        self.json.write(&self.rows)
    }
}

fn config_of(args: ClientArgs) -> ClientConfig {
    let exchange = match (args.rr, args.crr) {
        (true, _) => Exchange::RequestResponse,
        (_, true) => Exchange::ConnectRequestResponse,
        _ => Exchange::OneWay,
    };
    let method = match (args.proto, args.mode) {
        (Protocol::Sctp, Some(Mode::Stream)) => Method::SctpStream,
        (Protocol::Sctp, Some(Mode::Batch)) => Method::SctpBatch,
        (Protocol::Sctp, _) => Method::SctpMessage,
        (Protocol::Tcp, Some(Mode::Message | Mode::Batch)) if exchange == Exchange::OneWay => {
            Method::TcpBatched
        }
        (Protocol::Tcp, _) => Method::TcpPlain,
        (Protocol::Mptcp, _) => Method::MptcpPlain,
        (Protocol::Udp, _) => Method::UdpPlain,
        (Protocol::SctpSockets, _) => Method::SctpSockets,
        (Protocol::Relay, _) => Method::Relay,
    };
    let spec = Spec {
        method,
        exchange,
        message_bytes: args.message_bytes,
        parallel: args.parallel,
        interval_ms: args.interval.map_or(0, |seconds| (seconds * 1e3) as u64),
        buffer_bytes: args.buffer_bytes,
        packet_bytes: args.mtu,
        congestion: args.congestion,
        initial_window_packets: args.initial_window,
        multipath: args.multipath,
        coupling: args.coupling,
        checksum: !args.no_checksum,
        link: args.link,
    };
    let otherwise = if args.count.is_some() { DURATION_MAX } else { DEFAULT_DURATION };
    ClientConfig {
        host: args.host,
        port: args.port,
        control: args.control,
        local_addresses: args.bind,
        local_udp_port: args.udp_port,
        spec,
        duration: args.seconds.map_or(otherwise, Duration::from_secs_f64),
        count: args.count,
        hold: args.hold,
        trace: None,
    }
}
