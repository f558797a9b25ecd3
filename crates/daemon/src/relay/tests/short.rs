//! Tests of short messages, which pass together in both directions.

use channel_protocol::bundle;
use channel_protocol::record::SHARED_BYTES_MAX;

use super::*;
use crate::relay::outbound::pass_on;
use crate::state::association_options::Sending;
use crate::testing::{header, read_bundled};
use swiftwater::internals::{self, SHORT_BYTES_MAX};
use swiftwater::{RecvError, SendInfo};

/// Returns different content of each length.
fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 + bytes * 7) as u8).collect()
}

/// Returns the contents of the messages in a record, or in a bundle.
fn contents(record: &[u8]) -> Vec<Vec<u8>> {
    let content =
        |(at, header): (usize, Header)| record[at + HEADER_BYTES..][..header.bytes as usize].to_vec();
    bundle::messages(record).filter(|(_, header)| header.kind == Kind::Data).map(content).collect()
}

/// Receives the content of the next message.
async fn receive(peer: &Association) -> Vec<u8> {
    soon(peer.recv()).await.expect("it is open").expect("a message").to_vec()
}

/// Lengths of messages, some of them too long to pass with others.
const LENGTHS: [usize; 12] =
    [1, 16, SHORT_BYTES_MAX, SHORT_BYTES_MAX + 1, 64, 30_000, 3, SHORT_BYTES_MAX - 1, 100, 4096, 2047, 5];

#[tokio::test(flavor = "local")]
async fn short_messages_of_a_program_pass_among_others_in_their_order() {
    let joined = Joined::new().await;
    let mut outbound = joined.outbound();
    for bytes in LENGTHS {
        put(&joined.socket, ID, &content(bytes));
    }
    let named = Header { stream: 3, ppid: 9, flags: Flags::END.with(Flags::UNORDERED), ..header(ID, 5) };
    put_record(&joined.socket, &named, b"named");
    assert_eq!(past_turns(&mut outbound).await.expect("it is open"), OutboundWait::Message);
    for bytes in LENGTHS {
        assert_eq!(receive(&joined.peer).await, content(bytes));
    }
    let last = soon(joined.peer.recv()).await.expect("it is open").expect("a message");
    let info = last.info;
    assert_eq!((&last.to_vec()[..], info.stream, info.ppid, info.unordered), (&b"named"[..], 3, 9, true));
}

#[tokio::test(flavor = "local")]
async fn records_and_longer_messages_keep_their_place_among_short_messages() {
    let joined = Joined::new().await;
    let mut outbound = joined.outbound();
    let send_counted = |records_sent: u32, content: &[u8]| {
        let header = Header { sequence: Sequence::sent_after(records_sent), ..header(ID, content.len()) };
        let record = [&header.encode(), content].concat();
        rustix::net::send(&joined.program_end, &record, rustix::net::SendFlags::DONTWAIT).expect("room");
    };
    let put_counted = |records_sent: u32, content: &[u8]| {
        put_record(
            &joined.socket,
            &Header { sequence: Sequence::sent_after(records_sent), ..header(ID, content.len()) },
            content,
        );
    };
    put_counted(0, b"0");
    put_counted(0, b"1");
    send_counted(0, b"2");
    put_counted(1, b"3");
    put_counted(1, &content(50_000));
    put_counted(1, b"5");
    send_counted(1, b"6");
    put_counted(2, b"7");
    assert_eq!(past_turns(&mut outbound).await.expect("it is open"), OutboundWait::Message);
    let expected: [&[u8]; 8] = [b"0", b"1", b"2", b"3", &content(50_000), b"5", b"6", b"7"];
    for content in expected {
        assert!(receive(&joined.peer).await == content, "{:?}", &content[..1]);
    }
}

#[tokio::test(flavor = "local")]
async fn a_short_message_that_is_refused_keeps_no_other_back() {
    let joined = Joined::new().await;
    let mut outbound = joined.outbound();
    for (stream, content) in [(0, b"a"), (9_999, b"b"), (1, b"c")] {
        put_record(&joined.socket, &Header { stream, ..header(ID, 1) }, content);
    }
    assert_eq!(past_turns(&mut outbound).await.expect("it is open"), OutboundWait::Message);
    assert_eq!([receive(&joined.peer).await, receive(&joined.peer).await], [b"a", b"c"]);
}

#[tokio::test(flavor = "local")]
async fn a_turn_moves_so_many_short_messages_of_a_ring() {
    let joined = Joined::new().await;
    let mut outbound = joined.outbound();
    (0..=RECORDS_PER_TURN).for_each(|_| assert!(!put(&joined.socket, ID, b"a word")));
    assert_eq!(outbound.step().expect("it is open"), OutboundWait::Turn);
    let (channel, before) = (joined.socket.channel(), RECORDS_PER_TURN as u64);
    assert!(channel.waiting_bytes() > 0, "one is left");
    outbound.next_turn().await;
    assert_eq!(outbound.step().expect("it is open"), OutboundWait::Message);
    assert_eq!(joined._registry.busy_polling().records(), before + 1);
}

