//! The fate of a packet in a pipe.

use std::fmt;

use crate::{Ecn, Payload};

/// Fate of a packet in a [`Pipe`](crate::Pipe).
///
/// # Examples
///
/// ```
/// use netsim::{Pipe, PipeConfig, Verdict};
///
/// match Pipe::new(&PipeConfig::default(), 0).offer(5, 1500) {
///     Verdict::Deliver(passage) => assert_eq!(passage.at_ns, 5),
///     Verdict::Drop(reason) => println!("dropped: {reason}"),
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet arrives at the far end.
    Deliver(Passage),
    /// The packet is dropped.
    Drop(DropReason),
}

/// The way of a packet through a pipe.
///
/// # Examples
///
/// ```
/// use netsim::{Pipe, PipeConfig, Verdict};
///
/// let mut pipe = Pipe::new(&PipeConfig { duplicate_probability: 1.0, ..PipeConfig::default() }, 0);
/// let Verdict::Deliver(passage) = pipe.offer(5, 1500) else { panic!("nothing is lost here") };
/// assert_eq!((passage.at_ns, passage.copy_at_ns), (5, Some(5)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Passage {
    /// The arrival time of its last bit.
    pub at_ns: u64,
    /// The arrival time of its copy, if it was duplicated.
    pub copy_at_ns: Option<u64>,
    /// The ECN field of the packet and its copy after the pipe.
    pub ecn: Ecn,
    /// Whether it is late by [`Reorder::Late`](crate::Reorder::Late); the copy is not.
    pub late: bool,
    /// Bits that are flipped in the packet; the duplicate stays undamaged.
    pub flips: Option<Flips>,
    /// Others to wait for after `at_ns`; the copy does not.
    pub behind: Option<Behind>,
}

/// Neighbouring bits that are flipped.
///
/// # Examples
///
/// ```
/// use netsim::Flips;
///
/// let mut packet = vec![0u8; 4];
/// Flips { first_bit: 7, bits: 2 }.apply(&mut packet);
/// assert_eq!(packet, [0x80, 0x01, 0, 0]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flips {
    /// The first; it is counted around the packet's bits, so it may be any number.
    pub first_bit: u64,
    /// Number of bits.
    pub bits: u32,
}

impl Flips {
    /// Damages a packet.
    ///
    /// ```
    /// # use netsim::Flips;
    /// let mut number = 0u8;
    /// Flips { first_bit: 0, bits: 3 }.apply(&mut number);
    /// assert_eq!(number, 0b111);
    /// ```
    pub fn apply(self, payload: &mut impl Payload) {
        for bit in 0..u64::from(self.bits) {
            payload.flip_bit(self.first_bit.wrapping_add(bit));
        }
    }
}

/// The wait of a packet for others to pass it, see [`Reorder::Behind`](crate::Reorder::Behind).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use netsim::{Pipe, PipeConfig, Reorder, Verdict};
///
/// let reorder = Reorder::Behind { probability: 1.0, packets: 3, wait_max: Duration::from_nanos(100) };
/// let mut pipe = Pipe::new(&PipeConfig { reorder, ..PipeConfig::default() }, 0);
/// let Verdict::Deliver(passage) = pipe.offer(5, 1500) else { panic!("nothing is lost here") };
/// assert_eq!(passage.behind.map(|behind| (behind.packets, behind.at_latest_ns)), Some((3, 105)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behind {
    /// Number of later packets of the pipe that pass it.
    pub packets: u32,
    /// The time at which it arrives at the latest.
    pub at_latest_ns: u64,
}

/// Reason for which a packet does not arrive.
///
/// # Examples
///
/// ```
/// assert_eq!(netsim::DropReason::Queue.to_string(), "the queue was full");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// The pipe's loss took it.
    Loss,
    /// The queue was full.
    Queue,
    /// The line was down, or went down while the packet waited.
    Down,
    /// The packet exceeds the MTU of the line and must not be fragmented.
    TooBig,
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DropReason::Loss => "lost on the line",
            DropReason::Queue => "the queue was full",
            DropReason::Down => "the line was down",
            DropReason::TooBig => "longer than the line takes",
        })
    }
}
