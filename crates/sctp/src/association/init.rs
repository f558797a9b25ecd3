//! Contents of INIT and INIT ACK (RFC 9260 §3.3.2, §3.3.3, §5.1.2).

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use sctp_wire::cause::{Cause, InvalidMandatoryParameter, ProtocolViolation, UnresolvableAddress};
use sctp_wire::chunk::{Init, InitAck};
use sctp_wire::parameter::{self, PARAMETER_HEADER_BYTES, Parameter, Parameters};
use sctp_wire::{Tsn, VerificationTag};

use crate::config::{
    AssociationConfig, COOKIE_BYTES_MAX, PARAMETERS_MAX, PEER_ADDRESSES_MAX, RECEIVE_WINDOW_BYTES_MIN,
};
use crate::cookie::StateCookie;
use crate::extensions::Extensions;
use crate::families::Families;
use crate::local_addresses::LocalAddresses;

/// Maximum number of bytes of unknown parameters that are reported back.
const REPORTED_BYTES_MAX: usize = 1024;
/// Header and fixed fields of INIT and INIT ACK (RFC 9260 §3.3.2).
const INIT_CHUNK_BYTES: usize = 20;
/// Length to which the parameters of our INITs are padded.
const PADDED_PARAMETERS_BYTES: usize = 128;
/// Padding Parameter (RFC 4820 §4). A peer that does not know it skips it silently.
const PAD: u16 = 0x8005;
/// Maximum length of a host name that an ABORT reports back.
const HOST_NAME_BYTES_MAX: usize = 256;

/// The checked contents of an INIT or INIT ACK.
#[derive(Debug, Clone)]
pub(crate) struct PeerInit {
    pub(crate) tag: VerificationTag,
    pub(crate) window_bytes: u32,
    pub(crate) streams_out: u16,
    pub(crate) streams_in: u16,
    pub(crate) initial_tsn: Tsn,
    pub(crate) addresses: Vec<IpAddr>,
    /// Number of listed addresses, before the unusable ones were removed.
    listed: u64,
    /// The address families that the peer reports as supported, if it does.
    supported: Option<Families>,
    /// Extensions that the peer offers beyond RFC 9260.
    pub(crate) extensions: Extensions,
    /// Adaptation layer indication of the peer (RFC 5061 §4.2.6).
    pub(crate) adaptation: Option<u32>,
    /// Only in an INIT: requested extension of the cookie's lifetime.
    pub(crate) cookie_increment: Duration,
    /// Only in an INIT ACK.
    pub(crate) cookie: Option<Vec<u8>>,
    /// Parameters to report back, as they came (RFC 9260 §3.2.1).
    pub(crate) unrecognized: Vec<u8>,
}

/// Why an INIT or INIT ACK cannot lead to an association.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BadInit {
    /// A field has a value that RFC 9260 §3.3.2 forbids.
    Field,
    /// A parameter has a wrong length.
    Parameter,
    /// The sender is named by a host name (RFC 9260 §5.1.2 B), in this parameter.
    HostName(Vec<u8>),
}

impl BadInit {
    /// Returns the cause of the ABORT that refuses the chunk.
    pub(crate) fn cause(&self) -> Cause<'_> {
        match self {
            BadInit::Field => Cause::InvalidMandatoryParameter(InvalidMandatoryParameter),
            BadInit::Parameter => {
                Cause::ProtocolViolation(ProtocolViolation { information: self.text().as_bytes() })
            }
            BadInit::HostName(parameter) => Cause::UnresolvableAddress(UnresolvableAddress { parameter }),
        }
    }

    /// Returns a description of the error.
    pub(crate) fn text(&self) -> &'static str {
        match self {
            BadInit::Field => "an INIT ACK with an invalid mandatory parameter",
            BadInit::Parameter => "a setup chunk with a parameter of a wrong length",
            BadInit::HostName(_) => "an INIT ACK with a host name instead of addresses",
        }
    }
}

