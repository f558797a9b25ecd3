//! The SCTP provider: a STREAMS driver between the stream heads and the protocol core.
//!
//! | file | part |
//! |---|---|
//! | `driver` | the calls of the executive and of stream heads |
//! | `minor` | the state of each open stream: unbound, listening, connected, one-to-many |
//! | `request` | primitives from above |
//! | `control` | commands that pass the modules |
//! | `queued` | messages that wait for room, because their senders have not asked for it |
//! | `options` | option management: the options of XTI, IP and SCTP |
//! | `ports` | tells a link without ports of its own which SCTP ports are in use |
//! | `indication` | messages and events of the core, on their way up |
//! | `charges` | the memory of unread messages of ended associations |
//! | `detach` | copies waiting data out of receive blocks |
//! | `interrupt` | exchanges batches with the link, and handles timers |
//! | `memory` | the memory that data of modules is charged to |

mod charges;
mod control;
mod detach;
mod driver;
mod indication;
mod interrupt;
mod memory;
mod minor;
mod options;
mod ports;
mod queued;
mod refusal;
mod request;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use ::sctp::trace::Record;
use ::sctp::{
    AssociationConfig, AssociationId, AssociationView, Batch, Checksum, Endpoint, EndpointConfig,
    EndpointStatistics, FlushWhen, PathId, SendError, SendInfo, Stage, Statistics, Time, TransmitBuffer,
};
use links::{Link, LinkStats};
use streams::{Chain, Cx, Errno, Pool, StreamId};
use tpi::{State, Which};

pub use minor::Disconnect;
use minor::{Minor, Minors, Owner};
use ports::Ports;

/// Configuration of the provider.
#[derive(Clone, Debug, Default)]
pub struct SctpDriverConfig {
    /// Settings of the endpoint.
    pub endpoint: EndpointConfig,
    /// Settings of every association.
    pub association: AssociationConfig,
    /// Addresses to list in the handshake, if there is more than one.
    pub local_addresses: Vec<std::net::IpAddr>,
}

/// The SCTP provider over one link. Each of its streams is an endpoint of a user.
///
/// The provider accepts these primitives: `T_BIND_REQ` (a backlog makes the stream listen; a backlog of
/// [`SctpDriver::ONE_TO_MANY`] makes it a one-to-many endpoint), `T_CONN_REQ`, `T_CONN_RES`, `T_OPTDATA_REQ`,
/// `T_DATA_REQ`, `T_EXDATA_REQ` (unordered data), `T_ORDREL_REQ`, `T_DISCON_REQ`, `T_UNBIND_REQ`, `T_OPTMGMT_REQ`,
/// `T_INFO_REQ`, `T_ADDR_REQ`, `T_CAPABILITY_REQ`. [`tpi::State`] decides whether a primitive fits the state of the
/// stream.
pub struct SctpDriver {
    endpoint: Endpoint,
    config: Arc<AssociationConfig>,
    /// Settings of streams that do not use the provider's.
    configs: HashMap<StreamId, Arc<AssociationConfig>>,
    all_send_defaults: options::AllSendDefaults,
    checksum: Checksum,
    link: Box<dyn Link>,
    minors: Minors,
    ports: Ports,
    received: interrupt::Arrivals,
    leftovers: indication::Leftovers,
    attached: detach::Attached,
    charges: charges::Charges,
    buffer: TransmitBuffer,
    pool: Pool,
    /// A batch that the link could not take yet, and that must be sent first.
    refused: Option<::sctp::Transmit>,
    /// The association that the last connect request has begun, and its stream.
    requested: Option<(StreamId, AssociationId)>,
    /// Number of batches that the link has delivered or accepted.
    batches_moved: u64,
    /// Time zero of the core.
    epoch: Instant,
    trace: Option<TraceTaker>,
}

/// Receives the records of traced associations.
pub type TraceTaker = Arc<dyn Fn(Record) + Send + Sync>;

