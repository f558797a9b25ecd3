//! Associations of sockets.

use std::any::Any;
use std::cell::{Cell, OnceCell, Ref, RefCell, RefMut};
use std::net::{IpAddr, SocketAddr};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use channel_protocol::assoc_id::AssocId;
use channel_protocol::record::{Flags, Header, PAYLOAD_BYTES_MAX};
use rustix::io::Errno;
use swiftwater::internals::{self, AssociationView};
use swiftwater::tokio::Association;
use swiftwater::{AssociationState, Message, PathState};
use tokio::sync::{MutexGuard, Notify, watch};

use super::association_options::AssocOptions;
use super::association_tasks::AssociationTasks;
use super::inbound_queue::InboundQueue;
use super::notification_type::NotificationType;
use super::path_parameters::mtu_as_seen;
use super::send_queue::SendQueue;
use crate::channel::window_credit::ReceiveWindow;
use crate::users::budget::Charge;
use crate::users::user::{AssociationPermit, User};

/// An association of a socket.
pub(crate) struct SocketAssociation {
    id: AssocId,
    /// The peer's address, as the program sees it.
    peer: SocketAddr,
    association: OnceCell<Association>,
    /// The options that were set for the association.
    assoc_options: RefCell<AssocOptions>,
    /// Whether the receive buffer bounds all unread data.
    bounds_unread: Cell<bool>,
    outcome: watch::Sender<Outcome>,
    /// The error cause with which the association was lost; 0 for none.
    end_cause: Cell<u16>,
    /// Whether the channel has all that the program gets from the association.
    is_inbound_done: watch::Sender<bool>,
    /// For a one-to-one socket: whether the program has sent no message that may still be refused.
    is_outbound_settled: watch::Sender<bool>,
    /// Messages that are being handed to the program; they stay here until that is done. A task holds the lock while it
    /// hands them up.
    inbound_queue: tokio::sync::Mutex<InboundQueue>,
    /// The queue of outbound messages, if the socket is a one-to-many socket.
    send_queue: RefCell<Option<Rc<SendQueue>>>,
    tasks: AssociationTasks,
    /// Whether the association knows of data of the upper layer, see [`SocketAssociation::set_has_upper_data`].
    has_upper_data: Cell<bool>,
    /// Notified when the other end has found such data in the channel of a one-to-one socket.
    upper_data_declared: Notify,
    /// Whether some of that may be in the channel of a one-to-many socket, see [`SocketAssociation::set_has_upper_records`].
    has_upper_records: Cell<bool>,
    /// The association whose stream this one's was linked with last. The stack knows whether the link has ended.
    linked_with: Cell<AssocId>,
    linked_assoc: RefCell<Weak<SocketAssociation>>,
    /// By these the other end finds the association.
    relayed_entries: RefCell<Option<Box<dyn Any>>>,
    /// Whether its outbound messages are being relayed.
    is_relayed: Cell<bool>,
    /// The permit, until the socket is closed. The association of a one-to-one socket gets it when its paths are charged.
    permit: RefCell<Option<AssociationPermit>>,
    /// The charge of an association of a one-to-many socket that has ended, in place of the permit.
    unread: RefCell<Option<Charge>>,
}

/// The outcome of setting up an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Pending,
    Up,
    Failed(Errno),
}

/// Returns the number of the peer's addresses of an association.
pub(crate) fn paths_of(association: &Association) -> usize {
    association.peer().map_or(1, |peer| peer.hosts.len())
}

impl SocketAssociation {
    pub(crate) fn new(id: AssocId, peer: SocketAddr, assoc_options: AssocOptions) -> SocketAssociation {
        SocketAssociation {
            id,
            peer,
            association: OnceCell::new(),
            assoc_options: RefCell::new(assoc_options),
            bounds_unread: Cell::new(false),
            outcome: watch::Sender::new(Outcome::Pending),
            end_cause: Cell::new(0),
            is_inbound_done: watch::Sender::new(false),
            is_outbound_settled: watch::Sender::new(false),
            inbound_queue: tokio::sync::Mutex::default(),
            send_queue: RefCell::default(),
            tasks: AssociationTasks::default(),
            has_upper_data: Cell::new(false),
            upper_data_declared: Notify::new(),
            has_upper_records: Cell::new(false),
            linked_with: Cell::default(),
            linked_assoc: RefCell::default(),
            relayed_entries: RefCell::default(),
            is_relayed: Cell::new(false),
            permit: RefCell::default(),
            unread: RefCell::default(),
        }
    }

