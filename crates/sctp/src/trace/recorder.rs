//! Rings of waiting records, and the previous state of an association, to find its changes.

use std::collections::VecDeque;
use std::net::SocketAddr;

use sctp_wire::Packet;
use sctp_wire::chunk::{Data, NrSack, Pad, RawChunk, Sack};
use sctp_wire::packet::HEADER_BYTES;
use smallvec::SmallVec;

use super::{
    CongestionPhase, Contents, DataContents, Event, LossReason, Metrics, Probe, Record, SackContents, Timer,
    UndoReason,
};
use crate::identifiers::AssociationId;
use crate::identity::Identity;
use crate::packet_number::PacketNumber;
use crate::path_state::PathState;
use crate::statistics::AssociationState;
use crate::time::Time;

/// Maximum number of waiting records of one association.
pub const RECORDS_MAX: usize = 4096;

/// State of an association, for comparison with its previous state.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) state: AssociationState,
    pub(crate) cumulative_tsn: u32,
    pub(crate) paths: SmallVec<[PathSnapshot; 2]>,
}

/// State of a path, for the same comparison.
#[derive(Debug, Clone)]
pub(crate) struct PathSnapshot {
    pub(crate) remote: SocketAddr,
    pub(crate) state: PathState,
    pub(crate) in_recovery: bool,
    pub(crate) delivered_bytes: u64,
    pub(crate) metrics: Metrics,
}

impl PathSnapshot {
    fn phase(&self) -> CongestionPhase {
        match self.metrics.ssthresh_bytes {
            _ if self.in_recovery => CongestionPhase::Recovery,
            Some(ssthresh) if self.metrics.cwnd_bytes >= ssthresh => CongestionPhase::CongestionAvoidance,
            _ => CongestionPhase::SlowStart,
        }
    }
}

/// The records of one association, and its state when the last record was made.
#[derive(Debug)]
pub(crate) struct Tracer {
    tag: u32,
    ports: (u16, u16),
    started: bool,
    ring: VecDeque<Record>,
    dropped: u64,
    state: AssociationState,
    paths: SmallVec<[PathSnapshot; 2]>,
    /// Whether the endpoint knows that records wait.
    listed: bool,
    /// Memory for the packet that is examined.
    scratch: Vec<u8>,
}

impl Tracer {
    pub(crate) fn new(identity: &Identity) -> Self {
        Tracer {
            tag: identity.local_tag.0,
            ports: (identity.local_port, identity.peer_port),
            started: false,
            ring: VecDeque::new(),
            dropped: 0,
            state: AssociationState::Closed,
            paths: SmallVec::new(),
            listed: false,
            scratch: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, at: Time, path: Option<usize>, event: Event) {
        if self.ring.len() >= RECORDS_MAX {
            self.ring.pop_front();
            self.dropped += 1;
        }
        let path = path.and_then(|path| u8::try_from(path).ok());
        self.ring.push_back(Record { at, tag: self.tag, path, event });
    }

    /// Returns whether records wait that the endpoint does not know about, and marks them as known.
    pub(crate) fn take_news(&mut self) -> bool {
        !self.ring.is_empty() && !std::mem::replace(&mut self.listed, true)
    }

    /// Takes the oldest record; a record of the number of missing ones comes first.
    pub(crate) fn pop(&mut self) -> Option<Record> {
        let Some(first) = self.ring.front() else {
            self.listed = false;
            return None;
        };
        match std::mem::take(&mut self.dropped) {
            0 => self.ring.pop_front(),
            records => {
                Some(Record { at: first.at, tag: self.tag, path: None, event: Event::Dropped { records } })
            }
        }
    }

    pub(crate) fn packet_received(&mut self, now: Time, path: usize, packet: &Packet<'_>) {
        self.push(now, Some(path), Event::PacketReceived { contents: contents(packet, 0) });
    }

    /// Records a sent packet given in pieces; `retransmitted` of its DATA chunks were sent before.
    pub(crate) fn packet_sent<'a>(
        &mut self,
        now: Time,
        path: usize,
        number: Option<PacketNumber>,
        retransmitted: u64,
        pieces: impl Iterator<Item = &'a [u8]>,
    ) {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        pieces.for_each(|piece| scratch.extend_from_slice(piece));
        if let Ok(packet) = Packet::parse(&scratch) {
            let contents = contents(&packet, u16::try_from(retransmitted).unwrap_or(u16::MAX));
            self.push(now, Some(path), Event::PacketSent { number: number.map(PacketNumber::get), contents });
        }
        self.scratch = scratch;
    }

    /// Records the final packet of an association.
    pub(crate) fn record_final_packet(&mut self, path: usize, packet: &[u8]) {
        if let Some(now) = self.ring.back().map(|record| record.at) {
            self.packet_sent(now, path, None, 0, std::iter::once(packet));
        }
    }

    /// Takes over the notes of a path.
    pub(crate) fn take_notes(&mut self, path: usize, notes: &mut PathNotes) {
        let Some(notes) = &mut notes.0 else { return };
        for (at, event) in notes.events.drain(..) {
            self.push(at, Some(path), event);
        }
        self.dropped += std::mem::take(&mut notes.dropped);
    }

    /// Records the changes since the last call.
    pub(crate) fn compare(&mut self, now: Time, association: AssociationId, current: Snapshot) {
        if !std::mem::replace(&mut self.started, true) {
            let (local_port, peer_port) = self.ports;
            self.push(now, None, Event::Started { association, local_port, peer_port });
        }
        for (id, path) in current.paths.iter().enumerate() {
            self.compare_path(now, id, path, current.cumulative_tsn);
        }
        if self.state != current.state {
            let old = std::mem::replace(&mut self.state, current.state);
            self.push(now, None, Event::StateChanged { old, new: current.state });
        }
        self.paths = current.paths;
    }

