//! The state table, transition by transition (TPI 2.0, the tables of states).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::HashSet;
use tpi::{Addresses, Errno, Event, Primitive, PrimitiveCode, RecvInfo, SendInfo, State, TError, Which};

/// Every transition that the interface permits: event, from, to.
const TRANSITIONS: &[(&str, &[(&str, &str)])] = &[
    ("BindReq", &[("UNBND", "WACK_BREQ")]),
    ("UnbindReq", &[("IDLE", "WACK_UREQ")]),
    (
        "OptmgmtReq",
        &[
            ("UNBND", "UNBND"),
            ("IDLE", "WACK_OPTREQ"),
            ("WCON_CREQ", "WCON_CREQ"),
            ("WRES_CIND", "WRES_CIND"),
            ("DATA_XFER", "DATA_XFER"),
            ("WIND_ORDREL", "WIND_ORDREL"),
            ("WREQ_ORDREL", "WREQ_ORDREL"),
        ],
    ),
    ("ConnReq", &[("IDLE", "WACK_CREQ")]),
    ("ConnRes", &[("WRES_CIND", "WACK_CRES")]),
    (
        "DisconReq",
        &[
            ("WCON_CREQ", "WACK_DREQ6"),
            ("WRES_CIND", "WACK_DREQ7"),
            ("DATA_XFER", "WACK_DREQ9"),
            ("WIND_ORDREL", "WACK_DREQ10"),
            ("WREQ_ORDREL", "WACK_DREQ11"),
        ],
    ),
    ("DataReq", &[("DATA_XFER", "DATA_XFER"), ("WREQ_ORDREL", "WREQ_ORDREL")]),
    ("ExdataReq", &[("DATA_XFER", "DATA_XFER"), ("WREQ_ORDREL", "WREQ_ORDREL")]),
    ("OrdrelReq", &[("DATA_XFER", "WIND_ORDREL"), ("WREQ_ORDREL", "IDLE")]),
    ("UnitdataReq", &[("IDLE", "IDLE")]),
    ("BindAck", &[("WACK_BREQ", "IDLE")]),
    (
        "OptmgmtAck",
        &[
            ("UNBND", "UNBND"),
            ("WACK_OPTREQ", "IDLE"),
            ("WCON_CREQ", "WCON_CREQ"),
            ("WRES_CIND", "WRES_CIND"),
            ("DATA_XFER", "DATA_XFER"),
            ("WIND_ORDREL", "WIND_ORDREL"),
            ("WREQ_ORDREL", "WREQ_ORDREL"),
        ],
    ),
    (
        "ErrorAck",
        &[
            ("WACK_BREQ", "UNBND"),
            ("WACK_UREQ", "IDLE"),
            ("WACK_OPTREQ", "IDLE"),
            ("WACK_CREQ", "IDLE"),
            ("WACK_CRES", "WRES_CIND"),
            ("WACK_DREQ6", "WCON_CREQ"),
            ("WACK_DREQ7", "WRES_CIND"),
            ("WACK_DREQ9", "DATA_XFER"),
            ("WACK_DREQ10", "WIND_ORDREL"),
            ("WACK_DREQ11", "WREQ_ORDREL"),
        ],
    ),
    (
        "OkAck1",
        &[
            ("WACK_UREQ", "UNBND"),
            ("WACK_CREQ", "WCON_CREQ"),
            ("WACK_DREQ6", "IDLE"),
            ("WACK_DREQ9", "IDLE"),
            ("WACK_DREQ10", "IDLE"),
            ("WACK_DREQ11", "IDLE"),
        ],
    ),
    ("OkAck2", &[("WACK_CRES", "DATA_XFER"), ("WACK_DREQ7", "IDLE")]),
    ("OkAck3", &[("WACK_CRES", "IDLE"), ("WACK_DREQ7", "IDLE")]),
    ("OkAck4", &[("WACK_CRES", "WRES_CIND"), ("WACK_DREQ7", "WRES_CIND")]),
    ("ConnInd", &[("IDLE", "WRES_CIND"), ("WRES_CIND", "WRES_CIND")]),
    ("ConnCon", &[("WCON_CREQ", "DATA_XFER")]),
    ("DataInd", &[("DATA_XFER", "DATA_XFER"), ("WIND_ORDREL", "WIND_ORDREL")]),
    ("ExdataInd", &[("DATA_XFER", "DATA_XFER"), ("WIND_ORDREL", "WIND_ORDREL")]),
    ("OrdrelInd", &[("DATA_XFER", "WREQ_ORDREL"), ("WIND_ORDREL", "IDLE")]),
    (
        "DisconInd1",
        &[("WCON_CREQ", "IDLE"), ("DATA_XFER", "IDLE"), ("WIND_ORDREL", "IDLE"), ("WREQ_ORDREL", "IDLE")],
    ),
    ("DisconInd2", &[("WRES_CIND", "IDLE")]),
    ("DisconInd3", &[("WRES_CIND", "WRES_CIND")]),
    ("UnitdataInd", &[("IDLE", "IDLE")]),
    ("UderrorInd", &[("IDLE", "IDLE")]),
    ("PassConn", &[("UNBND", "DATA_XFER"), ("IDLE", "DATA_XFER")]),
];

