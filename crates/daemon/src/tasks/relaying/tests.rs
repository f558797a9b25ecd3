//! Tests of relays, drains and notifications.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::task::{Context, Waker};

use channel_protocol::abi::{IPPROTO_SCTP, SCTP_EVENT};
use channel_protocol::assoc_id::AssocId;
use channel_protocol::record::{Flags, Header, Kind};
use rustix::net::{RecvFlags, SendFlags, recv};
use swiftwater::{AssociationOptions, SendInfo};

use super::*;
use crate::calls::options;
use crate::relay::other_end::declare_upper_data;
use crate::state::notification_type::NotificationType;
use crate::state::registry::Registry;
use crate::testing::{
    ID, header, opened, put_record, read, registry, send, server_address, soon, until, with_writer,
};
use crate::users::limits::Limits;
use crate::users::requester::tests::requester;
use crate::users::round_share::RECORDS_PER_ROUND;

/// The program, which is blocked in a call, reads nothing, so it is not told of the end either.
#[tokio::test(flavor = "local")]
async fn what_waits_for_memory_is_discarded_as_soon_as_the_association_has_ended() {
    let registry = registry();
    let listener = registry.stack().listen(7).expect("a free port");
    let connecting = registry.stack().connect(server_address(&registry));
    let (connected, accepted) = tokio::join!(connecting, listener.accept());
    let (socket, program_end) = opened(&registry, Style::OneToOne);
    let peer = (IpAddr::from([127, 0, 0, 1]), 7).into();
    let assoc = SocketAssociation::with(ID, peer, connected.expect("it listens"), socket.future_options());
    let channel = socket.channel();
    let _all = channel.accounts().sent().charge_anyway(2 * Limits::default().user_memory_bytes);
    send(&program_end, ID, &[7; 3000]);
    let association = assoc.stack_association().expect("it is up");
    let discarded = async {
        accepted.expect("an association comes").0.abort("it ends");
        until("it is discarded", || channel.waiting_bytes() == 0).await;
    };
    tokio::select! {
        _ = relay_outbound(&socket, &assoc, association, Messages::new()) => {}
        () = discarded => {}
    }
    assert_eq!(channel.waiting_bytes(), 0);
}

#[tokio::test(flavor = "local")]
async fn a_drain_that_may_take_nothing_has_not_taken_all() {
    for is_throttled in [true, false] {
        let registry = registry();
        let (socket, program_end) = opened(&registry, Style::OneToMany);
        send(&program_end, ID, b"a message");
        let daemon_end = socket.channel().daemon_end();
        let (_end_it, ends) = std::sync::mpsc::channel::<()>();
        if is_throttled {
            daemon_end.time().throttle_for(Duration::from_secs(60));
        } else {
            daemon_end.closer().run(move || ends.recv().unwrap_or_default());
            while daemon_end.closer().has_room() {
                daemon_end.closer().run(|| ());
            }
        }
        assert_eq!(Drain::new(&socket).step(&socket), Some(false), "throttled: {is_throttled}");
        assert!(!drain(&socket).await, "throttled: {is_throttled}");
        assert!(daemon_end.waiting_bytes() > 0);
    }
}

#[tokio::test(flavor = "local")]
async fn a_notification_that_finds_room_needs_no_further_round() {
    let registry = registry();
    let listener = registry.stack().listen(7).expect("a free port");
    let host = IpAddr::from([127, 0, 0, 1]);
    let server = server_address(&registry);
    let (connected, _accepted) = tokio::join!(registry.stack().connect(server), listener.accept());
    let (socket, program_end) = opened(&registry, Style::OneToOne);
    let mut options = socket.future_options();
    options.subscribe(NotificationType::SenderDry.subscription(), true);
    let peer = SocketAddr::new(host, 7);
    let assoc = SocketAssociation::with(ID, peer, connected.expect("it listens"), options);
    socket.due_dry().add(Rc::new(assoc));
    let mut notified = pin!(notify_sender_dry(&socket));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(notified.as_mut().poll(&mut cx).is_ready());
    let received = recv(&program_end, &mut [0; 256][..], RecvFlags::DONTWAIT);
    assert!(received.is_ok_and(|(_, bytes)| bytes > 0), "a notification");
}

fn peer_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 7))
}

/// Fills the pair of a socket, whose program reads nothing.
fn fill(socket: &Socket) {
    while socket.channel().daemon_end().try_put_message(&header(ID, 6), &["filler".into()]).is_ok() {}
}

