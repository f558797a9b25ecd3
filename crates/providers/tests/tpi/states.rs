//! Every primitive of the user in every state (TPI 2.0, the tables of states): the answer and the next state.

use crate::rig::{PORT, Rig, bind, connect, disconnect, release};
use streams::{Errno, ReadError, StreamId};
use tpi::{Addresses, Optmgmt, Primitive, PrimitiveCode, State, TError, Unitdata, Which};

/// The states in which a provider waits for its user. The others end within the call, since this provider answers at
/// once.
pub(crate) const STATES: [State; 7] = [
    State::Unbound,
    State::Idle,
    State::AwaitingConfirmation,
    State::AwaitingResponse,
    State::DataTransfer,
    State::AwaitingReleaseIndication,
    State::AwaitingReleaseRequest,
];

/// The outcome of each primitive in each of [`STATES`].
///
/// `.`: the state stays; `out`: `T_ERROR_ACK` with `TOUTSTATE`; `not`: `T_ERROR_ACK` with `TNOTSUPPORT`; `gone`:
/// `M_ERROR` with `EPROTO`; `drop` and `sent`: data that is discarded or sent; a state: the state after the
/// acknowledgement.
const TABLE: &[(&str, [&str; 7])] = &[
    //                UNBND        IDLE         WCON_CREQ  WRES_CIND    DATA_XFER      WIND_ORDREL  WREQ_ORDREL
    ("T_INFO_REQ", [".", ".", ".", ".", ".", ".", "."]),
    ("T_ADDR_REQ", [".", ".", ".", ".", ".", ".", "."]),
    ("T_CAPABILITY_REQ", [".", ".", ".", ".", ".", ".", "."]),
    ("T_BIND_REQ", ["TS_IDLE", "out", "out", "out", "out", "out", "out"]),
    ("T_UNBIND_REQ", ["out", "TS_UNBND", "out", "out", "out", "out", "out"]),
    ("T_CONN_REQ", ["TS_WCON_CREQ", "TS_WCON_CREQ", "out", "out", "out", "out", "out"]),
    ("T_CONN_RES", ["out", "out", "out", "TS_IDLE", "out", "out", "out"]),
    ("T_DISCON_REQ", ["out", "out", "TS_IDLE", "TS_IDLE", "TS_IDLE", "TS_IDLE", "TS_IDLE"]),
    ("T_ORDREL_REQ", ["out", "out", "out", "out", "TS_WIND_ORDREL", "out", "TS_IDLE"]),
    ("T_OPTMGMT_REQ", [".", ".", ".", ".", ".", ".", "."]),
    ("T_DATA_REQ", ["gone", "drop", "sent", "gone", "sent", "drop", "drop"]),
    ("T_EXDATA_REQ", ["gone", "drop", "sent", "gone", "sent", "drop", "drop"]),
    ("T_OPTDATA_REQ", ["gone", "drop", "sent", "gone", "sent", "drop", "drop"]),
    ("T_UNITDATA_REQ", ["out", "not", "out", "out", "out", "out", "out"]),
];

/// Brings a stream into a state; returns the other end, or the stream that waits.
pub(crate) fn bring(rig: &mut Rig, state: State) -> (StreamId, u32) {
    let s = match state {
        State::Unbound => rig.open(),
        State::Idle => rig.bound(0, 0),
        State::AwaitingConfirmation => rig.connecting(),
        State::AwaitingResponse => {
            let listener = rig.bound(PORT, 5);
            rig.connecting();
            rig.exchange_until_idle();
            let sequence = rig.indication(listener);
            return (listener, sequence);
        }
        State::DataTransfer => rig.connected().0,
        State::AwaitingReleaseIndication => {
            let (client, _) = rig.connected();
            rig.put(client, &release());
            client
        }
        State::AwaitingReleaseRequest => {
            let (client, server) = rig.connected();
            rig.exchange_until_idle();
            rig.put(server, &release());
            rig.flush();
            rig.step();
            let released = rig.take(client).expect("the peer has released its side").0;
            assert!(matches!(released, Primitive::OrdrelInd { .. }), "{released:?}");
            client
        }
        other => panic!("{other} ends within the call"),
    };
    (s, 0)
}

fn request(rig: &mut Rig, name: &str, sequence: u32) -> Primitive {
    match name {
        "T_INFO_REQ" => Primitive::InfoReq,
        "T_ADDR_REQ" => Primitive::AddrReq,
        "T_CAPABILITY_REQ" => Primitive::CapabilityReq { bits: 3 },
        "T_BIND_REQ" => bind(0, 0),
        "T_UNBIND_REQ" => Primitive::UnbindReq,
        "T_CONN_REQ" => connect(PORT),
        "T_CONN_RES" => {
            let other = rig.open();
            Primitive::ConnRes { sequence, acceptor: rig.acceptor(other) }
        }
        "T_DISCON_REQ" => disconnect(sequence),
        "T_ORDREL_REQ" => release(),
        "T_OPTMGMT_REQ" => Primitive::OptmgmtReq(Box::new(Optmgmt { flags: 0x80, options: Vec::new() })),
        "T_DATA_REQ" => Primitive::DataReq { more: false },
        "T_EXDATA_REQ" => Primitive::ExdataReq { more: false },
        "T_OPTDATA_REQ" => Primitive::OptdataReq { association: Which::Only, info: tpi::SendInfo::default() },
        "T_UNITDATA_REQ" => {
            let addresses = Addresses::from("127.0.0.1:5000".parse::<std::net::SocketAddr>().unwrap());
            Primitive::UnitdataReq(Box::new(Unitdata { addresses, info: tpi::SendInfo::default() }))
        }
        other => panic!("{other}"),
    }
}

