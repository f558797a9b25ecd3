//! One association: its state, its paths, and what happens to it.
//!
//! | file | procedure |
//! |---|---|
//! | `init` | what INIT and INIT ACK say (RFC 9260 §3.3.2, §5.1.2) |
//! | `setup` | INIT to COOKIE ACK (§5) |
//! | `restart` | a peer that connects again (§5.2.4 A) |
//! | `receive` | chunks of a packet, in their order |
//! | `schedule` | which path a packet with data takes |
//! | `transmit` | packets out of what waits |
//! | `timers` | T1, T2, T3, delayed SACK |
//! | `heartbeat` | probing of paths (§8.3) |
//! | `failover` | paths that fail and return (§8.2, RFC 7829) |
//! | `mtu` | how long packets may be (RFC 8899) |
//! | `events` | what the user hears of, if it wants to (RFC 6458 §6.1) |
//! | `shutdown` | SHUTDOWN and ABORT (§9) |
//! | `observe` | what those who look on see: statistics and trace |

mod causes;
mod events;
mod failover;
mod heartbeat;
mod init;
mod mtu;
mod observe;
mod receive;
mod restart;
mod schedule;
mod settings;
mod setup;
mod shutdown;
mod timers;
mod transmit;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::RngCore;
use sctp_message::SendInfo;
use sctp_wire::VerificationTag;
use sctp_wire::chunk::CookieEcho;
use sctp_wire::packet::Header;

use crate::config::{AssociationConfig, CONTROL_CHUNKS_MAX, Checksum};

use crate::ecn::Ecn;
use crate::error::{CloseReason, PrimaryError, SendError};
use crate::event::{Event, Host, PathChange, PathReason};
use crate::extensions::Extensions;
use crate::identifiers::AssociationId;
use crate::identity::Identity;
use crate::inbound::Inbound;
use crate::local_addresses::LocalAddresses;
use crate::outbound::{Block, Outbound};
use crate::path::Path;
use crate::path_state::PathState;
use crate::receive_buffer::Held;
use crate::reply::Reply;
use crate::statistics::{EndpointStatistics, Statistics};
use crate::time::Time;
use crate::trace::{self, Tracer};
use crate::transmit::BatchLimits;

pub(crate) use causes::{abort_chunk, error_chunk, reports_stale_cookie, write_abort};
pub(crate) use init::{BadInit, PeerInit, is_unicast, write_address_list, write_init_ack};

/// A chunk that is sent until it is answered.
#[derive(Debug, Clone, Copy)]
struct Retry {
    at: Time,
    attempts: u32,
    rto: Duration,
}

/// Where an association stands (RFC 9260 §4). A timer lives in the state that it belongs to.
#[derive(Debug)]
enum State {
    /// INIT sent; T1-init runs.
    CookieWait {
        t1: Retry,
    },
    /// COOKIE ECHO sent; T1-cookie runs.
    CookieEchoed {
        t1: Retry,
        cookie: Vec<u8>,
    },
    Established,
    /// The user shut down; data is still to be acknowledged.
    ShutdownPending,
    /// SHUTDOWN sent; T2 runs, and T5 guards the whole.
    ShutdownSent {
        t2: Retry,
        t5_at: Time,
    },
    /// The peer shut down; our data is still to be acknowledged.
    ShutdownReceived,
    /// SHUTDOWN ACK sent; T2 runs.
    ShutdownAckSent {
        t2: Retry,
    },
    Closed,
}

/// A control chunk, serialized, waiting for the next packet.
#[derive(Debug)]
struct Control {
    bytes: Vec<u8>,
    /// The path to use; the data path if none.
    path: Option<usize>,
    /// An INIT: alone in its packet, with verification tag 0 (RFC 9260 §8.5.1 A).
    init: bool,
}

/// Work that is done only once for each packet.
#[derive(Debug, Default)]
struct Seen {
    sack: bool,
    /// An ERROR that the user heard of.
    error: bool,
}

