//! Sockets: the state that all requests on one share.

use std::cell::{Cell, OnceCell, Ref, RefCell, RefMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::{Arc, Weak};

use channel_protocol::assoc_id::AssocId;
use channel_protocol::record::{Header, Kind};
use channel_protocol::status_page::{PeerShut, State, Subscriptions};
use links::interface_addresses;
use rustix::io::Errno;
use swiftwater::tokio::Listener;
use tokio::sync::{Notify, watch};

use super::association::SocketAssociation;
use super::association_index::AssociationIndex;
use super::association_options::AssocOptions;
use super::associations::{Associations, TakenAssociations};
use super::closed_socket::ClosedSocket;
use super::commands::Commands;
use super::due_dry::DueDry;
use super::inbound_queue::Ended;
use super::lifecycle::Lifecycle;
use super::peeled_off::{PeeledOff, PeeledOffEntries};
use super::port_holders::{Scope, Sharing};
use super::relayed::Relayed;
use super::send_queue::SendQueue;
use super::socket_addresses::{Addresses, Bound};
use super::socket_options::SocketOptions;
use super::stream_rules::Autopusher;
use super::unread_ends::UnreadEnd;
use crate::channel::Channel;
use crate::channel::shared_pages::SharedPages;
use crate::channel::style::Style;
use crate::system::addresses::{Family, View, as_seen, check_family, unspecified};
use crate::system::errno;
use crate::system::socket_cookie::Cookie;
use crate::users::owner::{Owner, Share};
use crate::users::round_share::Turn;
use crate::users::user::{AssociationPermit, User};

/// The parts of a new socket.
pub(super) struct NewSocket {
    pub(super) number: u64,
    pub(super) cookie: Cookie,
    pub(super) family: Family,
    pub(super) style: Style,
    pub(super) share: Arc<Share>,
    pub(super) user: Arc<User>,
    pub(super) channel: Channel,
    pub(super) state: State,
    pub(super) options: SocketOptions,
    pub(super) commands: Commands,
    pub(super) autopush: Rc<Autopusher>,
    pub(super) relayed: Rc<Relayed<Socket>>,
    pub(super) association_index: Rc<AssociationIndex>,
}

/// One socket.
///
/// Each part of its state changes by the events of the socket (`on_bound`, `on_connecting` and others), which also show the
/// change to the program in the status page.
pub(crate) struct Socket {
    number: u64,
    cookie: Cookie,
    family: Family,
    style: Style,
    share: Arc<Share>,
    user: Arc<User>,
    channel: Rc<Channel>,
    lifecycle: Lifecycle,
    addresses: Addresses,
    options: RefCell<SocketOptions>,
    associations: Associations,
    /// For a one-to-many socket: whether its send queues take one message at a time.
    queues_take_one: Cell<bool>,
    /// The listener, while the socket listens.
    listener: RefCell<Weak<Listener>>,
    /// The smallest fragmentation point of the associations, while fragmentation is disabled. Too small after the association has
    /// ended, until the option is set again.
    message_limit: Cell<Option<usize>>,
    /// Set when the socket is forgotten: its program has closed it, and its port is free.
    gone: watch::Sender<bool>,
    /// Notified when peers can set up no more associations.
    unlistened: Notify,
    /// Notified when a bind waits for this closed socket to end its listening.
    port_wanted: Notify,
    commands: Commands,
    autopush: Rc<Autopusher>,
    /// Name of the program that has opened the socket or its listener, if a rule names programs.
    program: OnceCell<Rc<str>>,
    relayed: Rc<Relayed<Socket>>,
    due_dry: DueDry,
    /// The associations that were peeled off this one-to-many socket.
    peeled_off: Rc<PeeledOff>,
    /// The entries of the association of a peeled-off socket among those of the socket from which it comes.
    peeled_off_entries: RefCell<Option<PeeledOffEntries>>,
    /// Its description, once its program has closed it while it had associations.
    closed: OnceCell<Arc<ClosedSocket>>,
    /// Its place among the sockets that have left associations.
    left_at: OnceCell<u64>,
    is_left: Cell<bool>,
}

/// The parts of a socket.
impl Socket {
    /// Returns a socket that is not registered yet.
    pub(super) fn new(new: NewSocket) -> Socket {
        let NewSocket {
            number,
            cookie,
            family,
            style,
            share,
            user,
            channel,
            state,
            options,
            commands,
            autopush,
            relayed,
            association_index,
        } = new;
        Socket {
            number,
            cookie,
            family,
            style,
            share,
            user,
            lifecycle: Lifecycle::new(state, Rc::clone(channel.shared_pages())),
            channel: Rc::new(channel),
            addresses: Addresses::default(),
            options: RefCell::new(options),
            associations: Associations::new(number, association_index),
            queues_take_one: Cell::new(false),
            listener: RefCell::default(),
            message_limit: Cell::new(None),
            gone: watch::Sender::new(false),
            unlistened: Notify::new(),
            port_wanted: Notify::new(),
            commands,
            autopush,
            program: OnceCell::new(),
            relayed,
            due_dry: DueDry::default(),
            peeled_off: Rc::default(),
            peeled_off_entries: RefCell::default(),
            closed: OnceCell::new(),
            left_at: OnceCell::new(),
            is_left: Cell::new(false),
        }
    }

    /// Returns the number of the socket, which increases in the order in which sockets are opened.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the cookie of the program's end of the pair.
    pub(super) fn cookie(&self) -> Cookie {
        self.cookie
    }

    pub(crate) fn family(&self) -> Family {
        self.family
    }

    pub(crate) fn style(&self) -> Style {
        self.style
    }

    pub(crate) fn owner(&self) -> Owner {
        self.share.owner()
    }

    /// Returns the count of the socket among those of its user.
    pub(super) fn share(&self) -> &Arc<Share> {
        &self.share
    }

    /// Returns the user whose program has opened the socket.
    pub(super) fn user(&self) -> &Arc<User> {
        &self.user
    }

    /// Returns the channel that the socket shares with its program.
    pub(crate) fn channel(&self) -> &Rc<Channel> {
        &self.channel
    }

    fn pages(&self) -> &Rc<SharedPages> {
        self.channel.shared_pages()
    }

    pub(crate) fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    pub(crate) fn associations(&self) -> &Associations {
        &self.associations
    }

    pub(crate) fn options(&self) -> Ref<'_, SocketOptions> {
        self.options.borrow()
    }

    pub(crate) fn options_mut(&self) -> RefMut<'_, SocketOptions> {
        self.options.borrow_mut()
    }

    /// Returns the options of future associations.
    pub(crate) fn future_options(&self) -> AssocOptions {
        self.options().future().clone()
    }

    /// Returns the sender of commands to the socket's task.
    pub(crate) fn commands(&self) -> &Commands {
        &self.commands
    }

    /// Returns the rules for modules on the streams of the socket's associations.
    pub(crate) fn autopush(&self) -> &Autopusher {
        &self.autopush
    }

    /// Returns the name of the program that has opened the socket or its listener, as far as it is known.
    pub(crate) fn program(&self) -> Option<&Rc<str>> {
        self.program.get()
    }

    /// Records which program has opened the socket, or the one that it comes from.
    pub(crate) fn on_opened_by(&self, program: Option<Rc<str>>) {
        // A socket has one origin.
        let _ = program.map(|program| self.program.set(program));
    }

    /// Registers the ends of an association, so that the other end finds this socket.
    pub(crate) fn let_be_found(self: &Rc<Self>, assoc: &SocketAssociation) {
        assoc.keep_entries(Box::new(self.relayed().enter(self, assoc)));
    }

    /// Returns the associations of all sockets, by their ends.
    pub(crate) fn relayed(&self) -> &Rc<Relayed<Socket>> {
        &self.relayed
    }

    /// Returns the associations whose sender dry notification is due.
    pub(crate) fn due_dry(&self) -> &DueDry {
        &self.due_dry
    }

    /// Returns the associations that were peeled off this one-to-many socket.
    pub(crate) fn peeled_off(&self) -> &PeeledOff {
        &self.peeled_off
    }

    /// Returns the turns of one task that moves records of this socket.
    pub(crate) fn turn(&self) -> Turn {
        Turn::new(self.user.round_share())
    }
}

