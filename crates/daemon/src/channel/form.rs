//! The form of the content that a program reads from its pair.
//!
//! Programs with the shim read records, each with a header. A program without the shim whose standard input, output or error is a
//! socket reads *plain* content: packets without headers, and no notifications. Writing needs no form: data that is not a record
//! is a message.
//!
//! A sharer changes the form while it holds the lock for reading. It asks the daemon to put nothing into the pair
//! ([`SocketRequest::Hold`]), takes the records out of the pair, returns them to the daemon ([`SocketRequest::PutBack`]),
//! and names the form ([`SocketRequest::SetForm`]). So the daemon receives nothing from a program's end. Returned messages go
//! into the pair before all others, in the current form.
//!
//! [`SocketRequest::Hold`]: channel_protocol::request::SocketRequest::Hold
//! [`SocketRequest::PutBack`]: channel_protocol::request::SocketRequest::PutBack
//! [`SocketRequest::SetForm`]: channel_protocol::request::SocketRequest::SetForm

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use bytes::Bytes;
use channel_protocol::record::{Header, Kind, PLAIN_BYTES_MAX};
use rustix::io::Errno;
use tokio::sync::Notify;

/// The form in which messages are put into a pair.
#[derive(Default)]
pub(crate) struct Form {
    /// [`State::is_special`] of `state`, for the path of each message. Only [`Form::change`] sets it.
    is_special: Cell<bool>,
    state: RefCell<State>,
    released: Notify,
}

#[derive(Default)]
struct State {
    is_plain: bool,
    is_held: bool,
    /// Messages taken out of the pair, which go back before all others.
    put_back: VecDeque<Message>,
    /// Number of messages at the front of `put_back` that were returned since the pair is held.
    came: usize,
    /// Whether a task puts the returned messages into the pair as the program reads.
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
    /// No more messages follow. The program is shown that once all returned messages are in the pair.
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
    pub(super) fn packet(&self) -> Option<Bytes> {
        let first = self.blocks.front().filter(|_| self.header.kind == Kind::Data)?;
        Some(first.slice(..first.len().min(PLAIN_BYTES_MAX)))
    }

    /// Removes this many bytes, which are in the pair, from the first block.
    pub(super) fn cut(&mut self, bytes: usize) {
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
    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.borrow_mut();
        let result = change(&mut state);
        self.is_special.set(state.is_special());
        result
    }

    /// Returns whether a record may be put into the pair unchanged.
    pub(crate) fn is_ordinary(&self) -> bool {
        !self.is_special.get()
    }

    /// Records that no more messages follow. Returns whether the program must be shown that now.
    pub(crate) fn end_content(&self) -> bool {
        self.change(|state| {
            if state.end != End::Shown {
                state.end = End::Due;
            }
            state.take_end()
        })
    }

    /// Records that no more messages follow. A program that reads records is not shown that. Returns whether the program must be
    /// shown it now.
    pub(crate) fn end_content_silently(&self) -> bool {
        self.change(|state| {
            if matches!(state.end, End::Open | End::Silent) {
                state.end = if state.is_plain { End::Due } else { End::Silent };
            }
            state.take_end()
        })
    }

    /// Records that nothing may be put until the form is set.
    pub(super) fn hold(&self) -> Result<(), Errno> {
        self.change(|state| {
            if state.end == End::Shown {
                return Err(Errno::SHUTDOWN);
            }
            state.is_held = true;
            Ok(())
        })
    }

    /// Adds a message that was taken out of the held pair.
    pub(super) fn put_back(&self, message: Message) -> Result<(), Errno> {
        self.change(|state| {
            if !state.is_held {
                return Err(Errno::INVAL);
            }
            state.put_back.insert(state.came, message);
            state.came += 1;
            Ok(())
        })
    }

    /// Sets the form. Returns the length of the longest returned message.
    pub(super) fn set(&self, plain: bool) -> Result<u32, Errno> {
        let longest = self.change(|state| {
            if !state.is_held {
                return Err(Errno::INVAL);
            }
            (state.is_held, state.is_plain, state.came) = (false, plain, 0);
            if plain && state.end == End::Silent {
                state.end = End::Due;
            }
            Ok(state.put_back.iter().map(|message| message.header.bytes).max().unwrap_or(0))
        })?;
        self.released.notify_waiters();
        Ok(longest)
    }

    /// Puts the returned messages into the pair by `put`, whose second argument says whether the form is plain. Returns
    /// whether the program must be shown the end now.
    pub(super) fn flush<E>(
        &self,
        mut put: impl FnMut(&mut Message, bool) -> Result<(), E>,
    ) -> Result<bool, E> {
        self.change(|state| {
            while !state.is_held
                && let Some(mut message) = state.put_back.pop_front()
            {
                if let Err(error) = put(&mut message, state.is_plain) {
                    state.put_back.push_front(message);
                    return Err(error);
                }
            }
            Ok(state.take_end())
        })
    }

    /// Records that a task puts the returned messages into the pair as the program reads; returns false if one does already.
    pub(super) fn begin_flushing(&self) -> bool {
        self.change(|state| !std::mem::replace(&mut state.is_flushing, true))
    }

    /// Records that the task has put all returned messages.
    pub(super) fn on_flushed(&self) {
        self.change(|state| state.is_flushing = false);
    }

    /// Returns whether the content is plain; `None` while the pair is held.
    pub(super) fn is_plain(&self) -> Option<bool> {
        let state = self.state.borrow();
        (!state.is_held).then_some(state.is_plain)
    }

    /// Waits until the pair is released.
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
    /// Returns whether no record may be put unchanged.
    fn is_special(&self) -> bool {
        self.is_plain || self.is_held || !self.put_back.is_empty()
    }

    /// Returns whether the program must be shown the end now, and marks the end as shown.
    fn take_end(&mut self) -> bool {
        let is_now = self.end == End::Due && !self.is_held && self.put_back.is_empty();
        if is_now {
            self.end = End::Shown;
        }
        is_now
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
