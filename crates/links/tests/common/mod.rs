//! Helpers of the tests of all links: a sink that keeps everything, sending, and waiting.

use std::io::{self, IoSlice};
use std::net::SocketAddr;

use links::{Datagrams, Link, Sink, Transmit, Unreachable};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Time after which a test gives up; far longer than loopback ever takes.
const PATIENCE_MS: u16 = 20_000;

/// Keeps what a link received.
#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) datagrams: Vec<Datagrams>,
    pub(crate) unreachable: Vec<Unreachable>,
}

impl Sink for Kept {
    fn datagrams(&mut self, datagrams: Datagrams) {
        self.datagrams.push(datagrams);
    }

    fn unreachable(&mut self, unreachable: Unreachable) {
        self.unreachable.push(unreachable);
    }
}

impl Kept {
    /// Returns every datagram by itself, in the order of arrival.
    pub(crate) fn singles(&self) -> Vec<Vec<u8>> {
        self.datagrams
            .iter()
            .flat_map(|batch| batch.payload.chunks(batch.segment_bytes).map(<[u8]>::to_vec))
            .collect()
    }
}

/// Hands a batch to a link as its users do: first to its memory.
pub(crate) fn hand_over(link: &mut impl Link, transmit: &Transmit<'_>) -> io::Result<()> {
    link.turn_back(transmit, &[]).unwrap_or_else(|| link.transmit(transmit))
}

pub(crate) fn send(link: &mut impl Link, remote: SocketAddr, segment_bytes: usize, payload: &[u8]) {
    let slices = [IoSlice::new(payload)];
    let transmit = Transmit {
        remote,
        local: None,
        traffic_class: 0,
        may_fragment: false,
        segment_bytes,
        slices: &slices,
    };
    hand_over(link, &transmit).unwrap();
}

/// Waits until a descriptor of `link` is readable, then receives everything.
pub(crate) fn receive(link: &mut impl Link, kept: &mut Kept) {
    wait(link);
    while link.receive(kept).unwrap() {}
}

/// Receives until `done`.
pub(crate) fn receive_until(link: &mut impl Link, kept: &mut Kept, done: impl Fn(&Kept) -> bool) {
    while !done(kept) {
        receive(link, kept);
    }
}

/// Waits until a descriptor of `link` is readable.
pub(crate) fn wait(link: &impl Link) {
    let mut polled = Vec::new();
    link.descriptors(&mut |fd| polled.push(PollFd::new(fd, PollFlags::POLLIN)));
    let ready = poll(&mut polled, PollTimeout::from(PATIENCE_MS)).unwrap();
    assert!(ready > 0, "nothing arrived in {PATIENCE_MS} ms");
}
