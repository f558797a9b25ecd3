//! Streams that listen, several at once (TPI 2.0, T_BIND_REQ with CONIND_number, T_CONN_IND, T_CONN_RES; XTI, t_bind with qlen,
//! t_accept).

use std::sync::Arc;
use std::time::Duration;

use providers::SctpDriver;
use sctp::{AssociationConfig, ReceivePool};

use crate::rig::{PORT, Rig, bind, connect, disconnect, release};
use streams::{Errno, ReadError, StreamId};
use tpi::{Primitive, PrimitiveCode, State, TError};

/// Longer than a peer waits before it repeats its COOKIE ECHO for the first time.
const REPEATED: Duration = Duration::from_secs(4);

fn refused(primitive: PrimitiveCode, t_error: TError) -> Primitive {
    Primitive::ErrorAck { primitive, t_error, errno: Errno(0) }
}

fn ok(primitive: PrimitiveCode) -> Primitive {
    Primitive::OkAck { primitive }
}

/// Returns a stream that has asked for a connection to this port.
fn connecting_to(rig: &mut Rig, port: u16) -> StreamId {
    let s = rig.bound(0, 0);
    assert_eq!(rig.ask(s, &connect(port)), ok(PrimitiveCode::ConnReq));
    rig.exchange_until_idle();
    s
}

/// Accepts a connection on a stream.
fn accept(rig: &mut Rig, listener: StreamId, sequence: u32, on: StreamId) {
    let acceptor = rig.acceptor(on);
    let answer = rig.ask(listener, &Primitive::ConnRes { sequence, acceptor });
    assert_eq!(answer, ok(PrimitiveCode::ConnRes));
}

/// Returns the local port of a stream, by T_ADDR_REQ.
fn port_of(rig: &mut Rig, s: StreamId) -> u16 {
    match rig.ask(s, &Primitive::AddrReq) {
        Primitive::AddrAck { local, .. } => local.list[0].port(),
        other => panic!("{other:?}"),
    }
}

fn is_refused(rig: &mut Rig, client: StreamId) -> bool {
    matches!(rig.take(client), Some((Primitive::DisconInd { .. }, _)))
}

/// t_bind: any number of endpoints may have one address, but only one with a qlen above 0; TADDRBUSY for a second one.
#[test]
fn one_stream_listens_at_an_address_and_others_are_bound_to_it() {
    let mut rig = Rig::new();
    rig.bound(PORT, 0);
    let listener = rig.bound(PORT, 3);
    rig.bound(PORT, 0);
    let second = rig.open();
    assert_eq!(rig.ask(second, &bind(PORT, 1)), refused(PrimitiveCode::BindReq, TError::AddressBusy));
    assert_eq!(rig.ask(listener, &Primitive::UnbindReq), ok(PrimitiveCode::UnbindReq));
    let answer = rig.ask(second, &bind(PORT, 1));
    assert!(matches!(answer, Primitive::BindAck { backlog: 1, .. }), "the address is free: {answer:?}");
}

/// T_CONN_IND: each listener is told of the connections to its own address; sequence numbers are those of one listener.
#[test]
fn each_listener_has_its_own_indications() {
    let mut rig = Rig::new();
    let listeners = [PORT, PORT + 1, PORT + 2].map(|port| rig.bound(port, 5));
    let clients = [PORT + 2, PORT, PORT + 1].map(|port| connecting_to(&mut rig, port));
    let sequences = listeners.map(|listener| rig.indication(listener));
    for listener in listeners {
        assert_eq!(rig.take(listener), None, "one connection for each");
    }
    for (other, listener) in [(sequences[1], listeners[0]), (sequences[0], listeners[2])] {
        let fresh = rig.open();
        let acceptor = rig.acceptor(fresh);
        let answer = rig.ask(listener, &Primitive::ConnRes { sequence: other, acceptor });
        assert_eq!(answer, refused(PrimitiveCode::ConnRes, TError::BadSequence), "another listener's");
        let answer = rig.ask(listener, &disconnect(other));
        assert_eq!(answer, refused(PrimitiveCode::DisconReq, TError::BadSequence));
    }
    for ((listener, sequence), client) in
        listeners.into_iter().zip(sequences).zip([clients[1], clients[2], clients[0]])
    {
        let server = rig.open();
        accept(&mut rig, listener, sequence, server);
        assert_eq!((rig.state(listener), rig.state(server)), (State::Idle, State::DataTransfer));
        assert_eq!(
            port_of(&mut rig, server),
            port_of(&mut rig, listener),
            "an accepted connection has the address"
        );
        rig.put_with(server, &Primitive::DataReq { more: false }, b"hello");
        rig.exchange_until_idle();
        assert!(matches!(rig.take(client), Some((Primitive::ConnCon { .. }, _))));
        assert_eq!(rig.take(client).unwrap().1, b"hello");
    }
}