    pub(crate) fn id(&self) -> AssocId {
        self.id
    }

    /// Returns the peer's address, as the program sees it.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Counts the association for its user as long as it exists.
    pub(crate) fn hold_permit(&self, permit: AssociationPermit) {
        *self.permit.borrow_mut() = Some(permit);
    }

    /// Counts an association that has ended as unread data of its user, and no longer as an association: the program has only to
    /// read what came before. It keeps its permit if the user has no such memory to spare.
    pub(super) fn count_as_unread(&self) {
        match self.permit.take().map(AssociationPermit::into_unread) {
            Some(Ok(charge)) => *self.unread.borrow_mut() = Some(charge),
            Some(Err(permit)) => self.hold_permit(permit),
            None => {}
        }
    }

    /// Charges the memory of the association to the user of the socket: that of further paths. The error is the memory that the
    /// user does not have left.
    pub(super) fn charge(&self, user: &Arc<User>, bytes: usize) -> Result<(), usize> {
        self.permit.borrow_mut().get_or_insert_with(|| user.permit_with_socket()).grow_to(bytes)
    }

    /// Takes the permit of an association whose socket was closed; `None` if the association has not counted for its user.
    pub(super) fn take_permit(&self) -> Option<AssociationPermit> {
        self.permit.take().filter(AssociationPermit::counts)
    }

    /// Bounds the time for which a peer that acknowledges nothing keeps the association (T5): the program has closed its socket,
    /// and what it has sent is still to be delivered.
    pub(crate) fn guard_end(&self) {
        self.guard_end_with(Box::new(()));
    }

    /// Bounds the time as [`SocketAssociation::guard_end`] does. `until_end` is dropped when the association has ended.
    pub(super) fn guard_end_with(&self, until_end: Box<dyn Any + Send>) {
        if let Some(association) = self.stack_association() {
            internals::orphan(association, until_end);
        }
    }

    /// Returns the number of the peer's addresses.
    pub(super) fn paths(&self) -> usize {
        self.stack_association().map_or(1, paths_of)
    }

    /// Returns an association that is up.
    pub(crate) fn with(
        id: AssocId,
        peer: SocketAddr,
        association: Association,
        assoc_options: AssocOptions,
    ) -> SocketAssociation {
        let assoc = SocketAssociation::new(id, peer, assoc_options);
        assoc.set_up(association);
        assoc
    }

    /// Records that the association is up.
    pub(crate) fn set_up(&self, association: Association) {
        let _ = self.association.set(association);
        self.end_setup(Outcome::Up);
    }

    /// Records that the association could not be set up.
    pub(crate) fn set_failed(&self, error: Errno) {
        self.end_setup(Outcome::Failed(error));
    }

    fn end_setup(&self, outcome: Outcome) {
        let before = self.outcome.send_replace(outcome);
        debug_assert_eq!(before, Outcome::Pending, "the outcome of a setup is final");
    }

    /// Sets whether the program has messages left that it has sent and that the association has not taken. Programs believe them
    /// sent, so they are still delivered if the peer shuts the association down.
    pub(crate) fn set_has_upper_data(&self, has_upper_data: bool) {
        if self.has_upper_data.replace(has_upper_data) != has_upper_data
            && let Some(association) = self.stack_association()
        {
            internals::set_has_upper_data(association, has_upper_data);
        }
    }

    /// Records that such messages may lie in the channel of a one-to-one socket, and wakes the task that relays them: the program
    /// may have put them there without waking the daemon.
    pub(crate) fn declare_upper_data(&self) {
        self.set_has_upper_data(true);
        self.upper_data_declared.notify_one();
    }

    /// Waits until such messages were declared.
    pub(crate) async fn upper_data_declared(&self) {
        self.upper_data_declared.notified().await;
    }

    /// Returns whether the association knows of such messages.
    pub(crate) fn has_upper_data(&self) -> bool {
        self.has_upper_data.get()
    }

    /// Sets whether records in the channel of a one-to-many socket may be such messages.
    pub(crate) fn set_has_upper_records(&self, has_upper_records: bool) {
        self.has_upper_records.set(has_upper_records);
    }