#[tokio::test(flavor = "local")]
async fn messages_of_several_kilobytes_end_a_turn_sooner() {
    let joined = Joined::new().await;
    let mut outbound = joined.outbound();
    let (message, messages) = (vec![7; SHORT_BYTES_MAX], BYTES_PER_TURN / SHORT_BYTES_MAX + 1);
    (0..=messages).for_each(|_| assert!(!put(&joined.socket, ID, &message)));
    assert_eq!(outbound.step().expect("it is open"), OutboundWait::Turn);
    let moved = joined._registry.busy_polling().records();
    assert!(moved <= messages as u64, "{moved} in a turn");
    assert_eq!(past_turns(&mut outbound).await.expect("it is open"), OutboundWait::Message);
}

#[tokio::test(flavor = "local")]
async fn short_messages_without_room_come_later_in_their_order() {
    let joined = Joined::new().await;
    let mut outbound = joined.outbound();
    let mut sent = 0;
    // The peer does not read.
    while past_turns(&mut outbound).await.expect("it is open") == OutboundWait::Message {
        for _ in 0..100 {
            let number = u32::to_be_bytes(sent);
            put(&joined.socket, ID, &[&number[..], &[7; 1000]].concat());
            sent += 1;
        }
    }
    let (mut received, mut waits) = (0, 0);
    while received < sent {
        match past_turns(&mut outbound).await.expect("it is open") {
            OutboundWait::Association => waits += 1,
            wait => assert_eq!(wait, OutboundWait::Message),
        }
        assert_eq!(receive(&joined.peer).await[..4], u32::to_be_bytes(received));
        received += 1;
    }
    assert!(waits > 0);
}

#[tokio::test(flavor = "local")]
async fn short_messages_of_a_peer_share_records_in_their_order() {
    let joined = Joined::new().await;
    let association = joined.association();
    let mut held = InboundQueue::default();
    let mut inbound = Inbound::new(&joined.socket, &joined.assoc, association);
    let mut expected: Vec<_> = LENGTHS.iter().map(|bytes| content(*bytes)).collect();
    // Together longer than a bundle.
    expected.extend((0..=SHARED_BYTES_MAX / 100).map(|number| content(100 + number % 8)));
    let sends = async {
        for message in &expected {
            joined.peer.send(message).await.expect("it is open");
        }
        joined.peer.flush();
    };
    soon(sends).await;
    let (mut received, mut records) = (Vec::new(), 0);
    loop {
        let wait = inbound.step(&mut held, &mut |_| ());
        while let Some(record) = read_bundled(&joined.socket, &joined.program_end) {
            assert!(record.len() <= SHARED_BYTES_MAX);
            received.extend(contents(&record));
            records += 1;
        }
        if received.len() >= expected.len() {
            break;
        }
        match wait {
            Some(InboundWait::Turn) => inbound.next_turn().await,
            Some(InboundWait::Channel(blocked)) => soon(inbound.unblocked(blocked)).await,
            Some(_) => soon(association.readable()).await.expect("it is open"),
            None => panic!("it has ended"),
        }
    }
    assert!(received == expected, "in their order");
    assert!(records < expected.len() / 10, "{records} records");
}

#[tokio::test(flavor = "local")]
async fn short_messages_wait_for_a_full_channel_and_none_is_lost_with_the_end_behind_them() {
    let joined = Joined::new().await;
    let association = joined.association();
    let (mut held, mut ends) = (InboundQueue::default(), Vec::new());
    let mut inbound = Inbound::new(&joined.socket, &joined.assoc, association);
    let (mut sent, mut received) = (0_u32, 0_u32);
    loop {
        for _ in 0..200 {
            joined.peer.send(&[&sent.to_be_bytes()[..], &[7; 200]].concat()).await.expect("it is open");
            sent += 1;
        }
        joined.peer.flush();
        match inbound.step(&mut held, &mut |end| ends.push(end)) {
            Some(InboundWait::Channel(Blocked::Full | Blocked::Ring)) => break,
            Some(InboundWait::Turn) => inbound.next_turn().await,
            wait => assert_eq!(wait, Some(InboundWait::Message)),
        }
    }
    assert!(!held.is_empty());
    let reads = async {
        loop {
            while let Some(record) = read_bundled(&joined.socket, &joined.program_end) {
                for content in contents(&record) {
                    assert_eq!(content[..4], received.to_be_bytes());
                    received += 1;
                }
            }
            match inbound.step(&mut held, &mut |end| ends.push(end)) {
                Some(InboundWait::Channel(blocked)) => inbound.unblocked(blocked).await,
                Some(InboundWait::Turn) => inbound.next_turn().await,
                Some(_) => association.readable().await.expect("it ends"),
                None => break,
            }
        }
    };
    let (_, shutdown) = soon(async { tokio::join!(reads, joined.peer.shutdown()) }).await;
    shutdown.expect("it is open");
    while let Some(record) = read_bundled(&joined.socket, &joined.program_end) {
        received += contents(&record).len() as u32;
    }
    assert_eq!((received, ends), (sent, vec![Ended::ByPeer]));
}

