//! Returns freed memory to the system.

/// Returns freed memory to the system; the C library otherwise keeps it wherever memory above it is in use. Other threads that
/// allocate or free wait meanwhile, some milliseconds for 100 MB.
pub fn return_freed() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call takes no pointer, and any thread may make it at any time (malloc_trim(3): MT-Safe).
    unsafe {
        libc::malloc_trim(0);
    }
}
