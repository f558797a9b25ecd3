//! Two hosts, and the lines between them.

use std::fs;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use emulator::{Emulator, EmulatorCounts, EmulatorError, LineState, PATHS_MAX, Path, Settings};
use links::device::{Device, ETHERNET_ADDRESS, PacketSocket, Tun};
use netns::{Host, HostError};
use netsim::PipeConfig;
use rustix::system::uname;
use thiserror::Error;

use super::spec::PathSpec;

/// Network of each path: 198.18.N.0/24, which RFC 2544 reserves for such tests.
const NETWORK_V4: &str = "198.18";
/// Network beside the paths, whose packets are on no line.
const NETWORK_BESIDE: &str = "198.19.0";
/// Name of its interface on either host.
const INTERFACE_BESIDE: &str = "control";
/// IPv6 network of the paths, which RFC 5180 reserves.
const NETWORK_V6: &str = "2001:2:0";
/// Number of packets that may wait in a TUN device until the emulator reads them.
const TUN_QUEUE_PACKETS: usize = 10_000;
/// Number of the next veth pair of this process.
static NEXT_VETH: AtomicU32 = AtomicU32::new(0);
/// First kernel whose veth pairs leave UDP segmentation to their reader.
const UDP_SEGMENTATION_KERNEL: (u32, u32) = (6, 2);
/// First kernel in which a write to a veth pair fails if the packet is dropped behind it.
const VETH_WRITE_ERRORS_KERNEL: (u32, u32) = (6, 6);
/// Rate that is assumed of a line without a limit.
pub(super) const UNLIMITED_BITS_PER_S: u64 = 1_000_000_000;
/// Whether TCP saves nothing of a connection for the next one to the same address.
const NO_METRICS_SAVE: &str = "/proc/sys/net/ipv4/tcp_no_metrics_save";
/// Counters of `TcpExt` for packets that a host drops although they have arrived: for lack of room in a socket, or of memory.
const TCP_DROPS: [&str; 5] = ["TCPBacklogDrop", "TCPRcvQDrop", "TCPOFODrop", "OfoPruned", "PFMemallocDrop"];
/// Counters of `MPTcpExt` for packets that MPTCP drops for lack of room, on kernels that have one.
const MPTCP_DROPS: [&str; 1] = ["RcvPruned"];
/// Minimum limit for TCP buffers on each host.
const TCP_BUFFER_BYTES_MIN: usize = 16 << 20;

/// Names of the devices.
const TUN: &str = "tun";
const VETH: &str = "veth";

/// Kind of the hosts' devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum DeviceKind {
    /// TUN if it opens, otherwise veth.
    #[default]
    Auto,
    /// TUN.
    Tun,
    /// Veth pairs and packet sockets.
    Veth,
}

/// Error of making hosts.
#[derive(Debug, Error)]
pub(crate) enum HostsError {
    /// A host or its interface cannot be made.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Neither kind of device works.
    #[error(
        "no device for a line: TUN: {tun}; veth: {veth}; load a kernel module (modprobe tun, or modprobe veth) as root"
    )]
    NoDevice { tun: io::Error, veth: String },
    /// The kind that was asked for does not work.
    #[error("cannot open the {kind} device of a line: {source}; try --device {other}")]
    Device { kind: &'static str, other: &'static str, source: io::Error },
    /// The emulator does not run.
    #[error(transparent)]
    Emulator(#[from] EmulatorError),
    /// The emulator thread has failed.
    #[error("the emulator has failed; please report this")]
    Failed,
}

/// Two hosts and the emulator between them. Dropping this removes them.
#[derive(Debug)]
pub(crate) struct Hosts {
    client: Host,
    server: Host,
    emulator: Emulator,
    pub(crate) device: &'static str,
    /// Numbers in the names of the emulator's ends of veth pairs.
    veths: Range<u32>,
    restarted_at: Instant,
    /// Number of packets that the hosts themselves had dropped when counting began.
    dropped_before: u64,
}