/// Returns the number of tasks.
fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// Reads all records in a pair; returns the number of notifications.
fn notifications_read(program_end: &OwnedFd) -> usize {
    let records = std::iter::from_fn(|| read(program_end));
    records
        .filter(|record| Header::parse(record).is_some_and(|header| header.kind == Kind::Notification))
        .count()
}

#[tokio::test(flavor = "local")]
async fn a_program_that_subscribes_again_and_again_has_one_task_and_one_notification() {
    let registry = registry();
    let listener = registry.stack().listen(7).expect("a free port");
    let (connected, _accepted) =
        tokio::join!(registry.stack().connect(server_address(&registry)), listener.accept());
    let (socket, program_end) = opened(&registry, Style::OneToOne);
    let assoc = Rc::new(SocketAssociation::new(ID, peer_address(), socket.future_options()));
    socket.on_connecting(&assoc, None);
    socket.on_connected(1);
    assoc.set_up(connected.expect("it listens"));
    let mut value = Vec::from(ID.get().to_ne_bytes());
    value.extend((NotificationType::SenderDry as u16).to_ne_bytes());
    value.extend([1, 0]);
    let subscribe = async || {
        let option = (IPPROTO_SCTP, SCTP_EVENT);
        options::set(&registry, &socket, option, &value, requester(1)).await.expect("it is valid");
        notify_sender_dry(&socket).await;
    };
    fill(&socket);
    let before = tasks();
    for _ in 0..20 {
        subscribe().await;
    }
    assert_eq!(tasks(), before + 1, "it waits for room");
    let mut read = notifications_read(&program_end);
    assert_eq!(read, 0);
    until("the task is done", || tasks() == before).await;
    read += notifications_read(&program_end);
    assert_eq!((read, socket.due_dry().first().is_none()), (1, true));
    subscribe().await;
    assert_eq!(notifications_read(&program_end), 1, "the next subscription has one of its own");
}

#[tokio::test(flavor = "local")]
async fn a_notification_that_is_due_moves_with_its_association() {
    let registry = registry();
    let ((from, program_end), (to, new_end)) =
        (opened(&registry, Style::OneToMany), opened(&registry, Style::PeeledOff));
    let listener = registry.stack().listen(7).expect("a free port");
    let (connected, _accepted) =
        tokio::join!(registry.stack().connect(server_address(&registry)), listener.accept());
    let before = tasks();
    let mut options = from.future_options();
    options.subscribe(NotificationType::SenderDry.subscription(), true);
    let assoc = Rc::new(SocketAssociation::with(ID, peer_address(), connected.expect("it listens"), options));
    fill(&from);
    from.due_dry().add(assoc);
    notify_sender_dry(&from).await;
    to.due_dry().add(from.due_dry().remove(ID).expect("it waits for room"));
    notify_sender_dry(&to).await;
    assert_eq!((notifications_read(&new_end), notifications_read(&program_end)), (1, 0));
    until("the first task is done", || tasks() == before).await;
    assert_eq!(notifications_read(&program_end), 0);
}

#[tokio::test(flavor = "local")]
async fn an_association_that_sends_or_ends_before_its_notification_finds_room_has_none() {
    let registry = registry();
    let listener = registry.stack().listen(7).expect("a free port");
    for ends in [false, true] {
        let (connected, accepted) =
            tokio::join!(registry.stack().connect(server_address(&registry)), listener.accept());
        let (association, peer) = (connected.expect("it listens"), accepted.expect("it comes").0);
        let (socket, program_end) = opened(&registry, Style::OneToMany);
        let mut options = socket.future_options();
        options.subscribe(NotificationType::SenderDry.subscription(), true);
        let assoc = SocketAssociation::with(ID, peer_address(), association.clone(), options);
        let assoc = Rc::new(assoc);
        let before = tasks();
        fill(&socket);
        socket.due_dry().add(Rc::clone(&assoc));
        notify_sender_dry(&socket).await;
        assert_eq!(tasks(), before + 1, "it waits for room");
        if ends {
            peer.abort("it ends");
            until("the end", || assoc.has_ended()).await;
        } else {
            // More than the peer, which reads nothing, has room for.
            while association.try_send(&[0; 1 << 16], &SendInfo::default()).is_ok() {}
        }
        let mut read = notifications_read(&program_end);
        until("the task is done", || tasks() == before).await;
        read += notifications_read(&program_end);
        assert_eq!((read, socket.due_dry().first().is_none()), (0, true), "the association ends: {ends}");
    }
}

