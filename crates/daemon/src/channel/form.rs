//! The form of the content that a program reads from its carrier.
//!
//! Programs with the shim read records, each with a header. A program without the shim whose standard input, output or error is a
//! socket reads *plain* content: packets without headers, and no notifications. Writing needs no form: data that is not a record
//! is a message.
//!
//! A sharer changes the form while it holds the lock for reading. It asks the daemon to put nothing into the carrier
//! ([`SocketRequest::Hold`]), takes the records out of the carrier, returns them to the daemon ([`SocketRequest::PutBack`]),
//! and names the form ([`SocketRequest::SetForm`]). So the daemon receives nothing from a program's end. Returned messages go
//! into the carrier before all others, in the current form.
//!
//! [`SocketRequest::Hold`]: carrier::request::SocketRequest::Hold
//! [`SocketRequest::PutBack`]: carrier::request::SocketRequest::PutBack
//! [`SocketRequest::SetForm`]: carrier::request::SocketRequest::SetForm

use std::cell::{Cell, RefCell, RefMut};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use carrier::record::{Flags, Header, Kind, PLAIN_BYTES_MAX};
use rustix::io::Errno;
use tokio::sync::Notify;

use crate::channel::Channel;
use crate::channel::blocked::{Blocked, NotPut};

/// The form in which messages are put into a carrier.
#[derive(Default)]
pub(crate) struct Form {
    /// Whether `state` keeps a record from being put unchanged.
    is_special: Cell<bool>,
    state: RefCell<State>,
    released: Notify,
}

#[derive(Default)]
struct State {
    is_plain: bool,
    is_held: bool,
    /// Messages taken out of the carrier, which go back before all others.
    put_back: VecDeque<Message>,
    /// Number of messages at the front of `put_back` that were returned since the carrier is held.
    came: usize,
    /// Whether a task puts the returned messages into the carrier as the program reads.
    is_flushing: bool,
    end: End,
}

/// Whether the program is shown that no more messages follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum End {
    /// More messages may follow.
    #[default]
    Open,
    /// No more messages follow. Only a program that reads plain content is shown that.
    Silent,
    /// No more messages follow. The program is shown that once all returned messages are in the carrier.
    Due,
    Shown,
}

/// A message, or the rest of one.
pub(super) struct Message {
    pub(super) header: Header,
    blocks: VecDeque<Bytes>,
}

impl Message {
    pub(super) fn new(header: &Header, blocks: &[Bytes]) -> Message {
        Message {
            header: *header,
            blocks: blocks.iter().filter(|block| !block.is_empty()).cloned().collect(),
        }
    }

    /// Returns the content.
    pub(super) fn blocks(&self) -> Vec<Bytes> {
        self.blocks.iter().cloned().collect()
    }

    /// Returns the next packet of plain content.
    fn packet(&self) -> Option<Bytes> {
        let first = self.blocks.front().filter(|_| self.header.kind == Kind::Data)?;
        Some(first.slice(..first.len().min(PLAIN_BYTES_MAX)))
    }

    /// Removes this many bytes, which are in the carrier, from the first block.
    fn cut(&mut self, bytes: usize) {
        if let Some(first) = self.blocks.front_mut() {
            let _done = first.split_to(bytes);
            self.header.bytes -= bytes as u32;
            if first.is_empty() {
                self.blocks.pop_front();
            }
        }
    }
}

