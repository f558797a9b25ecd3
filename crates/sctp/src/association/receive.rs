//! Handles the chunks of one packet, in their order (RFC 9260 §6.10, §8.5).

use bytes::Bytes;
use sctp_message::PathId;
use sctp_wire::cause::{Cause, Causes, InvalidStreamIdentifier, NoUserData, UnrecognizedChunkType};
use sctp_wire::chunk::{
    Abort, ChunkError, Chunks, CookieAck, CookieEcho, Cwr, Data, EcnEcho, Error, Heartbeat, HeartbeatAck,
    Init, InitAck, NrSack, Pad, RawChunk, Sack, Shutdown, ShutdownAck, ShutdownComplete,
};
use sctp_wire::packet::HEADER_BYTES;
use sctp_wire::{Packet, Tsn};

use super::causes::reports_stale_cookie;
use super::control::Control;
use super::{Association, Context, State};
use crate::event::{Event, Host};
use crate::inbound::{Outcome, ReceiveContext};
use crate::outbound::{SackInfo, SackOutcome, SendContext};
use crate::route::Route;
use crate::time::Time;
use crate::transmit::padding_bytes;

/// Maximum number of bytes of an unknown chunk that an ERROR reports back.
const REPORTED_CHUNK_BYTES_MAX: usize = 512;
/// Maximum number of bytes of the peer's error cause that are reported to the user.
const REMOTE_ERROR_BYTES_MAX: usize = 512;
/// Maximum number of gap blocks of a SACK that are evaluated.
const GAP_BLOCKS_MAX: usize = 4096;

/// Whether to handle the rest of the packet.
#[derive(PartialEq, Eq)]
enum Next {
    Chunk,
    Stop,
    /// Nothing more: the association is closed.
    Closed,
}

/// Returns whether a packet begins with a probe of a path or the answer to one (RFC 9260 §8.3).
fn is_probe(packet: &Packet<'_>) -> bool {
    let first = packet.chunks().next();
    matches!(first, Some(Ok(chunk)) if matches!(chunk.kind, Heartbeat::KIND | HeartbeatAck::KIND))
}