/// T_CONN_IND: at most CONIND_number indications wait for a response; a further connection waits, and is told of when there is
/// room.
#[test]
fn a_connection_beyond_the_queue_waits_for_its_turn() {
    let mut rig = Rig::new();
    let listener = rig.bound(PORT, 2);
    let clients = [(); 3].map(|()| connecting_to(&mut rig, PORT));
    let first = [rig.indication(listener), rig.indication(listener)];
    rig.pass(REPEATED);
    assert_eq!(rig.take(listener), None, "two wait");
    let server = rig.open();
    accept(&mut rig, listener, first[0], server);
    rig.pass(REPEATED);
    let third = rig.indication(listener);
    assert!(!first.contains(&third));
    for sequence in [third, first[1]] {
        let server = rig.open();
        accept(&mut rig, listener, sequence, server);
    }
    assert_eq!(rig.state(listener), State::Idle);
    for client in clients {
        assert!(matches!(rig.take(client), Some((Primitive::ConnCon { .. }, _))));
    }
}

/// T_CONN_RES: connections may be accepted and refused in any order.
#[test]
fn indications_are_answered_in_any_order() {
    let mut rig = Rig::new();
    let listener = rig.bound(PORT, 5);
    let clients: Vec<StreamId> = (0..5).map(|_| connecting_to(&mut rig, PORT)).collect();
    let sequences: Vec<u32> = clients.iter().map(|_| rig.indication(listener)).collect();
    for place in [3, 0, 4] {
        let server = rig.open();
        accept(&mut rig, listener, sequences[place], server);
        assert_eq!(rig.state(listener), State::AwaitingResponse);
    }
    for (place, state) in [(1, State::AwaitingResponse), (2, State::Idle)] {
        assert_eq!(rig.ask(listener, &disconnect(sequences[place])), ok(PrimitiveCode::DisconReq));
        assert_eq!(rig.state(listener), state);
    }
    rig.exchange_until_idle();
    for (place, client) in clients.into_iter().enumerate() {
        assert!(matches!(rig.take(client), Some((Primitive::ConnCon { .. }, _))), "SCTP had set it up");
        assert_eq!(is_refused(&mut rig, client), [1, 2].contains(&place), "client {place}");
    }
}

/// t_bind: the address of a listener that has accepted by itself is busy until it is unbound or closed; connections to it are
/// refused meanwhile.
#[test]
fn the_address_of_a_listener_that_has_accepted_by_itself_stays_busy() {
    for ends_by_close in [true, false] {
        let mut rig = Rig::new();
        let listener = rig.bound(PORT, 5);
        let client = connecting_to(&mut rig, PORT);
        let sequence = rig.indication(listener);
        accept(&mut rig, listener, sequence, listener);
        assert_eq!(port_of(&mut rig, listener), PORT);
        let other = rig.open();
        let busy = refused(PrimitiveCode::BindReq, TError::AddressBusy);
        assert_eq!(rig.ask(other, &bind(PORT, 1)), busy, "in TS_DATA_XFER");
        let late = connecting_to(&mut rig, PORT);
        assert!(is_refused(&mut rig, late));
        assert_eq!(rig.take(listener), None, "the listener is not told");
        if ends_by_close {
            rig.executive.at(rig.now).close(listener);
        } else {
            rig.put(client, &release());
            rig.exchange_until_idle();
            while rig.executive.getmsg(listener).is_ok_and(|m| m.is_some()) {}
            assert_eq!(rig.executive.getmsg(listener), Err(ReadError::HungUp));
            assert_eq!(rig.ask(other, &bind(PORT, 1)), busy, "the stream is still bound");
            rig.executive.at(rig.now).close(listener);
        }
        let answer = rig.ask(other, &bind(PORT, 1));
        assert!(matches!(answer, Primitive::BindAck { .. }), "{answer:?}");
        let client = connecting_to(&mut rig, PORT);
        rig.indication(other);
        assert!(matches!(rig.take(client), Some((Primitive::ConnCon { .. }, _))));
    }
}

/// t_bind: a connection that began before the address was busy is refused, too, and does not wait for the listener.
#[test]
fn a_connection_that_began_before_its_listener_accepted_by_itself_is_refused() {
    let mut rig = Rig::new();
    let listener = rig.bound(PORT, 5);
    connecting_to(&mut rig, PORT);
    let sequence = rig.indication(listener);
    let late = rig.connecting();
    // The INIT and its answer.
    for _ in 0..2 {
        rig.flush();
        rig.step();
    }
    accept(&mut rig, listener, sequence, listener);
    rig.exchange_until_idle();
    assert!(is_refused(&mut rig, late));
}