/// Returns the outcome of a primitive, in the words of the table.
fn outcome(rig: &mut Rig, s: StreamId, before: State, name: &str, request: &Primitive) -> String {
    let is_data = name.ends_with("DATA_REQ") && name != "T_UNITDATA_REQ";
    let sent_before = messages_sent(rig, s);
    rig.put_with(s, request, if is_data { b"data" } else { b"" });
    let answer = match rig.executive.getmsg(s) {
        Err(ReadError::Failed(Errno::EPROTO)) => return "gone".into(),
        answer => answer.unwrap(),
    };
    let answer = answer.map(|m| match m.kind {
        streams::Kind::PcProto(control) => control.decode().unwrap(),
        other => panic!("{name} in {before}: an acknowledgement has high priority, and this is {other:?}"),
    });
    let after = rig.state(s);
    match answer {
        Some(Primitive::ErrorAck { primitive, t_error, errno }) => {
            assert_eq!(
                (primitive, errno, after),
                (request.code(), Errno(0), before),
                "the primitive has changed nothing"
            );
            match t_error {
                TError::OutOfState => "out".into(),
                TError::NotSupported => "not".into(),
                other => panic!("{other}"),
            }
        }
        Some(answer) => {
            let expected = match request.code() {
                PrimitiveCode::InfoReq => PrimitiveCode::InfoAck,
                PrimitiveCode::AddrReq => PrimitiveCode::AddrAck,
                PrimitiveCode::CapabilityReq => PrimitiveCode::CapabilityAck,
                PrimitiveCode::BindReq => PrimitiveCode::BindAck,
                PrimitiveCode::OptmgmtReq => PrimitiveCode::OptmgmtAck,
                _ => PrimitiveCode::OkAck,
            };
            assert_eq!(answer.code(), expected);
            if after == before { ".".into() } else { after.name().into() }
        }
        None if is_data => {
            assert_eq!(after, before);
            (if messages_sent(rig, s) > sent_before { "sent" } else { "drop" }).into()
        }
        None if after == before => ".".into(),
        None => after.name().into(),
    }
}

fn messages_sent(rig: &mut Rig, s: StreamId) -> u64 {
    let known = rig
        .executive
        .driver_state(rig.driver, |driver: &mut providers::SctpDriver| driver.statistics(s, Which::Only))
        .unwrap();
    known.map_or(0, |known| known.messages_sent)
}

/// Tests each cell of the table, with a provider of its own.
#[test]
fn each_primitive_does_in_each_state_what_the_table_says() {
    let mut wrong = Vec::new();
    for (name, expected) in TABLE {
        for (state, expected) in STATES.into_iter().zip(expected) {
            let mut rig = Rig::new();
            let (s, sequence) = bring(&mut rig, state);
            assert_eq!(rig.state(s), state, "the state of the test");
            let request = request(&mut rig, name, sequence);
            let outcome = outcome(&mut rig, s, state, name, &request);
            if outcome != *expected {
                wrong.push(format!("{name} in {state}: {outcome}, not {expected}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The table above and that of the interface agree on primitives out of state, except for cells where this provider
/// permits more: it binds a stream by itself, and accepts data to send with the handshake.
#[test]
fn the_table_is_that_of_the_interface() {
    let mut more = Vec::new();
    for (name, cells) in TABLE {
        let mut rig = Rig::new();
        let Some(event) = tpi::Event::of(&request(&mut rig, name, 0), 0, false) else { continue };
        for (state, cell) in STATES.into_iter().zip(cells) {
            let fits = state.after(event).is_some();
            match (fits, *cell) {
                (true, "out" | "gone") => panic!("{name} fits {state}"),
                (false, "out" | "gone" | "drop") | (true, _) => {}
                (false, _) => more.push(format!("{name} in {state}")),
            }
        }
    }
    assert_eq!(
        more,
        [
            "T_CONN_REQ in TS_UNBND",
            "T_DATA_REQ in TS_WCON_CREQ",
            "T_EXDATA_REQ in TS_WCON_CREQ",
            "T_OPTDATA_REQ in TS_WCON_CREQ"
        ]
    );
}

/// The user cannot put a primitive of the provider.
#[test]
fn an_indication_that_a_user_puts_is_not_supported() {
    let mut rig = Rig::new();
    let s = rig.bound(0, 0);
    for primitive in [
        Primitive::DataInd { more: false },
        Primitive::OkAck { primitive: PrimitiveCode::BindReq },
        Primitive::OrdrelInd { association: Which::Only },
        Primitive::OptmgmtAck(Box::<Optmgmt>::default()),
    ] {
        let answer = rig.ask(s, &primitive);
        let expected = Primitive::ErrorAck {
            primitive: primitive.code(),
            t_error: TError::NotSupported,
            errno: Errno(0),
        };
        assert_eq!(answer, expected);
    }
}