    fn compare_path(&mut self, now: Time, id: usize, path: &PathSnapshot, cumulative_tsn: u32) {
        let at = Some(id);
        let Some(old) = self.paths.get(id).cloned() else {
            self.push(now, at, Event::PathAdded { remote: path.remote });
            return self.push(now, at, Event::Metrics(path.metrics));
        };
        if old.remote != path.remote {
            self.push(now, at, Event::PathAdded { remote: path.remote });
        }
        if old.state != path.state {
            self.push(now, at, Event::PathStateChanged { old: old.state, new: path.state });
        }
        // A restart of the peer creates the paths anew, and they count from zero.
        if path.delivered_bytes > old.delivered_bytes {
            let bytes = path.delivered_bytes - old.delivered_bytes;
            self.push(now, at, Event::DataAcked { bytes, cumulative_tsn });
        }
        if old.phase() != path.phase() {
            self.push(now, at, Event::CongestionChanged { old: old.phase(), new: path.phase() });
        }
        if old.metrics != path.metrics {
            self.push(now, at, Event::Metrics(path.metrics));
        }
    }
}

/// Records the expiry of a timer of the association as a whole.
pub(crate) fn note_timer(tracer: &mut Option<Box<Tracer>>, now: Time, timer: Timer, count: u32) {
    if let Some(tracer) = tracer {
        tracer.push(now, None, Event::TimerExpired { timer, count });
    }
}

/// Notes of a path during a call of its association; `None` inside unless the association is traced.
#[derive(Debug, Default)]
pub(crate) struct PathNotes(Option<Box<Notes>>);

#[derive(Debug, Default)]
struct Notes {
    events: Vec<(Time, Event)>,
    dropped: u64,
}

impl PathNotes {
    pub(crate) fn new(on: bool) -> Self {
        PathNotes(on.then(Box::default))
    }

    #[inline]
    fn note(&mut self, now: Time, event: impl FnOnce() -> Event) {
        if let Some(notes) = &mut self.0 {
            notes.add(now, event());
        }
    }

    #[inline]
    pub(crate) fn lost(&mut self, now: Time, number: PacketNumber, bytes: usize, reason: LossReason) {
        self.note(now, || {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            Event::PacketLost { number: number.get(), bytes, reason }
        });
    }

    #[inline]
    pub(crate) fn probe(&mut self, now: Time, probe: Probe) {
        self.note(now, || Event::ProbeSent { probe });
    }

    #[inline]
    pub(crate) fn timer(&mut self, now: Time, timer: Timer, count: u32) {
        self.note(now, || Event::TimerExpired { timer, count });
    }

    #[inline]
    pub(crate) fn undone(&mut self, now: Time, reason: UndoReason) {
        self.note(now, || Event::LossUndone { reason });
    }
}

impl Notes {
    #[cold]
    fn add(&mut self, now: Time, event: Event) {
        if self.events.len() < RECORDS_MAX {
            self.events.push((now, event));
        } else {
            self.dropped += 1;
        }
    }
}

/// Examines a packet.
fn contents(packet: &Packet<'_>, retransmitted: u16) -> Contents {
    let mut contents = Contents::default();
    let mut bytes = HEADER_BYTES;
    for raw in packet.chunks() {
        let Ok(raw) = raw else { break };
        bytes += raw.whole.len().next_multiple_of(4);
        match raw.kind {
            Data::KIND => {
                let Ok(chunk) = Data::parse(&raw) else { continue };
                let data = contents.data.get_or_insert(DataContents {
                    chunks: 0,
                    retransmitted,
                    first_tsn: chunk.tsn.0,
                    last_tsn: chunk.tsn.0,
                    payload_bytes: 0,
                });
                data.chunks += 1;
                data.last_tsn = chunk.tsn.0;
                data.payload_bytes += chunk.payload.len() as u32;
            }
            Pad::KIND => {}
            kind => {
                if let Some(slot) = contents.control_kinds.get_mut(usize::from(contents.control_chunks)) {
                    *slot = kind;
                }
                contents.control_chunks += 1;
                contents.sack = contents.sack.or_else(|| sack_contents(&raw));
            }
        }
    }
    contents.bytes = bytes as u32;
    contents
}

/// Returns the contents of a SACK or NR-SACK.
fn sack_contents(raw: &RawChunk<'_>) -> Option<SackContents> {
    let (cum_tsn, a_rwnd, gaps, duplicates) = match raw.kind {
        Sack::KIND => {
            let sack = Sack::parse(raw).ok()?;
            (sack.cum_tsn, sack.a_rwnd, sack.gap_blocks().len(), sack.duplicates().len())
        }
        NrSack::KIND => {
            let sack = NrSack::parse(raw).ok()?;
            let gaps = sack.gap_blocks().len() + sack.nr_gap_blocks().len();
            (sack.cum_tsn, sack.a_rwnd, gaps, sack.duplicates().len())
        }
        _ => return None,
    };
    let count = |items: usize| u16::try_from(items).unwrap_or(u16::MAX);
    Some(SackContents {
        cumulative_tsn: cum_tsn.0,
        window_bytes: a_rwnd,
        gaps: count(gaps),
        duplicates: count(duplicates),
    })
}
