//! Loads that fill the lines of paths in both directions.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use emulator::{EmulatorCounts, LineState};
use nix::errno::Errno;
use serde::Serialize;
use socket2::{Domain, SockRef, Socket, Type};

use super::probe::{self, CHECK_INTERVAL, Direction, Flood, Received, sleep_until};
use super::tcp::{BUFFER_BYTES, Repeats as _};
use crate::interrupt;
use crate::lab::line::LineError;
use crate::lab::line::hosts::{End, Hosts, HostsError, UNLIMITED_BITS_PER_S, address};
use crate::lab::line::report::processors;
use crate::lab::line::spec::PathSpec;

/// The directions of a path, in the order of its lines.
pub(super) const DIRECTIONS: [End; 2] = [End::Server, End::Client];
/// Congestion control of the connections, where the kernel permits it: it keeps a line full whatever the queue.
const CONTROL: &str = "bbr";
/// Share of the time of a load of TCP that is not measured: its slow start.
const TCP_START_SHARE: f64 = 0.25;

/// The traffic that fills the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Load {
    /// Datagrams on this path alone.
    Udp,
    /// Datagrams on all paths at the same time.
    UdpAll,
    /// A connection of TCP in each direction of all paths at the same time.
    TcpAll,
}

impl Load {
    /// Returns what to say about a line that was loaded so.
    pub(super) fn circumstance(self) -> &'static str {
        match self {
            Load::Udp => "",
            Load::UdpAll => " beside the other paths",
            Load::TcpAll => " with TCP in both directions of all paths",
        }
    }

    /// Returns the name in the table, which the JSON has, too.
    pub(super) fn name(self) -> &'static str {
        match self {
            Load::Udp => "udp",
            Load::UdpAll => "udp-all",
            Load::TcpAll => "tcp-all",
        }
    }
}

/// Measurement of loaded paths.
#[derive(Debug)]
pub(super) struct Loaded {
    /// Counters of the emulator, and the number of packets that the hosts have lost.
    pub(super) counts: EmulatorCounts,
    pub(super) host_dropped: u64,
    /// Processors that the emulator used while the lines were full.
    pub(super) processors: f64,
    /// The traffic that each path carried in each direction.
    pub(super) carried: Vec<[Carried; 2]>,
}

/// The traffic that a line carried.
#[derive(Clone, Debug)]
pub(super) enum Carried {
    /// A flood of datagrams.
    Flood(Flood, Received),
    /// TCP.
    Tcp {
        /// Bits on the line in a second.
        bits_per_s: f64,
        /// Congestion control of the connection, by its name in the kernel.
        congestion_control: String,
    },
}

/// Floods the paths with these numbers, all directions at the same time. Fresh counters are those of the floods.
pub(super) fn flood(hosts: &Hosts, floods: &[(usize, Flood)]) -> Result<Loaded, LineError> {
    let (start, time) =
        (Instant::now(), floods.iter().map(|(_, flood)| flood.time).max().unwrap_or_default());
    let (busy, carried) = thread::scope(|scope| {
        let start_flood = |&(path, flood): &(usize, Flood)| {
            DIRECTIONS.map(|to| {
                let direction = Direction { hosts, path, to };
                scope.spawn(move || Ok(Carried::Flood(flood, probe::flood(direction, flood)?)))
            })
        };
        let floods: Vec<_> = floods.iter().map(start_flood).collect();
        sleep_until(start + time);
        let busy = hosts.counts();
        let join = |one: thread::ScopedJoinHandle<'_, io::Result<Carried>>| {
            one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        let carried = floods.into_iter().map(|[there, back]| Ok([join(there)?, join(back)?]));
        (busy, carried.collect::<io::Result<Vec<_>>>())
    });
    let (carried, (busy, _), (counts, host_dropped)) =
        (carried.map_err(LineError::Probe)?, busy?, hosts.counts()?);
    Ok(Loaded { counts, host_dropped, processors: processors(&busy), carried })
}