#[tokio::test(flavor = "local")]
async fn memory_that_was_waited_for_is_released_with_the_short_message() {
    let joined = Joined::new().await;
    let channel = joined.socket.channel();
    let account = Arc::clone(channel.accounts().sent());
    let mut outbound = joined.outbound();
    put(&joined.socket, ID, b"a word");
    let all = account.charge_anyway(Limits::default().user_memory_bytes);
    assert_eq!(
        past_turns(&mut outbound).await.expect("it is open"),
        OutboundWait::Own(ChannelWait::UserMemory)
    );
    drop(all);
    soon(channel.room()).await;
    assert!(account.charged_bytes() > 0, "it is reserved");
    assert_eq!(past_turns(&mut outbound).await.expect("it is open"), OutboundWait::Message);
    assert_eq!(receive(&joined.peer).await, b"a word");
    let is_released = || {
        joined.peer.flush();
        account.charged_bytes() == 0
    };
    until("the memory is released", is_released).await;
}

#[tokio::test(flavor = "local")]
async fn messages_that_wait_for_another_sender_are_charged() {
    let joined = Joined::new().await;
    let association = joined.association();
    let _delivery = Arc::clone(joined.socket.channel().delivery()).try_lock_owned().expect("it is free");
    let received = joined._registry.resources().users().received().account(1);
    for _ in 0..100 {
        joined.peer.send(&[7; 1000]).await.expect("it is open");
    }
    joined.peer.flush();
    let (mut held, mut inbound) =
        (InboundQueue::default(), Inbound::new(&joined.socket, &joined.assoc, association));
    let blocked = loop {
        match inbound.step(&mut held, &mut |_| ()) {
            Some(InboundWait::Channel(blocked)) => break blocked,
            _ => soon(association.readable()).await.expect("it is open"),
        }
    };
    assert_eq!(blocked, Blocked::Delivery);
    assert!(held.memory_bytes() > 1000 && received.charged_bytes() >= held.memory_bytes());
}

#[tokio::test(flavor = "local")]
async fn a_default_that_ends_the_association_counts_for_short_messages() {
    let joined = Joined::new().await;
    let mut outbound = joined.outbound();
    let sending = Sending { flags: channel_protocol::abi::SCTP_ABORT, ..Sending::default() };
    joined.assoc.options_mut().set_sending(sending);
    put_record(
        &joined.socket,
        &Header { flags: Flags::END.with(Flags::BY_DEFAULT), ..header(ID, 5) },
        b"named",
    );
    assert_eq!(past_turns(&mut outbound).await.expect("the program has the socket"), OutboundWait::Message);
    let told = soon(joined.peer.recv()).await;
    assert!(matches!(&told, Err(RecvError::Lost(loss)) if loss.information.ends_with(b"named")), "{told:?}");
}

#[tokio::test(flavor = "local")]
async fn a_longer_message_leaves_with_those_behind_it() {
    let joined = Joined::new().await;
    let association = joined.association();
    let packets_sent = || association.statistics().expect("it is open").packets_sent;
    let before = packets_sent();
    pass_on(joined.ends(), &header(ID, 4_000), &mut content(4_000).into()).expect("room");
    assert_eq!(packets_sent(), before, "others may follow");
    internals::flush_due(association);
    assert_eq!(packets_sent(), before + 1);
    assert_eq!(receive(&joined.peer).await, content(4_000));
}

#[tokio::test(flavor = "local")]
async fn messages_of_some_kilobytes_leave_with_those_behind_them_or_in_a_full_packet() {
    let joined = Joined::new().await;
    let association = joined.association();
    let packets_sent = || association.statistics().expect("it is open").packets_sent;
    let (before, message) = (packets_sent(), content(4_000));
    let sends = |messages: usize| {
        let info = SendInfo::default();
        internals::send_short_no_poll(association, |sender| {
            (0..messages).all(|_| sender.send(&message, &info))
        })
    };
    assert_eq!(sends(1), Some(true));
    assert_eq!(packets_sent(), before, "others may follow");
    internals::flush_due(association);
    assert_eq!(packets_sent(), before + 1, "nothing was outstanding");
    assert_eq!(receive(&joined.peer).await, message);
    let sent = packets_sent();
    assert_eq!(sends(60), Some(true));
    assert!(packets_sent() > sent, "a packet is full");
    association.flush();
    for _ in 0..60 {
        assert_eq!(receive(&joined.peer).await, message);
    }
}
