//! Long messages in rings.

use channel_protocol::record::LONG_BYTES_MAX;

use super::*;
use crate::channel::blocked::NotPut;
use crate::channel::incoming::Incoming;
use crate::channel::putter::Putter;
use crate::users::budget::{Charge, cost_of};
use swiftwater::SendInfo;

/// Returns a socket whose program uses a long ring, and the ring.
async fn with_long_ring(registry: &Registry) -> (Rc<Socket>, OwnedFd, OfferedMapping) {
    let (socket, program_end) = opened(registry, Style::OneToOne);
    let ring = OfferedMapping::new("ring", ring::LONG_WORDS).expect("memory");
    announce(&program_end, 7, &ring);
    assert_eq!(take_all(&socket), Vec::<Bytes>::new());
    soon(socket.channel().readable()).await;
    assert_eq!(socket.channel().shared_pages().field(StatusPage::RING_NUMBER_AT), 7);
    send_only(&program_end, Kind::Wake);
    assert_eq!(take_all(&socket), Vec::<Bytes>::new());
    (socket, program_end, ring)
}

/// Charges the user of the socket with all memory for messages but so much.
fn leave(socket: &Socket, bytes: usize) -> Charge {
    let sent = socket.channel().accounts().sent();
    sent.charge_anyway(cost_of(sent.message_bytes_max()) - sent.charged_bytes() - bytes)
}

#[tokio::test(flavor = "local")]
async fn a_long_message_lies_in_the_ring_in_its_place() {
    let registry = registry();
    let (socket, program_end, ring) = with_long_ring(&registry).await;
    let put = |content: &[u8]| assert!(matches!(put_into(&ring, &socket, content), PutOutcome::Done { .. }));
    let long = vec![7; LONG_BYTES_MAX];
    put(b"before");
    put(&long);
    assert_eq!(put_into(&ring, &socket, b"after"), PutOutcome::Full, "a long message takes all room");
    send_only(&program_end, Kind::Filler);
    assert!(!ring_is_half_free(&socket), "it is not taken");
    for expected in [&b"before"[..], &long] {
        let Ok(Incoming::Message(_, content)) = socket.channel().try_take() else { panic!("no message") };
        assert!(content == expected, "{} bytes", content.len());
    }
    put(b"after");
    assert_eq!(take_all(&socket), ["after"]);
}

fn ring_is_half_free(socket: &Socket) -> bool {
    socket.channel().waiting_bytes() <= ring::ROOM_BYTES as u64 / 2
}

#[tokio::test(flavor = "local")]
async fn a_message_in_a_ring_is_no_longer_than_those_that_the_shim_puts_there() {
    let registry = registry();
    let (socket, _program_end, ring) = with_long_ring(&registry).await;
    put_into(&ring, &socket, &vec![7; LONG_BYTES_MAX + 1]);
    assert!(matches!(socket.channel().try_take(), Ok(Incoming::Malformed)));
}

#[tokio::test(flavor = "local")]
async fn a_long_message_in_the_ring_waits_for_as_much_memory_as_it_needs() {
    let registry = registry();
    let (socket, _program_end, ring) = with_long_ring(&registry).await;
    put_into(&ring, &socket, &[7; 500_000]);
    let channel = socket.channel();
    let others = leave(&socket, 500_000);
    assert!(matches!(channel.try_take(), Err(Errno::NOBUFS)));
    {
        let mut room = std::pin::pin!(channel.room());
        let mut context = Context::from_waker(Waker::noop());
        assert!(room.as_mut().poll(&mut context).is_pending(), "a short message would have room");
        drop(others);
        soon(room).await;
    }
    let Ok(Incoming::Message(_, content)) = channel.try_take() else { panic!("no message") };
    assert_eq!(channel.accounts().sent().charged_bytes(), cost_of(500_000));
    drop(content);
    assert_eq!(channel.accounts().sent().charged_bytes(), 0);
}