/// Queries.
impl Socket {
    pub(crate) fn state(&self) -> State {
        self.lifecycle.state()
    }

    /// Returns whether the socket listens for associations.
    pub(crate) fn listens(&self) -> bool {
        matches!(self.state(), State::Listening | State::OneToManyListening)
    }

    /// Returns the listener, while the socket listens.
    pub(crate) fn listener(&self) -> Option<Arc<Listener>> {
        self.listener.borrow().upgrade()
    }

    /// Returns the address for `getsockname`, in the form of the socket's family.
    pub(crate) fn local_address(&self) -> SocketAddr {
        as_seen(self.family, self.addresses.local().unwrap_or_else(|| unspecified(self.family)))
    }

    /// Checks that an address that a program names is of a family that the socket accepts.
    pub(crate) fn check_family(&self, address: SocketAddr) -> Result<(), Errno> {
        check_family(self.family, self.options().v6_only(), address)
    }

    /// Returns whether the socket has an SCTP port: it is bound, or it has an association of another socket.
    pub(crate) fn has_port(&self) -> bool {
        self.addresses.bound_or_inherited().is_some() || !self.associations.is_empty()
    }

    /// Returns the form in which the program sees addresses.
    pub(crate) fn view(&self) -> View {
        self.options().view(self.family)
    }