/// A line: the direction of a path to one of the hosts.
#[derive(Clone, Copy)]
pub(super) struct LineOf<'a> {
    /// The place of the path among all paths.
    pub(super) number: usize,
    pub(super) spec: &'a PathSpec,
    pub(super) to: End,
}

/// One of the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Client,
    Server,
}

impl End {
    /// Returns the end at the other side.
    pub(super) fn other(self) -> End {
        match self {
            End::Client => End::Server,
            End::Server => End::Client,
        }
    }

    /// `client` or `server`.
    pub(super) fn name(self) -> &'static str {
        match self {
            End::Client => "client",
            End::Server => "server",
        }
    }

    /// Returns the place of the line to this end among those of a path.
    pub(super) fn line(self) -> usize {
        match self {
            End::Server => 0,
            End::Client => 1,
        }
    }
}

pub(crate) const ENDS: [End; 2] = [End::Client, End::Server];

impl Hosts {
    /// Makes hosts joined by these paths. The calling thread must have its own network namespace.
    pub(crate) fn build(
        paths: &[PathSpec],
        kind: DeviceKind,
        settings: &Settings,
    ) -> Result<Self, HostsError> {
        if paths.is_empty() || paths.len() > PATHS_MAX {
            return Err(EmulatorError::Paths(paths.len()).into());
        }
        let (client, server) = (Host::new()?, Host::new()?);
        for host in [&client, &server] {
            host.ip("link set lo up")?;
            set_up_tcp(host, paths);
        }
        let first_veth = NEXT_VETH.load(Ordering::Relaxed);
        let (device, devices) = open_devices([&client, &server], paths.len(), kind)?;
        let veths = first_veth..NEXT_VETH.load(Ordering::Relaxed);
        let mut ready = Vec::new();
        for ((number, spec), devices) in paths.iter().enumerate().zip(devices) {
            for (end, host) in ENDS.into_iter().zip([&client, &server]) {
                set_up(host, end, number, spec.mtu_bytes)?;
            }
            ready.push(Path { devices, pipes: [spec.pipe.clone(), spec.pipe.clone()] });
        }
        let emulator = Emulator::start(ready, settings)?;
        let restarted_at = Instant::now();
        let mut hosts = Hosts { client, server, emulator, device, veths, restarted_at, dropped_before: 0 };
        hosts.restart(settings.seed)?;
        Ok(hosts)
    }

    pub(crate) fn host(&self, end: End) -> &Host {
        match end {
            End::Client => &self.client,
            End::Server => &self.server,
        }
    }

    /// Restarts the emulation: empty lines, whose schedules start now and whose random decisions come from `seed`, counters of
    /// zero, and hosts that remember nothing of earlier connections.
    pub(crate) fn restart(&mut self, seed: u64) -> Result<(), HostsError> {
        for host in [&self.client, &self.server] {
            forget_connections(host);
        }
        self.restarted_at = self.emulator.restart(seed).ok_or(HostsError::Failed)?;
        self.dropped_before = self.dropped_by_hosts();
        Ok(())
    }

    /// Returns the moment of the last restart, from which the schedules of the lines count.
    pub(crate) fn restarted_at(&self) -> Instant {
        self.restarted_at
    }

    /// Joins the hosts by a veth pair beside the lines, for reports that must arrive while a line is down. Returns the server's
    /// address on it.
    pub(crate) fn join_beside(&self) -> Result<String, HostError> {
        let name = INTERFACE_BESIDE;
        let peer = self.server.name();
        self.client.ip(&format!("link add {name} type veth peer name {name} netns {peer}"))?;
        let address = |end| format!("{NETWORK_BESIDE}.{}", host_number(end));
        for (end, host) in ENDS.into_iter().zip([&self.client, &self.server]) {
            host.ip(&format!("address add {}/30 dev {name}", address(end)))?;
            host.ip(&format!("link set {name} addrgenmode none up"))?;
        }
        Ok(address(End::Server))
    }