impl Association {
    /// Handles a packet with our verification tag. `datagram` owns its bytes, except for the user data in `shared`, as in
    /// [`Arrival::shared`](crate::Arrival::shared).
    pub(crate) fn handle_packet<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        route: Route,
        packet: &Packet<'_>,
        datagram: &Bytes,
        shared: &[(usize, Bytes)],
    ) {
        self.statistics.packets_received += 1;
        self.reaction.begin();
        let Some(path_id) = self.paths.to(route.remote.ip()) else { return };
        if let Some(tracer) = &mut self.trace {
            tracer.packet_received(cx.now, path_id.index(), packet);
        }
        let path = &mut self.paths[path_id];
        if path.on_received(cx.now, route.local, is_probe(packet)) {
            // RFC 6951 §5.4: the peer's encapsulation port is the one that its packets come from. A translator may have a
            // port for each of our addresses.
            self.paths.set_remote_port(path_id, route.remote.port());
        }
        let next = match shared {
            [] => self.handle_chunks(cx, path_id, packet.chunks(), datagram),
            shared => self.handle_sharing(cx, path_id, packet, datagram, shared),
        };
        if next == Next::Closed {
            return;
        }
        if route.marked {
            self.note_mark(packet);
        }
        self.end_packet(cx, path_id);
    }

    /// Handles chunks of a packet. Returns whether to handle those behind them.
    #[inline]
    fn handle_chunks<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        path_id: PathId,
        mut chunks: Chunks<'_>,
        datagram: &Bytes,
    ) -> Next {
        loop {
            chunks.skip_bytes(self.take_run(cx, path_id, chunks.as_bytes(), datagram));
            let Some(Ok(raw)) = chunks.next() else { return Next::Chunk };
            if raw.kind == Data::KIND {
                self.handle_data(cx, path_id, &raw, datagram);
            } else if self.handle_control(cx, path_id, &raw) == Next::Stop {
                return Next::Stop;
            }
            if self.is_closed() {
                return Next::Closed;
            }
        }
    }

    /// Handles the chunks of a packet that refers to blocks of its sender. The endpoint has checked them.
    fn handle_sharing<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        path_id: PathId,
        packet: &Packet<'_>,
        datagram: &Bytes,
        shared: &[(usize, Bytes)],
    ) -> Next {
        let bytes = packet.as_bytes();
        let mut from = HEADER_BYTES;
        for (at, payload) in shared {
            let before = bytes.get(from..*at).unwrap_or_default();
            let Some((before, header)) = before.split_last_chunk() else { return Next::Stop };
            let next = self.handle_chunks(cx, path_id, Chunks::new(before), datagram);
            if next != Next::Chunk {
                return next;
            }
            let Some(data) = Data::of_header(header, payload) else { return Next::Stop };
            self.take_data(cx, path_id, &data, payload);
            if self.is_closed() {
                return Next::Closed;
            }
            from = at + padding_bytes(payload);
        }
        self.handle_chunks(cx, path_id, Chunks::new(bytes.get(from..).unwrap_or_default()), datagram)
    }

    /// Ends the handling of a packet: acknowledges its data, reports its errors, and continues a shutdown.
    fn end_packet<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, path_id: PathId) {
        let had_data = self.end_data(cx.now, path_id);
        self.send_reports();
        if matches!(self.state, State::ShutdownSent { .. }) {
            if had_data {
                self.answer_with_shutdown(cx);
            } else {
                self.restart_t2(cx);
            }
        }
        self.continue_shutdown(cx);
    }

    /// Decides when to acknowledge the data of a packet. Returns whether it contained any.
    #[inline]
    fn end_data(&mut self, now: Time, path_id: PathId) -> bool {
        // An INIT ACK may just have removed the path that it came on.
        let path = self.paths.get(path_id);
        let sack_delay = path.map_or(self.config.sack_delay, |path| path.settings().sack_delay);
        let rtt = if self.peer.extensions().multipath {
            self.longest_rtt()
        } else {
            path.and_then(|path| path.rto().srtt())
        };
        let had_data = self.inbound.as_mut().is_some_and(|inbound| inbound.end_packet(now, sack_delay, rtt));
        if had_data {
            self.timers.on_data(now);
        }
        had_data
    }

    /// Returns whether packets are traced, which a trace needs in one piece.
    pub(crate) fn is_traced(&self) -> bool {
        self.trace.is_some()
    }

    /// Returns whether DATA is accepted: in the states in which the peer may still send (RFC 9260 §6).
    #[inline]
    fn takes_data(&self) -> bool {
        matches!(self.state, State::Established | State::ShutdownPending { .. } | State::ShutdownSent { .. })
    }

    /// Handles DATA chunks at the front of `chunks` together, if possible. Returns their length.
    #[inline]
    fn take_run<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        path_id: PathId,
        chunks: &[u8],
        datagram: &Bytes,
    ) -> usize {
        if !self.takes_data() {
            return 0;
        }
        let Some(inbound) = self.inbound.as_mut() else { return 0 };
        let mut receiving =
            ReceiveContext { id: self.id, statistics: &mut self.statistics, host: &mut *cx.host };
        let run_bytes = inbound.take_run(&mut receiving, chunks, datagram);
        if run_bytes > 0 {
            self.note_reply_path(path_id);
        }
        run_bytes
    }

    #[inline]
    fn handle_data<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        path_id: PathId,
        raw: &RawChunk<'_>,
        datagram: &Bytes,
    ) {
        let data = match Data::parse(raw) {
            Ok(data) => data,
            Err(error) => return self.abort_for_bad_data(cx, &error),
        };
        self.take_data(cx, path_id, &data, datagram);
    }

    /// Takes a DATA chunk, whose user data is a part of `block`.
    #[inline]
    fn take_data<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        path_id: PathId,
        data: &Data<'_>,
        block: &Bytes,
    ) {
        if !self.takes_data() {
            return self.discard_chunk();
        }
        self.note_reply_path(path_id);
        let Some(inbound) = self.inbound.as_mut() else { return };
        let mut receiving =
            ReceiveContext { id: self.id, statistics: &mut self.statistics, host: &mut *cx.host };
        match inbound.handle_data(&mut receiving, data, block) {
            Ok(Outcome::NoSuchStream) => {
                let cause = Cause::InvalidStreamIdentifier(InvalidStreamIdentifier { stream: data.stream });
                self.report(&cause);
            }
            Ok(Outcome::Taken | Outcome::Duplicate | Outcome::Dropped) => {}
            Err(error) => self.abort_for_violation(cx, error.0),
        }
    }

    /// Aborts the association because of a DATA chunk without data, with the cause "No User Data" (RFC 9260 §6.2).
    #[cold]
    fn abort_for_bad_data<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, error: &ChunkError) {
        match *error {
            ChunkError::NoUserData { tsn } => {
                let cause = Cause::NoUserData(NoUserData { tsn });
                self.abort_for_cause(cx, &cause, "a DATA chunk without data");
            }
            _ => self.abort_for_violation(cx, "a DATA chunk that is too short"),
        }
    }

    fn handle_control<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        path_id: PathId,
        raw: &RawChunk<'_>,
    ) -> Next {
        self.statistics.control_chunks_received += u64::from(raw.kind != Pad::KIND);
        match raw.kind {
            Sack::KIND => self.handle_sack_chunk(cx, path_id, raw),
            NrSack::KIND if self.peer.extensions().nr_sack => self.handle_sack_chunk(cx, path_id, raw),
            InitAck::KIND => {
                let remote = self.paths[path_id].remote();
                // An INIT ACK has the fields of an INIT (RFC 9260 §3.3.3).
                match Init::parse(raw) {
                    Ok(ack) => self.handle_init_ack(cx, remote, &ack),
                    Err(_) => self.discard_chunk(),
                }
                return Next::Stop;
            }
            CookieAck::KIND => self.handle_cookie_ack(cx),
            Heartbeat::KIND => self.answer_heartbeat(path_id, raw),
            HeartbeatAck::KIND => match HeartbeatAck::parse(raw) {
                Ok(ack) => self.handle_heartbeat_ack(cx, &ack),
                Err(_) => self.discard_chunk(),
            },
            // RFC 9260 §8.5.1 B and C: the tag is that of this endpoint, so it was not reflected.
            Abort::KIND | ShutdownComplete::KIND if raw.flags & 1 == 1 => {
                self.discard_chunk();
                return Next::Stop;
            }
            Abort::KIND => self.handle_abort(cx, raw),
            Shutdown::KIND => match Shutdown::parse(raw) {
                Ok(shutdown) => self.handle_shutdown(cx, path_id, &shutdown),
                Err(_) => self.discard_chunk(),
            },
            ShutdownAck::KIND => self.handle_shutdown_ack(cx, path_id),
            ShutdownComplete::KIND => self.handle_shutdown_complete(cx),
            Error::KIND => self.handle_error(cx, raw),
            EcnEcho::KIND if self.ecn.is_negotiated() => match EcnEcho::parse(raw) {
                Ok(echo) => self.handle_ecn_echo(cx.now, echo),
                Err(_) => self.discard_chunk(),
            },
            Cwr::KIND if self.ecn.is_negotiated() => match Cwr::parse(raw) {
                Ok(cwr) => self.ecn.on_cwr(cwr),
                Err(_) => self.discard_chunk(),
            },
            // A PAD only fills a packet (RFC 4820).
            Pad::KIND => {}
            // The endpoint has handled both chunks before (RFC 9260 §5.2).
            Init::KIND | CookieEcho::KIND => {}
            _ => return self.handle_unknown_chunk(raw),
        }
        Next::Chunk
    }

    /// Handles a SACK or an NR-SACK. RFC 9260 §6.2 permits one in a packet; further ones are not worth their work.
    fn handle_sack_chunk<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        path_id: PathId,
        raw: &RawChunk<'_>,
    ) {
        let fields = if raw.kind == NrSack::KIND {
            NrSack::parse(raw).map(|nr_sack| {
                let nr_gaps = Some(nr_sack.nr_gap_blocks());
                (nr_sack.cum_tsn, nr_sack.a_rwnd, nr_sack.gap_blocks(), nr_gaps, nr_sack.duplicates())
            })
        } else {
            Sack::parse(raw)
                .map(|sack| (sack.cum_tsn, sack.a_rwnd, sack.gap_blocks(), None, sack.duplicates()))
        };
        match fields {
            Ok((cum_tsn, a_rwnd, gaps, nr_gaps, duplicates)) if self.reaction.take_first_sack() => {
                let count = gaps.len() + nr_gaps.as_ref().map_or(0, ExactSizeIterator::len);
                let sack = SackInfo {
                    path_id,
                    cum_tsn,
                    window_bytes: a_rwnd as usize,
                    gaps: Some(ascending(gaps)),
                    nr_gaps: nr_gaps.map(ascending),
                    duplicates,
                };
                self.handle_sack(cx, sack, count);
            }
            _ => self.discard_chunk(),
        }
    }

    /// Handles a chunk of an unknown type: the high bits of the type determine the reaction (RFC 9260 §3.2).
    fn handle_unknown_chunk(&mut self, raw: &RawChunk<'_>) -> Next {
        self.discard_chunk();
        let action = sctp_wire::unknown_chunk_action(raw.kind);
        if action.report {
            let chunk = &raw.whole[..raw.whole.len().min(REPORTED_CHUNK_BYTES_MAX)];
            self.report(&Cause::UnrecognizedChunkType(UnrecognizedChunkType { chunk }));
        }
        if action.stop { Next::Stop } else { Next::Chunk }
    }

    /// Records the mark of a congested router, which is reported to the peer.
    #[cold]
    fn note_mark(&mut self, packet: &Packet<'_>) {
        self.statistics.marked_packets_received += 1;
        if self.ecn.on_marked(packet)
            && let Some(inbound) = self.inbound.as_mut()
        {
            inbound.request_ack();
        }
    }

    /// Handles the peer's report of congestion marks.
    fn handle_ecn_echo(&mut self, now: Time, echo: EcnEcho) {
        let (lowest, next) = self.outbound.place_of(echo.lowest_tsn);
        if lowest >= next || !self.may_carry_data() {
            // An ECNE for a TSN that was never sent is discarded.
            return self.discard_chunk();
        }
        let path_id = self.outbound.path_of(lowest).unwrap_or(self.data_path());
        let reduces = self.paths[path_id].on_congestion_marks(now, lowest, next);
        self.statistics.ecn_reductions += u64::from(reduces);
        self.push_control(Control::new(Cwr::KIND, None, |out| {
            Cwr { lowest_tsn: echo.lowest_tsn }.write(out)
        }));
    }

    fn handle_sack<H, G, D>(&mut self, cx: &mut Context<'_, H>, sack: SackInfo<G, D>, gaps: usize)
    where
        H: Host + ?Sized,
        G: Iterator<Item = (u16, u16)> + Clone,
        D: ExactSizeIterator<Item = Tsn>,
    {
        if !matches!(
            self.state,
            State::Established | State::ShutdownPending { .. } | State::ShutdownReceived { .. }
        ) {
            return self.discard_chunk();
        }
        if !self.outbound.has_lost() {
            self.paths.set_retransmit(None);
        }
        self.statistics.sacks_received += 1;
        self.statistics.gaps_received += gaps as u64;
        self.statistics.duplicates_reported += sack.duplicates.len() as u64;
        let path_id = sack.path_id;
        let mut sending = SendContext { now: cx.now, config: &self.config, statistics: &mut self.statistics };
        match self.outbound.handle_sack(&mut sending, sack, &mut self.paths) {
            Ok(outcome) => self.after_sack(cx, path_id, &outcome),
            Err(how) => self.abort_for_violation(cx, how),
        }
    }

    /// Handles the effects of a SACK that came on a path.
    pub(super) fn after_sack<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        path_id: PathId,
        outcome: &SackOutcome,
    ) {
        if outcome.progress {
            // RFC 9260 §8.1: the peer is alive.
            self.errors.on_answer();
        }
        if outcome.advanced {
            self.on_shutdown_progress(cx.now);
        }
        for &(answered, sent_at) in &outcome.answered {
            self.path_acknowledged(cx, answered, sent_at.filter(|_| answered == path_id));
        }
        if outcome.writable {
            cx.host.event(self.id, Event::Writable);
        }
        if self.config.events && outcome.progress && self.outbound.is_empty() {
            self.tell_sender_dry(cx);
        }
        self.outbound.give_blocks(cx.blocks);
        self.overtake_slow_path(cx.now);
        self.measure_unused_paths(cx);
    }

    /// Handles an ERROR (RFC 9260 §3.3.10). Reacts to a stale cookie; reports other causes to the user, each as an event, up to
    /// a limit for the packet.
    fn handle_error<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, raw: &RawChunk<'_>) {
        if reports_stale_cookie(raw) {
            return self.handle_stale_cookie(cx);
        }
        if self.is_in_cookie_wait() {
            return self.discard_chunk();
        }
        let mut causes = Causes::new(raw.value);
        let mut is_reported = false;
        while let Some(Ok(cause)) = causes.next_raw() {
            if Cause::parse(&cause).is_err() {
                continue;
            }
            if !self.reaction.take_remote_error() {
                break;
            }
            is_reported = true;
            let reported = &cause.value[..cause.value.len().min(REMOTE_ERROR_BYTES_MAX)];
            let information = Bytes::copy_from_slice(reported);
            self.tell(cx, Event::RemoteError { cause: cause.kind, information });
        }
        if !is_reported {
            self.discard_chunk();
        }
    }

    /// Records a cause to report in the answer to the current packet.
    #[cold]
    fn report(&mut self, cause: &Cause<'_>) {
        let has_room = self.reaction.report(cause);
        self.statistics.reports_dropped += u64::from(!has_room);
    }

    /// Sends one ERROR with all causes of the packet. While the cookie is in flight, nothing else is sent (RFC 9260 §5.1 C).
    #[inline]
    fn send_reports(&mut self) {
        let Some(causes) = self.reaction.take_causes() else { return };
        if self.is_set_up() {
            let write = |out: &mut Vec<u8>| Error { causes: Causes::new(&causes) }.write(out);
            self.push_control(Control::new(Error::KIND, None, write));
        } else {
            self.statistics.reports_dropped += 1;
        }
    }
}

/// Returns the gap blocks that are in ascending order, as RFC 9260 §6.7 requires. Handling others would cost more than they are
/// worth.
fn ascending<G: Iterator<Item = (u16, u16)> + Clone>(gaps: G) -> impl Iterator<Item = (u16, u16)> + Clone {
    let in_order = |last: &mut u16, (start, end): (u16, u16)| {
        let block = (start > *last && end >= start).then_some((start, end));
        *last = block.map_or(*last, |(_, end)| end);
        Some(block)
    };
    gaps.take(GAP_BLOCKS_MAX).scan(0, in_order).flatten()
}
