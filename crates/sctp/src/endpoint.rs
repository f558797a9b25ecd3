//! The endpoint: finds the association of a packet, answers packets that belong to none, and owns the associations, their timers
//! and the queues of those that have something to send.

mod admissions;
mod answer_budget;
mod demultiplex;
mod expected;
mod fault;
mod handshake;
mod icmp;
mod incoming;
mod known_prefixes;
mod listener_index;
mod listeners;
mod messages;
mod other_ways;
mod owners;
mod permit;
mod queues;
mod replies;
mod slots;
mod strays;
mod tables;
mod timers;
mod traces;
mod view;

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use sctp_message::PathId;
use sctp_wire::{Tsn, VerificationTag};

use crate::association::{Association, BatchRules, Context, RETURNED_MAX};
use crate::config::{AssociationConfig, EndpointConfig, PEER_ADDRESSES_MAX, PathOptions};
use crate::cookie::CookieJar;
use crate::error::{ConnectError, PathError};
use crate::event::Host;
use crate::identifiers::{AssociationId, ListenerId};
use crate::identity::Identity;
use crate::local_addresses::LocalAddresses;
use crate::outbound::FreeBlocks;
use crate::path_hints::PathHints;
use crate::reply::Reply;
use crate::statistics::{AssociationState, EndpointStatistics, STATISTICS_VERSION, Statistics};
use crate::time::Time;
use crate::transmit::{BatchLimits, Scope, Transmit, TransmitBuffer};

use admissions::Admissions;
use answer_budget::AnswerBudget;
pub use demultiplex::Arrival;
pub use expected::ExpectedPackets;
pub use icmp::Unreachable;
use listeners::Listeners;
use other_ways::OtherWays;
use owners::Owners;
pub use permit::{Admission, Permit};
use replies::Replies;
use slots::Slots;
use strays::Strays;
use traces::Traces;

/// Maximum number of timers that one call handles. A program may have thousands of associations that repeat a packet
/// every millisecond; other work of the caller must go on meanwhile.
const EXPIRED_MAX: usize = 64;

/// The key of an association by the peer's address and both ports, for packets without one of our tags. In the order of
/// keys, those that differ only in the UDP port stand side by side.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct PeerKey {
    local_port: u16,
    peer_port: u16,
    remote: SocketAddr,
}

/// The dynamic ports (RFC 6335 §6).
const FIRST_DYNAMIC_PORT: u16 = 49152;
const DYNAMIC_PORTS: u16 = 16384;

/// One SCTP instance: every association of a set of sockets.
pub struct Endpoint {
    config: EndpointConfig,
    local_addresses: Arc<[IpAddr]>,
    associations: Slots,
    by_tag: HashMap<VerificationTag, AssociationId>,
    /// Several associations have one key only if each has local addresses of its own. Those of an association never change.
    by_peer: BTreeMap<PeerKey, Owners>,
    /// The association of the last packet, which is probably that of the next one, too.
    last: Option<(VerificationTag, AssociationId)>,
    /// The association that is being handled: it stays here if a call unwinds.
    in_progress: Option<AssociationId>,
    listeners: Listeners,
    replies: Replies,
    budget: AnswerBudget,
    strays: Strays,
    other_ways: OtherWays,
    admissions: Admissions,
    cookies: CookieJar,
    random: ChaCha12Rng,
    limits: BatchLimits,
    free_blocks: FreeBlocks,
    statistics: EndpointStatistics,
    traces: Traces,
    #[cfg(feature = "testing")]
    initial_tsn: Option<Tsn>,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("associations", &self.associations.len()).finish_non_exhaustive()
    }
}