    /// Lets the kernel's MPTCP use every path: the server announces its other addresses, and the client connects to them.
    pub(crate) fn allow_mptcp(&self, paths: usize) -> Result<(), HostError> {
        for host in [&self.client, &self.server] {
            let others = paths - 1;
            host.ip(&format!("mptcp limits set subflows {others} add_addr_accepted {others}"))?;
        }
        for path in 1..paths {
            let (address, name) = (address(path, End::Server), interface(path));
            self.server.ip(&format!("mptcp endpoint add {address} dev {name} signal"))?;
        }
        Ok(())
    }

    /// Returns the emulator's counters since the start, and the number of packets lost outside the lines: between hosts and
    /// emulator, in full socket buffers, and for lack of memory.
    pub(crate) fn counts(&self) -> Result<(EmulatorCounts, u64), HostsError> {
        let counts = self.emulator.counts().ok_or(HostsError::Failed)?;
        let beside = counts.paths.iter().map(|path| {
            let for_memory: u64 = path.lines.iter().map(|line| line.memory_drops).sum();
            path.read_drops + path.write_drops + for_memory
        });
        let dropped = beside.sum::<u64>() + self.dropped_by_hosts().saturating_sub(self.dropped_before);
        Ok((counts, dropped))
    }

    /// Returns the present state of both lines of each path, to the server and to the client; `None` if the emulator has failed.
    pub(crate) fn states(&self) -> Option<Vec<[LineState; 2]>> {
        self.emulator.states()
    }

    /// Returns the number of packets on the line of a path to this end; `None` if the emulator has failed.
    pub(super) fn packets_in_flight(&self, path: usize, to: End) -> Option<u64> {
        let counts = self.emulator.counts()?;
        Some(counts.paths[path].lines[to.line()].flows.iter().map(|(_, flow)| flow.packets_in_flight).sum())
    }

    fn dropped_by_hosts(&self) -> u64 {
        let drops = |host: &Host| host.run(|| dropped_here(self.device)).unwrap_or(0);
        // The emulator counts writes that fail.
        let behind_writes = match kernel_is_before(VETH_WRITE_ERRORS_KERNEL) {
            true => drops_behind_ends(&read_net("dev"), &self.veths),
            false => 0,
        };
        drops(&self.client) + drops(&self.server) + behind_writes
    }
}

/// Returns the address of an end on a path.
pub(crate) fn address(path: usize, end: End) -> String {
    format!("{NETWORK_V4}.{path}.{}", host_number(end))
}

/// Returns the IPv6 address of an end on a path.
pub(crate) fn address_v6(path: usize, end: End) -> String {
    format!("{NETWORK_V6}:{path}::{}", host_number(end))
}

fn host_number(end: End) -> u8 {
    match end {
        End::Client => 1,
        End::Server => 2,
    }
}

/// The devices of a path: that of the client, and that of the server.
type Pair = [Box<dyn Device>; 2];

/// Opens a device on each host for each path, and returns their kind.
fn open_devices(
    hosts: [&Host; 2],
    paths: usize,
    kind: DeviceKind,
) -> Result<(&'static str, Vec<Pair>), HostsError> {
    let tun = || (0..paths).map(|path| open_tuns(hosts, path)).collect::<io::Result<Vec<_>>>();
    let veth = || (0..paths).map(|path| open_veths(hosts, path)).collect::<Result<Vec<_>, HostsError>>();
    match kind {
        DeviceKind::Veth => Ok((VETH, veth()?)),
        DeviceKind::Tun => match tun() {
            Ok(devices) => Ok((TUN, devices)),
            Err(source) => Err(HostsError::Device { kind: "TUN", other: "veth", source }),
        },
        DeviceKind::Auto => match tun() {
            Ok(devices) => Ok((TUN, devices)),
            Err(tun) => match veth() {
                Ok(devices) => Ok((VETH, devices)),
                Err(veth) => Err(HostsError::NoDevice { tun, veth: veth.to_string() }),
            },
        },
    }
}

