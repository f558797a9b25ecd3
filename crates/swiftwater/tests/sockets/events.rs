//! Events of an association, in their place among its messages.

use std::io;

use swiftwater::{Association, Event, LossKind, Options, Received, RecvError};

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
        assert_eq!([told(&server), told(&server), told(&server)], ["Up", "Down(None)", "end"]);
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
        let error = client.next().unwrap_err();
        assert_eq!(error, RecvError::Lost(loss));
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::ConnectionReset);
    });
}
