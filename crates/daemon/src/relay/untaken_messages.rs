//! Messages that a program has sent and that its association has not taken when the peer shuts the association down. Programs
//! believe these messages sent, so the association still takes them, and SHUTDOWN ACK waits for them.

use std::cell::Cell;
use std::rc::Rc;

use crate::state::association::SocketAssociation;
use crate::state::socket::Socket;

/// The messages of a program that its association has not taken, as long as they are relayed.
pub(super) struct UntakenMessages<'a> {
    assoc: &'a SocketAssociation,
    are_given_up: Cell<bool>,
}

impl<'a> UntakenMessages<'a> {
    pub(super) fn of(socket: &Rc<Socket>, assoc: &'a SocketAssociation) -> UntakenMessages<'a> {
        socket.let_be_found(assoc);
        assoc.set_relayed(true);
        UntakenMessages { assoc, are_given_up: Cell::new(false) }
    }

    /// Sets whether there are any. Those that were given up do not count.
    pub(super) fn set(&self, exists: bool) {
        self.assoc.set_has_upper_data(exists && !self.are_given_up.get());
    }

    /// Gives them up: the peer waits for none from now on.
    pub(super) fn give_up(&self) {
        self.are_given_up.set(true);
        self.set(false);
    }
}

impl Drop for UntakenMessages<'_> {
    fn drop(&mut self) {
        self.set(false);
        self.assoc.set_relayed(false);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};
    use std::os::fd::OwnedFd;

    use bytes::Bytes;
    use channel_protocol::assoc_id::AssocId;
    use channel_protocol::record::{Flags, Header, Kind};
    use rustix::net::SendFlags;
    use swiftwater::tokio::Association;

    use super::*;
    use crate::channel::style::Style;
    use crate::relay::drain::{Drain, take_batch};
    use crate::relay::other_end::declare_upper_data;
    use crate::relay::outbound::channel_source::ChannelWait;
    use crate::relay::outbound::queue_source::QueueWait;
    use crate::relay::outbound::{Ends, Outbound, OutboundWait, Source};
    use crate::state::registry::Registry;
    use crate::state::send_queue::Messages;
    use crate::testing::{
        header, keep_busy, opened, put, registry, send, send_long, server_address, soon, with_writer,
    };
    use crate::users::limits::Limits;
    use crate::users::quantum::RECORDS_PER_TURN;

    const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    /// A socket, its association, and the program's end of its pair.
    struct End {
        socket: Rc<Socket>,
        assoc: Rc<SocketAssociation>,
        program_end: OwnedFd,
    }

    impl End {
        fn new(registry: &Registry, style: Style, id: AssocId, association: Association) -> End {
            let (socket, program_end) = opened(registry, style);
            let options = socket.future_options();
            let peer = SocketAddr::new(HOST, association.peer_addr().port());
            let assoc = SocketAssociation::with(id, peer, association, options);
            let assoc = match style {
                Style::OneToMany => {
                    socket.enter(assoc, 1, registry.admit_association(&socket, 1).expect("room"))
                }
                _ => {
                    let assoc = Rc::new(assoc);
                    socket.on_adopted(&assoc, None, None);
                    assoc
                }
            };
            End { socket, assoc, program_end }
        }

        fn ends(&self) -> Ends<'_> {
            Ends { socket: &self.socket, assoc: &self.assoc, association: self.association() }
        }

