//! Slices of the processor: the daemon's thread has short ones while several users are there.
//!
//! The scheduler lets a program that uses a processor without pause finish its slice before a thread that wakes replaces it, and
//! looks at slices only at ticks. So a user whose programs do that, at any nice value, would keep the daemon from what another
//! user asks for up to 4 ms each time. A thread with shorter slices does not wait. It also interrupts a program that sends, so a
//! user who is alone has the usual slices, and the daemon moves more messages at a time.

use std::cell::Cell;
use std::time::Duration;

use links::ShortSlices;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::user::Users;

/// A short slice. The usual ones of Linux are from 0.7 ms on one processor to 2.8 ms on eight.
const SHORT: Duration = Duration::from_micros(500);
/// Slices remain short for this time after a caller of another user than the caller before.
const KEPT: Duration = Duration::from_secs(10);

/// Tells whether several users are there.
#[derive(Debug, Default)]
pub(crate) struct Slices {
    last_caller: Cell<Option<u32>>,
    /// Notifies of a caller of another user than the caller before.
    other_caller: Notify,
}

impl Slices {
    /// Records that a program of this user has connected.
    pub(crate) fn on_caller(&self, user: u32) {
        if self.last_caller.replace(Some(user)).is_some_and(|last| last != user) {
            self.other_caller.notify_one();
        }
    }

    /// Gives the calling thread short slices while callers of several users come, or several users have sockets.
    pub(crate) async fn follow(&self, users: &Users) {
        loop {
            self.other_caller.notified().await;
            // A filter of system calls may refuse them.
            let short = ShortSlices::begin(SHORT);
            while timeout(KEPT, self.other_caller.notified()).await.is_ok() || users.are_several() {}
            drop(short);
        }
    }

    #[cfg(test)]
    pub(crate) fn last_caller(&self) -> Option<u32> {
        self.last_caller.get()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::rc::Rc;

    use tokio::task::spawn_local;
    use tokio::time::sleep;

    use super::*;
    use crate::users::limits::Limits;

    /// Returns the slice of the calling thread in nanoseconds, if its kernel lets threads choose.
    fn own_slice_ns() -> Option<u128> {
        let scheduling = fs::read_to_string("/proc/thread-self/sched").ok()?;
        let slice = scheduling.lines().find_map(|line| line.strip_prefix("se.slice"))?;
        slice.trim_start_matches([' ', ':']).parse().ok()
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn slices_are_short_while_several_users_call_or_have_sockets() {
        let (slices, users) = (Rc::new(Slices::default()), Rc::new(Users::new(&Limits::default())));
        let following = (Rc::clone(&slices), Rc::clone(&users));
        spawn_local(async move { following.0.follow(&following.1).await });
        let usual_ns = own_slice_ns();
        let short_ns = usual_ns.map(|usual_ns| usual_ns.min(SHORT.as_nanos()));
        (0..3).for_each(|_| slices.on_caller(1));
        sleep(KEPT / 4).await;
        assert_eq!(own_slice_ns(), usual_ns, "one user is there");
        let _own = users.user(1);
        for user in [2, 1, 2] {
            slices.on_caller(user);
            sleep(KEPT * 3 / 4).await;
            assert_eq!(own_slice_ns(), short_ns);
        }
        let other = users.user(2);
        sleep(3 * KEPT).await;
        assert_eq!(own_slice_ns(), short_ns, "two users have sockets");
        drop(other);
        sleep(2 * KEPT).await;
        assert_eq!(own_slice_ns(), usual_ns);
        slices.on_caller(1);
        sleep(KEPT / 4).await;
        assert_eq!(own_slice_ns(), short_ns, "the other one may still be there");
    }
}
