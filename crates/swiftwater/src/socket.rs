//! An open stream as the API sees it: the calls that all endpoints share.

use std::sync::{Arc, MutexGuard};
use std::time::Instant;

use bytes::Bytes;
use streams::{Chain, Interest, Kind, Message as Block, ReadError, StreamId, WriteError};
use tpi::{Errno, Primitive, TransferInfo};

use crate::error::{RecvError, SendError};
use crate::message::RecvInfo;
use crate::shard::{Inner, Shard};

/// Whether a call may sleep.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// Not at all.
    None,
    /// Until then.
    Until(Instant),
    /// As long as it takes.
    Forever,
}

/// What a read found.
pub(crate) enum Found<T> {
    Data(T),
    Primitive(Primitive, Chain),
    /// The stream has hung up, and everything was read.
    End,
}

/// One open stream; closed when dropped.
pub(crate) struct Socket {
    pub(crate) shard: Arc<Shard>,
    pub(crate) stream: StreamId,
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "stream {}", self.stream)
    }
}

impl Socket {
    pub(crate) fn open(shard: &Arc<Shard>) -> Result<Self, Errno> {
        let mut inner = shard.enter();
        let driver = inner.driver;
        let stream = inner.executive.open(driver).map_err(|_| Errno::ENOMEM)?;
        inner.open_streams += 1;
        Ok(Socket { shard: Arc::clone(shard), stream })
    }

    /// One message down: the hot path of every send.
    #[inline]
    pub(crate) fn write(
        &self,
        info: &TransferInfo,
        data: &[u8],
        patience: Patience,
    ) -> Result<(), SendError> {
        let mut inner = self.shard.enter();
        loop {
            match inner.executive.write(self.stream, *info, data) {
                Ok(()) => {
                    self.shard.after_send(&mut inner);
                    return Ok(());
                }
                Err(WriteError::WouldBlock) => inner = self.wait_to_write(inner, patience)?,
                Err(error) => return Err(send_error(&error)),
            }
        }
    }

    /// The same for bytes that are handed over.
    pub(crate) fn write_bytes(
        &self,
        info: &TransferInfo,
        data: Bytes,
        patience: Patience,
    ) -> Result<(), SendError> {
        let mut inner = self.shard.enter();
        loop {
            match inner.executive.write_bytes(self.stream, *info, data.clone()) {
                Ok(()) => {
                    self.shard.after_send(&mut inner);
                    return Ok(());
                }
                Err(WriteError::WouldBlock) => inner = self.wait_to_write(inner, patience)?,
                Err(error) => return Err(send_error(&error)),
            }
        }
    }