/// Fills all paths with TCP in both directions for a while. The line of each is measured without the slow start.
pub(super) fn tcp(hosts: &Hosts, paths: &[PathSpec], time: Duration) -> Result<Loaded, LineError> {
    let start = Instant::now();
    let end = start + time;
    thread::scope(|scope| {
        let mut transfers = Vec::new();
        for (path, spec) in paths.iter().enumerate() {
            // Without a limit TCP would take all processors of this host.
            let limit = spec.pipe.rate_bits_per_s.is_none().then_some(UNLIMITED_BITS_PER_S);
            transfers.push(DIRECTIONS.map(|to| {
                let direction = Direction { hosts, path, to };
                scope.spawn(move || transfer(direction, limit, end))
            }));
        }
        sleep_until(start + time.mul_f64(TCP_START_SHARE));
        let before = Look::take(hosts)?;
        sleep_until(end);
        let after = Look::take(hosts)?;
        let join = |one: thread::ScopedJoinHandle<'_, io::Result<String>>| {
            one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        let controls = transfers.into_iter().map(|[there, back]| Ok([join(there)?, join(back)?]));
        let controls: Vec<_> = controls.collect::<io::Result<_>>().map_err(LineError::Probe)?;
        Ok(after.since(before, controls))
    })
}

/// The counters and lines of the emulator at a moment of a load of TCP.
struct Look {
    counts: EmulatorCounts,
    host_dropped: u64,
    states: Vec<[LineState; 2]>,
    at: Instant,
}

impl Look {
    fn take(hosts: &Hosts) -> Result<Self, HostsError> {
        let (counts, host_dropped) = hosts.counts()?;
        let states = hosts.states().ok_or(HostsError::Failed)?;
        Ok(Look { counts, host_dropped, states, at: Instant::now() })
    }

    /// Returns what the paths carried since `before`, each direction by a connection with one of these congestion controls.
    fn since(self, before: Look, controls: Vec<[String; 2]>) -> Loaded {
        let seconds = (self.at - before.at).as_secs_f64().max(1e-9);
        // Queued bytes have not been on the line yet.
        let left = |state: LineState| state.bytes_accepted.saturating_sub(state.queued_bytes as u64);
        let carried = self.states.iter().zip(&before.states).zip(controls);
        let carried = carried.map(|((after, before), [there, back])| {
            [(0, there), (1, back)].map(|(line, congestion_control)| {
                let bytes = left(after[line]).saturating_sub(left(before[line]));
                Carried::Tcp { bits_per_s: bytes as f64 * 8.0 / seconds, congestion_control }
            })
        });
        let processor = self.counts.processor.saturating_sub(before.counts.processor);
        let elapsed = self.counts.elapsed.saturating_sub(before.counts.elapsed);
        Loaded {
            carried: carried.collect(),
            processors: processor.as_secs_f64() / elapsed.as_secs_f64().max(1e-9),
            counts: self.counts,
            host_dropped: self.host_dropped,
        }
    }
}

