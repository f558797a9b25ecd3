//! `swiftwater daemon`: the executive as a service for programs under `swiftwater run`.

mod limits;
pub(crate) mod stop;

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use swiftwater::{ListenerOptions, StackOptions};
use swiftwater_daemon::{
    Daemon, DaemonAddress, DaemonAddressError, DaemonError, DaemonOptions, Ending, StreamRules,
};

use crate::activation;
use crate::failure::Failure;
use crate::interrupt;
use crate::output::note;
use crate::perf::spec::Link;
use crate::sockets;
use crate::sockets::DEFAULT_PORT;
use crate::units::parse_seconds;
use limits::LimitArgs;
use stop::StopArgs;

/// Service for the SCTP sockets of programs.
#[derive(Debug, Args)]
#[command(after_help = "\
`swiftwater run` starts a daemon where there is none, and that one ends by itself a minute after its last \
socket. Start one by hand to see its log, or to choose what carries SCTP.

Programs find it by an abstract name of AF_UNIX sockets, which belongs to the network namespace: a container \
with a network of its own has a daemon of its own. A service manager may make the socket and hand it over \
(LISTEN_FDS): swiftwater.socket starts swiftwater.service when the first program comes.

SIGTERM, SIGINT or SIGHUP ends it: what programs have closed is delivered, within ten seconds, and what they have \
open is aborted, so that no peer waits. A second signal aborts everything at once. A signal that is ignored \
when the daemon starts, as SIGHUP under nohup, stays ignored.

Examples:
  swiftwater daemon                     SCTP in UDP port 9899; other hosts must use the same port
  swiftwater daemon --link raw          directly over IP, as root
  swiftwater daemon stop                end the one that runs")]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct DaemonArgs {
    #[command(subcommand)]
    pub command: Option<DaemonCommand>,
    /// Address for programs: @ and an abstract name, or a path [default: SWIFTWATER_DAEMON, where programs find
    /// it, or @swiftwater].
    #[arg(long, value_name = "ADDRESS", value_parser = NonEmptyStringValueParser::new())]
    pub place: Option<String>,
    /// Link that carries SCTP.
    #[arg(long, value_enum, default_value = "udp")]
    pub link: Link,
    /// UDP port that carries SCTP, here and at every peer; 0 for any free one, if all peers are programs of this daemon.
    #[arg(long, default_value_t = DEFAULT_PORT)]
    pub udp_port: u16,
    /// Send packets between two programs of this host through its loopback interface, where captures and packet filters see
    /// them, instead of keeping them in memory.
    #[arg(long)]
    pub no_hairpin: bool,
    /// End after so many seconds without a socket and without an association [default: never].
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, allow_negative_numbers = true)]
    pub idle_exit: Option<f64>,
    /// Push modules on the streams of programs, ports and users that a file names: lines such as `program=iperf3 limit(bits=10M)`
    /// or `port=5060 user=1000 tap(directory=/var/log/sip)`. Only root and the user of the daemon pop them.
    #[arg(long, value_name = "FILE")]
    pub autopush: Option<PathBuf>,
    #[command(flatten)]
    pub limits: LimitArgs,
    /// Detach from the terminal.
    #[arg(long, hide = true)]
    pub detach: bool,
    /// Start the daemon as a child of nobody, and end.
    #[arg(long, hide = true)]
    pub orphan: bool,
}

/// Other commands for a daemon.
#[derive(Debug, Subcommand)]
pub(crate) enum DaemonCommand {
    /// End the running daemon, and wait until it has ended.
    Stop(StopArgs),
}

