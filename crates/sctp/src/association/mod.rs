//! One association: its state, its paths, and its procedures.
//!
//! | file | procedure |
//! |---|---|
//! | `init` | contents of INIT and INIT ACK (RFC 9260 §3.3.2, §5.1.2) |
//! | `setup` | INIT to COOKIE ACK (§5) |
//! | `restart` | a peer that connects again (§5.2.4 A) |
//! | `messages` | messages of the user, on their way into the send queue |
//! | `flush_rule` | when enough waits to be worth a transmission |
//! | `causes` | error causes of ABORT and ERROR |
//! | `options` | changes of options while the association runs |
//! | `view` | what users read of an association |
//! | `receive` | chunks of a packet, in their order |
//! | `schedule` | selection of the path of a packet with data |
//! | `transmit` | building of packets |
//! | `timers` | T1, T2, T3, delayed SACK |
//! | `heartbeat` | probing of paths (§8.3) |
//! | `failover` | failure and return of paths (§8.2, RFC 7829) |
//! | `mtu` | packet length (RFC 8899) |
//! | `events` | optional events (RFC 6458 §6.1) |
//! | `shutdown` | SHUTDOWN and ABORT (§9) |
//! | `orphan` | T5 of an association whose user has gone |
//! | `closing` | the end: the report to the user, and the final packet |
//! | `observe` | statistics and trace |
//!
//! These files are one module, so each of them sees the fields of [`Association`]. Nearly all of these are owners with private
//! fields, which change by their own functions only: [`Outbound`], [`Paths`], [`Ecn`], and
//!
//! | file | owns |
//! |---|---|
//! | `receiving` | the receiving side, before and after the peer's initial TSN is known |
//! | `control` | control chunks that wait for a packet |
//! | `retry` | the timer of a chunk that is sent until it is answered: T1, T2 |
//! | `peer` | what the peer supports |
//! | `peer_errors` | the error counter of the association (§8.1) |
//! | `probe_answers` | replies to heartbeats between other pairs of addresses |
//! | `reaction` | the effects of the packet that is being handled |
//! | `returns` | messages that return to the user |
//! | `timer_state` | times that belong to no state and no path |
//!
//! The other fields are plain values. One file or two change each: `identity` (`setup`, `restart`), `has_upper_data` and
//! `is_shut_down` (`shutdown`), `orphan` (`orphan`, `closing`), `probes_mtu` (`mtu`) and `due_from_bytes` (`flush_rule`).

mod causes;
mod closing;
mod control;
mod events;
mod failover;
mod flush_rule;
mod heartbeat;
mod init;
mod messages;
mod mtu;
mod observe;
mod options;
mod orphan;
mod peer;
mod peer_errors;
mod probe_answers;
mod reaction;
mod receive;
mod receiving;
mod restart;
mod retry;
mod returns;
mod schedule;
mod setup;
mod shutdown;
mod timer_state;
mod timers;
mod transmit;
mod view;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::RngCore;

use crate::config::{AssociationConfig, Checksum};
use crate::ecn::Ecn;
use crate::error::{CloseReason, PathError};
use crate::event::{Host, PathChange, PathReason};
use crate::identifiers::AssociationId;
use crate::identity::Identity;
use crate::inbound::Inbound;
use crate::local_addresses::LocalAddresses;
use crate::outbound::{FreeBlocks, Outbound};
use crate::path::{Path, Paths};
use crate::path_state::PathState;
use crate::statistics::{EndpointStatistics, Statistics};
use crate::time::Time;
use crate::trace::Tracer;
use crate::transmit::BatchLimits;
use control::{Control, ControlQueue};
use orphan::Orphan;
use peer::Peer;
use peer_errors::PeerErrors;
use probe_answers::ProbeAnswers;
use reaction::Reaction;
use receiving::Receiving;
use retry::Retry;
use returns::Returns;
use timer_state::TimerState;