    #[cold]
    fn wait_to_write<'a>(
        &'a self,
        inner: MutexGuard<'a, Inner>,
        patience: Patience,
    ) -> Result<MutexGuard<'a, Inner>, SendError> {
        let (inner, in_time) = self.wait(inner, Interest::WRITABLE, patience);
        if in_time { Ok(inner) } else { Err(SendError::WouldBlock) }
    }

    fn wait<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
        interest: Interest,
        patience: Patience,
    ) -> (MutexGuard<'a, Inner>, bool) {
        match patience {
            Patience::Forever => self.shard.wait(inner, self.stream, interest, None),
            Patience::Until(at) => self.shard.wait(inner, self.stream, interest, Some(at)),
            Patience::None => {
                // The last word belongs to what has arrived but was not taken yet.
                inner.flush(true);
                inner.take_arrivals();
                let ready = inner.is_ready(self.stream, interest);
                self.shard.background().arm();
                (inner, ready)
            }
        }
    }

    /// One message up, copied: the hot path of every receive.
    #[inline]
    pub(crate) fn read(&self, buffer: &mut [u8], patience: Patience) -> Result<Found<RecvInfo>, RecvError> {
        let mut inner = self.shard.enter();
        if let Ok(Some((bytes, info, end_of_record))) = inner.executive.read(self.stream, buffer) {
            self.shard.after_read(&mut inner);
            return Ok(Found::Data(RecvInfo::new(bytes, &info, end_of_record)));
        }
        self.read_later(inner, buffer, patience)
    }

    #[cold]
    fn read_later<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
        buffer: &mut [u8],
        patience: Patience,
    ) -> Result<Found<RecvInfo>, RecvError> {
        loop {
            match inner.executive.read(self.stream, buffer) {
                Ok(Some((bytes, info, end_of_record))) => {
                    self.shard.after_read(&mut inner);
                    return Ok(Found::Data(RecvInfo::new(bytes, &info, end_of_record)));
                }
                Err(ReadError::NotData) => {
                    if let Some(found) = take_primitive(&mut inner, self.stream) {
                        return Ok(found);
                    }
                }
                Err(ReadError::HungUp) => return Ok(Found::End),
                Ok(None) => inner = self.wait_to_read(inner, patience)?,
                Err(error) => return Err(RecvError::Lost(error.to_string())),
            }
        }
    }

    /// One message up, whole.
    pub(crate) fn getmsg(&self, patience: Patience) -> Result<Found<Block>, RecvError> {
        let mut inner = self.shard.enter();
        loop {
            match inner.executive.getmsg(self.stream) {
                Ok(Some(message)) => {
                    self.shard.after_read(&mut inner);
                    return Ok(match message.kind {
                        Kind::Proto(Primitive::OptdataInd(_)) | Kind::Data => Found::Data(message),
                        Kind::Proto(primitive) | Kind::PcProto(primitive) => {
                            Found::Primitive(primitive, message.data)
                        }
                        _ => continue,
                    });
                }
                Ok(None) => inner = self.wait_to_read(inner, patience)?,
                Err(ReadError::HungUp) => return Ok(Found::End),
                Err(error) => return Err(RecvError::Lost(error.to_string())),
            }
        }
    }

    #[cold]
    fn wait_to_read<'a>(
        &'a self,
        inner: MutexGuard<'a, Inner>,
        patience: Patience,
    ) -> Result<MutexGuard<'a, Inner>, RecvError> {
        let (inner, in_time) = self.wait(inner, Interest::READABLE, patience);
        if in_time { Ok(inner) } else { Err(RecvError::WouldBlock) }
    }

    /// A request down that is not user data.
    pub(crate) fn request(&self, primitive: Primitive, data: Chain) -> Result<(), WriteError> {
        let mut inner = self.shard.enter();
        let message = Block::with_data(Kind::Proto(primitive), data);
        inner.executive.putmsg(self.stream, message).map_err(|refused| refused.error)?;
        inner.executive.run();
        inner.flush(true);
        self.shard.background().arm();
        Ok(())
    }

    /// The next primitive that is not user data; user data before it is thrown away.
    pub(crate) fn answer(&self, patience: Patience) -> Result<Option<(Primitive, Chain)>, RecvError> {
        loop {
            match self.getmsg(patience)? {
                Found::Data(_) => {}
                Found::Primitive(primitive, data) => return Ok(Some((primitive, data))),
                Found::End => return Ok(None),
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let mut inner = self.shard.enter();
        inner.executive.close(self.stream);
        inner.open_streams -= 1;
        inner.activity += 1;
        inner.flush(true);
        drop(inner);
        // What was taken is still delivered: somebody must see to it.
        self.shard.background().arm();
    }
}

/// Takes the message in front, which is not user data.
#[cold]
fn take_primitive<T>(inner: &mut Inner, s: StreamId) -> Option<Found<T>> {
    match inner.executive.getmsg(s) {
        Ok(Some(Block { kind: Kind::Proto(primitive) | Kind::PcProto(primitive), data, .. })) => {
            Some(Found::Primitive(primitive, data))
        }
        _ => None,
    }
}

fn send_error(error: &WriteError) -> SendError {
    match error {
        WriteError::WouldBlock => SendError::WouldBlock,
        WriteError::Failed(Errno::EINVAL) => SendError::RecordOpen,
        _ => SendError::Closed,
    }
}
