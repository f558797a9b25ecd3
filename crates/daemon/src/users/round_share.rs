//! Shares the daemon's thread among users: in each round of the runtime, all sockets of one user together move a bounded
//! number of records. A record that is long (`quantum::weight`), or that takes long, counts as several: a program decides how
//! many descriptors a record brings, and how many waiters the kernel wakes for it.
//!
//! Each socket has turns of its own, but a user with many sockets would keep others waiting for a turn of each. So a task that
//! moves records takes its turn from the share of its user, and returns what it has not used when it waits for something else.
//! The used part comes back in the next round, less the work that modules do on the user's streams. Tasks that find too little
//! wait in line. A task that closes a socket or an association takes a turn, too, because a program that ends
//! closes all its sockets at once. Later rounds have less by the excess of a turn over its share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::{spawn_local, yield_now};

use crate::users::quantum::{Quantum, RECORDS_PER_TURN, TurnState};

/// Maximum number of records that the sockets of one user move in a round.
pub(crate) const RECORDS_PER_ROUND: usize = 2 * RECORDS_PER_TURN;

/// Time that counts as one record. So the sockets of a user take a millisecond in a round at most; the records of a
/// usual program take less.
const TIME_PER_RECORD: Duration = Duration::from_micros(8);
/// Number of pieces of work of modules that count as one record: calls of service procedures and timers, and messages that these
/// take from queues.
const WORK_PER_RECORD: usize = 4;
/// Maximum number of records that are taken from later rounds.
const OWED_MAX: usize = 16 * RECORDS_PER_ROUND;
/// Number of rounds after which a user has a turn again, however much was taken, unless other tasks have its turns.
pub(crate) const ROUNDS_WITHOUT_TURN_MAX: usize = OWED_MAX / RECORDS_PER_TURN;

/// Number of records that the close of a socket or of an association counts as at least: some of its work comes later.
pub(crate) const CLOSE_RECORDS: usize = 4;

/// The part of one user in each round. The daemon's thread changes all of it. The stack's background thread, which runs modules
/// while the daemon's thread is kept from its processor, changes `owed` and `work`, so both change in one atomic step.
#[derive(Debug)]
pub(crate) struct RoundShare {
    /// Records that no turn has.
    free: Semaphore,
    /// Records that were moved in this round.
    used: AtomicUsize,
    /// Records that later rounds get less.
    owed: AtomicUsize,
    /// Pieces of work that modules have done. Each [`WORK_PER_RECORD`] of them make a record.
    work: AtomicUsize,
    /// A task will bring the used part back.
    is_refilling: AtomicBool,
    /// Number of tasks that wait in line for a turn.
    waiting: AtomicUsize,
}

/// A task that waits in line for a turn, until this is dropped.
struct InLine<'a>(&'a RoundShare);

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}

impl RoundShare {
    pub(crate) fn new() -> Arc<RoundShare> {
        Arc::new(RoundShare {
            free: Semaphore::new(RECORDS_PER_ROUND),
            used: AtomicUsize::new(0),
            owed: AtomicUsize::new(0),
            work: AtomicUsize::new(0),
            is_refilling: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
        })
    }

    /// Returns whether a task waits in line for a turn.
    pub(crate) fn is_awaited(&self) -> bool {
        self.waiting.load(Relaxed) > 0
    }

