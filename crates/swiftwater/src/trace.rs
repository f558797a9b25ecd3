//! Records of the events of associations: packets, losses, windows, round-trip times.
//!
//! [`StackOptions::trace`](crate::StackOptions::trace) contains a [`TraceSink`], which receives the records of every
//! stack that is bound with these options. The `swiftwater` command writes them to a file with `--qlog`.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

pub use sctp::Time;
pub use sctp::trace::*;

/// Receives the records. Clones share one receiver.
///
/// # Examples
///
/// This example counts the packets that a program sends.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use swiftwater::trace::{Event, TraceSink};
///
/// let sent = Arc::new(AtomicU64::new(0));
/// let counter = Arc::clone(&sent);
/// let sink = TraceSink::new(move |record| {
///     if matches!(record.event, Event::PacketSent { .. }) {
///         counter.fetch_add(1, Ordering::Relaxed);
///     }
/// });
/// let options = swiftwater::StackOptions::default().with_trace(sink);
/// # drop(options);
/// ```
#[derive(Clone)]
pub struct TraceSink {
    epoch: Instant,
    take: Arc<dyn Fn(Record) + Send + Sync>,
}

impl TraceSink {
    /// Returns a sink that calls `take` for each record. The call is made while the stack's lock is held: it must be
    /// short, and must not call this crate.
    pub fn new(take: impl Fn(Record) + Send + Sync + 'static) -> Self {
        TraceSink { epoch: Instant::now(), take: Arc::new(take) }
    }

    /// Returns the time zero of [`Record::at`]: the time when the sink was created.
    pub fn epoch(&self) -> Instant {
        self.epoch
    }

    pub(crate) fn taker(&self) -> Arc<dyn Fn(Record) + Send + Sync> {
        Arc::clone(&self.take)
    }
}

impl PartialEq for TraceSink {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.take, &other.take)
    }
}

impl Eq for TraceSink {}

impl fmt::Debug for TraceSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceSink").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Listener, Stack, StackOptions};

    #[test]
    fn a_request_after_a_long_silence_bears_the_time_at_which_it_is_made() {
        let long_ago = Instant::now().checked_sub(Duration::from_secs(10)).unwrap();
        let sink = TraceSink { epoch: long_ago, take: Arc::new(|_| {}) };
        let options = StackOptions { udp_port: Some(0), trace: Some(sink), ..StackOptions::default() };
        let listener = Listener::bind("127.0.0.1:0/udp:0").unwrap();
        let client = Stack::bind(&options).unwrap().connect(listener.address()).unwrap();
        assert_eq!(client.statistics().unwrap().t1_timeouts, 0, "the INIT was answered at once");
    }
}
