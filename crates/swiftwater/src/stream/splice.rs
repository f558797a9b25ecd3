//! Links of streams in use: two associations whose peers talk with each other, past the program.

use std::fmt;
use std::sync::Arc;

use sctp::SendPool;
use streams::drivers::{Splice, SpliceMemory};
use streams::{At, Credentials, DriverId, Executive, LinkError, LinkId, StreamId, Which};

use super::Stream;

/// Name of the multiplexor.
const SPLICE: &str = "splice";

/// The link of a stream that is spliced with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpliceStatus {
    /// The user who has spliced the streams.
    pub owner: Credentials,
    /// Number of messages that have come up on this stream and gone down on the other.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Error of splicing two streams, or of ending that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpliceError {
    /// A stream cannot be linked, or is not.
    Link(LinkError),
    /// The streams belong to different stacks.
    OtherStack,
    /// One stream brings up messages on SCTP streams that the other does not have.
    TooFewStreams {
        /// Number of SCTP streams on which messages come up.
        inbound: u16,
        /// Number of SCTP streams that the other one sends on.
        outbound: u16,
    },
    /// Part of a record has been sent, delivered or passed on without the rest.
    InRecord,
}

impl From<LinkError> for SpliceError {
    fn from(error: LinkError) -> Self {
        SpliceError::Link(error)
    }
}

impl fmt::Display for SpliceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpliceError::Link(error) => error.fmt(f),
            SpliceError::OtherStack => f.write_str("the associations belong to different stacks"),
            SpliceError::TooFewStreams { inbound, outbound } => write!(
                f,
                "messages come on {inbound} streams of one association, and the other one sends on {outbound} only"
            ),
            SpliceError::InRecord => {
                f.write_str("a record has gone through in part; try again once it has ended")
            }
        }
    }
}

impl std::error::Error for SpliceError {}

impl Stream<'_> {
    /// Splices two streams: links both under a multiplexor (`I_PLINK` under `splice`) that sends down on one the messages
    /// that come up on the other, with flow control across. Until the links end, reads on both wait for messages, and writes
    /// for room. They end together: by [`Stream::unsplice`], when one of the streams is closed, or when something else than
    /// data comes up, such as the end of an association, which its reader then finds.
    ///
    /// ```
    /// # use swiftwater::streams::Credentials;
    /// # use swiftwater::{Stack, StackOptions};
    /// # let stack = Stack::bind(&StackOptions::default().with_udp_port(0))?;
    /// # let listener = stack.listen(7)?;
    /// # let [alice, bob] = [stack.connect(listener.address())?, stack.connect(listener.address())?];
    /// # let [(to_alice, _), (to_bob, _)] = [listener.accept()?, listener.accept()?];
    /// to_alice.stream().splice(&to_bob.stream(), Credentials::ROOT)?;
    /// alice.send(b"past the program between them")?;
    /// assert_eq!(bob.recv()?.expect("a message").to_vec(), b"past the program between them");
    /// to_bob.stream().unsplice()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A stream is linked already, has failed or ended; both are the same; they belong to different stacks; one brings up
    /// messages on SCTP streams that the other does not have; or part of a record was sent or delivered, so that what comes next
    /// would belong to it. The ends of one association are not told apart from others: spliced, they would send a message round
    /// for ever.
    pub fn splice(&self, other: &Stream<'_>, owner: Credentials) -> Result<(), SpliceError> {
        if !Arc::ptr_eq(&self.socket.shard, &other.socket.shard) {
            return Err(SpliceError::OtherStack);
        }
        let (known, other_known) = (Known::of(self)?, Known::of(other)?);
        known.check_fits(&other_known)?;
        other_known.check_fits(&known)?;
        let (with, pools) = (other.socket.stream, [known.send_pool, other_known.send_pool]);
        let spliced = self.change(|executive, s| splice(executive, [s, with], pools, owner));
        Ok(spliced.unwrap_or(Err(LinkError::Closed))?)
    }

    /// Ends the splice of this stream (`I_PUNLINK`): both streams return to their programs, with what was not passed on.
    ///
    /// # Errors
    ///
    /// The stream is not spliced, or part of a long message has gone on without the rest.
    pub fn unsplice(&self) -> Result<(), SpliceError> {
        self.change(unsplice).unwrap_or(Err(LinkError::Closed.into()))
    }

    /// Returns the link of a stream that is spliced.
    pub fn splice_status(&self) -> Option<SpliceStatus> {
        let mut inner = self.socket.shard.enter();
        let s = self.socket.stream;
        inner
            .guarded(None, |inner| {
                let executive = inner.executive.with_messages_queued();
                let (_, owner) = executive.link_of(s)?;
                let driver = executive.driver_named(SPLICE)?;
                let passed = executive.driver_state(driver, |splice: &mut Splice| splice.spliced(s))??;
                Some(SpliceStatus { owner, messages: passed.messages, bytes: passed.bytes })
            })
            .flatten()
    }
}

