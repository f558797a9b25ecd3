/* Sends the daemon a descriptor whose close takes as long as its peer likes, in one of these ways:
 *
 *   request    as what a request is about
 *   many       as many times as one message can hold
 *   queue      behind a request, where nobody receives it
 *   nested     in the queue of another socket
 *   record     with a record
 *   leftover   with records that nobody takes */
#include "hostile.h"

enum { DESCRIBE = 9, LINGER_S = 1000, TRIES = 200, ATTEMPTS = 10 };

/* A TCP socket with data that its peer does not take. */
static int lingering(int *peer)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t bytes = sizeof a;
    struct linger patient = {1, LINGER_S};
    static char data[1 << 16];
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(listener, (struct sockaddr *)&a, sizeof a) == 0 && listen(listener, 1) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&a, &bytes) == 0);
    CHECK(connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
    *peer = accept(listener, NULL, NULL);
    CHECK(*peer >= 0 && close(listener) == 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &patient, sizeof patient) == 0);
    while (send(fd, data, sizeof data, MSG_DONTWAIT) > 0)
        ;
    CHECK(errno == EAGAIN);
    return fd;
}

/* Asks what anybody may ask until the answer is `error`; returns whether it was. */
static int await(int error)
{
    int got = -1;
    for (int i = 0; i < TRIES && got != error; i++) {
        got = ask(DESCRIBE, NULL, 0, -1);
        usleep(10000);
    }
    return got == error;
}

static void by_request(const char *how, int fd)
{
    int fds[DESCRIPTORS_MAX], connection = call();
    for (int i = 0; i < DESCRIPTORS_MAX; i++)
        fds[i] = fd;
    if (strcmp(how, "request") == 0) {
        say(connection, ATTACH, NULL, 0, fds, 1);
    } else if (strcmp(how, "many") == 0) {
        say(connection, ATTACH, NULL, 0, fds, DESCRIPTORS_MAX);
    } else if (strcmp(how, "queue") == 0) {
        say(connection, DESCRIBE, NULL, 0, NULL, 0);
        /* A message of no bytes first, which looks like the end of all. */
        send(connection, "", 0, MSG_NOSIGNAL);
        send_with(connection, "more", 4, fds, 1);
    } else {
        int pair[2];
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        CHECK(send_with(pair[0], "more", 4, fds, 1) == 4);
        say(connection, ATTACH, NULL, 0, pair + 1, 1);
        CHECK(close(pair[0]) == 0 && close(pair[1]) == 0);
    }
}

static void by_pair(const char *how, int fd)
{
    /* That of a one-to-many socket is always read, that of an idle one-to-one socket is not. */
    int is_read = strcmp(how, "record") == 0;
    int pair = open_sctp(is_read);
    CHECK(pair >= 0);
    CHECK(send_with(pair, "no record", 9, &fd, 1) == 9);
}

/* Sends it from a child, whose end closes the child's copies without waiting, should it be the last to have one. */
static void attack(const char *how, int by_requests, int fd)
{
    int go[2];
    char c;
    CHECK(pipe(go) == 0);
    pid_t child = fork();
    if (child == 0) {
        begin_child();
        close(go[1]);
        CHECK(read(go[0], &c, 1) == 0);
        if (by_requests)
            by_request(how, fd);
        else
            by_pair(how, fd);
        _exit(0);
    }
    close(go[0]);
    CHECK(close(fd) == 0 && close(go[1]) == 0);
    CHECK(waitpid(child, NULL, 0) == child);
}

int main(int argc, char **argv)
{
    int peers[ATTEMPTS], count = 0, is_stuck = 0;
    begin();
    CHECK(argc == 2);
    int by_requests = strcmp(argv[1], "record") != 0 && strcmp(argv[1], "leftover") != 0;
    /* Nothing is known about one that only lies in a queue. The child may be the last to have a copy of any other. */
    int is_told = by_requests && strcmp(argv[1], "queue") != 0;
    while (count < ATTEMPTS && !is_stuck) {
        attack(argv[1], by_requests, lingering(&peers[count]));
        count++;
        /* Requests of this user fail as long as that is so. */
        is_stuck = is_told && await(EBUSY);
    }
    CHECK(is_stuck == is_told);
    hold();
    while (count > 0)
        CHECK(close(peers[--count]) == 0);
    CHECK(await(0));
    return 0;
}