/// In which of the endpoint's lists the association waits to transmit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Queued {
    #[default]
    No,
    Held,
    Due,
}

/// The endpoint's state, lent to every procedure.
pub(crate) struct Context<'a, H: Host + ?Sized> {
    pub(crate) now: Time,
    pub(crate) host: &'a mut H,
    pub(crate) random: &'a mut ChaCha12Rng,
    pub(crate) statistics: &'a mut EndpointStatistics,
}

#[derive(Debug)]
pub(crate) struct Association {
    id: AssociationId,
    config: Arc<AssociationConfig>,
    local: LocalAddresses,
    identity: Identity,
    state: State,
    paths: Vec<Path>,
    /// Where new data goes.
    primary: usize,
    /// The path that retransmissions take after T3 expired, while any of them waits.
    retransmit_path: Option<usize>,
    /// Where the last DATA came from, and SACKs go.
    reply_path: usize,
    outbound: Outbound,
    /// Present once the peer's initial TSN is known.
    inbound: Option<Inbound>,
    /// Events and messages from before that wait to be read, as a receive buffer counts them.
    early: Held,
    control: VecDeque<Control>,
    /// When the next unconfirmed path may be probed.
    next_verification: Time,
    /// When data came last, or the association came up.
    last_data_at: Time,
    /// Work that the present packet has caused already.
    seen: Seen,
    /// Error causes that the packet in hand has given rise to.
    reports: Vec<u8>,
    /// Consecutive retransmissions and unanswered heartbeats (RFC 9260 §8.1).
    errors: u32,
    /// The user shut down before the association was up.
    shutdown_wanted: bool,
    /// A cookie came too late: how much longer than usual the next one is asked to live.
    cookie_increment: Option<Duration>,
    ecn: Ecn,
    /// Adaptation layer indication of the peer; 0 if there is none.
    peer_adaptation: u32,
    /// Causes of the peer's ABORT, for a user who subscribes to events.
    abort_causes: Bytes,
    /// Extensions that both sides have beyond RFC 9260.
    extensions: Extensions,
    /// A path has a probe of its MTU to send.
    probes_mtu: bool,
    /// Whether the endpoint has yet to enter addresses of paths.
    paths_changed: bool,
    statistics: Statistics,
    /// Present while somebody looks on.
    trace: Option<Box<Tracer>>,
    /// The peer's addresses under which the endpoint knows this association.
    pub(crate) registered: Vec<SocketAddr>,
    pub(crate) queued: Queued,
    /// So much must wait until the association is due, as of the last call of [`Association::due`].
    due_from_bytes: usize,
    /// The endpoint knows that fragments wait in receive blocks.
    pub(crate) attached: bool,
    /// The earliest time for which the endpoint's timer heap has an entry.
    pub(crate) armed: Option<Time>,
    /// The entry that was the earliest before that one, and is again once that one has come up.
    pub(crate) armed_later: Option<Time>,
}

impl Association {
    fn new(
        id: AssociationId,
        config: Arc<AssociationConfig>,
        local: LocalAddresses,
        identity: Identity,
        state: State,
        paths: Vec<Path>,
    ) -> Self {
        let outbound = Outbound::new(sctp_wire::Tsn(identity.local_initial_tsn), &config);
        let trace = config.trace.then(|| Box::new(Tracer::new(&identity)));
        Association {
            id,
            config,
            local,
            identity,
            state,
            paths,
            primary: 0,
            retransmit_path: None,
            reply_path: 0,
            outbound,
            inbound: None,
            early: Held::default(),
            control: VecDeque::new(),
            next_verification: Time::ZERO,
            last_data_at: Time::ZERO,
            seen: Seen::default(),
            reports: Vec::new(),
            errors: 0,
            shutdown_wanted: false,
            cookie_increment: None,
            ecn: Ecn::default(),
            peer_adaptation: 0,
            abort_causes: Bytes::new(),
            extensions: Extensions::default(),
            probes_mtu: false,
            paths_changed: false,
            statistics: Statistics::default(),
            trace,
            registered: Vec::new(),
            queued: Queued::No,
            due_from_bytes: usize::MAX,
            attached: false,
            armed: None,
            armed_later: None,
        }
    }

