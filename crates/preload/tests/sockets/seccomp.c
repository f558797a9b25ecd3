/* A program that may not make memfds sends long messages all the same. */
#include "check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { PORT = 6407, LONG_BYTES = 300000 };

/* From here on the kernel refuses `memfd_create`. */
static void forbid(int error)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    FAILS(memfd_create("none", 0), error);
}

static void send_long(int client, int server)
{
    static char out[LONG_BYTES], in[LONG_BYTES];
    int whole = 0;
    fill(out, LONG_BYTES, 5);
    CHECK(send(client, out, LONG_BYTES, 0) == LONG_BYTES);
    size_t at = 0;
    while (!whole) {
        ssize_t n = receive(server, in + at, LONG_BYTES - at, 0, &whole);
        CHECK(n > 0);
        at += n;
    }
    CHECK(at == LONG_BYTES && memcmp(in, out, LONG_BYTES) == 0);
}

int main(void)
{
    static const int errors[] = {EPERM, EACCES, ENOSYS};
    begin();
    int client, server;
    joined(PORT, &client, &server);
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        pid_t child = fork();
        if (child == 0) {
            forbid(errors[i]);
            send_long(client, server);
            _exit(0);
        }
        CHECK(ended_well(child));
    }
    return 0;
}
