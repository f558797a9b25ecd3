//! Arguments of `swiftwater perf`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::builder::TypedValueParser as _;
use clap::{Args, Subcommand, ValueEnum};
use swiftwater::{CongestionControl, Coupling, INITIAL_WINDOW_PACKETS_MAX, Multipath};

use super::spec::{Link, Protocol};
use crate::offered::Offered;
use crate::output::JsonArgs;
use crate::sockets::DEFAULT_PORT;
use crate::units::{parse_bytes, parse_count, parse_seconds};

/// The two ends of a measurement.
#[derive(Debug, Subcommand)]
pub(crate) enum PerfCommand {
    /// Wait for clients, receive or answer their messages, and count them.
    Server(ServerArgs),
    /// Send messages or requests to a server, and report the messages that it received.
    Client(ClientArgs),
}

/// Receiving end of a measurement.
#[derive(Debug, Args)]
#[command(after_help = "\
The firewall of this host must admit the TCP port (--port) and the UDP port (--udp-port), both 9899 by default. Clients \
learn the UDP port from the server. With -P, tests over UDP use one port for each flow, from this one upwards.

Examples:
  swiftwater perf server                            all addresses, TCP and UDP port 9899
  swiftwater perf server -B 192.0.2.1,198.51.100.1  two addresses: SCTP uses both
  swiftwater perf server --once --json              one test, then its result as JSON")]
pub(crate) struct ServerArgs {
    /// TCP port to listen on; also the SCTP port.
    #[arg(short, long, default_value_t = DEFAULT_PORT)]
    pub port: u16,
    /// Local addresses, comma separated or repeated. TCP listens on the first, SCTP on all [default: all].
    #[arg(short = 'B', long = "bind", value_name = "ADDRESS", value_delimiter = ',', value_parser = parse_address)]
    pub bind: Vec<IpAddr>,
    /// Local address of the control connection, where it has a network of its own beside that of the data.
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address, hide = true)]
    pub control: Option<IpAddr>,
    /// End when standard input ends, as it does with the program that has started this one.
    #[arg(long, hide = true)]
    pub end_with_input: bool,
    /// Serve only clients of this user on this host: others could hold up a measurement on loopback.
    #[arg(long, hide = true)]
    pub own_user: bool,
    /// UDP port of SCTP and of tests over UDP; 0 chooses a free one.
    #[arg(long, default_value_t = DEFAULT_PORT)]
    pub udp_port: u16,
    /// Links that the server accepts; auto accepts the link that each client requests.
    #[arg(long, value_enum, default_value = "auto")]
    pub link: Link,
    /// Stop after one test.
    #[arg(short = '1', long)]
    pub once: bool,
    /// Record the events of every association, for `swiftwater trace`.
    #[arg(long, value_name = "FILE")]
    pub qlog: Option<PathBuf>,
    #[command(flatten)]
    pub json: JsonArgs,
}

/// Sending end of a measurement.
#[derive(Debug, Args)]
#[command(after_help = "\
Only delivered messages count: the rates are those that the server measures, from the first delivery to the last. \
What is on its way when -t ends is still delivered, so this time may be longer than that of -t. The line of each \
processor names the time that its share is of. Ctrl-C ends the test and prints the totals so far.

Examples:
  swiftwater perf client 192.0.2.1                            SCTP, 64-byte messages, 10 seconds
  swiftwater perf client 192.0.2.1 --proto tcp -l 1k -i 1     TCP, 1 KB a write, a line each second
  swiftwater perf client 192.0.2.1 --rr -l 1                  request and response, with latencies
  swiftwater perf client 192.0.2.1 --crr -n 1000              an association for each request
  swiftwater perf client 192.0.2.1 -P 4 --mode stream         four associations, no boundaries
  swiftwater perf client 192.0.2.1 --mode batch -l 16         many messages in one call
  swiftwater perf client 192.0.2.1 -B 192.0.2.7,198.51.100.7  a path from each of two addresses
  swiftwater perf client 192.0.2.1 --link auto                directly over IP if permitted
  swiftwater perf client 192.0.2.1 --json | python3 -m json.tool
  swiftwater perf client 192.0.2.1 --qlog run.sqlog && swiftwater trace plot run.sqlog")]
