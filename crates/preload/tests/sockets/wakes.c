/* The kernel has no memory for the record that wakes the daemon. The message is in the ring by then, and arrives
 * although nobody sends another. */
#include "check.h"
#include "past_shim.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <ucontext.h>

/* FIRST messages are more than go as records before there is a ring. IN_SEND failures are fewer than a send tries,
 * BEYOND_SEND more. */
enum { PORT = 6409, FIRST = 40, IN_SEND = 3, BEYOND_SEND = 60 };

/* Number of calls of `sendmsg` that will fail, and of those that have failed. */
static volatile sig_atomic_t failures, failed;

static void on_sendmsg(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info;
#if defined(__x86_64__)
    greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
    long fd = r[REG_RDI], message = r[REG_RSI], flags = r[REG_RDX];
#elif defined(__aarch64__)
    unsigned long long *r = ((ucontext_t *)context)->uc_mcontext.regs;
    long fd = r[0], message = r[1], flags = r[2];
#endif
    long returned;
    int before = errno;
    if (failures > 0) {
        failures--, failed++;
        returned = -ENOBUFS;
    } else {
        struct mmsghdr one = {.msg_hdr = *(struct msghdr *)message};
        long sent = past_shim(SYS_sendmmsg, fd, (long)&one, 1, flags, 0, 0);
        returned = sent == 1 ? (long)one.msg_len : -errno;
    }
    errno = before;
#if defined(__x86_64__)
    r[REG_RAX] = returned;
#elif defined(__aarch64__)
    r[0] = returned;
#endif
}

/* From here on each `sendmsg` of this process is one of `on_sendmsg`. */
static void trap(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sendmsg, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    struct sigaction action = {.sa_sigaction = on_sendmsg, .sa_flags = SA_SIGINFO | SA_RESTART};
    CHECK(sigaction(SIGSYS, &action, NULL) == 0);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void echo(int fd)
{
    char byte;
    while (recv(fd, &byte, 1, 0) == 1)
        CHECK(send(fd, &byte, 1, 0) == 1);
}

/* Sends a byte once the daemon sleeps, and so needs a record, of which so many fail. */
static void send_to_sleeper(int fd, int flags, int fail)
{
    char byte;
    for (failed = 0;;) {
        usleep(2000);
        failures = fail;
        CHECK(send(fd, "x", 1, flags) == 1);
        if (failed > 0)
            return;
        /* The daemon was awake. */
        failures = 0;
        CHECK(recv(fd, &byte, 1, 0) == 1);
    }
}

static void is_answered(int fd)
{
    char byte;
    CHECK(recv(fd, &byte, 1, 0) == 1 && byte == 'x');
}

int main(void)
{
    begin();
    int client, server;
    char byte;
    joined(PORT, &client, &server);
    pid_t other = fork();
    if (other == 0) {
        CHECK(close(client) == 0);
        echo(server);
        return 0;
    }
    CHECK(close(server) == 0);
    trap();
    for (int n = 0; n < FIRST; n++)
        CHECK(send(client, "x", 1, 0) == 1 && recv(client, &byte, 1, 0) == 1);

    /* The call tries it again itself, whether it may wait or not. */
    send_to_sleeper(client, 0, IN_SEND);
    CHECK(polls(client, POLLIN, -1) == POLLIN);
    is_answered(client);
    send_to_sleeper(client, MSG_DONTWAIT, IN_SEND);
    CHECK(polls(client, POLLIN, -1) == POLLIN);
    is_answered(client);

    /* A receive tries it again, until there is memory or its time is over. */
    send_to_sleeper(client, 0, BEYOND_SEND);
    CHECK(failures > 0);
    is_answered(client);
    CHECK(failures == 0);
    send_to_sleeper(client, 0, INT32_MAX);
    FAILS(recv(client, &byte, 1, MSG_DONTWAIT), EAGAIN);
    struct timeval limit = {.tv_usec = 20000}, none = {0};
    CHECK(setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    FAILS(recv(client, &byte, 1, 0), EAGAIN);
    CHECK(setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none) == 0);
    failures = 0;
    is_answered(client);

    /* So does a process that shares the socket. */
    send_to_sleeper(client, 0, INT32_MAX);
    pid_t sharer = fork();
    if (sharer == 0) {
        failures = 0;
        is_answered(client);
        _exit(0);
    }
    CHECK(ended_well(sharer));
    failures = 0;
    CHECK(close(client) == 0 && ended_well(other));
    return 0;
}
