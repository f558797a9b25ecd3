//! Events of an association, in order with its messages.

use std::io;
use std::thread;
use std::time::Duration;

use swiftwater::internals::{self, Taken};
use swiftwater::{
    Association, AssociationOptions, Event, LossKind, PathChange, PathReason, Received, RecvError, SendInfo,
};

use crate::pair::{assert_pattern, for_tasks, listen_with, must_end, pair, pair_with, pattern, recv_whole};

fn pair_with_events() -> (Association, Association) {
    pair_with(&AssociationOptions::default().with_events(true).into())
}

/// Returns the association's next message or event as text: the content of a message, the name of an event.
fn told(association: &Association) -> String {
    match association.recv_any() {
        Ok(Some(Received::Message(message))) => String::from_utf8(message.to_vec()).unwrap(),
        Ok(Some(Received::Event(event))) => format!("{event:?}"),
        Ok(None) => "end".into(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn come_in_order_with_the_messages() {
    must_end(|| {
        let (client, server) = pair_with_events();
        server.send(b"one").unwrap();
        server.send(b"two").unwrap();
        server.shutdown().unwrap();
        let all: Vec<String> = (0..6).map(|_| told(&client)).collect();
        assert_eq!(all, ["Up", "one", "two", "PeerShutdown", "Down(None)", "end"]);
        let mut all = vec![told(&server)];
        while all.last().is_some_and(|last| last != "end") {
            all.push(told(&server));
        }
        // The first message may be acknowledged before the second one leaves.
        all.dedup();
        assert_eq!(all, ["Up", "SenderDry", "Down(None)", "end"]);
    });
}

#[test]
fn come_from_an_association_that_has_ended_before_it_was_accepted() {
    must_end(|| {
        let listener = listen_with(&AssociationOptions::default().with_events(true).into());
        let client = Association::connect(listener.address()).unwrap();
        client.send(b"one").unwrap();
        client.close().unwrap();
        assert!(internals::await_end(&listener.stack(), Duration::MAX), "the server has the last packet");
        let (server, _) = listener.accept().unwrap();
        let all: Vec<String> = (0..5).map(|_| told(&server)).collect();
        assert_eq!(all, ["Up", "one", "PeerShutdown", "Down(None)", "end"]);
    });
}

#[test]
fn do_not_hinder_those_who_want_none() {
    must_end(|| {
        let (client, server) = pair_with_events();
        server.send(b"one").unwrap();
        server.shutdown().unwrap();
        assert_eq!(client.recv().unwrap().unwrap().to_vec(), b"one");
        assert!(client.recv().unwrap().is_none());

        let (client, server) = pair();
        server.send(b"one").unwrap();
        server.shutdown().unwrap();
        assert_eq!([told(&client), told(&client), told(&client)], ["one", "end", "end"]);
    });
}

#[test]
fn say_how_an_association_was_lost() {
    must_end(|| {
        let (client, server) = pair_with_events();
        server.abort("out of tea");
        assert_eq!(told(&client), "Up");
        let Ok(Some(Received::Event(Event::Down(Some(loss))))) = client.recv_any() else {
            panic!("it is lost")
        };
        assert_eq!(loss.kind, LossKind::PeerAborted);
        assert!(loss.text.contains("out of tea"), "{loss}");
        assert_eq!(loss.cause, 12, "User-Initiated Abort");
        assert_eq!(loss.information, &b"\0\x0c\0\x0eout of tea"[..]);
        let error = client.recv_any().unwrap_err();
        assert_eq!(error, RecvError::Lost(loss));
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::ConnectionReset);
    });
}

#[test]
fn tell_that_all_was_acknowledged_and_which_path_is_the_primary_one() {
    must_end(|| {
        let (client, server) = pair_with_events();
        client.send(b"one").unwrap();
        assert_eq!([told(&client), told(&client)], ["Up", "SenderDry"]);
        let address = client.statistics().unwrap().paths[0].remote.ip();
        client.set_primary(address).unwrap();
        let (change, reason) = (PathChange::MadePrimary, PathReason::Requested);
        assert_eq!(told(&client), format!("{:?}", Event::PathChanged { address, change, reason }));
        assert_eq!([told(&server), told(&server)], ["Up", "one"]);
    });
}

#[test]
fn take_room_of_the_receive_buffer_until_they_are_read() {
    must_end(|| {
        let (client, _server) = pair_with_events();
        let address = client.statistics().unwrap().paths[0].remote.ip();
        for _ in 0..10 {
            client.set_primary(address).unwrap();
        }
        assert_eq!(client.statistics().unwrap().receive_buffered_bytes, 10 * 97);
        (0..11).for_each(|_| drop(told(&client)));
        assert_eq!(client.statistics().unwrap().receive_buffered_bytes, 0);
    });
}

/// Returns a client, and a server with a receive buffer of 64 KB.
fn pair_with_small_window() -> (Association, Association) {
    pair_with(
        &AssociationOptions::default()
            .with_events(true)
            .with_receive_buffer_bytes(64 << 10)
            .with_receive_buffer_bytes_max(0)
            .into(),
    )
}

#[test]
fn bring_back_what_was_not_delivered() {
    must_end(|| {
        let (client, server) = pair_with_small_window();
        for context in 0..100 {
            client
                .send_with(&pattern(7, 5000), &SendInfo { context, ppid: 3, ..SendInfo::default() })
                .unwrap();
        }
        server.abort("out of tea");
        let mut failed: Vec<(SendInfo, Vec<u8>)> = Vec::new();
        let mut lost = None;
        let error = loop {
            match client.recv_any() {
                Ok(Some(Received::Event(Event::Up | Event::SenderDry))) => assert_eq!(lost, None),
                Ok(Some(Received::Event(Event::Down(loss)))) => lost = loss,
                Ok(Some(Received::Event(Event::SendFailed { info, data, beginning, cause, .. }))) => {
                    assert_eq!(cause, 12, "User-Initiated Abort");
                    match failed.last_mut() {
                        Some(last) if !beginning && last.0 == info => last.1.extend_from_slice(&data),
                        _ => failed.push((info, data.to_vec())),
                    }
                }
                Err(error) => break error,
                other => panic!("{other:?}"),
            }
        };
        let loss = lost.expect("the loss comes first");
        assert_eq!(loss.kind, LossKind::PeerAborted);
        assert_eq!(error, RecvError::Lost(loss));
        assert!(failed.len() > 50, "the server has received at most 64 KB");
        // A part of the first one may have arrived.
        for (context, (info, data)) in (0..100).rev().zip(failed.iter().skip(1).rev()) {
            assert_eq!(*info, SendInfo { context, ppid: 3, ..SendInfo::default() });
            assert_pattern(7, 5000, data);
        }
    });
}

#[test]
fn bring_back_very_many_messages_to_a_reader_of_runs() {
    const MANY: u32 = 500;
    must_end(|| {
        let (client, server) = pair_with_small_window();
        assert_eq!(told(&client), "Up");
        for context in 0..MANY {
            client.send_with(&pattern(7, 1000), &SendInfo { context, ..SendInfo::default() }).unwrap();
        }
        server.abort("out of tea");
        let (mut contexts, mut is_lost) = (Vec::new(), false);
        loop {
            // Between the steps, the stream is empty although its association is lost.
            match internals::recv_run_no_poll(&for_tasks(&client)) {
                Ok(Some(Taken::One(Received::Event(Event::Down(Some(_)))))) => is_lost = true,
                Ok(Some(Taken::One(Received::Event(Event::SendFailed { info, .. })))) => {
                    assert!(is_lost);
                    contexts.push(info.context);
                }
                Ok(Some(_)) => {}
                Err(RecvError::WouldBlock) => thread::yield_now(),
                Err(RecvError::Lost(_)) => break,
                other => panic!("{other:?}"),
            }
        }
        let first = contexts[0];
        assert!(contexts.len() > 128, "more than two steps");
        assert_eq!(contexts, (first..MANY).collect::<Vec<_>>());
    });
}

#[test]
fn tell_of_a_message_that_was_not_sent_in_its_lifetime() {
    must_end(|| {
        let (client, server) = pair_with_small_window();
        assert_eq!(told(&client), "Up");
        client.send(&pattern(1, 300_000)).unwrap();
        let lifetime = Duration::from_millis(5);
        let mortal = SendInfo { lifetime: Some(lifetime.into()), context: 9, ..SendInfo::default() };
        client.send_with(b"too late", &mortal).unwrap();
        client.send(b"in time").unwrap();
        // The server reads nothing, so the first message is not complete before that.
        assert_eq!(client.recv_timeout(2 * lifetime).unwrap_err(), RecvError::TimedOut);
        assert_pattern(1, 300_000, &recv_whole(&server).unwrap());
        assert_eq!(recv_whole(&server).unwrap(), b"in time");
        let Some(Received::Event(Event::SendFailed { info, data, was_sent, .. })) =
            client.recv_any().unwrap()
        else {
            panic!("it was not sent")
        };
        assert_eq!((info.context, &data[..], was_sent), (9, &b"too late"[..], false));
        assert_eq!(told(&client), "SenderDry");
    });
}

#[test]
fn tell_of_a_record_that_has_no_end() {
    must_end(|| {
        let (client, server) = pair_with_events();
        client.send_with(b"begun", &SendInfo { more: true, stream: 2, ..SendInfo::default() }).unwrap();
        client.flush();
        assert_eq!([told(&server), told(&server)], ["Up", "begun"]);
        client.abort("");
        assert_eq!(told(&server), "PartialDeliveryAborted { stream: 2, ssn: 0 }");
        assert!(told(&server).starts_with("Down"));
    });
}

#[test]
fn tell_what_the_peer_says_of_the_layer_above() {
    must_end(|| {
        let options = AssociationOptions::default().with_events(true).with_adaptation_indication(42).into();
        let (client, server) = pair_with(&options);
        for association in [client, server] {
            assert_eq!([told(&association), told(&association)], ["Up", "AdaptationIndication(42)"]);
        }
    });
}
