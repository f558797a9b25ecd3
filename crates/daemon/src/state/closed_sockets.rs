//! Sockets that their programs have closed, for reports: what they have sent is still delivered, and their associations are shut
//! down in the background.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;

use channel_protocol::assoc_id::AssocId;
use swiftwater::AssociationId;
use swiftwater::internals;
use swiftwater::tokio::Stack;

use super::association::SocketAssociation;
use super::socket::Socket;
use crate::channel::style::Style;
use crate::users::owner::Owner;

/// Number of earlier sockets that are looked at when one is added: with two, about half of the entries at most are of sockets
/// whose associations have ended.
const LOOKED_AT: usize = 2;

/// A socket that its program has closed.
#[derive(Debug)]
pub(crate) struct ClosedSocket {
    pub(crate) number: u64,
    pub(crate) style: Style,
    pub(crate) owner: Owner,
    pub(crate) local: Vec<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
    /// The associations that the socket had, in the order of their numbers.
    pub(crate) associations: Vec<LeftAssociation>,
}

/// An association that may have ended since its socket was closed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeftAssociation {
    pub(crate) id: AssocId,
    pub(crate) peer: SocketAddr,
    pub(crate) stack_id: AssociationId,
}

impl LeftAssociation {
    fn of(assoc: &SocketAssociation) -> Option<LeftAssociation> {
        let stack_id = internals::identifier(assoc.stack_association()?)?;
        Some(LeftAssociation { id: assoc.id(), peer: assoc.peer(), stack_id })
    }
}

/// The sockets that were closed while they had associations.
#[derive(Default)]
pub(crate) struct ClosedSockets(RefCell<VecDeque<Rc<ClosedSocket>>>);

impl ClosedSockets {
    /// Adds a socket with the associations that it had, and forgets earlier ones whose associations have ended.
    pub(super) fn add(&self, stack: &Stack, socket: &Socket, associations: &[Rc<SocketAssociation>]) {
        let associations: Vec<_> =
            associations.iter().filter_map(|assoc| LeftAssociation::of(assoc)).collect();
        if associations.is_empty() {
            return;
        }
        let mut sockets = self.0.borrow_mut();
        for _ in 0..LOOKED_AT.min(sockets.len()) {
            let oldest = sockets.pop_front();
            sockets.extend(oldest.filter(|socket| socket.has_association(stack)));
        }
        sockets.push_back(Rc::new(ClosedSocket {
            number: socket.number(),
            style: socket.style(),
            owner: socket.owner(),
            local: socket.addresses().all_local(),
            peer: socket.addresses().peer(),
            associations,
        }));
    }

    /// Returns up to `count` sockets of owners for which `is_shown` holds, in the order in which they were opened, and the number
    /// of the others. Some may have no association left.
    pub(crate) fn up_to(
        &self,
        count: usize,
        is_shown: impl Fn(Owner) -> bool,
    ) -> (Vec<Rc<ClosedSocket>>, usize) {
        let mut shown: Vec<_> =
            self.0.borrow().iter().filter(|socket| is_shown(socket.owner)).cloned().collect();
        shown.sort_unstable_by_key(|socket| socket.number);
        let omitted = shown.len().saturating_sub(count);
        shown.truncate(count);
        (shown, omitted)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.borrow().len()
    }
}

impl ClosedSocket {
    fn has_association(&self, stack: &Stack) -> bool {
        self.associations.iter().any(|left| internals::has_association(stack, left.stack_id))
    }
}
