//! One path of an association: an address of the peer with its own round-trip time, congestion control and timers.

mod delivery;
mod doubt;
pub(crate) mod mtu;
mod pacer;
mod rack;
mod reduction;
mod suspicion;
mod tail;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::Duration;

use smallvec::SmallVec;

use crate::config::{AssociationConfig, HEARTBEAT_INTERVAL};
use crate::congestion::{Controller, Pool, Signal, initial_window_bytes, rate_bytes_per_s};
use crate::packet_number::after;
use crate::path_hints::PathHints;
use crate::path_state::PathState;
use crate::rto::Rto;
use crate::statistics::{PathCounts, PathStatistics};
use crate::time::Time;
use crate::trace::{LossReason, PathNotes, UndoReason};

use delivery::{Delivery, Mark};
use doubt::Doubt;
use mtu::Discovery;
use pacer::Pacer;
use rack::Rack;
pub(crate) use rack::Verdict;
use reduction::Reduction;
use suspicion::Suspicion;
use tail::{Tail, TailState};

/// Heartbeats that wait for their answers on one path; an older one is forgotten.
const PROBES_MAX: usize = 8;

/// A packet with DATA chunks, kept until it is known to have arrived or to be lost.
#[derive(Debug)]
pub(crate) struct SentPacket {
    pub(crate) sent_at: Time,
    /// Unwrapped TSNs of its chunks. One range for new data, several for retransmissions.
    pub(crate) tsns: SmallVec<[Range<u64>; 1]>,
    /// Whether every chunk in it is sent for the first time (Karn's rule).
    pub(crate) first_transmission: bool,
    /// Whether a black hole for long packets would swallow it.
    pub(crate) long: bool,
    /// What the path had delivered when it left.
    pub(crate) mark: Mark,
}

/// A heartbeat that was sent and not yet answered.
#[derive(Debug, Clone, Copy)]
struct Probe {
    nonce: u64,
    sent_at: Time,
}

/// What can be set for each path.
#[derive(Debug, Clone)]
pub(crate) struct PathSettings {
    /// Whether it is probed while it is idle.
    pub(crate) heartbeats: bool,
    pub(crate) heartbeat_interval: Duration,
    pub(crate) retries_max: u32,
    pub(crate) potentially_failed_retries_max: u32,
    pub(crate) sack_delay: Duration,
    pub(crate) burst_packets_max: Option<u32>,
    /// Its own codepoint.
    pub(crate) dscp: Option<u8>,
}

impl PathSettings {
    fn new(config: &AssociationConfig) -> Self {
        PathSettings {
            heartbeats: config.heartbeat_interval.is_some(),
            heartbeat_interval: config.heartbeat_interval.unwrap_or(HEARTBEAT_INTERVAL),
            retries_max: config.path_retries_max,
            potentially_failed_retries_max: config.potentially_failed_retries_max,
            sack_delay: config.sack_delay,
            burst_packets_max: config.burst_packets_max,
            dscp: None,
        }
    }

    /// How long it may be idle before it is probed, if it is.
    pub(crate) fn heartbeat_interval(&self) -> Option<Duration> {
        self.heartbeats.then_some(self.heartbeat_interval)
    }
}

