//! Releases the credit and the memory that unread messages hold, as the program reads them.

use std::rc::Rc;
use std::time::Duration;

use super::Channel;
use super::lent_memfd::LentMemfd;

/// Interval for rechecking whether a reader has counted a message, and the number of checks. If the reader takes longer, the
/// peer's next window probe makes the daemon check again.
const COUNT_WAIT: Duration = Duration::from_millis(1);
const COUNT_LOOKS_MAX: u32 = 100;

impl Channel {
    /// Returns whether the program has left a message unread, according to what the sharers' page said last. Notifications do not
    /// count.
    pub(crate) fn has_unread_data(&self) -> bool {
        self.has_unread_besides(0)
    }

    /// Returns whether a message is unread, apart from `waiting` messages that wait to be put.
    pub(super) fn has_unread_besides(&self, waiting: u32) -> bool {
        self.pages.read_so_far().data_taken != self.credit.put_besides(waiting)
    }

    /// Returns whether the program, which has closed its end, has left a message unread, apart from `waiting` messages that
    /// could not be put. If not, releases all credits. Otherwise they keep the window closed until the association is
    /// aborted: the peer must not hear that more has arrived.
    pub(crate) async fn is_left_unread(&self, waiting: u32) -> bool {
        // Without the page the daemon does not know of unread messages, and supposes that there are none.
        let is_unread = self.endpoint.read_page().await && self.has_unread_besides(waiting);
        if !is_unread {
            self.credit.release_all();
        }
        is_unread
    }

    /// Holds the memory of a long message or notification that was put into the pair until it was read.
    pub(super) fn hold_memory(self: &Rc<Self>, message: LentMemfd) {
        self.credit.hold_memory(message);
        self.watch_reads();
    }

    /// Starts a watcher that releases credits as the program reads, if credits are held and none runs.
    pub(crate) fn watch_reads(self: &Rc<Self>) {
        self.credit.watch(|| tokio::task::spawn_local(release_as_read(Rc::clone(self))).abort_handle());
    }

    /// Releases all credits and memory, because the program does not read any more.
    pub(crate) fn release_all_credits(&self) {
        self.credit.release_all();
    }

    /// Releases all credits and memory and stops the watcher, because the socket is closed.
    pub(crate) fn on_closed(&self) {
        self.credit.close();
    }

    /// Moves the messages marked in `moved`, the oldest first, to another channel. `moved_long` marks the messages whose content
    /// is in a memfd.
    pub(crate) fn move_credits_to(&self, other: &Channel, moved: &[bool], moved_long: &[bool]) {
        self.credit.move_to(&other.credit, moved, moved_long);
    }

    /// Releases the credits and the memory of all messages that were read according to the sharers. Returns whether a sharer was
    /// reading.
    pub(super) async fn release_read(&self) -> bool {
        // If the page cannot be read, the next call releases the messages.
        let _ = self.endpoint.read_page().await;
        let read = self.pages.read_so_far();
        self.credit.on_read(read.data_taken, read.long_taken);
        read.is_being_read
    }
}

/// Releases credits as the program reads, until none is held.
async fn release_as_read(channel: Rc<Channel>) {
    let reads = channel.daemon_end().reads();
    loop {
        reads.next().await;
        for _ in 0..COUNT_LOOKS_MAX {
            if channel.daemon_end().is_hung_up() {
                if channel.endpoint.is_closed() && channel.is_left_unread(0).await {
                    channel.credit.on_watcher_ended();
                    return;
                }
                channel.credit.release_all();
            }
            // A reader counts a message before it releases the lock, and the lock stands in front of the number.
            let is_being_read = channel.release_read().await;
            if !channel.credit.needs_watcher() {
                return;
            }
            if !is_being_read {
                break;
            }
            tokio::time::sleep(COUNT_WAIT).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Weak;

    use channel_protocol::sharers_page::SharersPage;

    use super::*;
    use crate::channel::style::Style;
    use crate::channel::window_credit::{HeldCredit, ReceiveWindow};
    use crate::testing::{opened, registry, soon};

    struct Window(Cell<usize>);

    impl ReceiveWindow for Window {
        fn release(&self, bytes: usize) {
            self.0.set(self.0.get() + bytes);
        }
    }

    #[tokio::test(flavor = "local")]
    async fn a_close_opens_the_window_only_if_everything_was_read() {
        for read in [0, 1, 2] {
            let registry = registry();
            let (socket, program_end) = opened(&registry, Style::OneToOne);
            let channel = socket.channel();
            let window: Rc<Window> = Rc::new(Window(Cell::new(0)));
            for _ in 0..2 {
                let of: Weak<Window> = Rc::downgrade(&window);
                channel.credit.attempt(1).on_put(Some(HeldCredit::new(of, 10)));
            }
            channel.pages.write_as_sharer(SharersPage::DATA_TAKEN_AT, &[read]);
            drop(program_end);
            soon(channel.daemon_end().hung_up()).await;
            soon(release_as_read(Rc::clone(channel))).await;
            let released = if read == 2 { 20 } else { 0 };
            assert_eq!(window.0.get(), released, "{read} were read");
            channel.on_closed();
            assert_eq!(window.0.get(), 20);
        }
    }
}
