//! Async versions of the blocking calls.
