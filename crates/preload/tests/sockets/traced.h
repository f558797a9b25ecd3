/* Children that are killed at one of their system calls. Include after check.h. */
#include <sys/prctl.h>
#include <sys/ptrace.h>

/* A child that ends with this program. */
static inline pid_t forked(void)
{
    pid_t child = fork();
    CHECK(child >= 0 && (child > 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) == 0));
    return child;
}

/* The same, which stops until its calls are counted. */
static inline pid_t forked_to_be_traced(void)
{
    int status;
    pid_t child = forked();
    if (child == 0) {
        CHECK(ptrace(PTRACE_TRACEME, 0, 0, 0) == 0 && raise(SIGSTOP) == 0);
        return 0;
    }
    CHECK(waitpid(child, &status, 0) == child && WIFSTOPPED(status));
    CHECK(ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD) == 0);
    return child;
}

/* Lets a child go on until it has entered or left so many system calls. Returns whether it is still there. */
static inline int stops_after(pid_t child, unsigned stops)
{
    int status;
    for (unsigned stop = 0; stop < stops; stop++) {
        CHECK(ptrace(PTRACE_SYSCALL, child, 0, 0) == 0 && waitpid(child, &status, 0) == child);
        if (!WIFSTOPPED(status)) {
            CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
            return 0;
        }
        CHECK(WSTOPSIG(status) == (SIGTRAP | 0x80));
    }
    return 1;
}

static inline void kill_traced(pid_t child)
{
    int status;
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status));
}