/// Serves until a signal ends the daemon, or it has been idle for the configured time.
pub(crate) fn run(args: &DaemonArgs) -> Result<(), Failure> {
    if let Some(DaemonCommand::Stop(args)) = &args.command {
        return stop::run(args);
    }
    if args.orphan {
        return Ok(start_orphan()?);
    }
    if args.detach {
        // A process that leads a session has already left.
        let _ = rustix::process::setsid();
    }
    let options = DaemonOptions {
        address: args.place.as_deref().map_or_else(DaemonAddress::from_environment, DaemonAddress::from),
        stack: StackOptions::default()
            .with_link(args.link.into())
            .with_udp_port(args.udp_port)
            .with_hairpin(!args.no_hairpin)
            .with_prefix_associations_max(args.limits.prefix_associations)
            .with_listener(
                ListenerOptions::default().with_associations_max(args.limits.listener_associations),
            ),
        idle_exit: args.idle_exit.map(Duration::from_secs_f64),
        limits: (&args.limits).into(),
        rules: args.autopush.as_deref().map(rules).transpose()?.unwrap_or_default(),
    };
    raise_descriptor_limit();
    let daemon = match activation::listener()? {
        Some(listener) => Daemon::behind(listener, &options),
        None => Daemon::bind(&options),
    };
    let daemon = daemon.map_err(|error| reason(args, &error))?;
    if let Some(file) = &args.autopush {
        options.rules.check(daemon.stack()).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    let second_signal =
        listen(daemon.ending()).map_err(|error| format!("cannot listen for signals: {error}"))?;
    note(format_args!("swiftwater daemon: at {}: {}", options.address, daemon.description()));
    daemon.run().map_err(|error| error.to_string())?;
    // The daemon ends with its last association, maybe before the thread of the second signal ends the process.
    match second_signal.load(Ordering::SeqCst) {
        0 => Ok(()),
        signal => process::exit(interrupt::exit_status_of(signal).into()),
    }
}

/// Starts this command again without the option for it; the new process outlives this one, and keeps nothing of its caller.
fn start_orphan() -> Result<(), String> {
    leave_caller().map_err(|error| format!("cannot leave what the caller has open: {error}"))?;
    let words = std::env::args_os().skip(1).filter(|word| word != "--orphan");
    let started =
        std::env::current_exe().and_then(|command| process::Command::new(command).args(words).spawn());
    started.map(drop).map_err(|error| format!("cannot start a daemon: {error}"))
}

/// Closes the descriptors that this process inherited, but not the standard ones, and goes to the root folder. Otherwise
/// the daemon would hold pipes open whose readers wait for the end, and keep a file system busy.
fn leave_caller() -> io::Result<()> {
    let numbers: Vec<RawFd> = fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|number| *number > io::stderr().as_raw_fd())
        .collect();
    for number in numbers {
        // The folder itself is closed already.
        let _ = nix::unistd::close(number);
    }
    std::env::set_current_dir("/")
}

/// Reads the autopush rules.
fn rules(path: &Path) -> Result<StreamRules, String> {
    let text = fs::read_to_string(path).map_err(|error| {
        format!("cannot read {}: {error}; name a file of rules with --autopush", path.display())
    })?;
    StreamRules::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Ends the daemon in an orderly way at the first SIGTERM, SIGINT or SIGHUP, which is a success, and at once at the second.
/// Returns the number of the second, 0 before it comes.
fn listen(ending: Ending) -> Result<Arc<AtomicI32>, interrupt::ListenError> {
    let (is_ending, second_signal) = (AtomicBool::new(false), Arc::new(AtomicI32::new(0)));
    let second = Arc::clone(&second_signal);
    interrupt::on_signals(move |signal| match is_ending.swap(true, Ordering::Relaxed) {
        false => ending.begin(),
        true => {
            second.store(signal, Ordering::SeqCst);
            ending.at_once();
            process::exit(interrupt::exit_status_of(signal).into());
        }
    })?;
    Ok(second_signal)
}

/// Returns the reason for which a daemon cannot start, with the option that helps.
fn reason(args: &DaemonArgs, error: &DaemonError) -> String {
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, args.udp_port));
    let is_taken = || sockets::bind_udp(any, None).is_err_and(|error| error.kind() == ErrorKind::AddrInUse);
    match error {
        DaemonError::Stack(_) if args.link != Link::Raw && is_taken() => format!(
            "UDP port {port} is in use: stop the program that has it (`ss -ulpn 'sport = :{port}'` as root names it), \
             or choose another port with --udp-port, here and at every peer",
            port = args.udp_port
        ),
        DaemonError::Address(DaemonAddressError::Taken(place)) => format!(
            "{error}; end it with `swiftwater daemon stop --place {place}`, or choose another place with --place"
        ),
        DaemonError::Address(_) => format!("{error}; choose another place with --place"),
        error => error.to_string(),
    }
}

/// Raises the limit on descriptors, since each socket of a program costs the daemon at least three.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    // With a lower limit, the daemon refuses programs sooner.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}