    /// Returns the association that an option names, unless it has ended. If the socket can have only one, the number is ignored.
    pub(crate) fn named_association(&self, id: AssocId) -> Option<Rc<SocketAssociation>> {
        match self.state() {
            State::Connecting | State::Connected => self.associations.first(),
            State::Ended | State::Lost => None,
            _ => self.associations.get(id),
        }
    }

    /// Returns the scope of bound addresses.
    pub(crate) fn scope(&self, ips: &[IpAddr]) -> Scope {
        Scope::new(ips.to_vec(), self.options().v6_only())
    }

    /// Returns the sockets with which the socket shares its port.
    pub(super) fn sharing(&self) -> Sharing {
        let options = self.options();
        let port_of_user = options.reuses_port().then_some(self.owner().user);
        Sharing { address: options.reuses_address(), port_of_user }
    }

    /// Returns the addresses that associations of the socket are restricted to; none for all. If the socket is bound to
    /// all addresses of one family, returns the current addresses of the host in that family, as the kernel does.
    pub(crate) fn local_scope(&self) -> Vec<IpAddr> {
        let Some(bound) = self.addresses.bound() else { return Vec::new() };
        let mut ips = bound.ips().to_vec();
        let all_ipv6 = ips.iter().any(|ip| ip.is_ipv6() && ip.is_unspecified());
        if all_ipv6 && !self.options().v6_only() {
            ips.push(Ipv4Addr::UNSPECIFIED.into());
        }
        let of_all = |ip: &IpAddr| {
            ips.iter().any(|all| all.is_unspecified() && all.is_ipv4() == ip.to_canonical().is_ipv4())
        };
        // Without this list, the associations use the address of the handshake.
        let known = interface_addresses().unwrap_or_default();
        let named: Vec<IpAddr> = known.into_iter().filter(of_all).collect();
        ips.extend(named);
        ips
    }

    /// Returns whether the association of the socket was aborted or lost.
    pub(crate) fn was_lost(&self) -> bool {
        self.lifecycle.was_lost()
    }

    /// Waits until the socket's association has ended.
    pub(crate) async fn association_ended(&self) {
        self.lifecycle.association_ended().await;
    }

    /// Waits until the socket is forgotten, and its port is free.
    pub(crate) async fn gone(&self) {
        // The sender lives as long as the socket, so this cannot fail.
        let _ = self.gone.subscribe().wait_for(|gone| *gone).await;
    }

    /// Waits until this closed socket, which listens, no longer does, or is forgotten. Its task does not wait for its turn then.
    pub(crate) async fn port_released(&self) {
        let unlistened = self.unlistened.notified();
        self.port_wanted.notify_one();
        tokio::select! {
            () = unlistened => {}
            () = self.gone() => {}
        }
    }

    /// Waits until a bind waits for this socket to end its listening.
    pub(crate) async fn port_wanted(&self) {
        self.port_wanted.notified().await;
    }
}

/// Events in the life of the socket.
impl Socket {
    /// Records the addresses and the port that the table of ports has registered.
    pub(super) fn on_bound(&self, bound: Bound) {
        self.addresses.on_bound(bound);
        self.update_listener();
    }

