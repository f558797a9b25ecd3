/* A sharer of a socket writes into the page what it likes. That harms the sharers of this socket only, within their time limits. */
#include "check.h"
#include <sys/time.h>

/* Where fields are in the page (`crates/carrier/src/shared_page.rs`). */
enum { LOCK_AT = 96, CONSUMED_AT = 100, SHUT_READING_AT = 116, FRONT_AT = 124, MEMBERS_AT = 192 };

/* The pages that are mapped here. */
static int mapped(uint32_t *pages[], int count)
{
    char line[512];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL);
    while (found < count && fgets(line, sizeof line, maps))
        if (strstr(line, "memfd:swiftwater-page"))
            pages[found++] = (uint32_t *)strtoul(line, NULL, 16);
    fclose(maps);
    return found;
}

static void write_all(int at, uint32_t value)
{
    uint32_t *pages[16];
    int count = mapped(pages, 16);
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
        usleep(300000);
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
        for (int at = CONSUMED_AT; at < MEMBERS_AT; at += 4)
            if (at < SHUT_READING_AT || at >= FRONT_AT)
                write_all(at, numbers[i]);
        recv(reader, text, sizeof text, MSG_DONTWAIT);
        recv(reader, text, sizeof text, MSG_DONTWAIT | MSG_PEEK);
        ioctl(reader, FIONREAD, &(int){0});
    }
}

int main(void)
{
    begin();
    int listener = listening(6401, 0), writer = connected(6401), reader = accept(listener, NULL, NULL);
    CHECK(reader >= 0);
    CHECK(send(writer, "hello", 5, 0) == 5);
    CHECK(poll(&(struct pollfd){.fd = reader, .events = POLLIN}, 1, 5000) == 1);
    time_limits_hold(reader);
    no_number_ends_the_program(reader, writer);
    return 0;
}
