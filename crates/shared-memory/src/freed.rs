//! Memory that the C library has freed: how much of it stays for later, and its return to the system.

/// Makes the C library keep up to about `bytes` of freed memory at the end of each of its heaps, and map every larger piece of
/// memory separately, which then returns to the system once it is freed. Its own limits are 128 KB, and grow when larger pieces
/// are freed.
///
/// For the whole process. Call this before other threads begin.
pub fn keep_freed(bytes: u32) {
    #[cfg(target_env = "gnu")]
    for parameter in [libc::M_MMAP_THRESHOLD, libc::M_TRIM_THRESHOLD] {
        // SAFETY: the call takes no pointer. While other threads allocate, they find either limit (mallopt(3): MT-Unsafe init).
        unsafe { libc::mallopt(parameter, bytes.cast_signed()) };
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = bytes;
}

/// Returns freed memory to the system; the C library otherwise keeps it wherever memory above it is in use. Other threads that
/// allocate or free wait meanwhile, some milliseconds for 100 MB.
pub fn return_freed() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call takes no pointer, and any thread may make it at any time (malloc_trim(3): MT-Safe).
    unsafe {
        libc::malloc_trim(0);
    }
}
