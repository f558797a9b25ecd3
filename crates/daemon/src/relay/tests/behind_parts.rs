//! Tests of notifications on their way to the program.

use super::*;

/// Reads all messages and notifications; returns the kind of each, and whether it is complete or the end of a message. Equal ones
/// that follow one another count as one.
fn kinds_read(joined: &Joined) -> Vec<(Kind, bool)> {
    let records = std::iter::from_fn(|| read_bundled(&joined.socket, &joined.program_end));
    let headers = records.filter_map(|record| Header::parse(&record));
    let of_content = headers.filter(|header| matches!(header.kind, Kind::Data | Kind::Notification));
    let mut kinds: Vec<_> =
        of_content.map(|header| (header.kind, header.flags.contains(Flags::END))).collect();
    kinds.dedup();
    kinds
}

/// Returns a message of the peer in two parts, as they go to the program.
async fn in_parts(joined: &Joined) -> [ToProgram; 2] {
    let mut parts = Vec::new();
    for (content, more) in [("a part", true), ("the end", false)] {
        joined.peer.send(content.as_bytes()).await.expect("it is open");
        let received = soon(joined.association().recv()).await.expect("it is open");
        let mut message = received.expect("a message");
        message.info.more = more;
        parts.push(batching::to_program(&joined.assoc, message));
    }
    parts.try_into().expect("two")
}

#[tokio::test(flavor = "local")]
async fn notifications_wait_for_the_end_of_a_message_that_comes_in_parts() {
    let notification = (Kind::Notification, true);
    for aborts in [false, true] {
        let joined = Joined::new().await;
        for kind in [NotificationType::SenderDry, NotificationType::AssociationChange] {
            joined.assoc.options_mut().subscribe(kind.subscription(), true);
        }
        let mut held = InboundQueue::default();
        let mut inbound = Inbound::new(&joined.socket, &joined.assoc, joined.association());
        let [part, end] = in_parts(&joined).await;
        held.push(part);
        joined.association().send(b"a word").await.expect("it is open");
        until("it is acknowledged", || joined.assoc.is_dry()).await;
        inbound.step(&mut held, &mut |_| ());
        assert_eq!(kinds_read(&joined), [(Kind::Data, false)]);
        if aborts {
            joined.peer.abort("it ends");
            until("the end", || joined.assoc.has_ended()).await;
        } else {
            held.push(end);
        }
        inbound.step(&mut held, &mut |_| ());
        let expected = [(Kind::Data, true), notification];
        assert_eq!(kinds_read(&joined), expected[usize::from(aborts)..], "the peer aborts: {aborts}");
    }
}

#[tokio::test(flavor = "local")]
async fn notifications_without_memory_come_in_the_middle_of_a_message() {
    let joined = Joined::new().await;
    let channel = joined.socket.channel();
    let [part, _end] = in_parts(&joined).await;
    let mut held = InboundQueue::default();
    held.push(part);
    let mut left = |bytes: usize, has_memory: bool| {
        let header = Header { kind: Kind::Notification, ..testing::header(ID, bytes) };
        let notification = ToProgram::Notification(header, vec![0; bytes].into());
        let charge = |bytes| if has_memory { channel.charge_notification(bytes) } else { None };
        held.push_notification(notification, charge);
        held.items().len()
    };
    let most = 64 * 1024;
    let lefts = [left(1, true), left(1, false), left(1, true), left(most, true), left(1, true)];
    assert_eq!(lefts, [1, 3, 3, 5, 5]);
    // Those that have waited are in front of the one that finds no memory.
    let bytes: Vec<_> = held.items().iter().map(|item| item.header().bytes as usize).collect();
    assert_eq!(bytes[1..], [1, 1, 1, most]);
}

#[tokio::test(flavor = "local")]
async fn notifications_that_have_waited_go_up_in_turns() {
    let joined = Joined::new().await;
    let mut held = InboundQueue::default();
    let mut inbound = Inbound::new(&joined.socket, &joined.assoc, joined.association());
    for _ in 0..2 * RECORDS_PER_TURN {
        let header = Header { kind: Kind::Notification, ..testing::header(ID, 1) };
        held.push(ToProgram::Notification(header, Bytes::from_static(b"7")));
    }
    let mut all = 0;
    while all < 2 * RECORDS_PER_TURN {
        let wait = inbound.step(&mut held, &mut |_| ());
        let records = std::iter::from_fn(|| read_bundled(&joined.socket, &joined.program_end));
        let kinds = records.filter_map(|record| Header::parse(&record).map(|header| header.kind));
        let read = kinds.filter(|kind| *kind == Kind::Notification).count();
        assert!(read <= RECORDS_PER_TURN, "{read} in a step");
        all += read;
        match wait {
            Some(InboundWait::Turn) => soon(inbound.next_turn()).await,
            Some(InboundWait::Channel(blocked)) => soon(inbound.unblocked(blocked)).await,
            _ => assert_eq!(all, 2 * RECORDS_PER_TURN),
        }
    }
}
