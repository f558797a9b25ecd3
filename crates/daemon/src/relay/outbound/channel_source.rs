//! The channel of a one-to-one socket as the source of messages for its association.

use bytes::Bytes;
use channel_protocol::record::{Flags, Header};
use rustix::io::Errno;
use swiftwater::{SendError, internals};

use super::{
    Ends, Next, OutboundWait, Source, is_reported_later, is_shutdown_pending, refuses_all, reports, send_info,
};
use crate::channel::endpoint::Progress;
use crate::channel::incoming::Incoming;
use crate::relay::{Departure, abort};
use crate::state::inbound_queue::ToProgram;
use crate::state::notification_type::NotificationType;
use crate::state::send_queue::Messages;
use crate::system::journal::{Cause, log};
use crate::users::quantum;

/// The events that only this source waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChannelWait {
    /// Memory of the user for the next message of the program.
    UserMemory,
    /// The end of the inbound direction: the program first hears of the end of the association, and of the messages that were
    /// sent before. Nothing is left to be taken meanwhile.
    InboundDone,
}

/// The messages in the channel of a one-to-one socket.
pub(crate) struct ChannelSource<'a> {
    ends: Ends<'a>,
    /// Messages to send before those in the channel.
    unsent: Messages,
    /// Whether the association accepts no more messages.
    is_gone: bool,
    /// Whether refused messages are held back until the inbound direction is done.
    holds_back: bool,
    /// The end of what the program had sent when the peer's shutdown was noticed.
    before_shutdown: Option<Progress>,
    /// The end of what the program had sent when the inbound direction was done.
    until: Option<Progress>,
}

impl<'a> ChannelSource<'a> {
    pub(super) fn new(ends: Ends<'a>, unsent: Messages) -> ChannelSource<'a> {
        ChannelSource { ends, unsent, is_gone: false, holds_back: false, before_shutdown: None, until: None }
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

    /// Returns whether all messages were taken that the program has sent before it was told of the end of the association. A
    /// program that goes on sending delays the end of its content no further.
    fn has_taken_all(&mut self) -> bool {
        let Ends { socket, assoc, .. } = self.ends;
        let channel = socket.channel();
        assoc.is_inbound_done() && self.unsent.is_empty() && !channel.awaits_thread() && {
            let until = *self.until.get_or_insert_with(|| channel.sent());
            channel.taken().reaches(until)
        }
    }

    /// Takes the next message of the program while refused ones are held back. The program reads the reports of the messages that
    /// were sent before only once its call has returned that waits for room in the channel.
    fn hold_back(&mut self) -> Result<Next<ChannelWait>, Departure> {
        match self.take() {
            Ok(Next::Message(header, content)) => {
                let weight = quantum::weight(content.len());
                self.unsent.push_back((header, content));
                Ok(Next::Handled { weight })
            }
            Err(Departure::HalfClosed) => {
                Ok(Next::Waits { wait: OutboundWait::Own(ChannelWait::InboundDone), has_untaken: false })
            }
            other => other,
        }
    }

    /// Returns whether the association has ended, and the program does not want back what can no longer be sent.
    fn is_in_vain(&self) -> bool {
        let Ends { assoc, .. } = self.ends;
        let returns = [NotificationType::SendFailed, NotificationType::SendFailedEvent];
        assoc.has_ended() && !returns.into_iter().any(|kind| assoc.wants(kind))
    }

    /// Takes the next message of the program from the channel.
    fn take(&self) -> Result<Next<ChannelWait>, Departure> {
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
            // Nobody gets it, and the call of the program that waits for room behind it must return.
            Err(Errno::NOBUFS) if self.is_in_vain() && channel.discard() => Ok(Next::Handled { weight: 1 }),
            Err(error @ (Errno::AGAIN | Errno::NOBUFS)) => {
                // No further message is available to share a packet with those that the association has taken.
                association.flush();
                if assoc.is_inbound_done() && !channel.takes_later() {
                    // Only fillers are left, or the user has no memory although the association has returned its own.
                    assoc.on_outbound_settled();
                }
                Ok(match error == Errno::AGAIN {
                    true => Next::Waits {
                        wait: OutboundWait::Message,
                        has_untaken: channel.takes_later() && assoc.has_upper_data(),
                    },
                    false => {
                        Next::Waits { wait: OutboundWait::Own(ChannelWait::UserMemory), has_untaken: true }
                    }
                })
            }
            Err(_) => Err(Departure::Closed),
        }
    }
}

impl Source for ChannelSource<'_> {
    type Own = ChannelWait;
    type End = Departure;

    fn on_sending_shut(&mut self) {
        let Ends { socket, assoc, .. } = self.ends;
        socket.on_sending_shut(assoc);
        self.before_shutdown.get_or_insert_with(|| socket.channel().sent());
    }

    fn has_taken_last(&mut self) -> bool {
        let channel = self.ends.socket.channel();
        self.before_shutdown.is_some_and(|last| {
            self.unsent.is_empty() && channel.taken().is_as_far_as(last) && !channel.awaits_thread()
        })
    }

    fn on_reported(&mut self) -> Result<(), Departure> {
        if self.is_gone && self.has_taken_all() {
            self.ends.assoc.on_outbound_settled();
        }
        match self.is_gone && self.ends.socket.channel().is_closed() {
            true => Err(Departure::Closed),
            false => Ok(()),
        }
    }

    fn next(&mut self, weight_max: usize) -> Result<Next<ChannelWait>, Departure> {
        if self.holds_back && !self.ends.assoc.is_inbound_done() {
            return self.hold_back();
        }
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
            abort(self.ends.association, &content);
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
    ) -> Result<Vec<ToProgram>, ChannelWait> {
        self.is_gone |= refuses_all(refused);
        let is_shutdown_pending = is_shutdown_pending(refused, &header, &content);
        if is_reported_later(self.ends.assoc, refused, &content) {
            // A program that reads nothing is shown no end by the inbound direction.
            self.ends.socket.on_sending_ended();
            self.unsent.push_front((header, content));
            self.holds_back = true;
            return Ok(Vec::new());
        }
        if is_shutdown_pending {
            self.unsent.push_front((header, Bytes::new()));
        }
        Ok(reports(self.ends, refused, header, content))
    }
}

/// Returns whether a message only has to be sent.
fn is_plain(header: &Header) -> bool {
    let plain = [Flags::END, Flags::UNORDERED, Flags::IMMEDIATE, Flags::BY_DEFAULT];
    plain.into_iter().fold(header.flags, Flags::without) == Flags::default()
}
