//! The end of all associations of a stack, for tasks.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::until::until;
use crate::ending::{ABORT_PAUSE, Burst, Observer, ROOM_WAIT, has_ended, has_room};
use crate::shard::Inner;
use crate::stack::Stack;

/// Ends all associations of a stack before the program exits, as [`Stack::close`] does, without blocking the thread: other
/// tasks run meanwhile. If the future is dropped early, the associations are shutting down, and none is aborted.
///
/// ```
/// # use std::time::Duration;
/// # use swiftwater::tokio::{Association, Listener, close_stack};
/// # use swiftwater::{Stack, StackOptions};
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # runtime.block_on(async {
/// let stack = Stack::bind(&StackOptions::default().with_udp_port(0))?;
/// # let listener = Listener::from(stack.listen(7)?);
/// # let client = Association::connect_on(&stack, listener.address()).await?;
/// # let (server, _) = listener.accept().await?;
/// client.send(b"the last word").await?;
/// assert!(close_stack(&stack, Duration::from_secs(5), "the program was stopped").await);
/// assert_eq!(server.recv().await?.unwrap().to_vec(), b"the last word");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub async fn close_stack(stack: &Stack, wait: Duration, reason: &str) -> bool {
    stack.shut_all_down();
    let all_ended = within(stack, wait, has_ended).await;
    if !all_ended {
        for burst in stack.abort_bursts(reason, |_| true) {
            within(stack, ROOM_WAIT, has_room).await;
            if burst == Burst::Follows {
                sleep(ABORT_PAUSE).await;
            }
        }
    }
    all_ended
}

/// Waits until the stack has no association, or a fault has closed it.
#[cfg(feature = "internals")]
pub(crate) async fn no_association(stack: &Stack) {
    if let Some(observer) = Observer::new(stack) {
        let _ = until(&observer.socket, Observer::INTEREST, |inner| has_ended(inner).then_some(())).await;
    }
}

/// Waits up to `wait` until a condition of the stack holds. Returns whether it does.
async fn within(stack: &Stack, wait: Duration, condition: fn(&mut Inner) -> bool) -> bool {
    let Some(observer) = Observer::new(stack) else { return condition(&mut stack.shard.enter()) };
    let holds = until(&observer.socket, Observer::INTEREST, |inner| condition(inner).then_some(()));
    matches!(timeout(wait, holds).await, Ok(Ok(())))
}
