//! Changes of the form of a channel, which a sharer requests (see [`form`](super::form)).

use std::io::IoSlice;
use std::net::SocketAddr;
use std::rc::Rc;

use channel_protocol::assoc_id::AssocId;
use channel_protocol::record::{Flags, Header, Kind};
use rustix::io::Errno;

use super::Channel;
use super::blocked::{Blocked, NotPut};
use super::form::Message;

impl Channel {
    /// Stops putting messages into the channel until [`Channel::set_form`]
    /// ([`SocketRequest::Hold`](channel_protocol::request::SocketRequest::Hold)).
    pub(crate) fn hold(&self) -> Result<(), Errno> {
        self.endpoint.form.hold()
    }

    /// Takes back a message that a sharer has removed from the held channel
    /// ([`SocketRequest::PutBack`](channel_protocol::request::SocketRequest::PutBack)). Waits for memory if the user has too much
    /// on its way. `assoc_id` and `peer` complete its header.
    pub(crate) async fn put_back(
        &self,
        record: &[u8],
        assoc_id: AssocId,
        peer: Option<SocketAddr>,
    ) -> Result<(), Errno> {
        let (header, content) = Header::split(record).ok_or(Errno::INVAL)?;
        let is_message = header.kind == Kind::Data && !header.flags.contains(Flags::IN_MEMFD);
        if !is_message || content.is_empty() || self.endpoint.form.is_ordinary() {
            return Err(Errno::INVAL);
        }
        // Messages that the sharer has taken out whole make room, as soon as the watcher has seen that.
        let content = self.endpoint.accounts().charge_and_copy(content).await?;
        let header = Header { assoc_id, address: peer, ..header };
        self.endpoint.form.put_back(Message::new(&header, &[content]))
    }

    /// Sets the form of the channel and releases it
    /// ([`SocketRequest::SetForm`](channel_protocol::request::SocketRequest::SetForm)). No sharer reads meanwhile.
    pub(crate) fn set_form(self: &Rc<Self>, plain: bool) -> Result<(), Errno> {
        let longest = self.endpoint.form.set(plain)?;
        self.expect_length(longest);
        self.pages.set_plain(plain);
        let is_blocked = matches!(self.flush(), Err(NotPut::Blocked(_)));
        // A program may change the form repeatedly; one task serves all changes.
        if is_blocked && self.endpoint.form.begin_flushing() {
            let channel = Rc::clone(self);
            tokio::task::spawn_local(async move {
                while let Err(NotPut::Blocked(blocked)) = channel.flush() {
                    match blocked {
                        Blocked::Throttled => channel.daemon_end().time().unthrottled().await,
                        Blocked::Recall => channel.daemon_end().recall_ended().await,
                        _ => channel.daemon_end().writable().await,
                    }
                }
                channel.endpoint.form.on_flushed();
            });
        }
        Ok(())
    }

    /// Puts the returned messages into the pair, and then the end if it is due.
    pub(super) fn flush(&self) -> Result<(), NotPut> {
        let is_end = self.endpoint.form.flush(|message, is_plain| match is_plain {
            true => self.try_put_plain(message),
            false => self.try_put_returned(message),
        })?;
        if is_end {
            self.daemon_end().end_output();
        }
        Ok(())
    }

    fn try_put_returned(&self, message: &Message) -> Result<(), NotPut> {
        let attempted = self.credit.attempt(1);
        self.daemon_end().try_put_message(&message.header, &message.blocks())?;
        attempted.on_put(None);
        Ok(())
    }

    /// Puts the rest of a message as plain content; puts nothing of a notification.
    pub(super) fn try_put_plain(&self, message: &mut Message) -> Result<(), NotPut> {
        while let Some(packet) = message.packet() {
            self.daemon_end().try_put_parts(&[IoSlice::new(&packet)], &[])?;
            message.cut(packet.len());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use std::time::Duration;

    use channel_protocol::record::{Header, MESSAGE_BYTES_MAX};

    use crate::channel::style::Style;
    use crate::testing::{ID, header, opened, read, registry, until};
    use crate::users::budget::MOVED_BYTES_MAX;
    use crate::users::limits::Limits;

    #[tokio::test(flavor = "local")]
    async fn returned_messages_come_after_a_rest() {
        let registry = registry();
        let (socket, program_end) = opened(&registry, Style::OneToOne);
        let channel = socket.channel();
        channel.hold().expect("it is open");
        let record = [&header(ID, 5).encode()[..], b"hello"].concat();
        channel.put_back(&record, ID, None).await.expect("memory");
        channel.daemon_end().time().throttle_for(Duration::from_millis(200));
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

    /// The user's memory is full of messages that this pair holds, so only the sharer that changes the form can free it.
    #[tokio::test(flavor = "local")]
    async fn a_message_that_is_put_back_waits_for_no_reader() {
        let registry = registry();
        let (socket, _program_end) = opened(&registry, Style::OneToOne);
        let channel = socket.channel();
        let account = registry.resources().users().unread().account(1);
        let _full = account.charge_anyway(Limits::default().user_unread_bytes);
        let record = [&header(ID, 60_000).encode()[..], &[7; 60_000]].concat();
        channel.hold().expect("it is open");
        let is_put_back = || {
            let put = pin!(channel.put_back(&record, ID, None));
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
        let record = [&header(ID, 60_000).encode()[..], &[7; 60_000]].concat();
        for _ in 0..10 {
            channel.put_back(&record, ID, None).await.expect("memory");
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
