//! What waits of each user, so that users take turns, however much of one waits.

use std::collections::{HashMap, VecDeque};

/// Queues of users. The next of a user who has just come waits for one item of each other user at most.
#[derive(Debug)]
pub(crate) struct Turns<T> {
    /// None is empty.
    of_users: HashMap<u32, VecDeque<T>>,
    /// The users of `of_users`, in the order of their turns.
    order: VecDeque<u32>,
}

impl<T> Turns<T> {
    pub(crate) fn new() -> Turns<T> {
        Turns { of_users: HashMap::new(), order: VecDeque::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Adds an item, and drops those at the front of this user's queue that are given up.
    pub(crate) fn push(&mut self, user: u32, item: T, is_given_up: impl Fn(&T) -> bool) {
        let own = self.of_users.entry(user).or_default();
        if own.is_empty() {
            self.order.push_back(user);
        }
        own.push_back(item);
        while own.len() > 1 && own.front().is_some_and(&is_given_up) {
            own.pop_front();
        }
    }

    /// Takes the oldest item of the user whose turn it is.
    pub(crate) fn next(&mut self) -> Option<T> {
        let user = self.order.pop_front()?;
        let own = self.of_users.get_mut(&user)?;
        let item = own.pop_front();
        if own.is_empty() {
            self.of_users.remove(&user);
        } else {
            self.order.push_back(user);
        }
        item
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_item_of_each_other_user_comes_first() {
        let mut turns = Turns::new();
        (0..1000).for_each(|item| turns.push(1, (1, item), |_| false));
        assert_eq!(turns.next(), Some((1, 0)));
        turns.push(2, (2, 0), |_| false);
        turns.push(2, (2, 1), |_| false);
        let next = [(); 4].map(|()| turns.next());
        assert_eq!(next, [Some((1, 1)), Some((2, 0)), Some((1, 2)), Some((2, 1))]);
        assert_eq!(std::iter::from_fn(|| turns.next()).count(), 997);
        assert!(turns.is_empty() && turns.of_users.is_empty(), "a user without items takes no memory");
    }

    #[test]
    fn what_is_given_up_does_not_pile_up() {
        let mut turns = Turns::new();
        (0..10).for_each(|item| turns.push(1, item, |item| *item < 8));
        assert_eq!([turns.next(), turns.next(), turns.next()], [Some(8), Some(9), None]);
    }
}
