//! A one-to-many stream, with requests that name none of its associations (TPI 2.0 knows no such streams).

use std::time::Duration;

use crate::options::ask;
use crate::rig::{PORT, Rig, connect, disconnect, release};
use providers::SctpDriver;
use sctp::AssociationConfig;
use streams::{Cx, StreamId};
use tpi::options::Action;
use tpi::options::sctp::{T_SCTP_ISTREAMS, T_SCTP_SACK_FREQUENCY};
use tpi::{Addresses, AssociationId, Primitive, PrimitiveCode, TError, Which};

const OTHER_PORT: u16 = PORT + 1;
/// The first association of an endpoint, whose number could be mistaken for none.
const FIRST: Which = Which::Id(AssociationId::FIRST);

/// Returns a one-to-many stream and its peer. Their association is the first one of the endpoint.
fn first(rig: &mut Rig) -> (StreamId, StreamId) {
    let many = rig.bound(PORT, SctpDriver::ONE_TO_MANY);
    let listener = rig.bound(OTHER_PORT, 1);
    let answer = rig.ask(many, &connect(OTHER_PORT));
    assert!(matches!(answer, Primitive::OkAck { .. }), "{answer:?}");
    rig.exchange_until_idle();
    let sequence = rig.indication(listener);
    let peer = rig.open();
    let acceptor = rig.acceptor(peer);
    let answer = rig.ask(listener, &Primitive::ConnRes { sequence, acceptor });
    assert!(matches!(answer, Primitive::OkAck { .. }), "{answer:?}");
    rig.exchange_until_idle();
    let confirmation = rig.take(many).unwrap().0;
    assert!(matches!(confirmation, Primitive::ConnCon { association: FIRST, .. }), "{confirmation:?}");
    (many, peer)
}

fn sack_frequency(rig: &mut Rig, s: StreamId, association: Which) -> u32 {
    let config =
        rig.executive.driver_state(rig.driver, |driver: &mut SctpDriver| driver.config(s, association));
    config.unwrap().unwrap().sack_frequency
}

/// T_OPTMGMT_REQ: the options of the stream are those of its next associations.
#[test]
fn options_of_the_stream_are_not_those_of_its_first_association() {
    let mut rig = Rig::new();
    let (many, _) = first(&mut rig);
    let before = sack_frequency(&mut rig, many, FIRST);
    ask(&mut rig, many, Action::Negotiate, &[(T_SCTP_ISTREAMS, &[3]), (T_SCTP_SACK_FREQUENCY, &[9])]);
    assert_eq!(sack_frequency(&mut rig, many, FIRST), before, "the association keeps its own");
    let current = ask(&mut rig, many, Action::Current, &[(T_SCTP_SACK_FREQUENCY, &[])]);
    assert_eq!(current.1[0].2, [9]);
    let next = rig.connecting();
    rig.exchange_until_idle();
    assert!(matches!(rig.take(next), Some((Primitive::ConnCon { outbound_streams: 3, .. }, _))));
}

/// A name that is no longer that of an association does not stand for the stream.
#[test]
fn options_for_an_association_that_has_ended_change_nothing() {
    let mut rig = Rig::new();
    let (many, _) = first(&mut rig);
    let gone = Which::Id(AssociationId::new(9, 9));
    let config = AssociationConfig { streams_in_max: 3, ..AssociationConfig::default() };
    let change = |driver: &mut SctpDriver, cx: &mut Cx<'_>| driver.change_config(cx, many, gone, config);
    assert_eq!(rig.executive.at(rig.now).with_driver(rig.driver, change), Some(true));
    let next = rig.connecting();
    rig.exchange_until_idle();
    assert!(matches!(rig.take(next), Some((Primitive::ConnCon { outbound_streams: 10, .. }, _))));
}

/// T_ADDR_REQ: a stream with many peers has no peer of its own.
#[test]
fn the_stream_has_no_peer_address() {
    let mut rig = Rig::new();
    let (many, peer) = first(&mut rig);
    let remote = |answer| match answer {
        Primitive::AddrAck { remote, .. } => *remote,
        other => panic!("{other:?}"),
    };
    assert_eq!(remote(rig.ask(many, &Primitive::AddrReq)), Addresses::default());
    assert_eq!(remote(rig.ask(peer, &Primitive::AddrReq)).list.len(), 1);
}

/// T_DATA_REQ, T_ORDREL_REQ, T_DISCON_REQ: without an association they reach no peer.
#[test]
fn requests_without_an_association_reach_no_peer() {
    let mut rig = Rig::new();
    let (many, peer) = first(&mut rig);
    rig.put_with(many, &Primitive::DataReq { more: false }, b"for whom?");
    for (request, primitive) in
        [(release(), PrimitiveCode::OrdrelReq), (disconnect(0), PrimitiveCode::DisconReq)]
    {
        let refused =
            Primitive::ErrorAck { primitive, t_error: TError::OutOfState, errno: streams::Errno(0) };
        assert_eq!(rig.ask(many, &request), refused);
    }
    rig.exchange_until_idle();
    assert_eq!(rig.take(peer), None);
    rig.put(many, &Primitive::OrdrelReq { association: FIRST });
    rig.exchange_until_idle();
    assert_eq!(rig.take(peer), Some((Primitive::OrdrelInd { association: Which::Only }, Vec::new())));
}

/// Each association leaves two messages, which nobody charges. Peers that come and go must not fill the memory with them.
#[test]
fn a_stream_whose_user_does_not_read_takes_no_further_association() {
    const UNREAD_MAX: usize = 16 << 10;
    let mut rig = Rig::new();
    let many = rig.bound(PORT, SctpDriver::ONE_TO_MANY);
    let connects_and_ends = |rig: &mut Rig| {
        let client = rig.connecting();
        rig.exchange_until_idle();
        let is_up = rig.take(client).is_some();
        rig.ask(client, &disconnect(0));
        rig.exchange_until_idle();
        rig.executive.at(rig.now).close(client);
        is_up
    };
    let mut count = 0;
    while connects_and_ends(&mut rig) {
        count += 1;
        assert!(count <= UNREAD_MAX / 2);
        if count % 32 == 0 {
            // Answers to one source prefix have a budget.
            rig.pass(Duration::from_millis(100));
        }
    }
    assert_eq!((count, rig.statistics().accepts_put_off), (UNREAD_MAX / 2, 1));
    assert!((0..UNREAD_MAX).all(|_| rig.take(many).is_some()), "no end is lost");
    assert_eq!(rig.take(many), None);
    assert!(connects_and_ends(&mut rig), "the user has read");
}
