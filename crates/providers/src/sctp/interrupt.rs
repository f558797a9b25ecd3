//! The lower side: exchanges batches with the link.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::time::Instant;

use ::sctp::{Arrival, Piece, Reply, Scope, Time, TransmitBuffer};
use bytes::Bytes;
use links::{Datagrams, UnreachableReason};
use smallvec::SmallVec;
use streams::Cx;

use super::SctpDriver;
use super::control::ORPHAN_RTO_MAX;
use super::indication::Unwanted;
use super::minor::Owner;

/// The ECN field of the IP header (RFC 3168 §5): not capable, capable, and marked.
const NOT_ECT: u8 = 0;
const ECT_0: u8 = 2;
const CE: u8 = 3;

/// Maximum number of answers to unknown senders that the link gets in one call.
const ANSWERS_MAX: usize = 64;

/// Number of bytes from the network, and of bytes that the link held, after which a receive returns to its caller, who
/// looks at the clock: peers can make a packet of a few KB cost as much as a megabyte of data. The rest is handled by
/// the next receives, before more is taken from the network.
const HANDLED_BYTES_MAX: usize = 16 * 1024;

/// Maximum number of associations that are ended in one call when their listener was closed. A backlog may be thousands.
const UNWANTED_MAX: usize = 32;

/// The batches of one receive of the link. The caller has all of them handled before it answers, if they do not take too long, so
/// that one SACK covers everything that had arrived.
///
/// Each receive handles some of both kinds, so that packets between programs of this host do not wait behind a flood.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    from_network: VecDeque<Datagrams>,
    /// Batches from this link, which it held in memory.
    held: VecDeque<Datagrams>,
    unreachable: Vec<links::Unreachable>,
    /// Whether the link had more.
    more: bool,
}

impl Arrivals {
    #[inline]
    pub(super) fn has_batches(&self) -> bool {
        !self.from_network.is_empty() || !self.held.is_empty()
    }
}

impl links::Sink for Arrivals {
    fn datagrams(&mut self, datagrams: Datagrams) {
        self.from_network.push_back(datagrams);
    }

    fn held_datagrams(&mut self, datagrams: Datagrams) {
        self.held.push_back(datagrams);
    }

    fn unreachable(&mut self, unreachable: links::Unreachable) {
        self.unreachable.push(unreachable);
    }
}

impl SctpDriver {
    pub(super) fn take_arrivals(&mut self, cx: &mut Cx<'_>, now: Time) -> io::Result<bool> {
        self.detach_before_more(cx);
        if !self.received.has_batches() {
            self.received.more = self.link.receive(&mut self.received)?;
        } else if self.received.held.is_empty() {
            self.link.receive_held(&mut self.received);
        }
        let mut arrivals = std::mem::take(&mut self.received);
        self.handle_batches(cx, now, &mut arrivals.held, true);
        self.handle_batches(cx, now, &mut arrivals.from_network, false);
        for report in arrivals.unreachable.drain(..) {
            let why = match report.reason {
                UnreachableReason::Port => ::sctp::Unreachable::Port,
                UnreachableReason::Protocol => ::sctp::Unreachable::Protocol,
                UnreachableReason::Host | UnreachableReason::Net | UnreachableReason::Admin => {
                    ::sctp::Unreachable::Host
                }
                UnreachableReason::TooBig { mtu_bytes } => ::sctp::Unreachable::TooBig { mtu_bytes },
            };
            let (endpoint, mut host) = self.split(cx);
            endpoint.handle_unreachable(now, report.remote, why, &report.quoted, &mut host);
        }
        // The lists keep their memory for the next receive.
        self.received = arrivals;
        self.clear_leftovers(cx);
        self.note_attached(cx, now);
        self.hand_out_trace();
        self.tell_expected(now);
        Ok(self.received.more || self.received.has_batches())
    }

