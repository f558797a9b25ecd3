//! Messages between the channel of a socket and its associations.
//!
//! Down: the channel is read only while the association has room, so that the kernel tells the program when it may send.
//! Up: the association is read only while the channel has room, so that the peer's window closes when the program is slow.
//!
//! Nothing here waits. A step of a direction moves what is there, as much as one turn allows, and returns what the direction waits
//! for; the tasks wait.

mod batching;
pub(crate) mod drain;
pub(crate) mod inbound;
pub(crate) mod notifications;
pub(crate) mod outbound;

use bytes::Bytes;
use swiftwater::tokio::Association;

use crate::channel::blocked::Blocked;

/// What a direction waits for before its next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Nothing but its turn: there is more.
    Turn,
    /// Something to move: a message of the program, or of the association.
    Message,
    /// Memory of the user for the next message of the program.
    Memory,
    /// Room in the send buffer of the association.
    Association,
    /// Something that the channel needs to take a message.
    Channel(Blocked),
}

/// How a program has left its side of a socket.
#[derive(Debug)]
pub(crate) enum Departure {
    /// It sends no more.
    HalfClosed,
    /// No process has the descriptor any more.
    Closed,
    /// No process has the descriptor any more, and a message was unread.
    Unread,
    /// What is on its way is to be lost, for this reason: the program asks for that, or has broken its channel.
    Abort(Bytes),
}

/// What the peer is told when a program closes its socket with something unread, or with `SO_LINGER` 0: as the kernel, nothing.
pub(crate) const NO_REASON: &str = "";

/// What the peer is told when a program has broken its channel.
const BROKEN: &[u8] = b"the program has broken its socket";