#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) remote: SocketAddr,
    pub(crate) local: Option<IpAddr>,
    pub(crate) state: PathState,
    pub(crate) settings: PathSettings,
    pub(crate) rto: Rto,
    pub(crate) errors: u32,
    /// How long packets may be; only [`Path::set_mtu`] changes it.
    pub(crate) mtu_bytes: usize,
    pub(crate) discovery: Discovery,
    /// What the link's buffers hold on the way to a peer on the same host.
    pub(crate) in_flight_limit_bytes: Option<usize>,
    pub(crate) congestion: Box<dyn Controller>,
    pub(crate) in_flight_bytes: usize,
    /// What may be in flight until the next acknowledgement, so that it sets no more free than Max.Burst.
    burst_ends_bytes: usize,
    /// Sent packets by number; the front one has number `first_packet`.
    pub(crate) sent: VecDeque<SentPacket>,
    pub(crate) first_packet: u32,
    /// Which packets are lost.
    pub(crate) rack: Rack,
    /// When the packet that is late is lost.
    pub(crate) late_at: Option<Time>,
    /// Losses among packets before this one belong to a window that was reduced already.
    pub(crate) recovery_until: u32,
    /// And so do losses while chunks before this TSN (unwrapped) are outstanding: the fast recovery exit point.
    pub(crate) exit_tsn: u64,
    /// Whether that window is still being repaired.
    recovering: bool,
    /// How much may leave meanwhile.
    reduction: Option<Reduction>,
    pub(crate) doubt: Doubt,
    pub(crate) delivery: Delivery,
    pub(crate) pacer: Pacer,
    pub(crate) tail: Tail,
    /// Packets before this one left while the window or the pacer held others back.
    limited_until: u32,
    /// Loss was found just now: one packet goes again whatever the congestion window is (RFC 9260 §7.2.4, 3).
    pub(crate) retransmits_at_once: bool,
    pub(crate) t3: Option<Time>,
    /// When a heartbeat is due.
    pub(crate) heartbeat_at: Option<Time>,
    /// When a heartbeat that left before counts as not answered.
    pub(crate) answer_by: Option<Time>,
    /// The heartbeats that were not answered, the oldest first.
    probes: SmallVec<[Probe; PROBES_MAX]>,
    pub(crate) suspicion: Suspicion,
    /// Packets before this one were answered, or are not waited for any more.
    pub(crate) unanswered: u32,
    pub(crate) last_sent_at: Time,
    /// How many chunks in all the last SACK that came here said to have arrived (an unwrapped TSN and what gap blocks add).
    pub(crate) reported: u64,
    /// The last packet asked for its SACK at once, so that none is held back by the peer.
    pub(crate) tail_asks: bool,
    pub(crate) counts: PathCounts,
    /// For those who look on.
    pub(crate) notes: PathNotes,
}

/// Steps after which an idle path is back at its initial window, however wide it was.
const IDLE_STEPS_MAX: usize = 32;

impl Path {
    pub(crate) fn new(
        remote: SocketAddr,
        local: Option<IpAddr>,
        hints: PathHints,
        config: &AssociationConfig,
    ) -> Self {
        let ipv6 = remote.ip().to_canonical().is_ipv6();
        let discovery = Discovery::new(hints, ipv6, config.path_mtu_discovery);
        let mtu_bytes = discovery.size_bytes();
        let pmdcs_bytes = chunks_bytes(mtu_bytes);
        let cwnd_bytes = initial_window_bytes(pmdcs_bytes, ipv6);
        Path {
            remote,
            local,
            state: PathState::Unconfirmed,
            settings: PathSettings::new(config),
            rto: Rto::new(&config.rto),
            errors: 0,
            mtu_bytes,
            discovery,
            in_flight_limit_bytes: hints.in_flight_limit_bytes,
            congestion: config.coupling.controller(config.congestion, pmdcs_bytes, cwnd_bytes),
            in_flight_bytes: 0,
            burst_ends_bytes: burst_bytes(config.burst_packets_max, pmdcs_bytes),
            sent: VecDeque::new(),
            first_packet: 0,
            rack: Rack::new(),
            late_at: None,
            recovery_until: 0,
            exit_tsn: 0,
            recovering: false,
            reduction: None,
            doubt: Doubt::default(),
            delivery: Delivery::default(),
            pacer: Pacer::default(),
            tail: Tail::default(),
            limited_until: 0,
            retransmits_at_once: false,
            t3: None,
            heartbeat_at: None,
            answer_by: None,
            probes: SmallVec::new(),
            suspicion: Suspicion::default(),
            unanswered: 0,
            last_sent_at: Time::ZERO,
            reported: 0,
            tail_asks: false,
            counts: PathCounts::default(),
            notes: PathNotes::new(config.trace),
        }
    }

