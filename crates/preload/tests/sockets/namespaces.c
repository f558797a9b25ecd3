/* Processes of several PID namespaces share a socket. The one that reads has a thread identifier that names nobody in the other
 * namespace, and is not taken for dead there. */
#include "check.h"
#include <sched.h>
#include <sys/syscall.h>

/* Where the lock is in the page (`crates/channel-protocol/src/sharers_page.rs`). */
enum { LOCK_AT = 0 };

/* The locks of the sockets that this process knows. */
static int locks(uint32_t *found[], int count)
{
    char line[512];
    int n = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL);
    while (n < count && fgets(line, sizeof line, maps))
        if (strstr(line, "memfd:swiftwater-sharers"))
            found[n++] = (uint32_t *)strtoul(line, NULL, 16) + LOCK_AT / 4;
    fclose(maps);
    return n;
}

/* A child in a PID namespace of its own. */
static pid_t elsewhere(void)
{
    CHECK(unshare(CLONE_NEWPID) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWPID) == 0);
    pid_t child = fork();
    CHECK(child >= 0 && (child > 0 || getpid() == 1));
    return child;
}

int main(void)
{
    begin();
    char text[16];
    uint32_t *found[16];
    int client, server;
    joined(6403, &client, &server);
    CHECK(send(client, "hello", 5, 0) == 5 && polls(server, POLLIN, -1) == POLLIN);
    /* As if this thread were reading. */
    int count = locks(found, 16);
    CHECK(count > 0);
    for (int i = 0; i < count; i++)
        __atomic_store_n(found[i], syscall(SYS_gettid), __ATOMIC_SEQ_CST);
    pid_t child = elsewhere();
    if (child == 0) {
        FAILS(recv(server, text, sizeof text, MSG_DONTWAIT), EAGAIN);
        for (int i = 0; i < count; i++)
            __atomic_store_n(found[i], 0, __ATOMIC_SEQ_CST);
        CHECK(recv(server, text, sizeof text, 0) == 5 && memcmp(text, "hello", 5) == 0);
        _exit(0);
    }
    CHECK(ended_well(child));
    return 0;
}
