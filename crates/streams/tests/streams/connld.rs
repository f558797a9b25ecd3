//! Connections to a service over a pipe: `connld(7)` of SVR4.2.

use std::time::Instant;

use streams::drivers::{Nuls, Pipe};
use streams::modules;
use streams::{Credentials, DriverId, Errno, Executive, OpenError, ReadError, SendInfo, StreamId, Which};

use crate::support::{epoch, text};

const SERVER: Credentials = Credentials { uid: 5, gid: 5 };
const CLIENT: Credentials = Credentials { uid: 1000, gid: 1000 };

/// Returns a service: its end of the pipe, and the minor device of the end that clients open.
fn service() -> (Executive, DriverId, StreamId, u32) {
    let mut executive = Executive::new(Instant::now());
    modules::add_all(&mut executive);
    let driver = executive.add_driver("pipe", Box::new(Pipe::default()));
    let server = executive.open_minor(driver, None, SERVER).unwrap();
    let entry = executive.open_minor(driver, None, SERVER).unwrap();
    executive.driver_state(driver, |pipe: &mut Pipe| pipe.join(server, entry)).unwrap().unwrap();
    executive.push_named(entry, "connld", &[]).unwrap();
    let minor = executive.minor_of(entry).unwrap();
    (executive, driver, server, minor)
}

fn write(executive: &mut Executive, s: StreamId, text: &str) {
    executive.write(s, Which::Only, SendInfo::default(), text.as_bytes(), Instant::now).unwrap();
    executive.at(epoch()).run();
}

/// "Each open makes a pipe; one end is the opener's, the other is passed to the server", which learns the user (`strrecvfd`).
#[test]
fn each_open_is_a_connection_of_its_own() {
    let (mut executive, driver, server, minor) = service();
    let other_client = Credentials { uid: 1001, gid: 1001 };
    let clients = [CLIENT, other_client].map(|user| executive.open_minor(driver, Some(minor), user).unwrap());
    assert_ne!(clients[0], clients[1]);
    for (client, user) in clients.into_iter().zip([CLIENT, other_client]) {
        let passed = executive.recv_passed(server).unwrap().unwrap();
        assert_eq!(passed.credentials, user);
        let end = passed.stream.unwrap();
        write(&mut executive, client, "question");
        assert_eq!(text(&executive.getmsg(end).unwrap().unwrap()), "question");
        write(&mut executive, end, "answer");
        assert_eq!(text(&executive.getmsg(client).unwrap().unwrap()), "answer");
        assert!(executive.may_control(end, &SERVER) && !executive.may_control(end, &user));
        executive.at(epoch()).close(client);
        assert_eq!(executive.getmsg(end), Err(ReadError::HungUp));
    }
    assert_eq!(executive.recv_passed(server), Ok(None));
}

/// Without the module the stream is its owner's, as before.
#[test]
fn an_open_shares_the_stream_once_the_module_is_popped() {
    let (mut executive, driver, _, minor) = service();
    let entry = executive.streams().find(|s| executive.minor_of(*s) == Some(minor)).unwrap();
    executive.pop(entry).unwrap();
    assert_eq!(executive.open_minor(driver, Some(minor), CLIENT), Err(OpenError::NotOwner));
    assert_eq!(executive.open_minor(driver, Some(minor), SERVER), Ok(entry));
}

/// "ENXIO: nobody is at the other end", or the stream is no pipe.
#[test]
fn an_open_fails_where_no_server_is() {
    let (mut executive, driver, server, minor) = service();
    executive.at(epoch()).close(server);
    let refused = Err(OpenError::Driver(Errno::ENXIO));
    assert_eq!(executive.open_minor(driver, Some(minor), CLIENT), refused);
    let nuls = executive.add_driver("nuls", Box::new(Nuls));
    let s = executive.open_minor(nuls, Some(1), SERVER).unwrap();
    executive.push_named(s, "connld", &[]).unwrap();
    assert_eq!(executive.open_minor(nuls, Some(1), CLIENT), refused);
}

/// A server that does not receive them holds up new connections, and leaves none behind.
#[test]
fn connections_wait_for_their_server_in_bounded_number_and_end_with_it() {
    let (mut executive, driver, server, minor) = service();
    let before = executive.streams().count();
    let mut clients = Vec::new();
    let refused = loop {
        match executive.open_minor(driver, Some(minor), CLIENT) {
            Ok(client) => clients.push(client),
            Err(error) => break error,
        }
    };
    assert_eq!((clients.len(), refused), (128, OpenError::Driver(Errno::EAGAIN)));
    let received = executive.recv_passed(server).unwrap().unwrap().stream.unwrap();
    assert!(executive.open_minor(driver, Some(minor), CLIENT).is_ok(), "one has left");
    executive.at(epoch()).close(server);
    assert!(executive.is_open(received), "it is the server's own");
    assert_eq!(executive.getmsg(clients[1]), Err(ReadError::HungUp));
    executive.at(epoch()).close(received);
    // Clients have 129 ends, and the service had one that is closed.
    assert_eq!(executive.streams().count(), before - 1 + 129);
}
