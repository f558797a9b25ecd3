//! Options of one path or all, and the primary path (RFC 6458 §8.1.9, §8.1.11, §8.1.12; RFC 7829 §7).

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use channel_protocol::abi::{
    SCTP_PEER_ADDR_PARAMS, SCTP_PEER_ADDR_THLDS, SCTP_PEER_ADDR_THLDS_V2, SCTP_PLPMTUD_PROBE_INTERVAL,
    SCTP_PRIMARY_ADDR, SCTP_REMOTE_UDP_ENCAPS_PORT,
};
use rustix::io::Errno;
use swiftwater::PathOptions;

use super::Access;
use super::timers::SACK_DELAY_MAX_MS;
use super::value::{Build, NamedAddress, STORAGE_BYTES, Value};
use crate::state::association::SocketAssociation;
use crate::state::association_options::AssocOptions;
use crate::state::path_parameters::{PathParameters, flags};
use crate::system::addresses::Family;

const PRIM_BYTES: usize = 4 + STORAGE_BYTES;
const PARAMS_BYTES: usize = 156;
/// Size of `struct sctp_paddrparams` before it had flow labels.
const OLD_PARAMS_BYTES: usize = 152;
/// Size of the threshold structures, whose address is aligned to eight bytes.
const THRESHOLDS_BYTES: usize = 144;
const PORT_BYTES: usize = 144;

/// The minimum of `spp_pathmtu`.
const PATH_MTU_MIN: u32 = 512;
/// The minimum of `spi_interval`, in milliseconds.
const PROBE_INTERVAL_MIN_MS: u32 = 5000;

pub(super) fn set(access: &mut Access<'_>, name: i32, value: &[u8]) -> Option<Result<(), Errno>> {
    Some(match name {
        SCTP_PRIMARY_ADDR => set_primary(access, value),
        SCTP_PEER_ADDR_PARAMS => set_parameters(access, value),
        SCTP_PEER_ADDR_THLDS => set_thresholds(access, value, false),
        SCTP_PEER_ADDR_THLDS_V2 => set_thresholds(access, value, true),
        SCTP_REMOTE_UDP_ENCAPS_PORT => set_encapsulation_port(access, value),
        SCTP_PLPMTUD_PROBE_INTERVAL => set_probe_interval(access, value),
        _ => return None,
    })
}

pub(super) fn get(access: &Access<'_>, name: i32, given: &[u8]) -> Option<Result<Vec<u8>, Errno>> {
    Some(match name {
        SCTP_PRIMARY_ADDR => primary(access, given),
        SCTP_PEER_ADDR_PARAMS => parameters(access, given),
        SCTP_PEER_ADDR_THLDS | SCTP_PEER_ADDR_THLDS_V2 => thresholds(access, given),
        SCTP_REMOTE_UDP_ENCAPS_PORT => encapsulation_port(access, given),
        SCTP_PLPMTUD_PROBE_INTERVAL => probe_interval(access, given),
        _ => return None,
    })
}

/// The subject of an option with an association and an address.
enum Subject {
    /// The path to this address.
    Path(Rc<SocketAssociation>, SocketAddr),
    Association(Rc<SocketAssociation>),
    Future,
}

impl Access<'_> {
    fn subject(&self, id: i32, place: NamedAddress, unknown: Errno) -> Result<Subject, Errno> {
        if let Some(address) = place.named(unknown)? {
            let owner = self.path(id, address).ok_or(unknown)?;
            // For thresholds alone, the number is ignored if an address is given.
            if unknown == Errno::INVAL {
                self.one(id)?;
            }
            return Ok(Subject::Path(owner, address));
        }
        Ok(self.one(id)?.map_or(Subject::Future, Subject::Association))
    }
}

impl Subject {
    fn assoc(&self) -> Option<&Rc<SocketAssociation>> {
        match self {
            Subject::Path(assoc, _) | Subject::Association(assoc) => Some(assoc),
            Subject::Future => None,
        }
    }

    /// Passes a change to the executive. An association that is being set up has no paths yet, and gets all options
    /// once it is up.
    fn change(&self, options: &PathOptions) {
        let Some(association) = self.assoc().and_then(|assoc| assoc.stack_association()) else { return };
        let address = match self {
            Subject::Path(_, address) => Some(address.ip().to_canonical()),
            _ => None,
        };
        // The association may have just ended, and then needs no change.
        let _ = association.set_path(address, options);
    }

    /// Returns the options in effect on the path, if the option addresses an existing path.
    fn path_options(&self) -> Option<PathOptions> {
        let Subject::Path(assoc, address) = self else { return None };
        assoc.view(|view| Some(view.path_to(address.ip())?.options())).flatten()
    }
}

