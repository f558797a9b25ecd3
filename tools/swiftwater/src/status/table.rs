//! The status as text.

use std::collections::HashMap;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

use swiftwater_daemon::{
    AssociationStatus, DaemonCounters, PathStatus, SocketReport, SocketStatus, SocketStyle, Status,
};

use super::{Rates, association_state, socket_state};
use crate::host::printable_process_name;
use crate::units::{grouped, mbits, milliseconds};

/// Prefix of an association of a one-to-many socket, as in `ss`.
const BRANCH: &str = "`- ";

/// One line of the table: state, queues, addresses, process.
type Line = [String; 6];

pub(super) fn of(status: &Status, rates: &HashMap<u32, Rates>) -> String {
    let heading = ["State", "Recv-Q", "Send-Q", "Local Address:Port", "Peer Address:Port", "Process"];
    let blocks: Vec<Block> = status.sockets.iter().flat_map(|socket| blocks(socket, rates)).collect();
    let mut lines: Vec<&Line> = blocks.iter().map(|block| &block.line).collect();
    let heading = heading.map(String::from);
    lines.push(&heading);
    let widths: [usize; 6] =
        std::array::from_fn(|n| lines.iter().map(|line| line[n].chars().count()).max().unwrap_or(0));
    let mut out = line(&heading, widths);
    for block in &blocks {
        out += &line(&block.line, widths);
        block.below.iter().for_each(|text| out += &format!("      {text}\n"));
    }
    for (omitted, what) in
        [(status.associations_omitted, "associations"), (status.sockets_omitted, "sockets")]
    {
        if omitted > 0 {
            out += &format!("{} more {what} are not shown\n", grouped(omitted as u64));
        }
    }
    out + &status.daemon.counters.as_ref().map_or_else(String::new, losses)
}

/// Formats what the daemon has lost since its start, a line for each cause; nothing if it has lost nothing.
fn losses(counters: &DaemonCounters) -> String {
    let causes = [
        (counters.receive_overflows, "packets dropped by the kernel: full buffer, flood, or UDP checksum"),
        (counters.answers_withheld, "answers to strangers withheld"),
        (counters.refused_at_listener_limit, "associations refused at the limit of their listener"),
        (counters.refused_at_prefix_limit, "associations refused at the limit of their network"),
        (counters.send_lost + counters.send_failed, "packets that the system did not send"),
    ];
    let lost = causes.iter().filter(|(count, _)| *count > 0);
    lost.map(|(count, what)| format!("{} {what} since the daemon began\n", grouped(*count))).collect()
}

/// A line and the lines below it.
struct Block {
    line: Line,
    below: Vec<String>,
}

fn line(columns: &Line, widths: [usize; 6]) -> String {
    let mut out = String::new();
    for (column, width) in columns.iter().zip(widths) {
        // Writing to a string cannot fail.
        let _ = write!(out, "{column:<width$} ");
    }
    out.trim_end().to_owned() + "\n"
}

/// Returns a socket with its one association in one line, or a line for the socket and one for each association.
fn blocks(SocketReport { socket, associations }: &SocketReport, rates: &HashMap<u32, Rates>) -> Vec<Block> {
    let process = process(socket);
    let local = addresses(&socket.local);
    let state = socket_state(socket.state);
    let pair = socket.carrier_bytes;
    if socket.style != SocketStyle::OneToMany
        && let [association] = &associations[..]
    {
        return vec![block(association, "", pair, process, rates)];
    }
    let peer = socket.peer.map_or("*:*".into(), |peer| peer.to_string());
    let line = [state.into(), "0".into(), pair.to_string(), local, peer, process];
    let own = Block { line, below: Vec::new() };
    let associations = associations.iter().map(|a| block(a, BRANCH, 0, String::new(), rates));
    std::iter::once(own).chain(associations).collect()
}

fn block(
    association: &AssociationStatus,
    branch: &str,
    carrier_bytes: u64,
    process: String,
    rates: &HashMap<u32, Rates>,
) -> Block {
    let state = format!("{branch}{}", association_state(association.state));
    let (receive, send) = (association.receive_queue_bytes, association.send_queue_bytes + carrier_bytes);
    let peer = association.peer.to_string();
    let line = [state, receive.to_string(), send.to_string(), addresses(&association.local), peer, process];
    let mut below = vec![carried(association, rates.get(&association.id))];
    below.extend(association.paths.iter().map(path));
    Block { line, below }
}

