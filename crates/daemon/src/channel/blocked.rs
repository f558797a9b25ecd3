//! Reasons why a message was not put into a channel, and the events that a blocked message waits for.

use rustix::io::Errno;

/// The event that a blocked message waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocked {
    /// Room in the pair: the program must read first.
    Full,
    /// Room in the receive ring.
    Ring,
    /// The end of another sender's message.
    Delivery,
    /// The end of a recall.
    Recall,
    /// The end of the throttling of the socket or of its user.
    Throttled,
    /// The end of a change of the form.
    FormChanging,
    /// This many bytes of the user's memory for unread messages.
    Memory(usize),
    /// Free descriptor numbers of the user.
    Descriptors,
    /// Memory or descriptors of the host, which is short of them.
    Host,
}

/// Reason why a message was not put into a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotPut {
    /// The message can be put later.
    Blocked(Blocked),
    /// The program cannot be reached any more.
    Failed(Errno),
}
