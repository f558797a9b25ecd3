//! System calls by the processor's instruction.
//!
//! An allocator may make system calls while it holds its lock, as jemalloc and tcmalloc do before the program begins. To find a
//! function of the C library then could allocate, and would wait for that lock for ever. So the shim's own system calls,
//! and those that it passes on, need no such function.

use libc::{c_int, c_long};

use crate::errno::Errno;

/// Makes a system call. Each argument is a number or a pointer. Returns -1 and sets `errno` where the kernel reports an error, as
/// `syscall(2)` does.
macro_rules! system_call {
    ($number:expr $(, $argument:expr)* $(,)?) => {
        $crate::system_call::make($number, [$($argument as usize),*])
    };
}
pub(crate) use system_call;

/// Largest error number (`MAX_ERRNO` of the kernel).
const ERRNO_MAX: c_long = 4095;

/// Makes a system call with these arguments; see [`system_call!`].
///
/// # Safety
///
/// The caller meets the requirements of the system call.
pub(crate) unsafe fn make<const N: usize>(number: c_long, given: [usize; N]) -> c_long {
    let mut arguments = [0; 6];
    // Without optimization, a call that copies needs half a kilobyte of a stack that may be small.
    let mut n = 0;
    while n < N {
        arguments[n] = given[n];
        n += 1;
    }
    // SAFETY: the caller guarantees it.
    let returned = unsafe { trap(number, arguments) };
    if (-ERRNO_MAX..0).contains(&returned) {
        Errno(-returned as c_int).set();
        return -1;
    }
    returned
}

/// # Safety
///
/// The caller meets the requirements of the system call.
#[cfg(target_arch = "x86_64")]
unsafe fn trap(number: c_long, arguments: [usize; 6]) -> c_long {
    let returned;
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the caller guarantees it. These are the registers of the calling convention, and those that the instruction changes
    // (syscall(2), "Architecture calling conventions").
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number => returned,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    returned
}

/// # Safety
///
/// The caller meets the requirements of the system call.
#[cfg(target_arch = "aarch64")]
unsafe fn trap(number: c_long, arguments: [usize; 6]) -> c_long {
    let returned;
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the caller guarantees it. These are the registers of the calling convention (syscall(2)).
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a => returned,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack),
        );
    }
    returned
}

/// # Safety
///
/// The caller meets the requirements of the system call.
#[cfg(target_arch = "riscv64")]
unsafe fn trap(number: c_long, arguments: [usize; 6]) -> c_long {
    let returned;
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the caller guarantees it. These are the registers of the calling convention (syscall(2)).
    unsafe {
        std::arch::asm!(
            "ecall",
            in("a7") number,
            inlateout("a0") a => returned,
            in("a1") b, in("a2") c, in("a3") d, in("a4") e, in("a5") f,
            options(nostack),
        );
    }
    returned
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
compile_error!("the shim knows the system call instruction of x86_64, aarch64 and riscv64");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_and_errors_are_those_of_the_c_library() {
        // SAFETY: none of these calls takes a pointer, or it is valid.
        unsafe {
            assert_eq!(system_call!(libc::SYS_getpid), c_long::from(libc::getpid()));
            assert_eq!(system_call!(libc::SYS_close, -1_i32), -1);
            assert_eq!(Errno::last(), Errno(libc::EBADF));
            assert_eq!(system_call!(100_000), -1);
            assert_eq!(Errno::last(), Errno(libc::ENOSYS));
        }
    }

    #[test]
    fn all_six_arguments_reach_the_kernel() {
        let file = std::fs::File::open("/proc/self/exe").expect("this program");
        let access = libc::PROT_READ;
        // SAFETY: a private mapping at an address that the kernel chooses replaces nothing.
        unsafe {
            let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
            let address = system_call!(libc::SYS_mmap, 0, 4096, access, libc::MAP_PRIVATE, fd, 4096);
            assert!(address > 0, "{:?}", Errno::last());
            let wrong = system_call!(libc::SYS_mmap, 0, 4096, access, libc::MAP_PRIVATE, fd, 4097);
            assert_eq!((wrong, Errno::last()), (-1, Errno(libc::EINVAL)), "an offset inside a page");
            assert_eq!(system_call!(libc::SYS_munmap, address, 4096), 0);
        }
    }
}
