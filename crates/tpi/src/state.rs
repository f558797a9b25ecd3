//! The states of a transport endpoint, and the transitions between them.

use crate::Primitive;
use std::fmt;

/// The state of a transport endpoint as both sides of the interface see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum State {
    /// `TS_UNBND`: not bound.
    Unbound,
    /// `TS_WACK_BREQ`: waits for the answer to a bind request.
    AwaitingBindAck,
    /// `TS_WACK_UREQ`: waits for the answer to an unbind request.
    AwaitingUnbindAck,
    /// `TS_IDLE`: bound, no connection.
    Idle,
    /// `TS_WACK_OPTREQ`: waits for the answer to an option management request.
    AwaitingOptionsAck,
    /// `TS_WACK_CREQ`: waits for the answer to a connect request.
    AwaitingConnectAck,
    /// `TS_WCON_CREQ`: waits for the peer to confirm the connection.
    AwaitingConfirmation,
    /// `TS_WRES_CIND`: a connect indication waits for its response.
    AwaitingResponse,
    /// `TS_WACK_CRES`: waits for the answer to a connect response.
    AwaitingResponseAck,
    /// `TS_DATA_XFER`: connected.
    DataTransfer,
    /// `TS_WIND_ORDREL`: we have released our direction; the peer has not.
    AwaitingReleaseIndication,
    /// `TS_WREQ_ORDREL`: the peer has released its direction; we have not.
    AwaitingReleaseRequest,
    /// `TS_WACK_DREQ6`: waits for the answer to a disconnect request that gave up connecting.
    AwaitingDisconnectAck6,
    /// `TS_WACK_DREQ7`: waits for the answer to a disconnect request that refused a connect indication.
    AwaitingDisconnectAck7,
    /// `TS_WACK_DREQ9`: waits for the answer to a disconnect request in `TS_DATA_XFER`.
    AwaitingDisconnectAck9,
    /// `TS_WACK_DREQ10`: waits for the answer to a disconnect request in `TS_WIND_ORDREL`.
    AwaitingDisconnectAck10,
    /// `TS_WACK_DREQ11`: waits for the answer to a disconnect request in `TS_WREQ_ORDREL`.
    AwaitingDisconnectAck11,
}

/// An event of a transport endpoint. If the effect of a primitive depends on the number of connect indications that
/// wait for a response, each case is an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Event {
    /// `T_BIND_REQ`
    BindReq,
    /// `T_UNBIND_REQ`
    UnbindReq,
    /// `T_OPTMGMT_REQ`
    OptmgmtReq,
    /// `T_CONN_REQ`
    ConnReq,
    /// `T_CONN_RES`
    ConnRes,
    /// `T_DISCON_REQ`
    DisconReq,
    /// `T_DATA_REQ`, `T_OPTDATA_REQ`
    DataReq,
    /// `T_EXDATA_REQ`
    ExdataReq,
    /// `T_ORDREL_REQ`
    OrdrelReq,
    /// `T_UNITDATA_REQ`
    UnitdataReq,
    /// `T_BIND_ACK`
    BindAck,
    /// `T_OPTMGMT_ACK`
    OptmgmtAck,
    /// `T_ERROR_ACK`
    ErrorAck,
    /// `T_OK_ACK` while no connect indication waits.
    OkAck1,
    /// `T_OK_ACK` for the only connect indication, which this endpoint itself accepts or refuses.
    OkAck2,
    /// `T_OK_ACK` for the only connect indication, which another endpoint accepts.
    OkAck3,
    /// `T_OK_ACK` while more connect indications wait.
    OkAck4,
    /// `T_CONN_IND`
    ConnInd,
    /// `T_CONN_CON`
    ConnCon,
    /// `T_DATA_IND`, `T_OPTDATA_IND`
    DataInd,
    /// `T_EXDATA_IND`
    ExdataInd,
    /// `T_ORDREL_IND`
    OrdrelInd,
    /// `T_DISCON_IND` while no connect indication waits.
    DisconInd1,
    /// `T_DISCON_IND` for the only connect indication.
    DisconInd2,
    /// `T_DISCON_IND` while more connect indications wait.
    DisconInd3,
    /// `T_UNITDATA_IND`
    UnitdataInd,
    /// `T_UDERROR_IND`
    UderrorInd,
    /// Another endpoint accepted a connection and hands it to this one.
    PassConn,
}

const STATES: usize = 17;
const EVENTS: usize = 28;

