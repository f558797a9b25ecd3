//! Tests of relays between programs and associations, with rings and long messages.

use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::Bytes;
use channel_protocol::assoc_id::AssocId;
use channel_protocol::record::{Flags, HEADER_BYTES, Header, Kind, Sequence, Turn};
use channel_protocol::status_page::StatusPage;
use ring::{PutOutcome, Ring, Writer};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::net::Shutdown;
use shared_memory::OfferedMapping;
use swiftwater::tokio::Association;

mod behind_parts;
mod departure;
mod long;
mod order;
mod short;

use super::*;
use crate::channel::blocked::Blocked;
use crate::channel::incoming::Incoming;
use crate::channel::style::Style;
use crate::relay::drain::Drain;
use crate::relay::inbound::{Inbound, InboundWait};
use crate::relay::outbound::channel_source::{ChannelSource, ChannelWait};
use crate::relay::outbound::{Ends, Outbound, OutboundWait};
use crate::state::association::SocketAssociation;
use crate::state::inbound_queue::{Ended, InboundQueue, ToProgram};
use crate::state::notification_type::NotificationType;
use crate::state::registry::Registry;
use crate::state::send_queue::{Messages, QueueFront, SendQueue};
use crate::state::socket::Socket;
use crate::system::lock::lock;
use crate::tasks::relaying::drain;
use crate::testing::{
    self, ID, announce, keep_busy, opened, put, put_record, read, read_bundled, registry, send, send_long,
    send_memfd, send_only, server_address, soon, until, with_writer,
};
use crate::users::limits::Limits;
use crate::users::quantum::{BYTES_PER_TURN, RECORDS_PER_TURN};
use crate::users::worker::WORKERS_MAX;

/// A one-to-one socket without a task, with its association and that of the peer.
struct Joined {
    _registry: Registry,
    socket: Rc<Socket>,
    /// The program's end of the channel.
    program_end: OwnedFd,
    assoc: Rc<SocketAssociation>,
    peer: Association,
}

impl Joined {
    async fn new() -> Joined {
        let registry = registry();
        let listener = registry.stack().listen(7).expect("a free port");
        let host = std::net::IpAddr::from([127, 0, 0, 1]);
        let server = server_address(&registry);
        let (connected, accepted) = tokio::join!(registry.stack().connect(server), listener.accept());
        let (socket, program_end) = opened(&registry, Style::OneToOne);
        with_writer(&socket, |_| ());
        soon(socket.channel().daemon_end().ring_has_memory(1)).await;
        let options = socket.future_options();
        let (peer, _) = accepted.expect("an association comes");
        let assoc = SocketAssociation::with(ID, (host, 7).into(), connected.expect("it listens"), options);
        Joined { _registry: registry, socket, program_end, assoc: Rc::new(assoc), peer }
    }

    fn association(&self) -> &Association {
        self.assoc.stack_association().expect("it is up")
    }

    fn ends(&self) -> Ends<'_> {
        Ends { socket: &self.socket, assoc: &self.assoc, association: self.association() }
    }

    fn outbound(&self) -> Outbound<'_, ChannelSource<'_>> {
        Outbound::from_channel(self.ends(), Messages::new())
    }

    fn send(&self, content: &[u8]) {
        send(&self.program_end, ID, content);
    }
}

/// Repeats the step, in turns, until the direction waits for another event. Returns that event, or how the program has left.
async fn past_turns(
    outbound: &mut Outbound<'_, ChannelSource<'_>>,
) -> Result<OutboundWait<ChannelWait>, Departure> {
    loop {
        match outbound.step() {
            Ok(OutboundWait::Turn) => outbound.next_turn().await,
            outcome => return outcome,
        }
    }
}

#[tokio::test(flavor = "local")]
async fn messages_of_a_program_wait_for_their_turn_for_room_and_for_more() {
    let joined = Joined::new().await;
    let association = joined.association();
    let mut outbound = joined.outbound();
    assert_eq!(outbound.step().expect("it is open"), OutboundWait::Message);
    (0..=RECORDS_PER_TURN).for_each(|_| joined.send(b"a word"));
    assert_eq!(outbound.step().expect("it is open"), OutboundWait::Turn);
    assert_eq!(outbound.step().expect("it is open"), OutboundWait::Message);
    // The peer does not read: its window and the send buffer fill up.
    let content = vec![7; 32 * 1024];
    let wait = loop {
        joined.send(&content);
        let wait = past_turns(&mut outbound).await.expect("it is open");
        if wait != OutboundWait::Message {
            break wait;
        }
    };
    assert_eq!(wait, OutboundWait::Association);
    let reads = async { while joined.peer.recv().await.expect("nothing is lost").is_some() {} };
    soon(async {
        tokio::select! {
            room = association.writable() => room.expect("it is open"),
            () = reads => panic!("the association has ended"),
        }
    })
    .await;
    assert_eq!(past_turns(&mut outbound).await.expect("it is open"), OutboundWait::Message);
    rustix::net::shutdown(&joined.program_end, Shutdown::Write).expect("it is open");
    assert!(matches!(past_turns(&mut outbound).await, Err(Departure::HalfClosed)));
}

