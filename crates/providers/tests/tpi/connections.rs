//! Connections from the request to the release (TPI 2.0, T_CONN_REQ to T_ORDREL_IND).

use std::time::Duration;

use crate::rig::{PORT, Rig, bind, connect, disconnect, release};
use providers::SctpDriver;
use streams::{Control, Errno, Kind, Message, StreamId, WriteError};
use tpi::{Primitive, PrimitiveCode, State, TError, Which};

fn refused(primitive: PrimitiveCode, t_error: TError) -> Primitive {
    Primitive::ErrorAck { primitive, t_error, errno: Errno(0) }
}

/// T_CONN_RES: the listening stream itself may take the only connection that waits, and then stops listening.
#[test]
fn the_listening_stream_may_accept_by_itself() {
    let mut rig = Rig::new();
    let listener = rig.bound(PORT, 5);
    let client = rig.connecting();
    rig.exchange_until_idle();
    let sequence = rig.indication(listener);
    let acceptor = rig.acceptor(listener);
    let answer = rig.ask(listener, &Primitive::ConnRes { sequence, acceptor });
    assert_eq!(answer, Primitive::OkAck { primitive: PrimitiveCode::ConnRes });
    assert_eq!(rig.state(listener), State::DataTransfer);
    assert!(matches!(rig.take(client), Some((Primitive::ConnCon { .. }, _))));
    rig.put_with(client, &Primitive::DataReq { more: false }, b"question");
    rig.exchange_until_idle();
    let (primitive, data) = rig.take(listener).unwrap();
    assert!(matches!(primitive, Primitive::OptdataInd { .. }), "{primitive:?}");
    assert_eq!(data, b"question");
    let again = rig.connecting();
    rig.exchange_until_idle();
    assert!(matches!(rig.take(again), Some((Primitive::DisconInd { .. }, _))), "nobody listens");
}

/// Returns the listening stream and two connect indications that wait for a response.
fn two_wait(rig: &mut Rig) -> (StreamId, [u32; 2]) {
    let listener = rig.bound(PORT, 5);
    for _ in 0..2 {
        rig.connecting();
    }
    rig.exchange_until_idle();
    let sequences = [rig.indication(listener), rig.indication(listener)];
    (listener, sequences)
}

/// T_CONN_RES: the errors TINDOUT, TBADF, TBADSEQ, TRESQLEN, TRESADDR and TOUTSTATE; each leaves the indication.
#[test]
fn a_response_that_cannot_be_carried_out_leaves_the_indication() {
    let mut rig = Rig::new();
    let (listener, [sequence, _]) = two_wait(&mut rig);
    let this = rig.acceptor(listener);
    let other_listener = rig.bound(PORT + 1, 5);
    let other_port = rig.bound(PORT + 2, 0);
    let busy = rig.connecting();
    let (other_listener, other_port, busy) =
        (rig.acceptor(other_listener), rig.acceptor(other_port), rig.acceptor(busy));
    let fresh = rig.open();
    let fresh = rig.acceptor(fresh);
    for (sequence, acceptor, t_error) in [
        (sequence, this, TError::IndicationsOutstanding),
        (sequence, 9999, TError::BadFile),
        (77, fresh, TError::BadSequence),
        (sequence, other_listener, TError::AcceptorQueueLength),
        (sequence, other_port, TError::AcceptorAddress),
        (sequence, busy, TError::OutOfState),
    ] {
        let answer = rig.ask(listener, &Primitive::ConnRes { sequence, acceptor });
        assert_eq!(answer, refused(PrimitiveCode::ConnRes, t_error));
        assert_eq!(rig.state(listener), State::AwaitingResponse);
    }
    let answer = rig.ask(listener, &Primitive::ConnRes { sequence, acceptor: fresh });
    assert_eq!(answer, Primitive::OkAck { primitive: PrimitiveCode::ConnRes });
    assert_eq!(rig.state(listener), State::AwaitingResponse, "another one waits");
}

/// T_CONN_RES: a stream that is bound to the same address may take a connection.
#[test]
fn a_bound_stream_may_accept() {
    let mut rig = Rig::new();
    let listener = rig.bound(PORT, 5);
    let acceptor = rig.bound(PORT, 0);
    rig.connecting();
    rig.exchange_until_idle();
    let sequence = rig.indication(listener);
    let number = rig.acceptor(acceptor);
    let answer = rig.ask(listener, &Primitive::ConnRes { sequence, acceptor: number });
    assert_eq!(answer, Primitive::OkAck { primitive: PrimitiveCode::ConnRes });
    assert_eq!((rig.state(listener), rig.state(acceptor)), (State::Idle, State::DataTransfer));
}