/// Formats addresses as `HOST,HOST:PORT`; `*:*` if there are none.
fn addresses(list: &[SocketAddr]) -> String {
    let Some(first) = list.first() else { return "*:*".into() };
    let host = |address: &SocketAddr| match address.ip() {
        ip if ip.is_unspecified() && ip.is_ipv4() => "0.0.0.0".into(),
        IpAddr::V6(ip) => format!("[{ip}]"),
        ip => ip.to_string(),
    };
    let hosts: Vec<String> = list.iter().map(host).collect();
    format!("{}:{}", hosts.join(","), first.port())
}

/// Formats the process as `ss` does, as far as it is known.
fn process(socket: &SocketStatus) -> String {
    match printable_process_name(socket.process) {
        Some(name) => format!("users:((\"{name}\",pid={}))", socket.process),
        None => format!("uid:{}", socket.user),
    }
}

fn carried(association: &AssociationStatus, rates: Option<&Rates>) -> String {
    let mut text = format!(
        "id {}  streams {}/{}  sent {} messages, {} bytes, {} chunks again  received {} messages, {} bytes",
        association.id,
        association.streams_out,
        association.streams_in,
        grouped(association.messages_sent),
        grouped(association.bytes_sent),
        grouped(association.retransmissions),
        grouped(association.messages_received),
        grouped(association.bytes_received),
    );
    if let Some(rates) = rates {
        let (sent, received) = (mbits(rates.sent_bits_per_s), mbits(rates.received_bits_per_s));
        // Writing to a string cannot fail.
        let _ = write!(text, "  now {sent} Mbit/s out, {received} in");
    }
    text
}

fn path(path: &PathStatus) -> String {
    let from = path.local.map_or(String::new(), |local| format!("{local} "));
    let primary = if path.primary { " primary" } else { "" };
    let rtt = path.srtt_us.map_or("not measured".into(), milliseconds);
    let pacing = path
        .pacing_bytes_per_s
        .map_or(String::new(), |rate| format!("  pacing {} Mbit/s", mbits(rate as f64 * 8.0)));
    format!(
        "path {from}-> {}  {}{primary}  rtt {rtt}  rto {} ms  cwnd {}  in flight {}  mtu {}  packets {} sent, {} lost{pacing}",
        path.remote.ip(),
        path.state.name(),
        path.rto_ms,
        grouped(path.cwnd_bytes as u64),
        grouped(path.in_flight_bytes as u64),
        path.mtu_bytes,
        grouped(path.packets_sent),
        grouped(path.packets_lost),
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;
    use super::*;

    #[test]
    fn a_one_to_many_socket_has_its_associations_below() {
        let rates = HashMap::from([(5, Rates { sent_bits_per_s: 8e6, received_bits_per_s: 0.0 })]);
        let text = of(&example(1000), &rates);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["LISTEN", "0", "0", "192.0.2.1,198.51.100.1:7", "*:*", "uid:1000"]);
        assert_eq!(lines[2], ["`-", "ESTAB", "10", "20", "192.0.2.1,198.51.100.1:7", "192.0.2.2:9"]);
        assert!(text.contains("sent 2 messages, 1,000 bytes, 1 chunks again"), "{text}");
        assert!(text.contains("now 8.00 Mbit/s out"), "{text}");
        assert!(text.contains("path -> 192.0.2.2  active primary  rtt 1.50 ms"), "{text}");
        assert!(text.contains("path -> 198.51.100.2  inactive  rtt"), "{text}");
    }

    #[test]
    fn losses_of_the_daemon_are_at_the_end() {
        let mut status = example(0);
        let without = of(&status, &HashMap::new());
        status.daemon.counters = Some(DaemonCounters::default());
        assert_eq!(of(&status, &HashMap::new()), without, "nothing is lost");
        let counters =
            DaemonCounters { answers_withheld: 1234, send_lost: 2, send_failed: 3, ..Default::default() };
        status.daemon.counters = Some(counters);
        let lost = "1,234 answers to strangers withheld since the daemon began\n\
                    5 packets that the system did not send since the daemon began\n";
        assert_eq!(of(&status, &HashMap::new()), without + lost);
    }

    #[test]
    fn a_one_to_one_socket_is_one_line() {
        let mut status = example(0);
        status.sockets[0].socket.style = SocketStyle::OneToOne;
        status.sockets[0].socket.carrier_bytes = 5;
        let text = of(&status, &HashMap::new());
        let line: Vec<&str> = text.lines().nth(1).expect("a line").split_whitespace().collect();
        assert_eq!(line, ["ESTAB", "10", "25", "192.0.2.1,198.51.100.1:7", "192.0.2.2:9", "uid:1000"]);
        assert!(!text.contains(BRANCH));
    }
}