/// T_ORDREL_IND: the stream knows at once that its peer sends no more, and forgets that with the association.
#[test]
fn a_listener_that_ends_a_released_association_knows_nothing_of_the_release() {
    let mut rig = Rig::new();
    let listener = rig.bound(PORT, 2);
    let client = connecting_to(&mut rig, PORT);
    let sequence = rig.indication(listener);
    accept(&mut rig, listener, sequence, listener);
    assert!(matches!(rig.take(client), Some((Primitive::ConnCon { .. }, _))));
    assert!(!rig.executive.poll(listener).read_hangup);
    rig.put(client, &release());
    rig.flush();
    rig.step();
    assert!(rig.executive.poll(listener).read_hangup);
    assert_eq!(rig.ask(listener, &disconnect(0)), ok(PrimitiveCode::DisconReq));
    assert!(!rig.executive.poll(listener).read_hangup);
}

/// T_DISCON_REQ: brings the listening stream that had accepted by itself, or had connected, back to TS_IDLE, where it listens.
#[test]
fn a_listener_without_its_own_connection_listens_again() {
    let mut rig = Rig::new();
    let listener = rig.bound(PORT, 2);
    for _ in 0..3 {
        connecting_to(&mut rig, PORT);
        let sequence = rig.indication(listener);
        accept(&mut rig, listener, sequence, listener);
        assert_eq!(rig.ask(listener, &disconnect(0)), ok(PrimitiveCode::DisconReq));
        assert_eq!(rig.state(listener), State::Idle);
        rig.exchange_until_idle();
    }
    let elsewhere = rig.bound(PORT + 1, 1);
    assert_eq!(rig.ask(listener, &connect(PORT + 1)), ok(PrimitiveCode::ConnReq));
    rig.exchange_until_idle();
    rig.indication(elsewhere);
    let late = connecting_to(&mut rig, PORT);
    assert!(is_refused(&mut rig, late));
    assert!(matches!(rig.take(listener), Some((Primitive::ConnCon { .. }, _))));
    assert_eq!(rig.ask(listener, &disconnect(0)), ok(PrimitiveCode::DisconReq));
    connecting_to(&mut rig, PORT);
    rig.indication(listener);
    assert_eq!(rig.state(listener), State::AwaitingResponse);
}

/// T_UNBIND_REQ, close: a listener that ends releases the connections that wait for it, and refuses those with data that nobody
/// has read.
#[test]
fn a_listener_that_is_closed_ends_what_waits_for_it() {
    let mut rig = Rig::new();
    let (listener, other) = (rig.bound(PORT, 5), rig.bound(PORT + 1, 5));
    let clients = [PORT, PORT, PORT + 1].map(|port| connecting_to(&mut rig, port));
    rig.put_with(clients[1], &Primitive::DataReq { more: false }, b"unread");
    rig.exchange_until_idle();
    rig.executive.at(rig.now).close(listener);
    rig.exchange_until_idle();
    for client in clients {
        assert!(matches!(rig.take(client), Some((Primitive::ConnCon { .. }, _))));
    }
    assert!(matches!(rig.take(clients[0]), Some((Primitive::OrdrelInd { .. }, _))));
    assert!(is_refused(&mut rig, clients[1]));
    assert_eq!(rig.take(clients[2]), None, "it waits for another listener");
    rig.indication(other);
}

/// Reports for the user of an association are no data: a listener that is closed releases a connection with an unread report.
#[test]
fn a_listener_that_is_closed_releases_a_connection_whose_reports_are_unread() {
    for sends in [false, true] {
        let mut rig = Rig::new();
        let config =
            AssociationConfig { events: true, adaptation_indication: 7, ..AssociationConfig::default() };
        let config = Arc::new(config);
        let [listener, client] = [bind(PORT, 5), bind(0, 0)].map(|bind| {
            let s = rig.open();
            let set = |driver: &mut SctpDriver| driver.set_association_config(s, Arc::clone(&config));
            rig.executive.driver_state(rig.driver, set);
            assert!(matches!(rig.ask(s, &bind), Primitive::BindAck { .. }));
            s
        });
        assert_eq!(rig.ask(client, &connect(PORT)), ok(PrimitiveCode::ConnReq));
        rig.exchange_until_idle();
        if sends {
            rig.put_with(client, &Primitive::DataReq { more: false }, b"unread");
            rig.exchange_until_idle();
        }
        rig.executive.at(rig.now).close(listener);
        rig.exchange_until_idle();
        let mut came = std::iter::from_fn(|| rig.take(client)).map(|(primitive, _)| primitive);
        let end = came
            .find(|primitive| matches!(primitive, Primitive::OrdrelInd { .. } | Primitive::DisconInd { .. }));
        assert_eq!(matches!(end, Some(Primitive::DisconInd { .. })), sends, "{end:?}");
    }
}