#[tokio::test(flavor = "local")]
async fn messages_of_a_peer_wait_for_room_in_the_channel_and_then_the_end_is_told_once() {
    let joined = Joined::new().await;
    let association = joined.association();
    // With this subscription, a notification follows the end.
    joined.assoc.options_mut().subscribe(NotificationType::AssociationChange.subscription(), true);
    let (mut held, mut ends) = (InboundQueue::default(), Vec::new());
    let mut inbound = Inbound::new(&joined.socket, &joined.assoc, association);
    assert_eq!(inbound.step(&mut held, &mut |end| ends.push(end)), Some(InboundWait::Message));
    let content = vec![7; 32 * 1024];
    let wait = loop {
        joined.peer.send(&content).await.expect("it is open");
        soon(association.readable()).await.expect("it is open");
        match inbound.step(&mut held, &mut |end| ends.push(end)) {
            Some(InboundWait::Message) => {}
            Some(InboundWait::Turn) => inbound.next_turn().await,
            Some(InboundWait::Channel(_)) => {
                // The ring may have waited for its memory alone.
                soon(joined.socket.channel().daemon_end().ring_has_memory(content.len())).await;
                match inbound.step(&mut held, &mut |end| ends.push(end)) {
                    Some(InboundWait::Message | InboundWait::Turn) => {}
                    wait => break wait,
                }
            }
            wait => break wait,
        }
    };
    assert!(
        matches!(wait, Some(InboundWait::Channel(Blocked::Ring | Blocked::Full))),
        "the program does not read: {wait:?}"
    );
    assert_eq!(inbound.step(&mut held, &mut |end| ends.push(end)), wait, "nor does it now");
    soon(joined.peer.shutdown()).await.expect("it is open");
    // The program reads until the pair is empty.
    loop {
        while read(&joined.program_end).is_some() {}
        match inbound.step(&mut held, &mut |end| ends.push(end)) {
            Some(InboundWait::Channel(blocked)) => soon(inbound.unblocked(blocked)).await,
            Some(_) => soon(association.readable()).await.expect("it ends"),
            None => break,
        }
    }
    assert_eq!(ends, [Ended::ByPeer]);
}

#[tokio::test(flavor = "local")]
async fn a_turn_ends_however_often_it_is_interrupted() {
    let joined = Joined::new().await;
    let mut outbound = joined.outbound();
    let mut step = || outbound.step().expect("it is open");
    // Each step takes one message; a step that takes none counts as well.
    let waits = [(); RECORDS_PER_TURN].map(|()| {
        joined.send(b"a word");
        step()
    });
    assert!(waits.contains(&OutboundWait::Turn), "{waits:?}");
    let waits = [(); RECORDS_PER_TURN].map(|()| step());
    assert!(waits.contains(&OutboundWait::Turn), "{waits:?}");
}

#[tokio::test(flavor = "local")]
async fn a_turn_of_a_peer_ends_after_so_many_bytes_too() {
    let joined = Joined::new().await;
    let mut held = InboundQueue::default();
    let mut inbound = Inbound::new(&joined.socket, &joined.assoc, joined.association());
    let mut received = 0;
    let waited = loop {
        joined.peer.send(&vec![7; 32 * 1024]).await.expect("it is open");
        soon(joined.association().readable()).await.expect("it is open");
        let wait = inbound.step(&mut held, &mut |_| ());
        while let Some(record) = read_bundled(&joined.socket, &joined.program_end) {
            received += record.len();
        }
        if wait != Some(InboundWait::Message) {
            break wait;
        }
    };
    assert_eq!(waited, Some(InboundWait::Turn));
    assert!(received <= 2 * BYTES_PER_TURN, "{received} bytes in one turn");
}

