/* A program that knows TCP only, whose sockets are SCTP sockets: what it reads has no messages. */
#include "check.h"
#include <linux/sctp.h>
#include <netinet/tcp.h>
#include <sys/syscall.h>

enum { PORT = 7620, LONG_BYTES = 150000, MANY = 100 };

static char content[LONG_BYTES], place[2 * LONG_BYTES];

static void pair_of(int ends[2])
{
    static int port = PORT;
    struct sockaddr_in a = loopback(port++);
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    socklen_t bytes = sizeof on;
    ends[0] = socket(AF_INET, SOCK_STREAM, IPPROTO_TCP);
    CHECK(listener >= 0 && ends[0] >= 0);
    CHECK(bind(listener, (struct sockaddr *)&a, sizeof a) == 0 && listen(listener, 5) == 0);
    CHECK(connect(ends[0], (struct sockaddr *)&a, sizeof a) == 0 && (ends[1] = accept(listener, NULL, NULL)) >= 0);
    CHECK(close(listener) == 0);
    CHECK(getsockopt(ends[1], SOL_SOCKET, SO_PROTOCOL, &on, &bytes) == 0 && on == IPPROTO_SCTP);
}

/* Sends a word and waits until the reader has it. */
static void say(int ends[2], const char *word, int there)
{
    int bytes = 0;
    CHECK(send(ends[0], word, strlen(word), 0) == (ssize_t)strlen(word));
    while (bytes < there)
        CHECK(ioctl(ends[1], FIONREAD, &bytes) == 0);
    CHECK(bytes == there);
}

static void options(int fd)
{
    int on = 1, value = -1;
    socklen_t bytes = sizeof value;
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on) == 0);
    CHECK(getsockopt(fd, IPPROTO_TCP, TCP_CORK, &value, &bytes) == 0 && value == 0 && bytes == sizeof value);
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &on, sizeof on) == 0);
    FAILS(setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &on, 1), EINVAL);
    FAILS(setsockopt(fd, IPPROTO_TCP, TCP_MD5SIG, &on, sizeof on), ENOPROTOOPT);
}

/* A short read is the end of what is there, as edges of epoll demand. */
static void short_reads(int ends[2])
{
    struct iovec parts[2] = {{place, 5}, {place + 100, 100}};
    say(ends, "one", 3);
    say(ends, "two", 6);
    say(ends, "three", 11);
    CHECK(recv(ends[1], place, sizeof place, MSG_PEEK) >= 3);
    CHECK(read(ends[1], place, 2) == 2 && memcmp(place, "on", 2) == 0);
    CHECK(recv(ends[1], place, 5, 0) == 5 && memcmp(place, "etwot", 5) == 0);
    say(ends, "four", 8);
    CHECK(readv(ends[1], parts, 2) == 8 && memcmp(place, "hreef", 5) == 0 && memcmp(place + 100, "our", 3) == 0);
    FAILS(recv(ends[1], place, sizeof place, MSG_DONTWAIT), EAGAIN);
}

static void *sends_late(void *fd)
{
    await_sleep(getpid());
    CHECK(send(*(int *)fd, "late", 4, 0) == 4);
    return NULL;
}

