/* Preloaded into user-mode Linux. Its buffers hold the registers of processors without AMX; a host with AMX has a
 * longer register set, and takes only all of it (PTRACE_SETREGSET). This gives the host the whole set, and user-mode
 * Linux the part that it knows. */
#define _GNU_SOURCE
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { ALL_BYTES = 64 * 1024 };

long ptrace(enum __ptrace_request request, ...)
{
    static char all[ALL_BYTES];
    va_list arguments;
    va_start(arguments, request);
    pid_t process = va_arg(arguments, pid_t);
    void *address = va_arg(arguments, void *), *data = va_arg(arguments, void *);
    va_end(arguments);
    if ((request == PTRACE_GETREGSET || request == PTRACE_SETREGSET) && address == (void *)NT_X86_XSTATE) {
        struct iovec *part = data, whole = {all, sizeof all};
        long result = syscall(SYS_ptrace, PTRACE_GETREGSET, process, address, &whole);
        if (result != 0 || part->iov_len >= whole.iov_len)
            return syscall(SYS_ptrace, request, process, address, data);
        if (request == PTRACE_GETREGSET) {
            memcpy(part->iov_base, all, part->iov_len);
            return 0;
        }
        memcpy(all, part->iov_base, part->iov_len);
        return syscall(SYS_ptrace, request, process, address, &whole);
    }
    /* The system call stores what it reads; the C library's function returns it. */
    if (request == PTRACE_PEEKTEXT || request == PTRACE_PEEKDATA || request == PTRACE_PEEKUSER) {
        long word, result = syscall(SYS_ptrace, request, process, address, &word);
        return result < 0 ? result : word;
    }
    return syscall(SYS_ptrace, request, process, address, data);
}
