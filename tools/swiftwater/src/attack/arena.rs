//! Scene of the attack: two hosts and two lines between them, in network namespaces of their own.

use std::net::Ipv4Addr;

use netns::{Host, HostError};

/// Network of both lines, which RFC 2544 reserves for such tests.
const NETWORK: &str = "198.18.0.0/24";
/// Address of the victim, on both lines.
pub(crate) const VICTIM: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
/// Address of the well-behaved peer.
pub(crate) const CALLER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// Network of the new peers, a /10 (RFC 6598). Each comes from a /24 of its own.
const NEWCOMERS: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 0);
const NEWCOMERS_PREFIX_BITS: u32 = 10;
/// Router through which the victim's answers to strangers leave. Its own end has no address: the kernel drops packets that arrive
/// there.
const ROUTER: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 1);
const CALLER_LINE: &str = "calls";
/// The interface of the attack at both hosts. Its traffic is counted apart from that of the peers.
pub(crate) const ATTACK_LINE: &str = "attack";
const VICTIM_MAC: &str = "02:00:00:00:01:02";
const ROUTER_MAC: &str = "02:00:00:00:01:01";

/// The UDP port that carries SCTP at both hosts.
pub(crate) const UDP_PORT: u16 = 9899;
/// A UDP port of the victim without a socket: shows the cost of a flood that never reaches SCTP.
pub(crate) const DEAD_UDP_PORT: u16 = 9;
/// Port where one association delivers messages as fast as possible.
pub(crate) const SINK_PORT: u16 = 5001;
/// Port that this association comes from.
pub(crate) const CALLER_PORT: u16 = 5000;
/// Port for new peers and for the floods.
pub(crate) const MEETING_PORT: u16 = 5002;

/// Network of an attacker that completes handshakes: TEST-NET-2 (RFC 5737).
pub(crate) const ATTACKER: [u8; 3] = [198, 51, 100];
/// UDP port where this attacker receives the victim's answers.
pub(crate) const ATTACKER_UDP_PORT: u16 = 9900;

/// Returns the address of the new peer of this number, whose network the victim has not met.
pub(crate) fn newcomer(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(NEWCOMERS) + (number << 8) + 1)
}

/// Both hosts.
#[derive(Debug)]
pub(crate) struct Arena {
    /// Host of the victim.
    pub victim: Host,
    /// Host of the peers and the attacker.
    pub outside: Host,
}

impl Arena {
    /// Makes the hosts and joins them.
    pub(crate) fn build() -> Result<Self, HostError> {
        let arena = Arena { victim: Host::new()?, outside: Host::new()? };
        for host in [&arena.victim, &arena.outside] {
            host.ip("link set lo up")?;
        }
        arena.join_callers()?;
        arena.join_attacker()?;
        Ok(arena)
    }

    fn join_callers(&self) -> Result<(), HostError> {
        let far = self.victim.name();
        self.outside
            .ip(&format!("link add name {CALLER_LINE} type veth peer name {CALLER_LINE} netns {far}"))?;
        for (host, address) in [(&self.outside, CALLER), (&self.victim, VICTIM)] {
            host.ip(&format!("link set {CALLER_LINE} addrgenmode none"))?;
            host.ip(&format!("address add {address}/24 dev {CALLER_LINE}"))?;
            host.ip(&format!("link set {CALLER_LINE} up"))?;
        }
        let newcomers = format!("{NEWCOMERS}/{NEWCOMERS_PREFIX_BITS}");
        self.outside.ip(&format!("route add local {newcomers} dev lo"))?;
        self.victim.ip(&format!("route add {newcomers} via {CALLER} dev {CALLER_LINE}"))
    }

    /// Gives the attacker a line to the victim's address; the victim sends all answers to strangers back over it.
    fn join_attacker(&self) -> Result<(), HostError> {
        let far = self.victim.name();
        self.outside.ip(&format!(
            "link add name {ATTACK_LINE} address {ROUTER_MAC} type veth peer name {ATTACK_LINE} address {VICTIM_MAC} netns {far}"
        ))?;
        for host in [&self.outside, &self.victim] {
            host.ip(&format!("link set {ATTACK_LINE} addrgenmode none"))?;
            host.ip(&format!("link set {ATTACK_LINE} up"))?;
        }
        // All addresses of the attacker are local to the host.
        let [a, b, c] = ATTACKER;
        self.outside.ip(&format!("route add local {a}.{b}.{c}.0/24 dev lo"))?;
        // The callers' own route to the victim has the lower metric.
        self.outside.ip(&format!("route add {NETWORK} dev {ATTACK_LINE} metric 1000"))?;
        self.outside.ip(&format!("neighbour add {VICTIM} lladdr {VICTIM_MAC} dev {ATTACK_LINE}"))?;
        self.victim.ip(&format!("neighbour add {ROUTER} lladdr {ROUTER_MAC} dev {ATTACK_LINE}"))?;
        self.victim.ip(&format!("route add default via {ROUTER} dev {ATTACK_LINE} onlink"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::args::FLOOD_SECONDS_MAX;
    use super::super::caller::CONNECT_INTERVAL;
    use super::*;

    #[test]
    fn each_new_peer_of_the_longest_run_has_a_network_of_its_own() {
        let count = (FLOOD_SECONDS_MAX / CONNECT_INTERVAL.as_secs_f64()).ceil() as u32;
        let prefix = |address: Ipv4Addr, bits: u32| u32::from(address) >> (32 - bits);
        let networks: HashSet<u32> = (0..count).map(|number| prefix(newcomer(number), 24)).collect();
        assert_eq!(networks.len(), count as usize);
        let of_all = |address| prefix(address, NEWCOMERS_PREFIX_BITS);
        assert!((0..count).all(|number| of_all(newcomer(number)) == of_all(NEWCOMERS)));
    }
}