    fn handle_batches(
        &mut self,
        cx: &mut Cx<'_>,
        now: Time,
        batches: &mut VecDeque<Datagrams>,
        in_memory: bool,
    ) {
        let mut handled_bytes = 0;
        while handled_bytes < HANDLED_BYTES_MAX
            && let Some(batch) = batches.pop_front()
        {
            handled_bytes += batch.total_bytes();
            self.batches_moved += 1;
            self.attached.on_batch(batch.block_bytes);
            let (endpoint, mut host) = self.split(cx);
            let arrival = Arrival {
                remote: batch.remote,
                local: Some(batch.local),
                marked: batch.ecn == CE,
                in_memory,
                segment_bytes: batch.segment_bytes,
                bytes: &batch.payload,
                shared: &batch.shared,
            };
            endpoint.handle_batch(now, &arrival, &mut host);
        }
    }

    /// Tells the link which packets are expected, while it separates unknown senders.
    #[inline]
    pub(super) fn tell_expected(&mut self, now: Time) {
        // A link that refuses tags is told only the ports, by the second update.
        while let Some(packets) = self.endpoint.poll_expected(now) {
            let cookies =
                packets.cookies.map(|mark| links::CookieMark { mask: mark.mask, factor: mark.factor });
            let (tags, init_ports) = (packets.tags.as_deref(), packets.init_ports.as_deref());
            if !self.link.set_expected(links::Expected { tags, init_ports, cookies }) && tags.is_some() {
                self.endpoint.expected_tags_refused(now);
            }
        }
    }

    /// Hands outgoing batches to the link until nothing may be sent or the link is full.
    pub(super) fn transmit(&mut self, cx: &mut Cx<'_>, now: Instant, scope: Scope) {
        let now = self.time(now);
        // A peer may answer at once, so its tag must be expected before the batch leaves.
        self.tell_expected(now);
        self.send_answers();
        self.transmit_batches(cx, now, scope);
        self.hand_out_trace();
    }

