//! One path of an association: an address of the peer with its own round-trip time, congestion control and timers.
//!
//! | file | owns |
//! |---|---|
//! | `flight` | packets sent, T3, the loss timer, and the bytes in flight, which only `outbound/run/in_flight` changes |
//! | `rack` | which packets are lost: overtaken by three, or later than reordering explains (RFC 8985) |
//! | `tail_loss_probe` | the time of the probe of the end of a burst, and whether it was needed; a part of `flight` |
//! | `recovery` | the episode that follows a loss |
//! | `prr` | how much leaves while a loss is repaired: as much as arrives, in proportion (RFC 6937); a part of `recovery` |
//! | `spurious_loss` | whether the last reduction was a mistake (RFC 5682, RFC 3708); a part of `recovery` |
//! | `reachability` | the state of the path and its error counter (RFC 9260 §8.2, RFC 7829) |
//! | `silence` | since when the path has not answered, and how often it was suspected by mistake |
//! | `heartbeat` | when heartbeats are due, and which are unanswered |
//! | `pacer` | when the next batch leaves: a millisecond of the rate, between two packets and 64 KB |
//! | `delivery` | how fast the path delivers, for controllers that model it |
//! | `mtu` | the maximum packet length: probes, and reports of routers (RFC 8899) |
//!
//! `sent`, `acked`, `lost`, `probing` and `failover` pass each event on to these owners; `window` combines what they allow.
//! `paths` has all paths of an association.

mod acked;
mod delivery;
mod failover;
mod flight;
mod heartbeat;
mod lost;
mod mtu;
mod pacer;
mod paths;
mod probing;
mod prr;
mod rack;
mod reachability;
mod recovery;
mod sent;
mod settings;
mod silence;
mod spurious_loss;
mod tail_loss_probe;
#[cfg(test)]
mod tests;
mod window;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use sctp_message::PathId;

use crate::config::{AssociationConfig, RtoConfig};
use crate::congestion::Controller;
use crate::packet_number::PacketNumber;
use crate::path_hints::PathHints;
use crate::path_state::PathState;
use crate::rto::Rto;
use crate::statistics::{PathCounts, PathStatistics};
use crate::time::Time;
use crate::trace::{PathNotes, Probe, Timer, Tracer};

pub(crate) use acked::AckedPackets;
use delivery::Delivery;
use flight::Flight;
pub(crate) use flight::SentPacket;
use heartbeat::Heartbeat;
pub(crate) use lost::PacketLoss;
use mtu::Discovery;
use pacer::Pacer;
pub(crate) use paths::Paths;
use prr::Prr;
use rack::Rack;
pub(crate) use rack::Verdict;
use reachability::Reachability;
use recovery::Recovery;
pub(crate) use sent::SentData;
pub(crate) use settings::PathSettings;
pub(crate) use silence::PROBE_INTERVAL;
use silence::Silence;
pub(crate) use spurious_loss::LateArrivals;
pub(crate) use tail_loss_probe::Expired;
pub(crate) use window::couple;

/// Time without packets to the local address of a working path after which packets to another one move the path there:
/// the peer has given the first up.
const LOCAL_ADDRESS_KEPT: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(crate) struct Path {
    /// Only [`Paths`] sets it.
    id: PathId,
    remote: SocketAddr,
    local: Option<IpAddr>,
    /// When the last packet came to `local`; `None` if none has.
    local_reached: Option<Time>,
    reachability: Reachability,
    settings: PathSettings,
    rto: Rto,
    /// Maximum packet length; only [`Path::set_mtu`] changes it.
    mtu_bytes: usize,
    discovery: Discovery,
    /// Number of bytes that the buffers between sockets of the same host hold.
    in_flight_limit_bytes: Option<usize>,
    congestion: Box<dyn Controller>,
    /// Limit of the bytes in flight until the next acknowledgement, so that a burst has no more than Max.Burst packets.
    burst_ends_bytes: usize,
    flight: Flight,
    rack: Rack,
    recovery: Recovery,
    delivery: Delivery,
    pacer: Pacer,
    /// Number of the first packet that was sent without another one being held back by the window or the pacer.
    limited_until: PacketNumber,
    heartbeat: Heartbeat,
    silence: Silence,
    /// Number of chunks that the last SACK on this path acknowledged in all: an unwrapped TSN, plus the chunks in gap blocks.
    acked_chunks: u64,
    counts: PathCounts,
    notes: PathNotes,
}