    pub(crate) fn config(&self) -> Arc<AssociationConfig> {
        Arc::clone(&self.config)
    }

    #[inline]
    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// The addresses of ours that it may use.
    #[inline]
    pub(crate) fn local(&self) -> &LocalAddresses {
        &self.local
    }

    /// Those that it does use, as far as they are known.
    pub(crate) fn local_addresses(&self) -> Vec<IpAddr> {
        if !self.local.listed().is_empty() {
            return self.local.listed().to_vec();
        }
        let mut in_use: Vec<IpAddr> = self.paths.iter().filter_map(Path::local).collect();
        in_use.sort_unstable();
        in_use.dedup();
        in_use
    }

    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    pub(crate) fn is_set_up(&self) -> bool {
        !matches!(self.state, State::CookieWait { .. } | State::CookieEchoed { .. })
    }

    /// Our INIT is not answered yet.
    pub(crate) fn is_in_cookie_wait(&self) -> bool {
        matches!(self.state, State::CookieWait { .. })
    }

    pub(crate) fn remotes(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.paths.iter().map(Path::remote)
    }

    /// Those that are known to be the peer's (RFC 9260 §5.4).
    pub(crate) fn confirmed_remotes(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.paths.iter().filter(|path| path.state() != PathState::Unconfirmed).map(Path::remote)
    }

    /// Checks every counter against a recount; for tests.
    #[cfg(feature = "testing")]
    pub(crate) fn assert_counters(&self) {
        self.outbound.assert_counters(&self.paths);
    }

    #[cfg(feature = "testing")]
    pub(crate) fn remembered_packets(&self) -> usize {
        self.paths.iter().map(Path::remembered_packets).sum()
    }

    #[inline]
    fn takes_messages(&self) -> bool {
        match self.state {
            State::Established => true,
            State::CookieWait { .. } | State::CookieEchoed { .. } => !self.shutdown_wanted,
            _ => false,
        }
    }

    /// Returns why no message is taken.
    #[cold]
    fn refusal(&self) -> SendError {
        match self.state {
            State::ShutdownReceived | State::ShutdownAckSent { .. } => SendError::PeerShutdown,
            _ => SendError::Closed,
        }
    }

    /// Checks whether a message with this description can be sent, whether or not there is room for it.
    #[inline]
    pub(crate) fn check_message(&self, info: &SendInfo, bytes: usize) -> Result<(), SendError> {
        if !self.takes_messages() {
            return Err(self.refusal());
        }
        self.outbound.check(info, bytes)
    }

    /// Returns whether the send buffer has room for `bytes`. If not, [`Event::Writable`] follows.
    #[inline]
    pub(crate) fn has_room(&mut self, bytes: usize) -> bool {
        self.outbound.has_room(bytes)
    }

