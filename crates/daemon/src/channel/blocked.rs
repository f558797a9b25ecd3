//! Why something was not put into a channel, and what it waits for.

use rustix::io::Errno;

/// What a message that cannot be put now waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocked {
    /// Room: the program has not read enough.
    Full,
    /// The end of another sender's message.
    Delivery,
    /// The end of a recall.
    Recall,
    /// The end of a change of the form.
    Held,
    /// This many bytes of the user's memory for messages that programs have yet to read.
    Memory(usize),
    /// Free descriptor numbers of the user.
    Descriptors,
    /// The host, which is short of memory or descriptors.
    Host,
}

/// Why something was not put into a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotPut {
    /// It can be put later.
    Blocked(Blocked),
    /// The program cannot be reached any more.
    Failed(Errno),
}