    /// Records that the table of ports has released the port.
    pub(super) fn on_port_released(&self) {
        self.addresses.on_released();
    }

    /// Records that peers can set up associations with the socket.
    pub(super) fn on_listening(&self, listener: &Arc<Listener>) {
        *self.listener.borrow_mut() = Arc::downgrade(listener);
        self.lifecycle.change(match self.style {
            Style::OneToMany => State::OneToManyListening,
            Style::OneToOne | Style::TcpStream | Style::PeeledOff => State::Listening,
        });
    }

    /// Records that peers can set up no more associations.
    pub(super) fn on_unlistened(&self) {
        self.lifecycle.change(self.style.initial_state());
        self.unlistened.notify_waiters();
    }

    /// Records that the association of a one-to-one socket is being set up.
    pub(crate) fn on_connecting(&self, assoc: &Rc<SocketAssociation>, local: Option<SocketAddr>) {
        self.pages().clear_error();
        self.addresses.on_connecting(local, assoc.peer());
        self.lifecycle.change(State::Connecting);
        self.associations.insert(assoc);
        self.show_defaults(assoc);
    }

    /// Records that the association of a one-to-one socket is up.
    pub(crate) fn on_connected(&self, streams_out: u16) {
        if let Some(peer) = self.addresses.peer() {
            self.pages().set_peer(&peer, streams_out);
        }
        self.lifecycle.change(State::Connected);
    }

    /// Records that the association of a one-to-one socket could not be set up; the socket may try again. `ends_content`: the
    /// descriptor shows the failure, too.
    pub(crate) fn on_connect_failed(&self, error: Errno, ends_content: bool) {
        // The error is in the page before the channel becomes writable.
        self.pages().set_error(error);
        self.addresses.on_connect_failed();
        drop(self.associations.take_all());
        self.lifecycle.change(State::Idle);
        if ends_content {
            // The end comes before the channel becomes writable: a descriptor that is only writable looks connected.
            self.channel.end_content();
        }
    }

    /// Records that this new socket has an association from another socket, an accepted or a peeled-off one. `inherited` are the
    /// number of that socket and the addresses that it is bound to.
    pub(crate) fn on_adopted(
        self: &Rc<Self>,
        assoc: &Rc<SocketAssociation>,
        inherited: Option<(u64, Bound)>,
        local: Option<SocketAddr>,
    ) {
        self.associations.insert(assoc);
        self.let_be_found(assoc);
        self.addresses.on_adopted(inherited, local, assoc.peer());
        self.pages().set_peer(&assoc.peer(), assoc.streams_out());
        self.pages().set_subscriptions(self.options().subscriptions());
    }

    /// Records that an association takes no more messages of the program: the peer has shut it down (RFC 9260 §9.2), or the
    /// program, by `SCTP_EOF`.
    pub(crate) fn on_sending_shut(&self, assoc: &SocketAssociation) {
        match assoc.send_queue() {
            Some(send_queue) => send_queue.refuse(),
            // The page shows this already, or more; or a one-to-many socket has removed the association.
            None if self.style == Style::OneToMany || self.lifecycle.peer_shut() != PeerShut::No => {}
            None => self.lifecycle.on_peer_shut(PeerShut::Writing),
        }
    }

    /// Records that the only association has ended, and takes no more messages of the program. The program is told once it has
    /// read what came before.
    pub(crate) fn on_sending_ended(&self) {
        if self.lifecycle.peer_shut() == PeerShut::No {
            self.lifecycle.on_peer_shut(PeerShut::Ended);
        }
    }

    /// Records that the peer has shut the only association down, and that all of its data is in the channel. Ends the content:
    /// the association may last until the peer has received everything. `silently`: the descriptor does not poll readable for the
    /// end, because more may follow.
    pub(crate) fn on_data_ended(&self, silently: bool) {
        self.lifecycle.on_peer_shut(PeerShut::Both);
        match silently {
            true => self.channel.end_content_silently(),
            false => self.channel.end_content(),
        }
    }