    /// What may be in flight: the congestion window, or while a loss is repaired what the reduction allows.
    #[inline]
    pub(crate) fn cwnd_bytes(&self) -> usize {
        let window_bytes = match &self.reduction {
            None => self.congestion.cwnd_bytes(),
            Some(reduction) => reduction.window_bytes(),
        };
        window_bytes.min(self.burst_ends_bytes)
    }

    /// Nothing is known any more of what packets meet on their way.
    #[cold]
    pub(crate) fn restart_congestion(&mut self, config: &AssociationConfig) {
        let pmdcs_bytes = chunks_bytes(self.mtu_bytes);
        let cwnd_bytes = initial_window_bytes(pmdcs_bytes, self.remote.ip().to_canonical().is_ipv6());
        self.congestion = config.coupling.controller(config.congestion, pmdcs_bytes, cwnd_bytes);
        (self.reduction, self.doubt) = (None, Doubt::default());
        self.begin_burst();
    }

    /// Something was acknowledged: another burst may leave (RFC 9260 §6.1 D).
    #[inline]
    pub(crate) fn begin_burst(&mut self) {
        let burst_bytes = burst_bytes(self.settings.burst_packets_max, chunks_bytes(self.mtu_bytes));
        self.burst_ends_bytes = self.in_flight_bytes.saturating_add(burst_bytes);
    }

    /// Bytes that may be added to what is in flight.
    #[inline]
    pub(crate) fn window_bytes(&self) -> usize {
        let cwnd = self.cwnd_bytes();
        let limit = self.in_flight_limit_bytes.map_or(cwnd, |limit| limit.min(cwnd));
        limit.saturating_sub(self.in_flight_bytes)
    }

    /// Whether one more packet may leave. RFC 9260 §6.1 B lets the last packet overshoot the congestion
    /// window; while a loss is repaired, by half a packet at most, so that no more leave than the reduction counts, be they
    /// full or nearly. The link's own limit is a wall.
    #[inline]
    pub(crate) fn may_send_packet(&self) -> bool {
        if self.in_flight_bytes == 0 || self.tail.is_due() {
            return true;
        }
        let room_bytes = if self.reduction.is_some() { chunks_bytes(self.mtu_bytes) / 2 } else { 1 };
        self.in_flight_bytes + room_bytes <= self.cwnd_bytes() && self.pacer.is_open() && self.link_has_room()
    }

    #[inline]
    fn link_has_room(&self) -> bool {
        self.in_flight_limit_bytes.is_none_or(|limit| self.in_flight_bytes + self.mtu_bytes <= limit)
    }

    /// Whether a packet of retransmissions may leave, the first of which takes `chunk_bytes`. It stays within the
    /// congestion window (RFC 9260 §6.1 C).
    pub(crate) fn may_retransmit(&self, chunk_bytes: usize) -> bool {
        self.retransmits_at_once
            || (self.may_send_packet()
                && (self.in_flight_bytes == 0
                    || self.tail.is_due()
                    || self.in_flight_bytes + chunk_bytes <= self.cwnd_bytes()))
    }

    /// What the window brings in a round trip, if it carries data.
    fn rate_bytes_per_s(&self) -> Option<u64> {
        let srtt = self.rto.srtt().filter(|_| self.in_flight_bytes > 0)?;
        Some(rate_bytes_per_s(self.congestion.cwnd_bytes(), srtt))
    }

    /// How fast packets may leave. The link's own limit paces what stays on this host.
    #[inline]
    fn pacing_rate(&self) -> Option<u64> {
        match self.in_flight_limit_bytes {
            Some(_) => None,
            None => self.congestion.pacing_bytes_per_s(self.rto.srtt()),
        }
    }

    /// Time has passed: the next batch may be due.
    #[inline]
    pub(crate) fn tick_pacer(&mut self, now: Time) {
        let rate = self.pacing_rate();
        self.pacer.tick(now, rate, self.mtu_bytes);
    }

