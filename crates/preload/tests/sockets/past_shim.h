/* System calls that no preloaded library sees. `syscall` of the C library is one of the shim's functions. */
#include <errno.h>
#include <sys/syscall.h>

static inline long past_shim(long number, long a, long b, long c, long d, long e, long f)
{
    long returned;
#if defined(__x86_64__)
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(returned)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c,
                  x3 __asm__("x3") = d, x4 __asm__("x4") = e, x5 __asm__("x5") = f;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    returned = x0;
#else
#error "add the system calls of this processor"
#endif
    if (returned < 0 && returned > -4096) {
        errno = (int)-returned;
        return -1;
    }
    return returned;
}
