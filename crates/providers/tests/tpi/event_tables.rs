//! The reactions of the provider in every state to primitives that a user must not put, and to the peer (TPI 2.0, the tables of
//! states; T_ERROR_ACK; T_DISCON_IND, T_ORDREL_IND, T_DATA_IND, T_EXDATA_IND).

use crate::rig::{Rig, bind, connect, disconnect, release};
use crate::states::{STATES, bring};
use providers::SctpDriver;
use streams::{Control, Errno, Kind, Message, ReadError, StreamId};
use tpi::{Addresses, Optmgmt, Primitive, PrimitiveCode, RecvInfo, State, TError, Unitdata, Which};

/// Returns every primitive that a provider sends.
fn of_the_provider() -> Vec<Primitive> {
    let addresses = || Box::<Addresses>::default();
    vec![
        Primitive::ConnInd { addresses: addresses(), sequence: 1 },
        Primitive::ConnCon {
            addresses: addresses(),
            association: Which::Only,
            outbound_streams: 1,
            inbound_streams: 1,
        },
        Primitive::DisconInd { reason: 1, sequence: 1, association: Which::Only, cause: 0 },
        Primitive::DataInd { more: false },
        Primitive::ExdataInd { more: false },
        Primitive::OptdataInd { association: Which::Only, info: RecvInfo::default() },
        Primitive::OrdrelInd { association: Which::Only },
        Primitive::UnitdataInd(Box::new(Unitdata {
            addresses: Addresses::default(),
            info: RecvInfo::default(),
        })),
        Primitive::BindAck { addresses: addresses(), backlog: 0 },
        Primitive::OkAck { primitive: PrimitiveCode::ConnReq },
        Primitive::ErrorAck {
            primitive: PrimitiveCode::ConnReq,
            t_error: TError::Access,
            errno: Errno::EACCES,
        },
        Primitive::OptmgmtAck(Box::<Optmgmt>::default()),
        Primitive::InfoAck(Box::default()),
    ]
}

fn put_bytes(rig: &mut Rig, s: StreamId, bytes: &[u8], has_priority: bool) {
    let control = Control::from(bytes);
    let kind = if has_priority { Kind::PcProto(control) } else { Kind::Proto(control) };
    rig.executive.at(rig.now).putmsg(s, Message::new(kind)).unwrap();
    rig.executive.at(rig.now).run();
}

#[test]
fn a_primitive_of_the_provider_is_refused_in_each_state() {
    for primitive in of_the_provider() {
        for (state, has_priority) in STATES.into_iter().flat_map(|state| [(state, false), (state, true)]) {
            let mut rig = Rig::new();
            let (s, _) = bring(&mut rig, state);
            put_bytes(&mut rig, s, &primitive.encode(), has_priority);
            let refused = Primitive::ErrorAck {
                primitive: primitive.code(),
                t_error: TError::NotSupported,
                errno: Errno(0),
            };
            let name = primitive.code().name();
            assert_eq!(rig.take(s).map(|taken| taken.0), Some(refused), "{name} in {state}");
            assert_eq!(rig.state(s), state, "{name}");
        }
    }
}

/// A primitive that is too short for its fields has no answer that could name the error.
#[test]
fn a_primitive_of_each_length_that_is_too_short_violates_the_protocol_in_each_state() {
    let requests = [
        bind(0, 0),
        connect(1),
        disconnect(1),
        release(),
        Primitive::ConnRes { sequence: 1, acceptor: 1 },
        Primitive::DataReq { more: false },
        Primitive::ExdataReq { more: false },
        Primitive::OptdataReq { association: Which::Only, info: tpi::SendInfo::default() },
        Primitive::CapabilityReq { bits: 3 },
        Primitive::OptmgmtReq(Box::new(Optmgmt { flags: 0x80, options: Vec::new() })),
    ];
    for request in &requests {
        // Behind the number of the primitive stand one to four numbers.
        let fixed_bytes = match request {
            Primitive::BindReq { .. } | Primitive::OptmgmtReq(_) => 16,
            Primitive::ConnReq { .. } => 20,
            Primitive::ConnRes { .. } => 20,
            Primitive::OptdataReq { .. } => 16,
            Primitive::OrdrelReq { .. } => 4,
            _ => 8,
        };
        for (state, bytes) in
            STATES.into_iter().flat_map(|state| (0..fixed_bytes).map(move |bytes| (state, bytes)))
        {
            let mut rig = Rig::new();
            let (s, _) = bring(&mut rig, state);
            put_bytes(&mut rig, s, &request.encode()[..bytes], false);
            let name = request.code().name();
            let failed = Err(ReadError::Failed(Errno::EPROTO));
            assert_eq!(rig.executive.getmsg(s), failed, "{bytes} bytes of {name} in {state}");
        }
    }
}

