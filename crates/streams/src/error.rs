//! Why an operation on a stream failed: one type for each operation.

use crate::{Errno, Message};
use std::error::Error;
use std::fmt;

/// Why a stream could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// The executive has no driver with this number.
    NoDriver,
    /// The driver refused.
    Driver(Errno),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDriver => {
                write!(f, "no such driver; add it to the executive before opening a stream to it")
            }
            Self::Driver(errno) => write!(f, "the driver refused to open a stream: {errno}"),
        }
    }
}

impl Error for OpenError {}

/// Why nothing could be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// There is no room now. The wish is remembered: wait until the stream is writable.
    WouldBlock,
    /// The driver refused the data, or has said that the stream failed.
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
            Self::Failed(errno) => write!(f, "the stream does not take the data: {errno}"),
            Self::HungUp => write!(f, "the stream has been hung up; close it"),
            Self::Closed => write!(f, "the stream is closed; open another one"),
        }
    }
}

impl Error for WriteError {}

/// A message that could not be put on a stream, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    /// Why.
    pub error: WriteError,
    /// The message, to be put again.
    pub message: Message,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Error for Refused {}

/// Why nothing could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// The driver has said that the stream failed.
    Failed(Errno),
    /// The other end is gone, and everything that it sent has been read.
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

/// Why a module could not be pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushError {
    /// The module refused.
    Module(Errno),
    /// The stream has as many modules as it may have.
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
            Self::Module(errno) => write!(f, "the module refused to be pushed: {errno}"),
            Self::TooMany => write!(f, "the stream has as many modules as it may have; pop one first"),
            Self::Failed(errno) => write!(f, "nothing can be pushed on a stream that has failed: {errno}"),
            Self::HungUp => write!(f, "nothing can be pushed on a stream that has been hung up; close it"),
            Self::Closed => write!(f, "the stream is closed; open another one"),
        }
    }
}

impl Error for PushError {}

/// Why no module could be popped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PopError {
    /// The stream has no module.
    NoModule,
    /// The stream is closed.
    Closed,
}

impl fmt::Display for PopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoModule => write!(f, "the stream has no module to pop; push one first"),
            Self::Closed => write!(f, "the stream is closed; open another one"),
        }
    }
}

impl Error for PopError {}

/// Why an ioctl was not carried out.
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
