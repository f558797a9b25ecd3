//! An open stream, with the calls that all kinds of endpoints share.

mod receive;
mod request;
mod send;
mod wait;

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};

use streams::StreamId;
use tpi::Errno;

pub(crate) use self::receive::{Found, unless_restarted};
pub(crate) use self::wait::{Wait, WaitError};
use crate::error::{CloseReason, Loss};
use crate::shard::{Inner, ShardOwner};

/// The end of a one-to-one stream, as far as the messages read so far show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Open,
    /// The peer has shut down and sends nothing more.
    PeerShutdown,
    /// Both sides have shut down.
    Closed,
    Lost(Loss),
}

/// The style of a stream (RFC 6458 §2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// One association.
    OneToOne,
    /// Several associations, or a listener: the end of one association does not end the stream.
    OneToMany,
}

/// One open stream; closed when dropped.
///
/// The calls are attempts: each tries once, and returns `None` if it would have to wait. Threads repeat them with
/// [`Socket::until`], tasks with a future.
pub(crate) struct Socket {
    pub(crate) shard: Arc<ShardOwner>,
    pub(crate) stream: StreamId,
    style: Style,
    /// Minimum size of the messages that stay charged to the receive window after they are read.
    holds_from_bytes: AtomicUsize,
    /// Accessed only inside the perimeter or at the end of a call, never for each message.
    end: Mutex<End>,
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "stream {}", self.stream)
    }
}

impl Socket {
    pub(crate) fn open(shard: &Arc<ShardOwner>, style: Style) -> Result<Self, Errno> {
        let stream = shard.enter().open_stream().ok_or(Errno::ENOMEM)?;
        let holds_from_bytes = AtomicUsize::new(usize::MAX);
        Ok(Socket { shard: Arc::clone(shard), stream, style, holds_from_bytes, end: Mutex::new(End::Open) })
    }

    /// Returns why the association of a one-to-one stream has ended, whether or not the end was read; `None` if the
    /// association has not ended.
    pub(crate) fn close_reason(&self, inner: &mut Inner) -> Option<CloseReason> {
        let stream = self.stream;
        let found = inner.executive.provider(|driver| {
            let end = driver.disconnected(stream)?;
            Some(CloseReason::of(end.reason, end.cause, &end.data))
        });
        match (found, self.end()) {
            (Some(Some(reason)), _) => Some(reason),
            (_, End::Closed) => Some(CloseReason::Shutdown),
            (_, End::Lost(loss)) => Some(CloseReason::Lost(loss)),
            _ if inner.executive.is_hung_up(stream) => {
                Some(CloseReason::Lost(Loss::fault("the stream was hung up")))
            }
            _ => None,
        }
    }

    /// Returns the recorded end of the stream.
    pub(crate) fn end(&self) -> End {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    #[cold]
    fn at_the_end(&self, is_last: impl Fn(&End) -> bool) -> bool {
        self.style == Style::OneToOne && is_last(&self.end.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let mut inner = self.shard.enter();
        inner.close_stream(self.stream);
        self.after_request(&mut inner);
    }
}
