//! Options that report the state of associations (RFC 6458 §8.2; `SCTP_GET_ASSOC_STATS` of Linux).

use std::net::SocketAddr;

use channel_protocol::abi::{
    SCTP_GET_ASSOC_ID_LIST, SCTP_GET_ASSOC_NUMBER, SCTP_GET_ASSOC_STATS, SCTP_GET_PEER_ADDR_INFO, SCTP_STATUS,
};
use rustix::io::Errno;
use swiftwater::{AssociationState, PathState, PathStatistics};

use super::value::{Build, STORAGE_BYTES, Value, number};
use super::{Access, paths, room_for_number};
use crate::state::path_parameters::{millis, mtu_as_seen};

const STATUS_BYTES: usize = 176;
const STATS_BYTES: usize = 256;
const ID_BYTES: usize = 4;
/// Size of `struct sctp_paddrinfo`.
const INFO_BYTES: usize = 152;

/// `SCTP_PF_EXPOSE_DISABLE` and `SCTP_PF_EXPOSE_ENABLE`.
const EXPOSE_NOT: u32 = 1;
const EXPOSE: u32 = 2;

pub(super) fn get(access: &Access<'_>, name: i32, given: &[u8]) -> Option<Result<Vec<u8>, Errno>> {
    Some(match name {
        SCTP_STATUS => status(access, given),
        SCTP_GET_PEER_ADDR_INFO => info(access, given),
        SCTP_GET_ASSOC_NUMBER => count(access, given),
        SCTP_GET_ASSOC_ID_LIST => list(access, given),
        SCTP_GET_ASSOC_STATS => counters(access, given),
        _ => return None,
    })
}

/// Returns a `struct sctp_status`.
fn status(access: &Access<'_>, given: &[u8]) -> Result<Vec<u8>, Errno> {
    let given = Value::at_least(given, STATUS_BYTES)?;
    let assoc = access.association(given.i32(0)).ok_or(Errno::INVAL)?;
    let statistics =
        assoc.stack_association().map(|association| association.statistics().unwrap_or_default());
    // The association is being set up, or it has ended and was not read to its end yet.
    let gone = if statistics.is_some() { AssociationState::Closed } else { AssociationState::CookieWait };
    let statistics = statistics.unwrap_or_default();
    let state = if statistics.paths.is_empty() { gone } else { statistics.state };
    let half = |number: u64| u16::try_from(number).unwrap_or(u16::MAX);
    let word = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let value =
        Build::new().u32(assoc.id().get()).u32(state_number(state)).u32(word(statistics.peer_window_bytes));
    let value = value.u16(half(statistics.outstanding_chunks)).u16(0);
    let value = value.u16(statistics.streams_in).u16(statistics.streams_out);
    let value = value.u32(word(statistics.fragmentation_point_bytes)).u32(assoc.id().get());
    let primary = paths::primary_of(access, &assoc);
    let value = match statistics.paths.get(statistics.primary) {
        Some(path) => path_info(value, primary, path, assoc.options().exposes_failing()),
        // The association is being set up and has no paths yet.
        None => value.address(primary).u32(3).u32(0).u32(0).u32(0).u32(0),
    };
    Ok(value.finish())
}

/// Returns a `struct sctp_paddrinfo`.
fn info(access: &Access<'_>, given: &[u8]) -> Result<Vec<u8>, Errno> {
    let given = Value::at_least(given, INFO_BYTES)?;
    let address = given.address(4).named(Errno::INVAL)?.ok_or(Errno::INVAL)?;
    let assoc = access.path(given.i32(0), address).ok_or(Errno::INVAL)?;
    let statistics = assoc.stack_association().ok_or(Errno::INVAL)?.statistics().unwrap_or_default();
    let ip = address.ip().to_canonical();
    let mut paths = statistics.paths.iter();
    let path = paths.find(|path| path.remote.ip().to_canonical() == ip).ok_or(Errno::INVAL)?;
    let exposes = assoc.options().exposes_failing();
    if path.state == PathState::PotentiallyFailed && exposes == EXPOSE_NOT {
        return Err(Errno::ACCESS);
    }
    let address = paths::peer_at(access, &assoc, path.remote.ip());
    Ok(path_info(Build::new().u32(assoc.id().get()), address, path, exposes).finish())
}

