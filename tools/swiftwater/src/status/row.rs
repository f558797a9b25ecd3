//! The status as flat objects: a row for each socket, association, path and user, one for the daemon, and one for what the report
//! lacks.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use serde::Serialize;
use swiftwater_daemon::{
    AssociationStatus, DaemonCounters, DaemonStatus, PathStatus, SocketReport, SocketState, SocketStatus,
    SocketStyle, Status, UserStatus,
};

use super::Rates;
use crate::host::process_name;

#[derive(Debug, Serialize)]
#[serde(tag = "row", rename_all = "lowercase")]
pub(super) enum Row {
    Socket {
        socket: u64,
        style: SocketStyle,
        state: SocketState,
        user: u32,
        process: i32,
        #[serde(skip_serializing_if = "Option::is_none")]
        process_name: Option<String>,
        local: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        peer: Option<SocketAddr>,
        carrier_bytes: u64,
    },
    Association {
        socket: u64,
        association: u32,
        state: &'static str,
        local: String,
        peer: SocketAddr,
        receive_queue_bytes: u64,
        send_queue_bytes: u64,
        peer_window_bytes: u64,
        streams_out: u16,
        streams_in: u16,
        messages_sent: u64,
        messages_received: u64,
        bytes_sent: u64,
        bytes_received: u64,
        retransmissions: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        sent_bits_per_s: Option<f64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        received_bits_per_s: Option<f64>,
    },
    Path {
        socket: u64,
        association: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        local: Option<IpAddr>,
        remote: IpAddr,
        #[serde(skip_serializing_if = "Option::is_none")]
        udp_port: Option<u16>,
        primary: bool,
        state: &'static str,
        mtu_bytes: usize,
        cwnd_bytes: usize,
        in_flight_bytes: usize,
        #[serde(skip_serializing_if = "Option::is_none")]
        srtt_us: Option<u64>,
        rto_ms: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        pacing_bits_per_s: Option<u64>,
        packets_sent: u64,
        packets_received: u64,
        packets_lost: u64,
    },
    User {
        user: u32,
        sent_bytes: usize,
        sent_limit_bytes: usize,
        sent_waits: u64,
        received_bytes: usize,
        received_limit_bytes: usize,
        page_bytes: usize,
        page_limit_bytes: usize,
        unread_bytes: usize,
        unread_limit_bytes: usize,
        unread_waits: u64,
        associations: usize,
        associations_limit: usize,
        associations_refused: u64,
    },
    Daemon {
        process: u32,
        version: String,
        carries: String,
        #[serde(flatten)]
        counters: Option<DaemonCounters>,
    },
    Omitted {
        sockets: usize,
        associations: usize,
    },
}

pub(super) fn of(status: &Status, rates: &HashMap<u32, Rates>) -> Vec<Row> {
    let mut rows = Vec::new();
    for SocketReport { socket, associations } in &status.sockets {
        rows.push(of_socket(socket));
        for association in associations {
            rows.push(of_association(socket, association, rates.get(&association.id)));
            rows.extend(association.paths.iter().map(|path| of_path(socket, association, path)));
        }
    }
    rows.extend(status.daemon.users.iter().map(of_user));
    rows.push(of_daemon(&status.daemon));
    let (sockets, associations) = (status.sockets_omitted, status.associations_omitted);
    if sockets > 0 || associations > 0 {
        rows.push(Row::Omitted { sockets, associations });
    }
    rows
}

fn of_user(user: &UserStatus) -> Row {
    Row::User {
        user: user.user,
        sent_bytes: user.sent_bytes,
        sent_limit_bytes: user.sent_limit_bytes,
        sent_waits: user.sent_waits,
        received_bytes: user.received_bytes,
        received_limit_bytes: user.received_limit_bytes,
        page_bytes: user.page_bytes,
        page_limit_bytes: user.page_limit_bytes,
        unread_bytes: user.unread_bytes,
        unread_limit_bytes: user.unread_limit_bytes,
        unread_waits: user.unread_waits,
        associations: user.associations,
        associations_limit: user.associations_limit,
        associations_refused: user.associations_refused,
    }
}

fn of_daemon(daemon: &DaemonStatus) -> Row {
    Row::Daemon {
        process: daemon.process,
        version: daemon.version.clone(),
        carries: daemon.carries.clone(),
        counters: daemon.counters,
    }
}

/// Joins addresses, each with its port, with commas.
fn joined(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(",")
}

fn of_socket(socket: &SocketStatus) -> Row {
    Row::Socket {
        socket: socket.number,
        style: socket.style,
        state: socket.state,
        user: socket.user,
        process: socket.process,
        process_name: process_name(socket.process),
        local: joined(&socket.local),
        peer: socket.peer,
        carrier_bytes: socket.carrier_bytes,
    }
}

fn of_association(socket: &SocketStatus, association: &AssociationStatus, rates: Option<&Rates>) -> Row {
    Row::Association {
        socket: socket.number,
        association: association.id,
        state: association.state.name(),
        local: joined(&association.local),
        peer: association.peer,
        receive_queue_bytes: association.receive_queue_bytes,
        send_queue_bytes: association.send_queue_bytes,
        peer_window_bytes: association.peer_window_bytes,
        streams_out: association.streams_out,
        streams_in: association.streams_in,
        messages_sent: association.messages_sent,
        messages_received: association.messages_received,
        bytes_sent: association.bytes_sent,
        bytes_received: association.bytes_received,
        retransmissions: association.retransmissions,
        sent_bits_per_s: rates.map(|rates| rates.sent_bits_per_s),
        received_bits_per_s: rates.map(|rates| rates.received_bits_per_s),
    }
}

fn of_path(socket: &SocketStatus, association: &AssociationStatus, path: &PathStatus) -> Row {
    Row::Path {
        socket: socket.number,
        association: association.id,
        local: path.local,
        remote: path.remote.ip(),
        udp_port: Some(path.remote.port()).filter(|port| *port != 0),
        primary: path.primary,
        state: path.state.name(),
        mtu_bytes: path.mtu_bytes,
        cwnd_bytes: path.cwnd_bytes,
        in_flight_bytes: path.in_flight_bytes,
        srtt_us: path.srtt_us,
        rto_ms: path.rto_ms,
        pacing_bits_per_s: path.pacing_bytes_per_s.map(|rate| rate.saturating_mul(8)),
        packets_sent: path.packets_sent,
        packets_received: path.packets_received,
        packets_lost: path.packets_lost,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;
    use super::*;

    #[test]
    fn the_last_row_tells_what_the_report_lacks() {
        let rows = |status: &Status| serde_json::to_value(of(status, &HashMap::new())).expect("rows");
        let kinds = |rows: &serde_json::Value| -> Vec<String> {
            rows.as_array().expect("an array").iter().map(|row| row["row"].to_string()).collect()
        };
        let mut status = example(1000);
        let shown = ["\"socket\"", "\"association\"", "\"path\"", "\"path\"", "\"daemon\""];
        assert_eq!(kinds(&rows(&status)), shown);
        (status.sockets_omitted, status.associations_omitted) = (0, 7);
        let last = rows(&status)[5].clone();
        assert_eq!(last, serde_json::json!({ "row": "omitted", "sockets": 0, "associations": 7 }));
        (status.sockets_omitted, status.associations_omitted) = (2, 0);
        assert_eq!(rows(&status)[5]["sockets"], 2);
    }
}