impl PeerInit {
    /// Reads and checks the common part of both chunks.
    pub(crate) fn from_init(init: &Init<'_>) -> Result<PeerInit, BadInit> {
        if init.initiate_tag.0 == 0
            || init.outbound_streams == 0
            || init.inbound_streams == 0
            || (init.a_rwnd as usize) < RECEIVE_WINDOW_BYTES_MIN
        {
            return Err(BadInit::Field);
        }
        let mut peer = PeerInit {
            tag: init.initiate_tag,
            window_bytes: init.a_rwnd,
            streams_out: init.outbound_streams,
            streams_in: init.inbound_streams,
            initial_tsn: init.initial_tsn,
            addresses: Vec::new(),
            listed: 0,
            supported: None,
            extensions: Extensions::default(),
            adaptation: None,
            cookie_increment: Duration::ZERO,
            cookie: None,
            unrecognized: Vec::new(),
        };
        let mut parameters = init.parameters();
        for raw in std::iter::from_fn(|| parameters.next_raw()).take(PARAMETERS_MAX) {
            let raw = raw.map_err(|_| BadInit::Parameter)?;
            match Parameter::parse(&raw).map_err(|_| BadInit::Parameter)? {
                Parameter::Ipv4(p) => peer.add_address(IpAddr::V4(p.address)),
                Parameter::Ipv6(p) => peer.add_address(IpAddr::V6(p.address).to_canonical()),
                Parameter::StateCookie(p) if p.cookie.len() <= COOKIE_BYTES_MAX => {
                    peer.cookie = Some(p.cookie.to_vec());
                }
                Parameter::CookiePreservative(p) => {
                    peer.cookie_increment = Duration::from_millis(p.increment_ms.into());
                }
                Parameter::AdaptationLayer(p) => peer.adaptation = Some(p.code_point),
                Parameter::SupportedAddressTypes(p) => {
                    peer.supported = Some(Families::from_parameter(&p));
                }
                Parameter::HostName(_) => {
                    let whole = &raw.whole[..raw.whole.len().min(HOST_NAME_BYTES_MAX)];
                    return Err(BadInit::HostName(whole.to_vec()));
                }
                Parameter::Unknown(_) => {
                    let action = sctp_wire::unknown_parameter_action(raw.kind);
                    if action.report && peer.unrecognized.len() + raw.whole.len() <= REPORTED_BYTES_MAX {
                        peer.unrecognized.extend_from_slice(raw.whole);
                        peer.unrecognized.resize(peer.unrecognized.len().next_multiple_of(4), 0);
                    }
                    if action.stop {
                        break;
                    }
                }
                other => peer.extensions.take(&other),
            }
        }
        Ok(peer)
    }

    /// Returns the sender's addresses that can be used from `ours`: first the source of its packet, then the listed addresses
    /// that mean the same host to us. The number of the others is added to `ignored`.
    pub(crate) fn reachable_at(
        &self,
        source: IpAddr,
        ours: &LocalAddresses,
        ignored: &mut u64,
    ) -> Vec<IpAddr> {
        let (source_listed, families) = (self.addresses.contains(&source.to_canonical()), ours.families());
        let ours = ours.listed();
        let usable =
            |a: &IpAddr| *a != source.to_canonical() && families.has(*a) && is_in_scope(*a, source, ours);
        let listed = self.addresses.iter().copied().filter(usable);
        let all: Vec<_> = std::iter::once(source).chain(listed).take(PEER_ADDRESSES_MAX).collect();
        *ignored += self.listed - (all.len() - 1 + usize::from(source_listed)) as u64;
        all
    }

    /// Returns the address families that the sender supports: those that it reports, and that of its source address (RFC 9260
    /// §5.1.2).
    fn families(&self, source: IpAddr) -> Families {
        self.supported.map_or(Families::BOTH, |said| said.with(&self.addresses).with(&[source]))
    }

    fn add_address(&mut self, address: IpAddr) {
        self.listed += 1;
        if self.addresses.len() < PEER_ADDRESSES_MAX
            && is_unicast(address)
            && !self.addresses.contains(&address)
        {
            self.addresses.push(address);
        }
    }
}

/// Returns the window to advertise, at least the minimum of RFC 9260 §3.3.2.
pub(super) fn initial_window(config: &AssociationConfig) -> u32 {
    u32::try_from(config.receive_buffer_bytes.max(RECEIVE_WINDOW_BYTES_MIN)).unwrap_or(u32::MAX)
}