impl Form {
    fn state(&self) -> RefMut<'_, State> {
        self.state.borrow_mut()
    }

    /// Returns whether a record may be put into the carrier unchanged.
    pub(crate) fn is_ordinary(&self) -> bool {
        !self.is_special.get()
    }

    fn note(&self, state: &State) {
        self.is_special.set(state.is_plain || state.is_held || !state.put_back.is_empty());
    }

    /// Records that no more messages follow. Returns whether the program must be shown that now.
    pub(crate) fn end(&self) -> bool {
        let mut state = self.state();
        if state.end != End::Shown {
            state.end = End::Due;
        }
        state.take_end()
    }

    /// Records that no more messages follow. A program that reads records is not shown that. Returns whether the program must be
    /// shown it now.
    pub(crate) fn end_silently(&self) -> bool {
        let mut state = self.state();
        if matches!(state.end, End::Open | End::Silent) {
            state.end = if state.is_plain { End::Due } else { End::Silent };
        }
        state.take_end()
    }

    fn hold(&self) -> Result<(), Errno> {
        let mut state = self.state();
        if state.end == End::Shown {
            return Err(Errno::SHUTDOWN);
        }
        state.is_held = true;
        self.note(&state);
        Ok(())
    }

    fn put_back(&self, message: Message) -> Result<(), Errno> {
        let mut state = self.state();
        if !state.is_held {
            return Err(Errno::INVAL);
        }
        let at = state.came;
        state.put_back.insert(at, message);
        state.came += 1;
        Ok(())
    }

    /// Sets the form. Returns the length of the longest returned message.
    fn set(&self, plain: bool) -> Result<u32, Errno> {
        let mut state = self.state();
        if !state.is_held {
            return Err(Errno::INVAL);
        }
        (state.is_held, state.is_plain, state.came) = (false, plain, 0);
        if plain && state.end == End::Silent {
            state.end = End::Due;
        }
        self.note(&state);
        self.released.notify_waiters();
        Ok(state.put_back.iter().map(|message| message.header.bytes).max().unwrap_or(0))
    }

    /// Returns whether the content is plain; `None` while the carrier is held.
    pub(super) fn is_plain(&self) -> Option<bool> {
        let state = self.state();
        (!state.is_held).then_some(state.is_plain)
    }

    /// Waits until the carrier is released.
    pub(super) async fn released(&self) {
        loop {
            let released = self.released.notified();
            if self.is_plain().is_some() {
                return;
            }
            released.await;
        }
    }
}

impl State {
    /// Returns whether the program must be shown the end now, and marks the end as shown.
    fn take_end(&mut self) -> bool {
        let is_now = self.end == End::Due && !self.is_held && self.put_back.is_empty();
        if is_now {
            self.end = End::Shown;
        }
        is_now
    }
}

impl Channel {
    /// Stops putting messages into the channel until [`Channel::set_form`]
    /// ([`SocketRequest::Hold`](carrier::request::SocketRequest::Hold)).
    pub(crate) fn hold(&self) -> Result<(), Errno> {
        self.endpoint.form.hold()
    }

    /// Takes back a message that a sharer has removed from the held channel
    /// ([`SocketRequest::PutBack`](carrier::request::SocketRequest::PutBack)). Waits for memory if the user has too much
    /// on its way. `association` and `peer` complete its header.
    pub(crate) async fn put_back(
        &self,
        record: &[u8],
        (association, peer): (u32, Option<SocketAddr>),
    ) -> Result<(), Errno> {
        let (header, content) = Header::split(record).ok_or(Errno::INVAL)?;
        let is_message = header.kind == Kind::Data && !header.flags.contains(Flags::IN_MEMFD);
        if !is_message || content.is_empty() || self.endpoint.form.is_ordinary() {
            return Err(Errno::INVAL);
        }
        // Messages that the sharer has taken out whole make room, as soon as the watcher has seen that.
        let content = self.endpoint.accounts().charge_and_copy(content).await?;
        let header = Header { association, address: peer, ..header };
        self.endpoint.form.put_back(Message::new(&header, &[content]))
    }

    /// Sets the form of the channel and releases it ([`SocketRequest::SetForm`](carrier::request::SocketRequest::SetForm)).
    /// No sharer reads meanwhile.
    pub(crate) fn set_form(self: &Rc<Self>, plain: bool) -> Result<(), Errno> {
        let longest = self.endpoint.form.set(plain)?;
        self.expect_length(longest);
        self.pages.set_plain(plain);
        let is_blocked = matches!(self.flush(), Err(NotPut::Blocked(_)));
        // A program may change the form repeatedly; one task serves all changes.
        if is_blocked && !std::mem::replace(&mut self.endpoint.form.state().is_flushing, true) {
            let channel = Rc::clone(self);
            tokio::task::spawn_local(async move {
                while let Err(NotPut::Blocked(blocked)) = channel.flush() {
                    match blocked {
                        Blocked::Rest => channel.carrier().time().rested().await,
                        Blocked::Recall => channel.carrier().recall_ended().await,
                        _ => channel.carrier().has_room().await,
                    }
                }
                channel.endpoint.form.state().is_flushing = false;
            });
        }
        Ok(())
    }