    /// Records how the association of the socket has ended. The program reads the data that has arrived, then the end.
    pub(crate) fn on_association_ended(&self, how: Ended) {
        let state = match how {
            Ended::ByPeer if self.style.is_one_to_one() => State::Ended,
            Ended::ByUs if self.style == Style::TcpStream => State::Ended,
            // Sockets of other styles do not read an end.
            Ended::ByPeer | Ended::ByUs => State::Lost,
            Ended::Lost(loss) => {
                self.lifecycle.on_lost(errno::of_loss(loss));
                State::Lost
            }
        };
        self.pages().set_local(&self.local_address());
        self.lifecycle.change(state);
    }

    /// Returns the description that the socket has kept since its program closed it, or keeps this one.
    pub(super) fn closed_as(&self, describe: impl FnOnce() -> ClosedSocket) -> &Arc<ClosedSocket> {
        self.closed.get_or_init(|| Arc::new(describe()))
    }

    /// Returns the place among the sockets that have left associations, or takes the next one: the socket leaves its first.
    pub(super) fn left_at(&self, next: impl FnOnce() -> u64) -> u64 {
        *self.left_at.get_or_init(next)
    }

    /// Returns whether the socket was closed, and its associations were taken to be left to the stack.
    pub(crate) fn is_left(&self) -> bool {
        self.is_left.get()
    }

    /// Removes all associations, because the program has closed the socket.
    pub(crate) fn on_closed(&self) -> TakenAssociations {
        let associations = self.associations.take_all();
        self.is_left.set(self.is_left.get() || !associations.is_empty());
        associations
    }

    /// Records that the association of this new socket comes from a one-to-many socket.
    pub(crate) fn on_peeled_off(&self, from: &Socket, assoc: &Rc<SocketAssociation>) {
        *self.peeled_off_entries.borrow_mut() = Some(from.peeled_off.enter(assoc));
    }

    /// Records that the socket is forgotten.
    pub(super) fn on_forgotten(&self) {
        drop(self.peeled_off_entries.take());
        self.gone.send_replace(true);
    }
}

/// Associations of a one-to-many socket.
impl Socket {
    /// Adds an association, which counts for its user by the permit, and creates its send queue.
    pub(crate) fn enter(
        &self,
        assoc: SocketAssociation,
        streams_out: u16,
        permit: AssociationPermit,
    ) -> Rc<SocketAssociation> {
        assoc.hold_permit(permit);
        let entry = self.pages().enter(assoc.id(), streams_out, &assoc.peer());
        let queue = SendQueue::new(self.pages(), entry);
        self.adapt_send_queues();
        queue.set_takes_one(self.queues_take_one.get());
        assoc.set_send_queue(queue);
        let assoc = Rc::new(assoc);
        self.associations.insert(&assoc);
        self.pages().set_associations(self.associations.on_heard());
        self.show_defaults(&assoc);
        assoc
    }

    /// Adapts the room in the send queues to the memory of the user: while only the reserve is left, each queue takes one message
    /// at a time, because the send buffer of its association takes from the reserve already.
    pub(crate) fn adapt_send_queues(&self) {
        let before = self.queues_take_one.get();
        let take_one = self.user.sent().has_only_reserve(before);
        if take_one != before {
            self.queues_take_one.set(take_one);
            self.associations.set_take_one(take_one);
        }
    }

    /// Records that an association has ended: the program sees that it takes no more messages. Those that it has sent before
    /// still reach the send queue, until the association is removed.
    pub(crate) fn on_one_of_many_ended(&self, assoc: &SocketAssociation) {
        self.associations.on_ended(assoc);
        if let Some(queue) = assoc.send_queue() {
            queue.leave();
        }
    }

    /// Records that the stack has forgotten an association, while the program has not read all of it. The socket counts the end
    /// as unread until the caller drops the returned value.
    pub(crate) fn on_end_unread(&self, assoc: &SocketAssociation) -> UnreadEnd {
        assoc.count_as_unread();
        self.associations.unread_ends().begin()
    }

    /// Removes an association; returns its closed send queue.
    pub(crate) fn remove(&self, assoc: &SocketAssociation) -> Option<Rc<SendQueue>> {
        self.associations.remove(assoc);
        self.due_dry.remove(assoc.id());
        let queue = assoc.take_send_queue()?;
        queue.leave();
        queue.close();
        Some(queue)
    }

    /// Records that nothing more will be received from one of the associations.
    pub(crate) fn on_silent(&self) {
        self.pages().set_associations(self.associations.on_silent());
    }
}