/// Marks an event that does not fit a state.
const NO: u8 = 127;

/// The next state, by event (down) and state (across). XTI permits option management in every state but the
/// uninitialised one. The table of TPI permits it in `TS_IDLE` alone, where the request has a state of its own. In the
/// other states the request and its answer change nothing.
#[rustfmt::skip]
const TABLE: [[u8; STATES]; EVENTS] = [
    //   0   1   2   3   4   5   6   7   8   9  10  11  12  13  14  15  16
    [    1, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO], // T_BIND_REQ
    [   NO, NO, NO,  2, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO], // T_UNBIND_REQ
    [    0, NO, NO,  4, NO, NO,  6,  7, NO,  9, 10, 11, NO, NO, NO, NO, NO], // T_OPTMGMT_REQ
    [   NO, NO, NO,  5, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO], // T_CONN_REQ
    [   NO, NO, NO, NO, NO, NO, NO,  8, NO, NO, NO, NO, NO, NO, NO, NO, NO], // T_CONN_RES
    [   NO, NO, NO, NO, NO, NO, 12, 13, NO, 14, 15, 16, NO, NO, NO, NO, NO], // T_DISCON_REQ
    [   NO, NO, NO, NO, NO, NO, NO, NO, NO,  9, NO, 11, NO, NO, NO, NO, NO], // T_DATA_REQ
    [   NO, NO, NO, NO, NO, NO, NO, NO, NO,  9, NO, 11, NO, NO, NO, NO, NO], // T_EXDATA_REQ
    [   NO, NO, NO, NO, NO, NO, NO, NO, NO, 10, NO,  3, NO, NO, NO, NO, NO], // T_ORDREL_REQ
    [   NO, NO, NO,  3, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO], // T_UNITDATA_REQ
    [   NO,  3, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO], // T_BIND_ACK
    [    0, NO, NO, NO,  3, NO,  6,  7, NO,  9, 10, 11, NO, NO, NO, NO, NO], // T_OPTMGMT_ACK
    [   NO,  0,  3, NO,  3,  3, NO, NO,  7, NO, NO, NO,  6,  7,  9, 10, 11], // T_ERROR_ACK
    [   NO, NO,  0, NO, NO,  6, NO, NO, NO, NO, NO, NO,  3, NO,  3,  3,  3], // T_OK_ACK, none waits
    [   NO, NO, NO, NO, NO, NO, NO, NO,  9, NO, NO, NO, NO,  3, NO, NO, NO], // T_OK_ACK, the only one, here
    [   NO, NO, NO, NO, NO, NO, NO, NO,  3, NO, NO, NO, NO,  3, NO, NO, NO], // T_OK_ACK, the only one, elsewhere
    [   NO, NO, NO, NO, NO, NO, NO, NO,  7, NO, NO, NO, NO,  7, NO, NO, NO], // T_OK_ACK, more wait
    [   NO, NO, NO,  7, NO, NO, NO,  7, NO, NO, NO, NO, NO, NO, NO, NO, NO], // T_CONN_IND
    [   NO, NO, NO, NO, NO, NO,  9, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO], // T_CONN_CON
    [   NO, NO, NO, NO, NO, NO, NO, NO, NO,  9, 10, NO, NO, NO, NO, NO, NO], // T_DATA_IND
    [   NO, NO, NO, NO, NO, NO, NO, NO, NO,  9, 10, NO, NO, NO, NO, NO, NO], // T_EXDATA_IND
    [   NO, NO, NO, NO, NO, NO, NO, NO, NO, 11,  3, NO, NO, NO, NO, NO, NO], // T_ORDREL_IND
    [   NO, NO, NO, NO, NO, NO,  3, NO, NO,  3,  3,  3, NO, NO, NO, NO, NO], // T_DISCON_IND, none waits
    [   NO, NO, NO, NO, NO, NO, NO,  3, NO, NO, NO, NO, NO, NO, NO, NO, NO], // T_DISCON_IND, the only one
    [   NO, NO, NO, NO, NO, NO, NO,  7, NO, NO, NO, NO, NO, NO, NO, NO, NO], // T_DISCON_IND, more wait
    [   NO, NO, NO,  3, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO], // T_UNITDATA_IND
    [   NO, NO, NO,  3, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO], // T_UDERROR_IND
    [    9, NO, NO,  9, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO], // a connection is handed over
];