const EVENTS: [Event; 28] = [
    Event::BindReq,
    Event::UnbindReq,
    Event::OptmgmtReq,
    Event::ConnReq,
    Event::ConnRes,
    Event::DisconReq,
    Event::DataReq,
    Event::ExdataReq,
    Event::OrdrelReq,
    Event::UnitdataReq,
    Event::BindAck,
    Event::OptmgmtAck,
    Event::ErrorAck,
    Event::OkAck1,
    Event::OkAck2,
    Event::OkAck3,
    Event::OkAck4,
    Event::ConnInd,
    Event::ConnCon,
    Event::DataInd,
    Event::ExdataInd,
    Event::OrdrelInd,
    Event::DisconInd1,
    Event::DisconInd2,
    Event::DisconInd3,
    Event::UnitdataInd,
    Event::UderrorInd,
    Event::PassConn,
];

#[test]
fn every_event_leads_where_the_interface_says_and_nowhere_else() {
    for (event, (name, transitions)) in EVENTS.iter().zip(TRANSITIONS) {
        assert_eq!(format!("{event:?}"), *name);
        for state in State::ALL {
            let short = state.name().trim_start_matches("TS_");
            let expected = transitions.iter().find(|(from, _)| *from == short).map(|(_, to)| *to);
            let actual = state.after(*event).map(|to| to.name().trim_start_matches("TS_"));
            assert_eq!(actual, expected, "{name} in {state}");
        }
    }
    assert_eq!(EVENTS.len(), TRANSITIONS.len());
}

#[test]
fn every_state_can_be_reached_and_left() {
    let mut reached = HashSet::from([State::Unbound]);
    loop {
        let before = reached.len();
        let next: Vec<_> =
            reached.iter().flat_map(|state| EVENTS.iter().filter_map(|event| state.after(*event))).collect();
        reached.extend(next);
        if reached.len() == before {
            break;
        }
    }
    assert_eq!(reached.len(), State::ALL.len());
    for state in State::ALL {
        assert!(EVENTS.iter().any(|event| state.after(*event).is_some_and(|to| to != state)), "{state}");
        assert_eq!(State::ALL[state.number() as usize], state);
    }
}

fn after(mut state: State, primitives: &[(Primitive, u32)]) -> State {
    for (primitive, waiting) in primitives {
        let event = Event::of(primitive, *waiting, true).unwrap();
        let name = primitive.code().name();
        state = state.after(event).unwrap_or_else(|| panic!("{name} does not fit {state}"));
    }
    state
}

fn addresses() -> Box<Addresses> {
    Box::default()
}

fn ok(primitive: PrimitiveCode) -> Primitive {
    Primitive::OkAck { primitive }
}

#[test]
fn an_active_connection_from_its_bind_to_its_orderly_end() {
    let bound = [
        (Primitive::BindReq { addresses: addresses(), backlog: 0 }, 0),
        (Primitive::BindAck { addresses: addresses(), backlog: 0 }, 0),
    ];
    let connected = [
        (Primitive::ConnReq { addresses: addresses() }, 0),
        (ok(PrimitiveCode::ConnReq), 0),
        (
            Primitive::ConnCon {
                addresses: addresses(),
                association: Which::Only,
                outbound_streams: 1,
                inbound_streams: 1,
            },
            0,
        ),
        (Primitive::OptdataReq { association: Which::Only, info: SendInfo::default() }, 0),
        (Primitive::OptdataInd { association: Which::Only, info: RecvInfo::default() }, 0),
    ];
    let released = [
        (Primitive::OrdrelReq { association: Which::Only }, 0),
        (Primitive::OptdataInd { association: Which::Only, info: RecvInfo::default() }, 0),
        (Primitive::OrdrelInd { association: Which::Only }, 0),
        (Primitive::UnbindReq, 0),
        (ok(PrimitiveCode::UnbindReq), 0),
    ];
    let state = after(State::Unbound, &bound);
    assert_eq!(state, State::Idle);
    let state = after(state, &connected);
    assert_eq!(state, State::DataTransfer);
    assert_eq!(after(state, &released), State::Unbound);
}

#[test]
fn two_connect_indications_of_which_one_is_refused_and_one_accepted() {
    let indication = |sequence| Primitive::ConnInd { addresses: addresses(), sequence };
    let state = after(
        State::Idle,
        &[
            (indication(1), 0),
            (indication(2), 1),
            (Primitive::DisconReq { sequence: 1, reason: 0, association: Which::Only }, 2),
            (ok(PrimitiveCode::DisconReq), 2),
            (Primitive::ConnRes { sequence: 2, acceptor: 0 }, 1),
            (ok(PrimitiveCode::ConnRes), 1),
        ],
    );
    assert_eq!(state, State::DataTransfer);
}

#[test]
fn a_refused_request_changes_nothing() {
    let refused =
        |primitive| Primitive::ErrorAck { primitive, t_error: TError::Access, errno: Errno::EACCES };
    let state = after(
        State::Unbound,
        &[
            (Primitive::BindReq { addresses: addresses(), backlog: 0 }, 0),
            (refused(PrimitiveCode::BindReq), 0),
        ],
    );
    assert_eq!(state, State::Unbound);
    assert_eq!(Event::of(&Primitive::InfoReq, 0, true), None);
}
