//! Where the attack takes place: two hosts and two lines between them, in network namespaces of their own.

use std::net::Ipv4Addr;

use netns::{Host, HostError};

/// The network of both lines, which RFC 2544 has set aside for such tests.
const NETWORK: &str = "198.18.0.0/24";
/// The victim, on both lines.
pub(crate) const VICTIM: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
/// The peers that mean well.
pub(crate) const CALLER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// The router through which the victim's answers to strangers leave. It has no address on its own end: what comes there
/// is for nobody and dropped.
const ROUTER: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 1);
const CALLER_LINE: &str = "calls";
/// The interface of the attack at both hosts. Its traffic is counted apart from that of the peers.
pub(crate) const ATTACK_LINE: &str = "attack";
const VICTIM_MAC: &str = "02:00:00:00:01:02";
const ROUTER_MAC: &str = "02:00:00:00:01:01";

/// The UDP port that carries SCTP at both hosts.
pub(crate) const UDP_PORT: u16 = 9899;
/// A UDP port of the victim without socket: what a flood costs before SCTP has seen anything of it.
pub(crate) const DEAD_UDP_PORT: u16 = 9;
/// Where one association delivers messages as fast as it can.
pub(crate) const SINK_PORT: u16 = 5001;
/// The port from which that association comes.
pub(crate) const CALLER_PORT: u16 = 5000;
/// Where new peers come, and the floods.
pub(crate) const MEETING_PORT: u16 = 5002;

/// The network of the attacker who completes handshakes: TEST-NET-2 (RFC 5737).
pub(crate) const ATTACKER: [u8; 3] = [198, 51, 100];
/// The UDP port where it takes what the victim answers.
pub(crate) const ATTACKER_UDP_PORT: u16 = 9900;

/// Both hosts.
#[derive(Debug)]
pub(crate) struct Arena {
    /// Where the victim runs.
    pub victim: Host,
    /// Where the peers and the attacker run.
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
        Ok(())
    }

    /// The attack has a line to the same address of the victim, which sends all answers to strangers back there.
    fn join_attacker(&self) -> Result<(), HostError> {
        let far = self.victim.name();
        self.outside.ip(&format!(
            "link add name {ATTACK_LINE} address {ROUTER_MAC} type veth peer name {ATTACK_LINE} address {VICTIM_MAC} netns {far}"
        ))?;
        for host in [&self.outside, &self.victim] {
            host.ip(&format!("link set {ATTACK_LINE} addrgenmode none"))?;
            host.ip(&format!("link set {ATTACK_LINE} up"))?;
        }
        // All addresses of the attacker are the host's own.
        let [a, b, c] = ATTACKER;
        self.outside.ip(&format!("route add local {a}.{b}.{c}.0/24 dev lo"))?;
        // The callers' own route to the victim has the lower metric.
        self.outside.ip(&format!("route add {NETWORK} dev {ATTACK_LINE} metric 1000"))?;
        self.outside.ip(&format!("neighbour add {VICTIM} lladdr {VICTIM_MAC} dev {ATTACK_LINE}"))?;
        self.victim.ip(&format!("neighbour add {ROUTER} lladdr {ROUTER_MAC} dev {ATTACK_LINE}"))?;
        self.victim.ip(&format!("route add default via {ROUTER} dev {ATTACK_LINE} onlink"))
    }
}