impl Path {
    pub(crate) fn new(
        remote: SocketAddr,
        local: Option<IpAddr>,
        hints: PathHints,
        config: &AssociationConfig,
    ) -> Self {
        let discovery = Discovery::new(hints, config.path_mtu_discovery, config.path_mtu_bytes);
        let mtu_bytes = discovery.size_bytes();
        let pmdcs_bytes = chunks_bytes(mtu_bytes);
        let cwnd_bytes = window::first_window_bytes(config, pmdcs_bytes, remote);
        Path {
            id: PathId(0),
            remote,
            local,
            local_reached: None,
            reachability: Reachability::default(),
            settings: PathSettings::new(config),
            rto: Rto::new(&config.rto),
            mtu_bytes,
            discovery,
            in_flight_limit_bytes: hints.in_flight_limit_bytes,
            congestion: config.coupling.controller(config.congestion, pmdcs_bytes, cwnd_bytes),
            burst_ends_bytes: window::burst_bytes(config.burst_packets_max, pmdcs_bytes),
            flight: Flight::default(),
            rack: Rack::new(),
            recovery: Recovery::default(),
            delivery: Delivery::default(),
            pacer: Pacer::default(),
            limited_until: PacketNumber::default(),
            heartbeat: Heartbeat::default(),
            silence: Silence::default(),
            acked_chunks: 0,
            counts: PathCounts::default(),
            notes: PathNotes::new(config.trace),
        }
    }

    #[inline]
    pub(crate) fn id(&self) -> PathId {
        self.id
    }

    fn set_id(&mut self, id: PathId) {
        self.id = id;
    }

    #[inline]
    pub(crate) fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// Sets the UDP encapsulation port of the peer. Returns whether it differs.
    fn set_remote_port(&mut self, port: u16) -> bool {
        let differs = self.remote.port() != port;
        self.remote.set_port(port);
        differs
    }

    /// Returns the local address to send from.
    #[inline]
    pub(crate) fn local(&self) -> Option<IpAddr> {
        self.local
    }

    /// Counts a packet that came from the peer's address to `local`, if that is known, and decides from which local
    /// address the next packets leave. Returns false if they do not leave from `local`.
    pub(crate) fn on_received(&mut self, now: Time, local: Option<IpAddr>, is_probe: bool) -> bool {
        self.counts.packets_received += 1;
        let is_kept = self.keeps_local(now, local, is_probe);
        if !is_kept && local.is_some() {
            (self.local, self.local_reached) = (local, Some(now));
        }
        !is_kept
    }

    /// Returns whether packets go on to leave from another local address than the one that a packet came to.
    ///
    /// The peer may send to several of ours, and a network may deliver only what comes from one of them, so an address
    /// stays while packets come to it. A probe moves nothing while the path works: the peer probes all our addresses.
    pub(crate) fn keeps_local(&self, now: Time, local: Option<IpAddr>, is_probe: bool) -> bool {
        let is_other = local.is_some() && self.local.is_some() && self.local != local;
        let is_recent = |reached| now.saturating_since(reached) <= LOCAL_ADDRESS_KEPT;
        let is_reached = self.local_reached.is_some_and(is_recent);
        is_other && self.takes_data() && (is_probe || is_reached)
    }

    #[inline]
    pub(crate) fn state(&self) -> PathState {
        self.reachability.state()
    }

    /// Returns whether the peer has answered on this path lately.
    pub(crate) fn is_answering(&self) -> bool {
        self.reachability.is_answering()
    }

    /// Returns whether new data may take this path.
    #[inline]
    pub(crate) fn takes_data(&self) -> bool {
        self.state() == PathState::Active
    }

    /// Returns the order of preference while no path takes data (RFC 7829 §5.1: the fewest errors).
    pub(crate) fn failover_rank(&self) -> (u8, u32) {
        (self.state().rank(), self.reachability.errors())
    }

    /// Returns whether packets stay on this host.
    pub(crate) fn stays_on_host(&self) -> bool {
        self.in_flight_limit_bytes.is_some()
    }

    #[inline]
    pub(crate) fn settings(&self) -> &PathSettings {
        &self.settings
    }

    #[inline]
    pub(crate) fn rto(&self) -> &Rto {
        &self.rto
    }

    /// Takes the round-trip time of the handshake.
    pub(crate) fn on_handshake_measured(&mut self, now: Time, rtt: Duration, limits: &RtoConfig) {
        self.rto.measure(now, rtt, limits);
    }

    /// Marks the measured round-trip time as stale; the next measurement counts as the first.
    pub(crate) fn mark_rtt_stale(&mut self, now: Time) {
        self.rto.mark_stale(now);
    }

    /// Applies changed limits of the RTO.
    pub(crate) fn change_rto_limits(&mut self, old: &RtoConfig, new: &RtoConfig) {
        self.rto.change_limits(old, new);
    }

    #[inline]
    pub(crate) fn mtu_bytes(&self) -> usize {
        self.mtu_bytes
    }

    #[inline]
    pub(crate) fn in_flight_bytes(&self) -> usize {
        self.flight.bytes()
    }

    /// Returns the number of the next packet.
    #[inline]
    pub(crate) fn next_packet(&self) -> PacketNumber {
        self.flight.next_packet()
    }

    /// Returns the number of the oldest packet that is remembered, or of the next one if none is.
    pub(crate) fn first_packet(&self) -> PacketNumber {
        self.flight.first_packet()
    }

    #[inline]
    pub(crate) fn sent_packet(&self, number: PacketNumber) -> Option<&SentPacket> {
        self.flight.packet(number)
    }