/// T_DISCON_REQ: refuses the connection that its sequence number names.
#[test]
fn an_indication_is_refused_by_its_number() {
    let mut rig = Rig::new();
    let (listener, sequences) = two_wait(&mut rig);
    assert_eq!(rig.ask(listener, &disconnect(99)), refused(PrimitiveCode::DisconReq, TError::BadSequence));
    for (sequence, state) in sequences.into_iter().zip([State::AwaitingResponse, State::Idle]) {
        let answer = rig.ask(listener, &disconnect(sequence));
        assert_eq!(answer, Primitive::OkAck { primitive: PrimitiveCode::DisconReq });
        assert_eq!(rig.state(listener), state);
    }
}

/// T_DISCON_REQ: the acknowledgement is the end; waiting data is discarded, and the stream stays bound.
#[test]
fn a_stream_that_has_aborted_its_connection_may_ask_for_another() {
    let mut rig = Rig::new();
    let (client, server) = rig.connected();
    rig.put_with(server, &Primitive::DataReq { more: false }, b"unread");
    rig.exchange_until_idle();
    let m = Primitive::OkAck { primitive: PrimitiveCode::DisconReq };
    rig.put_with(client, &disconnect(0), b"enough");
    assert_eq!(rig.take(client), Some((m, Vec::new())), "waiting data is discarded without T_DISCON_IND");
    assert_eq!(rig.take(client), None);
    rig.exchange_until_idle();
    let (primitive, data) = rig.take(server).unwrap();
    let Primitive::DisconInd { reason, cause, .. } = primitive else { panic!("{primitive:?}") };
    assert_eq!((reason, cause), (Errno::ECONNRESET.0 as u32, 12), "a user-initiated ABORT");
    assert!(String::from_utf8_lossy(&data).contains("enough"));
    assert_eq!(rig.ask(client, &connect(PORT)), Primitive::OkAck { primitive: PrimitiveCode::ConnReq });
    rig.exchange_until_idle();
    assert!(matches!(rig.take(client), Some((Primitive::ConnCon { .. }, _))));
    assert_eq!(rig.state(client), State::DataTransfer);
}

/// T_CONN_REQ, T_CONN_RES, T_DISCON_REQ: TBADDATA, since SCTP carries no data with the first two, and 256 bytes with an
/// abort.
#[test]
fn data_that_cannot_travel_is_refused() {
    let mut rig = Rig::new();
    let s = rig.bound(0, 0);
    rig.put_with(s, &connect(PORT), b"data");
    assert_eq!(rig.take(s).unwrap().0, refused(PrimitiveCode::ConnReq, TError::BadData));
    let (client, _) = rig.connected();
    rig.put_with(client, &disconnect(0), &[7; 257]);
    assert_eq!(rig.take(client).unwrap().0, refused(PrimitiveCode::DisconReq, TError::BadData));
    assert_eq!(rig.state(client), State::DataTransfer);
}

/// T_ORDREL_REQ, T_ORDREL_IND: both sides release; data sent before arrives before.
#[test]
fn a_release_comes_behind_the_data() {
    let mut rig = Rig::new();
    let (client, server) = rig.connected();
    rig.put_with(client, &Primitive::DataReq { more: false }, b"last");
    rig.put(client, &release());
    assert_eq!(rig.state(client), State::AwaitingReleaseIndication);
    rig.exchange_until_idle();
    assert_eq!(rig.take(server).unwrap().1, b"last");
    assert!(matches!(rig.take(server), Some((Primitive::OrdrelInd { .. }, _))));
}

/// T_EXDATA_REQ: expedited data is unordered data of SCTP.
#[test]
fn expedited_data_is_unordered() {
    let mut rig = Rig::new();
    let (client, server) = rig.connected();
    rig.put_with(client, &Primitive::ExdataReq { more: false }, b"now");
    rig.exchange_until_idle();
    let (primitive, data) = rig.take(server).unwrap();
    let Primitive::OptdataInd { info, .. } = primitive else { panic!("{primitive:?}") };
    assert!(info.unordered);
    assert_eq!(data, b"now");
}

