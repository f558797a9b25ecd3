//! Applications that send and receive in bulk, for experiments.

mod source;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sctp::{
    Admission, AssociationId, CloseReason, Endpoint, Event, Host, PathHints, Payload, RecvInfo, SendInfo,
    Time,
};

pub use source::Source;

use crate::simulation::Application;
use crate::wire::LOWER_HEADER_BYTES;

/// Contents of every message; longer messages repeat it.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
/// The largest SCTP packet over UDP and IPv4 on Ethernet.
const MTU_BYTES: usize = 1472;

/// Totals of arrived data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Number of bytes of messages.
    pub bytes: u64,
    /// Number of messages.
    pub messages: u64,
    /// Time of the first arrival.
    pub first_at: Option<Time>,
    /// Time of the last arrival.
    pub last_at: Option<Time>,
    /// The longest time between two arrivals, counted from [`Traffic::gaps_from`] on.
    pub gap_max: Duration,
}

impl Received {
    /// Counts received bytes.
    fn take(&mut self, now: Time, gaps_from: Time, bytes: usize) {
        self.bytes += bytes as u64;
        if let Some(last) = self.last_at
            && now > last
        {
            self.gap_max = self.gap_max.max(now.saturating_since(last.max(gaps_from)));
        }
        self.first_at.get_or_insert(now);
        self.last_at = Some(now);
    }
}

/// One association of a host.
#[derive(Debug, Default)]
pub struct Flow {
    /// Totals of arrived data.
    pub received: Received,
    /// Time of arrival of each message, with [`Traffic::keeps_times`].
    pub times: Vec<Time>,
    /// Whether the association is up.
    pub up: bool,
    /// Reason of its end.
    pub closed: Option<CloseReason>,
    source: Source,
    /// Whether the association has reported that it is full; only `Writable` ends that.
    full: bool,
}

/// An application that sends the data of its [`Source`]s and counts the data that it receives. It reads at once.
#[derive(Debug)]
pub struct Traffic {
    /// The maximum length of an SCTP packet, 1472 bytes.
    pub mtu_bytes: usize,
    /// Whether the time of arrival of every message is kept.
    pub keeps_times: bool,
    /// Time from which gaps between arrivals count. Default: the beginning.
    pub gaps_from: Time,
    now: Time,
    flows: Vec<Flow>,
    /// Sources of associations that are accepted on a port.
    answers: HashMap<u16, Source>,
    unread: Vec<(AssociationId, usize)>,
    /// Associations that may have data to send.
    ready: Vec<AssociationId>,
    /// Associations that send at certain times.
    timed: Vec<AssociationId>,
    joined: BytesMut,
    spare: Vec<Bytes>,
}

impl Default for Traffic {
    fn default() -> Self {
        Traffic {
            mtu_bytes: MTU_BYTES,
            keeps_times: false,
            gaps_from: Time::ZERO,
            now: Time::ZERO,
            flows: Vec::new(),
            answers: HashMap::new(),
            unread: Vec::new(),
            ready: Vec::new(),
            timed: Vec::new(),
            joined: BytesMut::new(),
            spare: Vec::new(),
        }
    }
}

impl Traffic {
    /// Sets the source of an association, which need not be up yet.
    pub fn start(&mut self, id: AssociationId, source: Source) {
        let flow = self.flow_mut(id);
        if flow.closed.is_some() {
            *flow = Flow::default();
        }
        flow.source = source;
        self.begin(id);
    }

    /// Sets the source of associations that are accepted on a port from now on.
    pub fn answer(&mut self, port: u16, source: Source) {
        self.answers.insert(port, source);
    }

    /// Returns an association that this application knows.
    pub fn flow(&self, id: AssociationId) -> Option<&Flow> {
        self.flows.get(id.serial() as usize)
    }

    /// Returns every association, in the order in which they began.
    pub fn flows(&self) -> &[Flow] {
        &self.flows
    }

    /// Returns the totals of all associations together.
    pub fn received(&self) -> Received {
        let mut all = Received::default();
        for Flow { received, .. } in &self.flows {
            all.bytes += received.bytes;
            all.messages += received.messages;
            all.first_at = [all.first_at, received.first_at].into_iter().flatten().min();
            all.last_at = all.last_at.max(received.last_at);
            all.gap_max = all.gap_max.max(received.gap_max);
        }
        all
    }

