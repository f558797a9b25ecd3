//! Places that all users share, such that no user takes all of them.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::io::Errno;
use tokio::sync::Notify;

use crate::system::lock::lock;

/// A limited number of places of one kind.
pub(crate) struct Places {
    max: usize,
    of_user_max: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    /// The places of each user, the oldest first.
    of_users: HashMap<u32, BTreeMap<u64, Arc<Notify>>>,
    count: usize,
    next: u64,
}

/// One place of a user, until this is dropped or another user takes the place.
pub(crate) struct Seat {
    places: Arc<Places>,
    user: u32,
    number: u64,
    lost: Arc<Notify>,
}

impl Places {
    /// Returns `max` places; one user may take at most `of_user_max` of them.
    pub(crate) fn new(max: usize, of_user_max: usize) -> Arc<Places> {
        Arc::new(Places { max, of_user_max, taken: Mutex::default() })
    }

    /// Takes a place for a user. If none is left, the user with the most places loses its oldest one. Returns `None` if
    /// this user has the maximum.
    pub(crate) fn take(self: &Arc<Self>, user: u32) -> Option<Seat> {
        let mut taken = self.taken();
        if taken.of_users.get(&user).is_some_and(|own| own.len() >= self.of_user_max) {
            return None;
        }
        if taken.count >= self.max {
            taken.give_up_one();
        }
        Some(self.seat(&mut taken, user))
    }

    fn seat(self: &Arc<Self>, taken: &mut Taken, user: u32) -> Seat {
        let lost = Arc::new(Notify::new());
        let number = taken.next;
        taken.next += 1;
        taken.count += 1;
        taken.of_users.entry(user).or_default().insert(number, Arc::clone(&lost));
        Seat { places: Arc::clone(self), user, number, lost }
    }

    /// Takes a free place for a user. Beyond half of all places only users without any get one, so no user has more than
    /// half of them, and no user loses one.
    pub(crate) fn take_free(self: &Arc<Self>, user: u32) -> Option<Seat> {
        let mut taken = self.taken();
        let limit = if taken.of_users.contains_key(&user) { self.max / 2 } else { self.max };
        (taken.count < limit).then(|| self.seat(&mut taken, user))
    }

    /// Takes the oldest place away from the user with the most places.
    pub(crate) fn give_up_one(&self) {
        self.taken().give_up_one();
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        lock(&self.taken)
    }
}

impl Taken {
    fn give_up_one(&mut self) {
        let most = self.of_users.iter().max_by_key(|(_, own)| own.len());
        let oldest = most.and_then(|(user, own)| Some((*user, *own.keys().next()?)));
        if let Some(lost) = oldest.and_then(|(user, number)| self.remove(user, number)) {
            lost.notify_one();
        }
    }

    fn remove(&mut self, user: u32, number: u64) -> Option<Arc<Notify>> {
        let own = self.of_users.get_mut(&user)?;
        let removed = own.remove(&number)?;
        self.count -= 1;
        if own.is_empty() {
            self.of_users.remove(&user);
        }
        Some(removed)
    }
}

impl Seat {
    /// Waits until another user takes this place.
    pub(crate) async fn lost(&self) {
        self.lost.notified().await;
    }

    /// Waits for `something`; fails with `ENOBUFS` once another user takes this place.
    pub(crate) async fn unless_lost<T>(&self, something: impl Future<Output = T>) -> Result<T, Errno> {
        tokio::select! {
            happened = something => Ok(happened),
            () = self.lost() => Err(Errno::NOBUFS),
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.places.taken().remove(self.user, self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn is_lost(seat: &Seat) -> bool {
        pin!(seat.lost()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn the_user_with_most_seats_loses_the_oldest() {
        let places = Places::new(4, 4);
        let greedy: Vec<Seat> = (0..3).map(|_| places.take(1).expect("room")).collect();
        let modest = places.take(2).expect("room");
        let late = places.take(3).expect("the first makes room");
        assert!(is_lost(&greedy[0]) && !is_lost(&greedy[1]) && !is_lost(&greedy[2]));
        assert!(!is_lost(&modest) && !is_lost(&late));
        drop(greedy);
        assert_eq!(places.taken().count, 2, "a place that was lost is not given back twice");
        drop((modest, late));
        assert!(places.taken().of_users.is_empty(), "a user without places takes no memory");
    }

    #[test]
    fn the_user_with_most_seats_gives_one_up_before_all_are_taken() {
        let places = Places::new(8, 8);
        let (greedy, modest) =
            ([(); 2].map(|()| places.take(1).expect("room")), places.take(2).expect("room"));
        places.give_up_one();
        assert!(is_lost(&greedy[0]) && !is_lost(&greedy[1]) && !is_lost(&modest));
    }

    #[test]
    fn free_places_beyond_half_are_for_users_without_any() {
        let places = Places::new(8, 8);
        let greedy: Vec<Seat> = std::iter::from_fn(|| places.take_free(1)).collect();
        assert_eq!(greedy.len(), 4);
        let others: Vec<Option<Seat>> = [2, 2, 3, 4, 5, 6].map(|user| places.take_free(user)).into();
        let have = others.iter().map(Option::is_some).collect::<Vec<_>>();
        assert_eq!(have, [true, false, true, true, true, false], "one each, as long as there are any");
        assert!(!greedy.iter().any(is_lost), "nobody loses a place");
        drop(others);
        assert!(places.take_free(1).is_none() && places.take_free(2).is_some());
        drop(greedy);
        assert_eq!(places.taken().count, 0);
    }

    #[test]
    fn one_user_has_a_limit_of_its_own() {
        let places = Places::new(4, 2);
        let own: Vec<Option<Seat>> = (0..3).map(|_| places.take(1)).collect();
        assert!(own[1].is_some() && own[2].is_none());
        assert!(places.take(2).is_some());
    }
}