/// Effects of the options.
impl Socket {
    /// Shows the default attributes of messages in the page: the shim completes a message when it is sent, so that later
    /// changes do not concern it. Where a socket has many associations, only the stream is shown, which the shim checks.
    pub(crate) fn show_defaults(&self, assoc: &SocketAssociation) {
        let sending = assoc.options().sending();
        match assoc.send_queue() {
            Some(send_queue) => send_queue.show_default_stream(sending.stream),
            None => self.pages().set_defaults(&sending.complete(Header::new(Kind::Data))),
        }
    }

    /// Applies the current options and addresses of the socket to associations that peers set up from now on.
    pub(crate) fn update_listener(&self) {
        if let Some(listener) = self.listener() {
            // A listener that a fault has closed accepts nothing more.
            let _ = listener.set_options(&self.options().for_stack());
            // The call cannot fail: this socket holds these addresses, so no other listener has them.
            let _ = listener.set_local_addresses(&self.local_scope());
        }
    }

    /// Lowers the limit of messages to that of an association that has come up, if fragmentation is disabled.
    pub(crate) fn lower_message_limit(&self, assoc: &SocketAssociation) {
        if self.options().keeps_messages_whole() {
            let limits = self.message_limit.get().into_iter().chain(assoc.fragmentation_point_bytes());
            self.set_message_limit(limits.min());
        }
    }

    /// Shows the sharers the smallest limit of messages of the associations. Without any, that of future ones counts if
    /// fragmentation is disabled.
    pub(crate) fn set_message_limit(&self, least: Option<usize>) {
        self.message_limit.set(least);
        let limit = least.or_else(|| self.options().future_message_limit());
        let limit = limit.and_then(|bytes| u32::try_from(bytes).ok());
        self.pages().set_fragmentation_limit(limit.unwrap_or(0));
    }

    /// Sets what programs receive with each message, and shows the sharers all of that.
    pub(crate) fn subscribe(&self, what: Subscriptions, on: bool) {
        let mut options = self.options.borrow_mut();
        options.subscribe(what, on);
        self.pages().set_subscriptions(options.subscriptions());
    }

