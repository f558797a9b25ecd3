//! Counters of a link.

/// Counters of one link since it was bound. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkStats {
    /// Received batches: system calls that returned datagrams, and batches from memory.
    pub batches_received: u64,
    /// Datagrams received.
    pub datagrams_received: u64,
    /// Payload bytes received.
    pub bytes_received: u64,
    /// Datagrams that the kernel dropped because the receive buffer was full, and over UDP those of `receive_thinned`, too.
    pub receive_overflows: u64,
    /// Datagrams of floods that the kernel dropped by a filter. Of samples an estimate, from those that the filter has kept.
    pub receive_thinned: u64,
    /// Datagrams dropped here: empty, truncated, or from an unknown address family.
    pub receive_discarded: u64,
    /// System calls that sent datagrams, and batches delivered in memory.
    pub batches_sent: u64,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Payload bytes sent.
    pub bytes_sent: u64,
    /// Datagrams to own addresses delivered in memory; they count as sent and, later, as received, too.
    pub datagrams_turned_back: u64,
    /// Sends refused for now because the send buffer was full.
    pub send_blocked: u64,
    /// Datagrams accepted here that the kernel did not take: a full device queue, or too big.
    pub send_lost: u64,
    /// Sends that failed: no route, a filter, a source address that is gone.
    pub send_failed: u64,
    /// Datagrams that exceeded the path's MTU.
    pub too_big: u64,
    /// ICMP reports about our datagrams.
    pub icmp_reports: u64,
    /// Receive blocks taken from the allocator.
    pub blocks_allocated: u64,
    /// Receive blocks reused.
    pub blocks_reused: u64,
}
