/* Messages that arrive together share a record. Readers cannot tell, however they read. */
#include "check.h"
#include "past_shim.h"
#include <sys/syscall.h>

/* linux/sctp.h */
enum { SCTP_RECVRCVINFO = 32, SCTP_RECVNXTINFO = 33, SCTP_PEELOFF = 102, SCTP_NXTINFO = 4 };

struct sctp_nxtinfo {
    uint16_t nxt_sid, nxt_flags;
    uint32_t nxt_ppid, nxt_length, nxt_assoc_id;
};

/* linux/sctp.h: sctp_peeloff_arg_t */
struct peel {
    int32_t id;
    int fd;
};

struct rcvinfo {
    uint16_t stream, ssn, flags;
    uint32_t ppid, tsn, cumtsn, context;
    int32_t assoc_id;
};

enum { HEADER_BYTES = 64, BYTES_MAX = 300, BURST = 300 };

static int client, server;
/* Numbers of the next message to send, and of the next to read. */
static unsigned sent, next;

/* Full bundles are of the same length then. */
static int all_alike;

static size_t length_of(unsigned number) { return all_alike ? 250 : 8 + number % (BYTES_MAX - 8); }

static void send_one(void)
{
    char message[BYTES_MAX];
    fill(message, sizeof message, sent);
    memcpy(message, &sent, sizeof sent);
    CHECK(send(client, message, length_of(sent), 0) == (ssize_t)length_of(sent));
    sent++;
}

static void check_message(unsigned number, const char *message, ssize_t n)
{
    char expected[BYTES_MAX];
    fill(expected, sizeof expected, number);
    memcpy(expected, &number, sizeof number);
    CHECK(n == (ssize_t)length_of(number) && memcmp(message, expected, n) == 0);
}

static void read_next(int fd)
{
    char message[BYTES_MAX];
    int whole;
    ssize_t n = receive(fd, message, sizeof message, 0, &whole);
    CHECK(whole);
    check_message(next++, message, n);
}

static void read_all(void)
{
    while (next < sent)
        read_next(server);
}

/* The length of the messages of a record with their headers: its own, or that of the bundle that it describes. */
static long messages_bytes(const char *record, long record_bytes)
{
    uint16_t kind;
    uint32_t bytes;
    memcpy(&kind, record + 4, sizeof kind);
    memcpy(&bytes, record + 36, sizeof bytes);
    return kind == 8 ? (long)bytes : record_bytes;
}

/* Peeks at the front of the kernel's queue. The shim does not see this call. */
static long front_bytes(void)
{
    char header[HEADER_BYTES] = {0};
    return messages_bytes(header, past_shim(SYS_recvfrom, server, (long)header, sizeof header, MSG_PEEK | MSG_TRUNC, 0, 0));
}

/* The length of all messages that lie in the kernel's queue or in bundles. */
static int queued_bytes(void)
{
    char record[HEADER_BYTES + BYTES_MAX];
    int all = 0, at = 0;
    long n;
    CHECK(past_shim(SYS_setsockopt, server, SOL_SOCKET, SO_PEEK_OFF, (long)&at, sizeof at, 0) == 0);
    while ((n = past_shim(SYS_recvfrom, server, (long)record, sizeof record, MSG_PEEK | MSG_DONTWAIT, 0, 0)) > 0)
        all += messages_bytes(record, n);
    at = -1;
    CHECK(past_shim(SYS_setsockopt, server, SOL_SOCKET, SO_PEEK_OFF, (long)&at, sizeof at, 0) == 0);
    return all;
}

/* Returns whether several messages share the record at the front, which nobody has begun to read. */
static int is_bundle(void) { return front_bytes() > (long)(HEADER_BYTES + length_of(next)); }

/* A bundle at the front, with all that follows it. */
static void burst(void)
{
    for (int attempt = 0; attempt < 1000; attempt++) {
        for (int i = 0; i < BURST; i++)
            send_one();
        for (; next < sent; read_next(server)) {
            if (is_bundle())
                return;
        }
    }
    CHECK(!"a bundle comes");
}

static void one_by_one(void)
{
    burst();
    while (next < sent) {
        CHECK(polls(server, POLLIN, 1000) == POLLIN);
        read_next(server);
    }
    CHECK(polls(server, POLLIN, 0) == 0);
    FAILS(recv(server, &next, sizeof next, MSG_DONTWAIT), EAGAIN);
}