pub(crate) struct ClientArgs {
    /// Name or address of the server.
    pub host: String,
    /// TCP port of the server.
    #[arg(short, long, default_value_t = DEFAULT_PORT, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// The transport.
    #[arg(long, value_enum, default_value = "sctp")]
    pub proto: Protocol,
    /// Bytes of a message: 64, 1k (1,024), 1M.
    #[arg(short = 'l', long = "length", value_name = "BYTES", default_value = "64", value_parser = parse_bytes)]
    pub message_bytes: usize,
    /// Seconds to send or to make requests [default: 10, or no limit with -n].
    #[arg(short = 't', long = "time", value_name = "SECONDS", value_parser = parse_seconds, allow_negative_numbers = true)]
    pub seconds: Option<f64>,
    /// Messages to send or requests to make: 1000, 250k (250,000), 4M.
    #[arg(short = 'n', long = "count", value_name = "MESSAGES", value_parser = parse_count)]
    pub count: Option<u64>,
    /// Seconds from one report to the next.
    #[arg(short = 'i', long = "interval", value_name = "SECONDS", value_parser = parse_seconds, allow_negative_numbers = true)]
    pub interval: Option<f64>,
    /// Bytes of send and receive buffer at both ends [default: the system's].
    #[arg(short = 'w', long = "window", value_name = "BYTES", value_parser = parse_bytes)]
    pub buffer_bytes: Option<usize>,
    /// Local addresses, comma separated or repeated. SCTP uses all of them; TCP and UDP take them in turn.
    #[arg(short = 'B', long = "bind", value_name = "ADDRESS", value_delimiter = ',', value_parser = parse_address)]
    pub bind: Vec<IpAddr>,
    /// Number of concurrent associations, connections or flows, each with its own thread.
    #[arg(short = 'P', long, value_name = "COUNT", default_value_t = 1)]
    pub parallel: usize,
    /// Preserve message boundaries, or send one endless stream [default: message; stream for TCP].
    #[arg(long, value_enum)]
    pub mode: Option<Mode>,
    /// Send requests, each after the answer to the previous one, and report latency percentiles.
    #[arg(long, conflicts_with = "crr")]
    pub rr: bool,
    /// Send requests as --rr does, with a new connection or association for each.
    #[arg(long)]
    pub crr: bool,
    /// Maximum size of IP packets, if smaller than the path permits.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub mtu: Option<usize>,
    /// Local UDP port of SCTP [default: any].
    #[arg(long)]
    pub udp_port: Option<u16>,
    /// Link that carries SCTP.
    #[arg(long, value_enum, default_value = "udp")]
    pub link: Link,
    /// Congestion control: cubic, newreno (or reno) or bbr; of SCTP at both ends [default: cubic], of TCP at this end [default:
    /// the system's].
    #[arg(long, value_name = "NAME", hide_possible_values = true)]
    #[arg(value_parser = Offered(|| CONGESTION_CONTROLS.to_vec()).try_map(|name| parse_congestion(&name)))]
    pub congestion: Option<CongestionControl>,
    /// Packets that each path of SCTP may have in flight before its first acknowledgement, 1 to 64; TCP begins with 10
    /// [default: three, as RFC 9260 has it].
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u32).range(1..=i64::from(INITIAL_WINDOW_PACKETS_MAX)))]
    pub initial_window: Option<u32>,
    /// Concurrent multipath of SCTP: off, agreed (if both ends request it and a path leaves this host) or always [default:
    /// agreed].
    #[arg(long, value_name = "WHEN", hide_possible_values = true)]
    #[arg(value_parser = Offered(|| Multipath::ALL.map(Multipath::name).to_vec()).try_map(|name| name.parse::<Multipath>()))]
    pub multipath: Option<Multipath>,
    /// Congestion control of all paths together, in place of --congestion: none, rpv2 or balia [default: none].
    #[arg(long, value_name = "NAME", hide_possible_values = true)]
    #[arg(value_parser = Offered(|| Coupling::ALL.map(Coupling::name).to_vec()).try_map(|name| name.parse::<Coupling>()))]
    pub coupling: Option<Coupling>,
    /// The server's address for the control connection, which its --control names.
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address, hide = true)]
    pub control: Option<IpAddr>,
    /// Connect, report that on standard error, and begin after a line on standard input: several clients can begin at once.
    #[arg(long, hide = true)]
    pub hold: bool,
    /// Send SCTP packets without a checksum. For measurements on one machine, not for networks.
    #[arg(long)]
    pub no_checksum: bool,
    /// Record the events of every association, for `swiftwater trace`.
    #[arg(long, value_name = "FILE")]
    pub qlog: Option<PathBuf>,
    #[command(flatten)]
    pub json: JsonArgs,
}