    /// What the pacer lets leave together, if it does.
    #[inline]
    pub(crate) fn batch_bytes(&self) -> Option<usize> {
        self.pacing_rate().map(|rate| pacer::batch_bytes(rate, self.mtu_bytes))
    }

    /// Nothing is in flight: the congestion window shrinks with every timeout's length that nothing was sent
    /// (RFC 9260 §7.2.1).
    pub(crate) fn adjust_idle(&mut self, now: Time) {
        let rto = self.rto.current();
        let mut idle = now.saturating_since(self.last_sent_at);
        for _ in 0..IDLE_STEPS_MAX {
            if idle < rto {
                break;
            }
            idle -= rto;
            self.congestion.on_idle();
        }
    }

    /// A packet of `bytes` of DATA chunks has left; `before_bytes` were in flight before.
    #[inline]
    pub(crate) fn record_sent(
        &mut self,
        now: Time,
        tsns: SmallVec<[Range<u64>; 1]>,
        first_transmission: bool,
        bytes: usize,
        before_bytes: usize,
    ) {
        let number = self.next_packet();
        let mark = self.delivery.on_sent(now, self.in_flight_bytes, before_bytes == 0);
        self.congestion.on_sent(now, bytes, self.in_flight_bytes, mark.app_limited);
        let long = self.discovery.is_long(bytes);
        self.sent.push_back(SentPacket { sent_at: now, tsns, first_transmission, long, mark });
        self.last_sent_at = now;
        if let Some(reduction) = &mut self.reduction {
            reduction.on_sent(bytes);
        }
        let rate = self.pacing_rate();
        self.pacer.on_sent(now, bytes, rate, self.mtu_bytes);
        self.tail.on_sent(number, !first_transmission);
        self.retransmits_at_once &= first_transmission;
    }

    /// Nothing more leaves for now. `waits`: something does wait, and neither the peer's window nor a lack of stream
    /// data holds it back.
    #[inline]
    pub(crate) fn note_pause(&mut self, waits: bool) {
        let window_full = self.in_flight_bytes >= self.cwnd_bytes() || !self.pacer.is_open();
        // What goes again waits until all of it fits into the window (RFC 9260 §6.1 C): that holds it back before it
        // is full to the last byte.
        if waits && self.link_has_room() {
            self.limited_until = self.next_packet();
        } else if !window_full && self.link_has_room() {
            self.delivery.note_app_limited(self.in_flight_bytes);
        }
    }

    /// Whether the window held others back when this packet left.
    #[inline]
    pub(crate) fn was_limited(&self, packet: u32) -> bool {
        after(self.limited_until, packet)
    }

    /// Plans a probe for the tail of what is in flight.
    #[inline]
    pub(crate) fn plan_tail_probe(&mut self, now: Time, config: &AssociationConfig) {
        if self.in_flight_bytes == 0 || self.late_at.is_some() || !config.tail_loss_probes {
            return self.tail.cancel();
        }
        // RFC 8985 §7.2: a lone packet may wait for another one at the peer.
        let lone = self.in_flight_bytes <= self.mtu_bytes && !self.tail_asks;
        let ack_delay = if lone { config.sack_delay } else { Duration::ZERO };
        let state = TailState {
            last_sent_at: self.last_sent_at,
            srtt: self.rto.srtt(),
            longest: self.rto.unbounded(),
            ack_delay,
        };
        self.tail.plan(now, state);
    }

    /// Whether new data may go to it.
    #[inline]
    pub(crate) fn takes_data(&self) -> bool {
        self.state == PathState::Active
    }

    /// The order in which paths are chosen for data when none takes it (RFC 7829 §5.1: the fewest errors).
    pub(crate) fn reluctance(&self) -> (u8, u32) {
        (self.state.rank(), self.errors)
    }

