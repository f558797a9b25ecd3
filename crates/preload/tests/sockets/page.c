/* A sharer of a socket writes any values into the shared memory. That harms only the sharers of this socket, within
 * their time limits. */
#include "check.h"
#include <sys/mman.h>
#include <sys/time.h>

/* Where fields are in the page (`crates/channel-protocol/src/sharers_page.rs`). */
enum { LOCK_AT = 0, DATA_TAKEN_AT = 4, SHUT_READING_AT = 12, SHUT_WRITING_AT = 16, WRITE_LOCK_AT = 104, SENT_AT = 136 };
/* More than a program sends before it has a ring. */
enum { RING_AFTER = 40 };
/* More than a record holds. */
enum { LONG_BYTES = 70000 };

/* The files of this name that are mapped here. */
static int mapped(const char *name, uint32_t *places[], int count)
{
    char line[512];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL);
    while (found < count && fgets(line, sizeof line, maps))
        if (strstr(line, name))
            places[found++] = (uint32_t *)strtoul(line, NULL, 16);
    fclose(maps);
    return found;
}

static void write_all(int at, uint32_t value)
{
    uint32_t *pages[16];
    int count = mapped("memfd:swiftwater-sharers", pages, 16);
    CHECK(count > 0);
    for (int i = 0; i < count; i++)
        __atomic_store_n(pages[i] + at / 4, value, __ATOMIC_SEQ_CST);
}

/* A process that lives until it is told to end. */
static pid_t bystander(int *end)
{
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        close(ends[1]);
        char none;
        while (read(ends[0], &none, 1) < 0)
            ;
        _exit(0);
    }
    close(ends[0]);
    *end = ends[1];
    return child;
}

static void nothing(int signal)
{
    (void)signal;
}

