//! The error numbers of the transport interface (`t_errno`).

use std::fmt;

macro_rules! t_errors {
    ($($variant:ident = $value:literal, $name:literal, $sentence:literal;)*) => {
        /// Reason why a provider refused a primitive: the `t_errno` values of XTI.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum TError { $(#[doc = $sentence] $variant = $value,)* }

        impl TError {
            /// All values, in numeric order.
            pub const ALL: &'static [TError] = &[$(TError::$variant,)*];

            /// Returns the error with the number `value`, if one exists.
            pub fn from_number(value: u32) -> Option<Self> {
                match value { $($value => Some(Self::$variant),)* _ => None }
            }

            /// Returns the name in the XTI headers.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            fn sentence(self) -> &'static str {
                match self { $(Self::$variant => $sentence,)* }
            }
        }
    };
}

t_errors! {
    BadAddress = 1, "TBADADDR", "the address has a wrong format";
    BadOption = 2, "TBADOPT", "the options have a wrong format";
    Access = 3, "TACCES", "permission denied for this address or option";
    BadFile = 4, "TBADF", "the descriptor is not a transport endpoint";
    NoAddress = 5, "TNOADDR", "the provider could not choose an address; specify one";
    OutOfState = 6, "TOUTSTATE", "the primitive does not fit the state of the endpoint";
    BadSequence = 7, "TBADSEQ", "no connect indication has this sequence number";
    System = 8, "TSYSERR", "a system error occurred; see the accompanying error number";
    Look = 9, "TLOOK", "an event waits to be received first";
    BadData = 10, "TBADDATA", "the amount of data is not allowed";
    BufferOverflow = 11, "TBUFOVFLW", "the buffer is too small for the answer";
    Flow = 12, "TFLOW", "flow control holds the data back";
    NoData = 13, "TNODATA", "no data waits";
    NoDisconnect = 14, "TNODIS", "no disconnect indication waits";
    NoUnitError = 15, "TNOUDERR", "no unit data error waits";
    BadFlag = 16, "TBADFLAG", "a flag is not allowed here";
    NoRelease = 17, "TNOREL", "no orderly release indication waits";
    NotSupported = 18, "TNOTSUPPORT", "the provider does not support this primitive";
    StateChange = 19, "TSTATECHNG", "the endpoint is changing its state; try again";
    NoStructure = 20, "TNOSTRUCTYPE", "the structure type is unknown";
    BadName = 21, "TBADNAME", "the provider's name is unknown";
    BadQueueLength = 22, "TBADQLEN", "listening needs a queue length above zero";
    AddressBusy = 23, "TADDRBUSY", "the address is in use";
    IndicationsOutstanding = 24, "TINDOUT", "connect indications wait on this endpoint";
    ProviderMismatch = 25, "TPROVMISMATCH", "the accepting endpoint belongs to another provider";
    AcceptorQueueLength = 26, "TRESQLEN", "the accepting endpoint has a queue length above zero";
    AcceptorAddress = 27, "TRESADDR", "the accepting endpoint is bound to another address";
    QueueFull = 28, "TQFULL", "the queue of connect indications is full";
    Protocol = 29, "TPROTO", "the protocol was violated";
}

impl fmt::Display for TError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.sentence(), self.name())
    }
}

impl std::error::Error for TError {}
