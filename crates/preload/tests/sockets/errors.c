/* Misuse fails as it does with the kernel's SCTP. */
#include "check.h"

static void before_connecting(void)
{
    char word[8];
    struct sockaddr_in a = loopback(7), other = loopback(8);
    struct sockaddr *address = (struct sockaddr *)&a;
    int fd = fresh(0);
    FAILS(send(fd, "x", 1, MSG_NOSIGNAL), EPIPE);
    FAILS(recv(fd, word, sizeof word, 0), ENOTCONN);
    FAILS(accept(fd, NULL, NULL), EINVAL);
    FAILS(shutdown(fd, SHUT_WR), ENOTCONN);
    FAILS(getpeername(fd, (struct sockaddr *)&other, &(socklen_t){sizeof other}), ENOTCONN);
    FAILS(bind(fd, address, 4), EINVAL);
    FAILS(setsockopt(fd, IPPROTO_SCTP, 9999, word, 4), ENOPROTOOPT);
    a.sin_addr.s_addr = inet_addr("192.0.2.1");
    FAILS(bind(fd, address, sizeof a), EADDRNOTAVAIL);
    a = loopback(7);
    CHECK(bind(fd, address, sizeof a) == 0);
    FAILS(bind(fd, address, sizeof a), EINVAL);
    int second = fresh(0);
    FAILS(bind(second, address, sizeof a), EADDRINUSE);
    CHECK(close(fd) == 0);
    CHECK(bind(second, address, sizeof a) == 0);
    FAILS(connect(second, (struct sockaddr *)&other, sizeof other), ECONNREFUSED);
    CHECK(close(second) == 0);
}

static void when_connected(void)
{
    char word[8];
    int client, server, number = 0;
    socklen_t bytes = sizeof number;
    joined(9, &client, &server);
    struct sockaddr_in a = loopback(9), mine;
    FAILS(connect(client, (struct sockaddr *)&a, sizeof a), EISCONN);
    FAILS(listen(client, 1), EINVAL);
    FAILS(send(client, word, 0, 0), EINVAL);
    CHECK(getsockname(client, (struct sockaddr *)&mine, &(socklen_t){sizeof mine}) == 0 && mine.sin_port != 0);
    CHECK(getpeername(server, (struct sockaddr *)&a, &(socklen_t){sizeof a}) == 0 && a.sin_port == mine.sin_port);
    CHECK(getsockopt(client, SOL_SOCKET, SO_TYPE, &number, &bytes) == 0 && number == SOCK_STREAM);
    CHECK(getsockopt(client, SOL_SOCKET, SO_DOMAIN, &number, &bytes) == 0 && number == AF_INET);
    struct timeval soon = {.tv_usec = 20000};
    CHECK(setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon) == 0);
    FAILS(recv(client, word, sizeof word, 0), EAGAIN);
    CHECK(close(client) == 0 && close(server) == 0);
}

/* Closing with something unread, or with SO_LINGER 0, is an abort; what had arrived is read first. */
static void aborts(void)
{
    char word[8];
    int client, server;
    joined(11, &client, &server);
    CHECK(send(server, "unread", 6, 0) == 6 && polls(client, POLLIN, 10000) == POLLIN);
    CHECK(close(client) == 0);
    FAILS(recv(server, word, sizeof word, 0), ECONNRESET);
    FAILS(recv(server, word, sizeof word, 0), ENOTCONN);
    CHECK(close(server) == 0);

    joined(12, &client, &server);
    struct linger none = {.l_onoff = 1, .l_linger = 0};
    CHECK(setsockopt(server, SOL_SOCKET, SO_LINGER, &none, sizeof none) == 0);
    CHECK(send(server, "last", 4, 0) == 4 && polls(client, POLLIN, 10000) == POLLIN);
    CHECK(close(server) == 0);
    CHECK(recv(client, word, sizeof word, 0) == 4);
    FAILS(recv(client, word, sizeof word, 0), ECONNRESET);
    FAILS(send(client, "x", 1, MSG_NOSIGNAL), EPIPE);
    CHECK(close(client) == 0);
}

/* Closes while more is on its way than the peer takes; the excess is lost. */
static void aborts_behind_a_full_window(int port, int unread)
{
    static char block[32768];
    ssize_t n, sent = 0, got = 0;
    int client, server;
    joined(port, &client, &server);
    if (unread) {
        CHECK(send(server, "unread", 6, 0) == 6 && polls(client, POLLIN, 10000) == POLLIN);
    } else {
        struct linger none = {.l_onoff = 1, .l_linger = 0};
        CHECK(setsockopt(client, SOL_SOCKET, SO_LINGER, &none, sizeof none) == 0);
    }
    for (;;) {
        while ((n = send(client, block, sizeof block, MSG_DONTWAIT)) > 0)
            sent += n;
        CHECK(errno == EAGAIN);
        /* The messages fill the buffers on the way. */
        if (polls(client, POLLOUT, 200) == 0)
            break;
    }
    CHECK(close(client) == 0);
    while ((n = recv(server, block, sizeof block, 0)) > 0)
        got += n;
    CHECK(n == -1 && errno == ECONNRESET && got < sent);
    CHECK(close(server) == 0);
}

static int client, server;

static pid_t volatile reader;