static void in_parts(void)
{
    burst();
    while (next < sent) {
        char message[BYTES_MAX], again[BYTES_MAX];
        int whole, left;
        ssize_t bytes = length_of(next);
        CHECK(polls(server, POLLIN, 1000) == POLLIN);
        CHECK(ioctl(server, FIONREAD, &left) == 0 && left == bytes);
        CHECK(receive(server, message, 5, MSG_PEEK, &whole) == 5 && !whole);
        CHECK(receive(server, message, 5, 0, &whole) == 5 && !whole);
        CHECK(ioctl(server, FIONREAD, &left) == 0 && left == bytes - 5);
        CHECK(receive(server, again, BYTES_MAX, MSG_PEEK, &whole) == bytes - 5 && whole);
        struct iovec rest[] = {{message + 5, 2}, {message + 7, BYTES_MAX - 7}};
        CHECK(readv(server, rest, 2) == bytes - 5 && memcmp(message + 5, again, bytes - 5) == 0);
        check_message(next++, message, bytes);
    }
}

static void with_what_is_next(void)
{
    int on = 1;
    CHECK(setsockopt(server, IPPROTO_SCTP, SCTP_RECVNXTINFO, &on, sizeof on) == 0);
    burst();
    for (long left = 0; next < sent;) {
        char message[BYTES_MAX], control[256];
        struct iovec part = {message, sizeof message};
        CHECK(polls(server, POLLIN, 1000) == POLLIN);
        if (left <= 0)
            left = front_bytes();
        struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        check_message(next, message, recvmsg(server, &m, 0));
        left -= HEADER_BYTES + length_of(next++);
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        CHECK(c != NULL || left <= 0);
        if (c != NULL) {
            CHECK(c->cmsg_level == IPPROTO_SCTP && c->cmsg_type == SCTP_NXTINFO);
            CHECK(((struct sctp_nxtinfo *)CMSG_DATA(c))->nxt_length == length_of(next));
        }
    }
    on = 0;
    CHECK(setsockopt(server, IPPROTO_SCTP, SCTP_RECVNXTINFO, &on, sizeof on) == 0);
}

/* Two processes and a copy of the descriptor take turns. */
static void in_turns(void)
{
    int forth[2], back[2], copy = dup(server);
    all_alike = 1;
    CHECK(pipe(forth) == 0 && pipe(back) == 0);
    pid_t child = fork();
    if (child == 0) {
        close(forth[1]);
        while (read(forth[0], &next, sizeof next) == sizeof next) {
            read_next(server);
            CHECK(write(back[1], &next, sizeof next) == sizeof next);
        }
        _exit(0);
    }
    for (int i = 0; i < 3; i++) {
        burst();
        while (next < sent) {
            CHECK(write(forth[1], &next, sizeof next) == sizeof next);
            CHECK(read(back[0], &next, sizeof next) == sizeof next);
            if (next < sent)
                read_next(copy);
            if (next < sent)
                read_next(server);
        }
    }
    all_alike = 0;
    close(forth[1]);
    CHECK(ended_well(child) && close(copy) == 0 && close(forth[0]) == 0 && close(back[0]) == 0 && close(back[1]) == 0);
}

static void by_another_program(char *self)
{
    burst();
    read_next(server);
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        if (child == 0) {
            char fd[16], number[16];
            sprintf(fd, "%d", server);
            sprintf(number, "%u", next);
            execl(self, self, fd, number, (char *)NULL);
            _exit(1);
        }
        CHECK(ended_well(child));
        next++;
        read_next(server);
    }
    read_all();
}

static unsigned char seen[4 * BURST];
static unsigned first, until;

static void *read_some(void *nothing)
{
    for (;;) {
        char message[BYTES_MAX];
        unsigned number;
        ssize_t n = recv(server, message, sizeof message, MSG_DONTWAIT);
        if (n < 0) {
            CHECK(errno == EAGAIN);
            if (__atomic_load_n(&until, __ATOMIC_SEQ_CST) == sent)
                return nothing;
            polls(server, POLLIN, 1);
            continue;
        }
        memcpy(&number, message, sizeof number);
        check_message(number, message, n);
        CHECK(__atomic_exchange_n(&seen[number - first], 1, __ATOMIC_SEQ_CST) == 0);
        __atomic_add_fetch(&until, 1, __ATOMIC_SEQ_CST);
    }
}

static void by_threads(void)
{
    pthread_t threads[4];
    burst();
    for (int i = 0; i < BURST; i++)
        send_one();
    first = until = next;
    memset(seen, 0, sizeof seen);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, read_some, NULL) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    for (; next < sent; next++)
        CHECK(seen[next - first]);
}

