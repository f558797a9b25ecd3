//! The order of messages that programs send as records and through the ring of another program.

use super::*;

/// Sends a message as a record whose sender has read this count of records.
fn send_counted(joined: &Joined, records_sent: u32, content: &[u8]) {
    let header =
        Header { sequence: Sequence::sent_after(records_sent), ..testing::header(ID, content.len()) };
    let record = [&header.encode(), content].concat();
    rustix::net::send(&joined.program_end, &record, rustix::net::SendFlags::DONTWAIT).expect("room");
}

/// Puts a message into the ring whose sender has read this count of records.
fn put_counted(joined: &Joined, records_sent: u32, content: &[u8]) {
    let header =
        Header { sequence: Sequence::sent_after(records_sent), ..testing::header(ID, content.len()) };
    put_record(&joined.socket, &header, content);
}

/// Takes all messages.
fn taken(joined: &Joined) -> Vec<String> {
    let take = || match joined.socket.channel().try_take() {
        Ok(Incoming::Message(_, content)) => Some(String::from_utf8_lossy(&content).into_owned()),
        Err(Errno::AGAIN) => None,
        other => panic!("{other:?}"),
    };
    std::iter::from_fn(take).collect()
}

#[tokio::test(flavor = "local")]
async fn a_record_that_was_never_counted_changes_no_order() {
    let joined = Joined::new().await;
    send_counted(&joined, 0, b"of the dead");
    assert_eq!(taken(&joined), ["of the dead"]);
    for n in 0..3 {
        send_counted(&joined, n, b"first");
        put_counted(&joined, n + 1, b"second");
        assert_eq!(taken(&joined), ["first", "second"]);
    }
}

#[tokio::test(flavor = "local")]
async fn a_record_that_is_sent_after_a_message_in_the_ring_stays_behind_it() {
    let joined = Joined::new().await;
    // The count wraps.
    for n in [0, u32::MAX - 1] {
        send_counted(&joined, n, b"1");
        send_counted(&joined, n, b"2");
        put_counted(&joined, n.wrapping_add(2), b"3");
        put_counted(&joined, n.wrapping_add(2), b"4");
        send_counted(&joined, n.wrapping_add(2), b"5");
        put_counted(&joined, n.wrapping_add(3), b"6");
        send_counted(&joined, n.wrapping_add(3), b"7");
        assert_eq!(taken(&joined), ["1", "2", "3", "4", "5", "6", "7"]);
    }
}

/// The send of the record has begun before the message in the ring, and ends after it.
#[tokio::test(flavor = "local")]
async fn a_record_that_comes_late_precedes_the_next_message_in_the_ring() {
    let joined = Joined::new().await;
    send_counted(&joined, 0, b"1");
    put_counted(&joined, 1, b"2");
    assert_eq!(taken(&joined), ["1", "2"]);
    put_counted(&joined, 1, b"3");
    assert_eq!(taken(&joined), ["3"]);
    send_counted(&joined, 0, b"4");
    put_counted(&joined, 2, b"5");
    assert_eq!(taken(&joined), ["4", "5"]);
}

#[tokio::test(flavor = "local")]
async fn a_false_count_does_no_lasting_harm() {
    let joined = Joined::new().await;
    for count in [1 << 31, u32::MAX, 77] {
        put_counted(&joined, count, b"of a liar");
        send_counted(&joined, count, b"of a liar");
        assert_eq!(taken(&joined), ["of a liar", "of a liar"]);
        send_counted(&joined, 0, b"first");
        put_counted(&joined, 1, b"second");
        assert_eq!(taken(&joined), ["first", "second"]);
    }
}

/// A message past the shim has no count, and a record of the shim that is no message does not matter.
#[tokio::test(flavor = "local")]
async fn other_records_in_front_are_taken_on_the_way() {
    let joined = Joined::new().await;
    rustix::net::send(&joined.program_end, b"written", rustix::net::SendFlags::DONTWAIT).expect("room");
    let filler = Header::new(Kind::Filler).encode();
    rustix::net::send(&joined.program_end, &filler, rustix::net::SendFlags::DONTWAIT).expect("room");
    send_counted(&joined, 0, b"first");
    put_counted(&joined, 1, b"second");
    let channel = joined.socket.channel();
    assert!(matches!(channel.try_take(), Ok(Incoming::Message(..))));
    assert!(matches!(channel.try_take(), Ok(Incoming::Filler)));
    assert_eq!(taken(&joined), ["first", "second"]);
}

/// A program that has sent records before it had a ring fills the ring before the daemon looks there for the first time.
#[tokio::test(flavor = "local")]
async fn a_filler_without_an_earlier_record_behind_it_stays_while_the_ring_is_full() {
    let joined = Joined::new().await;
    let filler = Header { sequence: Sequence::sent_after(40), ..Header::new(Kind::Filler) }.encode();
    rustix::net::send(&joined.program_end, &filler, rustix::net::SendFlags::DONTWAIT).expect("room");
    put_counted(&joined, 40, b"first");
    fill_half(&joined.socket);
    let channel = joined.socket.channel();
    assert!(matches!(channel.try_take(), Ok(Incoming::Message(..))));
    assert_eq!(channel.daemon_end().waiting_bytes(), filler.len() as u64);
}