/// The properties of a stream's association that a splice depends on.
struct Known {
    streams_in: u16,
    streams_out: u16,
    /// The memory of its owner for messages to send.
    send_pool: Option<SendPool>,
}

impl Known {
    /// Returns what is known of a stream between two records.
    fn of(stream: &Stream<'_>) -> Result<Known, SpliceError> {
        let socket = stream.socket;
        let known = socket.shard.with_driver(|driver| {
            let view = driver.view(socket.stream, Which::Only)?;
            let known = Known {
                streams_in: view.streams_in(),
                streams_out: view.streams_out(),
                send_pool: driver.config(socket.stream, Which::Only)?.send_pool.clone(),
            };
            Some((known, view.is_in_record()))
        });
        match known.flatten() {
            None => Err(LinkError::Closed.into()),
            Some((_, true)) => Err(SpliceError::InRecord),
            Some((known, false)) => Ok(known),
        }
    }

    /// Checks that the other association sends on every SCTP stream on which messages can come up here.
    fn check_fits(&self, other: &Known) -> Result<(), SpliceError> {
        let (inbound, outbound) = (self.streams_in, other.streams_out);
        match inbound > outbound {
            true => Err(SpliceError::TooFewStreams { inbound, outbound }),
            false => Ok(()),
        }
    }
}

fn splice(
    executive: &mut At<'_>,
    lowers: [StreamId; 2],
    pools: [Option<SendPool>; 2],
    owner: Credentials,
) -> Result<(), LinkError> {
    // Most stacks never splice, and each driver costs a call in every turn.
    let driver = match executive.driver_named(SPLICE) {
        Some(driver) => driver,
        None => executive.add_driver(SPLICE, Box::new(Splice::default())),
    };
    let upper = executive.open_minor(driver, None, owner).map_err(|_| LinkError::Closed)?;
    let linked = link_both(executive, upper, lowers);
    // No message has gone on yet: that is work of service procedures.
    for (lower, pool) in lowers.into_iter().zip(pools) {
        charge(executive, driver, lower, pool);
    }
    // The links are persistent.
    executive.close(upper);
    executive.run();
    linked
}

/// Charges what goes down on a stream to the pool of its association.
fn charge(executive: &mut Executive, driver: DriverId, lower: StreamId, pool: Option<SendPool>) {
    if let Some(pool) = pool {
        let memory = SpliceMemory::new(move |message| pool.copy(message));
        executive.driver_state(driver, |splice: &mut Splice| splice.set_memory(lower, memory));
    }
}

fn link_both(
    executive: &mut Executive,
    upper: StreamId,
    [first, second]: [StreamId; 2],
) -> Result<(), LinkError> {
    if first == second {
        return Err(LinkError::Loop);
    }
    let link: LinkId = executive.link_in_use(upper, first)?;
    executive.link_in_use(upper, second).map(drop).inspect_err(|_| {
        // The link was made a moment ago.
        let _ = executive.unlink(link);
    })
}

fn unsplice(executive: &mut At<'_>, s: StreamId) -> Result<(), SpliceError> {
    let (link, _) = executive.link_of(s).ok_or(LinkError::NoLink)?;
    let in_record = |splice: &mut Splice| {
        let ends = [Some(s), splice.other(s)].into_iter().flatten();
        ends.filter_map(|end| splice.spliced(end)).any(|end| end.is_in_record)
    };
    let driver = executive.driver_named(SPLICE).ok_or(LinkError::NoLink)?;
    if executive.driver_state(driver, in_record) == Some(true) {
        return Err(SpliceError::InRecord);
    }
    executive.unlink(link)?;
    executive.run();
    Ok(())
}