    /// Returns whether records in the channel of a one-to-many socket may be such messages.
    pub(crate) fn has_upper_records(&self) -> bool {
        self.has_upper_records.get()
    }

    /// Returns whether the peer has shut the association down while there are such messages, so that no message may follow them.
    pub(crate) fn has_last_upper_data(&self) -> bool {
        self.has_upper_data() && self.view(|view| view.state()) == Some(AssociationState::ShutdownReceived)
    }

    /// Waits until the peer has shut the association down, or the association has ended.
    pub(crate) async fn peer_shutdown(&self) {
        match self.stack_association() {
            Some(association) => internals::peer_shutdown(association).await,
            None => std::future::pending().await,
        }
    }

    /// Returns the header with the association's default parameters, if the program gave the message none. Called as soon as the
    /// message was taken, because later changes do not concern it.
    pub(crate) fn complete(&self, header: Header) -> Header {
        match header.flags.contains(Flags::BY_DEFAULT) {
            true => self.options().sending().complete(header),
            false => header,
        }
    }

    /// Returns its number in notifications: as in the kernel, 0 if it was never up.
    pub(crate) fn notified_id(&self) -> AssocId {
        if self.association.get().is_some() { self.id } else { AssocId::NONE }
    }

    /// Returns the association of the stack; `None` while it is being set up.
    pub(crate) fn stack_association(&self) -> Option<&Association> {
        self.association.get()
    }

    /// Returns whether the association was up and has ended. Messages and notifications may still be on their way to the program.
    pub(crate) fn has_ended(&self) -> bool {
        self.stack_association().is_some() && self.view(|_| ()).is_none()
    }

    /// Returns whether the association is up, and its peer has acknowledged all data that the stack has got (RFC 6458 §6.1.9).
    pub(crate) fn is_dry(&self) -> bool {
        self.view(|view| view.is_send_buffer_empty()) == Some(true)
    }