/// Returns whether an address denotes the same host at both ends if it is listed in a packet from or to the peer's address
/// `remote`. A loopback address is valid on the host itself, and a link-local address on its link (the interface is needed, too).
/// A private IPv4 address is behind a NAT if the peer has a public one, unless our host is in both networks.
fn is_in_scope(address: IpAddr, remote: IpAddr, ours: &[IpAddr]) -> bool {
    let (address, remote) = (address.to_canonical(), remote.to_canonical());
    if remote.is_loopback() {
        return true;
    }
    match (address, remote) {
        (IpAddr::V4(v4), IpAddr::V4(remote)) => {
            let link_local = v4.is_link_local() && !remote.is_link_local();
            let behind_nat = v4.is_private() && is_public(remote) && !joins_networks(ours);
            !(v4.is_loopback() || link_local || behind_nat)
        }
        (IpAddr::V4(v4), IpAddr::V6(_)) => !(v4.is_loopback() || v4.is_link_local()),
        (IpAddr::V6(v6), _) => !(v6.is_loopback() || v6.is_unicast_link_local()),
    }
}

/// Returns whether these are addresses of a private network and of the public one.
fn joins_networks(addresses: &[IpAddr]) -> bool {
    let has = |is: fn(Ipv4Addr) -> bool| {
        addresses.iter().any(|address| matches!(address.to_canonical(), IpAddr::V4(v4) if is(v4)))
    };
    has(|v4| v4.is_private()) && has(is_public)
}

fn is_public(address: Ipv4Addr) -> bool {
    !(address.is_private() || address.is_link_local() || address.is_loopback())
}

/// Returns whether an address can be that of one host.
pub(crate) fn is_unicast(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    !(address.is_unspecified() || address.is_multicast() || broadcast)
}

/// The answer to an INIT.
pub(crate) struct InitAnswer<'a> {
    pub(crate) config: &'a AssociationConfig,
    pub(crate) cookie: &'a StateCookie,
    pub(crate) sealed_cookie: &'a [u8],
    pub(crate) local: &'a LocalAddresses,
    pub(crate) peer: &'a PeerInit,
    /// The address that the INIT came from, and to which the answer is sent.
    pub(crate) to: IpAddr,
    /// Limit of the answer's bytes.
    pub(crate) bytes_max: usize,
}

impl InitAnswer<'_> {
    /// Appends the INIT ACK (RFC 9260 §3.3.3), with at most the number of streams that the INIT permits, and as many local
    /// addresses as there is room for.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let Self { config, cookie, sealed_cookie, local, peer, to, bytes_max } = *self;
        let mut others = Vec::new();
        parameter::StateCookie { cookie: sealed_cookie }.write(&mut others);
        cookie.extensions.write(&mut others);
        write_adaptation(config, &mut others);
        // RFC 9260 §3.2.2: each unrecognized parameter is reported in a separate parameter.
        let mut reported = Parameters::new(&peer.unrecognized);
        while let Some(Ok(raw)) = reported.next_raw() {
            parameter::UnrecognizedParameter { parameter: raw.whole }.write(&mut others);
        }
        let families = peer.families(to);
        let ours = local.listed();
        let mut parameters = Vec::new();
        write_addresses(
            ours,
            |address| families.has(address) && is_in_scope(address, to, ours),
            &mut parameters,
        );
        let room = bytes_max.saturating_sub(INIT_CHUNK_BYTES + others.len());
        parameters.truncate(whole_parameters_bytes(&parameters, room));
        parameters.append(&mut others);
        InitAck {
            initiate_tag: cookie.local_tag,
            a_rwnd: initial_window(config),
            outbound_streams: cookie.streams_out,
            inbound_streams: config.streams_in_max.max(1),
            initial_tsn: cookie.local_initial_tsn,
            parameters: Parameters::new(&parameters),
        }
        .write(out);
    }
}

