//! The state of each open stream of the provider, and the stream of each association.

use std::collections::{HashMap, VecDeque};

use sctp::{AssociationId, ListenerId, ReceiveCharge};
use streams::{Chain, Control, Kind, Message, StreamId};
use tpi::{Event, Primitive, State, Which};

/// One open stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Minor {
    /// Open, not bound.
    Unbound,
    /// Bound to a local port.
    Bound { port: u16 },
    /// One-to-one, listening: new associations wait for `T_CONN_RES`.
    Listening { port: u16, listener: ListenerId, backlog: u32, waiting: u32 },
    /// One-to-one, with an association.
    Connected { association: AssociationId },
    /// One-to-many: owns every association of a port.
    OneToMany { port: u16, listener: ListenerId },
    /// The association is gone.
    Disconnected,
}

/// Destination of the messages of an association.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// A one-to-one stream.
    Stream(StreamId),
    OneToMany(StreamId),
    /// The queue of an association that waits for an accept; the number is that of its `T_CONN_IND`.
    Waiting(u32),
    /// No user: the stream is closed, and messages that still arrive are discarded.
    NoUser,
    /// No user: the listener is closed, and the association is ended soon. Data that still arrives is unread.
    Unwanted,
}

/// An association that waits for an accept, or the remains of one that ended.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) listener: StreamId,
    /// `None` once the association has ended.
    pub(super) association: Option<AssociationId>,
    /// Its numbers of outbound and of inbound streams.
    pub(super) streams: (u16, u16),
    /// The messages that have arrived, in order.
    pub(super) queue: VecDeque<Message>,
    /// The charge of these messages, once the association has ended.
    pub(super) charge: Option<ReceiveCharge>,
    /// The charge of the association itself, if its listener has a pool.
    pub(super) memory: Option<ReceiveCharge>,
}

/// How the association of a one-to-one stream has ended: the content of its `T_DISCON_IND`, for users that have not
/// read it yet.
#[derive(Clone, Debug)]
pub struct Disconnect {
    /// The errno; 0 if both sides have shut down.
    pub reason: u32,
    /// The error cause (RFC 9260 §3.3.10); 0 for none.
    pub cause: u16,
    /// The reason as text; the second block has the error causes of the peer's ABORT.
    pub data: Chain,
}

/// An open stream, and its state towards its user.
#[derive(Debug, Clone, Copy)]
struct Opened {
    stream: StreamId,
    minor: Minor,
    state: State,
}

/// All tables. The indices of streams and associations are small and dense.
#[derive(Debug, Default)]
pub(super) struct Minors {
    by_stream: Vec<Option<Opened>>,
    by_association: Vec<Option<(AssociationId, Owner)>>,
    listeners: HashMap<ListenerId, StreamId>,
    /// The listeners of streams that have an association of their own, with their backlog: the address stays theirs, and they
    /// listen again when they are idle.
    resting: HashMap<StreamId, (ListenerId, u32)>,
    waiting: HashMap<u32, Waiting>,
    /// The ends of the associations of one-to-one streams that are still open.
    disconnects: HashMap<StreamId, Disconnect>,
    /// The numbers of outbound and of inbound streams of associations that had ended before these streams accepted them.
    ended_streams: HashMap<StreamId, (u16, u16)>,
    /// The number of the next association that waits (`SEQ_number`).
    next_sequence: u32,
}

impl Minors {
    pub(super) fn open(&mut self, s: StreamId) {
        if s.index() >= self.by_stream.len() {
            self.by_stream.resize(s.index() + 1, None);
        }
        self.by_stream[s.index()] = Some(Opened { stream: s, minor: Minor::Unbound, state: State::Unbound });
    }

    pub(super) fn close(&mut self, s: StreamId) -> Option<Minor> {
        let minor = self.get(s)?;
        self.by_stream[s.index()] = None;
        self.disconnects.remove(&s);
        self.ended_streams.remove(&s);
        let listening = match minor {
            Minor::Listening { listener, .. } | Minor::OneToMany { listener, .. } => Some(listener),
            _ => self.take_resting(s).map(|(listener, _)| listener),
        };
        if let Some(listener) = listening {
            self.listeners.remove(&listener);
        }
        Some(minor)
    }

    #[inline]
    pub(super) fn get(&self, s: StreamId) -> Option<Minor> {
        match self.by_stream.get(s.index()) {
            Some(Some(opened)) if opened.stream == s => Some(opened.minor),
            _ => None,
        }
    }

    /// Returns the state of a stream; `TS_UNBND` if the stream is not open.
    pub(super) fn state(&self, s: StreamId) -> State {
        match self.by_stream.get(s.index()) {
            Some(Some(opened)) if opened.stream == s => opened.state,
            _ => State::Unbound,
        }
    }

    /// Applies an event to the state of a stream. An event that does not fit the state leaves the state unchanged,
    /// since the association has a life of its own: it ends, for example, after its user has released it.
    pub(super) fn on_event(&mut self, s: StreamId, event: Event) {
        if let Some(Some(opened)) = self.by_stream.get_mut(s.index())
            && opened.stream == s
        {
            opened.state = opened.state.after(event).unwrap_or(opened.state);
        }
    }

    /// Returns the stream with this number (`ACCEPTOR_id`).
    pub(super) fn numbered(&self, index: u32) -> Option<(StreamId, Minor)> {
        let opened = (*self.by_stream.get(index as usize)?)?;
        Some((opened.stream, opened.minor))
    }

    pub(super) fn set(&mut self, s: StreamId, minor: Minor) {
        if let Minor::Listening { listener, .. } | Minor::OneToMany { listener, .. } = minor {
            self.listeners.insert(listener, s);
        }
        if let Some(Some(opened)) = self.by_stream.get_mut(s.index()) {
            opened.minor = minor;
        }
    }