impl Endpoint {
    /// Returns an endpoint without associations. `seed` must come from a good random source (tags, TSNs and the cookie key are
    /// drawn from it).
    pub fn new(config: EndpointConfig, seed: [u8; 32], limits: BatchLimits) -> Self {
        let mut random = ChaCha12Rng::from_seed(seed);
        let mut secret = [0; 32];
        random.fill_bytes(&mut secret);
        let cookies = CookieJar::new(secret, (random.next_u64(), random.next_u64()));
        let budget = AnswerBudget::new((random.next_u64(), random.next_u64()));
        Endpoint {
            config,
            local_addresses: Arc::default(),
            associations: Slots::default(),
            by_tag: HashMap::new(),
            by_peer: BTreeMap::new(),
            last: None,
            in_progress: None,
            listeners: Listeners::default(),
            replies: Replies::default(),
            budget,
            strays: Strays::default(),
            other_ways: OtherWays::default(),
            admissions: Admissions::default(),
            cookies,
            random,
            limits,
            free_blocks: FreeBlocks::default(),
            statistics: EndpointStatistics::default(),
            traces: Traces::default(),
            #[cfg(feature = "testing")]
            initial_tsn: None,
        }
    }

    /// Sets the addresses to list in INIT and INIT ACK; each is listed to peers for whom it means this host. Fewer than two are
    /// not listed.
    pub fn set_local_addresses(&mut self, addresses: Vec<IpAddr>) {
        self.local_addresses = addresses.into();
        self.listeners.set_all_addresses(&self.local_addresses);
    }

    /// Accepts associations on an SCTP port, at the addresses in `config`. `None`: another listener has one of these addresses on
    /// that port, and the two do not share it. Call [`Endpoint::poll_expected`] before a peer can learn of the port.
    pub fn listen(&mut self, port: u16, config: AssociationConfig) -> Option<ListenerId> {
        let local = LocalAddresses::new(&config.local_addresses, &self.local_addresses);
        self.strays.on_listener_added();
        self.listeners.insert(port, local, config)
    }

    /// Stops accepting associations; existing ones stay.
    pub fn unlisten(&mut self, listener: ListenerId) {
        self.strays.on_ports_changed();
        self.listeners.remove(listener);
    }