/// Long enough to look at a throttled user.
const THROTTLE: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "local")]
async fn a_throttled_user_waits_and_loses_nothing() {
    let joined = Joined::new().await;
    let (channel, mut outbound) = (joined.socket.channel(), joined.outbound());
    let (mut held, association) = (InboundQueue::default(), joined.association());
    let mut inbound = Inbound::new(&joined.socket, &joined.assoc, association);
    joined.send(b"a word");
    joined.peer.send(b"an answer").await.expect("it is open");
    soon(association.readable()).await.expect("it is open");
    channel.daemon_end().time().throttle_for(THROTTLE);
    assert_eq!(outbound.step().expect("it is open"), OutboundWait::Message);
    let wait = inbound.step(&mut held, &mut |_| ());
    assert_eq!(wait, Some(InboundWait::Channel(Blocked::Throttled)));
    assert!(channel.waiting_bytes() > 0 && read(&joined.program_end).is_none());
    soon(channel.readable()).await;
    assert!(!channel.daemon_end().time().is_throttled());
    assert_eq!(outbound.step().expect("it is open"), OutboundWait::Message);
    assert_eq!(channel.waiting_bytes(), 0, "it was taken");
    soon(inbound.unblocked(Blocked::Throttled)).await;
    assert_eq!(inbound.step(&mut held, &mut |_| ()), Some(InboundWait::Message));
    assert!(read(&joined.program_end).is_some());
}

#[tokio::test(flavor = "local")]
async fn a_turn_of_a_peer_ends_however_often_it_is_interrupted() {
    let joined = Joined::new().await;
    let mut held = InboundQueue::default();
    let mut inbound = Inbound::new(&joined.socket, &joined.assoc, joined.association());
    let waits = [(); RECORDS_PER_TURN].map(|()| inbound.step(&mut held, &mut |_| ()));
    assert!(waits.contains(&Some(InboundWait::Turn)), "{waits:?}");
}

#[tokio::test(flavor = "local")]
async fn messages_for_an_ended_association_are_discarded_if_the_user_has_no_memory_for_them() {
    for wants_them in [false, true] {
        let joined = Joined::new().await;
        let (channel, mut outbound) = (joined.socket.channel(), joined.outbound());
        let kind = NotificationType::SendFailedEvent;
        joined.assoc.options_mut().subscribe(kind.subscription(), wants_them);
        let _all = channel.accounts().sent().charge_anyway(2 * Limits::default().user_memory_bytes);
        joined.send(&[7; 3000]);
        joined.send(&[7; 3000]);
        let waits_for_memory = OutboundWait::Own(ChannelWait::UserMemory);
        assert_eq!(past_turns(&mut outbound).await.ok(), Some(waits_for_memory));
        joined.peer.abort("it ends");
        until("the end", || joined.assoc.has_ended()).await;
        let waits = past_turns(&mut outbound).await.is_ok_and(|wait| wait == waits_for_memory);
        assert_eq!((waits, channel.waiting_bytes() > 0), (wants_them, wants_them));
    }
}

#[tokio::test(flavor = "local")]
async fn a_long_message_whose_memory_has_come_is_read_when_the_thread_is_free() {
    let joined = Joined::new().await;
    let (channel, mut outbound) = (joined.socket.channel(), joined.outbound());
    // There is memory for the record, but not for the content of its memfd.
    let all = channel.accounts().sent().charge_anyway(Limits::default().user_memory_bytes - 80_000);
    send_long(&joined.program_end, ID, 100_000);
    assert_eq!(outbound.step().expect("it is open"), OutboundWait::Own(ChannelWait::UserMemory));
    // Work for other sockets of this user is stuck, and so is the close of a descriptor.
    let busy = keep_busy(channel.daemon_end().closer().worker());
    let (_end_close, close_ends) = mpsc::channel::<()>();
    channel.daemon_end().closer().run(move || close_ends.recv().unwrap_or_default());
    while channel.daemon_end().closer().has_room() {
        channel.daemon_end().closer().run(|| ());
    }
    drop(all);
    soon(channel.room()).await;
    assert_eq!(outbound.step().expect("it is open"), OutboundWait::Message);
    assert!(channel.awaits_thread());
    drop(busy);
    soon(channel.readable()).await;
    assert_eq!(outbound.step().expect("it is open"), OutboundWait::Message);
    let mut received = 0;
    while received < 100_000 {
        let part = soon(joined.peer.recv()).await.expect("nothing is lost");
        received += part.expect("it is open").len();
    }
}

#[tokio::test(flavor = "local")]
async fn a_request_waits_for_a_long_message_that_was_sent_before() {
    let registry = registry();
    let (socket, program_end) = opened(&registry, Style::OneToMany);
    let (end_it, ends) = mpsc::channel::<()>();
    socket.channel().daemon_end().closer().worker().run(move || ends.recv().unwrap_or_default());
    send_long(&program_end, ID, 100_000);
    let taken = async {
        tokio::join!(drain(&socket), async {
            tokio::task::yield_now().await;
            drop(end_it);
        })
    };
    assert!(soon(taken).await.0);
    assert!(!socket.channel().awaits_thread(), "it was taken");
}