#[tokio::test(flavor = "local")]
async fn long_messages_for_the_program_lie_in_the_receive_ring() {
    let registry = registry();
    let (socket, program_end) = opened(&registry, Style::OneToOne);
    let mut putter = Putter::new(socket.channel());
    let mut put = |number: u8, bytes: usize| {
        let header = testing::header(ID, bytes);
        let content = vec![number; bytes];
        putter.try_put_bundle(header.record_bytes(), true, |bundle| {
            assert!(bundle.push(&header, [&content[..]]), "it fits");
            assert!(!bundle.push(&testing::header(ID, 1), [&[7][..]]), "it lies there alone");
        })
    };
    assert_eq!(put(1, 300_000), Ok(false), "there is no memory yet");
    socket.channel().daemon_end().ring_has_memory(HEADER_BYTES + LONG_BYTES_MAX).await;
    assert_eq!(put(1, LONG_BYTES_MAX), Ok(true));
    assert_eq!(put(2, LONG_BYTES_MAX), Err((NotPut::Blocked(Blocked::Ring), 1)));
    let read = || {
        let bundles = std::iter::from_fn(|| read_bundled(&socket, &program_end));
        bundles
            .filter(|record| record.len() > HEADER_BYTES)
            .map(|bundle| (bundle[HEADER_BYTES], bundle.len()))
    };
    assert_eq!(read().collect::<Vec<_>>(), [(1, HEADER_BYTES + LONG_BYTES_MAX)]);
    assert_eq!(put(2, LONG_BYTES_MAX), Ok(true));
    assert_eq!(read().collect::<Vec<_>>(), [(2, HEADER_BYTES + LONG_BYTES_MAX)]);
}

/// Content that says when nothing refers to it any more.
struct Followed {
    content: Vec<u8>,
    _kept: Arc<()>,
}

impl AsRef<[u8]> for Followed {
    fn as_ref(&self) -> &[u8] {
        &self.content
    }
}

#[tokio::test(flavor = "local")]
async fn a_message_that_waits_for_the_program_does_not_keep_the_memory_of_its_sender() {
    let joined = Joined::new().await;
    soon(joined.socket.channel().daemon_end().ring_has_memory(200_000)).await;
    let mut held = InboundQueue::default();
    let mut inbound = Inbound::new(&joined.socket, &joined.assoc, joined.association());
    joined.assoc.set_bounds_unread(false);
    let kept = Arc::new(());
    let content: Vec<u8> = (0..20_000).map(|at| (at / 7) as u8).collect();
    let followed = Followed { content: content.clone(), _kept: Arc::clone(&kept) };
    let info = SendInfo::default();
    soon(joined.peer.send_bytes(Bytes::from_owner(followed), &info)).await.expect("it is open");
    soon(joined.association().readable()).await.expect("it is open");
    joined.socket.channel().daemon_end().time().throttle_for(THROTTLE);
    let wait = inbound.step(&mut held, &mut |_| ());
    assert_eq!(wait, Some(InboundWait::Channel(Blocked::Throttled)));
    assert_eq!(Arc::strong_count(&kept), 2, "it was not copied");
    soon(held.wait_for_room(std::future::pending())).await;
    assert!(held.is_copy_due());
    soon(inbound.next_turn()).await;
    assert_eq!(inbound.step(&mut held, &mut |_| ()), wait);
    until("the send buffer has given it up, too", || Arc::strong_count(&kept) == 1).await;
    // What is copied once is not copied again.
    assert!(!held.is_copy_due());
    let place = held.items()[0].blocks()[0].as_ptr();
    assert!(
        tokio::time::timeout(Duration::from_millis(100), held.wait_for_room(std::future::pending()))
            .await
            .is_err()
    );
    assert!(!held.is_copy_due() && held.items()[0].blocks()[0].as_ptr() == place);
    assert_eq!(held.items().front().map(|item| item.blocks().concat()), Some(content));
    soon(held.wait_for_room(inbound.unblocked(Blocked::Throttled))).await;
    let read = read_after_steps(&joined, &mut inbound, &mut held).await;
    assert!(read[0].content.len() == 20_000 && read[0].has_end);
}

