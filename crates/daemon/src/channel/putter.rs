//! Puts messages and notifications into a channel without waiting: an attempt that cannot go on says what it waits for.

use std::io::IoSlice;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use carrier::record::{Flags, HEADER_BYTES, Header, Kind, PAYLOAD_BYTES_MAX};
use rustix::io::Errno;
use tokio::sync::OwnedMutexGuard;

use super::Channel;
use super::blocked::{Blocked, NotPut};
use super::endpoint::SHORTAGE_WAIT;
use super::form::{Message, Put};
use super::long_messages::Lent;
use crate::users::budget::Charge;

/// Puts messages and notifications into a channel for one sender, in their order.
///
/// A message that was begun keeps other senders out until [`Putter::let_others`]. An attempt that is blocked is repeated with the
/// same message; what it has obtained stays here.
pub(crate) struct Putter {
    channel: Rc<Channel>,
    delivery: Option<OwnedMutexGuard<()>>,
    attempt: Attempt,
}

/// What a message that is blocked has obtained.
#[derive(Default)]
struct Attempt {
    /// Charges the user for the message while it waits: its association counts it no more.
    waiting: Option<Charge>,
    /// Memory for the memfd of a long message.
    memory: Option<Charge>,
    /// The long message in its memfd.
    long: Option<Lent>,
    /// The rest of a message that is put as plain content.
    rest: Option<Message>,
    /// Some of it may have been put as plain content.
    was_plain: bool,
    /// A wait has failed.
    failed: Option<Errno>,
}

impl Putter {
    pub(crate) fn new(channel: &Rc<Channel>) -> Putter {
        Putter { channel: Rc::clone(channel), delivery: None, attempt: Attempt::default() }
    }

    /// Returns whether the channel takes records at present, and so bundles.
    pub(crate) fn takes_bundles(&self) -> bool {
        self.channel.endpoint.form.is_ordinary()
    }

    /// Lets other senders put something: the message has ended, or may be interrupted.
    pub(crate) fn let_others(&mut self) {
        self.delivery = None;
    }

    /// Puts a message or a notification.
    pub(crate) fn try_put(&mut self, header: &Header, blocks: &[Bytes]) -> Result<Put, NotPut> {
        self.begin()?;
        let is_record = self.takes_bundles() && self.attempt.rest.is_none();
        let put = match is_record {
            true => self.try_put_record(header, blocks).map(|()| Put::Record),
            false => self.try_put_in_form(header, blocks),
        };
        if let Err(NotPut::Blocked(blocked)) = put {
            self.charge_while(blocked, header);
        } else {
            self.attempt = Attempt::default();
        }
        put
    }

    /// Puts a bundle of so many messages, which keep no room in the receive window. The channel takes bundles.
    pub(crate) fn try_put_bundle(&mut self, bundle: &[u8], messages: u32) -> Result<(), NotPut> {
        self.begin()?;
        let channel = &self.channel;
        let counted = channel.credit.count(messages);
        let put = channel
            .announce_bundle()
            .and_then(|()| channel.endpoint.try_put_parts(&[IoSlice::new(bundle)], &[]));
        if matches!(put, Err(NotPut::Blocked(_))) {
            return put;
        }
        counted.keep();
        channel.credit.keep_no_room(messages);
        put
    }

    /// Puts a message or a notification; waits as long as necessary.
    pub(crate) async fn put(&mut self, header: &Header, blocks: &[Bytes]) -> Result<Put, Errno> {
        loop {
            match self.try_put(header, blocks) {
                Ok(put) => return Ok(put),
                Err(NotPut::Failed(error)) => return Err(error),
                Err(NotPut::Blocked(blocked)) => self.unblocked(blocked).await,
            }
        }
    }

