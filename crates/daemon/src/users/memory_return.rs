//! Returns freed memory to the system.
//!
//! The C library keeps freed memory that lies below memory in use. So the daemon returns it after large charges were
//! released.

use std::sync::Arc;
use std::time::Duration;

use crate::users::budget::{Budget, MUCH_BYTES, RETURNED_BYTES};

/// Interval for rechecking, while the charges are large, whether much was released.
const LOOKS: Duration = Duration::from_secs(1);

/// Returns freed memory of a budget to the system, for as long as the runtime lives.
pub(crate) async fn return_memory_of(budget: Arc<Budget>) {
    loop {
        budget.much_charged().await;
        let mut most_bytes = MUCH_BYTES;
        while most_bytes > RETURNED_BYTES {
            tokio::time::sleep(LOOKS).await;
            let charged_bytes = budget.charged_bytes();
            most_bytes = most_bytes.max(charged_bytes);
            if most_bytes - charged_bytes >= RETURNED_BYTES {
                // The task fails only when the runtime ends.
                let _ = tokio::task::spawn_blocking(shared_memory::return_freed).await;
                most_bytes = charged_bytes;
            }
        }
    }
}
