/* A program whose ring is full enters a sandbox in which it may not change the size of a send buffer. Each message whose `send`
 * has succeeded arrives, and no other. */
#include "check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { PORT = 6411, MESSAGE_BYTES = 20000, MORE = 5 };

static char text[MESSAGE_BYTES];

/* From here on the kernel refuses `setsockopt` with SO_SNDBUF. */
static void forbid(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setsockopt, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SO_SNDBUF, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void read_messages(int fd, int messages)
{
    for (; messages > 0; messages--)
        for (int whole = 0; !whole;)
            CHECK(receive(fd, text, sizeof text, 0, &whole) > 0);
}

int main(void)
{
    begin();
    int client, server, sent = 0;
    char byte;
    joined(PORT, &client, &server);
    /* Nobody reads: at last the ring is full. */
    while (polls(client, POLLOUT, 200) == POLLOUT)
        sent += send(client, text, MESSAGE_BYTES, MSG_DONTWAIT) == MESSAGE_BYTES;
    forbid();
    read_messages(server, sent);
    CHECK(polls(client, POLLOUT, -1) == POLLOUT);
    for (int n = 0; n < MORE; n++) {
        /* The daemon sleeps by then. */
        usleep(20000);
        CHECK(send(client, text, MESSAGE_BYTES, 0) == MESSAGE_BYTES);
        read_messages(server, 1);
    }
    FAILS(recv(server, &byte, 1, MSG_DONTWAIT), EAGAIN);
    return 0;
}
