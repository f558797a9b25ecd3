//! The chunks of one packet, in their order (RFC 9260 §6.10, §8.5).

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use sctp_wire::Packet;
use sctp_wire::cause::{Cause, InvalidStreamIdentifier, NoUserData, UnrecognizedChunkType};
use sctp_wire::chunk::{
    Abort, ChunkError, CookieAck, CookieEcho, Data, Error, Heartbeat, HeartbeatAck, Init, InitAck, Pad,
    RawChunk, Sack, Shutdown, ShutdownAck, ShutdownComplete,
};

use super::causes::{abort_chunk, error_chunk, reports_stale_cookie};
use super::{Association, Context, State};
use crate::error::CloseReason;
use crate::event::{Event, Host};
use crate::inbound::Outcome;
use crate::outbound::{Report, SackOutcome};

/// Most of an unknown chunk that an ERROR gives back.
const REPORTED_BYTES_MAX: usize = 512;

/// Whether the rest of the packet is to be handled.
#[derive(PartialEq, Eq)]
enum Next {
    Chunk,
    Stop,
}

impl Association {
    /// Handles a packet whose verification tag is ours. `datagram` owns the bytes of `packet`.
    pub(crate) fn handle_packet<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        remote: SocketAddr,
        local: Option<IpAddr>,
        packet: &Packet<'_>,
        datagram: &Bytes,
    ) {
        self.statistics.packets_received += 1;
        let Some(path_id) = self.path_of(remote) else { return };
        if let Some(tracer) = &mut self.trace {
            tracer.packet_received(cx.now, path_id, packet);
        }
        let path = &mut self.paths[path_id];
        path.counts.packets_received += 1;
        // RFC 6951 §5.4: the peer's encapsulation port is the one that its packets come from.
        if path.remote.port() != remote.port() {
            path.remote.set_port(remote.port());
            self.paths_changed = true;
        }
        path.local = local.or(path.local);
        for raw in packet.chunks() {
            let Ok(raw) = raw else { break };
            if raw.kind == Data::KIND {
                self.handle_data(cx, path_id, &raw, datagram);
            } else if self.handle_control(cx, path_id, &raw) == Next::Stop {
                break;
            }
            if self.is_closed() {
                return;
            }
        }
        let delay = self.config.sack_delay;
        let rtt = self.paths[path_id].rto.srtt();
        let had_data = self.inbound.as_mut().is_some_and(|inbound| inbound.end_packet(cx.now, delay, rtt));
        if had_data && matches!(self.state, State::ShutdownSent { .. }) {
            self.answer_with_shutdown(cx);
        }
        self.continue_shutdown(cx);
    }

    #[inline]
    fn handle_data<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        path_id: usize,
        raw: &RawChunk<'_>,
        datagram: &Bytes,
    ) {
        let data = match Data::parse(raw) {
            Ok(data) => data,
            Err(error) => return self.abort_for_bad_data(cx, &error),
        };
        // RFC 9260 §6: data counts in the states in which the peer may still send.
        if !matches!(self.state, State::Established | State::ShutdownPending | State::ShutdownSent { .. }) {
            return;
        }
        let Some(inbound) = &mut self.inbound else { return };
        self.reply_path = path_id;
        match inbound.handle_data(self.id, &data, datagram, &mut self.statistics, cx.host) {
            Ok(Outcome::NoSuchStream) => {
                let cause = Cause::InvalidStreamIdentifier(InvalidStreamIdentifier { stream: data.stream });
                self.push_control(error_chunk(&cause), None);
            }
            Ok(Outcome::Taken | Outcome::Duplicate | Outcome::Dropped) => {}
            Err(error) => self.abort_for_violation(cx, error.0),
        }
    }

    /// RFC 9260 §6.2: a DATA chunk without data ends the association with the cause "No User Data".
    #[cold]
    fn abort_for_bad_data<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, error: &ChunkError) {
        match *error {
            ChunkError::NoUserData { tsn } => {
                let chunk = abort_chunk(&Cause::NoUserData(NoUserData { tsn }));
                self.abort_with(cx, chunk, CloseReason::ProtocolViolation("a DATA chunk without data"));
            }
            _ => self.abort_for_violation(cx, "a DATA chunk that is too short"),
        }
    }

    fn handle_control<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        path_id: usize,
        raw: &RawChunk<'_>,
    ) -> Next {
        self.statistics.control_chunks_received += u64::from(raw.kind != Pad::KIND);
        match raw.kind {
            Sack::KIND => {
                if let Ok(sack) = Sack::parse(raw) {
                    self.handle_sack(cx, &sack);
                }
            }
            InitAck::KIND => {
                let remote = self.paths[path_id].remote;
                // It has the fields of an INIT (RFC 9260 §3.3.3).
                if let Ok(ack) = Init::parse(raw) {
                    self.handle_init_ack(cx, remote, &ack);
                }
                return Next::Stop;
            }
            CookieAck::KIND => self.handle_cookie_ack(cx),
            Heartbeat::KIND => {
                if let Ok(heartbeat) = Heartbeat::parse(raw) {
                    self.answer_heartbeat(path_id, &heartbeat);
                }
            }
            HeartbeatAck::KIND => {
                if let Ok(ack) = HeartbeatAck::parse(raw) {
                    self.handle_heartbeat_ack(cx, path_id, &ack);
                }
            }
            // RFC 9260 §8.5.1 B and C: the tag is ours, so it was not reflected.
            Abort::KIND | ShutdownComplete::KIND if raw.flags & 1 == 1 => return Next::Stop,
            Abort::KIND => self.handle_abort(cx, raw),
            Shutdown::KIND => {
                if let Ok(shutdown) = Shutdown::parse(raw) {
                    self.handle_shutdown(cx, &shutdown);
                }
            }
            ShutdownAck::KIND => self.handle_shutdown_ack(cx),
            ShutdownComplete::KIND => self.handle_shutdown_complete(cx),
            Error::KIND => self.handle_error(cx, raw),
            // The endpoint has handled both before it lent the packet to us (RFC 9260 §5.2).
            Init::KIND | CookieEcho::KIND => {}
            kind => {
                let action = sctp_wire::unknown_chunk_action(kind);
                if action.report {
                    let chunk = &raw.whole[..raw.whole.len().min(REPORTED_BYTES_MAX)];
                    let cause = Cause::UnrecognizedChunkType(UnrecognizedChunkType { chunk });
                    self.push_control(error_chunk(&cause), None);
                }
                if action.stop {
                    return Next::Stop;
                }
            }
        }
        Next::Chunk
    }

    fn handle_sack<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, sack: &Sack<'_>) {
        let (gaps, duplicates) = (sack.gap_blocks().len() as u64, sack.duplicates().len() as u64);
        let sack = Report {
            cum_tsn: sack.cum_tsn,
            window_bytes: sack.a_rwnd as usize,
            gaps: Some(sack.gap_blocks()),
            duplicates: sack.duplicates(),
        };
        if !matches!(
            self.state,
            State::Established
                | State::ShutdownPending
                | State::ShutdownReceived
                | State::ShutdownSent { .. }
        ) {
            return;
        }
        self.statistics.sacks_received += 1;
        self.statistics.gaps_received += gaps;
        self.statistics.duplicates_reported += duplicates;
        match self.outbound.handle_sack(cx.now, sack, &mut self.paths, &self.config, &mut self.statistics) {
            Ok(outcome) => self.after_sack(cx, &outcome),
            Err(how) => self.abort_for_violation(cx, how),
        }
    }

    pub(super) fn after_sack<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, outcome: &SackOutcome) {
        if outcome.progress {
            // RFC 9260 §8.1: the peer is alive.
            self.errors = 0;
        }
        for &path_id in &outcome.reactivated {
            let remote = self.paths[path_id].remote;
            cx.host.event(self.id, Event::PathChanged { remote, active: true });
        }
        if outcome.writable {
            cx.host.event(self.id, Event::Writable);
        }
    }

    /// ERROR (RFC 9260 §3.3.10). Only a stale cookie changes anything.
    fn handle_error<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, raw: &RawChunk<'_>) {
        if reports_stale_cookie(raw) {
            self.handle_stale_cookie(cx);
        }
    }
}
