//! Work between the programs of this host, which a kernel completes within the call.

use swiftwater::internals::batches_moved;
use tokio::task::yield_now;

use crate::state::registry::Registry;

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
/// and no packet moves any more. The kernel completes such work within the call, and programs rely on that.
pub(crate) async fn run_pending(registry: &Registry, rounds_max: usize) {
    let moved = || (registry.busy_polling().records(), batches_moved(registry.stack()));
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