    /// Returns the packets that are remembered, the oldest first.
    pub(crate) fn sent_packets(&self) -> impl DoubleEndedIterator<Item = (PacketNumber, &SentPacket)> {
        self.flight.packets()
    }

    #[cfg(feature = "testing")]
    pub(crate) fn remembered_packets(&self) -> usize {
        self.flight.remembered_packets()
    }

    #[inline]
    pub(crate) fn last_sent_at(&self) -> Time {
        self.flight.last_sent_at()
    }

    /// Returns when T3-rtx expires.
    #[inline]
    pub(crate) fn t3(&self) -> Option<Time> {
        self.flight.t3()
    }

    /// Returns when the oldest packet counts as lost if it is still missing.
    #[inline]
    pub(crate) fn loss_timer(&self) -> Option<Time> {
        self.flight.loss_timer()
    }

    /// Returns when the tail loss probe is due.
    #[inline]
    pub(crate) fn tail_loss_probe_at(&self) -> Option<Time> {
        self.flight.probe_at()
    }

    /// Returns when T3 or the heartbeat timer expires: each sends a packet again, and starts once more.
    #[inline]
    pub(crate) fn repeats_at(&self) -> Option<Time> {
        Time::earliest([self.flight.t3(), self.heartbeat.due_at()])
    }

    /// Returns the earliest of the other timers, except for those of the pacer and of a path failure.
    #[inline]
    pub(crate) fn prompt_at(&self) -> Option<Time> {
        let (flight, heartbeat) = (&self.flight, &self.heartbeat);
        Time::earliest([heartbeat.answer_by(), flight.loss_timer(), flight.probe_at()])
    }

    /// Returns whether the window stays as it is: a loss is being repaired, or the exit point was not reached.
    #[inline]
    pub(crate) fn holds_window(&self) -> bool {
        self.recovery.holds_window()
    }

    /// Records the number of chunks that a SACK on this path acknowledged in all. Returns the number of the SACK before.
    #[inline]
    pub(crate) fn on_sack(&mut self, chunks: u64) -> u64 {
        std::mem::replace(&mut self.acked_chunks, chunks)
    }

    /// Records that a probe leaves.
    pub(crate) fn note_probe(&mut self, now: Time, probe: Probe) {
        self.notes.probe(now, probe);
    }

    /// Records that a timer which counts as an error of the path has expired.
    pub(crate) fn note_timer(&mut self, now: Time, timer: Timer) {
        self.notes.timer(now, timer, self.reachability.errors() + 1);
    }

    /// Moves the notes of this path to the tracer of the association.
    pub(crate) fn move_notes(&mut self, tracer: &mut Tracer) {
        tracer.take_notes(self.id.index(), &mut self.notes);
    }

    pub(crate) fn statistics(&self) -> PathStatistics {
        PathStatistics {
            remote: self.remote,
            local: self.local,
            active: self.state().is_usable(),
            state: self.state(),
            heartbeats: self.settings.heartbeats,
            heartbeat_interval: self.settings.heartbeat_interval,
            sack_delay: self.settings.sack_delay,
            dscp: self.settings.dscp,
            mtu_bytes: self.mtu_bytes,
            ip_mtu_bytes: self.ip_mtu_bytes(),
            cwnd_bytes: self.congestion.cwnd_bytes(),
            ssthresh_bytes: Some(self.congestion.ssthresh_bytes()).filter(|bytes| *bytes != usize::MAX),
            in_flight_bytes: self.flight.bytes(),
            pacing_bytes_per_s: self.pacing_rate(),
            latest_rtt: self.rto.latest(),
            srtt: self.rto.srtt(),
            rttvar: self.rto.rttvar(),
            min_rtt: self.rack.min_rtt(),
            rto: self.rto.current(),
            errors: self.reachability.errors(),
            retries_max: self.settings.retries_max,
            potentially_failed_retries_max: self.settings.potentially_failed_retries_max,
            timeouts: self.counts.timeouts,
            packets_sent: self.counts.packets_sent,
            packets_received: self.counts.packets_received,
            packets_lost: self.counts.packets_lost,
            data_chunks_retransmitted: self.counts.data_chunks_retransmitted,
            delivered_bytes: self.delivery.delivered_bytes(),
            tail_probes: self.counts.tail_probes,
            reductions_undone: self.counts.reductions_undone,
            early_failovers: self.counts.early_failovers,
            early_failovers_spurious: self.counts.early_failovers_spurious,
            data_chunks_rerouted: self.counts.data_chunks_rerouted,
            mtu_state: self.discovery.state(),
            mtu_probes_sent: self.discovery.probes_sent(),
            mtu_probes_lost: self.discovery.probes_lost(),
        }
    }
}

/// Returns the maximum length of the chunks in a packet (PMDCS, RFC 9260 §7.2.1), the unit of windows.
fn chunks_bytes(mtu_bytes: usize) -> usize {
    mtu_bytes - sctp_wire::packet::HEADER_BYTES
}