    /// A heartbeat with this nonce leaves.
    pub(crate) fn begin_probe(&mut self, now: Time, nonce: u64) {
        if self.probes.len() == PROBES_MAX {
            self.probes.remove(0);
        }
        self.probes.push(Probe { nonce, sent_at: now });
        self.answer_by.get_or_insert(now + self.rto.current());
    }

    /// When the heartbeat with this nonce left, which is answered. Those before it are not waited for any more.
    pub(crate) fn end_probe(&mut self, nonce: &[u8]) -> Option<Time> {
        let at = self.probes.iter().position(|probe| probe.nonce.to_be_bytes() == nonce)?;
        let sent_at = self.probes[at].sent_at;
        self.probes.drain(..=at);
        self.answer_by = None;
        Some(sent_at)
    }

    /// Whether a heartbeat was sent that was not answered and may still be.
    pub(crate) fn awaits_answer(&self) -> bool {
        !self.probes.is_empty()
    }

    /// A heartbeat was not answered in time. Later ones may still be.
    pub(crate) fn expire_probes(&mut self, now: Time) {
        let rto = self.rto.current();
        self.probes.retain(|probe| probe.sent_at + rto > now);
        self.answer_by = None;
    }

    /// No answer is waited for any more.
    pub(crate) fn forget_probes(&mut self) {
        self.probes.clear();
        (self.answer_by, self.heartbeat_at) = (None, None);
    }

    /// When the path has been silent for too long: since the oldest packet that was not answered, or a heartbeat.
    pub(crate) fn silent_at(&self, sack_delay: Duration) -> Option<Time> {
        let patience = self.suspicion.patience(self.rto.srtt()?, self.rto.unbounded());
        let data = self.sack_due_at(sack_delay).filter(|_| self.in_flight_bytes > 0);
        let heartbeat = self.answer_by.and(self.probes.first()).map(|probe| probe.sent_at);
        [data, heartbeat].into_iter().flatten().min().map(|asked_at| asked_at + patience)
    }

    /// When the packet left that made the peer acknowledge the oldest one in flight: the one after it, or itself if it asked
    /// for that. Alone it may have to wait for the peer's timer.
    fn sack_due_at(&self, sack_delay: Duration) -> Option<Time> {
        let first = self.first_unanswered();
        let sent_at = self.sent_packet(first)?.sent_at;
        let at_last = sent_at + sack_delay;
        Some(match self.sent_packet(first.wrapping_add(1)) {
            Some(next) => next.sent_at.min(at_last),
            None if self.tail_asks => sent_at,
            None => at_last,
        })
    }

    /// The oldest packet that may be in flight and after which nothing has arrived.
    #[inline]
    pub(crate) fn first_unanswered(&self) -> u32 {
        match self.rack.newest() {
            Some(newest) if !after(self.unanswered, newest) => newest.wrapping_add(1),
            _ => self.unanswered,
        }
    }

    /// The number that the next packet gets.
    #[inline]
    pub(crate) fn next_packet(&self) -> u32 {
        self.first_packet.wrapping_add(self.sent.len() as u32)
    }

    pub(crate) fn sent_packet(&self, number: u32) -> Option<&SentPacket> {
        self.sent.get(number.wrapping_sub(self.first_packet) as usize)
    }

    /// Whether packets lost before the last reduction are still being repaired.
    #[inline]
    pub(crate) fn in_recovery(&self) -> bool {
        self.recovering
    }

    /// The network is congested: the window shrinks, once for all that is in flight now. `flight_bytes` is what was in
    /// flight before the loss was found, `next_tsn` is the TSN of the next chunk that is new.
    pub(crate) fn enter_recovery(&mut self, now: Time, signal: Signal, flight_bytes: usize, next_tsn: u64) {
        self.recovery_until = self.next_packet();
        self.exit_tsn = next_tsn;
        self.recovering = true;
        self.congestion.on_congestion(now, signal, flight_bytes);
        if self.congestion.reduces_proportionally() {
            let pmdcs_bytes = chunks_bytes(self.mtu_bytes);
            self.reduction = Some(Reduction::new(flight_bytes, self.in_flight_bytes, pmdcs_bytes));
        }
    }

