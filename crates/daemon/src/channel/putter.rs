//! Puts messages and notifications into a channel without waiting; a blocked attempt returns the event that it waits for.

use std::io::IoSlice;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use channel_protocol::record::{Flags, HEADER_BYTES, Header, Kind, PAYLOAD_BYTES_MAX};
use rustix::io::Errno;
use tokio::sync::OwnedMutexGuard;

use super::Channel;
use super::blocked::{Blocked, NotPut};
use super::endpoint::SHORTAGE_WAIT;
use super::form::{Message, Put};
use super::lent_memfd::LentMemfd;
use super::receive_ring::BundleWriter;
use super::window_credit::{Attempted, HeldCredit};
use crate::users::budget::Charge;

/// Puts messages and notifications into a channel for one sender, in their order.
///
/// A message whose first part was put excludes other senders until its last part was put, or [`Putter::release_delivery`]. A
/// blocked attempt is repeated with the same message; the memory and the memfd that it has obtained stay here.
pub(crate) struct Putter {
    channel: Rc<Channel>,
    delivery: Option<OwnedMutexGuard<()>>,
    /// Charges the user for a message while it waits: its association no longer counts it.
    waiting: Option<Charge>,
    /// The rest of a message that waits, and whose beginning may have been put as plain content.
    plain_rest: Option<Message>,
    /// The attempt to put a record or a bundle, which is repeated while it is blocked.
    record: Option<RecordAttempt>,
}

/// An attempt to put a record that is repeated while it is blocked.
struct RecordAttempt {
    /// The messages in the record, which count as unread while they wait.
    attempted: Attempted,
    memfd: Memfd,
}

/// The memfd of a long message.
#[derive(Default)]
enum Memfd {
    /// Needed only by a long message, and not begun.
    #[default]
    None,
    /// Its memory is charged to the user.
    Charged(Charge),
    /// It contains the message.
    Filled(LentMemfd),
    /// The user can never have the memory.
    Failed(Errno),
}

impl Putter {
    pub(crate) fn new(channel: &Rc<Channel>) -> Putter {
        Putter { channel: Rc::clone(channel), delivery: None, waiting: None, plain_rest: None, record: None }
    }

    /// Returns whether a bundle can be put: the channel takes records, and no rest of a message waits.
    pub(crate) fn takes_bundles(&self) -> bool {
        self.channel.endpoint.form.is_ordinary() && self.plain_rest.is_none()
    }

    /// Admits other senders, although the message has not ended: it may be interrupted.
    pub(crate) fn release_delivery(&mut self) {
        self.delivery = None;
    }

    /// Puts a message or a notification. Once it is put, the message holds its `credit` until it was read; where nothing shows
    /// when that is, the credit is released at once.
    pub(crate) fn try_put(
        &mut self,
        header: &Header,
        blocks: &[Bytes],
        credit: impl FnOnce() -> Option<HeldCredit>,
    ) -> Result<Put, NotPut> {
        self.begin()?;
        let put = match self.takes_bundles() {
            true => self.try_put_record(header, blocks).map(|()| Put::Record),
            false => self.try_put_in_form(header, blocks),
        };
        // A long message in its memfd is charged already.
        let bytes = if self.has_memfd() { HEADER_BYTES } else { header.bytes as usize };
        let is_last = header.kind != Kind::Data || header.flags.contains(Flags::END);
        if let Ok(put) = put {
            self.on_put((header.kind == Kind::Data).then(credit).flatten(), put);
        }
        self.charge_or_finish(put, bytes, is_last)
    }

    /// Counts a message that was put as unread, and holds or releases its credit.
    fn on_put(&mut self, credit: Option<HeldCredit>, put: Put) {
        let held = match put {
            Put::Record => credit,
            Put::Plain => {
                credit.into_iter().for_each(HeldCredit::release);
                None
            }
        };
        let holds = held.is_some();
        if let Some(record) = self.record.take() {
            record.attempted.on_put(held);
        }
        if holds {
            self.channel.watch_reads();
        }
    }