/// Sends over TCP in this direction until `end`, at most `limit` bits in a second. On a line over which no connection comes about
/// nothing is sent. Returns the congestion control of the sender.
fn transfer(direction: Direction<'_>, limit: Option<u64>, end: Instant) -> io::Result<String> {
    let Direction { hosts, path, to } = direction;
    let listener = hosts.host(to).run(|| TcpListener::bind((address(path, to), 0)))??;
    let server = listener.local_addr()?;
    let sender = hosts.host(to.other()).run(|| Socket::new(Domain::IPV4, Type::STREAM, None))??;
    let control = choose_control(&sender, CONTROL)?;
    sender.set_write_timeout(Some(CHECK_INTERVAL))?;
    // Accepting waits as long as reading.
    SockRef::from(&listener).set_read_timeout(Some(CHECK_INTERVAL))?;
    thread::scope(|scope| {
        let receiving = scope.spawn(|| receive(&listener, end));
        if connect(&sender, server, end)? {
            send(sender.into(), limit, end);
        }
        receiving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    Ok(control)
}

/// Gives a socket a congestion control if the kernel has it and this user may choose it. Returns the one that the socket has
/// then, otherwise that of the host.
fn choose_control(socket: &Socket, name: &str) -> io::Result<String> {
    if let Err(error) = socket.set_tcp_congestion(name.as_bytes())
        && !matches!(error.raw_os_error().map(Errno::from_raw), Some(Errno::ENOENT | Errno::EPERM))
    {
        return Err(error);
    }
    let chosen = socket.tcp_congestion()?;
    Ok(String::from_utf8_lossy(&chosen).trim_end_matches('\0').to_owned())
}

/// Returns whether a load goes on.
fn goes_on(end: Instant) -> bool {
    Instant::now() < end && !interrupt::requested()
}

/// Connects until `end`. Returns whether there is a connection.
fn connect(sender: &Socket, server: SocketAddr, end: Instant) -> io::Result<bool> {
    while goes_on(end) {
        match sender.connect(&server.into()) {
            Ok(()) => return Ok(true),
            Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                Some(Errno::EISCONN) => return Ok(true),
                // The next call waits on.
                Some(Errno::EINPROGRESS | Errno::EALREADY | Errno::EINTR) => {}
                Some(Errno::ETIMEDOUT) => return Ok(false),
                _ => return Err(error),
            },
        }
    }
    Ok(false)
}

fn send(mut sender: TcpStream, limit: Option<u64>, end: Instant) {
    let (start, buffer, mut sent_bits) = (Instant::now(), vec![0; BUFFER_BYTES], 0.0);
    while goes_on(end) {
        if let Some(bits_per_s) = limit {
            sleep_until((start + Duration::from_secs_f64(sent_bits / bits_per_s as f64)).min(end));
        }
        let written = sender.write(&buffer);
        if !written.is_ok_or_waits() {
            return;
        }
        sent_bits += written.unwrap_or(0) as f64 * 8.0;
    }
}

/// Accepts the connection and reads from it until `end`.
fn receive(listener: &TcpListener, end: Instant) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut receiver: Option<TcpStream> = None;
    while goes_on(end) {
        match &mut receiver {
            None => match listener.accept() {
                Ok((accepted, _)) => {
                    accepted.set_read_timeout(Some(CHECK_INTERVAL))?;
                    receiver = Some(accepted);
                }
                Err(error) => {
                    let accepted = Err(error);
                    if !accepted.is_ok_or_waits() {
                        return accepted.map(drop);
                    }
                }
            },
            Some(receiver) => {
                // The kernel may give up a connection over a line that delivers nothing.
                let read = receiver.read(&mut buffer);
                if !read.is_ok_or_waits() || matches!(read, Ok(0)) {
                    break;
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use emulator::Distribution;

    use super::*;

    /// Returns a look at a path whose lines are both in this state.
    fn look(at: Instant, bytes_accepted: u64, queued_bytes: usize) -> Look {
        let counts = EmulatorCounts {
            paths: Vec::new(),
            late: Distribution::default(),
            elapsed: Duration::ZERO,
            processor: Duration::ZERO,
            realtime: true,
            long_turns: 0,
            write_max: Duration::ZERO,
        };
        Look { counts, host_dropped: 0, states: vec![[LineState { bytes_accepted, queued_bytes }; 2]], at }
    }

    #[test]
    fn the_rate_of_tcp_is_that_of_what_has_left_the_queue() {
        let start = Instant::now();
        let (before, after) = (look(start, 1_000, 0), look(start + Duration::from_secs(1), 3_000, 500));
        let loaded = after.since(before, vec![["bbr".to_owned(), "cubic".to_owned()]]);
        for (carried, expected) in loaded.carried[0].iter().zip(["bbr", "cubic"]) {
            let Carried::Tcp { bits_per_s, congestion_control } = carried else { panic!("{carried:?}") };
            assert_eq!((*bits_per_s, congestion_control.as_str()), (12_000.0, expected));
        }
    }

    #[test]
    fn a_connection_tells_its_congestion_control_whether_or_not_it_was_chosen() {
        let socket = |kind| Socket::new(Domain::IPV4, kind, None).expect("a socket");
        let chosen = |name| choose_control(&socket(Type::STREAM), name).expect("TCP");
        assert_eq!(chosen("reno"), "reno", "every kernel has it");
        let of_host = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
        assert_eq!(chosen("no-such"), of_host.expect("every Linux has it").trim());
        choose_control(&socket(Type::DGRAM), "reno").expect_err("only TCP has one");
    }
}
