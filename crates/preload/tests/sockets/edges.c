/* Each message that arrives is an edge for epoll and a signal for O_ASYNC, also while earlier ones lie there, and a descriptor
 * that polls readable has something to read. */
#include "check.h"

enum { PORT = 6420, ALONE = 300, UNREAD = 30, BURST = 200, STREAM = 20000, WAIT_MS = 20000, QUIET_MS = 50, MESSAGE_BYTES = 5000 };

static char text[MESSAGE_BYTES];

static int edges_of(int fd)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    CHECK(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
    return epoll;
}

static void await_edge(int epoll)
{
    struct epoll_event event;
    CHECK(epoll_wait(epoll, &event, 1, WAIT_MS) == 1 && event.events == EPOLLIN);
}

/* An association of a one-to-one socket with a receiver of this type. */
static void joined_to(int type, int port, int *client, int *server)
{
    struct sockaddr_in a = loopback(port);
    if (type == SOCK_STREAM) {
        joined(port, client, server);
        return;
    }
    *server = socket(AF_INET, SOCK_SEQPACKET, IPPROTO_SCTP);
    CHECK(*server >= 0 && bind(*server, (struct sockaddr *)&a, sizeof a) == 0 && listen(*server, 5) == 0);
    *client = connected(port);
}

static void send_burst(int client)
{
    for (int i = 0; i < BURST; i++)
        CHECK(send(client, text, 1 + i % 50, 0) == 1 + i % 50);
}

static void each_message_is_an_edge(int type, int port)
{
    int client, server;
    joined_to(type, port, &client, &server);
    int epoll = edges_of(server);
    /* One message an event, each read before the next. */
    for (int i = 0; i < ALONE; i++) {
        CHECK(send(client, text, 10, 0) == 10);
        await_edge(epoll);
        CHECK(recv(server, text, sizeof text, MSG_DONTWAIT) == 10);
    }
    /* One message an event, none of them read. */
    for (int i = 0; i < UNREAD; i++) {
        CHECK(send(client, text, 10, 0) == 10);
        await_edge(epoll);
    }
    /* One more, of those before which one is left: some of them have come together. */
    send_burst(client);
    await_edge(epoll);
    for (int i = 0; i < UNREAD + BURST - 1; i++)
        CHECK(recv(server, text, sizeof text, 0) > 0);
    /* The events of the others. */
    while (epoll_wait(epoll, &(struct epoll_event){0}, 1, QUIET_MS) == 1)
        ;
    CHECK(send(client, text, 10, 0) == 10);
    await_edge(epoll);
    for (int i = 0; i < 2; i++)
        CHECK(recv(server, text, sizeof text, 0) > 0);
    FAILS(recv(server, text, sizeof text, MSG_DONTWAIT), EAGAIN);
    CHECK(close(epoll) == 0 && close(client) == 0 && close(server) == 0);
}

/* A child sends messages, of which each tenth is longer than others; some come together. */
static pid_t sender(int client, int server)
{
    pid_t child = fork();
    if (child == 0) {
        close(server);
        for (int i = 0; i < STREAM; i++) {
            ssize_t bytes = i % 10 == 9 ? MESSAGE_BYTES : 1 + i % 50;
            CHECK(send(client, text, bytes, 0) == bytes);
            if (i % 1000 == 0)
                usleep(2000);
        }
        _exit(0);
    }
    CHECK(child > 0);
    return child;
}

static void edges_until_nothing_is_left(int port)
{
    int client, server;
    joined(port, &client, &server);
    int epoll = edges_of(server);
    pid_t child = sender(client, server);
    for (int got = 0; got < STREAM;) {
        await_edge(epoll);
        while (recv(server, text, sizeof text, MSG_DONTWAIT) > 0)
            got++;
        CHECK(errno == EAGAIN);
    }
    CHECK(ended_well(child) && close(epoll) == 0 && close(client) == 0 && close(server) == 0);
}

static void what_polls_readable_is_read(int port)
{
    int client, server;
    joined(port, &client, &server);
    pid_t child = sender(client, server);
    for (int got = 0; got < STREAM; got++) {
        CHECK(polls(server, POLLIN, WAIT_MS) == POLLIN);
        CHECK(recv(server, text, sizeof text, MSG_DONTWAIT) > 0);
    }
    CHECK(ended_well(child) && polls(server, POLLIN, 0) == 0);
    CHECK(close(client) == 0 && close(server) == 0);
}

static void each_message_is_a_signal(int port)
{
    int client, server;
    sigset_t signals;
    const struct timespec limit = {.tv_sec = WAIT_MS / 1000};
    sigemptyset(&signals);
    sigaddset(&signals, SIGIO);
    CHECK(sigprocmask(SIG_BLOCK, &signals, NULL) == 0);
    joined(port, &client, &server);
    CHECK(fcntl(server, F_SETOWN, getpid()) == 0);
    CHECK(fcntl(server, F_SETFL, fcntl(server, F_GETFL) | O_ASYNC) == 0);
    for (int i = 0; i < ALONE; i++) {
        CHECK(send(client, text, 10, 0) == 10);
        CHECK(sigtimedwait(&signals, NULL, &limit) == SIGIO);
        if (i % 3 == 2)
            for (int left = 3; left > 0; left--)
                CHECK(recv(server, text, sizeof text, 0) == 10);
    }
    CHECK(close(client) == 0 && close(server) == 0);
}

int main(void)
{
    begin();
    alarm(60);
    each_message_is_an_edge(SOCK_STREAM, PORT);
    each_message_is_an_edge(SOCK_SEQPACKET, PORT + 1);
    edges_until_nothing_is_left(PORT + 2);
    what_polls_readable_is_read(PORT + 3);
    each_message_is_a_signal(PORT + 4);
    return 0;
}