    fn flow_mut(&mut self, id: AssociationId) -> &mut Flow {
        let index = id.serial() as usize;
        if index >= self.flows.len() {
            self.flows.resize_with(index + 1, Flow::default);
        }
        &mut self.flows[index]
    }

    /// Sets a new source of an association.
    fn begin(&mut self, id: AssociationId) {
        self.ready.push(id);
        if self.flows[id.serial() as usize].source.deadline().is_some() && !self.timed.contains(&id) {
            self.timed.push(id);
        }
    }

    /// Sends as much as the association accepts.
    fn write(&mut self, id: AssociationId, endpoint: &mut Endpoint) {
        let now = self.now;
        let flow = &mut self.flows[id.serial() as usize];
        while !flow.full
            && flow.closed.is_none()
            && let Some(bytes) = flow.source.next(now)
        {
            let info = SendInfo { more: flow.source.goes_on(), ..SendInfo::default() };
            match endpoint.admit(id, &info, bytes) {
                Admission::Granted(permit) => permit.send(now, zeros(bytes)),
                Admission::Full => {
                    flow.full = true;
                    return;
                }
                Admission::Fail(_) => {
                    flow.source = Source::Silent;
                    return;
                }
            }
            flow.source.took(bytes);
        }
    }
}

/// Returns this many zero bytes.
fn zeros(bytes: usize) -> impl Iterator<Item = Bytes> {
    let whole = bytes / ZEROS.len();
    let rest = bytes % ZEROS.len();
    let lengths = std::iter::repeat_n(ZEROS.len(), whole).chain((rest > 0).then_some(rest));
    lengths.map(|length| Bytes::from_static(&ZEROS[..length]))
}

impl Application for Traffic {
    fn set_now(&mut self, now: Time) {
        self.now = now;
    }

    fn act(&mut self, endpoint: &mut Endpoint) {
        for (id, bytes) in self.unread.drain(..) {
            endpoint.consumed(id, bytes, 1);
        }
        let now = self.now;
        for &id in &self.timed {
            if self.flows[id.serial() as usize].source.deadline().is_some_and(|at| at <= now) {
                self.ready.push(id);
            }
        }
        while let Some(id) = self.ready.pop() {
            self.write(id, endpoint);
        }
    }

    fn deadline(&self) -> Option<Time> {
        self.timed.iter().filter_map(|id| self.flows[id.serial() as usize].source.deadline()).min()
    }
}

impl Host for Traffic {
    fn message(&mut self, id: AssociationId, info: &RecvInfo, payload: Payload) {
        let bytes: usize = payload.blocks().iter().map(Bytes::len).sum();
        if let Payload::Many(mut blocks) = payload {
            blocks.clear();
            self.spare = blocks;
        }
        self.unread.push((id, bytes));
        let (now, keeps_times, gaps_from) = (self.now, self.keeps_times, self.gaps_from);
        let flow = self.flow_mut(id);
        flow.received.take(now, gaps_from, bytes);
        if info.more {
            return;
        }
        flow.received.messages += 1;
        if keeps_times {
            flow.times.push(now);
        }
        if flow.source.answers() {
            flow.source.heard();
            self.ready.push(id);
        }
    }

    fn event(&mut self, id: AssociationId, event: Event) {
        let answer = match event {
            Event::Accepted { port, .. } => Some(self.answers.get(&port).copied().unwrap_or_default()),
            _ => None,
        };
        let flow = self.flow_mut(id);
        match event {
            Event::Accepted { .. } => {
                *flow = Flow { up: true, source: answer.unwrap_or_default(), ..Flow::default() };
            }
            Event::Connected { .. } => flow.up = true,
            Event::Writable => flow.full = false,
            Event::Closed(reason) => {
                flow.up = false;
                flow.closed = Some(reason);
            }
            _ => {}
        }
        self.begin(id);
    }

    fn path_hints(&self, _remote: SocketAddr) -> PathHints {
        PathHints { mtu_bytes: self.mtu_bytes, header_bytes: LOWER_HEADER_BYTES, ..PathHints::default() }
    }

    fn spare(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.spare)
    }

    fn join(&mut self, parts: &[Bytes]) -> Bytes {
        self.joined.reserve(parts.iter().map(Bytes::len).sum());
        for part in parts {
            self.joined.extend_from_slice(part);
        }
        self.joined.split().freeze()
    }
}
