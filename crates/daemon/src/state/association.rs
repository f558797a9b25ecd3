//! Associations of sockets: their state, and the messages on their way to the program.

use std::cell::{Cell, OnceCell, RefCell, RefMut};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use bytes::Bytes;
use carrier::record::{Flags, HEADER_BYTES, Header, PAYLOAD_BYTES_MAX};
use rustix::io::Errno;
use swiftwater::internals::{self, AssociationView, AtHand, MessageRun};
use swiftwater::tokio::Association;
use swiftwater::{LossKind, Message, PathState, RecvError};
use tokio::sync::watch;

use super::association_options::{AssocOptions, mtu_as_seen};
use super::notification_type::NotificationType;
use super::send_queue::SendQueue;
use crate::channel::window_credit::ReceiveWindow;
use crate::users::budget::AssociationSeat;

/// The first number of an association. As in the kernel, lower numbers denote future associations, the current one, and
/// all (`SCTP_FUTURE_ASSOC` and others).
pub(crate) const FIRST_ID: u32 = 3;

/// Maximum size of a message that may share a record with others: so that two of them fit.
pub(crate) const BUNDLED_BYTES_MAX: usize = 6000;

/// An association of a socket.
pub(crate) struct SocketAssociation {
    /// The number of the association, unique in the daemon.
    pub(crate) id: u32,
    /// The peer's address, as the program sees it.
    pub(crate) peer: SocketAddr,
    association: OnceCell<Association>,
    /// The options that were set for the association.
    assoc_options: RefCell<AssocOptions>,
    /// Whether the receive buffer bounds all unread data.
    bounds_unread: Cell<bool>,
    outcome: watch::Sender<Outcome>,
    /// The error cause with which the association was lost; 0 for none.
    end_cause: Cell<u16>,
    /// Whether the channel has all that the program gets from the association.
    is_all_told: watch::Sender<bool>,
    /// Messages that are being handed to the program; they stay here until that is done. A task holds the lock while it
    /// hands them up.
    pub(crate) held: tokio::sync::Mutex<Held>,
    /// The queue of outbound messages, if the socket is a one-to-many socket.
    send_queue: RefCell<Option<Rc<SendQueue>>>,
    /// Whether the association was told of a rest, see [`SocketAssociation::set_has_rest`].
    has_rest: Cell<bool>,
    /// The association whose stream this one's was linked with last. The stack knows whether the link has ended.
    pub(crate) linked_with: Cell<u32>,
    /// The seat of an association that a peer has set up with a one-to-many socket.
    seat: OnceCell<AssociationSeat>,
}

/// Messages on their way from an association to the program.
#[derive(Default)]
pub(crate) struct Held {
    /// Items to hand up, in this order.
    pub(crate) queue: VecDeque<ToProgram>,
    /// Messages behind these items, as they came in packets.
    pub(crate) runs: VecDeque<MessageRun>,
    /// The result of a read behind these items and runs that cannot share a record with them: an event, an end, an error, or
    /// a message.
    pub(crate) next: Option<Result<Option<AtHand>, RecvError>>,
    /// Whether the peer has shut the association down.
    pub(crate) is_shut_down: bool,
    /// Whether the end must be reported once all items and runs were put.
    pub(crate) is_end_due: bool,
    /// How the association has ended; reported once all but the last item was put. No message follows an end, so that item is
    /// in `queue`.
    pub(crate) ending: Option<Ended>,
}

impl Held {
    /// Appends an item; returns the number of bytes that it takes in a record.
    pub(crate) fn push(&mut self, item: ToProgram) -> usize {
        let bytes = item.record_bytes();
        self.queue.push_back(item);
        bytes
    }

    /// Appends messages; returns the number of bytes that they take in records.
    pub(crate) fn push_run(&mut self, run: MessageRun) -> usize {
        let bytes = record_bytes(&run);
        self.runs.push_back(run);
        bytes
    }

    /// Returns the number of bytes that all items and messages take in records.
    pub(crate) fn record_bytes(&self) -> usize {
        let of_queue = self.queue.iter().map(ToProgram::record_bytes);
        of_queue.chain(self.runs.iter().map(record_bytes)).sum()
    }

    /// Returns the number of bytes that all items and messages keep in memory: runs keep their whole packets.
    pub(crate) fn memory_bytes(&self) -> usize {
        let of_queue = self.queue.iter().map(ToProgram::record_bytes);
        of_queue.chain(self.runs.iter().map(MessageRun::block_bytes)).sum()
    }

    /// Returns the number of bytes that the last message takes in a record, about; `None` if it is not short.
    pub(crate) fn last_short_bytes(&self) -> Option<usize> {
        match self.runs.back() {
            Some(run) => Some(record_bytes(run) / run.messages().max(1)),
            None => self.queue.back().filter(|last| last.is_short()).map(ToProgram::record_bytes),
        }
        .filter(|bytes| *bytes <= HEADER_BYTES + BUNDLED_BYTES_MAX)
    }

