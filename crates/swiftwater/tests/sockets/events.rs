//! Events of an association, in their place among its messages.

use std::io;

use swiftwater::{Association, Event, LossKind, Options, PathChange, PathReason, Received, RecvError};

use crate::pair::{must_end, pair, pair_with};

fn pair_with_events() -> (Association, Association) {
    pair_with(&Options { events: true, ..Options::default() })
}

/// What the association tells next, as text: messages as they are, events by name.
fn told(association: &Association) -> String {
    match association.next() {
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
        let all: Vec<String> = (0..4).map(|_| told(&server)).collect();
        assert_eq!(all, ["Up", "SenderDry", "Down(None)", "end"]);
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
        let Ok(Some(Received::Event(Event::Down(Some(loss))))) = client.next() else { panic!("it is lost") };
        assert_eq!(loss.kind, LossKind::PeerAborted);
        assert!(loss.text.contains("out of tea"), "{loss}");
        assert_eq!(loss.cause, 12, "User-Initiated Abort");
        let error = client.next().unwrap_err();
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
        let address = client.statistics().paths[0].remote.ip();
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
        let address = client.statistics().paths[0].remote.ip();
        for _ in 0..10 {
            client.set_primary(address).unwrap();
        }
        assert_eq!(client.statistics().receive_buffered_bytes, 10 * 65);
        (0..11).for_each(|_| drop(told(&client)));
        assert_eq!(client.statistics().receive_buffered_bytes, 0);
    });
}