/* A reader that is killed takes at most the message with it that it was reading. */
static void by_one_that_is_killed(int asks_first)
{
    for (int round = 0; round < 60; round++) {
        int told[2];
        burst();
        CHECK(pipe(told) == 0);
        pid_t child = fork();
        if (child == 0) {
            for (;;) {
                read_next(server);
                CHECK(write(told[1], &next, sizeof next) == sizeof next);
            }
        }
        close(told[1]);
        CHECK(usleep(round * 10) == 0 && kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
        while (read(told[0], &next, sizeof next) == sizeof next)
            ;
        close(told[0]);
        if (next < sent) {
            char message[BYTES_MAX];
            unsigned number;
            int left;
            send_one();
            CHECK(!asks_first || ioctl(server, FIONREAD, &left) == 0);
            CHECK(recv(server, message, sizeof message, MSG_PEEK) >= (ssize_t)sizeof number);
            memcpy(&number, message, sizeof number);
            CHECK(number == next || number == next + 1);
            next = number;
        }
        read_all();
    }
}

/* In a dialogue messages come alone; then they come together once more. */
static void alone_again(void)
{
    for (int i = 0; i < 300; i++) {
        send_one();
        read_next(server);
    }
    one_by_one();
}

static void nowhere(void)
{
    burst();
    FAILS(recv(server, NULL, 10, 0), EFAULT);
    FAILS(recv(server, (void *)-1, 10, 0), EFAULT);
    read_all();
}

/* The rest of a bundle is unread data. */
static void left_unread(void)
{
    burst();
    read_next(server);
    CHECK(close(server) == 0);
    FAILS(recv(client, &next, sizeof next, 0), ECONNRESET);
    CHECK(close(client) == 0);
    next = sent;
}

/* A one-to-many socket that others connect to. */
static int one_to_many(int port)
{
    struct sockaddr_in a = loopback(port);
    int fd = socket(AF_INET, SOCK_SEQPACKET, IPPROTO_SCTP);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(fd, 5) == 0);
    return fd;
}

/* A socket that reports the association of each message, and its first peer. */
static void many_joined(int port)
{
    int on = 1;
    server = one_to_many(port);
    CHECK(setsockopt(server, IPPROTO_SCTP, SCTP_RECVRCVINFO, &on, sizeof on) == 0);
    client = connected(port);
}

/* The next message, and its association. */
static ssize_t hear(char *message, int32_t *association)
{
    char control[256];
    struct iovec part = {message, BYTES_MAX};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t n = recvmsg(server, &m, 0);
    CHECK(n > 0);
    *association = ((struct rcvinfo *)CMSG_DATA(CMSG_FIRSTHDR(&m)))->assoc_id;
    return n;
}

/* One association of a one-to-many socket gets a socket of its own, with what was delivered of it; of what was read in part
   the rest stays. */
static void peeled_off(int port, size_t read_before)
{
    int other;
    char message[BYTES_MAX];
    struct peel peel = {-1, -1};
    socklen_t size = sizeof peel;
    many_joined(port);
    other = connected(port);
    burst();
    CHECK(send(other, "behind", 6, 0) == 6);
    check_message(next++, message, hear(message, &peel.id));
    CHECK(recv(server, message, read_before, 0) == (ssize_t)read_before);
    CHECK(getsockopt(server, IPPROTO_SCTP, SCTP_PEELOFF, &peel, &size) >= 0);
    if (read_before > 0) {
        ssize_t n = recv(server, message + read_before, sizeof message - read_before, 0);
        check_message(next++, message, read_before + n);
    }
    CHECK(recv(server, message, sizeof message, 0) == 6 && memcmp(message, "behind", 6) == 0);
    FAILS(recv(server, message, sizeof message, MSG_DONTWAIT), EAGAIN);
    while (next < sent)
        read_next(peel.fd);
    FAILS(recv(peel.fd, message, sizeof message, MSG_DONTWAIT), EAGAIN);
    send_one();
    read_next(peel.fd);
    CHECK(close(peel.fd) == 0 && close(client) == 0 && close(other) == 0 && close(server) == 0);
}