/// Returns the length of the first of these parameters that fit in `room` bytes.
fn whole_parameters_bytes(list: &[u8], room: usize) -> usize {
    let mut parameters = Parameters::new(list);
    let mut bytes = 0;
    while let Some(Ok(raw)) = parameters.next_raw() {
        let next = bytes + raw.whole.len().next_multiple_of(4);
        if next > room {
            break;
        }
        bytes = next;
    }
    bytes
}

/// Appends the parameters of an INIT that goes to the address `to`.
pub(super) fn write_init_parameters(
    config: &AssociationConfig,
    to: IpAddr,
    local: &LocalAddresses,
    cookie_increment: Option<Duration>,
    out: &mut Vec<u8>,
) {
    let ours = local.listed();
    write_addresses(ours, |address| is_in_scope(address, to, ours), out);
    local.families().write(out);
    Extensions::offered(config).write(out);
    write_adaptation(config, out);
    if let Some(increment) = cookie_increment {
        let increment_ms = u32::try_from(increment.as_millis()).unwrap_or(u32::MAX);
        parameter::CookiePreservative { increment_ms }.write(out);
    }
    // A responder that limits its answer to three times the INIT lists all its addresses if the INIT is long enough.
    if let Some(missing) = PADDED_PARAMETERS_BYTES.checked_sub(out.len() + PARAMETER_HEADER_BYTES) {
        parameter::Unknown { kind: PAD, value: &[0; PADDED_PARAMETERS_BYTES][..missing] }.write(out);
    }
}

fn write_adaptation(config: &AssociationConfig, out: &mut Vec<u8>) {
    if config.adaptation_indication != 0 {
        parameter::AdaptationLayer { code_point: config.adaptation_indication }.write(out);
    }
}

/// Appends address parameters.
pub(crate) fn write_address_list(addresses: &[IpAddr], out: &mut Vec<u8>) {
    for address in addresses {
        // RFC 9260 §3.3.2.1.2: an IPv4 address is never sent in mapped form.
        match address.to_canonical() {
            IpAddr::V4(v4) => parameter::Ipv4 { address: v4 }.write(out),
            IpAddr::V6(v6) => parameter::Ipv6 { address: v6 }.write(out),
        }
    }
}

