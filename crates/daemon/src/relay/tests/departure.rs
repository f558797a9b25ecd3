//! Tests of what is left when a program or a peer has gone.

use std::pin::pin;

use channel_protocol::sharers_page::SharersPage;
use swiftwater::RecvError;

use super::*;
use crate::relay::drain::take_batch;
use crate::relay::outbound::queue_source::QueueWait;

#[tokio::test(flavor = "local")]
async fn messages_behind_those_that_a_program_has_left_unread_are_not_taken() {
    for is_read in [false, true] {
        let Joined { _registry, socket, program_end, assoc, peer } = Joined::new().await;
        let channel = socket.channel();
        let association = assoc.stack_association().expect("it is up");
        let (mut held, mut ends) = (InboundQueue::default(), Vec::new());
        let mut inbound = Inbound::new(&socket, &assoc, association);
        peer.send(b"a word").await.expect("it is open");
        soon(association.readable()).await.expect("it is open");
        assert_eq!(inbound.step(&mut held, &mut |end| ends.push(end)), Some(InboundWait::Message));
        channel.shared_pages().write_as_sharer(SharersPage::DATA_TAKEN_AT, &[u32::from(is_read)]);
        drop(program_end);
        soon(channel.daemon_end().hung_up()).await;
        peer.send(b"another").await.expect("it is open");
        soon(association.readable()).await.expect("it is open");
        assert_eq!(inbound.step(&mut held, &mut |end| ends.push(end)), Some(InboundWait::Departure));
        {
            let mut left = pin!(inbound.left());
            let mut cx = Context::from_waker(Waker::noop());
            let mut is_over = left.as_mut().poll(&mut cx).is_ready();
            // The second reading of the page ends after the first.
            for _ in 0..2 {
                assert!(channel.read_page().await);
                is_over = is_over || left.as_mut().poll(&mut cx).is_ready();
            }
            assert_eq!(is_over, is_read);
        }
        if is_read {
            assert_eq!(
                inbound.step(&mut held, &mut |end| ends.push(end)),
                Some(InboundWait::Message),
                "discarded"
            );
        }
        assert_eq!(held.is_empty(), is_read);
    }
}

#[tokio::test(flavor = "local")]
async fn messages_for_an_association_that_has_ended_return_behind_its_end_and_with_its_cause() {
    let joined = Joined::new().await;
    joined.assoc.options_mut().subscribe(NotificationType::AssociationChange.subscription(), true);
    joined.assoc.options_mut().subscribe(NotificationType::SendFailedEvent.subscription(), true);
    let queue = SendQueue::new(joined.socket.channel().shared_pages(), None);
    let mut outbound = Outbound::from_queue(joined.ends(), &queue);
    joined.peer.abort("enough");
    soon(joined.association().closed()).await;
    assert!(queue.push(testing::header(ID, 6), Bytes::from_static(b"a word")));
    assert_eq!(outbound.step(), Ok(OutboundWait::Own(QueueWait::InboundDone)));
    assert!(read(&joined.program_end).is_none());
    let mut inbound = Inbound::new(&joined.socket, &joined.assoc, joined.association());
    let mut held = InboundQueue::default();
    while let Some(wait) = inbound.step(&mut held, &mut |_| ()) {
        assert_eq!(wait, InboundWait::Message);
        soon(joined.association().readable()).await.expect("it has ended");
    }
    joined.assoc.on_inbound_done();
    soon(joined.assoc.inbound_done()).await;
    assert_eq!(outbound.step(), Ok(OutboundWait::Message));
    let told: Vec<_> = std::iter::from_fn(|| read(&joined.program_end))
        .filter_map(|record| Header::split(&record).map(|(header, content)| (header.kind, content.to_vec())))
        .filter_map(|(kind, content)| (kind == Kind::Notification).then_some(content))
        .collect();
    let kinds: Vec<_> = told.iter().map(|content| u16::from_ne_bytes([content[0], content[1]])).collect();
    let [change, failed] = [NotificationType::AssociationChange, NotificationType::SendFailedEvent];
    assert_eq!(kinds, [change, change, failed].map(|kind| kind as u16), "up, lost, and then the message");
    let cause = u32::from_ne_bytes(told[2][8..12].try_into().expect("four bytes"));
    assert_eq!(cause, u32::from(notifications::USER_ABORT.to_be()));
}

#[tokio::test(flavor = "local")]
async fn the_reason_of_an_abort_passes_as_bytes() {
    const REASON: &[u8] = b"\x01\xff\x80\0";
    let aborts = Header { flags: Flags::END.with(Flags::ABORT), ..testing::header(ID, REASON.len()) };
    // From a queue of one association, and from the channel of many.
    for is_one_to_one in [true, false] {
        let joined = Joined::new().await;
        put_record(&joined.socket, &aborts, REASON);
        if is_one_to_one {
            joined.outbound().step().expect("the program has the socket");
        } else {
            let permit = joined._registry.admit_association(&joined.socket, 1).expect("the first");
            let options = joined.socket.future_options();
            let assoc = SocketAssociation::new(ID, ([127, 0, 0, 1], 7).into(), options);
            let assoc = joined.socket.enter(assoc, 10, permit);
            assoc.set_up(joined.association().clone());
            assert_eq!(take_batch(&joined.socket).records, 1);
        }
        let told = soon(joined.peer.recv()).await;
        let Err(RecvError::Lost(loss)) = &told else { panic!("{told:?}") };
        assert_eq!((loss.reason(), loss.cause), (Some(REASON), notifications::USER_ABORT));
    }
}

#[tokio::test(flavor = "local")]
async fn a_program_that_sends_without_pause_delays_the_end_of_its_content_no_further() {
    let joined = Joined::new().await;
    let mut outbound = joined.outbound();
    joined.peer.abort("enough");
    soon(joined.association().closed()).await;
    (0..2 * RECORDS_PER_TURN).for_each(|_| joined.send(b"earlier"));
    joined.assoc.on_inbound_done();
    let mut settled = pin!(joined.assoc.outbound_settled());
    let mut is_settled = || settled.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
    for _ in 0..2 {
        assert!(!is_settled(), "earlier messages are left");
        assert_eq!(outbound.step().expect("it is open"), OutboundWait::Turn);
        outbound.next_turn().await;
        (0..RECORDS_PER_TURN).for_each(|_| joined.send(b"later"));
    }
    assert_eq!(outbound.step().expect("it is open"), OutboundWait::Turn);
    assert!(is_settled());
    assert!(joined.socket.channel().waiting_bytes() > 0);
}