    pub(crate) fn options(&self) -> Ref<'_, AssocOptions> {
        self.assoc_options.borrow()
    }

    pub(crate) fn options_mut(&self) -> RefMut<'_, AssocOptions> {
        self.assoc_options.borrow_mut()
    }

    /// Returns whether unread data occupies the peer's window, wherever it is stored.
    pub(crate) fn bounds_unread(&self) -> bool {
        self.bounds_unread.get()
    }

    /// Sets whether unread data occupies the peer's window. Called before the first message is handed up.
    pub(crate) fn set_bounds_unread(&self, bounds: bool) {
        self.bounds_unread.set(bounds);
        if let Some(association) = self.stack_association() {
            internals::hold_window_from(association, self.credit_held_from_bytes());
        }
    }

    /// Returns whether a message occupies the window until the program has read it.
    pub(crate) fn holds_credit(&self, message: &Message) -> bool {
        message.len() >= self.credit_held_from_bytes()
    }

    /// Returns the minimum size of such messages. The pair bounds the number of its records, but not the size of
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
        self.stack_association().map_or(0, |association| association.streams_out())
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
    pub(crate) fn is_inbound_done(&self) -> bool {
        *self.is_inbound_done.borrow()
    }

    /// Waits until the channel has all that the program gets from the association, or the program gets no more.
    pub(crate) async fn inbound_done(&self) {
        // The sender lives as long as the association, so this cannot fail.
        let _ = self.is_inbound_done.subscribe().wait_for(|done| *done).await;
    }

    /// Records that a task relays what the program gets from the association.
    pub(crate) fn on_inbound_begun(&self) {
        self.is_inbound_done.send_replace(false);
    }

    pub(crate) fn on_inbound_done(&self) {
        self.is_inbound_done.send_replace(true);
    }

    /// Waits until each message that the program had sent when the inbound direction was done is delivered, or its return is in
    /// the channel; or until the program has left.
    pub(crate) async fn outbound_settled(&self) {
        let _ = self.is_outbound_settled.subscribe().wait_for(|settled| *settled).await;
    }

    pub(crate) fn on_outbound_settled(&self) {
        self.is_outbound_settled.send_if_modified(|settled| !std::mem::replace(settled, true));
    }

    /// Returns the queue of outbound messages; `None` on a one-to-one socket, and once the socket has removed the association.
    pub(crate) fn send_queue(&self) -> Option<Rc<SendQueue>> {
        self.send_queue.borrow().clone()
    }

    pub(super) fn set_send_queue(&self, queue: SendQueue) {
        *self.send_queue.borrow_mut() = Some(Rc::new(queue));
    }

    /// Removes the queue of outbound messages, which closes for the program.
    pub(crate) fn take_send_queue(&self) -> Option<Rc<SendQueue>> {
        self.send_queue.borrow_mut().take()
    }

    /// Returns the tasks of the association, if the socket is a one-to-many socket.
    pub(crate) fn tasks(&self) -> &AssociationTasks {
        &self.tasks
    }

    /// Waits for the messages on their way to the program, for the task that hands them up.
    pub(crate) async fn inbound_queue(&self) -> MutexGuard<'_, InboundQueue> {
        self.inbound_queue.lock().await
    }

    /// Returns the association whose stream this one's was linked with last.
    pub(crate) fn linked_with(&self) -> AssocId {
        self.linked_with.get()
    }

    /// Returns that association as long as it is one of a socket.
    pub(crate) fn linked_assoc(&self) -> Option<Rc<SocketAssociation>> {
        self.linked_assoc.borrow().upgrade()
    }

    /// Records that the stream of this association was linked with that of another one.
    pub(crate) fn on_linked(&self, with: &Rc<SocketAssociation>) {
        self.linked_with.set(with.id());
        *self.linked_assoc.borrow_mut() = Rc::downgrade(with);
    }

    /// Keeps the entries by which the other end finds the association in its socket, in place of those of the socket that it has
    /// left.
    pub(super) fn keep_entries(&self, entries: Box<dyn Any>) {
        self.relayed_entries.replace(Some(entries));
    }

    /// Records whether its outbound messages are being relayed.
    pub(crate) fn set_relayed(&self, is_relayed: bool) {
        self.is_relayed.set(is_relayed);
    }

    /// Returns whether its outbound messages are being relayed.
    pub(crate) fn is_relayed(&self) -> bool {
        self.is_relayed.get()
    }

    /// Reads the executive's association; returns `None` while it is being set up, and once it has ended.
    pub(crate) fn view<R>(&self, read: impl FnOnce(AssociationView<'_>) -> R) -> Option<R> {
        internals::view(self.stack_association()?, read)
    }

    /// Returns the fragmentation point; `None` while the association is being set up, and once it has ended.
    pub(crate) fn fragmentation_point_bytes(&self) -> Option<usize> {
        self.view(|view| view.fragmentation_point_bytes())
    }

    /// Returns the MTU of the narrowest path, as programs see it; `None` while the association is being set up, and once it has
    /// ended.
    pub(crate) fn narrowest_mtu(&self) -> Option<u32> {
        let narrowest = self.view(|view| view.paths().map(|path| path.ip_mtu_bytes()).min());
        narrowest.flatten().map(mtu_as_seen)
    }

    /// Returns the numbers of outbound and inbound streams; 0 while the association is being set up.
    pub(crate) fn streams(&self) -> (u16, u16) {
        self.stack_association()
            .map_or((0, 0), |association| (association.streams_out(), association.streams_in()))
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

    /// Returns the addresses that the peer has shown to have, in one form.
    pub(super) fn confirmed_hosts(&self) -> Vec<IpAddr> {
        let confirmed = |view: AssociationView<'_>| {
            let confirmed = view.paths().filter(|path| path.state() != PathState::Unconfirmed);
            confirmed.map(|path| path.remote().ip().to_canonical()).collect()
        };
        self.view(confirmed).unwrap_or_default()
    }

    /// Returns whether the association was set up with this address, or its peer has listed it, confirmed or not. Another peer
    /// may have the address: it must not choose the association.
    pub(crate) fn has_listed(&self, address: SocketAddr) -> bool {
        let listed = |view: AssociationView<'_>| view.path_to(address.ip()).is_some();
        let is_path = || self.peer.port() == address.port() && self.view(listed).unwrap_or(false);
        self.is_set_up_with(address) || is_path()
    }
}

fn is_same_host(ip: IpAddr, address: SocketAddr) -> bool {
    ip.to_canonical() == address.ip().to_canonical()
}

impl ReceiveWindow for SocketAssociation {
    fn release(&self, bytes: usize) {
        // An association that is being set up has delivered nothing.
        if let Some(association) = self.stack_association() {
            internals::release_window(association, bytes);
        }
    }
}
