//! Short messages to a program that share one record.

use std::collections::VecDeque;

use carrier::record::{BUNDLE_BYTES_MAX, Flags, Header, Kind};
use swiftwater::tokio::Association;
use swiftwater::{Message, Received, RecvError, internals};

use crate::state::association::{SocketAssociation, Upward};

/// Returns how many of the next messages fit into one bundle.
pub(super) fn fitting_in_bundle(queue: &VecDeque<Upward>) -> usize {
    let mut bytes = 0;
    let fits = |upward: &&Upward| {
        bytes += upward.record_bytes();
        upward.is_short() && bytes <= BUNDLE_BYTES_MAX
    };
    queue.iter().take_while(fits).count()
}

/// Takes along what is there already, as much as fits into a bundle. Returns what came after that and is no message.
pub(super) fn take_along(
    assoc: &SocketAssociation,
    association: &Association,
    queue: &mut VecDeque<Upward>,
) -> Option<Result<Option<Received>, RecvError>> {
    let mut bytes = 0;
    while let Some(last) = queue.back().filter(|last| last.is_short()) {
        bytes += last.record_bytes();
        // The next one is likely to be as long.
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
pub(super) fn to_program(assoc: &SocketAssociation, message: Message) -> Upward {
    let info = &message.info;
    let mut header = Header {
        stream: info.stream,
        ssn: info.ssn,
        ppid: info.ppid,
        tsn: info.tsn,
        cumulative_tsn: info.cumulative_tsn,
        association: assoc.id,
        context: assoc.options().context,
        // The receive buffer bounds it.
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
    Upward::Message(header, message)
}