static void *sleeper(void *outcome)
{
    char word[8];
    reader = gettid();
    ssize_t n = recv(client, word, sizeof word, 0);
    *(int *)outcome = n >= 0 ? 0 : errno;
    return NULL;
}

/* Closed while another thread sleeps in it: that one is not left asleep for ever. */
static void closed_under_a_reader(void)
{
    pthread_t thread;
    int outcome = -1;
    joined(13, &client, &server);
    CHECK(pthread_create(&thread, NULL, sleeper, &outcome) == 0);
    while (!reader)
        usleep(1000);
    await_sleep(reader);
    CHECK(close(client) == 0);
    CHECK(send(server, "wake", 4, 0) == 4 || errno == EPIPE);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(outcome == 0 || outcome == EBADF);
    CHECK(close(server) == 0);
}

static void both_families(void)
{
    struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = htons(14)};
    int on = 1, v6 = socket(AF_INET6, SOCK_STREAM, IPPROTO_SCTP), v4;
    CHECK(setsockopt(v6, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) == 0);
    CHECK(bind(v6, (struct sockaddr *)&a, sizeof a) == 0 && listen(v6, 1) == 0);
    v4 = listening(14, 0);
    int fd = connected(14);
    CHECK(polls(v4, POLLIN, 10000) == POLLIN && polls(v6, POLLIN, 0) == 0);
    CHECK(close(fd) == 0 && close(v4) == 0 && close(v6) == 0);
    /* Without it the IPv6 socket takes both, and sees IPv4 addresses in their mapped form. */
    a.sin6_port = htons(15);
    v6 = socket(AF_INET6, SOCK_STREAM, IPPROTO_SCTP);
    CHECK(bind(v6, (struct sockaddr *)&a, sizeof a) == 0 && listen(v6, 1) == 0);
    fd = connected(15);
    v4 = accept(v6, (struct sockaddr *)&a, &(socklen_t){sizeof a});
    CHECK(v4 >= 0 && IN6_IS_ADDR_V4MAPPED(&a.sin6_addr));
}

/* Unused fields of an address that a program has set are not returned. */
static void careless_addresses(void)
{
    struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = htons(20)};
    a.sin6_addr = in6addr_loopback;
    int listener = socket(AF_INET6, SOCK_STREAM, IPPROTO_SCTP), fd = socket(AF_INET6, SOCK_STREAM, IPPROTO_SCTP);
    CHECK(bind(listener, (struct sockaddr *)&a, sizeof a) == 0 && listen(listener, 1) == 0);
    a.sin6_flowinfo = a.sin6_scope_id = 0xdead;
    CHECK(connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
    CHECK(getpeername(fd, (struct sockaddr *)&a, &(socklen_t){sizeof a}) == 0);
    CHECK(a.sin6_flowinfo == 0 && a.sin6_scope_id == 0 && a.sin6_port == htons(20));
    CHECK(close(listener) == 0 && close(fd) == 0);
}

/* A server that is started again listens at once where it did, as soon as its address is free. */
static void listened_again(void)
{
    struct sockaddr_in a = loopback(17);
    for (int i = 0; i < 50; i++) {
        int listener = fresh(0), client, peer;
        while (bind(listener, (struct sockaddr *)&a, sizeof a) != 0)
            CHECK(errno == EADDRINUSE);
        CHECK(listen(listener, 1) == 0);
        client = connected(17);
        peer = accept(listener, NULL, NULL);
        CHECK(peer >= 0 && close(peer) == 0 && close(client) == 0 && close(listener) == 0);
    }
}

/* With no room in the table nothing is lost: who was not accepted then is accepted later. */
static void full_table(void)
{
    struct rlimit limit, tight;
    char word[8];
    int listener = listening(16, SOCK_NONBLOCK), fd = connected(16), holes[2];
    CHECK(polls(listener, POLLIN, 10000) == POLLIN && send(fd, "kept", 4, 0) == 4);
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK((holes[0] = dup(0)) >= 0 && (holes[1] = dup(0)) >= 0);
    for (int room = 0; room < 2; room++) {
        /* An association takes two for a moment: its pair and its page. */
        tight = (struct rlimit){holes[0] + room, limit.rlim_max};
        CHECK(close(holes[0]) == 0 && close(holes[1]) == 0 && setrlimit(RLIMIT_NOFILE, &tight) == 0);
        FAILS(accept(listener, NULL, NULL), EMFILE);
        FAILS(socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP), EMFILE);
        CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
        CHECK((holes[0] = dup(0)) >= 0 && (holes[1] = dup(0)) >= 0);
    }
    int server = accept(listener, NULL, NULL);
    CHECK(server >= 0 && polls(server, POLLIN, 10000) == POLLIN && read(server, word, sizeof word) == 4);
    CHECK(close(server) == 0 && close(fd) == 0 && close(listener) == 0);
}

int main(void)
{
    /* The initialization of the shim leaves errno unchanged. */
    CHECK(errno == 0);
    begin();
    before_connecting();
    when_connected();
    aborts();
    aborts_behind_a_full_window(18, 0);
    aborts_behind_a_full_window(19, 1);
    closed_under_a_reader();
    both_families();
    careless_addresses();
    full_table();
    listened_again();
    return 0;
}