#[tokio::test(flavor = "local")]
async fn a_refused_message_that_ends_the_association_is_reported_and_ends_it() {
    for is_queued in [false, true] {
        let joined = Joined::new().await;
        joined.assoc.options_mut().subscribe(NotificationType::SendFailedEvent.subscription(), true);
        let header = crate::testing::header(ID, 6);
        let flags = header.flags.with(Flags::SHUTDOWN);
        let refused = Header { stream: u16::MAX, flags, ..header };
        if is_queued {
            let queue = SendQueue::new(joined.socket.channel().shared_pages(), None);
            assert!(queue.push(refused, Bytes::from_static(b"a word")));
            assert_eq!(Outbound::from_queue(joined.ends(), &queue).step(), Ok(OutboundWait::Message));
            assert!(matches!(queue.front(), QueueFront::Nothing), "it has left the queue");
        } else {
            let record = [&refused.encode()[..], b"a word"].concat();
            rustix::net::send(&joined.program_end, &record, rustix::net::SendFlags::DONTWAIT).expect("room");
            assert_eq!(joined.outbound().step().expect("it is open"), OutboundWait::Message);
        }
        let report = read(&joined.program_end).and_then(|first| read(&joined.program_end).or(Some(first)));
        let report = report.expect("a notification");
        let (_, failed) = Header::split(&report).expect("a record");
        assert!(failed.ends_with(b"a word"));
        assert_eq!(failed[8..12], u32::from(notifications::INVALID_STREAM.to_be()).to_ne_bytes());
        assert_eq!(soon(joined.peer.recv()).await.expect("no loss").map(|message| message.len()), None);
    }
}

#[tokio::test(flavor = "local")]
async fn a_turn_whose_message_never_comes_takes_one_record_a_call() {
    let joined = Joined::new().await;
    let long = testing::header(ID, 100_000);
    let long = Header { flags: long.flags.with(Flags::IN_MEMFD).with(Flags::IN_TURN), ..long };
    let in_turn = |counter| Header { sequence: Sequence::in_turn(Turn { counter, thread: 0 }), ..long };
    put_record(&joined.socket, &in_turn(u32::MAX), b"");
    (0..20).for_each(|counter| send_memfd(&joined.program_end, &in_turn(counter)));
    let channel = joined.socket.channel();
    for _ in 0..20 {
        let before = channel.daemon_end().waiting_bytes();
        assert!(matches!(channel.try_take(), Ok(Incoming::Filler)));
        assert_eq!(before - channel.daemon_end().waiting_bytes(), HEADER_BYTES as u64);
    }
    assert!(matches!(channel.try_take(), Ok(Incoming::Malformed)));
}

