//! Permits that all users share, such that no user takes all of them.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::io::Errno;
use tokio::sync::Notify;

use crate::system::lock::lock;

/// A limited number of permits of one kind.
#[derive(Debug)]
pub(crate) struct UserPermits {
    max: usize,
    of_user_max: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    /// The permits of each user, the oldest first.
    of_users: HashMap<u32, BTreeMap<u64, Arc<Notify>>>,
    count: usize,
    next: u64,
}

/// One permit of a user, until this is dropped or another user takes it.
#[derive(Debug)]
pub(crate) struct Permit {
    permits: Arc<UserPermits>,
    user: u32,
    number: u64,
    lost: Arc<Notify>,
}

impl UserPermits {
    /// Returns `max` permits; one user may take at most `of_user_max` of them.
    pub(crate) fn new(max: usize, of_user_max: usize) -> Arc<UserPermits> {
        Arc::new(UserPermits { max, of_user_max, taken: Mutex::default() })
    }

    /// Returns permits without a limit of the sum, so that no user loses one to another. Each user may take `of_user_max`.
    pub(crate) fn of_each(of_user_max: usize) -> Arc<UserPermits> {
        UserPermits::new(usize::MAX, of_user_max)
    }

    /// Takes a permit for a user. If none is left, the user with the most permits loses its oldest one. Returns `None` if
    /// this user has the maximum.
    pub(crate) fn take(self: &Arc<Self>, user: u32) -> Option<Permit> {
        let mut taken = self.taken();
        if taken.of_users.get(&user).is_some_and(|own| own.len() >= self.of_user_max) {
            return None;
        }
        if taken.count >= self.max {
            taken.give_up_one();
        }
        Some(self.permit(&mut taken, user))
    }

    /// Takes a permit for a user that no user has. Returns `None` if there is none, or this user has the maximum.
    pub(crate) fn take_unused(self: &Arc<Self>, user: u32) -> Option<Permit> {
        let mut taken = self.taken();
        let of_user = taken.of_users.get(&user).map_or(0, BTreeMap::len);
        let is_granted = taken.count < self.max && of_user < self.of_user_max;
        is_granted.then(|| self.permit(&mut taken, user))
    }

    fn permit(self: &Arc<Self>, taken: &mut Taken, user: u32) -> Permit {
        let lost = Arc::new(Notify::new());
        let number = taken.next;
        taken.next += 1;
        taken.count += 1;
        taken.of_users.entry(user).or_default().insert(number, Arc::clone(&lost));
        Permit { permits: Arc::clone(self), user, number, lost }
    }

    /// Takes a free permit for a user. Beyond half of all permits only users without any get one, so no user has more than
    /// half of them, and no user loses one.
    pub(crate) fn take_free(self: &Arc<Self>, user: u32) -> Option<Permit> {
        let mut taken = self.taken();
        let limit = if taken.of_users.contains_key(&user) { self.max / 2 } else { self.max };
        (taken.count < limit).then(|| self.permit(&mut taken, user))
    }

    /// Takes the oldest permit away from the user with the most permits.
    pub(crate) fn give_up_one(&self) {
        self.taken().give_up_one();
    }

    /// Returns the number of users who have permits.
    #[cfg(test)]
    pub(crate) fn users(&self) -> usize {
        self.taken().of_users.len()
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

impl Permit {
    /// Waits until another user takes this permit.
    pub(crate) async fn lost(&self) {
        self.lost.notified().await;
    }

    /// Waits for `something`; fails with `ENOBUFS` once another user takes this permit.
    pub(crate) async fn unless_lost<T>(&self, something: impl Future<Output = T>) -> Result<T, Errno> {
        tokio::select! {
            happened = something => Ok(happened),
            () = self.lost() => Err(Errno::NOBUFS),
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.permits.taken().remove(self.user, self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn is_lost(permit: &Permit) -> bool {
        pin!(permit.lost()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn the_user_with_most_permits_loses_the_oldest() {
        let permits = UserPermits::new(4, 4);
        let greedy: Vec<Permit> = (0..3).map(|_| permits.take(1).expect("room")).collect();
        let modest = permits.take(2).expect("room");
        let late = permits.take(3).expect("the first makes room");
        assert!(is_lost(&greedy[0]) && !is_lost(&greedy[1]) && !is_lost(&greedy[2]));
        assert!(!is_lost(&modest) && !is_lost(&late));
        drop(greedy);
        assert_eq!(permits.taken().count, 2, "a permit that was lost is not given back twice");
        drop((modest, late));
        assert_eq!(permits.users(), 0, "a user without permits takes no memory");
    }

    #[test]
    fn the_user_with_most_permits_gives_one_up_before_all_are_taken() {
        let permits = UserPermits::new(8, 8);
        let (greedy, modest) =
            ([(); 2].map(|()| permits.take(1).expect("room")), permits.take(2).expect("room"));
        permits.give_up_one();
        assert!(is_lost(&greedy[0]) && !is_lost(&greedy[1]) && !is_lost(&modest));
    }

    #[test]
    fn free_permits_beyond_half_are_for_users_without_any() {
        let permits = UserPermits::new(8, 8);
        let greedy: Vec<Permit> = std::iter::from_fn(|| permits.take_free(1)).collect();
        assert_eq!(greedy.len(), 4);
        let others: Vec<Option<Permit>> = [2, 2, 3, 4, 5, 6].map(|user| permits.take_free(user)).into();
        let have = others.iter().map(Option::is_some).collect::<Vec<_>>();
        assert_eq!(have, [true, false, true, true, true, false], "one each, as long as there are any");
        assert!(!greedy.iter().any(is_lost), "nobody loses a permit");
        drop(others);
        assert!(permits.take_free(1).is_none() && permits.take_free(2).is_some());
        drop(greedy);
        assert_eq!(permits.taken().count, 0);
    }

    #[test]
    fn one_user_has_a_limit_of_its_own() {
        let permits = UserPermits::new(4, 2);
        let own: Vec<Option<Permit>> = (0..3).map(|_| permits.take(1)).collect();
        assert!(own[1].is_some() && own[2].is_none());
        assert!(permits.take(2).is_some());
    }
}
