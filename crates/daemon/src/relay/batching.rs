//! Bundling of short messages to a program into one record.

use std::collections::VecDeque;

use carrier::record::{BUNDLE_BYTES_MAX, Flags, Header, Kind};
use swiftwater::tokio::Association;
use swiftwater::{Message, Received, RecvError, internals};

use crate::state::association::{SocketAssociation, ToProgram};

/// Returns how many of the next messages fit into one bundle.
pub(super) fn fitting_in_bundle(queue: &VecDeque<ToProgram>) -> usize {
    let mut bytes = 0;
    let fits = |upward: &&ToProgram| {
        bytes += upward.record_bytes();
        upward.is_short() && bytes <= BUNDLE_BYTES_MAX
    };
    queue.iter().take_while(fits).count()
}

/// Receives further available messages of the association, as many as fit into a bundle. Returns the first result that is not a
/// message.
pub(super) fn take_along(
    assoc: &SocketAssociation,
    association: &Association,
    queue: &mut VecDeque<ToProgram>,
) -> Option<Result<Option<Received>, RecvError>> {
    let mut bytes = 0;
    while let Some(last) = queue.back().filter(|last| last.is_short()) {
        bytes += last.record_bytes();
        // The next message is probably as long.
        if bytes + last.record_bytes() > BUNDLE_BYTES_MAX {
            return None;
        }
        match internals::next_at_hand(association) {
            Ok(Some(Received::Message(message))) => queue.push_back(to_program(assoc, message)),
            Err(RecvError::WouldBlock) => return None,
            other => return Some(other),
        }
    }
    None
}

/// Returns a message with the header that the program reads.
pub(super) fn to_program(assoc: &SocketAssociation, message: Message) -> ToProgram {
    let info = &message.info;
    let mut header = Header {
        stream: info.stream,
        ssn: info.ssn,
        ppid: info.ppid,
        tsn: info.tsn,
        cumulative_tsn: info.cumulative_tsn,
        association: assoc.id,
        context: assoc.options().context,
        // The receive buffer bounds the length.
        bytes: message.len() as u32,
        address: Some(assoc.peer),
        ..Header::new(Kind::Data)
    };
    if info.unordered {
        header.flags = header.flags.with(Flags::UNORDERED);
    }
    if !info.more {
        header.flags = header.flags.with(Flags::END);
    }
    ToProgram::Message(header, message)
}
