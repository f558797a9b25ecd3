//! Requests that link the streams of two associations, so that their peers talk with each other past the programs.

use std::net::IpAddr;
use std::rc::Rc;

use rustix::io::Errno;
use rustix::net::UCred;
use swiftwater::SpliceError;
use swiftwater::internals::AssociationView;
use swiftwater::streams::{Credentials, LinkError};

use super::link_status::LinkStatus;
use super::reply::{Answer, Reply};
use super::streams::{is_privileged, refused, stream};
use super::walk::{PASSED_OVER_PER_RECORD, Walk};
use crate::state::association::SocketAssociation;
use crate::state::registry::Registry;

/// Maximum number of links that a message may pass among the associations of this daemon. A longer way counts as a circle.
const LINKS_PASSED_MAX: usize = 16;

/// Links the streams of two associations.
pub(crate) async fn link(registry: &Registry, ids: [u32; 2], credentials: UCred) -> Result<Reply, Errno> {
    let (_, first) = stream(registry, ids[0], credentials).await?;
    let (_, second) = stream(registry, ids[1], credentials).await?;
    if ids[0] == ids[1] || goes_round(registry, &first, &second).await {
        return Err(Errno::INVAL);
    }
    let [one, other] = [&first, &second].map(|assoc| assoc.association());
    let (one, other) = (one.ok_or(Errno::NOTCONN)?, other.ok_or(Errno::NOTCONN)?);
    let owner = Credentials { uid: credentials.uid.as_raw(), gid: credentials.gid.as_raw() };
    match one.stream().splice(&other.stream(), owner) {
        Ok(()) => {
            first.on_linked(ids[1]);
            second.on_linked(ids[0]);
            Ok(Answer::Done.into())
        }
        Err(error) => answer(error),
    }
}

/// Ends the link of the stream of an association; answers with the association of the other stream. Only the administrator ends
/// a link that the administrator has made.
pub(crate) async fn unlink(registry: &Registry, id: u32, credentials: UCred) -> Result<Reply, Errno> {
    let (_, assoc) = stream(registry, id, credentials).await?;
    let association = assoc.association().ok_or(Errno::NOTCONN)?;
    let Some(link) = LinkStatus::of(&assoc) else { return answer(LinkError::NoLink.into()) };
    if link.user != credentials.uid.as_raw() && !is_privileged(credentials) {
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
async fn goes_round(registry: &Registry, first: &Rc<SocketAssociation>, second: &SocketAssociation) -> bool {
    let mut sender = Rc::clone(first);
    for _ in 0..LINKS_PASSED_MAX {
        let Some(receiver) = other_end(registry, &sender).await else { return false };
        if receiver.id() == second.id() {
            return true;
        }
        let Some(link) = LinkStatus::of(&receiver) else { return false };
        let Some(next) = with_number(registry, link.with).await else { return false };
        sender = next;
    }
    true
}

/// Finds the other end of an association in this daemon.
async fn other_end(registry: &Registry, assoc: &SocketAssociation) -> Option<Rc<SocketAssociation>> {
    let ends = assoc.view(Ends::of)?;
    find(registry, |other| other.view(|other| ends.face(other)) == Some(true)).await
}

async fn with_number(registry: &Registry, id: u32) -> Option<Rc<SocketAssociation>> {
    find(registry, |assoc| assoc.id() == id).await
}

/// Finds an association of any socket, in turns: a one-to-many socket may have as many as all others together.
async fn find(
    registry: &Registry,
    is_it: impl Fn(&SocketAssociation) -> bool,
) -> Option<Rc<SocketAssociation>> {
    let mut walk = Walk::over(registry);
    while let Some(sockets) = walk.next().await {
        for socket in sockets {
            let associations = socket.associations().all();
            for some in associations.chunks(PASSED_OVER_PER_RECORD) {
                walk.pass_over(some.len()).await;
                if let Some(found) = some.iter().find(|assoc| is_it(assoc)) {
                    return Some(Rc::clone(found));
                }
            }
        }
    }
    None
}

/// The two ends of an association, as one of them knows them.
struct Ends {
    local: Vec<IpAddr>,
    peer: Vec<IpAddr>,
    ports: (u16, u16),
}

impl Ends {
    fn of(view: AssociationView<'_>) -> Ends {
        let local = view.local_addresses().into_iter().chain(view.primary().local());
        let peer = view.paths().map(|path| path.remote().ip());
        Ends {
            local: local.map(|ip| ip.to_canonical()).collect(),
            peer: peer.map(|ip| ip.to_canonical()).collect(),
            ports: view.ports(),
        }
    }

    /// Returns whether these are the ends of the association that `other` is the other end of.
    fn face(&self, other: AssociationView<'_>) -> bool {
        let (local_port, peer_port) = self.ports;
        if other.ports() != (peer_port, local_port) {
            return false;
        }
        let other = Ends::of(other);
        let meet = |some: &[IpAddr], others: &[IpAddr]| some.iter().any(|ip| others.contains(ip));
        meet(&self.local, &other.peer) && meet(&self.peer, &other.local)
    }
}
