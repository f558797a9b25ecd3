//! Taps: determine the fate of chosen packets.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use netsim::Network;
use sctp::Time;

use crate::wire::{Outgoing, Wire};

/// Fate of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The packet passes.
    Pass,
    /// The packet is lost.
    Drop,
    /// The packet arrives twice.
    Twice,
    /// The packet enters the line later.
    Delay(Duration),
    /// This many packets overtake the packet.
    Behind(usize),
    /// Another packet replaces it.
    Replace(Bytes),
}

/// Determines the fate of a packet.
pub(super) struct Tap(Box<dyn FnMut(&Bytes) -> Fate + Send>);

impl Tap {
    pub(super) fn new(fate: impl FnMut(&Bytes) -> Fate + Send + 'static) -> Self {
        Tap(Box::new(fate))
    }
}

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tap")
    }
}

/// A packet that a host has sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Time of sending.
    pub at: Time,
    /// The host that has sent it.
    pub by: usize,
    /// Its differentiated services codepoint.
    pub dscp: u8,
    /// The SCTP packet.
    pub packet: Bytes,
}

/// The stage between the hosts and the line: it keeps every packet, and the taps determine their fates.
#[derive(Debug, Default)]
pub(super) struct Taps {
    taps: [Option<Tap>; 2],
    /// Packets that enter the line later.
    delayed: Vec<(Time, Outgoing)>,
    /// Packets that others overtake, and the number of packets that have yet to pass.
    overtaken: Vec<(usize, Outgoing)>,
}

impl Taps {
    pub(super) fn set(&mut self, node: usize, tap: Option<Tap>) {
        self.taps[node] = tap;
    }

    /// Releases the packets that wait to be overtaken, after a packet of `by` has passed.
    fn overtake(&mut self, by: usize, network: &mut Network<Bytes>) {
        for (left, _) in self.overtaken.iter_mut().filter(|(_, packet)| packet.by == by) {
            *left = left.saturating_sub(1);
        }
        for (_, packet) in self.overtaken.extract_if(.., |(left, _)| *left == 0) {
            packet.enter(network);
        }
    }
}

/// The taps, and the list of sent packets.
#[derive(Debug)]
pub(super) struct Tapped<'a> {
    pub(super) taps: &'a mut Taps,
    pub(super) sent: &'a mut Vec<Sent>,
}

impl Wire for Tapped<'_> {
    fn emit(&mut self, packet: Outgoing, network: &mut Network<Bytes>) {
        let (by, at) = (packet.by, packet.at);
        self.sent.push(Sent { at, by, dscp: packet.dscp, packet: packet.packet.clone() });
        let fate = self.taps.taps[by].as_mut().map_or(Fate::Pass, |tap| (tap.0)(&packet.packet));
        match fate {
            Fate::Pass => packet.enter(network),
            Fate::Drop => {}
            Fate::Twice => {
                packet.clone().enter(network);
                packet.enter(network);
            }
            Fate::Delay(time) => self.taps.delayed.push((at + time, packet)),
            Fate::Behind(left) => {
                self.taps.overtaken.push((left, packet));
                return;
            }
            Fate::Replace(other) => Outgoing { packet: other, ..packet }.enter(network),
        }
        self.taps.overtake(by, network);
    }

    fn deadline(&self) -> Option<Time> {
        self.taps.delayed.iter().map(|(at, _)| *at).min()
    }

    fn release(&mut self, now: Time, network: &mut Network<Bytes>) {
        let mut due: Vec<_> = self.taps.delayed.extract_if(.., |(at, _)| *at <= now).collect();
        due.sort_by_key(|(at, _)| *at);
        for (_, packet) in due {
            Outgoing { at: now, ..packet }.enter(network);
        }
    }
}
