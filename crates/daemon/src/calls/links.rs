//! Requests that link the streams of two associations, so that their peers talk with each other past the programs.

use std::rc::Rc;

use channel_protocol::assoc_id::AssocId;
use rustix::io::Errno;
use swiftwater::SpliceError;
use swiftwater::streams::LinkError;

use super::link_status::LinkStatus;
use super::reply::{Answer, Reply};
use super::streams::{refused, stream};
use crate::state::association::SocketAssociation;
use crate::state::registry::Registry;
use crate::state::relayed::Relayed;
use crate::state::socket::Socket;
use crate::users::requester::Requester;

/// Maximum number of links that a message may pass among the associations of this daemon. A longer way counts as a circle.
const LINKS_PASSED_MAX: usize = 16;

/// Links the streams of two associations.
pub(crate) fn link(registry: &Registry, ids: [AssocId; 2], requester: Requester) -> Result<Reply, Errno> {
    let (socket, first) = stream(registry, ids[0], requester)?;
    let (_, second) = stream(registry, ids[1], requester)?;
    // Nothing else runs between this and the link.
    if ids[0] == ids[1] || goes_round(socket.relayed(), &first, &second) {
        return Err(Errno::INVAL);
    }
    let [one, other] = [&first, &second].map(|assoc| assoc.stack_association());
    let (one, other) = (one.ok_or(Errno::NOTCONN)?, other.ok_or(Errno::NOTCONN)?);
    match one.stream().splice(&other.stream(), requester.for_streams()) {
        Ok(()) => {
            first.on_linked(&second);
            second.on_linked(&first);
            Ok(Answer::Done.into())
        }
        Err(error) => answer(error),
    }
}

/// Ends the link of the stream of an association; answers with the association of the other stream. Only the administrator ends
/// a link that the administrator has made.
pub(crate) fn unlink(registry: &Registry, id: AssocId, requester: Requester) -> Result<Reply, Errno> {
    let (_, assoc) = stream(registry, id, requester)?;
    let association = assoc.stack_association().ok_or(Errno::NOTCONN)?;
    let Some(link) = LinkStatus::of(&assoc) else { return answer(LinkError::NoLink.into()) };
    if !requester.may_manage(link.user) {
        return Err(Errno::PERM);
    }
    match association.stream().unsplice() {
        Ok(()) => Ok(Answer::Value(link.with.to_string().into()).into()),
        Err(error) => answer(error),
    }
}

fn answer(error: SpliceError) -> Result<Reply, Errno> {
    match error {
        SpliceError::Link(LinkError::Loop) => Err(Errno::INVAL),
        SpliceError::Link(LinkError::NoLink) => Ok(refused("the stream is not linked".into())),
        error => Ok(refused(error.to_string())),
    }
}

/// Returns whether a message that comes up on one of the two would come back, once they are linked: the other end of an
/// association may belong to a program of this daemon, and may be linked, too.
fn goes_round(relayed: &Relayed<Socket>, first: &Rc<SocketAssociation>, second: &SocketAssociation) -> bool {
    let mut sender = Rc::clone(first);
    for _ in 0..LINKS_PASSED_MAX {
        let other_end = relayed.other_end(&sender);
        let Some(receiver) = other_end.and_then(|(socket, id)| socket.associations().get(id)) else {
            return false;
        };
        if receiver.id() == second.id() {
            return true;
        }
        if LinkStatus::of(&receiver).is_none() {
            return false;
        }
        // An association that its socket has left accepts no messages.
        let Some(next) = receiver.linked_assoc() else { return false };
        sender = next;
    }
    true
}
