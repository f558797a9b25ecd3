//! The associations of a one-to-many socket that have ended, and whose last messages or notifications wait for the program.

use std::cell::Cell;
use std::rc::Rc;

use tokio::sync::Notify;

/// Maximum number of such associations with which a socket accepts further ones.
pub(crate) const UNREAD_ENDS_MAX: usize = 1024;

/// Counts the associations of one socket that have ended, and that the program has not read to the end.
///
/// The stack has forgotten them, so its limits for peers do not count them: a peer could set up and abort one after the other.
#[derive(Default)]
pub(crate) struct UnreadEnds {
    count: Cell<usize>,
    read: Notify,
}

/// An association that counts until this is dropped.
pub(crate) struct UnreadEnd {
    of: Rc<UnreadEnds>,
}

impl UnreadEnds {
    /// Counts another association.
    pub(crate) fn begin(self: &Rc<Self>) -> UnreadEnd {
        self.count.set(self.count.get() + 1);
        UnreadEnd { of: Rc::clone(self) }
    }

    /// Waits until the program has read so many that the socket may accept another association. Only the task of the socket
    /// waits.
    pub(crate) async fn room(&self) {
        while self.count.get() >= UNREAD_ENDS_MAX {
            self.read.notified().await;
        }
    }
}

impl Drop for UnreadEnd {
    fn drop(&mut self) {
        self.of.count.set(self.of.count.get() - 1);
        self.of.read.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn a_socket_waits_for_its_program_to_read_so_many_ends() {
        let ends = Rc::new(UnreadEnds::default());
        let mut unread: Vec<_> = (1..UNREAD_ENDS_MAX).map(|_| ends.begin()).collect();
        let mut cx = Context::from_waker(Waker::noop());
        assert!(pin!(ends.room()).poll(&mut cx).is_ready());
        unread.push(ends.begin());
        let mut room = pin!(ends.room());
        assert!(room.as_mut().poll(&mut cx).is_pending());
        unread.pop();
        assert!(room.poll(&mut cx).is_ready());
    }
}
