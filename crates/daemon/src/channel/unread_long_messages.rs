//! The unread long messages in a pair.

use std::collections::VecDeque;

use super::lent_memfd::LentMemfd;

/// The unread long messages in a pair, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct UnreadLongMessages {
    messages: VecDeque<LentMemfd>,
    /// Number of messages put so far, modulo 2^32.
    put: u32,
}

impl UnreadLongMessages {
    pub(crate) fn push(&mut self, message: LentMemfd) {
        self.messages.push_back(message);
        self.put = self.put.wrapping_add(1);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Takes the messages that were read. `taken` is the total number read according to the sharers, modulo 2^32.
    pub(crate) fn take_read(&mut self, taken: u32) -> VecDeque<LentMemfd> {
        self.take_all_but(self.put.wrapping_sub(taken) as usize)
    }

    /// Takes all messages but the last `unread`.
    pub(crate) fn take_all_but(&mut self, unread: usize) -> VecDeque<LentMemfd> {
        let read = self.messages.len().saturating_sub(unread);
        let kept = self.messages.split_off(read);
        std::mem::replace(&mut self.messages, kept)
    }

    /// Moves the messages marked in `moved`, the oldest first, to the list of another pair. Returns the messages that were
    /// read before.
    pub(crate) fn move_to(&mut self, other: &mut UnreadLongMessages, moved: &[bool]) -> VecDeque<LentMemfd> {
        let read = self.take_all_but(moved.len());
        let listed = &moved[moved.len() - self.messages.len()..];
        let count = moved.iter().filter(|moved| **moved).count() as u32;
        self.put = self.put.wrapping_sub(count);
        other.put = other.put.wrapping_add(count);
        for (message, moved) in std::mem::take(&mut self.messages).into_iter().zip(listed) {
            let place = if *moved { &mut other.messages } else { &mut self.messages };
            place.push_back(message);
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::lent_memfd::tests::{account, message};

    #[test]
    fn messages_are_taken_as_they_are_read() {
        let account = account();
        let mut unread = UnreadLongMessages::default();
        (0..3).for_each(|_| unread.push(message(&account, b"long")));
        let mut taken = |count| unread.take_read(count).len();
        assert_eq!([taken(0), taken(2), taken(2), taken(3)], [0, 2, 0, 1]);
        // The sharers may write any number.
        unread.push(message(&account, b"long"));
        assert_eq!((unread.take_read(77).len(), unread.take_read(4).len()), (0, 1));
    }

    #[test]
    fn messages_move_with_their_records() {
        let account = account();
        let (mut old, mut new) = (UnreadLongMessages::default(), UnreadLongMessages::default());
        (0..4).for_each(|_| old.push(message(&account, b"long")));
        let read = old.move_to(&mut new, &[true, false, true]);
        assert_eq!((read.len(), old.messages.len(), new.messages.len()), (1, 1, 2));
        assert_eq!((old.take_read(2).len(), new.take_read(1).len()), (1, 1));
    }
}
