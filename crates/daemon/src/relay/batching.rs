//! Bundling of short messages to a program into one record.

use std::collections::VecDeque;

use carrier::record::{BUNDLE_BYTES_MAX, Flags, Header, Kind};
use swiftwater::internals::{self, MessageRun, Taken};
use swiftwater::tokio::Association;
use swiftwater::{Message, Received, RecvError, RecvInfo};

use crate::state::association::SocketAssociation;
use crate::state::held::{BUNDLED_BYTES_MAX, Held, ReadResult, ToProgram};

/// Messages that share a record.
pub(super) struct Bundle {
    pub(super) record: Vec<u8>,
    pub(super) messages: u32,
    /// Number of messages that are items of the queue.
    of_queue: usize,
    /// The rest of the runs behind the queue.
    runs: VecDeque<MessageRun>,
}

impl Bundle {
    /// Returns the next messages that fit into one record; they stay where they are.
    pub(super) fn of(assoc: &SocketAssociation, held: &Held) -> Bundle {
        let mut bundle = Bundle { record: Vec::new(), messages: 0, of_queue: 0, runs: held.runs().clone() };
        for item in held.items() {
            if !item.is_short() || !bundle.has_room(item.header()) {
                return bundle;
            }
            bundle.push(item.header(), item.blocks().iter().map(|block| &block[..]));
            bundle.of_queue += 1;
        }
        let header = header_of(assoc, &RecvInfo::default(), 0);
        while let Some(mut run) = bundle.runs.pop_front() {
            let mut take = |info: &RecvInfo, data: &[u8]| {
                let header = described(&header, info, data.len());
                let fits = data.len() <= BUNDLED_BYTES_MAX && bundle.has_room(&header);
                if fits {
                    bundle.push(&header, [data]);
                }
                fits
            };
            while run.take_first_if(&mut take) {}
            if run.messages() > 0 {
                bundle.runs.push_front(run);
                break;
            }
        }
        bundle
    }

    /// Removes the messages from where they are.
    pub(super) fn remove_from(self, held: &mut Held) {
        held.remove(self.of_queue, self.runs);
    }

    fn has_room(&self, header: &Header) -> bool {
        self.record.len() + header.record_bytes() <= BUNDLE_BYTES_MAX
    }

    fn push<'b>(&mut self, header: &Header, content: impl IntoIterator<Item = &'b [u8]>) {
        if self.record.is_empty() {
            self.record.reserve_exact(BUNDLE_BYTES_MAX);
        }
        self.record.extend_from_slice(&header.encode());
        content.into_iter().for_each(|block| self.record.extend_from_slice(block));
        self.messages += 1;
    }
}

/// Receives further available messages of the association, as many as fit into a bundle. Returns the first result that cannot
/// share it.
pub(super) fn take_along(
    assoc: &SocketAssociation,
    association: &Association,
    held: &mut Held,
) -> Option<ReadResult> {
    // The next message is probably as long as the last one.
    let mut bytes = held.record_bytes();
    while let Some(last_bytes) = held.last_short_bytes()
        && bytes + last_bytes <= BUNDLE_BYTES_MAX
    {
        bytes += match internals::recv_run_no_poll(association) {
            Ok(Some(Taken::Run(run))) => held.push_run(run),
            Ok(Some(Taken::One(Received::Message(message)))) if held.runs().is_empty() => {
                held.push(to_program(assoc, message))
            }
            Err(RecvError::WouldBlock) => return None,
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
    let (association, context) = (assoc.id(), assoc.options().context());
    let header = Header { association, context, address: Some(assoc.peer()), ..Header::new(Kind::Data) };
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
        tsn: info.tsn,
        cumulative_tsn: info.cumulative_tsn,
        bytes: bytes as u32,
        ..*header
    }
}