static void wait_for_all(int ends[2])
{
    pthread_t thread;
    say(ends, "first", 5);
    CHECK(pthread_create(&thread, NULL, sends_late, &ends[0]) == 0);
    CHECK(recv(ends[1], place, 9, MSG_WAITALL) == 9 && memcmp(place, "firstlate", 9) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static pid_t receiver;

static void *receives_what_comes(void *fd)
{
    __atomic_store_n(&receiver, syscall(SYS_gettid), __ATOMIC_SEQ_CST);
    CHECK(recv(*(int *)fd, place, 100, 0) == 4 && memcmp(place, "mine", 4) == 0);
    return NULL;
}

/* Another thread makes the descriptor another socket, which has data, too. */
static void replaced(void)
{
    int ends[2], others[2];
    char word[8];
    pthread_t thread;
    pair_of(ends);
    pair_of(others);
    say(others, "other", 5);
    CHECK(pthread_create(&thread, NULL, receives_what_comes, &ends[1]) == 0);
    while (__atomic_load_n(&receiver, __ATOMIC_SEQ_CST) == 0)
        usleep(1000);
    await_sleep(receiver);
    CHECK(dup2(others[1], ends[1]) == ends[1] && send(ends[0], "mine", 4, 0) == 4);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(recv(others[1], word, sizeof word, 0) == 5 && memcmp(word, "other", 5) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(close(ends[i]) == 0 && close(others[i]) == 0);
}

static void long_messages(int ends[2])
{
    int there = 0;
    fill(content, LONG_BYTES, 1);
    for (int i = 0; i < 2; i++)
        CHECK(send(ends[0], content, LONG_BYTES, 0) == LONG_BYTES);
    while (there < 2 * LONG_BYTES)
        CHECK(ioctl(ends[1], FIONREAD, &there) == 0);
    CHECK(recv(ends[1], place, LONG_BYTES + 7, 0) == LONG_BYTES + 7 && memcmp(place, content, LONG_BYTES) == 0);
    CHECK(ioctl(ends[1], FIONREAD, &there) == 0 && there == LONG_BYTES - 7);
    CHECK(recv(ends[1], place, sizeof place, 0) == LONG_BYTES - 7 && memcmp(place, content + 7, LONG_BYTES - 7) == 0);
}

/* FIONREAD returns no less than the number of bytes that can be read. */
static void many_messages(int ends[2])
{
    size_t got = 0;
    for (int i = 0; i < MANY; i++)
        CHECK(send(ends[0], content, 1000, 0) == 1000);
    while (got < MANY * 1000) {
        int there = 0;
        ssize_t n = recv(ends[1], place, 333, 0);
        CHECK(n > 0 && memcmp(place, content + got % 1000, n < 1000 - (ssize_t)(got % 1000) ? (size_t)n : 1000 - got % 1000) == 0);
        got += n;
        /* More may come between the two. */
        n = recv(ends[1], place, sizeof place, MSG_PEEK | MSG_DONTWAIT);
        CHECK(ioctl(ends[1], FIONREAD, &there) == 0 && n <= there);
    }
    FAILS(recv(ends[1], place, sizeof place, MSG_DONTWAIT), EAGAIN);
}

/* Small messages come together; the headers between them are not content. */
static void counted(int ends[2])
{
    enum { SMALL = 20 };
    int there = 0;
    for (int i = 0; i < SMALL; i++)
        CHECK(send(ends[0], "abc", 3, 0) == 3);
    while (there < 3 * SMALL)
        CHECK(ioctl(ends[1], FIONREAD, &there) == 0);
    CHECK(there == 3 * SMALL);
    for (int left = 3 * SMALL - 4; left >= 0; left -= 4) {
        CHECK(recv(ends[1], place, 4, 0) == 4 && place[0] == "abc"[(3 * SMALL - left - 4) % 3]);
        CHECK(ioctl(ends[1], FIONREAD, &there) == 0 && there == left);
    }
}

/* Nothing is sent by a send of nothing; a connected socket has one peer, which the program knows. */
static void no_messages(int ends[2])
{
    struct sockaddr_in other = loopback(1), from;
    socklen_t bytes = sizeof from;
    struct iovec part = {place, 100};
    struct msghdr m = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &part, .msg_iovlen = 1};
    CHECK(send(ends[0], "", 0, 0) == 0 && write(ends[0], "", 0) == 0);
    CHECK(sendto(ends[0], "one", 3, 0, (struct sockaddr *)&other, sizeof other) == 3);
    CHECK(recvfrom(ends[1], place, 100, 0, (struct sockaddr *)&from, &bytes) == 3 && bytes == 0);
    CHECK(send(ends[0], "two", 3, 0) == 3 && recvmsg(ends[1], &m, 0) == 3);
    CHECK(m.msg_flags == 0 && m.msg_namelen == 0);
}

static int error_of(int fd)
{
    int error = -1;
    socklen_t bytes = sizeof error;
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0);
    return error;
}

/* A descriptor shows that its connect has failed. One that waited for the answer may be connected again. */
static void refused(void)
{
    struct sockaddr_in nobody = loopback(PORT - 1);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP};
    CHECK(fd >= 0 && epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
    FAILS(connect(fd, (struct sockaddr *)&nobody, sizeof nobody), EINPROGRESS);
    CHECK(epoll_wait(epoll, &event, 1, -1) == 1 && event.events & EPOLLRDHUP);
    CHECK(error_of(fd) == ECONNREFUSED && error_of(fd) == 0);
    FAILS(connect(fd, (struct sockaddr *)&nobody, sizeof nobody), ECONNABORTED);
    CHECK(recv(fd, place, 10, 0) == 0);
    FAILS(send(fd, "x", 1, 0), EPIPE);
    CHECK(close(fd) == 0 && close(epoll) == 0);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    FAILS(connect(fd, (struct sockaddr *)&nobody, sizeof nobody), EINPROGRESS);
    CHECK(polls(fd, POLLRDHUP, -1) & POLLRDHUP);
    FAILS(connect(fd, (struct sockaddr *)&nobody, sizeof nobody), ECONNREFUSED);
    CHECK(close(fd) == 0);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    for (int i = 0; i < 2; i++)
        FAILS(connect(fd, (struct sockaddr *)&nobody, sizeof nobody), ECONNREFUSED);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(listener, (struct sockaddr *)&nobody, sizeof nobody) == 0 && listen(listener, 1) == 0);
    CHECK(connect(fd, (struct sockaddr *)&nobody, sizeof nobody) == 0);
    CHECK(close(fd) == 0 && close(listener) == 0);
}