        fn association(&self) -> &Association {
            self.assoc.stack_association().expect("it is up")
        }
    }

    /// Returns the two ends of an association between programs, the first of a socket of this style.
    async fn ends(registry: &Registry, style: Style) -> (End, End) {
        let listener = registry.stack().listen(7).expect("a free port");
        let server = server_address(registry);
        let (connected, accepted) = tokio::join!(registry.stack().connect(server), listener.accept());
        let first = End::new(registry, style, AssocId::new(3), connected.expect("it listens"));
        (
            first,
            End::new(registry, Style::OneToOne, AssocId::new(4), accepted.expect("an association comes").0),
        )
    }

    /// Shuts an end down, and waits until the other one knows.
    async fn shut_down(from: &End, to: &End) {
        declare_upper_data(&from.socket, &from.assoc);
        from.association().shutdown().await.expect("it is open");
        assert!(soon(to.association().recv()).await.expect("it is open").is_none());
    }

    async fn received(end: &End) -> usize {
        let mut received = 0;
        while soon(end.association().recv()).await.expect("the messages come before the end").is_some() {
            received += 1;
        }
        received
    }

    #[tokio::test(flavor = "local")]
    async fn what_a_program_has_sent_before_its_peer_shuts_down_is_still_sent() {
        let registry = registry();
        let (first, second) = ends(&registry, Style::OneToOne).await;
        let mut outbound = Outbound::from_channel(first.ends(), Messages::new());
        assert!(matches!(outbound.step(), Ok(OutboundWait::Message)));
        let sent = 2 * RECORDS_PER_TURN;
        (0..sent).for_each(|_| send(&first.program_end, AssocId::NONE, b"earlier"));
        shut_down(&second, &first).await;
        while !matches!(outbound.step(), Ok(OutboundWait::Message)) {
            outbound.next_turn().await;
        }
        assert!(!first.assoc.has_upper_data());
        send(&first.program_end, AssocId::NONE, b"later");
        assert!(matches!(outbound.step(), Ok(OutboundWait::Message)));
        assert_eq!(received(&second).await, sent);
    }

    #[tokio::test(flavor = "local")]
    async fn what_a_one_to_many_socket_has_sent_before_its_peer_shuts_down_is_still_sent() {
        let registry = registry();
        let (first, second) = ends(&registry, Style::OneToMany).await;
        let queue = first.assoc.send_queue().expect("it has one");
        let mut outbound = Outbound::from_queue(first.ends(), &queue);
        assert_eq!(outbound.step(), Ok(OutboundWait::Message));
        // Messages to others come first.
        (0..2 * RECORDS_PER_TURN).for_each(|_| send(&first.program_end, AssocId::new(77), b"to others"));
        send(&first.program_end, first.assoc.id(), b"earlier");
        declare_upper_data(&second.socket, &second.assoc);
        soon(queue.filled()).await;
        // Its relay may be the first to run.
        assert_eq!(outbound.step(), Ok(OutboundWait::Own(QueueWait::Drained)));
        shut_down(&second, &first).await;
        let mut drain = Drain::new(&first.socket);
        while drain.step(&first.socket).is_none() {
            // A program that sends to others without pause delays nothing.
            send(&first.program_end, AssocId::new(77), b"later");
        }
        outbound.on_drained();
        assert_eq!(outbound.step(), Ok(OutboundWait::Message));
        assert_eq!(received(&second).await, 1);
    }

    #[tokio::test(flavor = "local")]
    async fn messages_behind_those_that_had_no_room_are_still_sent() {
        let registry = registry();
        let (first, second) = ends(&registry, Style::OneToMany).await;
        let queue = first.assoc.send_queue().expect("it has one");
        let mut outbound = Outbound::from_queue(first.ends(), &queue);
        first.assoc.set_has_upper_data(true);
        second.association().shutdown().await.expect("it is open");
        assert!(soon(first.association().recv()).await.expect("it is open").is_none());
        // The peer may be another host, and nobody has declared these.
        send(&first.program_end, first.assoc.id(), b"earlier");
        assert_eq!(outbound.step(), Ok(OutboundWait::Own(QueueWait::Drained)));
        assert_eq!(Drain::new(&first.socket).step(&first.socket), None);
        outbound.on_drained();
        assert_eq!(outbound.step(), Ok(OutboundWait::Message));
        assert_eq!(received(&second).await, 1);
    }

    /// Returns the ends as [`ends`] does. The second has shut the association down while messages of the first had no room.
    async fn shutting_down(registry: &Registry, style: Style) -> (End, End) {
        let (first, second) = ends(registry, style).await;
        first.assoc.set_has_upper_data(true);
        second.association().shutdown().await.expect("it is open");
        assert!(soon(first.association().recv()).await.expect("it is open").is_none());
        (first, second)
    }

    /// Sends messages as long as the pair has room. Returns their number.
    fn fill(end: &End, content: &[u8]) -> usize {
        let header = header(end.assoc.id(), content.len());
        let record = [&header.encode(), content].concat();
        let send = || rustix::net::send(&end.program_end, &record, SendFlags::DONTWAIT);
        std::iter::repeat_with(send).take_while(Result::is_ok).count()
    }

    /// Steps until the peer waits for no message, and has the program send before each step. Returns the number of steps; `None`
    /// if the peer waits after 100.
    async fn steps_beside<S: Source>(
        mut outbound: Outbound<'_, S>,
        end: &End,
        sends: impl Fn(),
    ) -> Option<usize> {
        for steps in 0..100 {
            if !end.assoc.has_upper_data() {
                return Some(steps);
            }
            sends();
            assert!(matches!(outbound.step(), Ok(OutboundWait::Turn)), "messages are always there");
            outbound.next_turn().await;
        }
        None
    }

    #[tokio::test(flavor = "local")]
    async fn a_program_that_holds_its_pair_full_does_not_prolong_a_shutdown() {
        for style in [Style::OneToOne, Style::OneToMany] {
            let registry = registry();
            let (first, second) = shutting_down(&registry, style).await;
            let earlier = fill(&first, b"earlier");
            let steps = match first.assoc.send_queue() {
                Some(queue) => {
                    let sends = || {
                        fill(&first, b"later");
                        take_batch(&first.socket);
                    };
                    steps_beside(Outbound::from_queue(first.ends(), &queue), &first, sends).await
                }
                None => {
                    let outbound = Outbound::from_channel(first.ends(), Messages::new());
                    steps_beside(outbound, &first, || _ = fill(&first, b"later")).await
                }
            };
            assert!(steps.is_some_and(|steps| steps <= earlier / RECORDS_PER_TURN + 2), "{steps:?}");
            assert!(received(&second).await >= earlier, "what was sent before comes");
        }
    }

    #[tokio::test(flavor = "local")]
    async fn a_program_whose_ring_is_never_empty_does_not_prolong_a_shutdown_by_a_record_beside_it() {
        let registry = registry();
        let (first, second) = shutting_down(&registry, Style::OneToOne).await;
        with_writer(&first.socket, |_| ());
        send(&first.program_end, AssocId::NONE, b"beside the ring");
        let sends = || (0..RECORDS_PER_TURN).for_each(|_| _ = put(&first.socket, AssocId::NONE, b"later"));
        let outbound = Outbound::from_channel(first.ends(), Messages::new());
        assert!(steps_beside(outbound, &first, sends).await.is_some());
        received(&second).await;
    }

    #[tokio::test(flavor = "local")]
    async fn a_long_message_that_waits_for_memory_when_the_peer_shuts_down_is_still_sent() {
        let registry = registry();
        let (first, second) = shutting_down(&registry, Style::OneToOne).await;
        let channel = first.socket.channel();
        // There is memory for the record, but not for the content of its memfd.
        let all = channel.accounts().sent().charge_anyway(Limits::default().user_memory_bytes - 80_000);
        send_long(&first.program_end, AssocId::NONE, 100_000);
        let mut outbound = Outbound::from_channel(first.ends(), Messages::new());
        let waits_for_memory = OutboundWait::Own(ChannelWait::UserMemory);
        assert!(matches!(outbound.step(), Ok(wait) if wait == waits_for_memory));
        // A step that another event has caused.
        assert!(matches!(outbound.step(), Ok(wait) if wait == waits_for_memory));
        let busy = keep_busy(channel.daemon_end().closer().worker());
        drop(all);
        soon(channel.room()).await;
        assert!(matches!(outbound.step(), Ok(OutboundWait::Message)), "a thread reads it");
        assert!(first.assoc.has_upper_data());
        drop(busy);
        soon(channel.readable()).await;
        assert!(matches!(outbound.step(), Ok(OutboundWait::Message)));
        assert!(!first.assoc.has_upper_data());
        assert_eq!(received(&second).await, 1);
    }

    #[tokio::test(flavor = "local")]
    async fn what_a_program_has_sent_before_a_one_to_many_socket_ends_the_association_is_still_sent() {
        let registry = registry();
        let (first, second) = ends(&registry, Style::OneToMany).await;
        let queue = first.assoc.send_queue().expect("it has one");
        let mut ending = Outbound::from_queue(first.ends(), &queue);
        let mut outbound = Outbound::from_channel(second.ends(), Messages::new());
        assert!(matches!(outbound.step(), Ok(OutboundWait::Message)));
        send(&second.program_end, AssocId::NONE, b"earlier");
        let end = Header { flags: Flags::END.with(Flags::SHUTDOWN), ..Header::new(Kind::Data) };
        assert!(queue.push(end, Bytes::new()));
        assert_eq!(ending.step(), Ok(OutboundWait::Message));
        assert!(soon(second.association().recv()).await.expect("it is open").is_none());
        assert!(matches!(outbound.step(), Ok(OutboundWait::Message)));
        assert_eq!(received(&first).await, 1);
    }

    #[tokio::test(flavor = "local")]
    async fn an_end_that_has_sent_nothing_delays_no_shutdown() {
        for style in [Style::OneToOne, Style::OneToMany] {
            let registry = registry();
            let (first, second) = ends(&registry, style).await;
            let _untaken = UntakenMessages::of(&first.socket, &first.assoc);
            shut_down(&second, &first).await;
            assert!(!first.assoc.has_upper_data());
            assert_eq!(received(&second).await, 0);
        }
    }

    #[tokio::test(flavor = "local")]
    async fn nothing_is_declared_of_an_association_whose_relay_has_ended() {
        let registry = registry();
        let (first, second) = ends(&registry, Style::OneToOne).await;
        for is_relayed in [true, false] {
            let untaken = UntakenMessages::of(&first.socket, &first.assoc);
            send(&first.program_end, AssocId::NONE, b"later");
            let _untaken = is_relayed.then_some(untaken);
            declare_upper_data(&second.socket, &second.assoc);
            assert_eq!(first.assoc.has_upper_data(), is_relayed);
        }
    }

    #[tokio::test(flavor = "local")]
    async fn associations_with_equal_ports_and_peers_are_told_apart() {
        let registry = registry();
        let listener = registry.stack().listen(7).expect("a free port");
        let server = server_address(&registry);
        let mut ends = Vec::new();
        for host in [1, 2] {
            let stack = registry.stack().with_local_addresses(&[IpAddr::from([127, 0, 0, host])]);
            let (connected, accepted) = tokio::join!(stack.connect_from(40_000, &server), listener.accept());
            let first = End::new(
                &registry,
                Style::OneToOne,
                AssocId::new(host.into()),
                connected.expect("it listens"),
            );
            let accepted = accepted.expect("an association comes").0;
            ends.push((
                first,
                End::new(&registry, Style::OneToOne, AssocId::new(100 + u32::from(host)), accepted),
            ));
        }
        let _untaken: Vec<UntakenMessages<'_>> =
            ends.iter().map(|(first, _)| UntakenMessages::of(&first.socket, &first.assoc)).collect();
        let found = |end: &End| end.socket.relayed().other_end(&end.assoc).map(|(_, id)| id.get());
        assert_eq!(ends.iter().map(|(_, second)| found(second)).collect::<Vec<_>>(), [Some(1), Some(2)]);
    }
}
