//! Freed memory that the process keeps, in a process of its own.
#![cfg(target_env = "gnu")]

use std::fs;

const KEPT_BYTES: u32 = 4 << 20;
const PAGE_BYTES: usize = 4096;

/// Returns the number of pages that the system has given the process so far (`minflt` of proc_pid_stat(5)).
fn page_faults() -> usize {
    let status = fs::read_to_string("/proc/self/stat").expect("there is /proc");
    let (_, fields) = status.rsplit_once(')').expect("the name of the program");
    fields.split_whitespace().nth(7).and_then(|count| count.parse().ok()).expect("a number")
}

/// Allocates, fills and frees memory. Returns the number of page faults.
fn use_memory(bytes: usize) -> usize {
    let before = page_faults();
    drop(std::hint::black_box(vec![1_u8; bytes]));
    page_faults() - before
}

#[test]
fn memory_has_the_pages_of_what_was_freed_before() {
    shared_memory::keep_freed(KEPT_BYTES);
    let piece = KEPT_BYTES as usize / 4;
    let [first, second] = [piece; 2].map(use_memory);
    assert!(second < piece / PAGE_BYTES / 4, "{first} page faults, then {second}");
}
