//! Options of a stream head.

/// Treatment of message boundaries by `read` (`I_SRDOPT`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadMode {
    /// `RNORM`: a read ignores boundaries and takes bytes of as many messages as fill its buffer.
    Bytes,
    /// `RMSGN`: a read ends with its message; bytes that the buffer has no room for stay for the next read.
    #[default]
    MessageNondiscard,
    /// `RMSGD`: a read ends with its message; bytes that the buffer has no room for are discarded.
    MessageDiscard,
}

/// Treatment of messages with a control part by `read`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadControl {
    /// `RPROTNORM`: a read fails with `EBADMSG`, except where the control part is a primitive that carries user data.
    #[default]
    Fail,
    /// `RPROTDAT`: the control part is read as data, before the data.
    AsData,
    /// `RPROTDIS`: the control part is discarded, and its data is read.
    Discard,
}

/// The message that a write sends down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteAs {
    /// `M_DATA`.
    #[default]
    Data,
    /// `T_OPTDATA_REQ` with the writer's information about the message.
    OptdataReq,
}

/// Options of writes (`I_SWROPT`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// `SNDZERO`: an empty write sends an empty message. Default: it sends nothing on a stream whose writes are `M_DATA`.
    pub send_zero: bool,
    /// `SNDHOLD`: short writes are held until they amount to [`HeadOptions::coalesce_bytes`], or are flushed.
    pub hold: bool,
    /// `SNDPIPE`: a write on a stream that has failed or was hung up is due [`Signal::PIPE`](crate::Signal::PIPE), which
    /// [`Executive::take_signal`](crate::Executive::take_signal) returns to the writer.
    pub send_pipe: bool,
}

/// Whether an error is reported once or until it is cleared (`I_SERROPT`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorOptions {
    /// `RERRNONPERSIST`: a read error is reported once.
    pub read_once: bool,
    /// `WERRNONPERSIST`: a write error is reported once.
    pub write_once: bool,
}

/// Options of a stream head (`stroptions`). `None` leaves an option as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeadOptions {
    /// Treatment of message boundaries by reads (`SO_READOPT`). Default: [`ReadMode::MessageNondiscard`].
    pub read_mode: Option<ReadMode>,
    /// Treatment of control parts by reads (`SO_READOPT`). Default: [`ReadControl::Fail`].
    pub read_control: Option<ReadControl>,
    /// The type of message that writes send down. Default: the driver's.
    pub write_as: Option<WriteAs>,
    /// Options of writes. Default: none is set.
    pub write: Option<WriteOptions>,
    /// Whether errors persist. Default: they do.
    pub errors: Option<ErrorOptions>,
    /// Whether a read that finds nothing sends `M_READ` down (`SO_MREADON`, `SO_MREADOFF`). Default: no.
    pub announce_reads: Option<bool>,
    /// High-water mark of the read queue (`SO_HIWAT`). Default: the driver's.
    pub hiwat_bytes: Option<usize>,
    /// Low-water mark of the read queue (`SO_LOWAT`). Default: the driver's.
    pub lowat_bytes: Option<usize>,
    /// The band of the two marks (`SO_BAND`). Default: 0.
    pub band: u8,
    /// Size at which writes with more to come go down. Default: 32 KB; 0 holds nothing back.
    pub coalesce_bytes: Option<usize>,
}