impl std::fmt::Debug for SctpDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SctpDriver").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl SctpDriver {
    /// The backlog that makes a bound stream a one-to-many endpoint, whose associations need no accept.
    pub const ONE_TO_MANY: u32 = u32::MAX;

    /// Returns a provider over `link`. `seed` must come from the system's random source. `epoch` is the core's time
    /// zero and must not be later than any time that is passed to the driver.
    pub fn new(link: Box<dyn Link>, config: SctpDriverConfig, seed: [u8; 32], epoch: Instant) -> Self {
        let limits = link.batch_limits();
        let limits = ::sctp::BatchLimits { segments_max: limits.segments_max, bytes_max: limits.bytes_max };
        let endpoint_config = EndpointConfig { shares_host: !link.has_ports(), ..config.endpoint };
        let checksum = endpoint_config.checksum;
        let mut endpoint = Endpoint::new(endpoint_config, seed, limits);
        endpoint.set_local_addresses(config.local_addresses);
        SctpDriver {
            endpoint,
            config: Arc::new(config.association),
            configs: HashMap::new(),
            all_send_defaults: options::AllSendDefaults::default(),
            checksum,
            link,
            minors: Minors::default(),
            ports: Ports::default(),
            received: interrupt::Arrivals::default(),
            leftovers: indication::Leftovers::default(),
            attached: detach::Attached::default(),
            charges: charges::Charges::default(),
            buffer: TransmitBuffer::deferring_checksums(),
            pool: Pool::default(),
            refused: None,
            requested: None,
            batches_moved: 0,
            epoch,
            trace: None,
        }
    }

    /// Sets the receiver of trace records. The configuration of an association selects what is traced.
    pub fn set_trace(&mut self, taker: Option<TraceTaker>) {
        self.trace = taker;
    }

    /// Sets the configuration of associations that this stream sets up or accepts from now on, in place of the
    /// provider's. A listener keeps the configuration that it had when it was bound.
    pub fn set_association_config(&mut self, s: StreamId, config: Arc<AssociationConfig>) {
        self.configs.insert(s, config);
    }

    fn association_config(&self, s: StreamId) -> Arc<AssociationConfig> {
        Arc::clone(self.configs.get(&s).unwrap_or(&self.config))
    }

    /// Returns the counters of the association of a one-to-one stream, or of one association of a one-to-many stream.
    pub fn statistics(&self, s: StreamId, association: Which) -> Option<Statistics> {
        self.endpoint.statistics(self.association(s, association)?)
    }

    /// Returns the identifier of such an association, which may last longer than its stream.
    pub fn identifier(&self, s: StreamId, association: Which) -> Option<AssociationId> {
        self.association(s, association)
    }

    /// Returns the counters and the local addresses of an association, whether it has a stream or not.
    pub fn described(&self, id: AssociationId) -> Option<(Statistics, Vec<std::net::IpAddr>)> {
        Some((self.endpoint.statistics(id)?, self.endpoint.local_addresses(id)?))
    }

    /// Returns whether an association exists, whether it has a stream or not.
    pub fn has_association(&self, id: AssociationId) -> bool {
        self.endpoint.association(id).is_some()
    }

    /// Returns a view of the association of a one-to-one stream, or of one association of a one-to-many stream.
    pub fn view(&self, s: StreamId, association: Which) -> Option<AssociationView<'_>> {
        self.endpoint.association(self.association(s, association)?)
    }

    /// Returns the association that the last connect request has begun, if it was a request of this stream.
    pub fn requested(&self, s: StreamId) -> Option<AssociationId> {
        self.requested.filter(|(stream, _)| *stream == s).map(|(_, id)| id)
    }

    /// Returns how the association of a one-to-one stream has ended; `None` if it has not.
    pub fn disconnected(&self, s: StreamId) -> Option<&Disconnect> {
        self.minors.disconnect(s)
    }

    /// Returns the numbers of outbound and of inbound streams of an association that had ended before this stream accepted it.
    pub fn ended_streams(&self, s: StreamId) -> Option<(u16, u16)> {
        self.minors.ended_streams(s)
    }

    /// Returns the options of the association of a one-to-one stream, or of one association of a one-to-many stream.
    pub fn config(&self, s: StreamId, association: Which) -> Option<Arc<AssociationConfig>> {
        self.endpoint.config(self.association(s, association)?)
    }

    /// Returns the peer's addresses, with UDP ports, and its SCTP port.
    pub fn peer_addresses(
        &self,
        s: StreamId,
        association: Which,
    ) -> Option<(Vec<std::net::SocketAddr>, u16)> {
        self.endpoint.peer_addresses(self.association(s, association)?)
    }

    /// Returns the path to an address of the peer.
    pub fn path_to(&self, s: StreamId, association: Which, address: std::net::IpAddr) -> Option<PathId> {
        self.endpoint.path_to(self.association(s, association)?, address)
    }

    /// Returns the local addresses of the association.
    pub fn local_addresses(&self, s: StreamId, association: Which) -> Option<Vec<std::net::IpAddr>> {
        self.endpoint.local_addresses(self.association(s, association)?)
    }

    /// Returns the counters of the endpoint.
    pub fn endpoint_statistics(&self) -> EndpointStatistics {
        self.endpoint.endpoint_statistics()
    }

    /// Returns the counters of the link.
    pub fn link_statistics(&self) -> LinkStats {
        self.link.stats()
    }

    /// Returns the number of batches that the link has delivered or accepted so far. A caller that runs pending work until
    /// nothing moves any more compares two results.
    pub fn batches_moved(&self) -> u64 {
        self.batches_moved
    }

    /// Returns the local addresses of the link.
    pub fn link_addresses(&self) -> Vec<std::net::SocketAddr> {
        self.link.local_addresses()
    }

    /// Returns whether the link's addresses have ports.
    pub fn link_has_ports(&self) -> bool {
        self.link.has_ports()
    }

    /// Returns the number of associations.
    pub fn association_count(&self) -> usize {
        self.endpoint.association_count()
    }

    #[inline]
    fn hand_out_trace(&mut self) {
        if let Some(take) = &self.trace {
            while let Some(record) = self.endpoint.poll_trace() {
                take(record);
            }
        }
    }

    /// Returns the association of a request. A one-to-one stream has one at most, whatever the request names; on a one-to-many
    /// stream a request that names none concerns the stream itself.
    #[inline]
    fn association(&self, s: StreamId, association: Which) -> Option<AssociationId> {
        match self.minors.get(s)? {
            Minor::Connected { association } => Some(association),
            Minor::OneToMany { .. } => {
                association.id().filter(|id| self.minors.owner(*id) == Some(Owner::OneToMany(s)))
            }
            _ => None,
        }
    }

    /// Returns the core's time at an instant.
    #[inline]
    fn time(&self, at: Instant) -> Time {
        Time::ZERO + at.saturating_duration_since(self.epoch)
    }

    /// Returns the time of this call.
    #[inline]
    fn now(&self, cx: &Cx<'_>) -> Time {
        self.time(cx.now())
    }

    /// Sends user data: the chain moves straight into the association's send queue.
    #[inline]
    fn send(&mut self, cx: &mut Cx<'_>, s: StreamId, association: Which, info: &SendInfo, data: Chain) {
        let Some(id) = self.association(s, association) else {
            return match self.minors.get(s) {
                // A module sent the message after the end of the association, or on its own account.
                Some(Minor::Disconnected) => {}
                // TPI 2.0, T_DATA_REQ: one that comes in TS_IDLE is discarded, since the connection may just have ended.
                _ if self.minors.state(s) == State::Idle => {}
                _ => cx.error(s, Errno::EPROTO),
            };
        };
        match self.endpoint.send(self.now(cx), id, info, data.len(), data) {
            Ok(()) => {}
            // A module sent the message after the shutdown, or on its own account. Messages that the peer sent before
            // remain readable.
            Err(SendError::Closed | SendError::PeerShutdown) => {}
            // The head asks `admit` first; a module that sends without asking gets an error on its stream.
            Err(error) => cx.error(s, error.into()),
        }
    }
}

