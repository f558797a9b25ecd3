/* Deaths. `sender`: a program is killed; what it was told was sent arrives. `one-to-one`, `one-to-many`: the same at any moment,
 * with messages of all lengths. `daemon`: the test kills the daemon; every call on its sockets fails at once. */
#include "check.h"
#include <sys/syscall.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { MESSAGES = 2000 };
enum { SCTP_EVENTS = 11, MSG_NOTIFICATION = 0x8000, ASSOC_CHANGE = 0x8001 };
enum { COMM_UP = 0, SHUTDOWN_COMP = 3 };
enum { ROUNDS = 40, FIRST_PORT = 20, LENGTH_MAX = 200000, DELAY_US_MAX = 8000 };

struct assoc_change {
    uint16_t type, flags;
    uint32_t length;
    uint16_t state, error, outbound, inbound;
    int32_t assoc_id;
};

static void sender_is_killed(void)
{
    int listener = listening(7, 0);
    pid_t child = fork();
    if (child == 0) {
        int fd = connected(7);
        for (unsigned i = 0; i < MESSAGES; i++)
            CHECK(send(fd, &i, sizeof i, 0) == sizeof i);
        raise(SIGKILL);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    int fd = accept(listener, NULL, NULL);
    CHECK(fd >= 0);
    unsigned got;
    for (unsigned i = 0; i < MESSAGES; i++)
        CHECK(read(fd, &got, sizeof got) == sizeof got && got == i);
    CHECK(read(fd, &got, sizeof got) == 0);
}

/* Numbers that are equal in both processes and in each run. */
static unsigned scattered(unsigned n)
{
    n = (n ^ (n >> 16)) * 0x45d9f3b;
    n = (n ^ (n >> 16)) * 0x45d9f3b;
    return n ^ (n >> 16);
}

/* About one message in twelve is too long for one record between a program and the daemon. */
static size_t length_of(unsigned number)
{
    unsigned n = scattered(number);
    return 1 + (n >> 8) % (n % 8 == 0 ? LENGTH_MAX : n % 8 == 1 ? 65536 : 1500);
}

static int fresh_of(int type, int has_events)
{
    char events[] = {0, has_events};
    int fd = socket(AF_INET, type, IPPROTO_SCTP);
    CHECK(fd >= 0 && setsockopt(fd, IPPROTO_SCTP, SCTP_EVENTS, events, sizeof events) == 0);
    return fd;
}

static int listening_of(int type, int port)
{
    struct sockaddr_in a = loopback(port);
    int fd = fresh_of(type, type == SOCK_SEQPACKET);
    CHECK(bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(fd, 1) == 0);
    return fd;
}

/* Never ends by itself. */
static void send_and_count(int fd, int port, atomic_uint *counted)
{
    static char text[LENGTH_MAX];
    struct sockaddr_in a = loopback(port);
    for (unsigned number = 0;; number++) {
        ssize_t bytes = length_of(number);
        fill(text, bytes, number);
        CHECK(sendto(fd, text, bytes, 0, (struct sockaddr *)&a, sizeof a) == bytes);
        atomic_store(counted, number + 1);
    }
}

/* A whole message or notification, which may come in parts; 0: the end. */
static size_t next_of(int fd, char *place, int *flags)
{
    size_t at = 0;
    int whole = 0;
    while (!whole) {
        struct iovec part = {place + at, LENGTH_MAX + 1 - at};
        struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
        ssize_t n = recvmsg(fd, &m, 0);
        CHECK(n > 0 || (n == 0 && at == 0));
        at += n;
        *flags = m.msg_flags;
        whole = n == 0 || m.msg_flags & MSG_EOR;
    }
    return at;
}

static int is_change(const char *place, size_t bytes, int flags, int state)
{
    const struct assoc_change *change = (const void *)place;
    return flags & MSG_NOTIFICATION && bytes == sizeof *change && change->type == ASSOC_CHANGE && change->state == state;
}

/* The descriptor of the association that a client has set up. */
static int taken_by(int listener, int type)
{
    static char place[LENGTH_MAX + 1];
    int flags;
    if (type == SOCK_SEQPACKET) {
        size_t bytes = next_of(listener, place, &flags);
        CHECK(is_change(place, bytes, flags, COMM_UP));
        return listener;
    }
    int fd = accept(listener, NULL, NULL);
    CHECK(fd >= 0 && close(listener) == 0);
    return fd;
}

/* Whether this message comes next; if not it is the regular end. */
static int comes(int fd, int type, unsigned number)
{
    static char place[LENGTH_MAX + 1], text[LENGTH_MAX];
    int flags;
    size_t bytes = next_of(fd, place, &flags), length = length_of(number);
    if (bytes == 0 || flags & MSG_NOTIFICATION) {
        CHECK(type == SOCK_STREAM ? bytes == 0 : is_change(place, bytes, flags, SHUTDOWN_COMP));
        return 0;
    }
    fill(text, length, number);
    CHECK(bytes == length && memcmp(place, text, length) == 0);
    return 1;
}

/* In every other round the receiver reads already, and in every other pair of them the sender has a notification that it
 * never reads. */
static void killed_at_some_moment(int type, unsigned round, atomic_uint *counted)
{
    int port = FIRST_PORT + round, listener = listening_of(type, port), fd = -1, status;
    unsigned chance = scattered(round + 1), got = 0, first = round % 2 ? chance % 50 : 0;
    atomic_store(counted, 0);
    pid_t child = fork();
    if (child == 0) {
        struct sockaddr_in a = loopback(port);
        CHECK(close(listener) == 0);
        fd = fresh_of(type, round / 2 % 2);
        CHECK(type == SOCK_SEQPACKET || connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
        send_and_count(fd, port, counted);
    }
    while (atomic_load(counted) == 0)
        usleep(100);
    if (first > 0)
        fd = taken_by(listener, type);
    for (; got < first; got++)
        CHECK(comes(fd, type, got));
    usleep((chance >> 8) % DELAY_US_MAX);
    CHECK(kill(child, SIGKILL) == 0);
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    if (first == 0)
        fd = taken_by(listener, type);
    while (comes(fd, type, got))
        got++;
    /* It may have died between the call and the counting. */
    CHECK(got == *counted || got == *counted + 1);
    CHECK(close(fd) == 0);
}

static void killed_at_any_moment(int type)
{
    atomic_uint *counted = mmap(NULL, sizeof *counted, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(counted != MAP_FAILED);
    for (unsigned round = 0; round < ROUNDS; round++)
        killed_at_some_moment(type, round, counted);
}

static void *accepts(void *listener)
{
    errno = 0;
    CHECK(accept(*(int *)listener, NULL, NULL) == -1 && errno == EINVAL);
    return NULL;
}

static pid_t filler;

static void *fills(void *fd)
{
    static char block[20000];
    __atomic_store_n(&filler, syscall(SYS_gettid), __ATOMIC_SEQ_CST);
    while (send(*(int *)fd, block, sizeof block, MSG_NOSIGNAL) > 0)
        ;
    CHECK(errno == EPIPE || errno == ECONNRESET);
    /* A message for which there would be room is not sent, either. */
    for (int i = 0; i < 10; i++)
        FAILS(send(*(int *)fd, block, 100, MSG_NOSIGNAL | MSG_DONTWAIT), EPIPE);
    return NULL;
}

/* A UDP port where nobody answers, and where a socket looks for its peer. */
static int silent_port(struct udpencaps *encapsulation)
{
    struct sockaddr_in a = loopback(0);
    socklen_t bytes = sizeof a;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof a) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&a, &bytes) == 0);
    *encapsulation = (struct udpencaps){.port = a.sin_port};
    return fd;
}

