//! `swiftwater status`: shows the daemon's sockets in the layout of `ss`.

mod row;
mod table;

use std::collections::HashMap;
use std::io::{self, IsTerminal};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use swiftwater::AssociationState;
use swiftwater_daemon::{AssociationPhase, DaemonAddress, SocketState, Status};

use crate::daemon::stop::explain;
use crate::failure::Failure;
use crate::output::{Json, JsonArgs, OutputError};
use crate::units::parse_seconds;

/// Clears a terminal.
pub(crate) const CLEAR: &str = "\x1b[H\x1b[2J";

/// The sockets to show.
#[derive(Debug, Args)]
#[command(after_help = "\
A line for each socket; below it a line for each association of a one-to-many socket, how much it has carried, and \
its paths. Recv-Q is what has come and waits in the daemon for the program, Send-Q what the peer has not yet \
acknowledged, both in bytes. You see your own sockets; root, and the user of the daemon, see those of all users, \
and at the end what the daemon has lost since it began. Like programs, the command asks only a daemon of root, \
or of its own user: sudo -u USER swiftwater status asks that of USER.

Examples:
  swiftwater status                        sockets, associations and paths of this network namespace
  swiftwater status --watch                again each second, with rates
  swiftwater status --watch 5 --json       an array of JSON each 5 seconds, on a line of its own
  swiftwater status --json | jq '.[] | select(.row == \"path\" and .state != \"active\")'
  ip netns exec NAME swiftwater status     of another network namespace")]
pub(crate) struct StatusArgs {
    /// Address of the daemon: @ and an abstract name, or a path [default: SWIFTWATER_DAEMON, or @swiftwater].
    #[arg(long, value_name = "ADDRESS", value_parser = NonEmptyStringValueParser::new())]
    pub place: Option<String>,
    /// Repeat every so many seconds, with the rates in between.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = parse_seconds, allow_negative_numbers = true)]
    pub watch: Option<f64>,
    #[command(flatten)]
    pub json: JsonArgs,
}

/// Rates of an association.
#[derive(Clone, Copy, Debug)]
struct Rates {
    sent_bits_per_s: f64,
    received_bits_per_s: f64,
}

/// Counters of the previous sample, for the rates.
struct Sample {
    at: Instant,
    /// Bytes sent and received, by the association's number.
    bytes: HashMap<u32, (u64, u64)>,
}

impl Sample {
    fn of(status: &Status, at: Instant) -> Self {
        let associations = status.sockets.iter().flat_map(|socket| &socket.associations);
        let bytes = associations.map(|a| (a.id, (a.bytes_sent, a.bytes_received))).collect();
        Sample { at, bytes }
    }

    /// Returns the rates since an earlier sample, of the associations that existed then.
    fn rates_since(&self, before: &Sample) -> HashMap<u32, Rates> {
        let seconds = self.at.duration_since(before.at).as_secs_f64().max(f64::MIN_POSITIVE);
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 * 8.0 / seconds;
        let both = self.bytes.iter().filter_map(|(id, now)| Some((*id, *now, *before.bytes.get(id)?)));
        let rates = both.map(|(id, now, then)| {
            let (sent_bits_per_s, received_bits_per_s) = (rate(now.0, then.0), rate(now.1, then.1));
            (id, Rates { sent_bits_per_s, received_bits_per_s })
        });
        rates.collect()
    }
}

/// Shows the status, once or until the user stops it.
pub(crate) fn run(args: &StatusArgs) -> Result<(), Failure> {
    let mut json = args.json.open()?;
    let place = args.place.as_deref().map_or_else(DaemonAddress::from_environment, DaemonAddress::from);
    let mut before: Option<Sample> = None;
    loop {
        let status = place.status().map_err(|error| {
            format!("cannot show the status of the daemon at {place}: {}", explain(&place, &error))
        })?;
        let sample = Sample::of(&status, Instant::now());
        let rates = before.as_ref().map(|before| sample.rates_since(before)).unwrap_or_default();
        show(args, &mut json, &status, &rates)?;
        before = Some(sample);
        match args.watch {
            Some(seconds) => thread::sleep(Duration::from_secs_f64(seconds)),
            None => return Ok(()),
        }
    }
}