fn open_tuns(hosts: [&Host; 2], path: usize) -> io::Result<Pair> {
    let open = |host: &Host| {
        let tun = host.run(|| Tun::open(&interface(path)))??;
        Ok::<Box<dyn Device>, io::Error>(Box::new(tun))
    };
    Ok([open(hosts[0])?, open(hosts[1])?])
}

fn open_veths(hosts: [&Host; 2], path: usize) -> Result<Pair, HostsError> {
    let here = Here;
    let open = |host: &Host| {
        // Our end of the pair stays in the emulator's namespace, for some time even after its host: the kernel removes it later.
        let (near, far) = (format!("e{}", NEXT_VETH.fetch_add(1, Ordering::Relaxed)), interface(path));
        let segments = if kernel_is_before(UDP_SEGMENTATION_KERNEL) { " gso_max_segs 1" } else { "" };
        here.ip(&format!("link add name {near} type veth peer name {far} netns {}{segments}", host.name()))?;
        let address = ETHERNET_ADDRESS.map(|byte| format!("{byte:02x}")).join(":");
        host.ip(&format!("link set {far} address {address} arp off"))?;
        here.ip(&format!("link set {near} arp off addrgenmode none mtu 65535 up"))?;
        let socket = PacketSocket::open(&near).map_err(|source| HostsError::Device {
            kind: "veth",
            other: "tun",
            source,
        })?;
        Ok::<Box<dyn Device>, HostsError>(Box::new(socket))
    };
    Ok([open(hosts[0])?, open(hosts[1])?])
}

/// The namespace of the emulator.
struct Here;

impl Here {
    fn ip(&self, words: &str) -> Result<(), HostError> {
        netns::exec(&format!("ip {words}"))
    }
}

/// Returns the name of a path's interface on either host.
fn interface(path: usize) -> String {
    format!("p{path}")
}

/// Gives the interface of a path its addresses, and brings it up.
fn set_up(host: &Host, end: End, path: usize, mtu_bytes: usize) -> Result<(), HostsError> {
    let name = interface(path);
    // The interface sends no neighbour or router solicitations: only packets of programs are on the line.
    host.ip(&format!("link set {name} addrgenmode none mtu {mtu_bytes} txqueuelen {TUN_QUEUE_PACKETS}"))?;
    host.ip(&format!("address add {}/24 dev {name}", address(path, end)))?;
    host.ip(&format!("link set {name} up"))?;
    // A kernel may be without IPv6.
    let _ = host.ip(&format!("address add {}/64 dev {name} nodad", address_v6(path, end)));
    Ok(())
}

/// Lets TCP fill the lines, with buffers of up to four times the content of lines and queues, and keep nothing of a connection
/// for the next one: each run must begin as the first.
fn set_up_tcp(host: &Host, paths: &[PathSpec]) {
    let held = |pipe: &PipeConfig| {
        let rate = pipe.rate_bits_per_s.unwrap_or(UNLIMITED_BITS_PER_S) as f64 / 8.0;
        let queue = if pipe.queue_bytes == usize::MAX { 0 } else { pipe.queue_bytes };
        (rate * 2.0 * pipe.delay.as_secs_f64()) as usize + queue
    };
    let all: usize = paths.iter().map(|spec| held(&spec.pipe)).sum();
    let most = (4 * all).clamp(TCP_BUFFER_BYTES_MIN, i32::MAX as usize);
    // If that is not permitted, the host's own limits apply.
    let _ = host.run(|| {
        let _ = fs::write("/proc/sys/net/ipv4/tcp_rmem", format!("4096 131072 {most}"));
        let _ = fs::write("/proc/sys/net/ipv4/tcp_wmem", format!("4096 16384 {most}"));
        let _ = fs::write(NO_METRICS_SAVE, "1");
    });
}