static int fresh_behind(const struct udpencaps *encapsulation, int flags)
{
    int fd = fresh(flags);
    CHECK(setsockopt(fd, IPPROTO_SCTP, SCTP_REMOTE_UDP_ENCAPS_PORT, encapsulation, sizeof *encapsulation) == 0);
    return fd;
}

static void *connects(void *encapsulation)
{
    struct sockaddr_in a = loopback(11);
    int fd = fresh_behind(encapsulation, 0);
    FAILS(connect(fd, (struct sockaddr *)&a, sizeof a), ENETDOWN);
    return NULL;
}

enum { HALF_CLOSED = 8 };
/* A peer that does not read has no room for all of it, so the association does not end. Both ends together have. */
enum { UNREAD_MESSAGES = 112, UNREAD_BYTES = 20000 };

/* Waits for the end of a socket that the program has shut down, and whose peer does not read. */
static void *reads_half_closed(void *socket)
{
    char word[8];
    FAILS(recv(*(int *)socket, word, sizeof word, 0), ECONNRESET);
    return NULL;
}

static void half_close(int port, int *socket, pthread_t *reader)
{
    static char message[UNREAD_BYTES];
    int peer;
    joined(port, socket, &peer);
    for (int i = 0; i < UNREAD_MESSAGES; i++)
        CHECK(send(*socket, message, sizeof message, 0) == sizeof message);
    CHECK(shutdown(*socket, SHUT_WR) == 0);
    CHECK(pthread_create(reader, NULL, reads_half_closed, socket) == 0);
}