/// T_DATA_REQ with T_MORE: the record continues in the next primitive.
#[test]
fn a_record_may_take_several_primitives() {
    let mut rig = Rig::new();
    let (client, server) = rig.connected();
    rig.put_with(client, &Primitive::DataReq { more: true }, b"one ");
    rig.put_with(client, &Primitive::DataReq { more: false }, b"record");
    rig.exchange_until_idle();
    let mut record = Vec::new();
    while let Some((primitive, data)) = rig.take(server) {
        let Primitive::OptdataInd { info, .. } = primitive else { panic!("{primitive:?}") };
        record.extend(data);
        assert_eq!(info.more, record.len() < 10);
    }
    assert_eq!(record, b"one record");
}

/// T_BIND_REQ: TADDRBUSY if another stream listens at the address.
#[test]
fn an_address_has_one_listener() {
    let mut rig = Rig::new();
    rig.bound(PORT, 5);
    let s = rig.open();
    assert_eq!(rig.ask(s, &bind(PORT, 5)), refused(PrimitiveCode::BindReq, TError::AddressBusy));
    assert_eq!(rig.state(s), State::Unbound);
}

/// A malformed control part is refused under its name if it has one, and ends the stream otherwise (EPROTO).
#[test]
fn a_broken_primitive_is_refused_under_its_name() {
    let mut rig = Rig::new();
    let s = rig.open();
    let mut bytes = bind(PORT, 0).encode();
    let family = bytes.len() - 16;
    bytes[family] = 99;
    let m = Message::new(Kind::Proto(Control::from(&bytes[..])));
    rig.executive.at(rig.now).putmsg(s, m).unwrap();
    assert_eq!(rig.take(s).unwrap().0, refused(PrimitiveCode::BindReq, TError::BadAddress));
    let m = Message::new(Kind::Proto(Control::from(&[1, 2][..])));
    rig.executive.at(rig.now).putmsg(s, m).unwrap();
    assert_eq!(rig.executive.getmsg(s), Err(streams::ReadError::Failed(Errno::EPROTO)));
}

/// T_UNBIND_REQ: a one-to-many stream keeps its name while it has associations.
#[test]
fn a_one_to_many_stream_with_an_association_stays_bound() {
    let mut rig = Rig::new();
    let s = rig.bound(PORT, SctpDriver::ONE_TO_MANY);
    rig.connecting();
    rig.exchange_until_idle();
    let busy = Primitive::ErrorAck {
        primitive: PrimitiveCode::UnbindReq,
        t_error: TError::System,
        errno: Errno::EBUSY,
    };
    assert_eq!(rig.ask(s, &Primitive::UnbindReq), busy);
    let free = rig.bound(PORT + 1, SctpDriver::ONE_TO_MANY);
    let answer = rig.ask(free, &Primitive::UnbindReq);
    assert_eq!(answer, Primitive::OkAck { primitive: PrimitiveCode::UnbindReq });
}

/// T_DATA_REQ: flow control holds for data that a program puts as bytes, too; nothing is lost or passed.
#[test]
fn data_that_is_put_as_bytes_waits_for_room() {
    const BYTES: usize = 4096;
    const MESSAGES_MAX: u32 = 20_000;
    let mut rig = Rig::new();
    let (client, server) = rig.connected();
    let request = Control::from(&Primitive::DataReq { more: false }.encode()[..]);
    let mut put = 0u32;
    loop {
        let data = [&put.to_be_bytes()[..], &[7; BYTES - 4]].concat();
        let m = Message::with_data(Kind::Proto(request.clone()), data.into());
        match rig.executive.at(rig.now).putmsg(client, m) {
            Ok(()) => put += 1,
            Err(refused) => {
                assert_eq!(refused.error, WriteError::WouldBlock);
                break;
            }
        }
        rig.executive.at(rig.now).run();
        assert!(put < MESSAGES_MAX, "nobody takes the data, and it must stop");
    }
    let mut read = 0u32;
    // Each round a receive window is read, and the delay of a SACK passes.
    for _ in 0..put {
        rig.pass(Duration::from_millis(300));
        while let Some((_, data)) = rig.take(server) {
            assert_eq!(data[..4], read.to_be_bytes());
            read += 1;
        }
        if read == put {
            break;
        }
    }
    assert_eq!(read, put);
    let m = Message::new(Kind::Proto(request));
    assert!(rig.executive.at(rig.now).putmsg(client, m).is_ok(), "there is room again");
}