    /// Puts the messages that `fill` writes together, which hold no credit in the receive window; the first one takes
    /// `first_bytes`. `is_last`: no part of a message follows. The channel must take bundles. Returns false if the messages need
    /// records of their own. The error comes with the number of messages.
    pub(crate) fn try_put_bundle(
        &mut self,
        first_bytes: usize,
        is_last: bool,
        fill: impl FnOnce(&mut BundleWriter<'_>),
    ) -> Result<bool, (NotPut, u32)> {
        // Before any is written, one counts.
        let (mut messages, mut longest) = (1, 0);
        self.begin().map_err(|not_put| (not_put, messages))?;
        let channel = Rc::clone(&self.channel);
        let put = channel.announce_bundle().and_then(|()| {
            channel.daemon_end().try_put_bundle(first_bytes, |bundle| {
                fill(bundle);
                (messages, longest) = (bundle.messages(), bundle.longest());
            })
        });
        if put == Ok(false) {
            return Ok(false);
        }
        RecordAttempt::of(&mut self.record, &channel, messages);
        if put.is_ok() {
            // If the records are taken out, the messages may come back alone.
            channel.expect_length(longest);
            self.on_put(None, Put::Record);
        }
        if !matches!(put, Err(NotPut::Blocked(_))) {
            channel.watch_ring();
        }
        self.charge_or_finish(put, first_bytes, is_last).map_err(|not_put| (not_put, messages))
    }

    /// Puts a notification; waits while blocked.
    pub(crate) async fn put(&mut self, header: &Header, blocks: &[Bytes]) -> Result<(), Errno> {
        loop {
            match self.try_put(header, blocks, || None) {
                Ok(_) => return Ok(()),
                Err(NotPut::Failed(error)) => return Err(error),
                Err(NotPut::Blocked(blocked)) => self.unblocked(blocked).await,
            }
        }
    }

    /// Waits until the blocked attempt can be repeated.
    pub(crate) async fn unblocked(&mut self, blocked: Blocked) {
        let endpoint = &self.channel.endpoint;
        match blocked {
            Blocked::Full => endpoint.daemon_end().writable().await,
            Blocked::Ring => endpoint.daemon_end().ring_has_room().await,
            Blocked::Delivery => {
                self.delivery = Some(Arc::clone(&self.channel.delivery).lock_owned().await);
            }
            Blocked::Recall => endpoint.daemon_end().recall_ended().await,
            Blocked::Throttled => endpoint.daemon_end().time().unthrottled().await,
            Blocked::FormChanging => endpoint.form.released().await,
            Blocked::Memory(bytes) => {
                let charge = endpoint.accounts().unread().room(bytes).await;
                if let Some(record) = &mut self.record {
                    record.memfd = charge.map_or(Memfd::Failed(Errno::NOMEM), Memfd::Charged);
                }
            }
            Blocked::Descriptors => {
                endpoint.daemon_end().closer().room_for_long_message(LentMemfd::DESCRIPTORS).await;
            }
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

    /// Charges the user for a message that waits for the program; forgets the attempt if the message does not wait, and admits
    /// other senders at the end of the message.
    fn charge_or_finish<T>(
        &mut self,
        put: Result<T, NotPut>,
        bytes: usize,
        is_last: bool,
    ) -> Result<T, NotPut> {
        match put {
            Err(NotPut::Blocked(
                Blocked::Full | Blocked::Ring | Blocked::Recall | Blocked::Throttled | Blocked::FormChanging,
            )) => {
                let endpoint = &self.channel.endpoint;
                self.waiting.get_or_insert_with(|| endpoint.accounts().charge_waiting(bytes));
            }
            Err(NotPut::Blocked(_)) => {}
            Ok(_) => {
                self.forget_message();
                if is_last {
                    self.delivery = None;
                }
            }
            Err(NotPut::Failed(_)) => {
                if let Some(record) = self.record.take() {
                    record.attempted.on_lost();
                }
                self.forget_message();
                self.delivery = None;
            }
        }
        put
    }

    /// Releases everything that was obtained for the message. A record that is still there is unread no longer.
    fn forget_message(&mut self) {
        (self.waiting, self.plain_rest, self.record) = (None, None, None);
    }

    /// Charges the user for the memory of all messages of the sender while one of them waits for the program.
    pub(crate) fn charge_held(&mut self, bytes: usize) {
        let is_charged = self.waiting.as_ref().is_some_and(|waiting| waiting.bytes() >= bytes);
        if !is_charged {
            self.waiting = Some(self.channel.endpoint.accounts().charge_waiting(bytes));
        }
    }

    /// Returns whether the message is in a memfd that waits.
    fn has_memfd(&self) -> bool {
        self.record.as_ref().is_some_and(|record| matches!(record.memfd, Memfd::Filled(_)))
    }

    fn try_put_record(&mut self, header: &Header, blocks: &[Bytes]) -> Result<(), NotPut> {
        let channel = &self.channel;
        let messages = u32::from(header.kind == Kind::Data);
        let record = RecordAttempt::of(&mut self.record, channel, messages);
        let put = match channel.announce_one(header.bytes, messages) {
            Ok(()) if header.bytes as usize > PAYLOAD_BYTES_MAX => {
                record.try_put_long(channel, header, blocks, &mut self.waiting)
            }
            Ok(()) => channel.daemon_end().try_put_message(header, blocks),
            announced => announced,
        };
        if put.is_ok() {
            channel.note_alone();
        }
        put
    }

    /// Puts a message or a notification into a channel whose form is special, or the rest of a message that has begun there.
    fn try_put_in_form(&mut self, header: &Header, blocks: &[Bytes]) -> Result<Put, NotPut> {
        let channel = Rc::clone(&self.channel);
        let is_plain = channel.endpoint.form.is_plain().ok_or(NotPut::Blocked(Blocked::FormChanging))?;
        channel.flush()?;
        if is_plain {
            // Nothing shows when it is read.
            self.record = None;
            let rest = self.plain_rest.get_or_insert_with(|| Message::new(header, blocks));
            return channel.try_put_plain(rest).map(|()| Put::Plain);
        }
        let Some(rest) = self.plain_rest.take() else {
            return self.try_put_record(header, blocks).map(|()| Put::Record);
        };
        let put = self.try_put_record(&rest.header, &rest.blocks());
        self.plain_rest = Some(rest);
        put.map(|()| Put::Plain)
    }
}

impl RecordAttempt {
    /// Returns the attempt, which it begins if there is none. These messages count as unread, once however often the attempt is
    /// repeated.
    fn of<'a>(
        attempt: &'a mut Option<RecordAttempt>,
        channel: &Channel,
        messages: u32,
    ) -> &'a mut RecordAttempt {
        let begin = || RecordAttempt { attempted: channel.credit.attempt(0), memfd: Memfd::None };
        let record = attempt.get_or_insert_with(begin);
        record.attempted.set_messages(messages);
        record
    }

    /// Puts a long message: a record with the descriptor of a memfd. `waiting` charges the user for the message until the memfd
    /// is filled.
    fn try_put_long(
        &mut self,
        channel: &Rc<Channel>,
        header: &Header,
        blocks: &[Bytes],
        waiting: &mut Option<Charge>,
    ) -> Result<(), NotPut> {
        let memory = match std::mem::take(&mut self.memfd) {
            Memfd::None => None,
            Memfd::Charged(memory) => Some(memory),
            Memfd::Filled(memfd) => return self.try_put_memfd(channel, header, memfd),
            Memfd::Failed(error) => return Err(NotPut::Failed(error)),
        };
        let (accounts, closer) = (channel.endpoint.accounts(), channel.daemon_end().closer());
        match LentMemfd::of_message(blocks, accounts.unread(), closer, memory) {
            Ok(memfd) => {
                // The memory of the message is charged with the memfd now.
                *waiting = None;
                self.try_put_memfd(channel, header, memfd)
            }
            Err((blocked, memory)) => {
                self.memfd = memory.map_or(Memfd::None, Memfd::Charged);
                Err(NotPut::Blocked(blocked))
            }
        }
    }

    fn try_put_memfd(
        &mut self,
        channel: &Rc<Channel>,
        header: &Header,
        memfd: LentMemfd,
    ) -> Result<(), NotPut> {
        let header = Header { flags: header.flags.with(Flags::IN_MEMFD), ..*header }.encode();
        let put = channel.daemon_end().try_put_parts(&[IoSlice::new(&header)], &[memfd.as_fd()]);
        match put {
            Ok(()) => channel.hold_memory(memfd),
            Err(NotPut::Blocked(_)) => self.memfd = Memfd::Filled(memfd),
            Err(NotPut::Failed(_)) => {}
        }
        put
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::os::fd::OwnedFd;
    use std::pin::pin;
    use std::task::Poll;

    use channel_protocol::record::{Header, LONG_BYTES_MAX};
    use channel_protocol::sharers_page::SharersPage;
    use channel_protocol::status_page::StatusPage;

    use super::*;
    use crate::channel::raw_record::RawRecord;
    use crate::channel::style::Style;
    use crate::testing::{ID, header, opened, read, read_bundled, registry, soon};
    use crate::users::limits::Limits;

    fn message(number: u8, bytes: usize) -> (Header, Bytes) {
        (header(ID, bytes), Bytes::from(vec![number; bytes]))
    }

    fn try_put(putter: &mut Putter, (header, content): &(Header, Bytes)) -> Result<Put, NotPut> {
        putter.try_put(header, std::slice::from_ref(content), || None)
    }

    /// Puts messages into a bundle.
    fn try_put_bundle(putter: &mut Putter, messages: &[(Header, Bytes)]) -> Result<bool, (NotPut, u32)> {
        putter.try_put_bundle(messages[0].0.record_bytes(), true, |bundle| {
            for (header, content) in messages {
                assert!(bundle.push(header, [&content[..]]), "it fits");
            }
        })
    }

    /// Reads all records in the pair, and sets the sharers' count of messages read to `taken`.
    fn read_all(channel: &Channel, program_end: &OwnedFd, taken: u32) -> Vec<Vec<u8>> {
        let records = std::iter::from_fn(|| read(program_end)).collect();
        channel.pages.write_as_sharer(SharersPage::DATA_TAKEN_AT, &[taken]);
        records
    }

    #[tokio::test(flavor = "local")]
    async fn a_message_that_waits_while_the_form_changes_comes_once_and_before_the_next() {
        let registry = registry();
        let (socket, program_end) = opened(&registry, Style::OneToOne);
        let channel = socket.channel();
        channel.hold().and_then(|()| channel.set_form(true)).expect("it is open");
        let mut putter = Putter::new(channel);
        let mut number = 0;
        while try_put(&mut putter, &message(number, 1500)).is_ok() {
            putter.release_delivery();
            number += 1;
        }
        // A sharer takes the records out and changes the form.
        channel.hold().expect("it is open");
        let plain: Vec<u8> = read_all(channel, &program_end, 0).concat();
        channel.set_form(false).expect("it is held");
        assert!(!putter.takes_bundles(), "a message is on its way");
        assert_eq!(try_put(&mut putter, &message(number, 1500)), Ok(Put::Plain));
        assert!(putter.takes_bundles());
        assert_eq!(try_put(&mut putter, &message(number + 1, 10)), Ok(Put::Record));
        let records: Vec<_> = std::iter::from_fn(|| read(&program_end))
            .filter_map(|record| {
                let (header, content) = Header::split(&record)?;
                (header.kind == Kind::Data).then(|| content.to_vec())
            })
            .collect();
        let in_part = plain.iter().filter(|byte| **byte == number).count();
        assert_eq!(records, [vec![number; 1500 - in_part], vec![number + 1; 10]]);
    }

    #[tokio::test(flavor = "local")]
    async fn messages_of_bundles_are_announced_because_they_may_come_back_alone() {
        let registry = registry();
        let (socket, _program_end) = opened(&registry, Style::OneToOne);
        let (channel, mut putter) = (socket.channel(), Putter::new(socket.channel()));
        channel.daemon_end().ring_has_memory(20_000).await;
        let longest = || channel.pages.field(StatusPage::LONGEST_AT);
        let short: Vec<_> = [7, 3000, 90].map(|bytes| message(1, bytes)).into();
        assert_eq!(try_put_bundle(&mut putter, &short), Ok(true));
        assert_eq!(longest(), 3000);
        assert_eq!(try_put_bundle(&mut putter, &[message(2, 2000)]), Ok(true));
        assert_eq!(longest(), 3000);
        assert_eq!(try_put_bundle(&mut putter, &[message(3, 10_000)]), Ok(true));
        assert_eq!(longest(), 10_000);
    }

    #[tokio::test(flavor = "local")]
    async fn a_reader_that_has_read_everything_expects_no_bundle_any_more() {
        let registry = registry();
        let (socket, program_end) = opened(&registry, Style::OneToOne);
        let (channel, mut putter) = (socket.channel(), Putter::new(socket.channel()));
        let are_expected = || channel.pages.field(StatusPage::BUNDLES_AT) != 0;
        let two = [message(1, 10), message(2, 10)];
        channel.daemon_end().ring_has_memory(1).await;
        assert_eq!(try_put_bundle(&mut putter, &two), Ok(true));
        assert!(are_expected());
        for alone in 0..super::super::ALONE_MAX {
            read_all(channel, &program_end, 2 + alone);
            assert!(are_expected(), "after {alone}");
            assert_eq!(try_put(&mut putter, &message(3, 10)), Ok(Put::Record));
        }
        assert!(are_expected(), "the sharers' page is being read");
        channel.daemon_end().closer().drained().await;
        assert_eq!(try_put(&mut putter, &message(3, 10)), Ok(Put::Record));
        assert!(!are_expected());
    }

    #[tokio::test(flavor = "local")]
    async fn a_program_expects_a_bundle_of_one_message_that_moves_to_its_socket() {
        let registry = registry();
        let (socket, _program_end) = opened(&registry, Style::PeeledOff);
        let channel = socket.channel();
        let record = |is_bundle| RawRecord {
            bytes: Header::new(Kind::Data).encode().into(),
            descriptors: Vec::new(),
            is_bundle,
        };
        channel.expect(&record(false));
        assert_eq!(channel.pages.field(StatusPage::BUNDLES_AT), 0);
        channel.expect(&record(true));
        assert_ne!(channel.pages.field(StatusPage::BUNDLES_AT), 0);
    }

    #[tokio::test(flavor = "local")]
    async fn waiting_messages_are_charged_and_unread_until_they_are_given_up() {
        let registry = registry();
        let (socket, program_end) = opened(&registry, Style::OneToOne);
        let (channel, mut putter) = (socket.channel(), Putter::new(socket.channel()));
        // Apart from the ring, which has whole steps.
        let charged = || registry.resources().users().received().account(1).charged_bytes() % (64 * 1024);
        let two = [message(1, 10), message(2, 10)];
        let mut put = 0;
        channel.daemon_end().ring_has_memory(1).await;
        let blocked = loop {
            match try_put_bundle(&mut putter, &two) {
                Ok(is_put) => put += if is_put { 2 } else { panic!("there is memory") },
                Err((NotPut::Blocked(Blocked::Ring), _)) => {
                    channel.daemon_end().ring_has_memory(32 * 1024).await
                }
                Err(blocked) => break blocked,
            }
        };
        assert_eq!(blocked, (NotPut::Blocked(Blocked::Full), 2));
        assert!(charged() > 0);
        read_all(channel, &program_end, put);
        assert!(channel.has_unread_data(), "it waits");
        drop(putter);
        assert_eq!((charged(), channel.has_unread_data()), (0, false));
        // A long message that waits for memory is unread, too, and charged once.
        let memory = registry.resources().users().unread().account(1).charge_anyway(1 << 30);
        let mut putter = Putter::new(channel);
        let put = try_put(&mut putter, &message(3, 100_000));
        assert!(matches!(put, Err(NotPut::Blocked(Blocked::Memory(_)))), "{put:?}");
        assert_eq!((charged(), channel.has_unread_data()), (0, true));
        drop(memory);
        assert_eq!(try_put(&mut putter, &message(3, 100_000)), Ok(Put::Record));
        assert_eq!(charged(), 0);
    }

    #[tokio::test(flavor = "local")]
    async fn bundles_wait_until_half_of_the_ring_is_free() {
        let registry = registry();
        let (socket, program_end) = opened(&registry, Style::OneToOne);
        let mut putter = Putter::new(socket.channel());
        let mut put = 0;
        let blocked = loop {
            socket.channel().daemon_end().ring_has_memory(60_100).await;
            match try_put_bundle(&mut putter, &[message(put, 60_000)]) {
                Ok(true) => put += 1,
                blocked => break blocked,
            }
        };
        assert_eq!((put, blocked), (8, Err((NotPut::Blocked(Blocked::Ring), 1))));
        {
            let mut unblocked = pin!(putter.unblocked(Blocked::Ring));
            let waits = poll_fn(|cx| Poll::Ready(unblocked.as_mut().poll(cx).is_pending())).await;
            assert!(waits, "the program has read nothing");
            let contents: Vec<u8> = std::iter::from_fn(|| read_bundled(&socket, &program_end))
                .filter(|record| record.len() > HEADER_BYTES)
                .map(|bundle| bundle[HEADER_BYTES])
                .take(4)
                .collect();
            assert_eq!(contents, [0, 1, 2, 3]);
            soon(unblocked).await;
        }
        assert_eq!(try_put_bundle(&mut putter, &[message(9, 60_000)]), Ok(true));
        let rest = std::iter::from_fn(|| read_bundled(&socket, &program_end));
        let rest: Vec<u8> = rest.map(|bundle| bundle[HEADER_BYTES]).collect();
        assert_eq!(rest, [4, 5, 6, 7, 9], "the new one has not taken the place of another");
    }

    #[tokio::test(flavor = "local")]
    async fn a_long_message_is_not_copied_while_the_pair_is_full() {
        let registry = registry();
        let (socket, _program_end) = opened(&registry, Style::OneToOne);
        let daemon_end = socket.channel().daemon_end();
        daemon_end.ring_has_memory(1).await;
        // The program expects bundles from now on.
        assert_eq!(try_put_bundle(&mut Putter::new(socket.channel()), &[message(0, 10)]), Ok(true));
        daemon_end.ring_has_memory(HEADER_BYTES + LONG_BYTES_MAX).await;
        let (header, content) = message(1, 60_000);
        while daemon_end.try_put_message(&header, std::slice::from_ref(&content)).is_ok() {}
        let put = Putter::new(socket.channel()).try_put_bundle(HEADER_BYTES + LONG_BYTES_MAX, true, |_| {
            panic!("it is copied again once there is room")
        });
        assert_eq!(put, Err((NotPut::Blocked(Blocked::Full), 1)));
    }

    #[tokio::test(flavor = "local")]
    async fn a_ring_takes_at_most_half_of_the_memory_for_received_data() {
        let registry = registry();
        let (socket, _program_end) = opened(&registry, Style::OneToOne);
        let mut putter = Putter::new(socket.channel());
        let half = Limits::default().user_receive_bytes / 2;
        let others = registry.resources().users().received().account(1).charge_anyway(half - 64 * 1024 + 1);
        assert_eq!(try_put_bundle(&mut putter, &[message(1, 10)]), Ok(false));
        assert_eq!(
            registry.resources().users().received().account(1).charged_bytes(),
            others.bytes(),
            "it asks for none"
        );
        drop(others);
        soon(socket.channel().daemon_end().ring_has_memory(1)).await;
        assert_eq!(try_put_bundle(&mut putter, &[message(1, 10)]), Ok(true));
    }
}
