//! An open stream, with the calls that all kinds of endpoints share.

mod published;
mod receive;
mod request;
mod send;
mod wait;

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};

use sctp::AssociationConfig;
use streams::{StreamId, Which};
use tpi::Errno;

use self::published::Published;
pub(crate) use self::receive::{Found, check_restart};
#[cfg(feature = "tokio")]
pub(crate) use self::wait::Fault;
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
    pub(crate) published: Published,
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
        Ok(Socket {
            shard: Arc::clone(shard),
            stream,
            style,
            published: Published::default(),
            holds_from_bytes: AtomicUsize::new(usize::MAX),
            end: Mutex::new(End::Open),
        })
    }

    /// Publishes the configuration of the listener, before it accepts an association for this stream. It stays that of an
    /// association which has ended by then: its own has gone with it. [`Socket::publish`] replaces it by that of any other.
    pub(crate) fn publish_listener_config(&self, config: &AssociationConfig) {
        self.published.on_begun(config);
    }

    /// Publishes the state of the association of a one-to-one stream that begins: of its configuration, and of its
    /// handshake if that is complete.
    pub(crate) fn publish(&self) {
        let (stream, published) = (self.stream, &self.published);
        // A fault has closed the stack, so there is nothing to publish.
        let _ = self.shard.with_driver(|driver| {
            if let Some(config) = driver.config(stream, Which::Only) {
                published.on_begun(&config);
            }
            let view = driver.view(stream, Which::Only);
            let streams = view.map(|view| (view.streams_out(), view.streams_in()));
            if let Some((streams_out, streams_in)) = streams.or_else(|| driver.ended_streams(stream)) {
                published.on_handshake(streams_out, streams_in);
            }
        });
    }

    /// Changes the configuration of an association to the result of `change`, and publishes it. Returns the error of `change`;
    /// `None` if the association has ended.
    pub(crate) fn change_config<E>(
        &self,
        association: Which,
        change: impl FnOnce(&AssociationConfig) -> Result<AssociationConfig, E>,
    ) -> Option<Result<(), E>> {
        let (stream, published) = (self.stream, &self.published);
        let changed = self.command(|driver, cx| {
            let current = driver.config(stream, association)?;
            let config = match change(&current) {
                Ok(config) => config,
                Err(error) => return Some(Err(error)),
            };
            if self.style == Style::OneToOne {
                published.on_changed(&config);
            }
            driver.change_config(cx, stream, association, config);
            Some(Ok(()))
        });
        changed.flatten()
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
    fn has_ended(&self, is_last: impl Fn(&End) -> bool) -> bool {
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
