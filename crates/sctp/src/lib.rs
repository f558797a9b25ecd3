//! The sans-IO SCTP protocol core (RFC 9260).
//!
//! Datagrams, commands and the time go in; datagrams to send, messages, events and one deadline come out. The core owns no
//! socket, thread, clock or random source, so the same code runs over UDP, over raw IP, in a simulator with a virtual clock and
//! in a fuzzer.
//!
//! ```text
//! Endpoint ── owns ──▶ Association ── owns ──▶ Path   (one per peer address)
//!                        ├─ Outbound   what is to send and what is outstanding
//!                        └─ Inbound    what arrived: TSNs, reassembly, stream order
//! ```
//!
//! Methods are named by kind: `handle_*` takes input, `poll_*` yields output, commands are verbs and getters are nouns. Messages
//! leave through the [`Host`] that the caller passes in, with no queue in between: the place where they wait for the reader is
//! the caller's.
#![forbid(unsafe_code)]

mod association;
pub mod config;
pub mod congestion;
mod cookie;
mod ecn;
mod endpoint;
pub mod error;
mod event;
mod extensions;
mod families;
mod identifiers;
mod identity;
mod inbound;
mod local_addresses;
mod outbound;
mod packet_number;
mod partition_near;
mod path;
mod path_hints;
mod path_state;
mod peer_window;
mod range_set;
mod reassembly;
mod receive_buffer;
mod receive_pool;
mod received_run;
mod reply;
mod route;
mod rto;
mod send_pool;
mod source_prefix;
mod statistics;
mod stream_table;
mod time;
mod timeout_pacer;
pub mod trace;
mod transmit;
mod tsn;

pub use association::{AssociationView, FlushWhen, PathView};
pub use config::{AssociationConfig, Checksum, EndpointConfig, Multipath, PathOptions};
pub use cookie::CookieMark;
pub use endpoint::{Admission, Arrival, Endpoint, ExpectedPackets, Permit, Unreachable};
pub use error::{CloseReason, ConnectError, PathError, SendError, UnknownName};
pub use event::{Event, Host, PathChange, PathReason, Payload, Restart, SendFailure};
pub use identifiers::{AssociationId, ListenerId};
pub use outbound::{Batch, Block, MessageLimits, Stage, Staged};
pub use packet_number::PacketNumber;
pub use path_hints::PathHints;
pub use path_state::PathState;
pub use range_set::RangeSet;
pub use receive_pool::{
    MadeData, Notify, POOL_FREE_BYTES, POOL_LITTLE_BYTES, POOL_RESERVED_PART, POOL_STEP_BYTES, ReceiveBudget,
    ReceiveCharge, ReceivePool, ReleaseWaiters,
};
pub use received_run::{ReceivedRun, RunMessage};
pub use reply::Reply;
pub use sctp_message::{Lifetime, PathId, RecvInfo, SendInfo};
pub use send_pool::{SEND_LITTLE_BYTES, SEND_RESERVED_PART, SendBudget, SendPool};
pub use statistics::{
    AssociationState, EndpointStatistics, MtuState, PathStatistics, STATISTICS_VERSION, Statistics,
};
pub use time::Time;
pub use timeout_pacer::TimeoutPacer;
pub use transmit::{BatchLimits, Piece, Scope, Transmit, TransmitBuffer};
