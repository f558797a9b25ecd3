//! Requests that link the streams of two associations, so that their peers talk with each other past the programs.

use std::net::IpAddr;
use std::rc::Rc;

use rustix::io::Errno;
use rustix::net::UCred;
use swiftwater::streams::{Credentials, LinkError};
use swiftwater::{SpliceError, tokio::Association};

use super::link_status::LinkStatus;
use super::reply::{Answer, Reply};
use super::streams::{association_ports, is_privileged, refused, stream};
use super::walk::Walk;
use crate::state::association::SocketAssociation;
use crate::state::registry::Registry;

/// Maximum number of links that a message may pass among the associations of this daemon. A longer way counts as a circle.
const LINKS_PASSED_MAX: usize = 16;

/// Links the streams of two associations.
pub(crate) async fn link(registry: &Registry, ids: [u32; 2], who: UCred) -> Result<Reply, Errno> {
    let (_, first) = stream(registry, ids[0], who).await?;
    let (_, second) = stream(registry, ids[1], who).await?;
    if ids[0] == ids[1] || goes_round(registry, &first, &second).await {
        return Err(Errno::INVAL);
    }
    let [one, other] = [&first, &second].map(|assoc| assoc.association());
    let (one, other) = (one.ok_or(Errno::NOTCONN)?, other.ok_or(Errno::NOTCONN)?);
    let owner = Credentials { uid: who.uid.as_raw(), gid: who.gid.as_raw() };
    match one.stream().splice(&other.stream(), owner) {
        Ok(()) => {
            first.linked_with.set(ids[1]);
            second.linked_with.set(ids[0]);
            Ok(Answer::Done.into())
        }
        Err(error) => answer(error),
    }
}

/// Ends the link of the stream of an association; answers with the association of the other stream. Only the administrator ends
/// a link that the administrator has made.
pub(crate) async fn unlink(registry: &Registry, id: u32, who: UCred) -> Result<Reply, Errno> {
    let (_, assoc) = stream(registry, id, who).await?;
    let association = assoc.association().ok_or(Errno::NOTCONN)?;
    let Some(link) = LinkStatus::of(&assoc) else { return answer(LinkError::NoLink.into()) };
    if link.user != who.uid.as_raw() && !is_privileged(who) {
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
        if receiver.id == second.id {
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
    let ours = Ends::of(assoc.association()?);
    find(registry, |other| other.association().is_some_and(|other| ours.face(&Ends::of(other)))).await
}

async fn with_number(registry: &Registry, id: u32) -> Option<Rc<SocketAssociation>> {
    find(registry, |assoc| assoc.id == id).await
}

/// Finds an association of any socket, in turns.
async fn find(
    registry: &Registry,
    is_it: impl Fn(&SocketAssociation) -> bool,
) -> Option<Rc<SocketAssociation>> {
    let mut walk = Walk::over(registry);
    while let Some(sockets) = walk.next().await {
        for socket in sockets {
            let associations: Vec<Rc<SocketAssociation>> =
                socket.inner().associations.values().cloned().collect();
            walk.pass_over(associations.len()).await;
            if let Some(found) = associations.into_iter().find(|assoc| is_it(assoc)) {
                return Some(found);
            }
        }
    }
    None
}

/// The two ends of an association, as one of them knows them.
struct Ends {
    local: (Vec<IpAddr>, u16),
    peer: (Vec<IpAddr>, u16),
}

impl Ends {
    fn of(association: &Association) -> Ends {
        let (local_port, peer_port) = association_ports(association);
        let canonical = |hosts: Vec<IpAddr>| hosts.iter().map(IpAddr::to_canonical).collect();
        let local = association.local_addr().map(|address| address.ip());
        let locals = association.local_addresses().into_iter().chain(local).collect();
        let peers = association.peer_address().map_or_else(Vec::new, |peer| peer.hosts);
        Ends { local: (canonical(locals), local_port), peer: (canonical(peers), peer_port) }
    }

    /// Returns whether these are the two ends of one association.
    fn face(&self, other: &Ends) -> bool {
        let is_one = |(ours, our_port): &(Vec<IpAddr>, u16), (theirs, their_port): &(Vec<IpAddr>, u16)| {
            our_port == their_port && ours.iter().any(|ip| theirs.contains(ip))
        };
        is_one(&self.local, &other.peer) && is_one(&self.peer, &other.local)
    }
}
