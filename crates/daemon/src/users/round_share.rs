//! Shares the daemon's thread among users: in each round of the runtime, all sockets of one user together move so many
//! records. A long record counts as several (`quantum::weight`).
//!
//! Each socket has turns of its own, but a user with many sockets would keep others waiting for a turn of each. So a
//! task that moves records takes its turn from the share of its user, and returns what it has not used when it waits
//! for something else. The used part comes back in the next round. Tasks that find too little wait in line.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use tokio::sync::Semaphore;
use tokio::task::{spawn_local, yield_now};

use crate::system::quantum::{Quantum, RECORDS_PER_TURN};

/// Maximum number of records that the sockets of one user move in a round.
pub(crate) const RECORDS_PER_ROUND: usize = 2 * RECORDS_PER_TURN;

/// The part of one user in each round.
#[derive(Debug)]
pub(crate) struct RoundShare {
    /// Records that no turn has.
    free: Semaphore,
    /// Records that were moved in this round.
    used: AtomicUsize,
    /// A task will bring the used part back.
    is_refilling: AtomicBool,
}

impl RoundShare {
    pub(crate) fn new() -> Arc<RoundShare> {
        Arc::new(RoundShare {
            free: Semaphore::new(RECORDS_PER_ROUND),
            used: AtomicUsize::new(0),
            is_refilling: AtomicBool::new(false),
        })
    }

    /// Brings the used part back in the next round, if what is left is too little for a turn.
    fn refill_if_short(self: &Arc<Self>) {
        let is_short = self.free.available_permits() < RECORDS_PER_TURN && self.used.load(Relaxed) > 0;
        if is_short && !self.is_refilling.swap(true, Relaxed) {
            let share = Arc::clone(self);
            spawn_local(async move {
                yield_now().await;
                share.is_refilling.store(false, Relaxed);
                share.free.add_permits(share.used.swap(0, Relaxed));
            });
        }
    }
}

/// The turns of one task that moves records.
pub(crate) struct Turn {
    share: Arc<RoundShare>,
    /// Records that this turn has of the share; none before it begins.
    held: usize,
    /// Bounds turns that move little, too: what they wait for may be there at once, again and again.
    quantum: Quantum,
}

impl Turn {
    pub(crate) fn new(share: &Arc<RoundShare>) -> Turn {
        Turn { share: Arc::clone(share), held: 0, quantum: Quantum::new() }
    }

    /// Counts handled records. Returns whether the task must wait for its next turn: this one is over, or could
    /// not begin at once.
    pub(crate) fn is_spent_by(&mut self, records: usize) -> bool {
        if !self.begins_at_once() {
            return true;
        }
        let used = records.min(self.held);
        self.held -= used;
        self.share.used.fetch_add(used, Relaxed);
        let is_spent = self.quantum.is_spent_by(records) || self.held == 0;
        if is_spent {
            self.end();
        }
        is_spent
    }

    /// Returns how many more records this turn may move; 0 if it has not begun.
    pub(crate) fn left(&self) -> usize {
        self.held.min(self.quantum.left())
    }

    /// Waits in line for a turn, unless it has begun.
    pub(crate) async fn begin(&mut self) {
        // The semaphore is never closed.
        if self.held == 0
            && let Ok(records) = self.share.free.acquire_many(RECORDS_PER_TURN as u32).await
        {
            records.forget();
            self.held = RECORDS_PER_TURN;
        }
    }

    /// Lets other tasks run, then waits in line for the next turn.
    pub(crate) async fn next(&mut self) {
        yield_now().await;
        self.begin().await;
    }

    /// Returns what the turn has not used: the task waits for something else.
    pub(crate) fn end(&mut self) {
        let unused = std::mem::take(&mut self.held);
        if unused > 0 {
            self.share.free.add_permits(unused);
        }
        self.share.refill_if_short();
    }

    fn begins_at_once(&mut self) -> bool {
        if self.held == 0 {
            let Ok(records) = self.share.free.try_acquire_many(RECORDS_PER_TURN as u32) else {
                self.share.refill_if_short();
                return false;
            };
            records.forget();
            self.held = RECORDS_PER_TURN;
        }
        true
    }
}

impl Drop for Turn {
    /// Returns what a task held that has failed. One that has not ends its turn before it waits.
    fn drop(&mut self) {
        self.share.free.add_permits(self.held);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;
    use crate::testing::soon;

    const TASKS: usize = 300;
    /// Enough for some turns of each task.
    const ROUNDS: usize = 10 * TASKS;

    /// Runs tasks of one user without pause, which move so many records each time that they may. Returns the most that
    /// they move in a round of the runtime, and what each has moved.
    async fn run(records: usize) -> (usize, Vec<usize>) {
        let share = RoundShare::new();
        let moved: Rc<Vec<Cell<usize>>> = Rc::new(vec![Cell::new(0); TASKS]);
        for task in 0..TASKS {
            let (mut turn, moved) = (Turn::new(&share), Rc::clone(&moved));
            spawn_local(async move {
                loop {
                    for _ in 0..records {
                        if turn.is_spent_by(1) {
                            break;
                        }
                        moved[task].set(moved[task].get() + 1);
                    }
                    turn.end();
                    turn.next().await;
                }
            });
        }
        let count = || moved.iter().map(Cell::get).sum::<usize>();
        let (mut before, mut most) = (0, 0);
        for _ in 0..ROUNDS {
            yield_now().await;
            most = most.max(count() - before);
            before = count();
        }
        (most, moved.iter().map(Cell::get).collect())
    }

    #[tokio::test(flavor = "local")]
    async fn the_tasks_of_a_user_move_so_many_records_in_a_round_one_after_the_other() {
        for records in [1, 5, 2 * RECORDS_PER_TURN] {
            let (most, of_each) = run(records).await;
            assert!((1..=RECORDS_PER_ROUND).contains(&most), "{most} in a round");
            let (fewest, most) = (of_each.iter().min(), of_each.iter().max());
            assert!(
                most <= fewest.map(|fewest| 2 * fewest).as_ref(),
                "they have moved about as many: {of_each:?}"
            );
        }
    }

    #[tokio::test(flavor = "local")]
    async fn a_task_returns_what_it_has_not_used() {
        let share = RoundShare::new();
        let mut turns: Vec<Turn> = (0..RECORDS_PER_ROUND).map(|_| Turn::new(&share)).collect();
        let begun = turns.iter_mut().map(Turn::begins_at_once).take_while(|begun| *begun).count();
        assert_eq!(begun, RECORDS_PER_ROUND / RECORDS_PER_TURN);
        turns.clear();
        assert_eq!(share.free.available_permits(), RECORDS_PER_ROUND);
        let mut turn = Turn::new(&share);
        assert!(!turn.is_spent_by(2));
        turn.end();
        assert_eq!(share.free.available_permits(), RECORDS_PER_ROUND - 2);
        let mut other = Turn::new(&RoundShare::new());
        let spent = [RECORDS_PER_TURN, RECORDS_PER_TURN, RECORDS_PER_TURN].map(|all| turn.is_spent_by(all));
        assert_eq!((spent, turn.is_spent_by(1)), ([true; 3], true), "too little for one more turn is left");
        assert!(!other.is_spent_by(1), "another user has a share of its own");
        soon(turn.next()).await;
        assert!(!turn.is_spent_by(1), "the next round brings back what was used");
    }
}
