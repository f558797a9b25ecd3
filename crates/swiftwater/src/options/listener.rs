//! Options of listeners.

/// Options of a [`Listener`](crate::Listener) or of a one-to-many [`Endpoint`](crate::Endpoint), fixed when it is bound.
///
/// ```
/// # use swiftwater::{ListenerOptions, Stack, StackOptions};
/// let stack = Stack::bind(&StackOptions::default().with_udp_port(0))?;
/// let few = ListenerOptions::default().with_backlog(4).with_refuse_beyond_backlog(true);
/// let listener = stack.listen_with(5000, &few)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListenerOptions {
    /// Number of associations that may wait to be accepted, as in `listen(2)`; 0 counts as 1. An endpoint accepts all
    /// at once. Default: 128.
    pub backlog: u32,
    /// Whether a peer that connects while the backlog is full is refused with ABORT, as by the sockets of Linux.
    /// Otherwise the listener ignores its COOKIE ECHO until there is room, and the peer repeats it. Default: false.
    pub refuse_beyond_backlog: bool,
    /// Maximum number of simultaneous associations, including those that wait. The listener refuses further ones with
    /// ABORT. Default: 65,536.
    pub associations_max: usize,
    /// Whether other listeners with this option may listen on the same port at the same addresses. New associations are
    /// distributed among them by the peer's address and port, as with `SO_REUSEPORT`. Default: false.
    pub shares_port: bool,
    /// Whether a peer is refused with ABORT if another peer of this port has the same address and SCTP port, through another UDP
    /// port. A program that knows its peers by address would take one for the other: any user of a peer's host can send from
    /// another UDP port. Default: false, so that peers behind one address translator may use the same SCTP port.
    pub distinct_peers: bool,
}

setters! {
    ListenerOptions:
    with_backlog(backlog: u32),
    with_refuse_beyond_backlog(refuse_beyond_backlog: bool),
    with_associations_max(associations_max: usize),
    with_shares_port(shares_port: bool),
    with_distinct_peers(distinct_peers: bool),
}

impl Default for ListenerOptions {
    fn default() -> Self {
        ListenerOptions {
            backlog: 128,
            refuse_beyond_backlog: false,
            associations_max: sctp::AssociationConfig::default().listener_associations_max,
            shares_port: false,
            distinct_peers: false,
        }
    }
}