/// Deletes what the host's TCP has saved of earlier connections, if the host could not be told to save nothing.
fn forget_connections(host: &Host) {
    let saves = host.run(|| fs::read_to_string(NO_METRICS_SAVE).is_ok_and(|value| value.trim() == "0"));
    if saves.unwrap_or(false) {
        // A kernel without these metrics has nothing to delete.
        let _ = host.ip("tcp_metrics flush all");
    }
}

/// Returns the least number of packets that this thread's host has dropped itself, not on a line: for lack of room in a socket,
/// and at its interfaces of this kind. Some counters of the kernel count a drop of several packets once.
fn dropped_here(device: &str) -> u64 {
    let udp = counters(&read_net("snmp"), "Udp:", &["RcvbufErrors"]) + udp6_buffer_errors(&read_net("snmp6"));
    udp + tcp_drops(&read_net("netstat")) + interface_drops(&read_net("dev"), device)
}

fn tcp_drops(netstat: &str) -> u64 {
    counters(netstat, "TcpExt:", &TCP_DROPS) + counters(netstat, "MPTcpExt:", &MPTCP_DROPS)
}

/// Returns a file of counters of this thread's network namespace.
fn read_net(file: &str) -> String {
    fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default()
}

/// Returns the sum of these counters in `/proc/net/snmp` or `/proc/net/netstat`, which have a line of names and a line of numbers
/// for each protocol. A counter that the kernel lacks is 0.
fn counters(text: &str, protocol: &str, names: &[&str]) -> u64 {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(protocol));
    let (Some(all), Some(numbers)) = (lines.next(), lines.next()) else { return 0 };
    let pairs = all.split_whitespace().zip(numbers.split_whitespace());
    let wanted = pairs.filter(|(name, _)| names.contains(name));
    wanted.filter_map(|(_, number)| number.parse::<u64>().ok()).sum()
}

fn udp6_buffer_errors(text: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix("Udp6RcvbufErrors"));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

/// Columns `drop` of `/proc/net/dev`.
const DROPS_RECEIVED: usize = 3;
const DROPS_SENT: usize = 11;

/// Returns the sum of the columns `drop` of `/proc/net/dev` of the paths' interfaces: of sent packets and, except for TUN, of
/// received ones. The emulator itself counts writes to TUN that fail.
fn interface_drops(text: &str, device: &str) -> u64 {
    let columns: &[usize] = if device == TUN { &[DROPS_SENT] } else { &[DROPS_RECEIVED, DROPS_SENT] };
    column_sum(text, columns, |name| name.starts_with('p'))
}

/// Returns the number of packets that were dropped behind the emulator's ends of veth pairs with these numbers.
fn drops_behind_ends(text: &str, numbers: &Range<u32>) -> u64 {
    let number = |name: &str| name.strip_prefix('e')?.parse().ok();
    column_sum(text, &[DROPS_SENT], |name| number(name).is_some_and(|number: u32| numbers.contains(&number)))
}

/// Returns the sum of these columns of `/proc/net/dev` of the wanted interfaces.
fn column_sum(text: &str, columns: &[usize], is_wanted: impl Fn(&str) -> bool) -> u64 {
    let of_line = |line: &str| {
        let (name, all) = line.split_once(':')?;
        let all: Vec<u64> = all.split_whitespace().filter_map(|column| column.parse().ok()).collect();
        let wanted = columns.iter().filter_map(|column| all.get(*column));
        is_wanted(name.trim()).then(|| wanted.sum::<u64>())
    };
    text.lines().filter_map(of_line).sum()
}

/// Returns whether the running kernel, as `uname` names it, is older than this version.
fn kernel_is_before(version: (u32, u32)) -> bool {
    release_is_before(&uname().release().to_string_lossy(), version)
}

