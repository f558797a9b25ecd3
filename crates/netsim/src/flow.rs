//! Flows: pairs of sender and receiver, and the pipes between them.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use crate::{HostId, PipeId};

/// Packets from one address and port to another: what [`Network::flow`](crate::Network::flow) finds once, so that
/// [`Network::send_on`](crate::Network::send_on) need not search for it again. It is valid only in the network that made it.
///
/// # Examples
///
/// ```
/// use std::net::SocketAddr;
/// use netsim::{Ecn, Network, Packet, PipeConfig};
///
/// let (a, b): (SocketAddr, SocketAddr) = ("10.0.0.1:9899".parse()?, "10.0.0.2:9899".parse()?);
/// let mut network = Network::new(1);
/// network.add_host(&[a.ip()]);
/// network.add_host(&[b.ip()]);
/// network.connect(a.ip(), b.ip(), &PipeConfig::default());
/// let flow = network.flow(a, b).expect("they are connected");
/// for number in 0..3u32 {
///     network.send_on(0, flow, Packet { bytes: 1500, ecn: Ecn::Ect0, whole: true, payload: number });
/// }
/// assert_eq!(network.in_flight(), 3);
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowId(pub(crate) u32);

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    /// The host of `from`; anybody may claim to send from an address.
    pub(crate) from_host: Option<HostId>,
    /// The host of `to`.
    pub(crate) host: HostId,
    /// An index of [`Flows::routes`]: the pipes of a route can change while the flow is there.
    pub(crate) route: usize,
}

/// All routes, and the flows that use them.
#[derive(Debug)]
pub(crate) struct Flows {
    routes: Vec<Vec<PipeId>>,
    route_numbers: HashMap<(IpAddr, IpAddr), usize>,
    flows: Vec<Flow>,
    flow_numbers: HashMap<(SocketAddr, SocketAddr), FlowId>,
    /// Flows that were looked up lately, each where [`recent_place`] says: a sender sends many packets to one address.
    recent: Vec<FlowId>,
}

/// A power of two.
const RECENT: usize = 64;

impl Flows {
    pub(crate) fn new() -> Self {
        Flows {
            routes: Vec::new(),
            route_numbers: HashMap::new(),
            flows: Vec::new(),
            flow_numbers: HashMap::new(),
            recent: vec![FlowId(u32::MAX); RECENT],
        }
    }

    pub(crate) fn set_route(&mut self, from: IpAddr, to: IpAddr, pipes: &[PipeId]) {
        let routes = &mut self.routes;
        let number = *self.route_numbers.entry((from, to)).or_insert_with(|| {
            routes.push(Vec::new());
            routes.len() - 1
        });
        self.routes[number] = pipes.to_vec();
    }

    /// Returns the flow between these addresses, if a route leads to a host.
    pub(crate) fn find(
        &mut self,
        from: SocketAddr,
        to: SocketAddr,
        hosts: &HashMap<IpAddr, HostId>,
    ) -> Option<FlowId> {
        let place = recent_place(&from, &to);
        let recent = self.recent[place];
        if self.flows.get(recent.0 as usize).is_some_and(|flow| flow.from == from && flow.to == to) {
            return Some(recent);
        }
        let id = match self.flow_numbers.get(&(from, to)) {
            Some(id) => *id,
            None => self.add(from, to, hosts)?,
        };
        self.recent[place] = id;
        Some(id)
    }

    pub(crate) fn get(&self, id: FlowId) -> &Flow {
        &self.flows[id.0 as usize]
    }

    /// Returns the pipe after those that a packet has passed, or `None` at the end of the route.
    pub(crate) fn pipe(&self, id: FlowId, passed: usize) -> Option<PipeId> {
        self.routes[self.get(id).route].get(passed).copied()
    }

    fn add(&mut self, from: SocketAddr, to: SocketAddr, hosts: &HashMap<IpAddr, HostId>) -> Option<FlowId> {
        let route = *self.route_numbers.get(&(from.ip(), to.ip()))?;
        let host = *hosts.get(&to.ip())?;
        let id = FlowId(u32::try_from(self.flows.len()).ok()?);
        self.flows.push(Flow { from, to, from_host: hosts.get(&from.ip()).copied(), host, route });
        self.flow_numbers.insert((from, to), id);
        Some(id)
    }
}

/// Spreads addresses that differ in their last bits or their port.
fn recent_place(from: &SocketAddr, to: &SocketAddr) -> usize {
    const SPREAD: u32 = 0x9e37_79b9;
    let word = |address: &SocketAddr| {
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_bits(),
            IpAddr::V6(ip) => ip.to_bits() as u32,
        };
        ip ^ u32::from(address.port()).rotate_left(16)
    };
    let mixed = (word(from).wrapping_mul(SPREAD) ^ word(to)).wrapping_mul(SPREAD);
    (mixed >> 16) as usize % RECENT
}
