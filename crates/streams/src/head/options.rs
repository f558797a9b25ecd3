//! Options of a stream head.

/// How `read` treats the boundaries of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadMode {
    /// `RNORM`: boundaries are ignored; a read takes bytes of as many messages as fill its buffer.
    Bytes,
    /// `RMSGN`: a read ends with its message; what the buffer did not hold stays for the next read.
    #[default]
    MessageNondiscard,
    /// `RMSGD`: a read ends with its message; what the buffer did not hold is thrown away.
    MessageDiscard,
}

/// Options of a stream head (`stroptions`). `None` leaves an option as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeadOptions {
    /// How reads treat the boundaries of messages (`SO_READOPT`). Default: [`ReadMode::MessageNondiscard`].
    pub read_mode: Option<ReadMode>,
    /// High-water mark of the read queue (`SO_HIWAT`). Default: the driver's.
    pub hiwat_bytes: Option<usize>,
    /// Low-water mark of the read queue (`SO_LOWAT`). Default: the driver's.
    pub lowat_bytes: Option<usize>,
    /// The band that the two marks are for (`SO_BAND`). Default: 0.
    pub band: u8,
    /// Writes with more to come are held until they are this many. Default: 32 KB; 0 holds nothing back.
    pub coalesce_bytes: Option<usize>,
}