/// No primitive has such a number.
#[test]
fn an_unknown_primitive_violates_the_protocol_in_each_state() {
    for (state, number) in
        STATES.into_iter().flat_map(|state| [100u32, 999, u32::MAX].map(|number| (state, number)))
    {
        let mut rig = Rig::new();
        let (s, _) = bring(&mut rig, state);
        let bytes = [number.to_ne_bytes(), [0; 4], [0; 4], [0; 4]].concat();
        put_bytes(&mut rig, s, &bytes, false);
        assert_eq!(rig.executive.getmsg(s), Err(ReadError::Failed(Errno::EPROTO)), "{number} in {state}");
    }
}

/// An action of a peer.
#[derive(Clone, Copy, Debug)]
enum Act {
    Data,
    Expedited,
    Release,
    Abort,
}

/// Returns one end of an association in a state, and the other end.
fn ends(rig: &mut Rig, state: State) -> (StreamId, StreamId) {
    let (client, server) = rig.connected();
    rig.exchange_until_idle();
    match state {
        State::DataTransfer => {}
        State::AwaitingReleaseIndication => rig.put(client, &release()),
        other => panic!("{other}"),
    }
    (client, server)
}

fn act(rig: &mut Rig, peer: StreamId, act: Act) {
    match act {
        Act::Data => rig.put_with(peer, &Primitive::DataReq { more: false }, b"data"),
        Act::Expedited => rig.put_with(peer, &Primitive::ExdataReq { more: false }, b"data"),
        Act::Release => rig.put(peer, &release()),
        Act::Abort => {
            let aborted = |driver: &mut SctpDriver, cx: &mut streams::Cx<'_>| {
                driver.abort(cx, peer, Which::Only, b"enough")
            };
            rig.executive.at(rig.now).with_driver(rig.driver, aborted).unwrap();
        }
    }
    rig.exchange_until_idle();
}

/// Takes everything that has come up; returns the names of the primitives, and the end.
fn come_up(rig: &mut Rig, s: StreamId) -> Vec<String> {
    let mut names = Vec::new();
    loop {
        match rig.executive.getmsg(s) {
            Ok(Some(Message { kind: Kind::Proto(control) | Kind::PcProto(control), .. })) => {
                names.push(control.code().unwrap().name().to_owned());
            }
            Ok(Some(other)) => panic!("{other:?}"),
            Ok(None) => return names,
            Err(ReadError::HungUp) => {
                names.push("M_HANGUP".into());
                return names;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn each_act_of_a_peer_is_told_in_each_state_with_a_connection() {
    let both = State::DataTransfer;
    let released = State::AwaitingReleaseIndication;
    let cases: [(State, Act, &[&str]); 8] = [
        (both, Act::Data, &["T_OPTDATA_IND"]),
        (both, Act::Expedited, &["T_OPTDATA_IND"]),
        // SCTP has no connection that is open in one direction.
        (both, Act::Release, &["T_ORDREL_IND", "T_DISCON_IND", "M_HANGUP"]),
        (both, Act::Abort, &["T_DISCON_IND", "M_HANGUP"]),
        (released, Act::Data, &["T_OPTDATA_IND", "T_DISCON_IND", "M_HANGUP"]),
        (released, Act::Expedited, &["T_OPTDATA_IND", "T_DISCON_IND", "M_HANGUP"]),
        (released, Act::Release, &["T_ORDREL_IND", "T_DISCON_IND", "M_HANGUP"]),
        (released, Act::Abort, &["T_DISCON_IND", "M_HANGUP"]),
    ];
    for (state, what, expected) in cases {
        let mut rig = Rig::new();
        let (s, peer) = ends(&mut rig, state);
        act(&mut rig, peer, what);
        assert_eq!(come_up(&mut rig, s), expected, "{what:?} in {state}");
    }
}
