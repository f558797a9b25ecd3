//! Errors of stream operations: one type for each operation.

use std::error::Error;
use std::fmt;

use crate::{Errno, Message, SendError};

/// Error of opening a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// The executive has no driver with this number.
    NoDriver,
    /// The driver refused.
    Driver(Errno),
    /// The minor device is open and belongs to another user.
    NotOwner,
    /// A module that autopush names could not be pushed.
    Autopush(PushError),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDriver => {
                write!(f, "no such driver; add it to the executive before opening a stream to it")
            }
            Self::Driver(errno) => write!(f, "the driver refused to open a stream: {errno}"),
            Self::NotOwner => write!(f, "the minor device is open and another user's; open another one"),
            Self::Autopush(error) => write!(f, "autopush: {error}; correct its rule for the device"),
        }
    }
}

impl Error for OpenError {}

/// Error of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// There is no room now. The stream remembers the writer: wait until it is writable.
    WouldBlock,
    /// The transport refused the message. The stream stays usable.
    Refused(SendError),
    /// The driver refused the data, or has reported that the stream failed.
    Failed(Errno),
    /// The other end is gone.
    HungUp,
    /// The stream is closed.
    Closed,
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WouldBlock => write!(f, "the stream has no room now; wait until it is writable"),
            Self::Refused(reason) => write!(f, "the message was refused: {reason}"),
            Self::Failed(errno) => write!(f, "the stream does not take the data: {errno}"),
            Self::HungUp => write!(f, "the stream has been hung up; close it"),
            Self::Closed => write!(f, "the stream is closed; open another one"),
        }
    }
}

impl Error for WriteError {}

/// A message that could not be put on a stream, with the error.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    /// The error.
    pub error: WriteError,
    /// The message, for another attempt.
    pub message: Message,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Error for Refused {}

/// Error of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// The driver has reported that the stream failed.
    Failed(Errno),
    /// The other end is gone, and all that it sent has been read.
    HungUp,
    /// The next message is not data. Take it with `getmsg`.
    NotData,
    /// The stream is closed.
    Closed,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(errno) => write!(f, "the stream has failed: {errno}"),
            Self::HungUp => write!(f, "the stream has been hung up and everything has been read; close it"),
            Self::NotData => write!(f, "the next message is not data; take it with getmsg"),
            Self::Closed => write!(f, "the stream is closed; open another one"),
        }
    }
}

impl Error for ReadError {}

/// Error of pushing a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushError {
    /// No module has this name.
    NoModule,
    /// The module rejects its arguments, for this reason.
    Argument(String),
    /// The module refused.
    Module(Errno),
    /// The stream has the largest allowed number of modules.
    TooMany,
    /// The stream has failed.
    Failed(Errno),
    /// The stream has been hung up.
    HungUp,
    /// The stream is closed.
    Closed,
}

impl fmt::Display for PushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoModule => write!(f, "no module has this name; add it to the executive before"),
            Self::Argument(why) => write!(f, "the module rejects its arguments: {why}"),
            Self::Module(errno) => write!(f, "the module refused to be pushed: {errno}"),
            Self::TooMany => write!(f, "the stream has as many modules as it may have; pop one first"),
            Self::Failed(errno) => write!(f, "nothing can be pushed on a stream that has failed: {errno}"),
            Self::HungUp => write!(f, "nothing can be pushed on a stream that has been hung up; close it"),
            Self::Closed => write!(f, "the stream is closed; open another one"),
        }
    }
}

impl Error for PushError {}

/// Error of popping a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PopError {
    /// The stream has no module.
    NoModule,
    /// The module is anchored, and the user is not privileged.
    Anchored,
    /// The module is about to leave, and waits for its other end, for the end of a record, or until what it holds has gone up.
    Busy,
    /// The stream is closed.
    Closed,
}

impl fmt::Display for PopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoModule => write!(f, "the stream has no module to pop; push one first"),
            Self::Anchored => write!(f, "an anchor stands on the module; a privileged user pops it"),
            Self::Busy => {
                write!(
                    f,
                    "the module waits for its other end, for the reader, or for the end of a record; pop it again soon"
                )
            }
            Self::Closed => write!(f, "the stream is closed; open another one"),
        }
    }
}

impl Error for PopError {}

/// Error of an ioctl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoctlError {
    /// A module or the driver refused it.
    Refused(Errno),
    /// Another ioctl is under way on this stream.
    Busy,
    /// The stream has failed.
    Failed(Errno),
    /// The stream has been hung up.
    HungUp,
    /// The stream is closed.
    Closed,
}

impl fmt::Display for IoctlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(errno) => write!(f, "the ioctl was refused: {errno}"),
            Self::Busy => write!(f, "another ioctl is under way on this stream; wait for its answer"),
            Self::Failed(errno) => write!(f, "the stream has failed: {errno}"),
            Self::HungUp => write!(f, "the stream has been hung up; close it"),
            Self::Closed => write!(f, "the stream is closed; open another one"),
        }
    }
}

impl Error for IoctlError {}

/// Error of linking or unlinking a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkError {
    /// Messages could go round in a circle.
    Loop,
    /// The lower stream is linked already.
    Linked,
    /// The driver of the upper stream refused; `EINVAL` if it is no multiplexor.
    Driver(Errno),
    /// There is no link with this number.
    NoLink,
    /// A stream has failed.
    Failed(Errno),
    /// A stream has been hung up.
    HungUp,
    /// A stream is closed.
    Closed,
}

impl LinkError {
    pub(crate) fn of(error: WriteError) -> Self {
        match error {
            WriteError::Refused(reason) => Self::Failed(reason.into()),
            WriteError::Failed(errno) => Self::Failed(errno),
            WriteError::HungUp => Self::HungUp,
            WriteError::Closed | WriteError::WouldBlock => Self::Closed,
        }
    }

    /// Returns the number that `ioctl` reports.
    pub fn errno(self) -> Errno {
        match self {
            Self::Loop | Self::Linked | Self::NoLink => Errno::EINVAL,
            Self::Driver(errno) | Self::Failed(errno) => errno,
            Self::HungUp => Errno::ENXIO,
            Self::Closed => Errno::EBADF,
        }
    }
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loop => write!(f, "messages could go round in a circle; link another stream"),
            Self::Linked => write!(f, "the stream is linked already; unlink it first"),
            Self::Driver(errno) => write!(f, "the driver does not take the stream: {errno}"),
            Self::NoLink => write!(f, "there is no link with this number"),
            Self::Failed(errno) => write!(f, "a stream has failed: {errno}"),
            Self::HungUp => write!(f, "a stream has been hung up; close it"),
            Self::Closed => write!(f, "a stream is closed; open another one"),
        }
    }
}

impl Error for LinkError {}

/// Error in a file of autopush rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutopushError {
    /// The line, from 1.
    pub line: usize,
    /// Description of the error.
    pub what: String,
}

impl fmt::Display for AutopushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl Error for AutopushError {}