impl State {
    /// All states, in the order of their numbers.
    pub const ALL: [State; STATES] = [
        Self::Unbound,
        Self::AwaitingBindAck,
        Self::AwaitingUnbindAck,
        Self::Idle,
        Self::AwaitingOptionsAck,
        Self::AwaitingConnectAck,
        Self::AwaitingConfirmation,
        Self::AwaitingResponse,
        Self::AwaitingResponseAck,
        Self::DataTransfer,
        Self::AwaitingReleaseIndication,
        Self::AwaitingReleaseRequest,
        Self::AwaitingDisconnectAck6,
        Self::AwaitingDisconnectAck7,
        Self::AwaitingDisconnectAck9,
        Self::AwaitingDisconnectAck10,
        Self::AwaitingDisconnectAck11,
    ];

    /// Returns the state after an event; `None` if the event does not fit (`TOUTSTATE`).
    pub fn after(self, event: Event) -> Option<State> {
        Self::ALL.get(usize::from(TABLE[event as usize][self as usize])).copied()
    }

    /// Returns the number of the state, as in [`crate::Info::state`].
    pub fn number(self) -> u32 {
        self as u32
    }

    /// Returns the name in the interface's headers.
    pub fn name(self) -> &'static str {
        const NAMES: [&str; STATES] = [
            "TS_UNBND",
            "TS_WACK_BREQ",
            "TS_WACK_UREQ",
            "TS_IDLE",
            "TS_WACK_OPTREQ",
            "TS_WACK_CREQ",
            "TS_WCON_CREQ",
            "TS_WRES_CIND",
            "TS_WACK_CRES",
            "TS_DATA_XFER",
            "TS_WIND_ORDREL",
            "TS_WREQ_ORDREL",
            "TS_WACK_DREQ6",
            "TS_WACK_DREQ7",
            "TS_WACK_DREQ9",
            "TS_WACK_DREQ10",
            "TS_WACK_DREQ11",
        ];
        NAMES[self as usize]
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Event {
    /// Returns the event of a primitive; `None` if the primitive fits every state and changes none. `waiting` is the
    /// number of connect indications that wait for a response, including the one that the primitive refers to; `here`
    /// says whether an acknowledged connect response names its own endpoint.
    pub fn of(primitive: &Primitive, waiting: u32, here: bool) -> Option<Event> {
        Some(match primitive {
            Primitive::BindReq { .. } => Self::BindReq,
            Primitive::UnbindReq => Self::UnbindReq,
            Primitive::OptmgmtReq(_) => Self::OptmgmtReq,
            Primitive::ConnReq { .. } => Self::ConnReq,
            Primitive::ConnRes { .. } => Self::ConnRes,
            Primitive::DisconReq { .. } => Self::DisconReq,
            Primitive::DataReq { .. } | Primitive::OptdataReq { .. } => Self::DataReq,
            Primitive::ExdataReq { .. } => Self::ExdataReq,
            Primitive::OrdrelReq { .. } => Self::OrdrelReq,
            Primitive::UnitdataReq(_) => Self::UnitdataReq,
            Primitive::BindAck { .. } => Self::BindAck,
            Primitive::OptmgmtAck(_) => Self::OptmgmtAck,
            Primitive::ErrorAck { .. } => Self::ErrorAck,
            Primitive::OkAck { .. } => match (waiting, here) {
                (0, _) => Self::OkAck1,
                (1, true) => Self::OkAck2,
                (1, false) => Self::OkAck3,
                _ => Self::OkAck4,
            },
            Primitive::ConnInd { .. } => Self::ConnInd,
            Primitive::ConnCon { .. } => Self::ConnCon,
            Primitive::DataInd { .. } | Primitive::OptdataInd { .. } => Self::DataInd,
            Primitive::ExdataInd { .. } => Self::ExdataInd,
            Primitive::OrdrelInd { .. } => Self::OrdrelInd,
            Primitive::DisconInd { .. } => match waiting {
                0 => Self::DisconInd1,
                1 => Self::DisconInd2,
                _ => Self::DisconInd3,
            },
            Primitive::UnitdataInd(_) => Self::UnitdataInd,
            Primitive::UderrorInd { .. } => Self::UderrorInd,
            Primitive::InfoReq
            | Primitive::InfoAck(_)
            | Primitive::NotificationInd(_)
            | Primitive::AddrReq
            | Primitive::AddrAck { .. }
            | Primitive::CapabilityReq { .. }
            | Primitive::CapabilityAck { .. } => return None,
        })
    }
}
