//! Tests of a program that closes its socket and leaves messages unread.

use std::pin::pin;

use carrier::sharers_page::SharersPage;

use super::*;

#[tokio::test(flavor = "local")]
async fn messages_behind_those_that_a_program_has_left_unread_are_not_taken() {
    for is_read in [false, true] {
        let Joined { _registry, socket, program_end, assoc, peer } = Joined::new().await;
        let channel = &socket.channel;
        let association = assoc.association().expect("it is up");
        let (mut held, mut ends) = (Held::default(), Vec::new());
        let mut inbound = Inbound::new(&socket, &assoc, association);
        peer.send(b"a word").await.expect("it is open");
        soon(association.readable()).await.expect("it is open");
        assert_eq!(inbound.step(&mut held, &mut |end| ends.push(end)), Some(Wait::Message));
        channel.pages.write_as_sharer(SharersPage::DATA_TAKEN_AT, &[u32::from(is_read)]);
        drop(program_end);
        soon(channel.carrier().hung_up()).await;
        peer.send(b"another").await.expect("it is open");
        soon(association.readable()).await.expect("it is open");
        assert_eq!(inbound.step(&mut held, &mut |end| ends.push(end)), Some(Wait::Departure));
        {
            let mut left = pin!(inbound.left());
            let mut cx = Context::from_waker(Waker::noop());
            let mut is_over = left.as_mut().poll(&mut cx).is_ready();
            // The second reading of the page ends after the first.
            for _ in 0..2 {
                assert!(channel.endpoint.read_page().await);
                is_over = is_over || left.as_mut().poll(&mut cx).is_ready();
            }
            assert_eq!(is_over, is_read);
        }
        if is_read {
            assert_eq!(inbound.step(&mut held, &mut |end| ends.push(end)), Some(Wait::Message), "discarded");
        }
        assert_eq!(held.is_empty(), is_read);
    }
}
