/* connect and accept that do not wait, under poll, select and epoll; and a connect that is refused, and tried again. */
#include "check.h"

static int wait_poll(int fd, int for_writing)
{
    return polls(fd, for_writing ? POLLOUT : POLLIN, 10000) > 0;
}

static int wait_select(int fd, int for_writing)
{
    fd_set set;
    struct timeval limit = {10, 0};
    FD_ZERO(&set);
    FD_SET(fd, &set);
    return select(fd + 1, for_writing ? NULL : &set, for_writing ? &set : NULL, NULL, &limit) == 1;
}

static int wait_epoll(int fd, int for_writing)
{
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = (for_writing ? EPOLLOUT : EPOLLIN) | EPOLLET};
    CHECK(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
    int ready = epoll_wait(epoll, &event, 1, 10000);
    CHECK(close(epoll) == 0);
    return ready == 1;
}

static int error_of(int fd)
{
    int error = -1;
    socklen_t bytes = sizeof error;
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0);
    return error;
}

static void with(int (*wait)(int, int), int port)
{
    char word[8];
    int listener = listening(port, SOCK_NONBLOCK);
    FAILS(accept(listener, NULL, NULL), EAGAIN);
    CHECK(polls(listener, POLLIN | POLLOUT, 0) == 0);
    struct sockaddr_in a = loopback(port);
    int client = fresh(SOCK_NONBLOCK | SOCK_CLOEXEC);
    CHECK(fcntl(client, F_GETFD) == FD_CLOEXEC && fcntl(client, F_GETFL) & O_NONBLOCK);
    FAILS(connect(client, (struct sockaddr *)&a, sizeof a), EINPROGRESS);
    CHECK(wait(client, 1) && error_of(client) == 0);
    FAILS(connect(client, (struct sockaddr *)&a, sizeof a), EISCONN);
    CHECK(wait(listener, 0));
    int server = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    CHECK(server >= 0 && fcntl(server, F_GETFL) & O_NONBLOCK && fcntl(server, F_GETFD) == 0);
    FAILS(read(server, word, sizeof word), EAGAIN);
    FAILS(accept(listener, NULL, NULL), EAGAIN);
    CHECK(write(client, "hello", 5) == 5);
    CHECK(wait(server, 0) && read(server, word, sizeof word) == 5 && memcmp(word, "hello", 5) == 0);
    CHECK(close(client) == 0);
    CHECK(wait(server, 0) && read(server, word, sizeof word) == 0);
    CHECK(close(server) == 0 && close(listener) == 0);
}

static void refused(int (*wait)(int, int), int port)
{
    struct sockaddr_in a = loopback(port);
    int client = fresh(SOCK_NONBLOCK);
    FAILS(connect(client, (struct sockaddr *)&a, sizeof a), EINPROGRESS);
    CHECK(wait(client, 1) && error_of(client) == ECONNREFUSED && error_of(client) == 0);
    int listener = listening(port, 0);
    FAILS(connect(client, (struct sockaddr *)&a, sizeof a), EINPROGRESS);
    CHECK(wait(client, 1) && error_of(client) == 0);
    CHECK(send(client, "again", 5, 0) == 5);
    int server = accept(listener, NULL, NULL);
    char word[8];
    CHECK(server >= 0 && read(server, word, sizeof word) == 5);
    CHECK(close(client) == 0 && close(server) == 0 && close(listener) == 0);
}

/* A listener that accepts none refuses who comes when one more than its backlog waits. */
static void too_many(void)
{
    enum { BACKLOG = 5 };
    struct sockaddr_in a = loopback(30);
    int listener = listening(30, 0), clients[BACKLOG + 2];
    for (int i = 0; i < BACKLOG + 2; i++) {
        clients[i] = fresh(SOCK_NONBLOCK);
        FAILS(connect(clients[i], (struct sockaddr *)&a, sizeof a), EINPROGRESS);
        CHECK(polls(clients[i], POLLOUT, 10000) == POLLOUT);
        CHECK(error_of(clients[i]) == (i <= BACKLOG ? 0 : ECONNREFUSED));
    }
    CHECK(send(clients[BACKLOG], "early", 5, 0) == 5);
    for (int i = 0; i <= BACKLOG; i++) {
        char word[8];
        int server = accept(listener, NULL, NULL);
        CHECK(server >= 0 && (i < BACKLOG || read(server, word, sizeof word) == 5));
        CHECK(close(server) == 0);
    }
    /* There is room again. */
    FAILS(connect(clients[BACKLOG + 1], (struct sockaddr *)&a, sizeof a), EINPROGRESS);
    CHECK(polls(clients[BACKLOG + 1], POLLOUT, 10000) == POLLOUT && error_of(clients[BACKLOG + 1]) == 0);
}

int main(void)
{
    begin();
    int (*waits[])(int, int) = {wait_poll, wait_select, wait_epoll};
    for (int i = 0; i < 3; i++) {
        with(waits[i], 10 + i);
        refused(waits[i], 20 + i);
    }
    too_many();
    return 0;
}