fn show(
    args: &StatusArgs,
    json: &mut Json,
    status: &Status,
    rates: &HashMap<u32, Rates>,
) -> Result<(), OutputError> {
    let clear = if args.watch.is_some() && io::stdout().is_terminal() { CLEAR } else { "" };
    let text = format!("{clear}{}", table::of(status, rates));
    match args.watch {
        Some(_) => json.write_line_beside(&text, &row::of(status, rates)),
        None => json.write_beside(&text, &row::of(status, rates)),
    }
}

/// The state of an association in COOKIE-WAIT or COOKIE-ECHOED.
const SETTING_UP: &str = "SETTING-UP";

/// Returns the state of a socket in the terms of `ss`.
fn socket_state(state: SocketState) -> &'static str {
    match state {
        SocketState::Listening => "LISTEN",
        SocketState::Connecting => SETTING_UP,
        SocketState::Connected => "ESTAB",
        SocketState::Ended | SocketState::Closed => "CLOSED",
        SocketState::Lost => "LOST",
        _ => "UNCONN",
    }
}

/// Returns the state of an association in the terms of `ss`.
fn association_state(state: AssociationPhase) -> &'static str {
    match state {
        AssociationPhase::SettingUp => SETTING_UP,
        AssociationPhase::Up(AssociationState::Established) => "ESTAB",
        AssociationPhase::Up(state) => state.name(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use swiftwater::PathState;
    use swiftwater_daemon::{
        AssociationStatus, DaemonStatus, PathStatus, SocketReport, SocketStatus, SocketStyle,
    };

    use super::*;

    fn path(remote: &str, primary: bool, state: PathState) -> PathStatus {
        PathStatus {
            local: None,
            remote: remote.parse().expect("an address"),
            primary,
            state,
            mtu_bytes: 1500,
            cwnd_bytes: 4380,
            in_flight_bytes: 0,
            srtt_us: Some(1500),
            rto_ms: 1000,
            pacing_bytes_per_s: None,
            packets_sent: 3,
            packets_received: 4,
            packets_lost: 1,
        }
    }

    /// Returns a one-to-many socket with an association over two paths.
    pub(super) fn example(bytes_sent: u64) -> Status {
        let local: Vec<SocketAddr> =
            ["192.0.2.1:7", "198.51.100.1:7"].map(|a| a.parse().expect("one")).to_vec();
        let association = AssociationStatus {
            id: 5,
            state: AssociationPhase::Up(AssociationState::Established),
            local: local.clone(),
            peer: "192.0.2.2:9".parse().expect("an address"),
            receive_queue_bytes: 10,
            send_queue_bytes: 20,
            peer_window_bytes: 100_000,
            streams_out: 10,
            streams_in: 10,
            messages_sent: 2,
            messages_received: 1,
            bytes_sent,
            bytes_received: 7,
            retransmissions: 1,
            paths: vec![
                path("192.0.2.2:9", true, PathState::Active),
                path("198.51.100.2:9", false, PathState::Inactive),
            ],
        };
        let socket = SocketStatus {
            number: 3,
            style: SocketStyle::OneToMany,
            state: SocketState::Listening,
            user: 1000,
            // No process has this number.
            process: i32::MAX,
            local,
            peer: None,
            carrier_bytes: 0,
        };
        let carries = "SCTP in UDP, port 9899".into();
        Status {
            daemon: DaemonStatus {
                version: "1".into(),
                process: 1,
                carries,
                counters: None,
                users: Vec::new(),
            },
            sockets: vec![SocketReport { socket, associations: vec![association] }],
            sockets_omitted: 0,
            associations_omitted: 0,
        }
    }

    #[test]
    fn rates_are_of_the_time_between() {
        let at = Instant::now();
        let before = Sample::of(&example(1000), at);
        let now = Sample::of(&example(3000), at + Duration::from_secs(2));
        let rates = now.rates_since(&before)[&5];
        assert_eq!((rates.sent_bits_per_s, rates.received_bits_per_s), (8000.0, 0.0));
        let other = Sample { at, bytes: HashMap::new() };
        assert!(now.rates_since(&other).is_empty(), "of a new one nothing is known");
    }
}
