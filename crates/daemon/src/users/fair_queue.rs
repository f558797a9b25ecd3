//! Items that wait, of users who take turns: a user with many keeps another one waiting for no more than one of them.

use std::collections::{HashMap, VecDeque};

/// Queues of users, with a bounded number of items.
#[derive(Debug)]
pub(crate) struct FairQueue<T> {
    max: usize,
    count: usize,
    /// No queue is empty.
    of_users: HashMap<u32, VecDeque<T>>,
    /// The users of `of_users`, in the order of their turns.
    order: VecDeque<u32>,
}

impl<T> FairQueue<T> {
    /// Makes room for `max` items.
    pub(crate) fn new(max: usize) -> FairQueue<T> {
        FairQueue { max, count: 0, of_users: HashMap::new(), order: VecDeque::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds an item of a user. If there is no room, returns the oldest item of the user who has most.
    pub(crate) fn push(&mut self, user: u32, item: T) -> Option<T> {
        let own = self.of_users.entry(user).or_default();
        if own.is_empty() {
            self.order.push_back(user);
        }
        own.push_back(item);
        self.count += 1;
        if self.count <= self.max {
            return None;
        }
        let most = self.of_users.iter().max_by_key(|(_, own)| own.len()).map(|(user, _)| *user)?;
        self.take(most, 0)
    }

    /// Takes the oldest item of the user whose turn it is.
    pub(crate) fn next(&mut self) -> Option<T> {
        let user = self.next_user()?;
        self.take(user, 0)
    }

    /// Returns the user whose turn it is. The next turn of the user comes after those of all others.
    pub(crate) fn next_user(&mut self) -> Option<u32> {
        let user = self.order.pop_front()?;
        self.order.push_back(user);
        Some(user)
    }

    /// Returns the number of users who have items.
    pub(crate) fn users(&self) -> usize {
        self.order.len()
    }

    /// Returns the oldest item of a user.
    pub(crate) fn first_of(&self, user: u32) -> Option<&T> {
        self.of_users.get(&user)?.front()
    }

    /// Returns the place of the oldest item of a user for which `is_it` returns true.
    pub(crate) fn position(&self, user: u32, is_it: impl Fn(&T) -> bool) -> Option<usize> {
        self.of_users.get(&user)?.iter().position(is_it)
    }

    /// Takes the item in a place among those of a user, who has no more turns once it was the last.
    pub(crate) fn take(&mut self, user: u32, at: usize) -> Option<T> {
        let own = self.of_users.get_mut(&user)?;
        let item = own.remove(at)?;
        self.count -= 1;
        if own.is_empty() {
            self.of_users.remove(&user);
            self.order.retain(|listed| *listed != user);
        }
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_item_of_each_other_user_comes_first() {
        let mut turns = FairQueue::new(2000);
        assert!((0..1000).all(|item| turns.push(1, (1, item)).is_none()));
        assert_eq!(turns.next(), Some((1, 0)));
        turns.push(2, (2, 0));
        turns.push(2, (2, 1));
        let next = [(); 4].map(|()| turns.next());
        assert_eq!(next, [Some((1, 1)), Some((2, 0)), Some((1, 2)), Some((2, 1))]);
        assert_eq!(std::iter::from_fn(|| turns.next()).count(), 997);
        assert!(turns.is_empty() && turns.of_users.is_empty(), "a user without items takes no memory");
    }

    #[test]
    fn the_user_with_most_items_makes_room() {
        let mut turns = FairQueue::new(3);
        assert_eq!([10, 11].map(|item| turns.push(1, item)), [None, None]);
        assert_eq!(turns.push(2, 20), None);
        assert_eq!(turns.push(3, 30), Some(10), "the oldest of the user who has most");
        assert_eq!(turns.push(3, 31), Some(30), "its own oldest");
        assert!(!turns.is_empty());
        assert_eq!([(); 4].map(|()| turns.next()), [Some(11), Some(20), Some(31), None]);
        assert!(turns.is_empty());
        let mut equal = FairQueue::new(2);
        let mut items: Vec<_> = (1..=3).filter_map(|user| equal.push(user, user)).collect();
        assert_eq!(equal.order.len(), 2, "the user without items has no turn");
        items.extend(std::iter::from_fn(|| equal.next()));
        items.sort_unstable();
        assert_eq!(items, [1, 2, 3], "one gives way, and the others keep their turns");
        let mut none = FairQueue::new(0);
        assert_eq!((none.push(1, 1), none.next()), (Some(1), None));
        assert!(none.is_empty() && none.order.is_empty());
    }

    #[test]
    fn an_item_that_leaves_from_any_place_keeps_no_turn() {
        let mut turns = FairQueue::new(4);
        for (user, item) in [(1, 10), (1, 11), (2, 20)] {
            turns.push(user, item);
        }
        assert_eq!((turns.first_of(1), turns.first_of(3)), (Some(&10), None));
        let at = turns.position(1, |item| *item == 11).expect("it is there");
        assert_eq!((turns.take(1, at), turns.take(1, at), turns.users()), (Some(11), None, 2));
        assert_eq!((turns.take(1, 0), turns.users()), (Some(10), 1));
        assert_eq!((turns.next_user(), turns.next_user()), (Some(2), Some(2)));
        assert_eq!((turns.next(), turns.next(), turns.next_user()), (Some(20), None, None));
        assert!(turns.is_empty() && turns.of_users.is_empty() && turns.order.is_empty());
    }
}