/// A message, or a part of one, as the program finds it.
struct Read {
    content: Vec<u8>,
    has_end: bool,
}

/// Steps until the program finds messages; returns them.
async fn read_after_steps(joined: &Joined, inbound: &mut Inbound<'_>, held: &mut InboundQueue) -> Vec<Read> {
    let mut found = Vec::new();
    while found.is_empty() {
        let wait = inbound.step(held, &mut |_| ());
        let bundles = std::iter::from_fn(|| read_bundled(&joined.socket, &joined.program_end));
        found.extend(bundles.filter_map(|record| {
            let (header, content) = Header::split(&record)?;
            let has_end = header.flags.contains(Flags::END);
            (header.kind == Kind::Data).then(|| Read { content: content.to_vec(), has_end })
        }));
        match wait {
            Some(InboundWait::Turn) => inbound.next_turn().await,
            Some(InboundWait::Channel(blocked)) => soon(inbound.unblocked(blocked)).await,
            _ if found.is_empty() => soon(joined.association().readable()).await.expect("it is open"),
            _ => {}
        }
    }
    found
}

#[tokio::test(flavor = "local")]
async fn a_long_message_of_a_peer_needs_no_memfd_once_the_ring_has_memory() {
    let joined = Joined::new().await;
    let channel = joined.socket.channel();
    soon(channel.daemon_end().ring_has_memory(200_000)).await;
    let mut held = InboundQueue::default();
    let mut inbound = Inbound::new(&joined.socket, &joined.assoc, joined.association());
    let content = vec![7; 100_000];
    // From now on the association keeps the room of long messages in its window.
    joined.assoc.set_bounds_unread(false);
    for _ in 0..10 {
        soon(joined.peer.send(&content)).await.expect("it is open");
        let found = read_after_steps(&joined, &mut inbound, &mut held).await;
        assert!(found.len() == 1 && found[0].has_end && found[0].content == content);
        assert_eq!(channel.accounts().unread().charged_bytes(), 0, "a memfd would be charged");
        let statistics = joined.association().statistics().expect("it is open");
        assert_eq!(statistics.receive_buffered_bytes, 0, "what lies in the ring needs no room in the window");
    }
}

#[tokio::test(flavor = "local")]
async fn the_parts_of_a_message_lie_in_the_receive_ring_and_nothing_comes_between_them() {
    let joined = Joined::new().await;
    let channel = joined.socket.channel();
    soon(channel.daemon_end().ring_has_memory(HEADER_BYTES + LONG_BYTES_MAX)).await;
    let mut held = InboundQueue::default();
    let mut inbound = Inbound::new(&joined.socket, &joined.assoc, joined.association());
    let content: Vec<u8> = (0..3 * LONG_BYTES_MAX).map(|at| (at / 7) as u8).collect();
    let other = testing::header(ID, 9);
    soon(joined.peer.send(&content)).await.expect("it is open");
    let (mut received, mut parts) = (Vec::new(), 0);
    let mut has_end = false;
    while !has_end {
        let found = read_after_steps(&joined, &mut inbound, &mut held).await;
        for read in found {
            assert!(!has_end, "nothing follows");
            (parts, has_end) = (parts + 1, read.has_end);
            received.extend(read.content);
        }
        assert_eq!(channel.accounts().unread().charged_bytes(), 0, "a memfd would be charged");
        let mut putter = Putter::new(channel);
        let between = putter.try_put_bundle(other.record_bytes(), true, |bundle| {
            assert!(bundle.push(&other, [&[0; 9][..]]));
        });
        let expected = if has_end { Ok(true) } else { Err((NotPut::Blocked(Blocked::Delivery), 1)) };
        assert_eq!(between, expected);
    }
    assert!(received == content && parts > 1, "{parts} parts");
}