    /// Returns the number of items and messages that are held.
    pub(crate) fn len(&self) -> usize {
        self.queue.len() + self.runs.iter().map(MessageRun::messages).sum::<usize>()
    }

    /// Returns whether neither an item nor a message is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes the first message of the runs and returns it.
    pub(crate) fn take_first_of_runs(&mut self) -> Option<Message> {
        let run = self.runs.front_mut()?;
        let message = run.take_first();
        // A run whose messages cannot be told apart would stay for ever.
        if run.messages() == 0 || message.is_none() {
            self.runs.pop_front();
        }
        message
    }
}

/// Returns the number of bytes that messages take in records.
fn record_bytes(run: &MessageRun) -> usize {
    run.data_bytes() + run.messages() * HEADER_BYTES
}

/// The end of an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The peer has shut the association down, after its last message.
    ByPeer,
    /// This side has shut the association down.
    ByUs,
    /// The association was aborted or lost.
    Lost(LossKind),
}

/// The outcome of setting up an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Pending,
    Up,
    Failed(Errno),
}

/// An item for the program.
#[derive(Debug)]
pub(crate) enum ToProgram {
    Message(Header, Message),
    Notification(Header, Bytes),
}

impl ToProgram {
    pub(crate) fn header(&self) -> &Header {
        match self {
            ToProgram::Message(header, _) | ToProgram::Notification(header, _) => header,
        }
    }

    pub(crate) fn blocks(&self) -> &[Bytes] {
        match self {
            ToProgram::Message(_, message) => message.blocks(),
            ToProgram::Notification(_, content) => std::slice::from_ref(content),
        }
    }

    /// Returns whether the item is a message that may share a record with others: copying it costs less than a record
    /// of its own.
    pub(crate) fn is_short(&self) -> bool {
        let ToProgram::Message(header, _) = self else { return false };
        header.flags.contains(Flags::END) && header.bytes as usize <= BUNDLED_BYTES_MAX
    }

    /// Returns the number of bytes that the item takes in a record.
    pub(crate) fn record_bytes(&self) -> usize {
        self.header().record_bytes()
    }
}

impl SocketAssociation {
    pub(crate) fn new(id: u32, peer: SocketAddr, assoc_options: AssocOptions) -> SocketAssociation {
        SocketAssociation {
            id,
            peer,
            association: OnceCell::new(),
            assoc_options: RefCell::new(assoc_options),
            bounds_unread: Cell::new(false),
            outcome: watch::Sender::new(Outcome::Pending),
            end_cause: Cell::new(0),
            is_all_told: watch::Sender::new(false),
            held: tokio::sync::Mutex::default(),
            send_queue: RefCell::default(),
            has_rest: Cell::new(false),
            linked_with: Cell::new(0),
            seat: OnceCell::new(),
        }
    }

    /// Counts the association for its user as long as it exists.
    pub(crate) fn take_seat(&self, seat: AssociationSeat) {
        // An association gets one seat, when it is created.
        let _ = self.seat.set(seat);
    }

    /// Returns an association that is up.
    pub(crate) fn with(
        id: u32,
        peer: SocketAddr,
        association: Association,
        assoc_options: AssocOptions,
    ) -> SocketAssociation {
        let assoc = SocketAssociation::new(id, peer, assoc_options);
        assoc.set_up(association);
        assoc
    }

    /// Marks the association as up.
    pub(crate) fn set_up(&self, association: Association) {
        // An association is set up only once.
        let _ = self.association.set(association);
        self.outcome.send_replace(Outcome::Up);
    }

    pub(crate) fn set_failed(&self, error: Errno) {
        self.outcome.send_replace(Outcome::Failed(error));
    }

    /// Sets whether the program has messages left that it has sent and that the association has not taken. Programs believe them
    /// sent, so they are still delivered if the peer shuts the association down.
    pub(crate) fn set_has_rest(&self, has_rest: bool) {
        if self.has_rest.replace(has_rest) != has_rest
            && let Some(association) = self.association()
        {
            internals::set_has_rest(association, has_rest);
        }
    }

    /// Returns whether the program has a rest.
    pub(crate) fn has_rest(&self) -> bool {
        self.has_rest.get()
    }

    /// Returns its number in notifications: as in the kernel, 0 if it was never up.
    pub(crate) fn notified_id(&self) -> u32 {
        if self.association.get().is_some() { self.id } else { 0 }
    }

    /// Returns the association of the stack; `None` while it is being set up.
    pub(crate) fn association(&self) -> Option<&Association> {
        self.association.get()
    }