#[tokio::test(flavor = "local")]
async fn a_long_message_that_its_sender_may_still_change_is_malformed() {
    const SEALS: [SealFlags; 3] = [SealFlags::WRITE, SealFlags::SHRINK, SealFlags::GROW];
    let registry = registry();
    for flags in [Flags::IN_MEMFD, Flags::IN_MEMFD.with(Flags::IN_TURN)] {
        let header = testing::header(ID, 100_000);
        let header = Header { flags: header.flags.with(flags), ..header };
        for missing in SEALS.map(Some).into_iter().chain([None]) {
            let (socket, program_end) = opened(&registry, Style::OneToOne);
            let memfd =
                memfd_create("long", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a memfd");
            ftruncate(&memfd, header.bytes.into()).expect("its length");
            let seals = SEALS.into_iter().filter(|seal| Some(*seal) != missing).collect();
            fcntl_add_seals(&memfd, seals).expect("its seals");
            testing::send_with(&program_end, &header.encode(), &[memfd]);
            let taken = socket.channel().try_take();
            let is_as_expected = match missing {
                Some(_) => matches!(taken, Ok(Incoming::Malformed)),
                None => matches!(taken, Ok(Incoming::Filler)),
            };
            assert!(is_as_expected, "{flags:?} without {missing:?}: {taken:?}");
            assert_eq!(
                socket.channel().awaits_thread(),
                missing.is_none() && !header.flags.contains(Flags::IN_TURN)
            );
        }
    }
}

/// Fills more than half of the ring.
fn fill_half(socket: &Socket) {
    for _ in 0..5 {
        put(socket, ID, &[0; 60_000]);
    }
    assert!(socket.channel().waiting_bytes() > ring::ROOM_BYTES as u64 / 2);
}

/// A request waits until all was taken that the program has sent before it.
#[tokio::test(flavor = "local")]
async fn what_is_discarded_counts_as_taken() {
    let registry = registry();
    let (socket, program_end) = opened(&registry, Style::OneToMany);
    let channel = socket.channel();
    send_only(&program_end, Kind::Filler);
    send(&program_end, ID, b"text");
    let sent = channel.sent();
    assert!(channel.discard() && !channel.taken().reaches(sent));
    assert!(channel.discard() && channel.taken().reaches(sent));
}

#[tokio::test(flavor = "local")]
async fn a_long_message_is_taken_from_behind_a_filler_though_the_ring_is_full_behind_its_turn() {
    let joined = Joined::new().await;
    let long = testing::header(ID, 100_000);
    let long = Header { flags: long.flags.with(Flags::IN_MEMFD).with(Flags::IN_TURN), ..long };
    send_only(&joined.program_end, Kind::Filler);
    send_memfd(&joined.program_end, &long);
    put_record(&joined.socket, &long, b"");
    fill_half(&joined.socket);
    let channel = joined.socket.channel();
    // The filler, the record, and the announcement.
    for _ in 0..3 {
        assert!(!channel.awaits_thread() && matches!(channel.try_take(), Ok(Incoming::Filler)));
    }
    assert!(channel.awaits_thread());
}

#[tokio::test(flavor = "local")]
async fn a_record_is_taken_from_behind_a_filler_though_the_ring_is_full_behind_it() {
    let joined = Joined::new().await;
    send_only(&joined.program_end, Kind::Filler);
    testing::send(&joined.program_end, ID, b"before");
    put_record(
        &joined.socket,
        &Header { sequence: Sequence::sent_after(1), ..testing::header(ID, 5) },
        b"after",
    );
    fill_half(&joined.socket);
    let channel = joined.socket.channel();
    assert!(matches!(channel.try_take(), Ok(Incoming::Filler)));
    for expected in [&b"before"[..], b"after"] {
        let Ok(Incoming::Message(_, content)) = channel.try_take() else { panic!("no message") };
        assert_eq!(&content[..], expected);
    }
}

#[tokio::test(flavor = "local")]
async fn one_reading_of_the_page_waits_however_many_ask_for_it() {
    let registry = registry();
    let (socket, _program_end) = opened(&registry, Style::OneToOne);
    let channel = socket.channel();
    let (_end_it, ends) = mpsc::channel::<()>();
    let ends = Arc::new(Mutex::new(ends));
    for _ in 0..WORKERS_MAX {
        let ends = Arc::clone(&ends);
        channel.daemon_end().closer().worker().run(move || lock(&ends).recv().unwrap_or_default());
    }
    let memory = socket.channel().shared_pages().memory();
    let before = Arc::strong_count(&memory);
    for _ in 0..100 {
        let reading = tokio::time::timeout(Duration::from_micros(1), channel.read_page());
        assert!(reading.await.is_err(), "all threads are stuck");
    }
    assert!(Arc::strong_count(&memory) <= before + 1);
}

#[tokio::test(flavor = "local")]
async fn messages_in_the_ring_and_long_ones_keep_their_order() {
    let joined = Joined::new().await;
    let long = testing::header(ID, 100_000);
    let flags = long.flags.with(Flags::IN_MEMFD);
    let long = Header { flags: flags.with(Flags::IN_TURN), ..long };
    put(&joined.socket, ID, b"first");
    // A writer has died before it announced the turn of its message.
    send_memfd(
        &joined.program_end,
        &Header { sequence: Sequence::in_turn(Turn { counter: 9, thread: 0 }), ..long },
    );
    send_memfd(&joined.program_end, &long);
    put_record(&joined.socket, &long, b"");
    put(&joined.socket, ID, b"third");
    let (channel, mut outbound) = (joined.socket.channel(), joined.outbound());
    assert_eq!(past_turns(&mut outbound).await.expect("it is open"), OutboundWait::Message);
    // A thread reads the long one, and may have done so already.
    while channel.awaits_thread() {
        soon(channel.readable()).await;
        assert_eq!(past_turns(&mut outbound).await.expect("it is open"), OutboundWait::Message);
    }
    for length in [5, 100_000, 5] {
        let mut received = 0;
        while received < length {
            let part = soon(joined.peer.recv()).await.expect("nothing is lost");
            received += part.expect("it is open").len();
        }
        assert_eq!(received, length);
    }
}

#[tokio::test(flavor = "local")]
async fn what_a_program_sent_before_it_left_something_unread_keeps_its_order() {
    let registry = registry();
    let (socket, program_end) = opened(&registry, Style::OneToOne);
    let channel = socket.channel();
    with_writer(&socket, |_| ());
    assert!(matches!(channel.try_take(), Err(Errno::AGAIN)));
    let mut context = Context::from_waker(Waker::noop());
    assert!(std::pin::pin!(channel.readable()).poll(&mut context).is_pending(), "the daemon sleeps");
    channel.daemon_end().put_record(&Header::new(Kind::Notification).encode(), &[]).await.expect("room");
    send(&program_end, ID, b"1");
    assert!(put(&socket, ID, b"2"));
    send_only(&program_end, Kind::Wake);
    // The kernel reports first that the notification was left unread.
    drop(program_end);
    let mut contents = Vec::new();
    loop {
        match channel.try_take() {
            Ok(Incoming::Message(_, content)) => contents.push(content),
            Ok(Incoming::Filler | Incoming::Empty | Incoming::Unread) => {}
            Ok(Incoming::End) => break,
            Err(Errno::AGAIN) => soon(channel.readable()).await,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(contents, ["1", "2"]);
}

#[tokio::test(flavor = "local")]
async fn a_page_that_nobody_can_read_is_given_up_however_often_the_wait_begins_anew() {
    let registry = registry();
    let (socket, program_end) = opened(&registry, Style::OneToMany);
    let channel = socket.channel();
    let stuck = [(); WORKERS_MAX].map(|()| {
        let (end_it, ends) = mpsc::channel::<()>();
        channel.daemon_end().closer().worker().run(move || ends.recv().unwrap_or_default());
        end_it
    });
    channel.daemon_end().put_record(&Header::new(Kind::Notification).encode(), &[]).await.expect("room");
    drop(program_end);
    assert!(matches!(channel.try_take(), Err(Errno::AGAIN)));
    let given_up = async {
        let pause = Duration::from_millis(20);
        while tokio::time::timeout(pause, channel.readable()).await.is_err() {}
    };
    soon(given_up).await;
    assert!(matches!(channel.try_take(), Ok(Incoming::End)));
    drop(stuck);
}

#[tokio::test(flavor = "local")]
async fn a_daemon_that_sleeps_is_woken_and_misses_nothing() {
    let joined = Joined::new().await;
    let (channel, mut outbound) = (joined.socket.channel(), joined.outbound());
    for wakes in [true, false, true] {
        // A wake record of earlier messages may come late.
        for comes_late in [true, false] {
            assert_eq!(outbound.step().expect("it is open"), OutboundWait::Message);
            let mut readable = std::pin::pin!(channel.readable());
            let mut context = Context::from_waker(Waker::noop());
            assert!(readable.as_mut().poll(&mut context).is_pending(), "{comes_late}");
            if comes_late {
                send_only(&joined.program_end, Kind::Wake);
                soon(readable).await;
                continue;
            }
            assert!(put(&joined.socket, ID, b"a word"), "the daemon sleeps");
            assert!(!put(&joined.socket, ID, b"a word"), "one writer wakes it");
            // A wake record that finds no room is left out: something else in the pair is readable.
            send_only(&joined.program_end, if wakes { Kind::Wake } else { Kind::Filler });
            soon(readable).await;
        }
        assert_eq!(outbound.step().expect("it is open"), OutboundWait::Message);
        for _ in 0..2 {
            let message = soon(joined.peer.recv()).await.expect("nothing is lost");
            assert_eq!(message.expect("it is open").len(), 6);
        }
    }
}

#[tokio::test(flavor = "local")]
async fn messages_in_the_ring_leave_before_the_end() {
    let joined = Joined::new().await;
    let mut outbound = joined.outbound();
    assert_eq!(outbound.step().expect("it is open"), OutboundWait::Message);
    soon(async {
        tokio::select! {
            biased;
            () = joined.socket.channel().readable() => panic!("nothing has come"),
            () = tokio::task::yield_now() => {}
        }
    })
    .await;
    // The last writer did not come to wake the daemon.
    assert!(put(&joined.socket, ID, b"last words"));
    rustix::net::shutdown(&joined.program_end, Shutdown::Write).expect("it is open");
    assert!(matches!(past_turns(&mut outbound).await, Err(Departure::HalfClosed)));
    let message = soon(joined.peer.recv()).await.expect("nothing is lost");
    assert_eq!(message.expect("it is open").len(), 10);
    // A process that has kept the memory still writes.
    put(&joined.socket, ID, b"too late");
    assert!(matches!(past_turns(&mut outbound).await, Err(Departure::HalfClosed)));
}

type Break<'a> = &'a dyn Fn(&Joined);

#[tokio::test(flavor = "local")]
async fn a_program_that_breaks_the_ring_is_aborted() {
    let long = Header { flags: Flags::END.with(Flags::IN_MEMFD), ..testing::header(ID, 100_000) };
    let breaks: [(&str, Break<'_>); 5] = [
        ("a turn of a message that has not come", &|joined| {
            put_record(&joined.socket, &long, b"");
        }),
        ("not as long as it says", &|joined| {
            put_record(&joined.socket, &testing::header(ID, 3), b"four");
        }),
        ("no message", &|joined| {
            put_record(&joined.socket, &Header::new(Kind::Accepted), b"");
        }),
        ("no header", &|joined| {
            with_writer(&joined.socket, |ring| ring.put(8, |record| record.push(b"8 bytes!")));
        }),
        ("more turns to come than anybody has", &|joined| {
            let long = Header { flags: long.flags.with(Flags::IN_TURN), ..long };
            (0..9).for_each(|_| send_memfd(&joined.program_end, &long));
        }),
    ];
    for (what, break_it) in breaks {
        let joined = Joined::new().await;
        break_it(&joined);
        let mut outbound = joined.outbound();
        for _ in 0..2 {
            let outcome = past_turns(&mut outbound).await;
            assert!(matches!(outcome, Err(Departure::Broken)), "{what}: {outcome:?}");
        }
    }
}

#[tokio::test(flavor = "local")]
async fn a_program_that_waits_for_room_in_the_ring_is_told() {
    let joined = Joined::new().await;
    let content = [7; 1000];
    while with_writer(&joined.socket, |ring| ring.fits(64 + content.len())) {
        put(&joined.socket, ID, &content);
    }
    with_writer(&joined.socket, |ring| ring.request_notification());
    (0..2).for_each(|_| send_only(&joined.program_end, Kind::Filler));
    let mut outbound = joined.outbound();
    let channel = joined.socket.channel();
    let ring_bytes = || channel.waiting_bytes();
    let full = ring_bytes();
    while channel.daemon_end().waiting_bytes() > 0 {
        assert_eq!(outbound.step().expect("it is open"), OutboundWait::Turn);
        outbound.next_turn().await;
    }
    assert!((full / 4..full * 3 / 4).contains(&ring_bytes()), "{} of {full}", ring_bytes());
}

#[tokio::test(flavor = "local")]
async fn a_request_waits_for_what_the_ring_holds() {
    let registry = registry();
    let (socket, _program_end) = opened(&registry, Style::OneToMany);
    for _ in 0..2 * RECORDS_PER_TURN {
        put(&socket, AssocId::new(77), b"");
    }
    let mut drain = Drain::new(&socket);
    assert_eq!(drain.step(&socket), None);
    put(&socket, AssocId::new(77), b"later");
    assert_eq!((drain.step(&socket), drain.step(&socket)), (None, Some(true)));
    assert!(socket.channel().waiting_bytes() > 0, "a later message is another request's");
}

/// Takes records until one says that nothing more is there.
fn take_all(socket: &Socket) -> Vec<Bytes> {
    let mut contents = Vec::new();
    loop {
        match socket.channel().try_take() {
            Ok(Incoming::Message(_, content)) => contents.push(content),
            Ok(Incoming::Filler) => {}
            other => {
                assert!(matches!(other, Err(Errno::AGAIN)), "{other:?}");
                return contents;
            }
        }
    }
}

/// Puts a message into a ring that was announced.
fn put_into(ring: &OfferedMapping, socket: &Socket, content: &[u8]) -> PutOutcome {
    let memory = socket.channel().shared_pages().memory();
    let writer = Writer::new(Ring::new(ring.words_u64(), memory.reader_words()));
    writer.put(HEADER_BYTES + content.len(), |record| {
        record.push(&testing::header(ID, content.len()).encode());
        record.push(content);
    })
}

#[tokio::test(flavor = "local")]
async fn a_ring_is_used_once_it_was_checked_and_behind_what_was_sent_before() {
    let registry = registry();
    let (socket, program_end) = opened(&registry, Style::OneToOne);
    let number = || socket.channel().shared_pages().field(StatusPage::RING_NUMBER_AT);
    let offered = || OfferedMapping::new("ring", ring::WORDS).expect("memory");
    let (one, other) = (offered(), offered());
    send(&program_end, ID, b"1");
    announce(&program_end, 7, &one);
    send(&program_end, ID, b"2");
    assert_eq!(take_all(&socket), ["1"], "what follows waits for the check");
    assert_eq!((take_all(&socket).len(), number()), (0, 0));
    soon(socket.channel().readable()).await;
    assert_eq!(number(), 7);
    // The daemon sleeps: a wake record follows what was sent before.
    assert!(matches!(put_into(&one, &socket, b"3"), PutOutcome::Done { sleep: Some(_) }));
    send_only(&program_end, Kind::Wake);
    soon(socket.channel().readable()).await;
    assert_eq!(take_all(&socket), ["2", "3"]);
    // Another program continues in a ring of its own.
    put_into(&one, &socket, b"4");
    announce(&program_end, 8, &other);
    put_into(&one, &socket, b"5");
    send(&program_end, ID, b"6");
    assert_eq!(take_all(&socket), ["4", "5"], "the earlier ring comes first");
    soon(socket.channel().readable()).await;
    assert_eq!(number(), 8);
    put_into(&other, &socket, b"7");
    send_only(&program_end, Kind::Wake);
    put_into(&one, &socket, b"nobody looks here");
    assert_eq!(take_all(&socket), ["6", "7"]);
    assert!(socket.channel().taken().reaches(socket.channel().sent()));
}

#[tokio::test(flavor = "local")]
async fn a_ring_that_its_program_could_take_away_is_not_used() {
    let registry = registry();
    let (socket, program_end) = opened(&registry, Style::OneToOne);
    let bytes = ring::WORDS * 8;
    let unsealed = memfd_create("ring", MemfdFlags::ALLOW_SEALING).expect("a memfd");
    rustix::io::pwrite(&unsealed, &vec![0; bytes], 0).expect("memory");
    let sparse = memfd_create("ring", MemfdFlags::ALLOW_SEALING).expect("a memfd");
    ftruncate(&sparse, bytes as u64).expect("its length");
    fcntl_add_seals(&sparse, SealFlags::SHRINK | SealFlags::FUTURE_WRITE).expect("its seals");
    let short = OfferedMapping::new("ring", ring::WORDS - 1).expect("memory");
    let broken = OfferedMapping::new("ring", ring::WORDS).expect("memory");
    broken.words_u64()[0].store(7, std::sync::atomic::Ordering::Relaxed);
    let file = std::fs::File::open("/proc/self/exe").expect("a file");
    for memfd in [unsealed.as_fd(), sparse.as_fd(), short.as_fd(), broken.as_fd(), file.as_fd()] {
        announce(&program_end, 7, memfd);
        send(&program_end, ID, b"a record");
        assert_eq!(take_all(&socket), Vec::<Bytes>::new());
        soon(socket.channel().readable()).await;
        assert_eq!(take_all(&socket), ["a record"], "the socket goes on");
        assert_eq!(socket.channel().shared_pages().field(StatusPage::RING_NUMBER_AT), 0);
    }
    // A record without memory is none of the shim's.
    send_only(&program_end, Kind::Ring);
    assert!(matches!(socket.channel().try_take(), Ok(Incoming::Malformed)));
}

#[tokio::test(flavor = "local")]
async fn a_program_that_fills_its_pair_without_end_ends_a_turn() {
    let joined = Joined::new().await;
    let channel = joined.socket.channel();
    let fill = || {
        while rustix::net::send(
            &joined.program_end,
            &Header::new(Kind::Filler).encode(),
            rustix::net::SendFlags::DONTWAIT,
        )
        .is_ok()
        {}
    };
    fill();
    let before = channel.daemon_end().waiting_bytes();
    let long = testing::header(ID, 100_000);
    let flags = long.flags.with(Flags::IN_MEMFD);
    put_record(&joined.socket, &Header { flags: flags.with(Flags::IN_TURN), ..long }, b"");
    // The message whose turn it is does not come: each attempt takes one record.
    for _ in 0..3 {
        assert!(matches!(channel.try_take(), Ok(Incoming::Filler)));
    }
    assert_eq!(before - channel.daemon_end().waiting_bytes(), 3 * 64);
    assert!(channel.discard() && channel.daemon_end().waiting_bytes() > 0, "the ring alone");
    // A note of a full ring makes the daemon discard some of them at once.
    put(&joined.socket, ID, b"a word");
    with_writer(&joined.socket, |ring| ring.request_notification());
    let before = channel.daemon_end().waiting_bytes();
    let taken = channel.try_take();
    assert!(matches!(taken, Ok(Incoming::Message(..))), "{taken:?}");
    assert_eq!(before - channel.daemon_end().waiting_bytes(), 8 * 64);
}

#[tokio::test(flavor = "local")]
async fn a_closed_socket_gives_its_share_back_beside_stuck_work() {
    let registry = registry();
    let (socket, program_end) = opened(&registry, Style::OneToMany);
    let user = registry.resources().users().user(socket.owner().user);
    let account = user.pages();
    assert!(account.charged_bytes() > 0);
    let (_end_it, ends) = mpsc::channel::<()>();
    socket.channel().daemon_end().closer().worker().run(move || ends.recv().unwrap_or_default());
    registry.forget(&socket);
    drop(program_end);
    until("another thread empties the pages", || account.charged_bytes() == 0).await;
}
