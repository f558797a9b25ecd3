//! Replies to requests of programs.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use channel_protocol::assoc_id::AssocId;
use channel_protocol::request::{self, FRAME_BYTES_MAX};
use rustix::io::Errno;

use super::feed::Feed;
use crate::channel::lent_memfd::LentMemfd;

/// The daemon's answer: [`channel_protocol::request::Answer`] with owned values.
pub(crate) enum Answer {
    Done,
    Failed(Errno),
    AskAgain,
    Address(SocketAddr),
    Value(Vec<u8>),
    Association(AssocId),
    Refused(String),
}

/// An answer, with the descriptors that are sent along.
pub(crate) struct Reply {
    pub(crate) answer: Answer,
    pub(crate) descriptors: Vec<OwnedFd>,
    /// A memfd that is sent along and emptied once the caller has read it.
    pub(crate) lent: Option<LentMemfd>,
    /// Records that follow the answer on the same connection.
    pub(crate) feed: Option<Feed>,
}

impl Reply {
    /// Returns an answer that only brings descriptors.
    pub(crate) fn with(descriptors: Vec<OwnedFd>) -> Reply {
        Reply { descriptors, ..Answer::Done.into() }
    }

    /// Encodes the answer into a frame; returns its length, or `None` if it is too long.
    pub(crate) fn encode(&self, frame: &mut [u8; FRAME_BYTES_MAX]) -> Option<usize> {
        let answer = match &self.answer {
            Answer::Done => request::Answer::Done,
            Answer::Failed(error) => request::Answer::Failed(error.raw_os_error()),
            Answer::AskAgain => request::Answer::AskAgain,
            Answer::Address(address) => request::Answer::Address(*address),
            Answer::Value(value) => request::Answer::Value(value),
            Answer::Association(id) => request::Answer::Association(*id),
            Answer::Refused(why) => request::Answer::Refused(why),
        };
        answer.encode(frame)
    }
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        Reply { answer, descriptors: Vec::new(), lent: None, feed: None }
    }
}

impl From<Errno> for Reply {
    fn from(error: Errno) -> Self {
        Answer::Failed(error).into()
    }
}