impl SctpDriver {
    /// Lends the end of the send queue of an association for messages of `bytes`; see [`Endpoint::lend_stage`].
    #[inline]
    pub fn lend_stage(
        &mut self,
        s: StreamId,
        association: Which,
        bytes: usize,
        when: FlushWhen,
    ) -> Option<Stage> {
        self.endpoint.lend_stage(self.association(s, association)?, bytes, when)
    }

    /// Returns the maximum size of a message that an association copies to the others that wait; see
    /// [`Endpoint::copied_bytes_max`].
    pub fn copied_bytes_max(&self, s: StreamId, association: Which) -> Option<usize> {
        self.endpoint.copied_bytes_max(self.association(s, association)?)
    }

    /// Takes a stage back.
    #[inline]
    pub fn return_stage(&mut self, stage: Stage) {
        self.endpoint.return_stage(stage);
    }

    /// Sends the messages of a batch on a stream, and empties it.
    pub fn write_batch(&mut self, s: StreamId, association: Which, batch: &mut Batch) -> streams::Admission {
        let Some(id) = self.association(s, association) else {
            return streams::Admission::Fail(Errno::ENOTCONN);
        };
        match self.endpoint.send_batch(id, batch) {
            Ok(true) => streams::Admission::Room,
            Ok(false) => streams::Admission::Full,
            Err(error) => streams::Admission::Refused(error),
        }
    }
}

impl Drop for SctpDriver {
    fn drop(&mut self) {
        self.hand_out_trace();
    }
}