    /// What a SACK delivered while a loss is being repaired.
    pub(crate) fn reduce(&mut self, delivered_bytes: usize, progress: bool) {
        let ssthresh = self.congestion.ssthresh_bytes();
        if let Some(reduction) = &mut self.reduction {
            let pmdcs_bytes = chunks_bytes(self.mtu_bytes);
            reduction.on_acked(delivered_bytes, self.in_flight_bytes, ssthresh, progress, pmdcs_bytes);
        }
    }

    /// Ends the recovery once something that was sent in it has arrived.
    #[inline]
    pub(crate) fn leave_recovery(&mut self, now: Time) {
        let arrived = self.rack.newest().is_some_and(|newest| !after(self.recovery_until, newest));
        if self.recovering && arrived {
            (self.recovering, self.reduction) = (false, None);
            self.rack.on_recovered();
            self.congestion.on_recovered(now);
        }
    }

    /// T3 gave up everything in flight; `flight_bytes` had been.
    pub(crate) fn start_over(&mut self, now: Time, flight_bytes: usize) {
        self.recovery_until = self.next_packet();
        self.unanswered = self.next_packet();
        (self.recovering, self.reduction) = (true, None);
        self.congestion.on_timeout(now, flight_bytes);
        self.begin_burst();
    }

    /// The last reduction was a mistake.
    pub(crate) fn undo_reduction(&mut self, now: Time) {
        self.exit_tsn = 0;
        (self.recovering, self.reduction) = (false, None);
        self.retransmits_at_once = false;
        self.doubt.end();
        self.congestion.undo(now);
    }

    /// Takes the oldest packet: it has arrived, or is lost.
    pub(crate) fn pop_sent(&mut self) -> Option<(u32, SentPacket)> {
        let number = self.first_packet;
        let packet = self.sent.pop_front()?;
        self.first_packet = self.first_packet.wrapping_add(1);
        Some((number, packet))
    }

    /// All that is in flight is about to be given up: what had been given up before that is forgotten. Otherwise a path on
    /// which nothing is ever acknowledged would remember all that was tried on it.
    pub(crate) fn forget_sent_before(&mut self, packet: u32) {
        while after(packet, self.first_packet) && self.pop_sent().is_some() {}
    }

    /// A packet that goes again although its time has not come. Nothing is left of it to be found lost.
    pub(crate) fn take_sent(&mut self, number: u32) -> Option<SentPacket> {
        let packet = self.sent.get_mut(number.wrapping_sub(self.first_packet) as usize)?;
        Some(SentPacket { tsns: std::mem::take(&mut packet.tsns), ..*packet })
    }

    /// Counts a packet that was found lost with `bytes` in flight.
    pub(crate) fn note_lost(&mut self, now: Time, number: u32, bytes: usize, reason: LossReason) {
        self.counts.packets_lost += 1;
        self.notes.lost(now, number, bytes, reason);
        if self.discovery.on_lost(number, bytes, reason == LossReason::Timeout) {
            self.set_mtu(self.discovery.size_bytes());
        }
    }

    /// Packets arrived, these two among them.
    #[inline]
    pub(crate) fn note_arrival(&mut self, newest: u32, oldest: u32) {
        for number in [oldest, newest] {
            if let Some(packet) = self.sent_packet(number) {
                let long = packet.long;
                self.discovery.on_arrival(number, long);
            }
        }
    }

    /// The path gave no answer to packets that were all given back: it may be long ones that it no longer takes.
    pub(crate) fn doubt_mtu(&mut self) {
        let was_long = self.sent.iter().any(|packet| packet.long);
        if was_long && self.discovery.on_silence() {
            self.set_mtu(self.discovery.size_bytes());
        }
    }

