//! Waits for work between programs of this host that the kernel would complete within a call.

use swiftwater::internals::batches_moved;
use tokio::task::yield_now;

use crate::state::registry::Registry;

/// Maximum number of rounds of the runtime in [`run_pending`], in case a program sends without pause. A handshake between
/// two programs takes fewer.
pub(crate) const ROUNDS_MAX: usize = 16;
/// Maximum number of rounds before a request of a one-to-many socket, and before a SHUTDOWN. One is enough for a SHUTDOWN
/// between two programs, and programs that send without pause delay the requests of others no further.
pub(crate) const ROUNDS_OF_MESSAGES_MAX: usize = 4;
/// Number of rounds without progress after which nothing is pending. A round polls the kernel and runs the tasks that were
/// woken by then. A packet wakes the task of its association in one round, which may wake another task without moving
/// anything itself, such as that of a listener; so the next round may still move a record.
const QUIET_ROUNDS: usize = 2;

/// Runs pending work that needs no other host, such as a handshake or a shutdown between two programs, until no record
/// and no packet moves any more, for so many rounds at most. The kernel completes such work within the call, and programs
/// rely on that.
pub(crate) async fn run_pending(registry: &Registry, rounds_max: usize) {
    let moved = || (registry.busy_polling.records(), batches_moved(&registry.stack));
    let (mut before, mut quiet) = (moved(), 0);
    for _ in 0..rounds_max {
        yield_now().await;
        let now = moved();
        quiet = if now == before { quiet + 1 } else { 0 };
        if quiet == QUIET_ROUNDS {
            return;
        }
        before = now;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use tokio::task::spawn_local;

    use super::*;
    use crate::testing::registry;

    /// Returns the number of rounds that `run_pending` waits while records move in each round for which `moves` is true.
    async fn rounds(rounds_max: usize, moves: impl Fn(usize) -> bool + 'static) -> usize {
        let registry = Rc::new(registry());
        let rounds = Rc::new(Cell::new(0));
        let others = spawn_local({
            let (registry, rounds) = (Rc::clone(&registry), Rc::clone(&rounds));
            async move {
                loop {
                    if moves(rounds.get()) {
                        registry.busy_polling.record_came();
                    }
                    rounds.set(rounds.get() + 1);
                    yield_now().await;
                }
            }
        });
        run_pending(&registry, rounds_max).await;
        others.abort();
        rounds.get()
    }

    #[tokio::test(flavor = "local")]
    async fn work_is_pending_until_two_rounds_were_quiet() {
        assert_eq!(rounds(ROUNDS_MAX, |_| false).await, QUIET_ROUNDS);
        assert_eq!(rounds(ROUNDS_MAX, |round| round < 3).await, 3 + QUIET_ROUNDS);
        assert_eq!(rounds(ROUNDS_MAX, |round| round < 6 && round % 2 == 1).await, 6 + QUIET_ROUNDS);
    }

    #[tokio::test(flavor = "local")]
    async fn programs_that_send_without_pause_are_not_waited_for() {
        for rounds_max in [ROUNDS_OF_MESSAGES_MAX, ROUNDS_MAX] {
            assert_eq!(rounds(rounds_max, |_| true).await, rounds_max);
        }
    }
}