pub(crate) use causes::{abort_chunk, error_chunk, reports_stale_cookie, write_abort};
pub(crate) use events::RETURNED_MAX;
pub use flush_rule::FlushWhen;
pub(crate) use init::{BadInit, InitAnswer, PeerInit, is_unicast, write_address_list};
pub use view::{AssociationView, PathView};

/// The fields of both states of the setup.
#[derive(Debug, Clone, Copy)]
struct Setup {
    t1: Retry,
    /// The user has requested a shutdown, which follows once the association is up.
    shutdown_wanted: bool,
    /// After a stale cookie: the requested extension of the next cookie's lifetime (RFC 9260 §5.2.6).
    cookie_increment: Option<Duration>,
}

/// State of an association (RFC 9260 §4). A timer is part of the state that it belongs to.
#[derive(Debug)]
enum State {
    /// INIT sent; T1-init runs.
    CookieWait(Setup),
    /// COOKIE ECHO sent; T1-cookie runs.
    CookieEchoed {
        setup: Setup,
        cookie: Vec<u8>,
    },
    Established,
    /// The user shut down; data is still to be acknowledged. T5 guards the wait since the last advance of the cumulative TSN.
    ShutdownPending {
        progress_at: Time,
    },
    /// SHUTDOWN sent; T2 runs, and T5 guards the whole.
    ShutdownSent {
        t2: Retry,
        t5_at: Time,
    },
    /// The peer shut down; our data is still to be acknowledged, and T5 guards the wait as before.
    ShutdownReceived {
        progress_at: Time,
    },
    /// SHUTDOWN ACK sent; T2 runs.
    ShutdownAckSent {
        t2: Retry,
    },
    Closed {
        /// The reason, until it was reported to the user.
        unreported: Option<CloseReason>,
        /// The chunk of the final packet: ABORT or SHUTDOWN COMPLETE.
        last_chunk: Option<Control>,
    },
}

/// The endpoint's state, lent to every procedure.
pub(crate) struct Context<'a, H: Host + ?Sized> {
    pub(crate) now: Time,
    pub(crate) host: &'a mut H,
    pub(crate) random: &'a mut ChaCha12Rng,
    pub(crate) blocks: &'a mut FreeBlocks,
    pub(crate) statistics: &'a mut EndpointStatistics,
}