/// T_DATA_REQ, T_EXDATA_REQ, T_OPTDATA_REQ: M_PROTO only, since flow control does not hold for M_PCPROTO.
#[test]
fn data_with_high_priority_violates_the_protocol() {
    let optdata = Primitive::OptdataReq { association: Which::Only, info: tpi::SendInfo::default() };
    for request in [Primitive::DataReq { more: false }, Primitive::ExdataReq { more: false }, optdata] {
        for control in [Control::from(&request.encode()[..]), Control::from(request.clone())] {
            let mut rig = Rig::new();
            let (client, server) = rig.connected();
            let m = Message::with_data(Kind::PcProto(control), b"urgent".to_vec().into());
            rig.executive.at(rig.now).putmsg(client, m).unwrap();
            assert_eq!(rig.executive.getmsg(client), Err(streams::ReadError::Failed(Errno::EPROTO)));
            rig.exchange_until_idle();
            assert_eq!(rig.take(server), None);
        }
    }
}

/// T_DATA_REQ, T_EXDATA_REQ, T_OPTDATA_REQ with and without T_MORE, M_DATA: records of one to three parts, short, as long
/// as a packet and fragmented, as bytes and as values, arrive whole, in their order, with their properties.
#[test]
fn each_data_primitive_in_each_number_of_parts_and_length() {
    let optdata = |unordered: bool, more: bool| Primitive::OptdataReq {
        association: Which::Only,
        info: tpi::SendInfo { unordered, more, ppid: 46, ..tpi::SendInfo::stream(3) },
    };
    // The primitive that sends a part, and the properties received: unordered, stream, payload protocol identifier.
    type Form = (&'static str, Box<dyn Fn(bool) -> Option<Primitive>>, (bool, u16, u32));
    let forms: [Form; 5] = [
        ("T_DATA_REQ", Box::new(|more| Some(Primitive::DataReq { more })), (false, 0, 0)),
        ("T_EXDATA_REQ", Box::new(|more| Some(Primitive::ExdataReq { more })), (true, 0, 0)),
        ("T_OPTDATA_REQ", Box::new(move |more| Some(optdata(false, more))), (false, 3, 46)),
        ("T_OPTDATA_REQ, unordered", Box::new(move |more| Some(optdata(true, more))), (true, 3, 46)),
        ("M_DATA", Box::new(|more| more.then_some(Primitive::DataReq { more })), (false, 0, 0)),
    ];
    for (name, form, expected) in &forms {
        for (parts, bytes, as_bytes) in (1..=3)
            .flat_map(|parts| [1, 1400, 20_000].map(|bytes| (parts, bytes)))
            .flat_map(|(parts, bytes)| [true, false].map(|as_bytes| (parts, bytes, as_bytes)))
        {
            let mut rig = Rig::new();
            let (client, server) = rig.connected();
            let mut sent = Vec::new();
            for part in 0..parts {
                let data = vec![part + 1; bytes];
                let kind = match form(part + 1 < parts) {
                    Some(primitive) if as_bytes => Kind::Proto(Control::from(&primitive.encode()[..])),
                    Some(primitive) => Kind::Proto(primitive.into()),
                    None => Kind::Data,
                };
                rig.executive
                    .at(rig.now)
                    .putmsg(client, Message::with_data(kind, data.clone().into()))
                    .unwrap();
                rig.executive.at(rig.now).run();
                sent.extend(data);
            }
            rig.pass(Duration::from_millis(500));
            let case = format!("{name} in {parts} parts of {bytes}, as bytes: {as_bytes}");
            let mut received = Vec::new();
            let mut ended = false;
            while let Some((primitive, data)) = rig.take(server) {
                let Primitive::OptdataInd { info, .. } = primitive else { panic!("{primitive:?}") };
                assert!(!ended, "{case}: one record");
                assert_eq!((info.unordered, info.stream, info.ppid), *expected, "{case}");
                received.extend(data);
                ended = !info.more;
            }
            assert!(ended, "{case}: the record has an end");
            assert!(received == sent, "{case}: {} bytes of {}", received.len(), sent.len());
        }
    }
}
