/* Messages of lengths that nobody knows beforehand, and readers whose buffers fit some of them: nothing is cut, nothing is lost,
 * and what is left of a message is still there for the next reader. */
#include "check.h"

enum { MESSAGES = 3000, LONGEST = 70000 };

static size_t length_of(unsigned n)
{
    /* Longer ones come now and then, each longer than all before it. */
    return n % 97 == 96 ? 1 + n * (size_t)(LONGEST / MESSAGES) : 1 + n * 7919 % 200;
}

static void send_all(int to)
{
    char *out = malloc(LONGEST);
    CHECK(out != NULL);
    for (unsigned n = 0; n < MESSAGES; n++) {
        fill(out, length_of(n), n);
        CHECK(send(to, out, length_of(n), 0) == (ssize_t)length_of(n));
    }
    free(out);
}

/* Reads a message with a buffer of this size, in as many parts as it takes. */
static void read_one(int from, unsigned n, size_t step)
{
    static char in[LONGEST + 1], expected[LONGEST];
    size_t at = 0;
    int whole = 0, there;
    while (!whole) {
        ssize_t count = receive(from, in + at, step < LONGEST - at ? step : LONGEST - at, 0, &whole);
        CHECK(count > 0);
        at += count;
        /* The rest of a message is there to be seen. */
        if (!whole) {
            CHECK(polls(from, POLLIN, 0) == POLLIN);
            CHECK(ioctl(from, FIONREAD, &there) == 0 && there == (int)(length_of(n) - at));
        }
    }
    fill(expected, length_of(n), n);
    CHECK(at == length_of(n) && memcmp(in, expected, at) == 0);
}

static void exchange(int from, int to, size_t step, size_t other_step)
{
    pid_t sender = fork();
    if (sender == 0) {
        send_all(to);
        exit(0);
    }
    for (unsigned n = 0; n < MESSAGES; n++)
        read_one(from, n, n % 2 ? step : other_step);
    CHECK(ended_well(sender));
}

/* A message that does not fit one reader's buffer stays for a reader with a larger one. */
static int counts[2];
static int reader;

static void *count_bytes(void *which)
{
    size_t room = which == &counts[0] ? 64 : LONGEST;
    char *in = malloc(room);
    CHECK(in != NULL);
    ssize_t count;
    while ((count = recv(reader, in, room, 0)) > 0)
        *(int *)which += count;
    CHECK(count == 0);
    free(in);
    return NULL;
}

static void two_readers(int from, int to)
{
    pthread_t threads[2];
    int sent = 0;
    reader = from;
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, count_bytes, &counts[i]) == 0);
    send_all(to);
    CHECK(shutdown(to, SHUT_WR) == 0);
    for (unsigned n = 0; n < MESSAGES; n++)
        sent += length_of(n);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(counts[0] + counts[1] == sent);
}

/* The longest message that there may be, in as many parts as it comes in. */
static void the_longest(int from, int to)
{
    enum { MESSAGE_BYTES_MAX = 16 << 20 };
    char *out = malloc(MESSAGE_BYTES_MAX + 1), *in = malloc(MESSAGE_BYTES_MAX);
    CHECK(out != NULL && in != NULL);
    fill(out, MESSAGE_BYTES_MAX, 1);
    FAILS(send(to, out, MESSAGE_BYTES_MAX + 1, 0), EMSGSIZE);
    pid_t sender = fork();
    if (sender == 0) {
        CHECK(send(to, out, MESSAGE_BYTES_MAX, 0) == MESSAGE_BYTES_MAX);
        _exit(0);
    }
    size_t at = 0;
    for (int whole = 0; !whole;) {
        ssize_t count = receive(from, in + at, MESSAGE_BYTES_MAX - at, 0, &whole);
        CHECK(count > 0);
        at += count;
    }
    CHECK(at == MESSAGE_BYTES_MAX && memcmp(in, out, at) == 0);
    CHECK(ended_well(sender));
    free(out);
    free(in);
}

int main(void)
{
    begin();
    int client, server;
    joined(7, &client, &server);
    the_longest(server, client);
    exchange(server, client, LONGEST, LONGEST);
    exchange(client, server, 50, LONGEST);
    exchange(server, client, 200, 1000);
    two_readers(server, client);
    return 0;
}