    /// Packets may have that length from now on.
    pub(crate) fn set_mtu(&mut self, mtu_bytes: usize) {
        if mtu_bytes != self.mtu_bytes {
            self.mtu_bytes = mtu_bytes;
            self.congestion.set_mtu(chunks_bytes(mtu_bytes));
        }
    }

    /// How long the next packet may be. One that is to find out whether anything arrives is as short as it must be
    /// for that.
    #[inline]
    pub(crate) fn packet_bytes_max(&self) -> usize {
        if self.tail.is_due() { self.discovery.safe_bytes().min(self.mtu_bytes) } else { self.mtu_bytes }
    }

    /// Counts a reduction that was taken back.
    pub(crate) fn note_undone(&mut self, now: Time, reason: UndoReason) {
        self.counts.reductions_undone += 1;
        self.notes.undone(now, reason);
    }

    pub(crate) fn statistics(&self) -> PathStatistics {
        PathStatistics {
            remote: self.remote,
            local: self.local,
            active: self.state.is_usable(),
            state: self.state,
            heartbeats: self.settings.heartbeats,
            heartbeat_interval: self.settings.heartbeat_interval,
            sack_delay: self.settings.sack_delay,
            dscp: self.settings.dscp,
            mtu_bytes: self.mtu_bytes,
            cwnd_bytes: self.congestion.cwnd_bytes(),
            ssthresh_bytes: Some(self.congestion.ssthresh_bytes()).filter(|bytes| *bytes != usize::MAX),
            in_flight_bytes: self.in_flight_bytes,
            pacing_bytes_per_s: self.pacing_rate(),
            latest_rtt: self.rto.latest(),
            srtt: self.rto.srtt(),
            rttvar: self.rto.rttvar(),
            min_rtt: self.rack.min_rtt(),
            rto: self.rto.current(),
            errors: self.errors,
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
            suspicions: self.counts.suspicions,
            suspicions_mistaken: self.counts.suspicions_mistaken,
            data_chunks_given_back: self.counts.data_chunks_given_back,
            mtu_state: self.discovery.state(),
            mtu_probes_sent: self.discovery.probes_sent,
            mtu_probes_lost: self.discovery.probes_lost,
        }
    }
}

/// Tells the controllers of the paths of an association what each of them is among those that carry data.
pub(crate) fn couple(paths: &mut [Path]) {
    let pool: Pool = paths.iter().filter_map(Path::rate_bytes_per_s).collect();
    for path in paths {
        if let Some(rate) = path.rate_bytes_per_s() {
            path.congestion.couple(&pool.share(rate));
        }
    }
}

/// What may leave at once where so many packets may.
fn burst_bytes(packets: Option<u32>, pmdcs_bytes: usize) -> usize {
    packets.map_or(usize::MAX, |packets| packets.max(1) as usize * pmdcs_bytes)
}

/// What a packet holds of chunks (PMDCS, RFC 9260 §7.2.1): the windows count these.
pub(crate) fn chunks_bytes(mtu_bytes: usize) -> usize {
    mtu_bytes - sctp_wire::packet::HEADER_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found_a_loss() -> Path {
        let remote = SocketAddr::from(([192, 0, 2, 1], 9899));
        let hints = PathHints { mtu_bytes: 1472, ..PathHints::default() };
        let mut path = Path::new(remote, None, hints, &AssociationConfig::default());
        path.in_flight_bytes = 60 * 1460;
        path.enter_recovery(Time::ZERO, Signal::Loss, 64 * 1460, 1);
        path
    }

    #[test]
    fn one_packet_leaves_when_a_loss_is_found_though_it_is_not_quite_full() {
        let mut path = found_a_loss();
        assert!(path.may_send_packet());
        path.in_flight_bytes += 1440;
        assert!(!path.may_send_packet(), "a second one would find the queue full that has just lost one");
    }

    #[test]
    fn another_leaves_for_what_is_delivered_then() {
        let mut path = found_a_loss();
        path.reduce(1460, true);
        assert_eq!(path.window_bytes(), 1460, "a packet of 1472 bytes holds that much in chunks");
    }
}