fn release_is_before(release: &str, version: (u32, u32)) -> bool {
    let mut numbers = release.split(['.', '-']).map_while(|number| number.trim().parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < version
}

/// Makes a veth pair like that of [`Hosts::join_beside`], and removes it.
pub(crate) fn try_beside() -> Result<(), HostError> {
    let name = INTERFACE_BESIDE;
    netns::exec(&format!("ip link add {name} type veth peer name {name}-peer"))?;
    netns::exec(&format!("ip link delete {name}"))
}

/// Returns the least delay of the line's packets from one end to the other.
pub(crate) fn one_way_delay(spec: &PathSpec, packet_bytes: usize) -> Duration {
    let bits = packet_bytes as f64 * 8.0;
    let sending = spec.pipe.rate_bits_per_s.map_or(0.0, |rate| bits / rate as f64);
    spec.pipe.delay + Duration::from_secs_f64(sending)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_of_hosts_are_read_from_what_the_kernel_reports() {
        let snmp = "Ip: Forwarding\nIp: 1\nUdp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors\n\
                    Udp: 10 0 7 3 5 0\nUdpLite: InDatagrams\nUdpLite: 9\n";
        assert_eq!(counters(snmp, "Udp:", &["RcvbufErrors"]), 5);
        assert_eq!(counters("", "Udp:", &["RcvbufErrors"]), 0);
        assert_eq!(udp6_buffer_errors("Udp6InErrors 3\nUdp6RcvbufErrors            \t4\n"), 4);
        let netstat = "TcpExt: SyncookiesSent PruneCalled OfoPruned TCPBacklogDrop TCPRcvQDrop TCPOFODrop\n\
                       TcpExt: 9 9 1 20 300 4000\nIpExt: InNoRoutes\nIpExt: 9\n";
        assert_eq!(tcp_drops(netstat), 4321, "this kernel has no MPTCP");
        let mptcp = "MPTcpExt: MPCapableSYNRX OFOQueue RcvPruned\nMPTcpExt: 9 9 50000\n";
        assert_eq!(tcp_drops(&(netstat.to_owned() + mptcp)), 54_321);
        let dev = "Inter-|   Receive\n face |bytes\n    lo: 1 1 1 9 0 0 0 0 1 1 0 9 0 0 0 0\n    \
                   p0: 1 1 0 2 0 0 0 0 5 5 0 3 0 0 0 0\n";
        assert_eq!(interface_drops(dev, VETH), 5);
        assert_eq!(interface_drops(dev, TUN), 3, "the emulator counts its writes");
        let dev = "  eth0: 1 1 1 9 0 0 0 0 1 1 0 9 0 0 0 0\n    e1: 1 1 0 9 0 0 0 0 5 5 0 9 0 0 0 0\n    \
                   e2: 1 1 0 2 0 0 0 0 5 5 0 3 0 0 0 0\n    e3: 1 1 0 2 0 0 0 0 5 5 0 40 0 0 0 0\n";
        assert_eq!(drops_behind_ends(dev, &(2..4)), 43, "of these lines, and not of those before");
    }

    #[test]
    fn too_many_paths_are_refused_before_anything_is_made() {
        let path: PathSpec = "5ms".parse().expect("a path");
        for count in [0, PATHS_MAX + 1, 300] {
            let error = Hosts::build(&vec![path.clone(); count], DeviceKind::Auto, &Settings::default());
            let error = error.expect_err("refused");
            assert!(
                matches!(error, HostsError::Emulator(EmulatorError::Paths(named)) if named == count),
                "{error}"
            );
        }
    }

    #[test]
    fn this_kernel_is_neither_of_the_past_nor_of_the_future() {
        assert!(!kernel_is_before((2, 6)) && kernel_is_before((1000, 0)));
        assert!(release_is_before("6.1.0-44-amd64", (6, 2)) && release_is_before("5.15.0", (6, 2)));
        assert!(!release_is_before("6.2-rc1", (6, 2)) && !release_is_before("10.0.1", (6, 2)));
    }
}