#[tokio::test(flavor = "local")]
async fn a_closed_socket_without_an_association_waits_for_no_memory() {
    let registry = registry();
    let listener = registry.stack().listen(7).expect("a free port");
    let server = server_address(&registry);
    let (connected, accepted) = tokio::join!(registry.stack().connect(server), listener.accept());
    let association = connected.expect("it listens");
    let (socket, program_end) = opened(&registry, Style::OneToOne);
    let assoc = SocketAssociation::with(ID, peer_address(), association.clone(), socket.future_options());
    drop(program_end);
    accepted.expect("an association comes").0.abort("it ends");
    let no_memory = pin!(std::future::pending());
    let waited = soon(unless_discarded(&socket, &assoc, &association, no_memory)).await;
    assert!(matches!(waited, Err(Departure::Closed)), "{waited:?}");
}

#[tokio::test(flavor = "local")]
async fn a_peer_that_takes_nothing_keeps_no_closed_socket() {
    let registry = registry();
    let listener = registry.stack().listen(7).expect("a free port");
    // T5 expires after half a second.
    let rto = Duration::from_millis(100);
    let options = AssociationOptions::default().with_rto_initial(rto).with_rto_min(rto).with_rto_max(rto);
    let client = registry.stack().with_options(&options);
    let (connected, accepted) = tokio::join!(client.connect(server_address(&registry)), listener.accept());
    let (association, _peer) = (connected.expect("it listens"), accepted.expect("an association comes"));
    // More than both buffers hold, because the peer reads nothing.
    while timeout(2 * rto, association.send(&[7; 50_000])).await.is_ok() {}
    let (socket, program_end) = opened(&registry, Style::OneToOne);
    let assoc = SocketAssociation::with(ID, peer_address(), association.clone(), socket.future_options());
    drop(program_end);
    let no_room = pin!(std::future::pending());
    let waited = soon(unless_discarded(&socket, &assoc, &association, no_room)).await;
    assert!(matches!(waited, Err(Departure::Closed)), "{waited:?}");
}

/// A socket whose program has sent one message, and whose association relays it.
struct Relayed {
    socket: Rc<Socket>,
    _program_end: OwnedFd,
    assoc: Rc<SocketAssociation>,
    peer: Association,
}

/// Rounds of the runtime in which a relay notices a shutdown.
const NOTICE_ROUNDS: usize = 10;

impl Relayed {
    /// Shuts the association down at the peer, and lets so much time pass that it waits for the program no longer, once the
    /// relay has noticed the shutdown.
    async fn shut_down_at_peer(&self) {
        self.peer.shutdown().await.expect("it is open");
        until("the shutdown comes", || self.assoc.has_last_upper_data()).await;
        for _ in 0..NOTICE_ROUNDS {
            yield_now().await;
        }
        tokio::time::pause();
        tokio::time::advance(STUCK_WAIT + Duration::from_millis(1)).await;
        tokio::time::resume();
        soon(self.peer.closed()).await;
    }
}

async fn relayed(registry: &Registry, style: Style, header: &Header) -> Relayed {
    let listener = registry.stack().listen(7).expect("a free port");
    let host = IpAddr::from([127, 0, 0, 1]);
    let server = server_address(registry);
    let (connected, accepted) = tokio::join!(registry.stack().connect(server), listener.accept());
    let (socket, program_end) = opened(registry, style);
    let peer = SocketAddr::new(host, 7);
    let assoc = SocketAssociation::with(ID, peer, connected.expect("it listens"), socket.future_options());
    assoc.options_mut().subscribe(NotificationType::SendFailedEvent.subscription(), true);
    let record = [&header.encode(), b"a word".as_slice()].concat();
    rustix::net::send(&program_end, &record, SendFlags::DONTWAIT).expect("room in the pair");
    let assoc = match style {
        Style::OneToMany => socket.enter(assoc, 1, registry.admit_association(&socket, 1).expect("room")),
        _ => Rc::new(assoc),
    };
    assoc.set_has_upper_data(true);
    assoc.set_has_upper_records(style == Style::OneToMany);
    let (relayed_socket, relayed) = (Rc::clone(&socket), Rc::clone(&assoc));
    spawn_local(async move {
        let association = relayed.stack_association().expect("it is up");
        match relayed.send_queue() {
            Some(queue) => relay_send_queue(&relayed_socket, &relayed, association, &queue).await,
            None => {
                relay_outbound(&relayed_socket, &relayed, association, Messages::new()).await;
            }
        }
    });
    Relayed { socket, _program_end: program_end, assoc, peer: accepted.expect("an association comes").0 }
}

#[tokio::test(flavor = "local")]
async fn a_peer_that_shuts_down_waits_so_long_for_memory_of_the_program() {
    for style in [Style::OneToOne, Style::OneToMany] {
        let registry = registry();
        let relayed = relayed(&registry, style, &header(ID, 6)).await;
        let channel = relayed.socket.channel();
        let _all = channel.accounts().sent().charge_anyway(Limits::default().user_memory_bytes);
        relayed.shut_down_at_peer().await;
        assert!(channel.waiting_bytes() > 0, "the message still waits for memory");
    }
}