    /// Shows the sharers how long the last close waits. In the kernel only sockets of type `SOCK_STREAM` do.
    pub(crate) fn show_linger(&self) {
        if self.style.is_one_to_one() {
            self.pages().set_linger(self.options().linger().close_waits_s());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use channel_protocol::status_page::StatusPage;
    use swiftwater::LossKind;

    use super::*;
    use crate::testing::{opened, registry, soon};

    const PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 7);

    fn field(socket: &Socket, at: u64) -> u32 {
        socket.pages().field(at)
    }

    /// Returns the state of the socket, which is the one that the program sees.
    fn state(socket: &Socket) -> State {
        assert_eq!(State::from_u32(field(socket, StatusPage::STATE_AT)), Some(socket.state()));
        socket.state()
    }

    fn connecting(socket: &Socket, id: AssocId) {
        let assoc = Rc::new(SocketAssociation::new(id, PEER, socket.future_options()));
        socket.on_connecting(&assoc, None);
        assert_eq!((state(socket), socket.addresses().peer()), (State::Connecting, Some(PEER)));
        // The number of the only association is ignored.
        assert_eq!(socket.named_association(AssocId::NONE).map(|assoc| assoc.id()), Some(id));
    }

    #[tokio::test(flavor = "local")]
    async fn the_program_sees_each_state_of_a_one_to_one_socket() {
        let registry = registry();
        let (socket, _program_end) = opened(&registry, Style::OneToOne);
        connecting(&socket, AssocId::new(3));
        socket.on_connect_failed(Errno::CONNREFUSED, false);
        assert_eq!((state(&socket), socket.addresses().peer()), (State::Idle, None));
        assert!(socket.associations().is_empty());
        assert_eq!(field(&socket, StatusPage::ERROR_AT), Errno::CONNREFUSED.raw_os_error().cast_unsigned());
        connecting(&socket, AssocId::new(4));
        assert_eq!(field(&socket, StatusPage::ERROR_AT), 0, "the next attempt clears the error");
        socket.on_connected(10);
        assert_eq!((state(&socket), field(&socket, StatusPage::STREAMS_OUT_AT)), (State::Connected, 10));
        let mut end = pin!(socket.association_ended());
        assert!(end.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        socket.on_association_ended(Ended::ByPeer);
        assert_eq!(state(&socket), State::Ended);
        assert!(socket.named_association(AssocId::new(4)).is_none());
        soon(end).await;
    }

    #[tokio::test(flavor = "local")]
    #[should_panic = "Connected does not follow Idle"]
    async fn an_association_that_was_not_begun_cannot_come_up() {
        let registry = registry();
        let (socket, _program_end) = opened(&registry, Style::OneToOne);
        socket.on_connected(1);
    }

    #[tokio::test(flavor = "local")]
    async fn the_end_of_an_association_depends_on_the_style_of_the_socket() {
        let registry = registry();
        for (style, how, ended) in [
            (Style::OneToOne, Ended::ByPeer, State::Ended),
            (Style::OneToOne, Ended::ByUs, State::Lost),
            (Style::TcpStream, Ended::ByUs, State::Ended),
            (Style::TcpStream, Ended::Lost(LossKind::Aborted), State::Lost),
            (Style::PeeledOff, Ended::ByPeer, State::Lost),
        ] {
            let (socket, _program_end) = opened(&registry, style);
            connecting(&socket, AssocId::new(3));
            socket.on_connected(1);
            socket.on_association_ended(how);
            assert_eq!(state(&socket), ended, "{style:?} {how:?}");
            let has_error = field(&socket, StatusPage::ERROR_AT) != 0;
            assert_eq!(has_error, matches!(how, Ended::Lost(_)), "{style:?} {how:?}");
            assert_eq!(socket.was_lost(), has_error, "{style:?} {how:?}");
        }
    }

    #[tokio::test(flavor = "local")]
    async fn a_socket_and_the_table_of_ports_agree_about_its_port() {
        let registry = registry();
        let at = |host: u8, port| SocketAddr::from(([127, 0, 0, host], port));
        let [(socket, _first_end), (other, _other_end)] =
            [(); 2].map(|()| opened(&registry, Style::OneToOne));
        registry.bind(&socket, at(1, 0)).expect("a free port");
        let port = socket.addresses().bound().expect("it is bound").port();
        assert_eq!(registry.bind(&other, at(1, port)), Err(Errno::ADDRINUSE));
        let bound = Bound::new(vec![at(1, 0).ip(), at(2, 0).ip()], port);
        registry.rebind(&socket, bound.clone(), &[at(2, 0).ip()]).expect("both are free");
        assert_eq!(
            (socket.addresses().bound(), registry.bind(&other, at(2, port))),
            (Some(bound), Err(Errno::ADDRINUSE))
        );
        assert!(!other.addresses().is_bound());
        let listener = Arc::new(registry.stack().listen(port).expect("a free port"));
        registry.on_listening(&socket, &listener);
        assert_eq!((state(&socket), socket.listener().is_some()), (State::Listening, true));
        registry.on_unlistened(&socket);
        assert_eq!(state(&socket), State::Idle);
        registry.forget(&socket);
        assert!(!socket.addresses().is_bound());
        assert_eq!((registry.holders(port), registry.bind(&other, at(1, port))), (0, Ok(())));
    }

    #[tokio::test(flavor = "local")]
    async fn the_program_sees_from_how_many_associations_it_may_hear() {
        let registry = registry();
        let (socket, _program_end) = opened(&registry, Style::OneToMany);
        let enter = |id| {
            let assoc = SocketAssociation::new(AssocId::new(id), PEER, socket.future_options());
            socket.enter(assoc, 5, registry.admit_association(&socket, 1).expect("room"))
        };
        let (first, _second) = (enter(3), enter(4));
        let heard = || field(&socket, StatusPage::ASSOCIATIONS_AT);
        assert_eq!((heard(), field(&socket, StatusPage::entry_streams_out_at(0))), (2, 5));
        socket.due_dry().add(Rc::clone(&first));
        let queue = socket.remove(&first).expect("it has a queue");
        assert!(socket.due_dry().first().is_none());
        assert!(queue.is_closed() && socket.remove(&first).is_none());
        // Messages of a removed association may still come.
        assert_eq!((heard(), socket.associations().count()), (2, 1));
        socket.on_silent();
        assert_eq!(heard(), 1);
    }
}
