//! Memory that goes back to the system once it was freed.
//!
//! The C library keeps what is freed below memory in use. So after much was charged to users and given back, the daemon returns it.

use std::sync::Arc;
use std::time::Duration;

use crate::users::budget::{Budget, MUCH_BYTES, RETURNED_BYTES};

/// How often the daemon looks whether much was given back, while much is charged.
const LOOKS: Duration = Duration::from_secs(1);

/// Returns memory to the system that a budget was given back. Ends with the runtime.
pub(crate) async fn return_memory_of(budget: Arc<Budget>) {
    loop {
        budget.much_charged().await;
        let mut most_bytes = MUCH_BYTES;
        while most_bytes > RETURNED_BYTES {
            tokio::time::sleep(LOOKS).await;
            let charged_bytes = budget.charged_bytes();
            most_bytes = most_bytes.max(charged_bytes);
            if most_bytes - charged_bytes >= RETURNED_BYTES {
                // It ends with an error only if the runtime does.
                let _ = tokio::task::spawn_blocking(shared_memory::return_freed).await;
                most_bytes = charged_bytes;
            }
        }
    }
}
