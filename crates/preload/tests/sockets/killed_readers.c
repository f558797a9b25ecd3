/* A reader of long messages is killed at each of its system calls, before it and after it. The next reader goes on where the dead
 * one has ended, or behind the one part that the dead one was about to get. */
#include "check.h"
#include "traced.h"
#include <sys/mman.h>

enum { STEP = 30000, BYTES_MAX = 80000, READ = 6, AFTER = 3, ROUNDS_MAX = 2000 };

/* A place in the stream of messages. */
struct place {
    unsigned message;
    size_t at;
};

static struct place *shared;
static char in[BYTES_MAX], expected[BYTES_MAX];

/* All of a message. Most are of one length, so that only their headers tell them apart. */
static size_t written(char *place, unsigned message)
{
    size_t bytes = message % 4 == 3 ? 20000 : 70000;
    fill(place, bytes, message);
    return bytes;
}

static struct place behind(struct place from, size_t bytes, int whole)
{
    return whole ? (struct place){from.message + 1, 0} : (struct place){from.message, from.at + bytes};
}

/* Whether this part of a message is the one that follows this place. */
static int is_next(struct place from, size_t bytes, int whole)
{
    size_t all = written(expected, from.message);
    return from.at + bytes <= all && whole == (from.at + bytes == all) && memcmp(in, expected + from.at, bytes) == 0;
}

static void read_next(int from, struct place *place)
{
    int whole;
    ssize_t bytes = receive(from, in, STEP, 0, &whole);
    CHECK(bytes > 0 && is_next(*place, bytes, whole));
    *place = behind(*place, bytes, whole);
}

/* Reads what follows a dead reader, which had got everything up to this place. */
static struct place taken_over(int from, struct place noted)
{
    int whole;
    size_t all = written(expected, noted.message), left = all - noted.at;
    struct place one_more = left <= STEP ? behind(noted, 0, 1) : behind(noted, STEP, 0);
    ssize_t bytes = receive(from, in, STEP, 0, &whole);
    CHECK(bytes > 0);
    struct place begin = is_next(noted, bytes, whole) ? noted : one_more;
    CHECK(is_next(begin, bytes, whole));
    return behind(begin, bytes, whole);
}

int main(void)
{
    int client, server, is_there = 1;
    begin();
    alarm(120);
    joined(6721, &client, &server);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    pid_t sender = forked();
    if (sender == 0)
        for (unsigned message = 0;; message++) {
            static char out[BYTES_MAX];
            ssize_t bytes = written(out, message);
            CHECK(send(client, out, bytes, 0) == bytes);
        }
    unsigned round = 0;
    /* Until the ring for messages to the program is there. */
    while (shared->message < 20)
        read_next(server, shared);
    for (; is_there; round++) {
        CHECK(round < ROUNDS_MAX);
        pid_t reader = forked_to_be_traced();
        if (reader == 0) {
            for (unsigned end = shared->message + READ; shared->message < end;)
                read_next(server, shared);
            _exit(0);
        }
        is_there = stops_after(reader, round);
        if (is_there)
            kill_traced(reader);
        *shared = taken_over(server, *shared);
        for (unsigned end = shared->message + AFTER; shared->message < end || shared->at > 0;)
            read_next(server, shared);
    }
    CHECK(round > 10 && kill(sender, SIGKILL) == 0);
    return 0;
}