/// Appends the fields that follow the association in a `struct sctp_paddrinfo`.
fn path_info(value: Build, address: SocketAddr, path: &PathStatistics, exposes: u32) -> Build {
    let state = match path.state {
        PathState::Inactive => 0,
        PathState::PotentiallyFailed if exposes == EXPOSE => 1,
        PathState::Active | PathState::Suspected | PathState::PotentiallyFailed => 2,
        PathState::Unconfirmed => 3,
    };
    let cwnd = u32::try_from(path.cwnd_bytes).unwrap_or(u32::MAX);
    let value = value.address(address).u32(state).u32(cwnd);
    let value = value.u32(path.srtt.map_or(0, millis)).u32(millis(path.rto));
    value.u32(mtu_as_seen(path.ip_mtu_bytes))
}

/// Returns `sstat_state`.
fn state_number(state: AssociationState) -> u32 {
    match state {
        AssociationState::Closed => 1,
        AssociationState::CookieWait => 2,
        AssociationState::CookieEchoed => 3,
        AssociationState::Established => 4,
        AssociationState::ShutdownPending => 5,
        AssociationState::ShutdownSent => 6,
        AssociationState::ShutdownReceived => 7,
        AssociationState::ShutdownAckSent => 8,
    }
}

fn count(access: &Access<'_>, given: &[u8]) -> Result<Vec<u8>, Errno> {
    if access.is_one_to_one() {
        return Err(Errno::OPNOTSUPP);
    }
    room_for_number(given)?;
    Ok(number(i32::try_from(access.socket.associations().count()).unwrap_or(i32::MAX)))
}

/// Returns a `struct sctp_assoc_ids`.
fn list(access: &Access<'_>, given: &[u8]) -> Result<Vec<u8>, Errno> {
    if access.is_one_to_one() {
        return Err(Errno::OPNOTSUPP);
    }
    let ids = access.socket.associations().ids();
    Value::at_least(given, ID_BYTES * (1 + ids.len()))?;
    Ok(ids.iter().fold(Build::new().u32(ids.len() as u32), |value, id| value.u32(id.get())).finish())
}

/// Returns a `struct sctp_assoc_stats`, truncated to the room for it.
fn counters(access: &Access<'_>, given: &[u8]) -> Result<Vec<u8>, Errno> {
    let room = given.len().min(STATS_BYTES);
    let given = Value::at_least(given, ID_BYTES)?;
    let assoc = access.association(given.i32(0)).ok_or(Errno::INVAL)?;
    let s = assoc.stack_association().and_then(|association| association.statistics()).unwrap_or_default();
    let port = assoc.peer().port();
    let slowest = s.rto_max_path.map(|path| access.socket.view().of((path.ip(), port).into()));
    let value = Build::after(given, ID_BYTES).pad(8);
    let value = match slowest {
        Some(address) => value.address(address),
        None => value.pad(8 + STORAGE_BYTES),
    };
    let counts = [
        u64::try_from(s.rto_max.as_millis()).unwrap_or(u64::MAX),
        s.sacks_received,
        s.sacks_sent,
        s.packets_sent,
        s.packets_received,
        s.data_chunks_retransmitted,
        s.out_of_sequence_received,
        s.duplicates_received,
        s.gaps_received,
        s.unordered_chunks_sent,
        s.unordered_chunks_received,
        s.ordered_chunks_sent(),
        s.ordered_chunks_received(),
        s.control_chunks_sent,
        s.control_chunks_received,
    ];
    Ok(counts.into_iter().fold(value, Build::u64).pad(room).finish())
}