    pub(crate) fn options(&self) -> RefMut<'_, AssocOptions> {
        self.assoc_options.borrow_mut()
    }

    /// Returns whether unread data occupies the peer's window, wherever it is stored.
    pub(crate) fn bounds_unread(&self) -> bool {
        self.bounds_unread.get()
    }

    /// Sets whether unread data occupies the peer's window. Called before the first message is handed up.
    pub(crate) fn set_bounds_unread(&self, bounds: bool) {
        self.bounds_unread.set(bounds);
        if let Some(association) = self.association() {
            internals::hold_window_from(association, self.credit_held_from_bytes());
        }
    }

    /// Returns whether a message occupies the window until the program has read it.
    pub(crate) fn holds_credit(&self, message: &Message) -> bool {
        message.len() >= self.credit_held_from_bytes()
    }

    /// Returns the minimum size of such messages. The carrier bounds the number of its records, but not the size of
    /// records whose content is in a memfd.
    fn credit_held_from_bytes(&self) -> usize {
        if self.bounds_unread() { 0 } else { PAYLOAD_BYTES_MAX + 1 }
    }

    /// Returns whether the program has subscribed to notifications of this kind.
    pub(crate) fn wants(&self, kind: NotificationType) -> bool {
        self.options().subscribes(kind.subscription())
    }

    /// Returns the number of outbound streams; 0 while it is unknown.
    pub(crate) fn streams_out(&self) -> u16 {
        self.association().map_or(0, |association| association.streams_out())
    }

    pub(crate) fn outcome(&self) -> Outcome {
        *self.outcome.borrow()
    }

    /// Waits for the outcome of setting up the association.
    pub(crate) async fn set_up_ended(&self) -> Outcome {
        let mut outcome = self.outcome.subscribe();
        match outcome.wait_for(|outcome| *outcome != Outcome::Pending).await {
            Ok(outcome) => *outcome,
            Err(_) => Outcome::Failed(Errno::CONNABORTED),
        }
    }

    pub(crate) fn end_cause(&self) -> u16 {
        self.end_cause.get()
    }

    pub(crate) fn set_end_cause(&self, cause: u16) {
        self.end_cause.set(cause);
    }

    /// Returns whether the channel has all that the program gets from the association.
    pub(crate) fn is_all_told(&self) -> bool {
        *self.is_all_told.borrow()
    }

    /// Waits until the channel has all that the program gets from the association, or the program gets no more.
    pub(crate) async fn all_told(&self) {
        // The sender lives as long as the association, so this cannot fail.
        let _ = self.is_all_told.subscribe().wait_for(|told| *told).await;
    }

    pub(crate) fn set_all_told(&self) {
        self.is_all_told.send_replace(true);
    }

    pub(crate) fn send_queue(&self) -> RefMut<'_, Option<Rc<SendQueue>>> {
        self.send_queue.borrow_mut()
    }

    /// Reads the executive's association; returns `None` while it is being set up, and once it has ended.
    pub(crate) fn view<R>(&self, read: impl FnOnce(AssociationView<'_>) -> R) -> Option<R> {
        internals::view(self.association()?, read)
    }

    /// Returns the MTU of the narrowest path, as programs see it; `None` while the association is being set up, and once it has
    /// ended.
    pub(crate) fn narrowest_mtu(&self) -> Option<u32> {
        let narrowest = self.view(|view| view.paths().map(|path| path.ip_mtu_bytes()).min());
        narrowest.flatten().map(mtu_as_seen)
    }

    /// Returns the numbers of outbound and inbound streams; 0 while the association is being set up.
    pub(crate) fn streams(&self) -> (u16, u16) {
        self.association().map_or((0, 0), |association| (association.streams_out(), association.streams_in()))
    }

    /// Returns the SCTP ports of this end and of the peer.
    pub(crate) fn ports(&self) -> (u16, u16) {
        self.view(|view| view.ports()).unwrap_or_default()
    }

    /// Returns whether the association was set up with this address of the peer, in the form in which programs see it.
    pub(crate) fn is_set_up_with(&self, address: SocketAddr) -> bool {
        self.peer.port() == address.port() && is_same_host(self.peer.ip(), address)
    }

    /// Returns whether the peer has shown that it has this address (RFC 9260 §5.4). A peer may list addresses of other
    /// hosts, whose messages must not go to it.
    pub(crate) fn has_confirmed(&self, address: SocketAddr) -> bool {
        let confirmed = |view: AssociationView<'_>| {
            let mut confirmed = view.paths().filter(|path| path.state() != PathState::Unconfirmed);
            confirmed.any(|path| is_same_host(path.remote().ip(), address))
        };
        self.peer.port() == address.port() && self.view(confirmed).unwrap_or(false)
    }
}

fn is_same_host(ip: IpAddr, address: SocketAddr) -> bool {
    ip.to_canonical() == address.ip().to_canonical()
}

impl ReceiveWindow for SocketAssociation {
    fn release(&self, bytes: usize) {
        // An association that is being set up has delivered nothing.
        if let Some(association) = self.association() {
            internals::release_window(association, bytes);
        }
    }
}
