//! Work between the programs of this host, which a kernel completes within the call.

use std::sync::Arc;

use swiftwater::internals::batches_moved;
use tokio::task::yield_now;

use crate::state::registry::Registry;
use crate::users::round_share::ROUNDS_WITHOUT_TURN_MAX;

/// Maximum number of rounds of the runtime in [`run_pending`], in case a program sends without pause. A handshake between
/// two programs takes fewer.
pub(crate) const ROUNDS_MAX: usize = 16;
/// Maximum number of rounds before a request of a one-to-many socket. One is enough for a SHUTDOWN between two programs, and
/// programs that send without pause delay the requests of others no further.
pub(crate) const ROUNDS_OF_MESSAGES_MAX: usize = 4;
/// Number of rounds without progress after which nothing is pending: a round runs the tasks that the previous one has
/// woken.
const QUIET_ROUNDS: usize = 2;

/// Runs pending work that needs no other host, such as a handshake or a shutdown between two programs, until no record
/// and no packet moves any more. The kernel completes such work within the call, and programs rely on that. While nothing moves
/// because tasks of the caller's user wait for a turn, further rounds follow.
pub(crate) async fn run_pending(registry: &Registry, user: u32, rounds_max: usize) {
    let moved = || (registry.busy_polling().records(), batches_moved(registry.stack()));
    let share = registry.resources().users().known(user).map(|user| Arc::clone(user.round_share()));
    let waits_for_turn = || share.as_ref().is_some_and(|share| share.is_awaited());
    let (mut before, mut quiet, mut rounds, mut rounds_without_turn) = (moved(), 0, 0, 0);
    while rounds < rounds_max && quiet < QUIET_ROUNDS {
        yield_now().await;
        let now = moved();
        if now == before && waits_for_turn() && rounds_without_turn < ROUNDS_WITHOUT_TURN_MAX {
            rounds_without_turn += 1;
            continue;
        }
        (rounds, rounds_without_turn) = (rounds + 1, 0);
        quiet = if now == before { quiet + 1 } else { 0 };
        before = now;
    }
}
