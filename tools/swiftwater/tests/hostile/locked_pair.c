/* Receives from its end of a pair into memory that is not delivered, and so holds the kernel's lock of that socket.
 * Then it has the daemon take back what lies there:
 *
 *   locked_pair USER many       by peeling an association off
 *   locked_pair USER listener   by listening no more */
#include "fuse_memory.h"

#include <sys/ioctl.h>

enum { HEADER_BYTES = 64, ASSOCIATION_AT = 32, KIND_AT = 4, KIND_NOTICE = 5, ANSWER_LATE = 1, PORT = 7401, TRIES = 2000 };

static char *memory;

/* An address as requests have it, after so many bytes. */
static size_t address(unsigned char *body, size_t at, int port)
{
    const unsigned char bytes[7] = {4, port & 0xff, port >> 8, 127, 0, 0, 1};
    memcpy(body + at, bytes, sizeof bytes);
    return at + sizeof bytes;
}

/* A socket that listens, and one that is connected with it. */
static void join(int one_to_many, int port, int ends[2])
{
    unsigned char body[32] = {ANSWER_LATE};
    const int32_t backlog = 5;
    ends[0] = open_sctp(one_to_many);
    ends[1] = open_sctp(0);
    CHECK(ends[0] >= 0 && ends[1] >= 0);
    CHECK(ask(BIND, body, address(body, 0, port), ends[0]) == 0);
    CHECK(ask(LISTEN, &backlog, sizeof backlog, ends[0]) == 0);
    memset(body, 0, sizeof body);
    body[0] = ANSWER_LATE;
    CHECK(ask(CONNECT, body, address(body, 9, port), ends[1]) == 0);
}

/* Waits until so much lies in a pair. */
static void await_bytes(int pair, int bytes)
{
    int there = 0;
    for (int i = 0; i < TRIES && there < bytes; i++) {
        CHECK(ioctl(pair, FIONREAD, &there) == 0);
        usleep(1000);
    }
    CHECK(there >= bytes);
}

/* The next message of a pair, without what only announces others. */
static void expect(int pair, const char *word)
{
    char record[HEADER_BYTES + 64];
    ssize_t n;
    do
        n = recv(pair, record, sizeof record, 0);
    while (n == HEADER_BYTES && record[KIND_AT] == KIND_NOTICE);
    CHECK(n == HEADER_BYTES + (ssize_t)strlen(word) && memcmp(record + HEADER_BYTES, word, strlen(word)) == 0);
}

static void *peek(void *pair)
{
    CHECK(recv(*(int *)pair, memory, MEMORY_BYTES, MSG_PEEK) > 0);
    return NULL;
}

/* Asks, lets the victim work, and gets the answer. */
static int asked_meanwhile(int kind, const void *body, size_t bytes, int about)
{
    const int32_t backlog = 5;
    int connection = call(), other = open_sctp(0);
    say(connection, kind, body, bytes, &about, 1);
    CHECK(other >= 0 && ask(LISTEN, &backlog, sizeof backlog, other) == 0);
    hold();
    int error = answer(connection, NULL);
    CHECK(close(connection) == 0 && close(other) == 0);
    return error;
}

/* Waits until the daemon's thread that waited for the lock has nothing more to do. */
static void await_closed(void)
{
    int error = EBUSY;
    for (int i = 0; i < TRIES && error == EBUSY; i++) {
        error = ask(BARRIER, NULL, 0, -1);
        usleep(1000);
    }
    CHECK(error == 0);
}

static void by_peel_off(void)
{
    int ends[2], fds[SOCKET_DESCRIPTORS], error;
    char header[HEADER_BYTES];
    unsigned char body[9] = {0};
    pthread_t reader;
    join(1, PORT, ends);
    CHECK(send(ends[1], "one", 3, 0) == 3);
    await_bytes(ends[0], 2 * HEADER_BYTES + 3);
    CHECK(recv(ends[0], header, sizeof header, 0) == HEADER_BYTES && header[KIND_AT] == KIND_NOTICE);
    CHECK(recv(ends[0], header, sizeof header, MSG_PEEK) == HEADER_BYTES);
    memcpy(body, header + ASSOCIATION_AT, 4);
    /* As if "o" had been read: the kernel knows where the rest begins, which the thread peeks at. */
    const int rest = HEADER_BYTES + 1, none = -1;
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_PEEK_OFF, &rest, sizeof rest) == 0);
    CHECK(pthread_create(&reader, NULL, peek, &ends[0]) == 0);
    fuse_await();
    CHECK(send(ends[1], "two", 3, 0) == 3);
    await_bytes(ends[0], 2 * (HEADER_BYTES + 3));
    CHECK(asked_meanwhile(PEEL_OFF, body, sizeof body, ends[0]) == EBUSY);
    /* Messages that come while the daemon still waits for the lock stay behind the earlier ones. */
    CHECK(send(ends[1], "six", 3, 0) == 3);
    fuse_is_released = 1;
    CHECK(pthread_join(reader, NULL) == 0);
    await_closed();
    /* A request that has failed takes no record, for then the kernel's place in the record at the front would be lost. */
    int at;
    CHECK(getsockopt(ends[0], SOL_SOCKET, SO_PEEK_OFF, &at, &(socklen_t){sizeof at}) == 0 && at == rest + 2);
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_PEEK_OFF, &none, sizeof none) == 0);
    int connection = call();
    say(connection, PEEL_OFF, body, sizeof body, ends, 1);
    error = answer(connection, fds);
    CHECK(error == 0 && fds[0] >= 0);
    expect(fds[0], "one");
    expect(fds[0], "two");
    expect(fds[0], "six");
}

static void by_listening(void)
{
    const int32_t none = 0;
    int ends[2];
    char byte;
    pthread_t reader;
    join(0, PORT, ends);
    await_bytes(ends[0], HEADER_BYTES);
    CHECK(pthread_create(&reader, NULL, peek, &ends[0]) == 0);
    fuse_await();
    CHECK(asked_meanwhile(LISTEN, &none, sizeof none, ends[0]) == EBUSY);
    fuse_is_released = 1;
    CHECK(pthread_join(reader, NULL) == 0);
    /* It listens still, and the association waits to be accepted. */
    CHECK(ask(LISTEN, &none, sizeof none, ends[0]) == 0);
    CHECK(ask(LISTEN, &none, sizeof none, ends[0]) == EINVAL);
    CHECK(recv(ends[1], &byte, 1, 0) == 0);
    CHECK(recv(ends[0], &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
}

int main(int argc, char **argv)
{
    begin();
    CHECK(argc == 3);
    memory = fuse_memory(atoi(argv[1]));
    if (!memory)
        return SKIPPED;
    if (strcmp(argv[2], "many") == 0)
        by_peel_off();
    else
        by_listening();
    return 0;
}