pub(crate) fn abort(association: &Association, reason: &str) {
    association.clone().abort(reason);
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::rc::Rc;
    use std::time::Duration;

    use carrier::page::State;
    use carrier::record::{Flags, Header, Kind};
    use rustix::net::{RecvFlags, SendFlags, Shutdown};
    use swiftwater::tokio::{Association, Listener};
    use swiftwater::{Address, AssociationOptions, Stack, StackOptions};

    use super::*;
    use crate::channel::style::Style;
    use crate::relay::inbound::Inbound;
    use crate::relay::outbound::Outbound;
    use crate::state::association::{Ended, Held, SocketAssociation};
    use crate::state::notification_type::NotificationType;
    use crate::state::registry::Registry;
    use crate::state::send_queue::Messages;
    use crate::state::socket::Socket;
    use crate::state::socket_options::SocketOptions;
    use crate::system::quantum::RECORDS_PER_TURN;
    use crate::users::descriptor_numbers::Numbers;
    use crate::users::limits::Limits;
    use crate::users::owner::Owner;

    /// A wait that has no end is a failure after this time.
    const END_FOUND_WITHIN: Duration = Duration::from_secs(20);

    /// A one-to-one socket without a task, with its association and that of the peer.
    struct Joined {
        _registry: Registry,
        socket: Rc<Socket>,
        /// The program's end of the channel.
        theirs: OwnedFd,
        assoc: Rc<SocketAssociation>,
        peer: Association,
    }

    impl Joined {
        async fn new() -> Joined {
            let association = AssociationOptions { events: true, ..AssociationOptions::default() };
            let options = StackOptions { udp_port: Some(0), association, ..StackOptions::default() };
            let stack = Stack::bind(&options);
            let registry = Registry::new(
                stack.expect("a free port"),
                false,
                &Limits::default(),
                Numbers::with_max(1 << 16),
            )
            .expect("random numbers");
            let listener = Listener::from(registry.stack.listen(7).expect("a free port"));
            let host = std::net::IpAddr::from([127, 0, 0, 1]);
            let server = Address { hosts: vec![host], port: 7, udp_port: Some(registry.stack.udp_port()) };
            let (ours, accepted) =
                tokio::join!(Association::connect_on(&registry.stack, server), listener.accept());
            let options = SocketOptions::new(&registry.stack);
            let assoc_options = options.assoc_options.clone();
            let owner = Owner { user: 1, process: 1 };
            let opened = registry.open(owner, false, Style::OneToOne, State::Connected, options);
            let opened = opened.expect("a channel");
            let (peer, _) = accepted.expect("somebody comes");
            let address = (host, 7).into();
            let assoc = SocketAssociation::with(3, address, ours.expect("it listens"), assoc_options);
            Joined {
                _registry: registry,
                socket: opened.socket,
                theirs: opened.theirs,
                assoc: Rc::new(assoc),
                peer,
            }
        }

        fn association(&self) -> &Association {
            self.assoc.association().expect("it is up")
        }

        /// Sends as the program does.
        fn send(&self, content: &[u8]) {
            let header = Header { flags: Flags::END, bytes: content.len() as u32, ..Header::new(Kind::Data) };
            let record = [&header.encode(), content].concat();
            rustix::net::send(&self.theirs, &record, SendFlags::DONTWAIT).expect("room in the carrier");
        }
    }

    async fn soon<T>(needed: impl Future<Output = T>) -> T {
        tokio::time::timeout(END_FOUND_WITHIN, needed).await.expect("it comes")
    }

    #[tokio::test(flavor = "local")]
    async fn messages_of_a_program_wait_for_their_turn_for_room_and_for_more() {
        let joined = Joined::new().await;
        let association = joined.association();
        let mut outbound = Outbound::new(&joined.socket, &joined.assoc, association, Messages::new());
        assert_eq!(outbound.step().expect("it is open"), Wait::Message);
        (0..=RECORDS_PER_TURN).for_each(|_| joined.send(b"a word"));
        assert_eq!(outbound.step().expect("it is open"), Wait::Turn);
        assert_eq!(outbound.step().expect("it is open"), Wait::Message);
        // The peer does not read: its window and the send buffer fill up.
        let content = vec![7; 32 * 1024];
        let wait = loop {
            joined.send(&content);
            let wait = outbound.step().expect("it is open");
            if wait != Wait::Message {
                break wait;
            }
        };
        assert_eq!(wait, Wait::Association);
        soon(async {
            while joined.peer.recv().await.expect("nothing is lost").is_some_and(|found| found.len() < 1024) {
            }
            association.writable().await.expect("it is open");
        })
        .await;
        assert_eq!(outbound.step().expect("it is open"), Wait::Message);
        rustix::net::shutdown(&joined.theirs, Shutdown::Write).expect("it is open");
        assert!(matches!(outbound.step(), Err(Departure::HalfClosed)));
    }

    #[tokio::test(flavor = "local")]
    async fn messages_of_a_peer_wait_for_room_in_the_channel_and_then_the_end_is_told_once() {
        let joined = Joined::new().await;
        let association = joined.association();
        // So that something is left to tell the program after the end.
        joined.assoc.options().subscribe(NotificationType::AssociationChange.subscription(), true);
        let (mut held, mut ends) = (Held::default(), Vec::new());
        let mut inbound = Inbound::new(&joined.socket, &joined.assoc, association);
        assert_eq!(inbound.step(&mut held, &mut |end| ends.push(end)), Some(Wait::Message));
        let content = vec![7; 32 * 1024];
        let wait = loop {
            joined.peer.send(&content).await.expect("it is open");
            soon(association.readable()).await.expect("it is open");
            match inbound.step(&mut held, &mut |end| ends.push(end)) {
                Some(Wait::Message) => {}
                wait => break wait,
            }
        };
        assert_eq!(wait, Some(Wait::Channel(Blocked::Full)), "the program does not read");
        assert_eq!(inbound.step(&mut held, &mut |end| ends.push(end)), wait, "nor does it now");
        soon(joined.peer.shutdown()).await.expect("it is open");
        // The program reads until there is no more.
        let mut place = vec![0; 64 * 1024];
        loop {
            while rustix::net::recv(&joined.theirs, &mut place[..], RecvFlags::DONTWAIT)
                .is_ok_and(|(n, _)| n > 0)
            {}
            match inbound.step(&mut held, &mut |end| ends.push(end)) {
                Some(Wait::Channel(blocked)) => soon(inbound.unblocked(blocked)).await,
                Some(_) => soon(association.readable()).await.expect("it ends"),
                None => break,
            }
        }
        assert_eq!(ends, [Ended::ByPeer]);
    }
}