    /// Hands the answers to unknown senders to the link, many at once. Answers that the link does not take are lost: no
    /// state depends on them.
    fn send_answers(&mut self) {
        while let Some(first) = self.endpoint.poll_answer() {
            let mut answers: SmallVec<[Reply; ANSWERS_MAX]> = SmallVec::new();
            answers.push(first);
            while answers.len() < ANSWERS_MAX
                && let Some(answer) = self.endpoint.poll_answer()
            {
                answers.push(answer);
            }
            let packets: SmallVec<[[IoSlice<'_>; 1]; ANSWERS_MAX]> =
                answers.iter().map(|answer| [IoSlice::new(&answer.packet)]).collect();
            let transmits: SmallVec<[links::Transmit<'_>; ANSWERS_MAX]> = answers
                .iter()
                .zip(&packets)
                .map(|(answer, packet)| links::Transmit {
                    remote: answer.remote,
                    local: answer.local,
                    traffic_class: answer.dscp << 2 | NOT_ECT,
                    may_fragment: true,
                    segment_bytes: answer.packet.len(),
                    slices: packet,
                })
                .collect();
            self.link.transmit_answers(&transmits);
            self.batches_moved += 1;
        }
    }

    fn transmit_batches(&mut self, cx: &mut Cx<'_>, now: Time, scope: Scope) {
        loop {
            let transmit = match self.refused.take() {
                Some(refused) => refused,
                None => match self.endpoint.poll_transmit(now, scope, &mut self.buffer) {
                    Some(transmit) => transmit,
                    None => return,
                },
            };
            match self.hand_over(&transmit) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.refused = Some(transmit);
                    return;
                }
                // The kernel has no route: an association that is being set up need not wait for its timers.
                Err(error) if is_no_route(&error) => {
                    let quoted = self.buffer.to_vec();
                    let why = ::sctp::Unreachable::Host;
                    self.with_endpoint(cx, |endpoint, host| {
                        endpoint.handle_unreachable(now, transmit.remote, why, &quoted, host);
                    });
                }
                Ok(()) => self.batches_moved += 1,
                // A packet that the network does not take is lost like any other; the timers recover it. The link
                // counts it.
                Err(_) => {}
            }
        }
    }

    /// Does the work that had to wait while the core was borrowed.
    #[inline]
    pub(super) fn clear_leftovers(&mut self, cx: &mut Cx<'_>) {
        if !self.leftovers.unwanted.is_empty() || !self.leftovers.unread.is_empty() {
            self.clear_all_leftovers(cx);
        }
    }

    #[cold]
    fn clear_all_leftovers(&mut self, cx: &mut Cx<'_>) {
        while let Some((id, bytes)) = self.leftovers.unread.pop() {
            self.endpoint.consumed(id, bytes, 1);
        }
        for _ in 0..UNWANTED_MAX {
            let Some(unwanted) = self.leftovers.unwanted.pop_front() else { break };
            let now = self.now(cx);
            self.minors.set_owner(unwanted.id(), Owner::NoUser);
            let (endpoint, mut host) = self.split(cx);
            match unwanted {
                // As in Linux: the peer learns by the ABORT that nobody has read its data.
                Unwanted::Waited(id, charge)
                    if endpoint.association(id).is_some_and(|view| view.unread_bytes() == 0) =>
                {
                    endpoint.orphan(now, id, ORPHAN_RTO_MAX, Box::new(charge), &mut host);
                    endpoint.close(now, id, &mut host);
                }
                Unwanted::Late(id) | Unwanted::Waited(id, _) => {
                    endpoint.abort(now, id, b"the listener was closed", &mut host);
                }
            }
        }
    }

    /// Hands a batch to the link. Only a batch that leaves this process gets checksums.
    fn hand_over(&mut self, transmit: &::sctp::Transmit) -> io::Result<()> {
        let gathered = gather(&self.buffer);
        let outcome = self.link.turn_back(&for_link(transmit, &gathered.slices), &gathered.shared);
        drop(gathered);
        if let Some(outcome) = outcome {
            return outcome;
        }
        self.buffer.write_checksums();
        let gathered = gather(&self.buffer);
        let batch = for_link(transmit, &gathered.slices);
        match transmit.is_answering {
            true => self.link.transmit(&batch),
            false => self.link.transmit_apart(&batch),
        }
    }
}

/// Returns a batch with these pieces as the link takes it.
fn for_link<'a>(transmit: &::sctp::Transmit, slices: &'a [IoSlice<'a>]) -> links::Transmit<'a> {
    links::Transmit {
        remote: transmit.remote,
        local: transmit.local,
        traffic_class: transmit.dscp << 2 | if transmit.ecn_capable { ECT_0 } else { NOT_ECT },
        may_fragment: transmit.may_fragment,
        segment_bytes: transmit.segment_bytes,
        slices,
    }
}

fn is_no_route(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::NetworkUnreachable
            | ErrorKind::HostUnreachable
            | ErrorKind::AddrNotAvailable
            // The bound address and the destination do not match.
            | ErrorKind::InvalidInput
            | ErrorKind::PermissionDenied
    )
}

/// The pieces of a batch as a link takes them.
struct Gathered<'a> {
    slices: SmallVec<[IoSlice<'a>; 128]>,
    /// Slices, by their index, whose block the receiver may keep.
    shared: SmallVec<[(usize, &'a Bytes); 32]>,
}

/// Returns the pieces of a batch as slices; adjacent pieces become one slice.
fn gather(buffer: &TransmitBuffer) -> Gathered<'_> {
    let (mut slices, mut shared) = (SmallVec::<[IoSlice<'_>; 128]>::new(), SmallVec::new());

    let mut run: Option<std::ops::Range<usize>> = None;
    for piece in buffer.pieces() {
        match piece {
            Piece::Inline(range) => match &mut run {
                Some(open) if open.end == range.start => open.end = range.end,
                _ => {
                    if let Some(done) = run.replace(range.clone()) {
                        slices.push(IoSlice::new(&buffer.inline()[done]));
                    }
                }
            },
            Piece::Shared(bytes) => {
                if let Some(done) = run.take() {
                    slices.push(IoSlice::new(&buffer.inline()[done]));
                }
                if buffer.may_share(bytes) {
                    shared.push((slices.len(), bytes));
                }
                slices.push(IoSlice::new(bytes));
            }
        }
    }
    if let Some(done) = run {
        slices.push(IoSlice::new(&buffer.inline()[done]));
    }
    Gathered { slices, shared }
}