    fn wait_in_line(&self) -> InLine<'_> {
        self.waiting.fetch_add(1, Relaxed);
        InLine(self)
    }

    /// Brings the used part back in the next round, if what is left is too little for a turn.
    fn refill_if_short(self: &Arc<Self>) {
        if self.is_short() && !self.is_refilling.swap(true, Relaxed) {
            let share = Arc::clone(self);
            spawn_local(async move {
                while share.is_short() {
                    yield_now().await;
                    share.refill();
                }
                share.is_refilling.store(false, Relaxed);
            });
        }
    }

    fn is_short(&self) -> bool {
        self.free.available_permits() < RECORDS_PER_TURN && self.used.load(Relaxed) > 0
    }

    fn refill(&self) {
        let used = self.used.load(Relaxed);
        let owed = self.change_owed(|owed| owed - owed.min(used));
        let withheld = owed.min(used);
        self.used.store(withheld, Relaxed);
        self.free.add_permits(used - withheld);
    }

    /// Takes what modules have done on the user's streams from the next round. The executive bounds it in each round.
    pub(crate) fn count_work(&self, work: usize) {
        let before = self.work.fetch_add(work, Relaxed);
        let records = (before % WORK_PER_RECORD + work) / WORK_PER_RECORD;
        self.change_owed(|owed| owed.max((owed + records).min(RECORDS_PER_ROUND)));
    }

    /// Takes records from later rounds.
    fn owe(&self, records: usize) {
        self.change_owed(|owed| (owed + records).min(OWED_MAX));
    }

    /// Changes what later rounds get less. Returns the number of records before the change.
    fn change_owed(&self, change: impl Fn(usize) -> usize) -> usize {
        let changed = self.owed.fetch_update(Relaxed, Relaxed, |owed| Some(change(owed)));
        changed.unwrap_or_else(|unchanged| unchanged)
    }
}

/// The turns of one task that moves records.
pub(crate) struct Turn {
    share: Arc<RoundShare>,
    /// Records that this turn has of the share; none before it begins.
    held: usize,
    /// Bounds turns that move little, too: what they wait for may be there at once, again and again.
    quantum: Quantum,
    /// Time up to which the task's work has been counted.
    counted_until: Instant,
}

impl Turn {
    pub(crate) fn new(share: &Arc<RoundShare>) -> Turn {
        Turn { share: Arc::clone(share), held: 0, quantum: Quantum::new(), counted_until: clock::now() }
    }

    /// Records that the task works again, after it has waited.
    pub(crate) fn resume(&mut self) {
        self.counted_until = clock::now();
    }

    /// Takes handled records, or the time since the last call, from the share of the user, and ends the turn if it is over. The
    /// turn is also over if it could not begin at once.
    pub(crate) fn spend(&mut self, records: usize) -> TurnState {
        let of_time = self.records_of_time();
        let has_begun = self.try_begin();
        let records = records.max(of_time);
        let used = records.min(self.held);
        self.held -= used;
        self.share.used.fetch_add(used, Relaxed);
        if of_time > used {
            self.share.owe(of_time - used);
        }
        if !has_begun {
            return TurnState::Over;
        }
        if self.quantum.spend(records) == TurnState::Lasts && self.held > 0 {
            return TurnState::Lasts;
        }
        self.end();
        TurnState::Over
    }

    /// Returns how many more records this turn may move; 0 if it has not begun.
    pub(crate) fn left(&self) -> usize {
        self.held.min(self.quantum.left())
    }

    /// Waits in line for a turn, unless it has begun.
    pub(crate) async fn begin(&mut self) {
        if self.held == 0 {
            let _in_line = self.share.wait_in_line();
            // The semaphore is never closed.
            if let Ok(records) = self.share.free.acquire_many(RECORDS_PER_TURN as u32).await {
                records.forget();
                self.held = RECORDS_PER_TURN;
            }
        }
        self.resume();
    }

    /// Lets other tasks run, then waits in line for the next turn.
    pub(crate) async fn next(&mut self) {
        yield_now().await;
        self.begin().await;
    }

    /// Waits until the user may close one more socket or association in this round, and closes it. The turn is over then.
    pub(crate) async fn close_one(&mut self, close: impl FnOnce()) {
        self.begin().await;
        close();
        self.end_close();
    }

    /// Ends the turn in which a socket or an association was closed.
    pub(crate) fn end_close(&mut self) {
        self.spend(CLOSE_RECORDS);
        self.end();
    }

