//! The end of all associations of a stack, for tasks.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::Stack;
use super::until::until;
use crate::ending::{ABORT_PAUSE, Burst, Observer, ROOM_WAIT, has_ended, has_room};
use crate::shard::Inner;
use crate::stack;

impl Stack {
    /// Ends all associations of this stack before the program exits, as [`swiftwater::Stack::close`](crate::Stack::close) does,
    /// without blocking the thread: other tasks run meanwhile. Returns whether everything sent was delivered within `wait`; the
    /// associations that remained were aborted with `reason`. Listeners stay open: drop them first, because a peer that connects
    /// afterwards is not told that the program exits. If the future is dropped early, the associations are shutting down,
    /// and none is aborted.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use swiftwater::StackOptions;
    /// # use swiftwater::tokio::Stack;
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    /// # runtime.block_on(async {
    /// let stack = Stack::bind(&StackOptions::default().with_udp_port(0))?;
    /// # let listener = stack.listen(7)?;
    /// # let client = stack.connect(listener.address()).await?;
    /// # let (server, _) = listener.accept().await?;
    /// client.send(b"the last word").await?;
    /// assert!(stack.close(Duration::from_secs(5), "the program was stopped").await);
    /// assert_eq!(server.recv().await?.unwrap().to_vec(), b"the last word");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn close(&self, wait: Duration, reason: impl AsRef<[u8]>) -> bool {
        self.shared.shut_all_down();
        let all_ended = within(&self.shared, wait, has_ended).await;
        if !all_ended {
            self.abort_all(reason).await;
        }
        all_ended
    }

    /// Aborts all current associations of this stack. Undelivered messages are lost; each ABORT contains the first 256 bytes of
    /// `reason`. Waits while it sends more than 64 ABORTs: a pause follows each 64, so that none is lost in a full socket buffer.
    /// If the future is dropped early, some associations were aborted.
    pub async fn abort_all(&self, reason: impl AsRef<[u8]>) {
        for burst in self.shared.abort_bursts(reason.as_ref(), |_| true) {
            within(&self.shared, ROOM_WAIT, has_room).await;
            if burst == Burst::Follows {
                sleep(ABORT_PAUSE).await;
            }
        }
    }
}

/// Waits until the stack has no association, or a fault has closed it.
#[cfg(feature = "internals")]
pub(crate) async fn no_association(stack: &stack::Stack) {
    if let Some(observer) = Observer::new(stack) {
        let _ = until(&observer.socket, Observer::INTEREST, |inner| has_ended(inner).then_some(())).await;
    }
}

/// Waits up to `wait` until a condition of the stack holds. Returns whether it does.
async fn within(stack: &stack::Stack, wait: Duration, condition: fn(&mut Inner) -> bool) -> bool {
    let Some(observer) = Observer::new(stack) else { return condition(&mut stack.shard.enter()) };
    let holds = until(&observer.socket, Observer::INTEREST, |inner| condition(inner).then_some(()));
    matches!(timeout(wait, holds).await, Ok(Ok(())))
}