    /// Puts the returned messages into the carrier, and then the end if it is due.
    pub(super) fn flush(&self) -> Result<(), NotPut> {
        let form = &self.endpoint.form;
        let mut state = form.state();
        while !state.is_held
            && let Some(mut message) = state.put_back.pop_front()
        {
            let put =
                if state.is_plain { self.try_put_plain(&mut message) } else { self.try_put_record(&message) };
            if put.is_err() {
                state.put_back.push_front(message);
                return put;
            }
        }
        form.note(&state);
        if state.take_end() {
            self.carrier().end_output();
        }
        Ok(())
    }

    fn try_put_record(&self, message: &Message) -> Result<(), NotPut> {
        self.carrier().try_put_message(&message.header, &message.blocks())?;
        self.credit.count(1);
        self.credit.hold_no_credit(1);
        Ok(())
    }

    /// Puts the rest of a message as plain content; puts nothing of a notification.
    pub(super) fn try_put_plain(&self, message: &mut Message) -> Result<(), NotPut> {
        while let Some(packet) = message.packet() {
            self.carrier().try_put_parts(&[IoSlice::new(&packet)], &[])?;
            message.cut(packet.len());
        }
        Ok(())
    }
}

/// The form in which a message was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    /// As a record: the page shows when it was read.
    Record,
    /// As plain content, or partly so: nothing shows when it was read.
    Plain,
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use std::time::Duration;

    use carrier::record::{Header, MESSAGE_BYTES_MAX};

    use crate::channel::style::Style;
    use crate::testing::{header, opened, read, registry, until};
    use crate::users::budget::MOVED_BYTES_MAX;
    use crate::users::limits::Limits;

    #[tokio::test(flavor = "local")]
    async fn returned_messages_come_after_a_rest() {
        let registry = registry();
        let (socket, program_end) = opened(&registry, Style::OneToOne);
        let channel = socket.channel();
        channel.hold().expect("it is open");
        let record = [&header(3, 5).encode()[..], b"hello"].concat();
        channel.put_back(&record, (3, None)).await.expect("memory");
        channel.carrier().time().rest_for(Duration::from_millis(200));
        channel.set_form(false).expect("it is held");
        assert!(read(&program_end).is_none());
        let mut returned = Vec::new();
        let comes = || {
            let content = read(&program_end).and_then(|record| Some(Header::split(&record)?.1.to_vec()));
            returned.extend(content.into_iter().flatten());
            !returned.is_empty()
        };
        until("the message that was put back", comes).await;
        assert_eq!(returned, b"hello");
    }

    /// The user's memory is full of messages that this carrier holds, so only the sharer that changes the form can free it.
    #[tokio::test(flavor = "local")]
    async fn a_message_that_is_put_back_waits_for_no_reader() {
        let registry = registry();
        let (socket, _program_end) = opened(&registry, Style::OneToOne);
        let channel = socket.channel();
        let account = registry.resources().users().unread().account(1);
        let _full = account.charge_anyway(Limits::default().user_unread_bytes);
        let record = [&header(3, 60_000).encode()[..], &[7; 60_000]].concat();
        channel.hold().expect("it is open");
        let is_put_back = || {
            let put = pin!(channel.put_back(&record, (3, None)));
            put.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(Ok(()))
        };
        let mut bytes = 0;
        while bytes < 2 * MOVED_BYTES_MAX && is_put_back() {
            bytes += record.len();
        }
        assert!(bytes > MESSAGE_BYTES_MAX, "{bytes}");
        assert!(bytes <= MOVED_BYTES_MAX, "a program may put back what was never there: {bytes}");
    }

    #[tokio::test(flavor = "local")]
    async fn forms_that_change_again_and_again_start_one_task() {
        let registry = registry();
        let (socket, _program_end) = opened(&registry, Style::OneToOne);
        let channel = socket.channel();
        channel.hold().expect("it is open");
        let record = [&header(3, 60_000).encode()[..], &[7; 60_000]].concat();
        for _ in 0..10 {
            channel.put_back(&record, (3, None)).await.expect("memory");
        }
        let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let before = tasks();
        for _ in 0..20 {
            channel.set_form(false).expect("it is held");
            channel.hold().expect("it is open");
        }
        channel.set_form(false).expect("it is held");
        assert_eq!(tasks(), before + 1, "it waits for room");
    }
}