/// A connection that a closed listener is about to release is refused if data comes meanwhile: it would seem to be read.
#[test]
fn data_that_comes_for_a_connection_which_is_about_to_be_released_refuses_it() {
    // More than are ended at once.
    const MANY: usize = 100;
    let mut rig = Rig::new();
    let listener = rig.bound(PORT, MANY as u32);
    let clients = [(); MANY].map(|()| connecting_to(&mut rig, PORT));
    let last = clients[MANY - 1];
    rig.put_with(last, &Primitive::DataReq { more: false }, b"late");
    rig.flush();
    rig.executive.at(rig.now).close(listener);
    rig.pass(Duration::from_secs(1));
    for client in clients {
        assert!(matches!(rig.take(client), Some((Primitive::ConnCon { .. }, _))));
        let end = rig.take(client).map(|(primitive, _)| primitive);
        match client == last {
            true => assert!(matches!(end, Some(Primitive::DisconInd { .. })), "{end:?}"),
            false => assert!(matches!(end, Some(Primitive::OrdrelInd { .. })), "{end:?}"),
        }
    }
}

/// The associations of a closed listener count in the memory of its user until they have ended.
#[test]
fn what_waits_for_a_listener_that_is_closed_is_charged_until_it_has_ended() {
    const LIMIT_BYTES: usize = 40 << 10;
    let mut rig = Rig::new();
    let (listener, pool) = (rig.bound(PORT, 5), ReceivePool::with_limit(LIMIT_BYTES));
    let config = AssociationConfig { receive_pool: Some(pool.clone()), ..AssociationConfig::default() };
    let set = |driver: &mut SctpDriver| driver.set_association_config(listener, Arc::new(config));
    rig.executive.driver_state(rig.driver, set);
    connecting_to(&mut rig, PORT);
    assert!(!pool.has(LIMIT_BYTES), "it waits");
    rig.executive.at(rig.now).close(listener);
    assert!(!pool.has(LIMIT_BYTES), "its peer has not answered the SHUTDOWN");
    rig.exchange_until_idle();
    assert!(pool.has(LIMIT_BYTES));
}

/// T_CONN_RES: a stream that accepts while it is bound to another listener's address is refused with TRESADDR; unbound,
/// it is bound by the response.
#[test]
fn an_accepting_stream_belongs_to_the_address_of_its_listener() {
    let mut rig = Rig::new();
    let (listener, _other) = (rig.bound(PORT, 5), rig.bound(PORT + 1, 5));
    let stranger = rig.bound(PORT + 1, 0);
    connecting_to(&mut rig, PORT);
    let sequence = rig.indication(listener);
    let acceptor = rig.acceptor(stranger);
    let answer = rig.ask(listener, &Primitive::ConnRes { sequence, acceptor });
    assert_eq!(answer, refused(PrimitiveCode::ConnRes, TError::AcceptorAddress));
    assert_eq!(rig.ask(stranger, &Primitive::UnbindReq), ok(PrimitiveCode::UnbindReq));
    accept(&mut rig, listener, sequence, stranger);
    assert_eq!((rig.state(stranger), port_of(&mut rig, stranger)), (State::DataTransfer, PORT));
}

/// A backlog may be thousands.
#[test]
fn a_listener_with_many_waiting_associations_is_closed_in_steps() {
    const MANY: usize = 100;
    const STEP: usize = 32;
    let mut rig = Rig::new();
    let listener = rig.bound(PORT, MANY as u32);
    for _ in 0..MANY {
        let client = connecting_to(&mut rig, PORT);
        rig.put_with(client, &Primitive::DataReq { more: false }, b"unread");
    }
    rig.exchange_until_idle();
    let left = |rig: &mut Rig| {
        rig.executive.driver_state(rig.driver, |driver: &mut SctpDriver| driver.association_count()).unwrap()
    };
    assert_eq!(left(&mut rig), 2 * MANY);
    rig.executive.at(rig.now).close(listener);
    assert_eq!(left(&mut rig), 2 * MANY - STEP);
    rig.pass(Duration::from_secs(1));
    assert_eq!(left(&mut rig), 0);
}