    /// Keeps the listener of a stream that is about to get an association of its own. Returns the listener.
    pub(super) fn rest(&mut self, s: StreamId) -> Option<ListenerId> {
        let Some(Minor::Listening { listener, backlog, .. }) = self.get(s) else { return None };
        self.resting.insert(s, (listener, backlog));
        Some(listener)
    }

    /// Returns the listener that a stream has kept.
    pub(super) fn resting(&self, s: StreamId) -> Option<ListenerId> {
        self.resting.get(&s).map(|(listener, _)| *listener)
    }

    /// Removes the listener that a stream has kept, and returns it with its backlog.
    pub(super) fn take_resting(&mut self, s: StreamId) -> Option<(ListenerId, u32)> {
        self.resting.remove(&s)
    }

    pub(super) fn listener(&self, listener: ListenerId) -> Option<StreamId> {
        self.listeners.get(&listener).copied()
    }

    pub(super) fn set_owner(&mut self, id: AssociationId, owner: Owner) {
        let at = id.index();
        if at >= self.by_association.len() {
            self.by_association.resize_with(at + 1, || None);
        }
        self.by_association[at] = Some((id, owner));
    }

    #[inline]
    pub(super) fn owner(&self, id: AssociationId) -> Option<Owner> {
        let (owned, owner) = (*self.by_association.get(id.index())?)?;
        (owned == id).then_some(owner)
    }

    /// Returns the stream of an association, and how primitives of this stream name the association.
    #[inline]
    pub(super) fn stream(&self, id: AssociationId) -> Option<(StreamId, Which)> {
        match self.owner(id)? {
            Owner::Stream(s) => Some((s, Which::Only)),
            Owner::OneToMany(s) => Some((s, Which::Id(id))),
            Owner::Waiting(_) | Owner::NoUser | Owner::Unwanted => None,
        }
    }

    /// Returns how primitives name an association. One that waits is accepted by a one-to-one stream.
    pub(super) fn which(&self, id: AssociationId) -> Which {
        self.stream(id).map_or(Which::Only, |(_, association)| association)
    }

    pub(super) fn take_owner(&mut self, id: AssociationId) -> Option<Owner> {
        let entry = self.by_association.get_mut(id.index())?;
        entry.take_if(|(owned, _)| *owned == id).map(|(_, owner)| owner)
    }

    /// Records a `T_DISCON_IND` on its way up a one-to-one stream.
    pub(super) fn note_disconnect(&mut self, s: StreamId, m: &Message) {
        let is_one_to_one = !matches!(self.get(s), None | Some(Minor::OneToMany { .. }));
        if let Kind::Proto(Control::Tpi(Primitive::DisconInd { reason, cause, .. })) = m.kind
            && is_one_to_one
        {
            self.disconnects.insert(s, Disconnect { reason, cause, data: m.data.clone() });
        }
    }

    pub(super) fn disconnect(&self, s: StreamId) -> Option<&Disconnect> {
        self.disconnects.get(&s)
    }

    /// Keeps the numbers of streams of an association that had ended before this stream accepted it.
    pub(super) fn note_ended_streams(&mut self, s: StreamId, streams: (u16, u16)) {
        self.ended_streams.insert(s, streams);
    }

    pub(super) fn ended_streams(&self, s: StreamId) -> Option<(u16, u16)> {
        self.ended_streams.get(&s).copied()
    }

    /// Queues an association until it is accepted; returns its number.
    pub(super) fn wait(
        &mut self,
        listener: StreamId,
        id: AssociationId,
        streams: (u16, u16),
        memory: Option<ReceiveCharge>,
    ) -> u32 {
        let sequence = self.next_sequence;
        self.next_sequence = sequence.wrapping_add(1);
        self.set_owner(id, Owner::Waiting(sequence));
        let waiting = Waiting {
            listener,
            association: Some(id),
            streams,
            queue: VecDeque::new(),
            charge: None,
            memory,
        };
        self.waiting.insert(sequence, waiting);
        sequence
    }

    pub(super) fn waiting(&mut self, sequence: u32) -> Option<&mut Waiting> {
        self.waiting.get_mut(&sequence)
    }

    /// Removes a waiting association of this listener, which makes room for another.
    pub(super) fn take_waiting(&mut self, listener: StreamId, sequence: u32) -> Option<Waiting> {
        let Some(Minor::Listening { port, listener: id, backlog, waiting }) = self.get(listener) else {
            return None;
        };
        if self.waiting.get(&sequence)?.listener != listener {
            return None;
        }
        let waiting = waiting.saturating_sub(1);
        self.set(listener, Minor::Listening { port, listener: id, backlog, waiting });
        self.waiting.remove(&sequence)
    }

    /// Removes all associations that wait for a listener, and returns those that have not ended, in the order in which they came.
    pub(super) fn take_all_waiting(&mut self, listener: StreamId) -> Vec<(AssociationId, Waiting)> {
        let mut mine: Vec<_> = self.waiting.extract_if(|_, waiting| waiting.listener == listener).collect();
        mine.sort_unstable_by_key(|(sequence, _)| *sequence);
        mine.into_iter().filter_map(|(_, waiting)| Some((waiting.association?, waiting))).collect()
    }

    /// Returns the associations of a one-to-many stream.
    pub(super) fn owned_by(&self, s: StreamId) -> Vec<AssociationId> {
        let owned = self.by_association.iter().flatten();
        owned.filter(|(_, owner)| *owner == Owner::OneToMany(s)).map(|(id, _)| *id).collect()
    }
}