/// Boundaries between messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// One message per call arrives as one message. TCP puts a length before each and batches them.
    Message,
    /// All writes continue one endless message, as in TCP.
    Stream,
    /// The program collects messages and hands over many in a call, at both ends. TCP does so with `message`, too.
    Batch,
}

/// Names of the congestion controls.
const CONGESTION_CONTROLS: [&str; 4] = ["cubic", "newreno", "reno", "bbr"];

/// Parses a congestion control by our name or by the kernel's.
fn parse_congestion(text: &str) -> Result<CongestionControl, String> {
    let name = if text == "reno" { "newreno" } else { text };
    name.parse()
        .map_err(|_| format!("`{text}` is not a congestion control; write cubic, newreno, reno or bbr"))
}

fn parse_address(text: &str) -> Result<IpAddr, String> {
    text.trim_start_matches('[')
        .trim_end_matches(']')
        .parse()
        .map_err(|_| format!("`{text}` is not an IP address; write one such as 192.0.2.1 or 2001:db8::1"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    #[test]
    fn local_addresses_come_separated_or_repeated() {
        for line in [
            "swiftwater perf server -B 192.0.2.1,[2001:db8::1]",
            "swiftwater perf server -B 192.0.2.1 -B 2001:db8::1",
            "swiftwater perf server --bind 192.0.2.1 -B [2001:db8::1]",
        ] {
            let cli = Cli::try_parse_from(line.split(' ')).expect("a good line");
            let Command::Perf(PerfCommand::Server(server)) = cli.command else { panic!("another command") };
            let expected: Vec<IpAddr> =
                ["192.0.2.1", "2001:db8::1"].map(|a| a.parse().expect("good")).to_vec();
            assert_eq!(server.bind, expected);
        }
        let error =
            Cli::try_parse_from("swiftwater perf server -B 192.0.2".split(' ')).expect_err("a bad address");
        assert!(error.to_string().contains("not an IP address"), "{error}");
    }

    #[test]
    fn sizes_have_suffixes() {
        let line = "swiftwater perf client host -l 1k -w 4M -n 2M -t 0.5 -P 4 --rr";
        let cli = Cli::try_parse_from(line.split(' ')).expect("a good line");
        let Command::Perf(PerfCommand::Client(client)) = cli.command else { panic!("another command") };
        assert_eq!((client.message_bytes, client.buffer_bytes), (1024, Some(4 << 20)));
        assert_eq!((client.count, client.seconds, client.parallel), (Some(2_000_000), Some(0.5), 4));
        assert!(client.rr && !client.crr);
    }

    #[test]
    fn congestion_controls_have_the_names_of_the_kernel_too() {
        let control = |name| {
            let line = ["swiftwater", "perf", "client", "host", "--proto", "tcp", "--congestion", name];
            let Command::Perf(PerfCommand::Client(client)) = Cli::try_parse_from(line).ok()?.command else {
                return None;
            };
            client.congestion
        };
        assert_eq!(control("reno"), Some(CongestionControl::NewReno));
        assert_eq!(control("cubic"), Some(CongestionControl::Cubic));
        assert_eq!(control("vegas"), None);
    }

    #[test]
    fn rr_and_crr_exclude_each_other() {
        assert!(Cli::try_parse_from("swiftwater perf client host --rr --crr".split(' ')).is_err());
    }
}