/// Sets the primary path from a `struct sctp_prim`.
fn set_primary(access: &mut Access<'_>, value: &[u8]) -> Result<(), Errno> {
    let value = Value::exactly(value, PRIM_BYTES)?;
    let address = value.address(4).named(Errno::INVAL)?.ok_or(Errno::INVAL)?;
    let assoc = access.path(value.i32(0), address).ok_or(Errno::INVAL)?;
    // An unconfirmed address is accepted, as the peer has named it; the call does not wait for its confirmation.
    let chosen = assoc.stack_association().map(|association| association.set_primary(address.ip()));
    match chosen {
        None | Some(Ok(()) | Err(swiftwater::PathError::Unconfirmed { .. })) => Ok(()),
        Some(Err(_)) => Err(Errno::INVAL),
    }
}

fn primary(access: &Access<'_>, given: &[u8]) -> Result<Vec<u8>, Errno> {
    let given = Value::at_least(given, PRIM_BYTES)?;
    let assoc = access.association(given.i32(0)).ok_or(Errno::INVAL)?;
    Ok(Build::after(given, 4).address(primary_of(access, &assoc)).finish())
}

/// Returns the peer's address of the primary path, in the form for the program; the address that the association was set up with
/// if it has no paths yet, or no more.
pub(super) fn primary_of(access: &Access<'_>, assoc: &SocketAssociation) -> SocketAddr {
    let primary = assoc.view(|view| view.primary().remote().ip());
    peer_at(access, assoc, primary.unwrap_or(assoc.peer().ip()))
}

/// Returns an address of the peer, in the form for the program.
pub(super) fn peer_at(access: &Access<'_>, assoc: &SocketAssociation, ip: IpAddr) -> SocketAddr {
    access.socket.view().of(SocketAddr::new(ip, assoc.peer().port()))
}

/// Sets the parameters in a `struct sctp_paddrparams`.
fn set_parameters(access: &mut Access<'_>, value: &[u8]) -> Result<(), Errno> {
    let bytes = if value.len() == OLD_PARAMS_BYTES { OLD_PARAMS_BYTES } else { PARAMS_BYTES };
    let value = Value::exactly(value, bytes)?;
    let asked = PathParameters {
        heartbeat_interval_ms: value.u32(132),
        retries_max: value.u16(136),
        mtu_bytes: value.u32(138),
        sack_delay_ms: value.u32(142),
        flags: value.u32(146),
        flow_label: value.u32(150),
        dscp: value.u8(154),
    };
    let is_mtu_valid = asked.mtu_bytes == 0 || asked.mtu_bytes >= PATH_MTU_MIN;
    if asked.contradicts() || asked.sack_delay_ms > SACK_DELAY_MAX_MS || !is_mtu_valid {
        return Err(Errno::INVAL);
    }
    let subject = access.subject(value.i32(0), value.address(4), Errno::INVAL)?;
    match &subject {
        Subject::Future if asked.has(flags::HB_DEMAND) => return Err(Errno::INVAL),
        Subject::Future if access.socket.family() == Family::V6 => {
            access.options_mut().future_mut().merge_path(&asked)
        }
        Subject::Future => access.options_mut().future_mut().merge_path(&asked.without_flow_label()),
        Subject::Association(assoc) => assoc.options_mut().merge_path(&asked),
        Subject::Path(..) => {}
    }
    subject.change(&asked.changes());
    Ok(())
}

fn parameters(access: &Access<'_>, given: &[u8]) -> Result<Vec<u8>, Errno> {
    let bytes = if given.len() >= PARAMS_BYTES { PARAMS_BYTES } else { OLD_PARAMS_BYTES };
    let given = Value::at_least(given, bytes)?;
    let subject = access.subject(given.i32(0), given.address(4), Errno::INVAL)?;
    let mut parameters = access.assoc_options(subject.assoc()).path();
    if let Some(path) = subject.path_options() {
        parameters = parameters.on_path(&path);
    } else if let Some(assoc) = subject.assoc() {
        parameters.mtu_bytes = assoc.narrowest_mtu().unwrap_or(parameters.mtu_bytes);
    }
    let PathParameters {
        heartbeat_interval_ms,
        retries_max,
        mtu_bytes,
        sack_delay_ms,
        flags,
        flow_label,
        dscp,
    } = parameters;
    let value = Build::after(given, 4 + STORAGE_BYTES).u32(heartbeat_interval_ms).u16(retries_max);
    let value = value.u32(mtu_bytes).u32(sack_delay_ms).u32(flags).u32(flow_label);
    Ok(value.u8(dscp).pad(bytes).finish())
}

