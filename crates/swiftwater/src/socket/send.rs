//! Sending: one message, a batch, or bytes without a copy.

use bytes::Bytes;
use sctp::{Batch, FlushWhen, SendInfo, Stage};
use streams::{Interest, Which, WriteError};
use tpi::Errno;

use super::{Socket, Wait};
use crate::error::SendError;
use crate::shard::Inner;
use crate::staged::Written;

impl Socket {
    /// Sends one message: the hot path of every send.
    #[inline]
    pub(crate) fn write(
        &self,
        association: Which,
        info: &SendInfo,
        data: &[u8],
        wait: Wait,
    ) -> Result<(), SendError> {
        // The error passes the closures by: it makes a result so large that its copies took a third of the time of a short send.
        let mut refused = None;
        self.until(Interest::WRITABLE, wait, |inner| {
            if let Err(error) = self.try_write(inner, association, info, data)? {
                refused = Some(error);
            }
            Some(())
        })?;
        refused.map_or(Ok(()), Err)
    }

    /// Sends one message if there is room for it; `None` if not.
    #[inline]
    pub(crate) fn try_write(
        &self,
        inner: &mut Inner,
        association: Which,
        info: &SendInfo,
        data: &[u8],
    ) -> Option<Result<(), SendError>> {
        self.try_write_when(inner, association, info, data, FlushWhen::Rule)
    }

    /// Sends as [`Socket::try_write`] does a message that is to leave at this time.
    #[inline]
    pub(crate) fn try_write_when(
        &self,
        inner: &mut Inner,
        association: Which,
        info: &SendInfo,
        data: &[u8],
        when: FlushWhen,
    ) -> Option<Result<(), SendError>> {
        let written = inner.executive.write(self.stream, association, info, data, when);
        self.after_write(inner, written)
    }

    /// Sends the messages of a batch, and removes those that it sends.
    pub(crate) fn try_write_batch(
        &self,
        inner: &mut Inner,
        association: Which,
        batch: &mut Batch,
    ) -> Option<Result<(), SendError>> {
        if let Some(written) = inner.executive.write_batch(self.stream, association, batch) {
            return self.after_write(inner, written);
        }
        while let Some((info, message)) = batch.first() {
            if let Err(error) = self.try_write(inner, association, &info, message)? {
                return Some(Err(error));
            }
            batch.drop_first();
        }
        Some(Ok(()))
    }

    /// Sends one message without a copy of its bytes, unless it is a short part of a record, which the head joins with others.
    pub(crate) fn write_bytes(
        &self,
        association: Which,
        info: &SendInfo,
        data: &Bytes,
        wait: Wait,
    ) -> Result<(), SendError> {
        self.until(Interest::WRITABLE, wait, |inner| self.try_write_bytes(inner, association, info, data))?
    }

    /// Sends as [`Socket::write_bytes`] does if there is room; `None` if not.
    pub(crate) fn try_write_bytes(
        &self,
        inner: &mut Inner,
        association: Which,
        info: &SendInfo,
        data: &Bytes,
    ) -> Option<Result<(), SendError>> {
        if info.more && data.len() <= Stage::SHORT_BYTES_MAX {
            // A copy costs less than a chunk for each part.
            return self.try_write(inner, association, info, data);
        }
        let written = inner.executive.write_bytes(self.stream, association, info, data.clone());
        self.after_write(inner, written)
    }

    /// Returns the result of a write; `None` if there is no room.
    #[inline]
    pub(crate) fn after_write(
        &self,
        inner: &mut Inner,
        written: Result<Written, WriteError>,
    ) -> Option<Result<(), SendError>> {
        match written {
            Ok(written) => {
                self.shard.after_send(inner, written);
                Some(Ok(()))
            }
            Err(WriteError::WouldBlock) => None,
            Err(error) => Some(Err(send_error(error))),
        }
    }
}

/// Returns the error of the API for an error of the stream.
#[cold]
fn send_error(error: WriteError) -> SendError {
    match error {
        WriteError::WouldBlock => SendError::WouldBlock,
        WriteError::Refused(reason) => reason.into(),
        WriteError::HungUp | WriteError::Closed => SendError::Closed,
        WriteError::Failed(Errno::ENOTCONN | Errno::EPIPE) => SendError::Closed,
        // A module has failed, or has sent a message that SCTP refuses. The messages of this caller are refused as `Refused`.
        WriteError::Failed(errno) => SendError::Failed(format!("the stream has failed: {errno}").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_an_association_is_reported_as_closed() {
        for end in [Errno::ENOTCONN, Errno::EPIPE].map(WriteError::Failed) {
            assert_eq!(send_error(end), SendError::Closed);
        }
        for (errno, reason) in [
            (Errno::EIO, "the stream has failed: input or output failed (EIO)"),
            (Errno::EMSGSIZE, "the stream has failed: the message is too long (EMSGSIZE)"),
            (Errno(4711), "the stream has failed: system error number 4711"),
        ] {
            assert_eq!(send_error(WriteError::Failed(errno)), SendError::Failed(reason.into()));
        }
    }
}