/* There is no half close: the association ends, and both ends read the end. */
static void shut_down(void)
{
    int ends[2];
    pair_of(ends);
    CHECK(send(ends[0], "bye", 3, 0) == 3 && shutdown(ends[0], SHUT_WR) == 0);
    CHECK(recv(ends[1], place, 10, 0) == 3 && recv(ends[1], place, 10, 0) == 0);
    CHECK(polls(ends[0], POLLIN | POLLRDHUP, -1) & POLLRDHUP);
    CHECK(recv(ends[0], place, 10, 0) == 0);
    FAILS(send(ends[0], "x", 1, 0), EPIPE);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
    /* A thread that waits already. */
    pair_of(ends);
    pid_t child = fork();
    if (child == 0) {
        await_sleep(getppid());
        CHECK(shutdown(ends[0], SHUT_WR) == 0);
        _exit(0);
    }
    CHECK(recv(ends[0], place, 10, 0) == 0 && ended_well(child));
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
}

/* More than the longest message of SCTP here. */
static void more_than_a_message(int ends[2])
{
    enum { MUCH = (16 << 20) + 70000 };
    char *much = malloc(MUCH);
    int status;
    CHECK(much != NULL);
    for (int i = 0; i < MUCH; i++)
        much[i] = (char)(i / 7);
    pid_t child = fork();
    if (child == 0) {
        for (int got = 0; got < MUCH;) {
            ssize_t bytes = recv(ends[1], place, sizeof place, 0);
            CHECK(bytes > 0 && got + bytes <= MUCH && memcmp(place, much + got, bytes) == 0);
            got += bytes;
        }
        _exit(0);
    }
    CHECK(send(ends[0], much, MUCH, 0) == MUCH);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    free(much);
}

int main(void)
{
    int ends[2];
    begin();
    pair_of(ends);
    options(ends[0]);
    short_reads(ends);
    wait_for_all(ends);
    replaced();
    counted(ends);
    no_messages(ends);
    refused();
    shut_down();
    long_messages(ends);
    many_messages(ends);
    more_than_a_message(ends);
    say(ends, "last", 4);
    CHECK(close(ends[0]) == 0);
    while (polls(ends[1], POLLRDHUP, 0) == 0)
        usleep(1000);
    CHECK(recv(ends[1], place, sizeof place, 0) == 4 && recv(ends[1], place, sizeof place, 0) == 0);
    return close(ends[1]);
}
