//! The channel of a one-to-one socket as the source of messages for its association.

use bytes::Bytes;
use carrier::record::{Flags, Header};
use rustix::io::Errno;
use swiftwater::{SendError, internals};

use super::{Ends, Next, OutboundWait, Source, is_shutdown_pending, refuses_all, send_info, unsent};
use crate::channel::incoming::Incoming;
use crate::relay::{Departure, abort};
use crate::state::inbound_queue::ToProgram;
use crate::state::send_queue::Messages;
use crate::system::journal::{Cause, log};

/// Memory of the user for the next message of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UserMemory;

/// The messages in the channel of a one-to-one socket.
pub(crate) struct ChannelSource<'a> {
    ends: Ends<'a>,
    /// Messages to send before those in the channel.
    unsent: Messages,
    /// Whether the association accepts no more messages: further ones are lost, as in the kernel.
    is_gone: bool,
}

impl<'a> ChannelSource<'a> {
    pub(super) fn new(ends: Ends<'a>, unsent: Messages) -> ChannelSource<'a> {
        ChannelSource { ends, unsent, is_gone: false }
    }

    /// Moves short messages from the ring, which cost less together. Returns how many records of a turn they count as: 0 also if
    /// the next message is not short, the association does not take it, or others come first.
    fn pass_short(&self, weight_max: usize) -> usize {
        let Ends { socket, assoc, association } = self.ends;
        let channel = socket.channel();
        if !self.unsent.is_empty() || self.is_gone || !channel.has_short() {
            return 0;
        }
        let passed = internals::send_short_no_poll(association, |sender| {
            channel.pass_short(weight_max, |header, content| {
                let header = assoc.complete(*header);
                is_plain(&header) && sender.send(content, &send_info(&header))
            })
        });
        passed.unwrap_or(0)
    }

    /// Takes the next message of the program from the channel.
    fn take(&self) -> Result<Next<UserMemory>, Departure> {
        let Ends { socket, assoc, association } = self.ends;
        let channel = socket.channel();
        match channel.try_take() {
            Ok(Incoming::Message(header, content)) => Ok(Next::Message(header, content)),
            Ok(Incoming::End) if channel.is_closed() => Err(Departure::Closed),
            Ok(Incoming::End) => Err(Departure::HalfClosed),
            Ok(Incoming::Unread) if channel.has_unread_data() => Err(Departure::Unread),
            Ok(Incoming::Unread | Incoming::Filler | Incoming::Empty) => Ok(Next::Handled { weight: 1 }),
            Ok(Incoming::Malformed) => {
                log(
                    Cause::User(socket.owner().user),
                    format_args!(
                        "a program has written malformed records to its socket; its association is aborted"
                    ),
                );
                Err(Departure::Broken)
            }
            Err(error @ (Errno::AGAIN | Errno::NOBUFS)) => {
                // No further message is available to share a packet with those that the association has taken.
                association.flush();
                Ok(match error == Errno::AGAIN {
                    true => Next::Waits {
                        wait: OutboundWait::Message,
                        has_untaken: channel.takes_later() && assoc.has_upper_data(),
                    },
                    false => Next::Waits { wait: OutboundWait::Own(UserMemory), has_untaken: true },
                })
            }
            Err(_) => Err(Departure::Closed),
        }
    }
}

impl Source for ChannelSource<'_> {
    type Own = UserMemory;
    type End = Departure;

    fn on_sending_shut(&self) {
        self.ends.socket.on_sending_shut(self.ends.assoc);
    }

    fn on_reported(&mut self) -> Result<(), Departure> {
        match self.is_gone && self.ends.socket.channel().is_closed() {
            true => Err(Departure::Closed),
            false => Ok(()),
        }
    }

    fn next(&mut self, weight_max: usize) -> Result<Next<UserMemory>, Departure> {
        let weight = self.pass_short(weight_max);
        if weight > 0 {
            return Ok(Next::Handled { weight });
        }
        let next = match self.unsent.pop_front() {
            Some((header, content)) => Next::Message(header, content),
            None => self.take()?,
        };
        let Next::Message(header, content) = next else { return Ok(next) };
        let header = self.ends.assoc.complete(header);
        if header.flags.contains(Flags::ABORT) {
            // The inbound direction tells the program of the end. The program still has the socket.
            abort(self.ends.association, &String::from_utf8_lossy(&content));
            return Ok(Next::Handled { weight: 1 });
        }
        Ok(Next::Message(header, content))
    }

    fn on_sent(&mut self) {}

    fn on_blocked(&mut self, header: Header, content: Bytes) {
        self.unsent.push_front((header, content));
    }

    fn on_refused(
        &mut self,
        refused: &SendError,
        header: Header,
        content: Bytes,
    ) -> Result<Vec<ToProgram>, UserMemory> {
        self.is_gone |= refuses_all(refused);
        if is_shutdown_pending(refused, &header, &content) {
            self.unsent.push_front((header, Bytes::new()));
        }
        Ok(unsent(self.ends.socket, self.ends.assoc, header, content, 0))
    }
}

/// Returns whether a message only has to be sent.
fn is_plain(header: &Header) -> bool {
    let plain = [Flags::END, Flags::UNORDERED, Flags::IMMEDIATE, Flags::BY_DEFAULT];
    plain.into_iter().fold(header.flags, Flags::without) == Flags::default()
}