/// Sets the thresholds in a `struct sctp_paddrthlds` or a `struct sctp_paddrthlds_v2`, which have the same length.
fn set_thresholds(access: &mut Access<'_>, value: &[u8], second: bool) -> Result<(), Errno> {
    let value = Value::at_least(value, THRESHOLDS_BYTES)?;
    let (retries, failing, left) = (value.u16(136), value.u16(138), value.u16(140));
    if second && failing > left {
        return Err(Errno::INVAL);
    }
    let subject = access.subject(value.i32(0), value.address(8), Errno::NOENT)?;
    let left = second.then_some(left);
    let change = |assoc_options: &mut AssocOptions| assoc_options.merge_thresholds(retries, failing, left);
    match &subject {
        Subject::Future => change(access.options_mut().future_mut()),
        Subject::Association(assoc) => change(&mut assoc.options_mut()),
        Subject::Path(..) => {}
    }
    subject.change(&PathOptions {
        retries_max: Some(retries.into()).filter(|retries| *retries > 0),
        potentially_failed_retries_max: Some(failing.into()),
        ..PathOptions::default()
    });
    Ok(())
}

fn thresholds(access: &Access<'_>, given: &[u8]) -> Result<Vec<u8>, Errno> {
    let given = Value::at_least(given, THRESHOLDS_BYTES)?;
    let subject = access.subject(given.i32(0), given.address(8), Errno::NOENT)?;
    let assoc_options = access.assoc_options(subject.assoc());
    let (mut retries, mut failing) =
        (assoc_options.path().retries_max, assoc_options.potentially_failed_after());
    if let Some(path) = subject.path_options() {
        let half = |number: u32| u16::try_from(number).unwrap_or(u16::MAX);
        retries = path.retries_max.map_or(retries, half);
        failing = path.potentially_failed_retries_max.map_or(failing, half);
    }
    let value = Build::after(given, 8 + STORAGE_BYTES).u16(retries).u16(failing);
    Ok(value.u16(assoc_options.primary_left_after()).pad(THRESHOLDS_BYTES).finish())
}

/// Sets the port in a `struct sctp_udpencaps`. A request for SCTP without UDP leaves the port unchanged.
fn set_encapsulation_port(access: &mut Access<'_>, value: &[u8]) -> Result<(), Errno> {
    let value = Value::exactly(value, PORT_BYTES)?;
    let port = u16::from_be(value.u16(136));
    let subject = access.subject(value.i32(0), value.address(8), Errno::INVAL)?;
    match &subject {
        Subject::Future => access.options_mut().future_mut().set_encapsulation_port(port),
        Subject::Association(assoc) | Subject::Path(assoc, _) => {
            assoc.options_mut().set_encapsulation_port(port)
        }
    }
    let udp_port = Some(port).filter(|port| *port != 0);
    subject.change(&PathOptions { udp_port, ..PathOptions::default() });
    Ok(())
}

fn encapsulation_port(access: &Access<'_>, given: &[u8]) -> Result<Vec<u8>, Errno> {
    let given = Value::at_least(given, PORT_BYTES)?;
    let subject = access.subject(given.i32(0), given.address(8), Errno::INVAL)?;
    let port = access.assoc_options(subject.assoc()).encapsulation_port();
    Ok(Build::after(given, 8 + STORAGE_BYTES).u16(port.to_be()).pad(PORT_BYTES).finish())
}

/// Stores the interval in a `struct sctp_probeinterval`, which has no effect: probes leave with long packets.
fn set_probe_interval(access: &mut Access<'_>, value: &[u8]) -> Result<(), Errno> {
    let value = Value::exactly(value, PORT_BYTES)?;
    let interval_ms = value.u32(136);
    if (1..PROBE_INTERVAL_MIN_MS).contains(&interval_ms) {
        return Err(Errno::INVAL);
    }
    match access.subject(value.i32(0), value.address(8), Errno::INVAL)? {
        Subject::Future => access.options_mut().future_mut().set_probe_interval_ms(interval_ms),
        Subject::Association(assoc) | Subject::Path(assoc, _) => {
            assoc.options_mut().set_probe_interval_ms(interval_ms);
        }
    }
    Ok(())
}

fn probe_interval(access: &Access<'_>, given: &[u8]) -> Result<Vec<u8>, Errno> {
    let given = Value::at_least(given, PORT_BYTES)?;
    let subject = access.subject(given.i32(0), given.address(8), Errno::INVAL)?;
    let interval_ms = access.assoc_options(subject.assoc()).probe_interval_ms();
    Ok(Build::after(given, 8 + STORAGE_BYTES).u32(interval_ms).pad(PORT_BYTES).finish())
}