static void daemon_is_killed(void)
{
    pthread_t threads[3], readers[HALF_CLOSED];
    int half_closed[HALF_CLOSED];
    char word[8];
    struct udpencaps encapsulation;
    struct sockaddr_in a = loopback(10);
    int client, server, other, quiet, listener = listening(8, 0);
    joined(7, &client, &server);
    joined(9, &other, &quiet);
    int fd = fresh(0), error = 0;
    CHECK(pthread_create(&threads[0], NULL, accepts, &listener) == 0);
    CHECK(pthread_create(&threads[1], NULL, fills, &client) == 0);
    int silent = silent_port(&encapsulation), pending = fresh_behind(&encapsulation, SOCK_NONBLOCK);
    FAILS(connect(pending, (struct sockaddr *)&a, sizeof a), EINPROGRESS);
    CHECK(recv(silent, word, sizeof word, 0) > 0);
    /* Its INIT has left: it waits. */
    CHECK(pthread_create(&threads[2], NULL, connects, &encapsulation) == 0);
    CHECK(recv(silent, word, sizeof word, 0) > 0);
    while (__atomic_load_n(&filler, __ATOMIC_SEQ_CST) == 0)
        usleep(1000);
    await_sleep(filler);
    for (int i = 0; i < HALF_CLOSED; i++)
        half_close(20 + i, &half_closed[i], &readers[i]);
    usleep(100000);
    puts("ready");
    fflush(stdout);
    FAILS(read(other, word, sizeof word), ECONNRESET);
    /* It lets go of one descriptor after the other. */
    CHECK(polls(quiet, 0, 10000) & POLLHUP && polls(fd, 0, 10000) & POLLHUP);
    FAILS(send(quiet, "x", 1, MSG_NOSIGNAL), EPIPE);
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &(socklen_t){sizeof error}) == 0);
    CHECK(error == ENETDOWN);
    CHECK(polls(pending, 0, 10000) & POLLHUP);
    CHECK(getsockopt(pending, SOL_SOCKET, SO_ERROR, &error, &(socklen_t){sizeof error}) == 0);
    CHECK(error == ENETDOWN);
    CHECK(getsockopt(quiet, SOL_SOCKET, SO_ERROR, &error, &(socklen_t){sizeof error}) == 0);
    CHECK(error == ECONNRESET);
    FAILS(bind(fd, (struct sockaddr *)&a, sizeof a), ENETDOWN);
    FAILS(socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP), EPROTONOSUPPORT);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < HALF_CLOSED; i++)
        CHECK(pthread_join(readers[i], NULL) == 0);
    (void)server;
}

int main(int count, char **words)
{
    begin();
    CHECK(count == 2);
    if (strcmp(words[1], "sender") == 0)
        sender_is_killed();
    else if (strcmp(words[1], "one-to-one") == 0)
        killed_at_any_moment(SOCK_STREAM);
    else if (strcmp(words[1], "one-to-many") == 0)
        killed_at_any_moment(SOCK_SEQPACKET);
    else
        daemon_is_killed();
    return 0;
}
