//! Counters and measurements, and their changes (see [`crate::trace`]).

use smallvec::SmallVec;

use super::{Association, State};
use crate::identifiers::AssociationId;
use crate::inbound::Inbound;
use crate::path::Path;
use crate::statistics::{AssociationState, EndpointStatistics, STATISTICS_VERSION, Statistics};
use crate::time::Time;
use crate::trace::{Metrics, PathSnapshot, Record, Snapshot, Tracer};

impl State {
    /// Returns the name of the state.
    pub(super) fn name(&self) -> AssociationState {
        match self {
            State::CookieWait(_) => AssociationState::CookieWait,
            State::CookieEchoed { .. } => AssociationState::CookieEchoed,
            State::Established => AssociationState::Established,
            State::ShutdownPending { .. } => AssociationState::ShutdownPending,
            State::ShutdownSent { .. } => AssociationState::ShutdownSent,
            State::ShutdownReceived { .. } => AssociationState::ShutdownReceived,
            State::ShutdownAckSent { .. } => AssociationState::ShutdownAckSent,
            State::Closed { .. } => AssociationState::Closed,
        }
    }
}

impl Association {
    pub(crate) fn id(&self) -> AssociationId {
        self.id
    }

    pub(crate) fn state(&self) -> AssociationState {
        self.state.name()
    }

    pub(crate) fn statistics(&self) -> Statistics {
        let longest = self.paths.iter().max_by_key(|path| path.rto().longest());
        Statistics {
            version: STATISTICS_VERSION,
            state: self.state.name(),
            local_port: self.identity.local_port,
            peer_port: self.identity.peer_port,
            streams_out: self.outbound.streams(),
            streams_in: self.inbound.as_ref().map_or(0, Inbound::streams),
            multipath: self.outbound.is_multipath(),
            nr_sack: self.peer.extensions().nr_sack,
            errors: self.errors.count(),
            retries_max: self.config.association_retries_max,
            rto_max: longest.map_or_else(Default::default, |path| path.rto().longest()),
            rto_max_path: longest.map(Path::remote),
            outstanding_bytes: self.outbound.in_flight_payload_bytes() as u64,
            outstanding_chunks: self.outbound.outstanding_chunks() as u64,
            send_buffered_bytes: self.outbound.buffered_bytes() as u64,
            receive_buffered_bytes: self.unread_bytes() as u64,
            receive_state_bytes: self.inbound.as_ref().map_or(0, Inbound::state_bytes) as u64,
            peer_window_bytes: self.outbound.peer_window_bytes() as u64,
            fragmentation_point_bytes: self.fragmentation_point_bytes() as u64,
            primary: self.paths.primary().index(),
            paths: self.paths.iter().map(|path| path.statistics()).collect(),
            ..self.statistics.clone()
        }
    }

    /// Returns the bytes that were received and that the user has not read.
    pub(super) fn unread_bytes(&self) -> usize {
        self.inbound.unread_bytes()
    }

    /// Adds the counters of this association to those of its endpoint.
    pub(crate) fn add_to(&self, endpoint: &mut EndpointStatistics) {
        endpoint.add(&self.statistics);
        endpoint.established += u64::from(self.may_carry_data());
    }

    /// Adds the association's counters to the endpoint's when the association ends.
    pub(crate) fn add_final_counts_to(&self, endpoint: &mut EndpointStatistics) {
        endpoint.add(&self.statistics);
    }

    /// Records the changes of a call. The endpoint calls it after each.
    #[inline]
    pub(crate) fn trace_changes(&mut self, now: Time) {
        if let Some(mut tracer) = self.trace.take() {
            self.compare(now, &mut tracer);
            self.trace = Some(tracer);
        }
    }

    /// Returns whether there are records that the endpoint has not queued yet.
    #[inline]
    pub(crate) fn take_trace_news(&mut self) -> bool {
        self.trace.as_mut().is_some_and(|tracer| tracer.take_news())
    }

    pub(crate) fn pop_trace(&mut self) -> Option<Record> {
        self.trace.as_mut()?.pop()
    }

    pub(crate) fn take_tracer(&mut self) -> Option<Box<Tracer>> {
        self.trace.take()
    }

    #[cold]
    fn compare(&mut self, now: Time, tracer: &mut Tracer) {
        for path in &mut self.paths {
            path.move_notes(tracer);
        }
        let paths: SmallVec<[PathSnapshot; 2]> = self.paths.iter().map(|path| self.snapshot(path)).collect();
        let cumulative_tsn = self.outbound.cumulative_tsn().0;
        tracer.compare(now, self.id, Snapshot { state: self.state.name(), cumulative_tsn, paths });
    }

    fn snapshot(&self, path: &Path) -> PathSnapshot {
        let statistics = path.statistics();
        PathSnapshot {
            remote: path.remote(),
            state: path.state(),
            in_recovery: path.holds_window(),
            delivered_bytes: statistics.delivered_bytes,
            metrics: Metrics {
                cwnd_bytes: statistics.cwnd_bytes as u64,
                ssthresh_bytes: statistics.ssthresh_bytes.map(|bytes| bytes as u64),
                in_flight_bytes: statistics.in_flight_bytes as u64,
                pacing_bytes_per_s: statistics.pacing_bytes_per_s,
                latest_rtt: statistics.latest_rtt,
                srtt: statistics.srtt,
                rttvar: statistics.rttvar,
                min_rtt: statistics.min_rtt,
                rto: statistics.rto,
                mtu_bytes: statistics.mtu_bytes as u64,
                peer_window_bytes: self.outbound.peer_window_bytes() as u64,
                send_buffered_bytes: self.outbound.buffered_bytes() as u64,
            },
        }
    }
}