    /// Waits until the attempt that was blocked can be repeated.
    pub(crate) async fn unblocked(&mut self, blocked: Blocked) {
        let endpoint = &self.channel.endpoint;
        match blocked {
            Blocked::Full => endpoint.has_room().await,
            Blocked::Delivery => {
                self.delivery = Some(Arc::clone(&self.channel.delivery).lock_owned().await);
            }
            Blocked::Recall => endpoint.recall_ended().await,
            Blocked::Held => endpoint.form.released().await,
            Blocked::Memory(bytes) => match endpoint.unread_memory(bytes).await {
                Some(charge) => self.attempt.memory = Some(charge),
                None => self.attempt.failed = Some(Errno::NOMEM),
            },
            Blocked::Descriptors => endpoint.closer().room().await,
            Blocked::Host => tokio::time::sleep(SHORTAGE_WAIT).await,
        }
    }

    fn begin(&mut self) -> Result<(), NotPut> {
        if self.delivery.is_none() {
            let delivery = Arc::clone(&self.channel.delivery).try_lock_owned();
            self.delivery = Some(delivery.map_err(|_| NotPut::Blocked(Blocked::Delivery))?);
        }
        Ok(())
    }

    /// Charges the user for a message that waits for the program. A long one in its memfd is charged already.
    fn charge_while(&mut self, blocked: Blocked, header: &Header) {
        if matches!(blocked, Blocked::Full | Blocked::Recall | Blocked::Held) {
            let bytes = if self.attempt.long.is_some() { HEADER_BYTES } else { header.bytes as usize };
            let endpoint = &self.channel.endpoint;
            self.attempt.waiting.get_or_insert_with(|| endpoint.charge_waiting(bytes));
        }
    }

    fn try_put_record(&mut self, header: &Header, blocks: &[Bytes]) -> Result<(), NotPut> {
        if let Some(error) = self.attempt.failed {
            return Err(NotPut::Failed(error));
        }
        let channel = &self.channel;
        let counted = channel.credit.count(u32::from(header.kind == Kind::Data));
        let put = match channel.announce_one(header.bytes) {
            Ok(()) if header.bytes as usize > PAYLOAD_BYTES_MAX => {
                self.attempt.try_put_long(channel, header, blocks)
            }
            Ok(()) => channel.endpoint.try_put_message(header, blocks),
            announced => announced,
        };
        if !matches!(put, Err(NotPut::Blocked(_))) {
            // What finds no reader any more is unread, too.
            counted.keep();
        }
        if put.is_ok() {
            channel.note_alone();
        }
        put
    }

    /// Puts a message or a notification into a channel whose form is special.
    fn try_put_in_form(&mut self, header: &Header, blocks: &[Bytes]) -> Result<Put, NotPut> {
        let channel = Rc::clone(&self.channel);
        let is_plain = channel.endpoint.form.is_plain().ok_or(NotPut::Blocked(Blocked::Held))?;
        channel.flush()?;
        let mut message = self.attempt.rest.take().unwrap_or_else(|| Message::new(header, blocks));
        let put = match is_plain {
            true => {
                self.attempt.was_plain = true;
                channel.try_put_plain(&mut message)
            }
            false => self.try_put_record(&message.header, &message.blocks()),
        };
        if let Err(error) = put {
            self.attempt.rest = Some(message);
            return Err(error);
        }
        if !self.attempt.was_plain {
            return Ok(Put::Record);
        }
        if !is_plain && header.kind == Kind::Data {
            channel.credit.keep_no_room(1);
        }
        Ok(Put::Plain)
    }
}

impl Attempt {
    /// Puts a long message: a record that brings a memfd.
    fn try_put_long(
        &mut self,
        channel: &Rc<Channel>,
        header: &Header,
        blocks: &[Bytes],
    ) -> Result<(), NotPut> {
        let long = match self.long.take() {
            Some(long) => long,
            None => channel.endpoint.lend(blocks, &mut self.memory).map_err(NotPut::Blocked)?,
        };
        let header = Header { flags: header.flags.with(Flags::IN_MEMFD), ..*header }.encode();
        match channel.endpoint.try_put_parts(&[IoSlice::new(&header)], &[long.as_fd()]) {
            Ok(()) => channel.keep_memory(long),
            Err(NotPut::Blocked(blocked)) => {
                self.long = Some(long);
                return Err(NotPut::Blocked(blocked));
            }
            failed => return failed,
        }
        Ok(())
    }
}