    /// Returns what the turn has not used: the task waits for something else.
    pub(crate) fn end(&mut self) {
        let unused = std::mem::take(&mut self.held);
        if unused > 0 {
            self.share.free.add_permits(unused);
        }
        self.share.refill_if_short();
    }

    /// Returns the number of records that the time since the last count stands for.
    fn records_of_time(&mut self) -> usize {
        let now = clock::now();
        let time = now.duration_since(std::mem::replace(&mut self.counted_until, now));
        (time.as_micros() / TIME_PER_RECORD.as_micros()) as usize
    }

    /// Begins a turn unless one lasts. Returns false if the share of the user has too little left.
    fn try_begin(&mut self) -> bool {
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

/// The clock of turns.
#[cfg(not(test))]
mod clock {
    pub(super) fn now() -> std::time::Instant {
        std::time::Instant::now()
    }
}

/// A clock that tests advance: others count records alone.
#[cfg(test)]
mod clock {
    use std::cell::Cell;
    use std::time::{Duration, Instant};

    thread_local! {
        static NOW: Cell<Instant> = Cell::new(Instant::now());
    }

    pub(super) fn now() -> Instant {
        NOW.get()
    }

    pub(super) fn advance(time: Duration) {
        NOW.set(NOW.get() + time);
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
                        if turn.spend(1) == TurnState::Over {
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
    async fn what_modules_do_is_taken_from_the_next_round() {
        let share = RoundShare::new();
        let mut turn = Turn::new(&share);
        (0..4).for_each(|_| share.count_work(WORK_PER_RECORD * RECORDS_PER_TURN / 4));
        share.count_work(WORK_PER_RECORD - 1);
        assert_eq!(share.owed.load(Relaxed), RECORDS_PER_TURN);
        while turn.spend(1) == TurnState::Lasts {}
        while turn.spend(1) == TurnState::Lasts {}
        assert_eq!(share.used.load(Relaxed), RECORDS_PER_ROUND);
        soon(turn.next()).await;
        assert_eq!((turn.held, share.free.available_permits()), (RECORDS_PER_TURN, 0), "half of a round");
        share.count_work(1);
        assert_eq!(share.owed.load(Relaxed), 1, "a piece of a record before");
        share.count_work(WORK_PER_RECORD * 10 * RECORDS_PER_ROUND);
        assert_eq!(share.owed.load(Relaxed), RECORDS_PER_ROUND);
    }

    #[test]
    fn work_of_modules_that_another_thread_counts_changes_no_debt_meanwhile() {
        const REFILLS: usize = 200_000;
        let share = RoundShare::new();
        let withheld: usize = std::thread::scope(|scope| {
            // Too little work for a record.
            scope.spawn(|| (0..10 * REFILLS).for_each(|_| share.count_work(0)));
            let refills = (0..REFILLS).map(|_| {
                share.owe(RECORDS_PER_TURN);
                share.used.store(RECORDS_PER_ROUND, Relaxed);
                share.refill();
                share.used.load(Relaxed)
            });
            refills.sum()
        });
        assert_eq!(withheld + share.owed.load(Relaxed), REFILLS * RECORDS_PER_TURN);
    }

    #[tokio::test(flavor = "local")]
    async fn the_sockets_of_a_user_that_close_at_once_take_several_rounds() {
        let share = RoundShare::new();
        let closed = Rc::new(Cell::new(0));
        for _ in 0..TASKS {
            let (mut turn, closed) = (Turn::new(&share), Rc::clone(&closed));
            spawn_local(async move { turn.close_one(|| closed.set(closed.get() + 1)).await });
        }
        let (mut before, mut most) = (0, 0);
        soon(async {
            while closed.get() < TASKS {
                yield_now().await;
                most = most.max(closed.get() - before);
                before = closed.get();
            }
        })
        .await;
        assert!(most <= RECORDS_PER_ROUND / CLOSE_RECORDS, "{most} in a round");
        assert_eq!(share.free.available_permits() + share.used.load(Relaxed), RECORDS_PER_ROUND);
    }

    /// More than one record may take, and less than a round.
    const LONG: Duration = Duration::from_micros(100);

    #[tokio::test(flavor = "local")]
    async fn the_tasks_of_a_user_take_so_much_time_in_a_round_however_few_their_records_are() {
        let share = RoundShare::new();
        let handled = Rc::new(Cell::new(0));
        for _ in 0..TASKS {
            let (mut turn, handled) = (Turn::new(&share), Rc::clone(&handled));
            spawn_local(async move {
                loop {
                    turn.resume();
                    loop {
                        clock::advance(LONG);
                        handled.set(handled.get() + 1);
                        if turn.spend(1) == TurnState::Over {
                            break;
                        }
                    }
                    turn.next().await;
                }
            });
        }
        // Each has a turn, which it begins by work.
        yield_now().await;
        let before = handled.get();
        for _ in 0..ROUNDS {
            yield_now().await;
        }
        let of_round = TIME_PER_RECORD * RECORDS_PER_ROUND as u32;
        let fitting = (of_round * ROUNDS as u32).div_duration_f64(LONG) as usize;
        let later = handled.get() - before;
        assert!((fitting / 2..=fitting + OWED_MAX).contains(&later), "{later} of {fitting}");
    }

    #[tokio::test(flavor = "local")]
    async fn what_a_turn_takes_too_long_is_taken_from_the_next_rounds() {
        let share = RoundShare::new();
        let mut turn = Turn::new(&share);
        clock::advance(TIME_PER_RECORD * (RECORDS_PER_TURN + 3 * RECORDS_PER_ROUND) as u32);
        assert_eq!(turn.spend(1), TurnState::Over);
        let rounds = Rc::new(Cell::new(0));
        let counted = Rc::clone(&rounds);
        let counter = spawn_local(async move {
            loop {
                yield_now().await;
                counted.set(counted.get() + 1);
            }
        });
        let mut others = [(); 3].map(|()| Turn::new(&share));
        for other in &mut others {
            soon(other.begin()).await;
            assert_eq!(other.spend(RECORDS_PER_TURN), TurnState::Over);
        }
        assert!(rounds.get() >= 3, "they began after {} rounds", rounds.get());
        counter.abort();
        let mut another = Turn::new(&RoundShare::new());
        assert_eq!(another.spend(1), TurnState::Lasts, "another user has a share of its own");
    }

    #[tokio::test(flavor = "local")]
    async fn a_task_returns_what_it_has_not_used() {
        let share = RoundShare::new();
        let mut turns: Vec<Turn> = (0..RECORDS_PER_ROUND).map(|_| Turn::new(&share)).collect();
        let begun = turns.iter_mut().map(Turn::try_begin).take_while(|begun| *begun).count();
        assert_eq!(begun, RECORDS_PER_ROUND / RECORDS_PER_TURN);
        turns.clear();
        assert_eq!(share.free.available_permits(), RECORDS_PER_ROUND);
        let mut turn = Turn::new(&share);
        assert_eq!(turn.spend(2), TurnState::Lasts);
        turn.end();
        assert_eq!(share.free.available_permits(), RECORDS_PER_ROUND - 2);
        let mut other = Turn::new(&RoundShare::new());
        let spent = [RECORDS_PER_TURN, RECORDS_PER_TURN, RECORDS_PER_TURN].map(|all| turn.spend(all));
        let over = TurnState::Over;
        assert_eq!((spent, turn.spend(1)), ([over; 3], over), "too little for one more turn is left");
        assert_eq!(other.spend(1), TurnState::Lasts, "another user has a share of its own");
        soon(turn.next()).await;
        assert_eq!(turn.spend(1), TurnState::Lasts, "the next round brings back what was used");
    }
}