/// Appends the addresses to list. A single address is the packet's own source and is not listed (RFC 9260 §3.3.2.1, note 2).
fn write_addresses(addresses: &[IpAddr], is_of_use: impl Fn(IpAddr) -> bool, out: &mut Vec<u8>) {
    if addresses.len() < 2 {
        return;
    }
    let usable: Vec<IpAddr> = addresses.iter().copied().filter(|a| is_of_use(*a)).collect();
    write_address_list(&usable, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads an INIT with these parameters.
    fn from_parameters(list: &[u8]) -> Result<PeerInit, BadInit> {
        PeerInit::from_init(&Init {
            initiate_tag: VerificationTag(1),
            a_rwnd: 1500,
            outbound_streams: 1,
            inbound_streams: 1,
            initial_tsn: Tsn(1),
            parameters: Parameters::new(list),
        })
    }

    fn ip(address: &str) -> IpAddr {
        address.parse().expect("an address")
    }

    fn is_listed(address: &str, remote: &str, ours: &[&str]) -> bool {
        let ours: Vec<IpAddr> = ours.iter().map(|address| ip(address)).collect();
        is_in_scope(ip(address), ip(remote), &ours)
    }

    #[test]
    fn parameters_beyond_the_limit_are_neither_obeyed_nor_reported() {
        const REPORTED: u16 = 0xc0de;
        for (before, adaptation) in [(PARAMETERS_MAX - 1, Some(5)), (PARAMETERS_MAX, None)] {
            let mut list = Vec::new();
            for _ in 0..before {
                parameter::Unknown { kind: 0x8ade, value: &[] }.write(&mut list);
            }
            parameter::AdaptationLayer { code_point: 5 }.write(&mut list);
            parameter::Unknown { kind: REPORTED, value: &[] }.write(&mut list);
            let peer = from_parameters(&list).expect("the fields are valid");
            assert_eq!((peer.adaptation, peer.unrecognized.len()), (adaptation, 0));
        }
    }

    #[test]
    fn as_many_unknown_parameters_are_reported_as_fit_each_padded() {
        const REPORTED: u16 = 0xc0de;
        let reported = |lengths: &[usize]| {
            let mut list = Vec::new();
            for bytes in lengths {
                parameter::Unknown { kind: REPORTED, value: &vec![1; *bytes] }.write(&mut list);
            }
            from_parameters(&list).expect("the fields are valid").unrecognized.len()
        };
        const HALF: usize = REPORTED_BYTES_MAX / 2 - PARAMETER_HEADER_BYTES;
        assert_eq!(reported(&[HALF, HALF, 1]), REPORTED_BYTES_MAX);
        assert_eq!(reported(&[HALF + 4, HALF]), REPORTED_BYTES_MAX / 2 + 4);
        assert_eq!(reported(&[5]), 12);
    }

    #[test]
    fn a_host_name_is_reported_in_part_if_it_is_long() {
        let mut list = Vec::new();
        parameter::HostName { host_name: &[b'a'; 2 * HOST_NAME_BYTES_MAX] }.write(&mut list);
        let Err(BadInit::HostName(reported)) = from_parameters(&list) else { panic!("it is refused") };
        assert_eq!(reported, list[..HOST_NAME_BYTES_MAX]);
    }

    #[test]
    fn the_first_addresses_of_a_peer_are_kept() {
        let listed: Vec<IpAddr> =
            (0..=PEER_ADDRESSES_MAX as u8).map(|n| IpAddr::from([192, 0, 2, n])).collect();
        let mut list = Vec::new();
        write_address_list(&listed, &mut list);
        let peer = from_parameters(&list).expect("the fields are valid");
        assert_eq!(peer.addresses, listed[..PEER_ADDRESSES_MAX]);
    }

    #[test]
    fn the_source_of_a_packet_is_the_same_address_in_either_form() {
        let mut list = Vec::new();
        write_address_list(&[ip("::ffff:192.0.2.1"), ip("192.0.2.2")], &mut list);
        let peer = from_parameters(&list).expect("the fields are valid");
        assert_eq!(peer.addresses, [ip("192.0.2.1"), ip("192.0.2.2")], "never sent in mapped form");
        let (source, mut ignored) = (ip("::ffff:192.0.2.1"), 0);
        let reachable = peer.reachable_at(source, &LocalAddresses::default(), &mut ignored);
        assert_eq!((reachable, ignored), (vec![source, ip("192.0.2.2")], 0));
    }

    #[test]
    fn an_address_is_listed_where_it_means_the_same_host_whatever_its_form() {
        assert!(is_listed("198.51.100.1", "203.0.113.1", &[]));
        assert!(!is_listed("::ffff:127.0.0.1", "203.0.113.1", &[]));
        assert!(is_listed("127.0.0.1", "::ffff:127.0.0.2", &[]));
        assert!(!is_listed("10.0.0.1", "::ffff:203.0.113.1", &[]));
        // A host in both networks, and one that has only itself beside the private one.
        assert!(is_listed("10.0.0.1", "203.0.113.1", &["10.0.0.2", "198.51.100.1"]));
        assert!(!is_listed("10.0.0.1", "203.0.113.1", &["10.0.0.2", "127.0.0.1"]));
    }

    #[test]
    fn whole_parameters_take_the_room_that_there_is() {
        let mut list = Vec::new();
        write_address_list(&[ip("192.0.2.1"), ip("192.0.2.2")], &mut list);
        for (room, bytes) in [(0, 0), (7, 0), (8, 8), (15, 8), (16, 16), (99, 16)] {
            assert_eq!(whole_parameters_bytes(&list, room), bytes, "in {room}");
        }
    }

    #[test]
    fn an_adaptation_is_indicated_if_there_is_one() {
        for adaptation_indication in [0, 7] {
            let config = AssociationConfig { adaptation_indication, ..AssociationConfig::default() };
            let mut list = Vec::new();
            let local = LocalAddresses::default();
            write_init_parameters(&config, ip("192.0.2.1"), &local, None, &mut list);
            let peer = from_parameters(&list).expect("the fields are valid");
            assert_eq!(peer.adaptation, Some(adaptation_indication).filter(|code| *code != 0));
        }
    }
}