    /// Returns whether no data is in flight.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.outbound.in_flight_payload_bytes() == 0
    }

    /// Queues a message that [`Association::check_message`] has found valid. It leaves when the endpoint is asked to transmit.
    #[inline]
    pub(crate) fn queue_message(
        &mut self,
        now: Time,
        info: &SendInfo,
        bytes: usize,
        blocks: impl IntoIterator<Item = impl Block>,
    ) {
        self.outbound.queue(now, info, bytes, blocks);
        self.statistics.messages_sent += 1;
        self.statistics.bytes_sent += bytes as u64;
    }

    /// The reader took `bytes`, and what so many messages are charged beside them. Returns whether a window update waits to be
    /// sent.
    #[inline]
    pub(crate) fn consumed(&mut self, bytes: usize, charges: usize) -> bool {
        match &mut self.inbound {
            Some(inbound) => inbound.consumed(bytes, charges),
            None => {
                self.early.remove(Held::of(bytes, 1));
                false
            }
        }
    }

    /// The reader keeps the room of `bytes` that it has just taken.
    pub(crate) fn hold_window(&mut self, bytes: usize) {
        if let Some(inbound) = &mut self.inbound {
            inbound.hold_window(bytes);
        }
    }

    /// The reader gives room back that it has kept. Says whether a window update waits to be sent.
    pub(crate) fn release_window(&mut self, bytes: usize) -> bool {
        self.inbound.as_mut().is_some_and(|inbound| inbound.release_window(bytes))
    }

    /// Returns whether fragments wait that may lie in receive blocks.
    #[inline]
    pub(crate) fn is_attached(&self) -> bool {
        self.inbound.as_ref().is_some_and(Inbound::is_attached)
    }

    /// Copies fragments that wait out of their receive blocks.
    pub(crate) fn detach(&mut self) {
        if let Some(inbound) = &mut self.inbound {
            inbound.detach();
        }
    }

    /// Returns whether enough waits to be worth a transmission of its own: control chunks or a SACK that is due,
    /// nothing outstanding, or a full batch or window (the flush rule).
    #[inline]
    pub(crate) fn due(&mut self, limits: BatchLimits) -> bool {
        self.due_from_bytes = self.due_from_bytes(limits);
        self.is_due()
    }

    /// Returns what [`Association::due`] would return if nothing but messages to send has come since its last call.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.outbound.pending_wire_bytes() >= self.due_from_bytes
    }

    /// Returns how much must wait to be worth a transmission of its own. `usize::MAX`: no message makes it so.
    fn due_from_bytes(&self, limits: BatchLimits) -> usize {
        if !self.control.is_empty() || self.probes_mtu || self.inbound.as_ref().is_some_and(Inbound::ack_due)
        {
            return 0;
        }
        if !self.may_carry_data() {
            return usize::MAX;
        }
        let path = &self.paths[self.next_data_path()];
        if !self.outbound.may_send(path) {
            // The first message to wait may change that, others behind it do not.
            return if self.outbound.has_waiting() { usize::MAX } else { 1 };
        }
        let at_once = path.tail_loss_probe_is_due() || self.outbound.has_lost() || self.config.nodelay;
        if at_once || path.in_flight_bytes() == 0 {
            return 0;
        }
        let paced = path.batch_bytes().unwrap_or(usize::MAX);
        let window = path.window_bytes().min(self.outbound.peer_window_bytes());
        let batch = limits.bytes_max.min(window).min(paced);
        batch.max(path.mtu_bytes())
    }

    /// Returns whether anything could leave now, however little.
    pub(crate) fn sendable(&self) -> bool {
        !self.control.is_empty()
            || self.probes_mtu
            || self.inbound.as_ref().is_some_and(Inbound::ack_due)
            || (self.may_carry_data() && self.outbound.may_send(&self.paths[self.next_data_path()]))
    }

    /// Returns whether anything waits, now or for a window.
    pub(crate) fn has_waiting(&self) -> bool {
        self.outbound.has_waiting() || !self.control.is_empty()
    }

    /// States in which DATA may be sent (RFC 9260 §6). In COOKIE-ECHOED it leaves only with the cookie (§5.1 C).
    fn may_carry_data(&self) -> bool {
        match self.state {
            State::Established | State::ShutdownPending | State::ShutdownReceived => true,
            State::CookieEchoed { .. } => {
                self.control.front().is_some_and(|chunk| chunk.bytes.first() == Some(&CookieEcho::KIND))
            }
            _ => false,
        }
    }

    pub(crate) fn set_primary<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        address: IpAddr,
    ) -> Result<(), PrimaryError> {
        let path_id = self.path_at(address)?;
        // RFC 9260 §5.4: no data goes to an address that is not confirmed.
        if self.paths[path_id].state() == PathState::Unconfirmed {
            return Err(PrimaryError::Unconfirmed { address });
        }
        self.primary = path_id;
        self.tell_path(cx, path_id, PathChange::MadePrimary, PathReason::Requested);
        Ok(())
    }

    fn path_of(&self, remote: SocketAddr) -> Option<usize> {
        self.paths.iter().position(|p| p.remote().ip() == remote.ip())
    }

    fn push_control(&mut self, bytes: Vec<u8>, path: Option<usize>) {
        if self.control.len() < CONTROL_CHUNKS_MAX {
            self.control.push_back(Control { bytes, path, init: false });
        } else {
            self.statistics.control_chunks_dropped += 1;
        }
    }

    /// Counts a chunk that is malformed, or means nothing in this state.
    #[cold]
    fn discard_chunk(&mut self) {
        self.statistics.chunks_discarded += 1;
    }

    fn close<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, reason: CloseReason) {
        if self.is_closed() {
            return;
        }
        if let Some(inbound) = &mut self.inbound {
            inbound.take_rest(self.id, &mut self.statistics, cx.host);
        }
        self.tell_end_of_partial_delivery(cx);
        self.tell_loss(cx, &reason);
        // Control chunks that waited were for the old peer; a caller that must still send a last chunk adds it now.
        self.control.clear();
        self.state = State::Closed;
        if let Some(tracer) = &mut self.trace {
            tracer.push(cx.now, None, trace::Event::Closed(reason.clone()));
        }
        match reason {
            CloseReason::Shutdown => cx.statistics.shut_down += 1,
            CloseReason::Aborted | CloseReason::PeerAborted { .. } | CloseReason::ProtocolViolation(_) => {
                cx.statistics.aborted += 1;
            }
            _ => {}
        }
        if let Some(charge) = self.inbound.as_mut().and_then(Inbound::take_unread_charge) {
            cx.host.keep_charge(self.id, charge);
        }
        cx.host.event(self.id, Event::Closed(reason));
    }

    /// Returns whether addresses of paths were added or changed since the last call.
    pub(crate) fn take_paths_changed(&mut self) -> bool {
        std::mem::take(&mut self.paths_changed)
    }

    /// Returns where to report the end to the peer in any case: its address and our own.
    pub(crate) fn way_back(&self) -> Option<(SocketAddr, Option<IpAddr>)> {
        let path = self.paths.get(self.primary).or(self.paths.first())?;
        Some((path.remote(), path.local()))
    }

    /// The packet that a closed association still owes its peer: ABORT or SHUTDOWN COMPLETE.
    pub(crate) fn last_words(&mut self, checksum: Checksum) -> Option<Reply> {
        let chunk = self.control.pop_back()?;
        let path_id = chunk.path.unwrap_or(self.data_path());
        let path = &self.paths[path_id];
        let header = Header {
            source_port: self.identity.local_port,
            destination_port: self.identity.peer_port,
            verification_tag: VerificationTag(self.identity.peer_tag),
        };
        if self.identity.peer_tag == 0 {
            return None;
        }
        let mut reply = Reply::new(path.remote(), path.local(), &header, checksum, |out| {
            out.extend_from_slice(&chunk.bytes)
        });
        reply.dscp = self.dscp(path_id);
        if let Some(tracer) = &mut self.trace {
            tracer.last_words(path_id, &reply.packet);
        }
        Some(reply)
    }

    /// Ends the association without a word to the peer.
    pub(crate) fn drop_with<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, reason: CloseReason) {
        self.close(cx, reason);
    }
}

/// A random number between 0 and `range`.
fn random_below(random: &mut ChaCha12Rng, range: Duration) -> Duration {
    let span = u64::try_from(range.as_nanos()).unwrap_or(u64::MAX).max(1);
    Duration::from_nanos(random.next_u64() % span)
}

/// Rules for building a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchRules {
    pub(crate) limits: BatchLimits,
    pub(crate) checksum: Checksum,
}
