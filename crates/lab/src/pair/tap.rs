//! What a line does to chosen packets.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use sctp::Time;

/// What becomes of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It goes its way.
    Pass,
    /// It is lost.
    Drop,
    /// It arrives twice.
    Twice,
    /// It enters the line later.
    Delay(Duration),
    /// That many packets overtake it.
    Behind(usize),
    /// Another one takes its place.
    Replace(Bytes),
}

/// A judge of packets.
pub(super) struct Tap(Box<dyn FnMut(&Bytes) -> Fate + Send>);

impl Tap {
    pub(super) fn new(fate: impl FnMut(&Bytes) -> Fate + Send + 'static) -> Self {
        Tap(Box::new(fate))
    }

    pub(super) fn judge(&mut self, packet: &Bytes) -> Fate {
        (self.0)(packet)
    }
}

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tap")
    }
}

/// A packet that others overtake.
#[derive(Debug)]
pub(super) struct Overtaken {
    pub(super) by: usize,
    pub(super) to: SocketAddr,
    pub(super) packet: Bytes,
    /// How many have yet to pass.
    pub(super) left: usize,
}

/// A packet that enters the line later.
#[derive(Debug)]
pub(super) struct Delayed {
    pub(super) at: Time,
    pub(super) by: usize,
    pub(super) to: SocketAddr,
    pub(super) packet: Bytes,
}