/* An association of another peer gets a socket of its own while a message is being read. */
static void others_peeled_off(int port, int before, size_t read_before)
{
    int other;
    char message[BYTES_MAX];
    struct peel peel = {-1, -1};
    socklen_t size = sizeof peel;
    many_joined(port);
    other = connected(port);
    CHECK(send(other, "first", 5, 0) == 5 && hear(message, &peel.id) == 5);
    burst();
    CHECK(send(other, "second", 6, 0) == 6 && usleep(2000) == 0);
    for (int i = 0; i < before; i++)
        read_next(server);
    CHECK(recv(server, message, read_before, 0) == (ssize_t)read_before);
    CHECK(getsockopt(server, IPPROTO_SCTP, SCTP_PEELOFF, &peel, &size) >= 0);
    if (read_before > 0)
        check_message(next, message, read_before + recv(server, message + read_before, sizeof message - read_before, 0));
    next += read_before > 0;
    read_all();
    FAILS(recv(server, message, sizeof message, MSG_DONTWAIT), EAGAIN);
    CHECK(recv(peel.fd, message, sizeof message, 0) == 6 && memcmp(message, "second", 6) == 0);
    CHECK(close(peel.fd) == 0 && close(client) == 0 && close(other) == 0 && close(server) == 0);
}

/* Events behind messages that wait for room, here the end of the association, are not lost when the association is peeled
   off. Returns whether the association still existed. */
static int peeled_off_at_the_end(int port, int bytes, int read_before)
{
    char message[BYTES_MAX];
    struct peel peel = {-1, -1};
    socklen_t size = sizeof peel;
    many_joined(port);
    for (all_alike = 1; bytes > 0; bytes -= HEADER_BYTES + length_of(sent))
        send_one();
    CHECK(shutdown(client, SHUT_WR) == 0);
    check_message(next++, message, hear(message, &peel.id));
    CHECK(usleep(20000) == 0);
    for (; read_before > 0 && next < sent; read_before -= HEADER_BYTES + length_of(next - 1))
        read_next(server);
    CHECK(usleep(10000) == 0);
    int is_there = getsockopt(server, IPPROTO_SCTP, SCTP_PEELOFF, &peel, &size) >= 0;
    CHECK(is_there || errno == EINVAL);
    while (next < sent)
        read_next(is_there ? peel.fd : server);
    if (is_there) {
        FAILS(recv(peel.fd, message, sizeof message, 0), ENOTCONN);
        CHECK(close(peel.fd) == 0);
    }
    CHECK(close(client) == 0 && close(server) == 0);
    all_alike = 0;
    return is_there;
}

/* Fills a pair and a ring that nobody reads. */
static int room(int port)
{
    int queued = 0, before = -1;
    server = one_to_many(port);
    client = connected(port);
    all_alike = 1;
    CHECK(fcntl(client, F_SETFL, O_NONBLOCK) == 0);
    while (queued != before) {
        char message[BYTES_MAX] = {0};
        while (send(client, message, 250, 0) > 0)
            ;
        CHECK(usleep(20000) == 0);
        before = queued;
        queued = queued_bytes();
    }
    all_alike = 0;
    CHECK(close(client) == 0 && close(server) == 0);
    return queued;
}

static void all(char *self)
{
    one_by_one();
    in_parts();
    with_what_is_next();
    in_turns();
    by_another_program(self);
    by_threads();
    by_one_that_is_killed(0);
    by_one_that_is_killed(1);
    alone_again();
    nowhere();
    left_unread();
}

static void peeling_off(void)
{
    for (int i = 0; i < 5; i++) {
        peeled_off(14 + 2 * i, 0);
        peeled_off(15 + 2 * i, 5);
        others_peeled_off(30 + i, i, 0);
        others_peeled_off(40 + i, i, 5);
    }
    int bytes = room(50), peeled = 0;
    /* The end comes right after what just does not fit, once there was room again. */
    int bytes_sent = bytes + bytes * 3 / 4;
    for (int i = 0; i < 40; i++) {
        int is_there = peeled_off_at_the_end(51 + i, bytes_sent, bytes * 4 / 5);
        bytes_sent += (is_there ? -1 : 1) * (i < 15 ? bytes / 20 : 2000);
        peeled += is_there;
    }
    CHECK(peeled > 0 && peeled < 40);
}

int main(int count, char **words)
{
    begin();
    if (count == 2) {
        peeling_off();
        return 0;
    }
    if (count == 3) {
        next = atoi(words[2]);
        read_next(atoi(words[1]));
        return 0;
    }
    joined(12, &client, &server);
    all(words[0]);
    server = one_to_many(13);
    client = connected(13);
    all(words[0]);
    return 0;
}