#[tokio::test(flavor = "local")]
async fn a_peer_that_shuts_down_waits_so_long_for_a_program_that_reads_nothing() {
    for style in [Style::OneToOne, Style::OneToMany] {
        let registry = registry();
        let refused = Header { stream: u16::MAX, ..header(ID, 6) };
        let relayed = relayed(&registry, style, &refused).await;
        // The report of the message cannot be delivered.
        let _delivery = relayed.socket.channel().delivery().lock().await;
        relayed.shut_down_at_peer().await;
    }
}

#[tokio::test(flavor = "local")]
async fn a_message_for_which_the_program_does_not_wake_the_daemon_delays_no_shutdown() {
    let long = header(AssocId::NONE, 2_000_000);
    // The header of a message whose memfd never comes.
    let hole = Header { flags: long.flags.with(Flags::IN_MEMFD).with(Flags::IN_TURN), ..long };
    for (header, content) in [(header(AssocId::NONE, 6), b"a word".as_slice()), (hole, b"")] {
        let registry = registry();
        let listener = registry.stack().listen(7).expect("a free port");
        let host = IpAddr::from([127, 0, 0, 1]);
        let server = server_address(&registry);
        let (connected, accepted) = tokio::join!(registry.stack().connect(server), listener.accept());
        let end = |id, association: Association| {
            let (socket, program_end) = opened(&registry, Style::OneToOne);
            let peer = SocketAddr::new(host, association.peer_addr().port());
            let assoc = SocketAssociation::with(id, peer, association, socket.future_options());
            (socket, program_end, Rc::new(assoc))
        };
        let (socket, _program_end, assoc) = end(ID, connected.expect("it listens"));
        let (other, _others_end, peer) = end(AssocId::new(4), accepted.expect("an association comes").0);
        socket.on_adopted(&assoc, None, None);
        with_writer(&socket, |_| ());
        let (relayed_socket, relayed) = (Rc::clone(&socket), Rc::clone(&assoc));
        let relay = spawn_local(async move {
            let association = relayed.stack_association().expect("it is up");
            relay_outbound(&relayed_socket, &relayed, association, Messages::new()).await
        });
        yield_now().await;
        assert!(put_record(&socket, &header, content), "the daemon sleeps");
        declare_upper_data(&other, &peer);
        assert!(assoc.has_upper_data());
        let peer = peer.stack_association().expect("it is up");
        peer.shutdown().await.expect("it is open");
        if content.is_empty() {
            let departure = soon(relay).await.expect("it ends");
            assert!(matches!(departure, Departure::Broken), "{departure:?}");
        } else {
            assert!(soon(peer.recv()).await.is_ok_and(|message| message.is_some()));
            soon(peer.closed()).await;
        }
    }
}

const SOCKETS: u32 = 40;
/// Fewer than one turn allows.
const RECORDS: usize = 20;

#[tokio::test(flavor = "local")]
async fn the_sockets_of_a_user_together_move_so_many_records_in_a_round() {
    let registry = registry();
    let listener = registry.stack().listen(7).expect("a free port");
    let host = IpAddr::from([127, 0, 0, 1]);
    let (mut peers, mut programs, mut relays) = (Vec::new(), Vec::new(), Vec::new());
    for id in (0..SOCKETS).map(AssocId::new) {
        let server = server_address(&registry);
        let (connected, accepted) = tokio::join!(registry.stack().connect(server), listener.accept());
        peers.push(accepted.expect("an association comes"));
        let (socket, program_end) = opened(&registry, Style::OneToOne);
        let options = socket.future_options();
        let peer = SocketAddr::new(host, 7);
        let assoc = SocketAssociation::with(id, peer, connected.expect("it listens"), options);
        (0..RECORDS).for_each(|_| send(&program_end, id, b"a word"));
        programs.push(program_end);
        relays.push(async move {
            let association = assoc.stack_association().expect("it is up");
            relay_outbound(&socket, &assoc, association, Messages::new()).await
        });
    }
    relays.into_iter().for_each(|relay| drop(spawn_local(relay)));
    let (mut before, mut most) = (0, 0);
    soon(async {
        while before < u64::from(SOCKETS) * RECORDS as u64 {
            yield_now().await;
            let records = registry.busy_polling().records();
            most = most.max(records - before);
            before = records;
        }
    })
    .await;
    assert!(most <= RECORDS_PER_ROUND as u64, "{most} in a round");
}
