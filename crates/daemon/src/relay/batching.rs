//! Bundling of messages to a program.

use std::collections::VecDeque;

use channel_protocol::record::{Flags, Header, Kind, SHARED_BYTES_MAX, Sequence};
use swiftwater::internals::{self, MessageRun, Taken};
use swiftwater::tokio::Association;
use swiftwater::{Message, Received, RecvInfo};

use crate::channel::receive_ring::BundleWriter;
use crate::state::association::SocketAssociation;
use crate::state::inbound_queue::{InboundQueue, ReadResult, ToProgram};

/// The messages that were written to a bundle.
#[derive(Default)]
pub(super) struct Bundled {
    /// Number of messages that are items of the queue.
    of_queue: usize,
    /// The rest of the runs behind the queue.
    runs: VecDeque<MessageRun>,
}

impl Bundled {
    /// Writes the next messages to a bundle, as many as fit; they stay where they are.
    pub(super) fn write(
        assoc: &SocketAssociation,
        held: &InboundQueue,
        bundle: &mut BundleWriter<'_>,
    ) -> Bundled {
        let mut bundled = Bundled { of_queue: 0, runs: held.runs().clone() };
        for item in held.items() {
            let may_be_put = item.may_share() || bundled.of_queue == 0 && item.lies_in_ring();
            let blocks = item.blocks().iter().map(|block| &block[..]);
            if !may_be_put || !bundle.push(item.header(), blocks) {
                return bundled;
            }
            bundled.of_queue += 1;
            if !item.has_end() {
                return bundled;
            }
        }
        let header = header_of(assoc, &RecvInfo::default(), 0);
        while let Some(mut run) = bundled.runs.pop_front() {
            let mut take =
                |info: &RecvInfo, data: &[u8]| bundle.push(&described(&header, info, data.len()), [data]);
            while run.take_first_if(&mut take) {}
            if run.messages() > 0 {
                bundled.runs.push_front(run);
                break;
            }
        }
        bundled
    }

    /// Removes the messages from where they are.
    pub(super) fn remove_from(self, held: &mut InboundQueue) {
        held.remove(self.of_queue, self.runs);
    }
}

/// Receives further available messages of the association, as many as fit into a bundle. Returns the first result that cannot
/// share it, also that there are no more; `None` if the bundle is full.
pub(super) fn take_along(
    assoc: &SocketAssociation,
    association: &Association,
    held: &mut InboundQueue,
) -> Option<ReadResult> {
    // The next message is probably as long as the last one.
    let mut bytes = held.record_bytes();
    while let Some(last_bytes) = held.last_shared_bytes()
        && bytes + last_bytes <= SHARED_BYTES_MAX
    {
        bytes += match internals::recv_run_no_poll(association) {
            Ok(Some(Taken::Run(run))) => held.push_run(run),
            Ok(Some(Taken::One(Received::Message(message)))) if held.runs().is_empty() => {
                held.push(to_program(assoc, message))
            }
            other => return Some(other),
        };
    }
    None
}

/// Returns a message with the header that the program reads.
pub(super) fn to_program(assoc: &SocketAssociation, message: Message) -> ToProgram {
    // The receive buffer bounds the length.
    ToProgram::Message(header_of(assoc, &message.info, message.len()), message)
}

/// Returns the header of a message of this length from an association.
fn header_of(assoc: &SocketAssociation, info: &RecvInfo, bytes: usize) -> Header {
    let (assoc_id, context) = (assoc.id(), assoc.options().context());
    let header = Header { assoc_id, context, address: Some(assoc.peer()), ..Header::new(Kind::Data) };
    described(&header, info, bytes)
}

/// Returns the header of another message of the association whose header this is.
fn described(header: &Header, info: &RecvInfo, bytes: usize) -> Header {
    let mut flags = Flags::default();
    if info.unordered {
        flags = flags.with(Flags::UNORDERED);
    }
    if !info.more {
        flags = flags.with(Flags::END);
    }
    Header {
        flags,
        stream: info.stream,
        ssn: info.ssn,
        ppid: info.ppid,
        sequence: Sequence::received(info.tsn, info.cumulative_tsn),
        bytes: bytes as u32,
        ..*header
    }
}
