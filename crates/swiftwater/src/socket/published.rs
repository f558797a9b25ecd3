//! The part of the core's state that the calls of a one-to-one stream read without entering the perimeter.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};

use sctp::{AssociationConfig, MessageLimits};

/// State that the core owns, as last published. It is written inside the perimeter only, together with the change of the core
/// that it follows, so the order of writes is that of the changes. Only a stream without an association gets the configuration
/// of its listener from outside.
#[derive(Debug, Default)]
pub(crate) struct Published {
    /// Number of outbound streams; known once the association is up.
    streams_out: AtomicU16,
    /// Number of inbound streams; known once the association is up.
    streams_in: AtomicU16,
    message_bytes_max: AtomicUsize,
    events: AtomicBool,
    /// Whether [`Event::Up`](crate::Event::Up) was delivered, or is not to be delivered any more.
    up_delivered: AtomicBool,
}

impl Published {
    /// Returns what limits a message to send.
    #[inline]
    pub(crate) fn message_limits(&self) -> MessageLimits {
        MessageLimits {
            streams: self.streams_out.load(Ordering::Relaxed),
            message_bytes_max: self.message_bytes_max.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn streams_out(&self) -> u16 {
        self.streams_out.load(Ordering::Relaxed)
    }

    pub(crate) fn streams_in(&self) -> u16 {
        self.streams_in.load(Ordering::Relaxed)
    }

    pub(crate) fn has_events(&self) -> bool {
        self.events.load(Ordering::Relaxed)
    }

    /// Returns whether [`Event::Up`](crate::Event::Up) was delivered.
    #[cfg(feature = "internals")]
    pub(crate) fn is_up_delivered(&self) -> bool {
        self.up_delivered.load(Ordering::Relaxed)
    }

    /// Returns whether [`Event::Up`](crate::Event::Up) was not delivered before, and marks it as delivered.
    pub(crate) fn take_up(&self) -> bool {
        !self.up_delivered.swap(true, Ordering::Relaxed)
    }

    /// Publishes the streams that a handshake has negotiated: the first, or that of a peer that has restarted.
    pub(super) fn on_handshake(&self, streams_out: u16, streams_in: u16) {
        self.streams_out.store(streams_out, Ordering::Relaxed);
        self.streams_in.store(streams_in, Ordering::Relaxed);
    }

    /// Publishes the configuration that the association begins with.
    pub(super) fn on_begun(&self, config: &AssociationConfig) {
        self.message_bytes_max.store(config.message_bytes_max, Ordering::Relaxed);
        self.events.store(config.events, Ordering::Relaxed);
    }

    /// Publishes a changed configuration.
    pub(super) fn on_changed(&self, config: &AssociationConfig) {
        if config.events != self.has_events() {
            // If events begin now, the association came up long ago, so `Up` is not reported.
            self.up_delivered.store(true, Ordering::Relaxed);
        }
        self.on_begun(config);
    }
}