/* Reads with a lock whose word names a thread that lives and does not hold it. */
static void time_limits_hold(int reader)
{
    char text[16];
    int end;
    struct timeval limit = {.tv_usec = 300000}, none = {0};
    pid_t other = bystander(&end);
    write_all(LOCK_AT, other);

    CHECK(setsockopt(reader, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    FAILS(recv(reader, text, sizeof text, 0), EAGAIN);
    CHECK(setsockopt(reader, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none) == 0);
    FAILS(recv(reader, text, sizeof text, MSG_DONTWAIT), EAGAIN);

    struct sigaction action = {.sa_handler = nothing};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    pid_t parent = getpid(), signals = fork();
    if (signals == 0) {
        await_sleep(parent);
        kill(parent, SIGUSR1);
        _exit(0);
    }
    FAILS(recv(reader, text, sizeof text, 0), EINTR);
    CHECK(ended_well(signals));

    /* Nothing is lost. */
    write_all(LOCK_AT, 0);
    CHECK(recv(reader, text, sizeof text, 0) == 5 && memcmp(text, "hello", 5) == 0);
    close(end);
    CHECK(ended_well(other));
}

/* The program goes on, whatever it finds. */
static void no_number_ends_the_program(int reader, int writer)
{
    static const uint32_t numbers[] = {1, 0x7fffffff, 0x80000000, 0xffffffc0, 0xffffffff};
    char text[16];
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        CHECK(send(writer, "again", 5, 0) == 5);
        for (int at = DATA_TAKEN_AT; at < SENT_AT; at += 4)
            if (at != SHUT_READING_AT && at != SHUT_WRITING_AT && at != WRITE_LOCK_AT)
                write_all(at, numbers[i]);
        recv(reader, text, sizeof text, MSG_DONTWAIT);
        recv(reader, text, sizeof text, MSG_DONTWAIT | MSG_PEEK);
        ioctl(reader, FIONREAD, &(int){0});
    }
}

/* Sends with a lock that nobody releases. */
static void time_limits_of_senders_hold(int reader, int writer)
{
    char text[16];
    int end;
    struct timeval limit = {.tv_usec = 300000}, none = {0};
    pid_t other = bystander(&end);
    write_all(WRITE_LOCK_AT, other);
    CHECK(setsockopt(writer, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0);
    FAILS(send(writer, "late", 4, 0), EAGAIN);
    CHECK(setsockopt(writer, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof none) == 0);
    FAILS(send(writer, "late", 4, MSG_DONTWAIT), EAGAIN);
    write_all(WRITE_LOCK_AT, 0);
    CHECK(send(writer, "on time", 7, 0) == 7);
    CHECK(recv(reader, text, sizeof text, 0) == 7 && memcmp(text, "on time", 7) == 0);
    close(end);
    CHECK(ended_well(other));
}

/* A program that writes nonsense into a ring loses its association, and no other is lost. Meanwhile it writes into a
 * second ring without pause. Messages of `bytes` decide how long the rings are. */
static void broken_rings_harm_their_sockets_alone(int port, size_t bytes)
{
    static char block[LONG_BYTES], taken[LONG_BYTES];
    int listener = listening(port, 0), writer = connected(port), reader = accept(listener, NULL, NULL);
    int broken[2], victims[2];
    uint32_t *rings[32], *others[32], *own[2] = {NULL, NULL};
    char text[16];
    for (int n = 0; n < 2; n++) {
        int before = mapped("memfd:swiftwater-ring", others, 32), count;
        broken[n] = connected(port);
        victims[n] = accept(listener, NULL, NULL);
        CHECK(victims[n] >= 0);
        for (int i = 0; i < RING_AFTER; i++)
            CHECK(send(broken[n], block, bytes, 0) == (ssize_t)bytes &&
                  recv(victims[n], taken, bytes, MSG_WAITALL) == (ssize_t)bytes);
        count = mapped("memfd:swiftwater-ring", rings, 32);
        for (int i = 0; i < count; i++) {
            int is_old = 0;
            for (int j = 0; j < before; j++)
                is_old |= rings[i] == others[j];
            own[n] = is_old ? own[n] : rings[i];
        }
        CHECK(own[n] != NULL);
    }
    /* A tail that nobody writes. */
    for (int word = 0; word < 32; word += 2)
        __atomic_store_n(own[0] + word, 0x12345679, __ATOMIC_SEQ_CST);
    while (send(broken[0], block, bytes, MSG_NOSIGNAL) == (ssize_t)bytes)
        usleep(1000);
    CHECK(errno == EPIPE || errno == ECONNRESET || errno == EPROTO);
    ssize_t got;
    while ((got = recv(victims[0], taken, sizeof taken, 0)) > 0)
        ;
    CHECK(got == -1 && errno == ECONNRESET);
    unsigned chance = 1;
    for (int i = 0; i < 20000; i++) {
        chance = chance * 1103515245 + 12345;
        uint32_t *word = own[1] + (chance >> 8) % 512;
        __atomic_store_n(word, i % 3 ? chance : (chance >> 16) & 0xff8, __ATOMIC_SEQ_CST);
        /* A sender whose association has ended gives its ring up. */
        if (i % 8 == 0 && send(broken[1], block, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EAGAIN)
            break;
    }
    CHECK(send(writer, "hello", 5, 0) == 5 && recv(reader, text, sizeof text, 0) == 5 && memcmp(text, "hello", 5) == 0);
    for (int n = 0; n < 2; n++)
        CHECK(close(broken[n]) == 0 && close(victims[n]) == 0);
    CHECK(close(writer) == 0 && close(reader) == 0 && close(listener) == 0);
}

/* A program can take no memory away that the daemon touches, for it would wait meanwhile; nor write the status page. */
static void memory_of_the_daemon_stays(int writer, int reader)
{
    char text[16];
    uint32_t *rings[32], *pages[32];
    for (int i = 0; i < RING_AFTER; i++)
        CHECK(send(writer, "hello", 5, 0) == 5 && recv(reader, text, sizeof text, 0) == 5);
    int count = mapped("memfd:swiftwater-ring", rings, 32);
    CHECK(count > 0);
    for (int i = 0; i < count; i++)
        FAILS(madvise(rings[i], 4096, MADV_REMOVE), EPERM);
    count = mapped("memfd:swiftwater-status", pages, 32);
    CHECK(count > 0);
    for (int i = 0; i < count; i++) {
        FAILS(madvise(pages[i], 4096, MADV_REMOVE), EACCES);
        FAILS(mprotect(pages[i], 4096, PROT_READ | PROT_WRITE), EACCES);
    }
    /* The sharers' page belongs to the sharers: the daemon does not map it. */
    count = mapped("memfd:swiftwater-sharers", pages, 32);
    CHECK(count > 0);
    for (int i = 0; i < count; i++)
        CHECK(madvise(pages[i], 4096, MADV_REMOVE) == 0);
    CHECK(send(writer, "hello", 5, 0) == 5 && recv(reader, text, sizeof text, 0) == 5);
}

int main(void)
{
    begin();
    int listener = listening(6401, 0), writer = connected(6401), reader = accept(listener, NULL, NULL);
    CHECK(reader >= 0);
    CHECK(send(writer, "hello", 5, 0) == 5);
    CHECK(poll(&(struct pollfd){.fd = reader, .events = POLLIN}, 1, 5000) == 1);
    time_limits_hold(reader);
    time_limits_of_senders_hold(reader, writer);
    broken_rings_harm_their_sockets_alone(6402, 5);
    broken_rings_harm_their_sockets_alone(6403, LONG_BYTES);
    memory_of_the_daemon_stays(writer, reader);
    no_number_ends_the_program(reader, writer);
    return 0;
}
