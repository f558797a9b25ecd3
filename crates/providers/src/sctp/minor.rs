//! What each open stream of the provider is, and which stream each association belongs to.

use std::collections::{HashMap, VecDeque};

use sctp::AssociationId;
use streams::{Message, StreamId};

/// One open stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Minor {
    /// Open, not bound.
    Unbound,
    /// Bound to a local port.
    Bound { port: u16 },
    /// One-to-one, listening: associations wait for `T_CONN_RES`.
    Listening { port: u16, backlog: u32, waiting: u32 },
    /// One-to-one, with its association.
    Connected { association: AssociationId },
    /// One-to-many: every association of a port.
    OneToMany { port: u16 },
    /// The association is gone.
    Disconnected,
}

/// Where the messages of an association go.
#[derive(Debug)]
pub(super) enum Owner {
    Stream(StreamId),
    /// Waits to be accepted on this listener. What arrives meanwhile is kept in order.
    Waiting {
        listener: StreamId,
        queue: VecDeque<Message>,
    },
}

/// Both maps. Stream indices and association identifiers are small and dense, so they are tables.
#[derive(Debug, Default)]
pub(super) struct Minors {
    by_stream: Vec<Option<(StreamId, Minor)>>,
    by_association: Vec<Option<Owner>>,
    listeners: HashMap<u16, StreamId>,
}

impl Minors {
    pub(super) fn open(&mut self, s: StreamId) {
        if s.index() >= self.by_stream.len() {
            self.by_stream.resize(s.index() + 1, None);
        }
        self.by_stream[s.index()] = Some((s, Minor::Unbound));
    }

    pub(super) fn close(&mut self, s: StreamId) -> Option<Minor> {
        let minor = self.get(s)?;
        self.by_stream[s.index()] = None;
        if let Minor::Listening { port, .. } | Minor::OneToMany { port } = minor {
            self.listeners.remove(&port);
        }
        Some(minor)
    }

    #[inline]
    pub(super) fn get(&self, s: StreamId) -> Option<Minor> {
        match self.by_stream.get(s.index()) {
            Some(Some((owner, minor))) if *owner == s => Some(*minor),
            _ => None,
        }
    }

    /// The stream with this number (`ACCEPTOR_id`).
    pub(super) fn numbered(&self, index: u32) -> Option<(StreamId, Minor)> {
        *self.by_stream.get(index as usize)?
    }

    pub(super) fn set(&mut self, s: StreamId, minor: Minor) {
        if let Minor::Listening { port, .. } | Minor::OneToMany { port } = minor {
            self.listeners.insert(port, s);
        }
        if let Some(Some((_, slot))) = self.by_stream.get_mut(s.index()) {
            *slot = minor;
        }
    }

    pub(super) fn listener(&self, port: u16) -> Option<StreamId> {
        self.listeners.get(&port).copied()
    }

    pub(super) fn set_owner(&mut self, id: AssociationId, owner: Owner) {
        let at = id.0 as usize;
        if at >= self.by_association.len() {
            self.by_association.resize_with(at + 1, || None);
        }
        self.by_association[at] = Some(owner);
    }

    #[inline]
    pub(super) fn owner(&mut self, id: AssociationId) -> Option<&mut Owner> {
        self.by_association.get_mut(id.0 as usize)?.as_mut()
    }

    pub(super) fn take_owner(&mut self, id: AssociationId) -> Option<Owner> {
        self.by_association.get_mut(id.0 as usize)?.take()
    }

    /// Associations that a closing stream leaves behind.
    pub(super) fn owned_by(&self, s: StreamId) -> Vec<AssociationId> {
        let mine = |owner: &Option<Owner>| match owner {
            Some(Owner::Stream(stream)) => *stream == s,
            Some(Owner::Waiting { listener, .. }) => *listener == s,
            None => false,
        };
        let ids = self.by_association.iter().enumerate().filter(|(_, owner)| mine(owner));
        ids.map(|(id, _)| AssociationId(id as u32)).collect()
    }
}
