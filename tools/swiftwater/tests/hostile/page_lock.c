/* Under `swiftwater run`, as root: a sharer of one socket, of another user, writes the id of a thread that lives, its
 * own, into the lock word of its page. A reader of that socket waits no longer than its time limit, and a reader of
 * another socket does not wait. */
#include "hostile.h"
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/time.h>

/* Where the lock word is in a page (`crates/channel-protocol/src/sharers_page.rs`). */
enum { LOCK_AT = 0, PAGES_MAX = 16, EXCHANGES = 200 };

/* Writes a word into all pages that are mapped here. */
static void write_locks(uint32_t word)
{
    char line[512];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps);
    uint32_t *pages[PAGES_MAX];
    while (found < PAGES_MAX && fgets(line, sizeof line, maps))
        if (strstr(line, "memfd:swiftwater-sharers"))
            pages[found++] = (uint32_t *)strtoul(line, NULL, 16);
    fclose(maps);
    CHECK(found > 0);
    for (int i = 0; i < found; i++) {
        __atomic_store_n(pages[i] + LOCK_AT / 4, word, __ATOMIC_SEQ_CST);
        /* As a holder does that releases the lock. */
        syscall(SYS_futex, pages[i] + LOCK_AT / 4, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    }
}

static void join(int ends[2])
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t bytes = sizeof a;
    int listener = socket(AF_INET, SOCK_STREAM, 132);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&a, sizeof a) == 0 && listen(listener, 1) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&a, &bytes) == 0);
    ends[0] = socket(AF_INET, SOCK_STREAM, 132);
    CHECK(ends[0] >= 0 && connect(ends[0], (struct sockaddr *)&a, sizeof a) == 0);
    ends[1] = accept(listener, NULL, NULL);
    CHECK(ends[1] >= 0 && close(listener) == 0);
}

/* Reads from the socket that the attacker shares, as long as it takes. */
static void *read_one(void *fd)
{
    char text[16];
    CHECK(read(*(int *)fd, text, sizeof text) == 5);
    return NULL;
}

int main(int argc, char **argv)
{
    int shared[2], own[2], locked[2], freed[2];
    char text[16];
    begin();
    CHECK(argc == 2 && pipe(locked) == 0 && pipe(freed) == 0);
    join(shared);
    CHECK(write(shared[0], "hello", 5) == 5 && read(shared[1], text, sizeof text) == 5);
    CHECK(write(shared[1], "hello", 5) == 5 && read(shared[0], text, sizeof text) == 5);
    pid_t attacker = fork();
    if (attacker == 0) {
        CHECK(setgid(atoi(argv[1])) == 0 && setuid(atoi(argv[1])) == 0);
        begin_child();
        write_locks(getpid());
        CHECK(write(locked[1], "1", 1) == 1);
        CHECK(read(freed[0], text, 1) == 1);
        write_locks(0);
        return 0;
    }
    CHECK(attacker > 0 && close(locked[1]) == 0 && read(locked[0], text, 1) == 1);
    CHECK(write(shared[0], "there", 5) == 5);
    struct timeval limit = {.tv_usec = 200000}, none = {0};
    CHECK(setsockopt(shared[1], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    CHECK(read(shared[1], text, sizeof text) < 0 && errno == EAGAIN);
    CHECK(recv(shared[1], text, sizeof text, MSG_DONTWAIT) < 0 && errno == EAGAIN);
    CHECK(setsockopt(shared[1], SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none) == 0);
    pthread_t reader;
    CHECK(pthread_create(&reader, NULL, read_one, &shared[1]) == 0);
    join(own);
    for (int i = 0; i < EXCHANGES; i++) {
        CHECK(write(own[0], "hello", 5) == 5 && read(own[1], text, sizeof text) == 5);
        CHECK(write(own[1], "hello", 5) == 5 && read(own[0], text, sizeof text) == 5);
    }
    /* It has waited all the time, and gets the message when the lock is released. */
    CHECK(pthread_tryjoin_np(reader, NULL) == EBUSY);
    CHECK(write(freed[1], "1", 1) == 1);
    CHECK(pthread_join(reader, NULL) == 0);
    int status;
    CHECK(waitpid(attacker, &status, 0) == attacker && status == 0);
    return 0;
}