#[derive(Debug)]
pub(crate) struct Association {
    id: AssociationId,
    config: Arc<AssociationConfig>,
    local: LocalAddresses,
    identity: Identity,
    state: State,
    paths: Paths,
    outbound: Outbound,
    returns: Returns,
    inbound: Receiving,
    control: ControlQueue,
    probe_answers: ProbeAnswers,
    timers: TimerState,
    reaction: Reaction,
    errors: PeerErrors,
    /// Whether the upper layer still has data that it has accepted from others, see [`Association::set_has_upper_data`].
    has_upper_data: bool,
    /// Whether the user has shut the association down: no message follows, also after a restart of the peer.
    is_shut_down: bool,
    /// Present once the user has gone ([`Association::orphan`]).
    orphan: Option<Orphan>,
    ecn: Ecn,
    peer: Peer,
    /// Whether a path has an MTU probe to send.
    probes_mtu: bool,
    statistics: Statistics,
    /// Present while the association is traced.
    trace: Option<Box<Tracer>>,
    /// Number of waiting bytes from which the association is due, as of the last call of [`Association::update_due`].
    due_from_bytes: usize,
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
        let outbound = Outbound::new(identity.local_initial_tsn, &config);
        let trace = config.trace.then(|| Box::new(Tracer::new(&identity)));
        Association {
            id,
            config,
            local,
            identity,
            state,
            paths: Paths::new(paths),
            outbound,
            returns: Returns::default(),
            inbound: Receiving::default(),
            control: ControlQueue::default(),
            probe_answers: ProbeAnswers::default(),
            timers: TimerState::default(),
            reaction: Reaction::default(),
            errors: PeerErrors::default(),
            has_upper_data: false,
            is_shut_down: false,
            orphan: None,
            ecn: Ecn::default(),
            peer: Peer::default(),
            probes_mtu: false,
            statistics: Statistics::default(),
            trace,
            due_from_bytes: usize::MAX,
        }
    }

    pub(crate) fn config(&self) -> Arc<AssociationConfig> {
        Arc::clone(&self.config)
    }

    #[inline]
    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// Returns the local addresses that the association may use.
    #[inline]
    pub(crate) fn local(&self) -> &LocalAddresses {
        &self.local
    }

    /// Returns the local addresses in use, as far as they are known.
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
        matches!(self.state, State::Closed { .. })
    }

    pub(crate) fn is_set_up(&self) -> bool {
        !matches!(self.state, State::CookieWait(_) | State::CookieEchoed { .. })
    }

    /// Returns whether our INIT is unanswered.
    pub(crate) fn is_in_cookie_wait(&self) -> bool {
        matches!(self.state, State::CookieWait(_))
    }

    pub(crate) fn remotes(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.paths.remotes()
    }

    /// Returns the confirmed addresses of the peer (RFC 9260 §5.4).
    pub(crate) fn confirmed_remotes(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.paths.iter().filter(|path| path.state() != PathState::Unconfirmed).map(Path::remote)
    }

    /// Checks every counter against a recount; for tests.
    #[cfg(feature = "testing")]
    pub(crate) fn assert_counters(&self) {
        // The paths of an association that has ended are left as they were.
        if !self.is_closed() {
            self.outbound.assert_counters(&self.paths);
        }
    }

    #[cfg(feature = "testing")]
    pub(crate) fn remembered_packets(&self) -> usize {
        self.paths.iter().map(Path::remembered_packets).sum()
    }

    /// Records that the reader took `bytes`, and the charge of `charges` messages in addition. Returns whether a window update is
    /// due.
    #[inline]
    pub(crate) fn consumed(&mut self, bytes: usize, charges: usize) -> bool {
        self.inbound.consumed(bytes, charges)
    }

    /// Keeps the credit of `bytes` that the reader has just taken.
    pub(crate) fn hold_window(&mut self, bytes: usize) {
        if let Some(inbound) = self.inbound.as_mut() {
            inbound.hold_window(bytes);
        }
    }

    /// Releases credit that the reader has kept. Returns whether a window update is due.
    pub(crate) fn release_window(&mut self, bytes: usize) -> bool {
        self.inbound.as_mut().is_some_and(|inbound| inbound.release_window(bytes))
    }

    /// Returns whether waiting fragments may be in receive blocks.
    #[inline]
    pub(crate) fn is_attached(&self) -> bool {
        self.inbound.as_ref().is_some_and(Inbound::is_attached)
    }

    /// Copies waiting fragments out of their receive blocks.
    pub(crate) fn detach(&mut self) {
        if let Some(inbound) = self.inbound.as_mut() {
            inbound.detach();
        }
    }

    pub(crate) fn set_primary<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        address: IpAddr,
    ) -> Result<(), PathError> {
        let path_id = self.path_at(address)?;
        // RFC 9260 §5.4: no data is sent to an unconfirmed address.
        if self.paths[path_id].state() == PathState::Unconfirmed {
            return Err(PathError::Unconfirmed { address });
        }
        self.paths.set_primary(path_id);
        self.tell_path(cx, path_id, PathChange::MadePrimary, PathReason::Requested);
        Ok(())
    }

    /// Queues a control chunk, or counts it as dropped.
    fn push_control(&mut self, chunk: Control) {
        let has_room = self.control.push(chunk);
        self.statistics.control_chunks_dropped += u64::from(!has_room);
    }

    /// Counts a chunk that is malformed, or has no meaning in this state.
    #[cold]
    fn discard_chunk(&mut self) {
        self.statistics.chunks_discarded += 1;
    }

    /// Returns whether addresses of paths were added or changed since the last call.
    pub(crate) fn take_paths_changed(&mut self) -> bool {
        self.paths.take_changed()
    }
}

/// Returns a random duration between 0 and `range`.
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
