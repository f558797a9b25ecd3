//! Libraries that a program loads while it runs.
//!
//! With `RTLD_DEEPBIND` a library finds the functions of the C library before those of the shim, and its calls would pass
//! the shim. So the shim drops the flag.
//!
//! The C library takes the library that calls `dlopen` from the return address: that library's run path says where to look, and
//! `RTLD_NEXT` and `dlmopen` depend on it, too. So these functions do not call the next one of their name, they jump to it.

use std::arch::naked_asm;
use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

use libc::{RTLD_DEEPBIND, c_char, c_int, c_long, c_void};

/// Stands for a function that no library has.
unsafe extern "C" fn nothing() -> *mut c_void {
    ptr::null_mut()
}

/// Returns the next function of a name.
fn next(name: &CStr, found: &AtomicPtr<c_void>) -> *const c_void {
    let mut function = found.load(Relaxed);
    if function.is_null() {
        // SAFETY: the name is NUL-terminated.
        function = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        found.store(function, Relaxed);
    }
    if function.is_null() { nothing as *const c_void } else { function }
}

extern "C" fn next_dlopen() -> *const c_void {
    static FOUND: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    next(c"dlopen", &FOUND)
}

extern "C" fn next_dlmopen() -> *const c_void {
    static FOUND: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    next(c"dlmopen", &FOUND)
}

/// Keeps the three arguments, calls `$next`, drops the flag in one of them, and jumps to the function that was returned.
#[cfg(target_arch = "x86_64")]
macro_rules! jump_without_deep_binding {
    ($next:ident, second) => {
        jump_without_deep_binding!($next, "and esi, {others}")
    };
    ($next:ident, third) => {
        jump_without_deep_binding!($next, "and edx, {others}")
    };
    ($next:ident, $drop:literal) => {
        naked_asm!(
            "push rdi",
            "push rsi",
            "push rdx",
            "call {next}",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            $drop,
            "jmp rax",
            next = sym $next,
            others = const !RTLD_DEEPBIND,
        )
    };
}

/// Keeps the three arguments, calls `$next`, drops the flag in one of them, and jumps to the function that was returned.
#[cfg(target_arch = "aarch64")]
macro_rules! jump_without_deep_binding {
    ($next:ident, second) => {
        jump_without_deep_binding!($next, "bic w1, w1, w17")
    };
    ($next:ident, third) => {
        jump_without_deep_binding!($next, "bic w2, w2, w17")
    };
    ($next:ident, $drop:literal) => {
        naked_asm!(
            "stp x29, x30, [sp, #-48]!",
            "stp x0, x1, [sp, #16]",
            "str x2, [sp, #32]",
            "bl {next}",
            "mov x16, x0",
            "ldr x2, [sp, #32]",
            "ldp x0, x1, [sp, #16]",
            "ldp x29, x30, [sp], #48",
            "mov w17, #{flag}",
            $drop,
            "br x16",
            next = sym $next,
            flag = const RTLD_DEEPBIND,
        )
    };
}

/// Keeps the three arguments, calls `$next`, drops the flag in one of them, and jumps to the function that was returned.
#[cfg(target_arch = "riscv64")]
macro_rules! jump_without_deep_binding {
    ($next:ident, second) => {
        jump_without_deep_binding!($next, "andi a1, a1, {others}")
    };
    ($next:ident, third) => {
        jump_without_deep_binding!($next, "andi a2, a2, {others}")
    };
    ($next:ident, $drop:literal) => {
        naked_asm!(
            "addi sp, sp, -32",
            "sd ra, 24(sp)",
            "sd a0, 0(sp)",
            "sd a1, 8(sp)",
            "sd a2, 16(sp)",
            "call {next}",
            "mv t1, a0",
            "ld a2, 16(sp)",
            "ld a1, 8(sp)",
            "ld a0, 0(sp)",
            "ld ra, 24(sp)",
            "addi sp, sp, 32",
            $drop,
            "jr t1",
            next = sym $next,
            others = const !RTLD_DEEPBIND,
        )
    };
}

/// # Safety
///
/// The caller meets the requirements of `dlopen(3)`.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn dlopen(file: *const c_char, mode: c_int) -> *mut c_void {
    jump_without_deep_binding!(next_dlopen, second)
}

/// # Safety
///
/// The caller meets the requirements of `dlmopen(3)`.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn dlmopen(space: c_long, file: *const c_char, mode: c_int) -> *mut c_void {
    jump_without_deep_binding!(next_dlmopen, third)
}