    /// Returns the SCTP ports in use by listeners and associations. A port may occur more than once.
    pub fn ports(&self) -> impl Iterator<Item = u16> + '_ {
        let of_associations = self.associations.iter().map(|association| association.identity().local_port);
        self.listeners.ports().chain(of_associations)
    }

    /// Returns an SCTP port that no listener uses, and no association of this endpoint with `peer_port` at one of `remotes`.
    /// `None`: all are in use.
    pub fn free_port(&mut self, remotes: &[SocketAddr], peer_port: u16) -> Option<u16> {
        // RFC 6056 §3.3.1: a random start, then one port after the other.
        let start = self.random.next_u32() as u16 % DYNAMIC_PORTS;
        (0..DYNAMIC_PORTS).map(|i| FIRST_DYNAMIC_PORT + (start + i) % DYNAMIC_PORTS).find(|&local_port| {
            let key = |&remote| PeerKey { remote, local_port, peer_port };
            !self.listeners.has(local_port)
                && !remotes.iter().any(|remote| self.by_peer.contains_key(&key(remote)))
        })
    }

    /// Starts an association, which is up at the event [`Event::Connected`](crate::Event::Connected). Of the peer's addresses,
    /// the first [`PEER_ADDRESSES_MAX`] are used.
    pub fn connect<H: Host + ?Sized>(
        &mut self,
        now: Time,
        local_port: u16,
        peer_port: u16,
        remotes: &[SocketAddr],
        config: Arc<AssociationConfig>,
        host: &H,
    ) -> Result<AssociationId, ConnectError> {
        let key = |remote| PeerKey { remote, local_port, peer_port };
        if remotes.is_empty() {
            return Err(ConnectError::NoAddress);
        }
        let local = LocalAddresses::new(&config.local_addresses, &self.local_addresses);
        if remotes.iter().any(|&r| self.is_taken(&key(r), &local)) {
            return Err(ConnectError::Exists);
        }
        let families = local.families();
        let usable = remotes.iter().filter(|remote| families.has(remote.ip())).take(PEER_ADDRESSES_MAX);
        let paths: Vec<_> = usable.map(|&r| (r, host.path_hints(r))).collect();
        if paths.is_empty() {
            return Err(ConnectError::NoSource);
        }
        let identity = Identity {
            local_port,
            peer_port,
            local_tag: self.new_tag(),
            peer_tag: None,
            local_initial_tsn: self.new_initial_tsn(),
        };
        let id = self.associations.next_id();
        let mut association = Association::connect(now, id, config, identity, &paths, local);
        association.trace_changes(now);
        self.insert(association);
        self.strays.on_ports_changed();
        self.update_queues(id);
        Ok(id)
    }

    /// Stops sending: the association ends when everything is acknowledged (RFC 9260 §9.2).
    pub fn shutdown<H: Host + ?Sized>(&mut self, now: Time, id: AssociationId, host: &mut H) {
        self.with_open(id, now, host, |association, cx| association.shutdown(cx));
    }

    /// Sets whether the user has messages left that it has accepted from others and that wait for room. After a SHUTDOWN
    /// of the peer, the association takes them until the user has no more.
    pub fn set_has_upper_data<H: Host + ?Sized>(
        &mut self,
        now: Time,
        id: AssociationId,
        has_upper_data: bool,
        host: &mut H,
    ) {
        self.with_open(id, now, host, |association, cx| association.set_has_upper_data(cx, has_upper_data));
    }

    /// Makes this address of the peer the primary one: new data goes there while it answers (RFC 9260 §6.4, §11.1.6).
    ///
    /// # Errors
    ///
    /// The peer has no such address, or has not answered there yet, or is gone.
    pub fn set_primary<H: Host + ?Sized>(
        &mut self,
        now: Time,
        id: AssociationId,
        address: IpAddr,
        host: &mut H,
    ) -> Result<(), PathError> {
        let mut outcome = Err(PathError::Closed);
        self.with_open(id, now, host, |association, cx| outcome = association.set_primary(cx, address));
        outcome
    }

    /// Changes the options of an association, except those used by its handshake. Changed options are applied to all paths.
    pub fn set_config<H: Host + ?Sized>(
        &mut self,
        now: Time,
        id: AssociationId,
        config: &AssociationConfig,
        host: &mut H,
    ) {
        self.with_open(id, now, host, |association, cx| association.set_config(cx, config));
    }

    /// Changes the options of the path to one address of the peer; without an address, of all current and future paths.
    ///
    /// # Errors
    ///
    /// The peer has no such address, or is gone.
    pub fn set_path<H: Host + ?Sized>(
        &mut self,
        now: Time,
        id: AssociationId,
        address: Option<IpAddr>,
        options: &PathOptions,
        host: &mut H,
    ) -> Result<(), PathError> {
        let mut outcome = Err(PathError::Closed);
        self.with_open(id, now, host, |association, cx| outcome = association.set_path(cx, address, options));
        outcome
    }

    /// Returns the path of an association to an address of the peer, for [`SendInfo::path`](crate::SendInfo::path).
    pub fn path_to(&self, id: AssociationId, address: IpAddr) -> Option<PathId> {
        self.associations.get(id)?.path_at(address).ok()
    }

    /// Sets the options and addresses of associations that a listener will accept. Returns false and changes nothing if another
    /// listener on that port has one of the addresses.
    pub fn set_listener_config(&mut self, listener: ListenerId, config: AssociationConfig) -> bool {
        let local = LocalAddresses::new(&config.local_addresses, &self.local_addresses);
        self.listeners.change(listener, local, config)
    }

    /// Returns the options of an association.
    pub fn config(&self, id: AssociationId) -> Option<Arc<AssociationConfig>> {
        self.associations.get(id).map(|association| association.config())
    }

    /// Ends the association at once; unsent data is lost (RFC 9260 §9.1).
    pub fn abort<H: Host + ?Sized>(&mut self, now: Time, id: AssociationId, reason: &[u8], host: &mut H) {
        self.with_open(id, now, host, |association, cx| association.abort(cx, reason));
    }

    /// Ends an association that its user has left: delivers what the user has sent, then shuts the association down. Aborts an
    /// association that is still being set up and has nothing to deliver.
    pub fn close<H: Host + ?Sized>(&mut self, now: Time, id: AssociationId, host: &mut H) {
        // No reader is left to release the held window, and the peer may have to send before it can shut down.
        self.release_window(id, usize::MAX);
        self.with_open(id, now, host, |association, cx| {
            association.set_has_upper_data(cx, false);
            association.leave(cx);
        });
    }

    /// Limits an association whose user has gone, or is about to go: in whatever state it is, it is aborted when the peer has not
    /// advanced the cumulative TSN for five times RTO.Max (T5, RFC 9260 §9.2), which counts as at most `rto_max`. The association
    /// keeps `until_end` until it ends; if it has ended, `until_end` is dropped at once.
    pub fn orphan<H: Host + ?Sized>(
        &mut self,
        now: Time,
        id: AssociationId,
        rto_max: Duration,
        until_end: Box<dyn Any + Send>,
        host: &mut H,
    ) {
        self.with_open(id, now, host, |association, cx| association.orphan(cx, rto_max, until_end));
    }

    /// Returns the time of the next call of [`Endpoint::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Time> {
        Time::earliest([self.associations.next_timer(), self.other_ways.deadline()])
    }

    /// Handles expired timers, but only some of very many. If more have expired, [`Endpoint::poll_timeout`] returns a time that
    /// has passed: the caller transmits, handles arrivals, and calls again.
    pub fn handle_timeout<H: Host + ?Sized>(&mut self, now: Time, host: &mut H) {
        self.abort_pending_other_ways(now, host);
        let mut left = EXPIRED_MAX;
        while let Some(id) = self.associations.pop_expired(now, &mut left) {
            let mut has_returned = false;
            self.with_association(id, now, host, |association, cx| {
                has_returned = association.handle_timeout(cx)
            });
            if has_returned {
                left = left.saturating_sub(RETURNED_MAX);
            }
        }
    }

    /// Returns whether fragments may be in memory that was passed to [`Endpoint::handle_batch`].
    #[inline]
    pub fn is_attached(&self) -> bool {
        self.associations.is_attached()
    }

    /// Copies waiting fragments out of the memory that was passed to [`Endpoint::handle_batch`], which they otherwise keep. All
    /// other data that must wait was copied by that call.
    pub fn detach(&mut self) {
        self.associations.detach();
    }

    /// Returns whether an association has reason to transmit at once (the flush rule).
    #[inline]
    pub fn transmit_due(&self) -> bool {
        self.associations.has_due() || !self.replies.is_empty()
    }

    /// Returns whether anything waits that [`Endpoint::poll_transmit`] may transmit now. Data that waits for a window does not
    /// count.
    pub fn transmit_waits(&self) -> bool {
        self.transmit_due() || self.associations.has_deferred()
    }

    /// Builds the next batch into `buffer`, if there is one.
    pub fn poll_transmit(
        &mut self,
        now: Time,
        scope: Scope,
        buffer: &mut TransmitBuffer,
    ) -> Option<Transmit> {
        if let Some(transmit) = self.replies.pop(buffer) {
            return Some(transmit);
        }
        if scope == Scope::All && !self.associations.has_due() {
            self.associations.promote_deferred();
        }
        while let Some(id) = self.associations.pop_due() {
            let Some(association) = self.associations.get_mut(id) else { continue };
            let rules = BatchRules { limits: self.limits, checksum: self.config.checksum };
            self.in_progress = Some(id);
            let transmit = association.poll_transmit(now, &rules, &mut self.random, buffer);
            self.in_progress = None;
            association.trace_changes(now);
            self.list_trace(id);
            if transmit.is_some() {
                self.associations.enqueue(id, scope, self.limits);
                self.associations.arm(id);
                return transmit;
            }
            self.associations.hold(id, self.limits);
            self.associations.arm(id);
        }
        None
    }

    /// Takes the oldest answer to a stranger, for a caller that sends many in one call. [`Endpoint::poll_transmit`] returns the
    /// remaining ones.
    pub fn poll_answer(&mut self) -> Option<Reply> {
        self.replies.pop_answer()
    }

    /// Returns the counters of one association.
    pub fn statistics(&self, id: AssociationId) -> Option<Statistics> {
        self.associations.get(id).map(|a| a.statistics())
    }

    /// Returns the counters of the endpoint. Visits every association.
    pub fn endpoint_statistics(&self) -> EndpointStatistics {
        let mut all = EndpointStatistics { version: STATISTICS_VERSION, ..self.statistics.clone() };
        self.associations.iter().for_each(|association| association.add_to(&mut all));
        all
    }

    /// Returns the number of entries in the timer heap; for tests.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn timer_entries(&self) -> usize {
        self.associations.timer_entries()
    }

    /// Returns the number of packets with data that an association remembers, on all its paths; for tests.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn remembered_packets(&self, id: AssociationId) -> usize {
        self.associations.get(id).map_or(0, |a| a.remembered_packets())
    }

    /// Sets the initial TSN of all future associations; for tests.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn set_initial_tsn(&mut self, tsn: u32) {
        self.initial_tsn = Some(Tsn(tsn));
    }

    /// Checks the counters of every association against a recount, and its place in the queues and tables, and panics if they
    /// differ; for tests.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn assert_counters(&self) {
        self.associations.iter().for_each(Association::assert_counters);
        self.associations.assert_queued();
        self.assert_tags();
    }

    /// Returns the number of associations.
    pub fn association_count(&self) -> usize {
        self.associations.len()
    }

    /// Returns all associations with their states, in any order.
    pub fn associations(&self) -> impl Iterator<Item = (AssociationId, AssociationState)> + '_ {
        self.associations.iter().map(|association| (association.id(), association.state()))
    }

    /// Returns the associations from identifier `first` on, in the order of identifiers, with their states. So a caller can
    /// continue where it stopped.
    pub fn associations_from(
        &self,
        first: AssociationId,
    ) -> impl Iterator<Item = (AssociationId, AssociationState)> + '_ {
        self.associations.iter_from(first).map(|association| (association.id(), association.state()))
    }

    /// Returns the peer's addresses and SCTP port.
    pub fn peer_addresses(&self, id: AssociationId) -> Option<(Vec<SocketAddr>, u16)> {
        let association = self.associations.get(id)?;
        Some((association.remotes().collect(), association.identity().peer_port))
    }

    /// Returns the local addresses of an association: those that it is restricted to or that the endpoint was given, otherwise
    /// the source addresses of its paths.
    pub fn local_addresses(&self, id: AssociationId) -> Option<Vec<IpAddr>> {
        Some(self.associations.get(id)?.local_addresses())
    }

    /// Runs a procedure of an association that has not ended.
    fn with_open<H: Host + ?Sized>(
        &mut self,
        id: AssociationId,
        now: Time,
        host: &mut H,
        procedure: impl FnOnce(&mut Association, &mut Context<'_, H>),
    ) {
        if self.associations.get(id).is_some_and(|association| !association.is_closed()) {
            self.with_association(id, now, host, procedure);
        }
    }

    /// Runs a procedure of an association, and then updates its timers and queues, or removes it if it has ended.
    fn with_association<H: Host + ?Sized>(
        &mut self,
        id: AssociationId,
        now: Time,
        host: &mut H,
        procedure: impl FnOnce(&mut Association, &mut Context<'_, H>),
    ) {
        let Some(association) = self.associations.get_mut(id) else { return };
        let mut cx = Context {
            now,
            host,
            random: &mut self.random,
            blocks: &mut self.free_blocks,
            statistics: &mut self.statistics,
        };
        self.in_progress = Some(id);
        procedure(association, &mut cx);
        self.in_progress = None;
        association.trace_changes(now);
        self.update_queues(id);
    }

    fn new_initial_tsn(&mut self) -> Tsn {
        #[cfg(feature = "testing")]
        if let Some(tsn) = self.initial_tsn {
            return tsn;
        }
        Tsn(self.random.next_u32())
    }
}
