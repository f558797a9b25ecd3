/* One-to-many sockets: any number of associations on one descriptor (RFC 6458 section 3), sctp_peeloff,
 * sctp_bindx, sctp_connectx. */
#include "check.h"

/* Hundreds of associations take half a minute on a busy machine. */
enum { PATIENCE_S = 120 };
enum { SCTP_INITMSG = 2, SCTP_EVENTS = 11, SCTP_STATUS = 14, SCTP_FRAGMENT_INTERLEAVE = 18, SCTP_PARTIAL_DELIVERY_POINT = 19 };
enum { SCTP_BINDX_ADD = 100, SCTP_BINDX_REM = 101, SCTP_PEELOFF = 102, SCTP_PEER_ADDRS = 108, SCTP_LOCAL_ADDRS = 109, SCTP_CONNECTX = 110 };
enum { SCTP_GET_ASSOC_NUMBER = 28, SCTP_GET_ASSOC_ID_LIST = 29 };
enum { SCTP_SNDRCV = 1, SCTP_INIT = 0, SCTP_DSTADDRV4 = 7 };
enum { SCTP_ABORT = 4, SCTP_SENDALL = 64, SCTP_EOF = 0x200, MSG_NOTIFICATION = 0x8000 };
enum { ASSOC_CHANGE = 0x8001, SEND_FAILED = 0x8003, SHUTDOWN_EVENT = 0x8005 };
enum { COMM_UP, COMM_LOST, RESTART, SHUTDOWN_COMP, CANT_STR_ASSOC };

struct sndrcvinfo {
    uint16_t stream, ssn, flags;
    uint32_t ppid, context, timetolive, tsn, cumtsn;
    int32_t assoc_id;
};
struct assoc_change {
    uint16_t type, flags;
    uint32_t length;
    uint16_t state, error, outbound, inbound;
    int32_t assoc_id;
};
struct getaddrs {
    int32_t assoc_id;
    uint32_t count;
    struct sockaddr_in list[8];
};

struct heard {
    char text[300];
    ssize_t bytes;
    int flags;
    struct sockaddr_in from;
    struct sndrcvinfo info;
};

static int one_to_many(int port)
{
    struct sockaddr_in a = loopback(port);
    char events[] = {1, 1, 0, 0, 0, 1, 0, 0};
    int fd = socket(AF_INET, SOCK_SEQPACKET, IPPROTO_SCTP);
    CHECK(fd >= 0 && setsockopt(fd, IPPROTO_SCTP, SCTP_EVENTS, events, sizeof events) == 0);
    CHECK(port == 0 || bind(fd, (struct sockaddr *)&a, sizeof a) == 0);
    return fd;
}

static struct heard hear(int fd, int flags)
{
    struct heard h = {0};
    char control[CMSG_SPACE(sizeof h.info)] __attribute__((aligned(8)));
    struct iovec part = {h.text, sizeof h.text - 1};
    struct msghdr m = {&h.from, sizeof h.from, &part, 1, control, sizeof control, 0};
    CHECK((h.bytes = recvmsg(fd, &m, flags)) >= 0);
    h.flags = m.msg_flags;
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (c != NULL)
        memcpy(&h.info, CMSG_DATA(c), sizeof h.info);
    return h;
}

/* Checks that the next notification is this change; returns its association. */
static int changed(int fd, int state)
{
    struct heard h = hear(fd, 0);
    struct assoc_change *change = (void *)h.text;
    /* The cause follows if the peer has aborted it. */
    ssize_t more = state == COMM_LOST && h.bytes == sizeof *change + 4 ? 4 : 0;
    CHECK(h.flags == (MSG_NOTIFICATION | MSG_EOR) && h.bytes == (ssize_t)sizeof *change + more);
    CHECK(change->type == ASSOC_CHANGE && change->state == state && change->length == h.bytes);
    CHECK(state != COMM_UP || (change->outbound > 0 && change->inbound > 0));
    return change->assoc_id;
}

static void shut_down(int fd)
{
    struct heard h = hear(fd, 0);
    CHECK(h.flags == (MSG_NOTIFICATION | MSG_EOR) && h.bytes == 12 && *(uint16_t *)h.text == SHUTDOWN_EVENT);
}

static ssize_t say_part(int fd, struct iovec part, struct sockaddr_in *to, int type, const void *info, size_t bytes)
{
    char control[CMSG_SPACE(64)] = {0};
    struct msghdr m = {.msg_name = to, .msg_namelen = to ? sizeof *to : 0, .msg_iov = &part, .msg_iovlen = 1};
    if (info != NULL) {
        m.msg_control = control;
        m.msg_controllen = CMSG_SPACE(bytes);
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        *c = (struct cmsghdr){.cmsg_len = CMSG_LEN(bytes), .cmsg_level = IPPROTO_SCTP, .cmsg_type = type};
        memcpy(CMSG_DATA(c), info, bytes);
    }
    return sendmsg(fd, &m, MSG_NOSIGNAL);
}

static ssize_t say(int fd, const char *text, struct sockaddr_in *to, int type, const void *info, size_t bytes)
{
    return say_part(fd, (struct iovec){(void *)text, strlen(text)}, to, type, info, bytes);
}

static ssize_t say_by_id(int fd, const char *text, int id, int flags)
{
    struct sndrcvinfo info = {.assoc_id = id, .flags = flags};
    return say(fd, text, NULL, SCTP_SNDRCV, &info, sizeof info);
}

/* Aborts an association with a reason that is no text. */
static ssize_t abort_with_bytes(int fd, int id)
{
    struct sndrcvinfo info = {.assoc_id = id, .flags = SCTP_ABORT};
    unsigned char reason[] = {1, 0xff, 0x80, 0};
    return say_part(fd, (struct iovec){reason, sizeof reason}, NULL, SCTP_SNDRCV, &info, sizeof info);
}

/* Checks that the next notification is the loss with this reason. */
static void expect_bytes_of_abort(int fd)
{
    static const unsigned char cause[] = {0, 12, 0, 8, 1, 0xff, 0x80, 0};
    struct heard h = hear(fd, 0);
    struct assoc_change *change = (void *)h.text;
    CHECK(h.flags == (MSG_NOTIFICATION | MSG_EOR) && h.bytes == (ssize_t)(sizeof *change + sizeof cause));
    CHECK(change->type == ASSOC_CHANGE && change->state == COMM_LOST);
    CHECK(memcmp(change + 1, cause, sizeof cause) == 0);
}

static void expect(int fd, const char *text, int id)
{
    struct heard h = hear(fd, 0);
    CHECK(h.flags == MSG_EOR && strcmp(h.text, text) == 0);
    CHECK(h.info.assoc_id == id);
}

/* A message to an address sets the association up; two clients of one server. */
static void implicitly(void)
{
    struct sockaddr_in a = loopback(7), none = loopback(9);
    uint16_t init[4] = {3, 4, 0, 0};
    int server = one_to_many(7), one = one_to_many(0), other = one_to_many(0);
    FAILS(send(one, "x", 1, MSG_NOSIGNAL), EPIPE);
    FAILS(say_by_id(one, "x", 12345, 0), EPIPE);
    FAILS(accept(server, NULL, NULL), EOPNOTSUPP);
    CHECK(listen(server, 5) == 0);
    CHECK(say(one, "from one", &a, SCTP_INIT, init, sizeof init) == 8);
    CHECK(say(one, "and again", &a, 0, NULL, 0) == 9);
    CHECK(sendto(other, "from the other", 14, 0, (struct sockaddr *)&a, sizeof a) == 14);
    int up = changed(one, COMM_UP), id[2];
    /* They may come in any order. */
    for (int seen = 0, n = 0; seen < 5; seen++) {
        struct heard h = hear(server, 0);
        if (h.flags & MSG_NOTIFICATION) {
            id[n++ & 1] = ((struct assoc_change *)h.text)->assoc_id;
            continue;
        }
        CHECK(h.info.assoc_id == id[0] || (n == 2 && h.info.assoc_id == id[1]));
        CHECK(say_by_id(server, h.text, h.info.assoc_id, 0) == h.bytes);
    }
    CHECK(id[0] != id[1] && id[0] >= 3 && id[1] >= 3);
    expect(one, "from one", up);
    expect(one, "and again", up);
    expect(other, "from the other", changed(other, COMM_UP));

    struct sndrcvinfo wrong = {.assoc_id = up, .stream = 3};
    FAILS(say(one, "no such stream", NULL, SCTP_SNDRCV, &wrong, sizeof wrong), EINVAL);
    FAILS(say_by_id(one, "with text", up, SCTP_EOF), EINVAL);
    FAILS(say_by_id(one, "", up, 0), EINVAL);
    CHECK(say_by_id(server, "to both", 0, SCTP_SENDALL) == 7);
    CHECK(strcmp(hear(one, 0).text, "to both") == 0 && strcmp(hear(other, 0).text, "to both") == 0);

    /* One is shut down, the other aborted. */
    wrong.flags = SCTP_EOF;
    CHECK(say(one, "", NULL, SCTP_SNDRCV, &wrong, sizeof wrong) == 0);
    shut_down(server);
    int ended = changed(server, SHUTDOWN_COMP), left = ended == id[0] ? id[1] : id[0];
    CHECK(changed(one, SHUTDOWN_COMP) == up);
    CHECK(abort_with_bytes(server, left) == 0);
    CHECK(changed(server, COMM_LOST) == left);
    expect_bytes_of_abort(other);
    FAILS(say_by_id(server, "x", left, 0), EPIPE);

    CHECK(say(one, "to nobody", &none, 0, NULL, 0) == 9);
    changed(one, CANT_STR_ASSOC);
    FAILS(connect(one, (struct sockaddr *)&none, sizeof none), ECONNREFUSED);
    changed(one, CANT_STR_ASSOC);
    CHECK(close(one) == 0 && close(other) == 0 && close(server) == 0);
}

/* An association becomes a descriptor of its own, with what has arrived for it. */
static void peeled_off(void)
{
    struct sockaddr_in a = loopback(8);
    struct { int32_t id; int fd; } peel;
    socklen_t size = sizeof peel;
    int server = one_to_many(8), one = one_to_many(0), other = one_to_many(0), type;
    CHECK(listen(server, 5) == 0);
    CHECK(connect(one, (struct sockaddr *)&a, sizeof a) == 0);
    FAILS(connect(one, (struct sockaddr *)&a, sizeof a), EISCONN);
    CHECK(connect(other, (struct sockaddr *)&a, sizeof a) == 0);
    changed(one, COMM_UP);
    changed(other, COMM_UP);
    int id = changed(server, COMM_UP), second = changed(server, COMM_UP);
    CHECK(say(one, "first", &a, 0, NULL, 0) == 5 && say(other, "between", &a, 0, NULL, 0) == 7);
    CHECK(say(one, "second", &a, 0, NULL, 0) == 6 && polls(server, POLLIN, -1) == POLLIN);
    /* Until all three are there. */
    for (int all = 0; all < 5 + 7 + 6;) {
        struct heard h = hear(server, 0);
        CHECK(h.flags == MSG_EOR);
        all += h.bytes;
        CHECK(say_by_id(server, h.text, h.info.assoc_id, 0) == h.bytes);
    }
    CHECK(polls(one, POLLIN, -1) == POLLIN && strcmp(hear(one, 0).text, "first") == 0);
    CHECK(strcmp(hear(one, 0).text, "second") == 0 && strcmp(hear(other, 0).text, "between") == 0);

    CHECK(say(one, "third", &a, 0, NULL, 0) == 5 && polls(server, POLLIN, -1) == POLLIN);
    peel.id = 99999;
    FAILS(getsockopt(server, IPPROTO_SCTP, SCTP_PEELOFF, &peel, &size), EINVAL);
    peel.id = id;
    CHECK(getsockopt(server, IPPROTO_SCTP, SCTP_PEELOFF, &peel, &size) >= 0);
    CHECK(getsockopt(peel.fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET);
    expect(peel.fd, "third", id);
    CHECK(send(peel.fd, "answer", 6, 0) == 6 && strcmp(hear(one, 0).text, "answer") == 0);
    FAILS(say_by_id(server, "it is not here", id, 0), EPIPE);
    CHECK(say_by_id(server, "still", second, 0) == 5 && strcmp(hear(other, 0).text, "still") == 0);
    CHECK(polls(server, POLLIN, 0) == 0);
    CHECK(close(peel.fd) == 0);
    shut_down(one);
    changed(one, SHUTDOWN_COMP);
    CHECK(close(server) == 0 && close(one) == 0 && close(other) == 0);
}

static void several_addresses(void)
{
    struct sockaddr_in a[3] = {loopback(10), loopback(10), loopback(10)};
    struct getaddrs addresses = {0};
    socklen_t size = sizeof addresses;
    int server = one_to_many(0), one = one_to_many(0);
    a[1].sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
    a[2].sin_addr.s_addr = htonl(INADDR_LOOPBACK + 2);
    CHECK(setsockopt(server, IPPROTO_SCTP, SCTP_BINDX_ADD, a, sizeof a) == 0);
    FAILS(setsockopt(server, IPPROTO_SCTP, SCTP_BINDX_ADD, a, sizeof *a), EINVAL);
    CHECK(setsockopt(server, IPPROTO_SCTP, SCTP_BINDX_REM, a + 2, sizeof *a) == 0);
    FAILS(setsockopt(server, IPPROTO_SCTP, SCTP_BINDX_REM, a + 2, sizeof *a), EINVAL);
    CHECK(getsockopt(server, IPPROTO_SCTP, SCTP_LOCAL_ADDRS, &addresses, &size) == 0 && addresses.count == 2);
    CHECK(addresses.list[1].sin_addr.s_addr == a[1].sin_addr.s_addr && addresses.list[1].sin_port == htons(10));
    CHECK(listen(server, 1) == 0);

    a[2] = a[0];
    a[2].sin_port = htons(11);
    FAILS(setsockopt(one, IPPROTO_SCTP, SCTP_CONNECTX, a + 1, 2 * sizeof *a), EINVAL);
    int id = setsockopt(one, IPPROTO_SCTP, SCTP_CONNECTX, a, 2 * sizeof *a);
    CHECK(id >= 3 && changed(one, COMM_UP) == id);
    addresses = (struct getaddrs){.assoc_id = id};
    size = sizeof addresses;
    CHECK(getsockopt(one, IPPROTO_SCTP, SCTP_PEER_ADDRS, &addresses, &size) == 0 && addresses.count >= 1);
    CHECK(close(server) == 0 && close(one) == 0);
}

/* Addresses that are added or removed while a socket listens apply to later peers. */
static void addresses_of_a_listener(void)
{
    struct sockaddr_in first = loopback(15), second = loopback(15);
    second.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
    int server = one_to_many(15), one = fresh(0);
    CHECK(listen(server, 1) == 0);
    FAILS(connect(one, (struct sockaddr *)&second, sizeof second), ECONNREFUSED);
    CHECK(setsockopt(server, IPPROTO_SCTP, SCTP_BINDX_ADD, &second, sizeof second) == 0);
    CHECK(connect(one, (struct sockaddr *)&second, sizeof second) == 0 && close(one) == 0);
    CHECK(setsockopt(server, IPPROTO_SCTP, SCTP_BINDX_REM, &first, sizeof first) == 0);
    one = fresh(0);
    FAILS(connect(one, (struct sockaddr *)&first, sizeof first), ECONNREFUSED);
    CHECK(connect(one, (struct sockaddr *)&second, sizeof second) == 0);
    CHECK(close(server) == 0 && close(one) == 0);
}

/* The address that a message is for cannot be reached, and another that comes with it can. */
static void elsewhere(void)
{
    struct sockaddr_in nowhere = loopback(14);
    struct in_addr here = {htonl(INADDR_LOOPBACK)};
    int server = one_to_many(14), client = one_to_many(0);
    nowhere.sin_addr.s_addr = inet_addr("240.0.0.1");
    CHECK(listen(server, 1) == 0);
    CHECK(say(client, "there?", &nowhere, SCTP_DSTADDRV4, &here, sizeof here) == 6);
    int id = changed(server, COMM_UP);
    expect(server, "there?", id);
    changed(client, COMM_UP);
    CHECK(close(client) == 0 && close(server) == 0);
}

/* Whether the peer has acknowledged everything. */
static int is_dry(int fd, int id)
{
    struct {
        int32_t assoc_id, state;
        uint32_t window;
        uint16_t unacked, pending;
        char rest[160];
    } status = {.assoc_id = id};
    socklen_t bytes = sizeof status;
    CHECK(getsockopt(fd, IPPROTO_SCTP, SCTP_STATUS, &status, &bytes) == 0);
    return status.unacked == 0 && status.pending == 0;
}

/* A message of another association comes between the parts of a long one if the program allows it, and otherwise after it. */
static void between_parts(int port, int level)
{
    static char text[8 << 20], part[1 << 20];
    struct sockaddr_in a = loopback(port);
    int point = 4096, server = one_to_many(port), one = one_to_many(0), other = one_to_many(0), whole;
    size_t left = sizeof text;
    CHECK(setsockopt(server, IPPROTO_SCTP, SCTP_PARTIAL_DELIVERY_POINT, &point, sizeof point) == 0);
    CHECK(setsockopt(server, IPPROTO_SCTP, SCTP_FRAGMENT_INTERLEAVE, &level, sizeof level) == 0);
    CHECK(listen(server, 1) == 0);
    CHECK(sendto(other, "early", 5, 0, (struct sockaddr *)&a, sizeof a) == 5);
    expect(server, "early", changed(server, COMM_UP));
    int id = changed(other, COMM_UP);
    CHECK(sendto(one, text, sizeof text, 0, (struct sockaddr *)&a, sizeof a) == sizeof text);
    changed(server, COMM_UP);
    left -= receive(server, part, sizeof part, 0, &whole);
    CHECK(left > 0 && !whole);
    CHECK(sendto(other, "between?", 8, 0, (struct sockaddr *)&a, sizeof a) == 8);
    while (!is_dry(other, id))
        ;
    for (ssize_t n; (n = receive(server, part, sizeof part, 0, &whole)) != 8; left -= n)
        CHECK(n > 0 && (size_t)n <= left && whole == ((size_t)n == left));
    CHECK(whole && memcmp(part, "between?", 8) == 0);
    CHECK(level ? left > 0 : left == 0);
    while (left > 0)
        left -= receive(server, part, sizeof part, 0, &whole);
    CHECK(whole && close(one) == 0 && close(other) == 0 && close(server) == 0);
}

/* A peer that does not read keeps no other waiting, and who does not want to wait is told. */
static void one_that_does_not_read(void)
{
    struct sockaddr_in a = loopback(12), b = loopback(13);
    static char text[1 << 16];
    int slow = one_to_many(12), quick = one_to_many(13), fd = one_to_many(0), sent = 0;
    CHECK(listen(slow, 1) == 0 && listen(quick, 1) == 0);
    CHECK(connect(fd, (struct sockaddr *)&a, sizeof a) == 0 && connect(fd, (struct sockaddr *)&b, sizeof b) == 0);
    changed(fd, COMM_UP);
    changed(fd, COMM_UP);
    while (sendto(fd, text, sizeof text, MSG_DONTWAIT, (struct sockaddr *)&a, sizeof a) == sizeof text)
        CHECK(++sent < 10000);
    CHECK(errno == EAGAIN);
    CHECK(sendto(fd, "quick", 5, 0, (struct sockaddr *)&b, sizeof b) == 5);
    changed(quick, COMM_UP);
    CHECK(strcmp(hear(quick, 0).text, "quick") == 0);

    /* Waiting ends when the other reads. */
    pid_t reader = fork();
    if (reader == 0) {
        alarm(PATIENCE_S);
        changed(slow, COMM_UP);
        for (size_t bytes = 0; bytes < (sent + 1) * sizeof text;) {
            ssize_t n = recv(slow, text, sizeof text, 0);
            CHECK(n > 0);
            bytes += n;
        }
        _exit(0);
    }
    CHECK(sendto(fd, text, sizeof text, 0, (struct sockaddr *)&a, sizeof a) == sizeof text);
    CHECK(ended_well(reader));
    CHECK(close(fd) == 0 && close(slow) == 0 && close(quick) == 0);
}

/* Listens for peers that take few bytes before they read. */
static int listening_with_little_room(int port)
{
    int listener = listening(port, 0), bytes = 8192;
    CHECK(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes) == 0);
    return listener;
}

/* The last of these messages is sent once the association has taken the first, which is longer than the peer's room. */
enum { LASTING = 7, LASTING_BYTES = 50000 };

/* Sends so much that the association cannot end before the peer reads. */
static void outlast_shutdown(int fd, struct sockaddr_in *peer)
{
    static char text[LASTING_BYTES];
    for (int n = 0; n < LASTING; n++)
        CHECK(sendto(fd, text, sizeof text, 0, (struct sockaddr *)peer, sizeof *peer) == sizeof text);
}

/* Reads of each message of `text` bytes that a socket has sent: it reaches the peer, or the socket hears that it has failed. */
static void each_arrives_or_fails(int fd, int peer, ssize_t text, int sent)
{
    static char place[1 << 17];
    ssize_t got = 0;
    int failed = 0;
    while (got / text + failed < sent) {
        struct pollfd both[] = {{.fd = fd, .events = POLLIN}, {.fd = peer, .events = POLLIN}};
        CHECK(poll(both, 2, -1) > 0);
        if (both[0].revents) {
            CHECK(recv(fd, place, sizeof place, 0) > 0);
            failed += *(uint16_t *)place == SEND_FAILED;
        } else {
            ssize_t n = recv(peer, place, sizeof place, 0);
            CHECK(n > 0);
            got += n;
        }
    }
    CHECK(got > 0 && got % text == 0);
}

/* A peer that has shut down takes no more, while another does, and who waits for room is told. Each message reaches the
 * peer, or comes back as failed. */
static void one_that_has_shut_down(void)
{
    struct sockaddr_in a = loopback(19), b = loopback(13);
    static char text[LASTING_BYTES];
    char failures[] = {1, 1, 0, 1, 0, 1, 0, 0};
    int listener = listening_with_little_room(19), quick = one_to_many(13), fd = one_to_many(0), sent = LASTING, status;
    CHECK(setsockopt(fd, IPPROTO_SCTP, SCTP_EVENTS, failures, sizeof failures) == 0);
    CHECK(listen(quick, 1) == 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
    int id = changed(fd, COMM_UP), peer = accept(listener, NULL, NULL);
    CHECK(peer >= 0 && connect(fd, (struct sockaddr *)&b, sizeof b) == 0);
    changed(fd, COMM_UP);
    changed(quick, COMM_UP);
    outlast_shutdown(fd, &a);
    pid_t waits = fork();
    if (waits == 0) {
        alarm(PATIENCE_S);
        int more = 0;
        while (sendto(fd, text, sizeof text, 0, (struct sockaddr *)&a, sizeof a) == sizeof text)
            more++;
        CHECK(errno == ESHUTDOWN);
        _exit(more);
    }
    CHECK(shutdown(peer, SHUT_WR) == 0 && waitpid(waits, &status, 0) == waits && WIFEXITED(status));
    sent += WEXITSTATUS(status);
    FAILS(sendto(fd, "more", 4, 0, (struct sockaddr *)&a, sizeof a), ESHUTDOWN);
    FAILS(sendto(fd, text, sizeof text, MSG_DONTWAIT, (struct sockaddr *)&a, sizeof a), ESHUTDOWN);
    FAILS(say_by_id(fd, "more", id, 0), ESHUTDOWN);
    CHECK(say_by_id(fd, "to all", 0, SCTP_SENDALL) == 6);
    CHECK(strcmp(hear(quick, 0).text, "to all") == 0);
    each_arrives_or_fails(fd, peer, sizeof text, sent);
    CHECK(close(fd) == 0 && close(peer) == 0 && close(quick) == 0 && close(listener) == 0);
}

/* One that is peeled off after its peer has shut down takes no more, either. */
static void shut_down_and_peeled_off(void)
{
    struct sockaddr_in a = loopback(20);
    int listener = listening_with_little_room(20), fd = one_to_many(0);
    CHECK(connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
    int id = changed(fd, COMM_UP), peer = accept(listener, NULL, NULL);
    CHECK(peer >= 0);
    outlast_shutdown(fd, &a);
    CHECK(shutdown(peer, SHUT_WR) == 0);
    shut_down(fd);
    struct {
        int32_t id;
        int fd;
    } peel = {.id = id};
    CHECK(getsockopt(fd, IPPROTO_SCTP, SCTP_PEELOFF, &peel, &(socklen_t){sizeof peel}) >= 0);
    FAILS(send(peel.fd, "more", 4, 0), ESHUTDOWN);
    CHECK(close(fd) == 0 && close(peer) == 0 && close(peel.fd) == 0 && close(listener) == 0);
}

/* More associations than a page has entries get what is for all, and what is for each. */
enum { CROWD = 1100 };

static void crowd(void)
{
    static int clients[CROWD], ids[CROWD];
    struct rlimit limit;
    char text[16];
    int server = one_to_many(17);
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = CROWD + 100;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK(listen(server, 5) == 0);
    for (int i = 0; i < CROWD; i++) {
        clients[i] = connected(17);
        ids[i] = changed(server, COMM_UP);
    }
    CHECK(say_by_id(server, "to all", 0, SCTP_SENDALL) == 6);
    for (int i = 0; i < CROWD; i++)
        CHECK(say_by_id(server, "to you", ids[i], 0) == 6);
    for (int i = 0; i < CROWD; i++) {
        CHECK(recv(clients[i], text, sizeof text, 0) == 6 && memcmp(text, "to all", 6) == 0);
        CHECK(recv(clients[i], text, sizeof text, 0) == 6 && memcmp(text, "to you", 6) == 0);
        CHECK(close(clients[i]) == 0);
    }
    CHECK(close(server) == 0);
}

static unsigned associations(int fd)
{
    unsigned count = 99;
    socklen_t bytes = sizeof count;
    CHECK(getsockopt(fd, IPPROTO_SCTP, SCTP_GET_ASSOC_NUMBER, &count, &bytes) == 0);
    return count;
}

/* An association that a message would begin does not exist if the message cannot be sent. */
static void without_its_first_message(void)
{
    struct sockaddr_in a = loopback(21);
    struct sndrcvinfo info = {.stream = 99};
    int server = one_to_many(21), fd = one_to_many(0);
    CHECK(listen(server, 5) == 0);
    for (int i = 0; i < 3; i++) {
        FAILS(say(fd, "no stream", &a, SCTP_SNDRCV, &info, sizeof info), EINVAL);
        CHECK(associations(fd) == 0);
    }
    CHECK(polls(fd, POLLIN, 0) == 0 && polls(server, POLLIN, 0) == 0);
    CHECK(connect(fd, (struct sockaddr *)&a, sizeof a) == 0 && associations(fd) == 1);
    CHECK(changed(fd, COMM_UP) != 0 && changed(server, COMM_UP) != 0);
    CHECK(close(fd) == 0 && close(server) == 0);
}

/* An association that is aborted while it is being set up ends, with the messages that wait for it. */
static void aborted_before_it_is_up(void)
{
    struct sockaddr_in a = loopback(0), nobody = loopback(22);
    struct udpencaps silent = {0};
    socklen_t bytes = sizeof a;
    int deaf = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(bind(deaf, (struct sockaddr *)&a, sizeof a) == 0 && getsockname(deaf, (struct sockaddr *)&a, &bytes) == 0);
    silent.port = a.sin_port;
    for (int with_message = 0; with_message < 2; with_message++) {
        char events[] = {1, 1, 0, 1, 0, 1, 0, 0};
        uint32_t ids[2];
        int fd = one_to_many(0);
        CHECK(setsockopt(fd, IPPROTO_SCTP, SCTP_EVENTS, events, sizeof events) == 0);
        CHECK(setsockopt(fd, IPPROTO_SCTP, SCTP_REMOTE_UDP_ENCAPS_PORT, &silent, sizeof silent) == 0);
        CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
        if (with_message)
            CHECK(say(fd, "a word", &nobody, 0, NULL, 0) == 6);
        else
            FAILS(connect(fd, (struct sockaddr *)&nobody, sizeof nobody), EINPROGRESS);
        bytes = sizeof ids;
        CHECK(getsockopt(fd, IPPROTO_SCTP, SCTP_GET_ASSOC_ID_LIST, ids, &bytes) == 0 && ids[0] == 1);
        CHECK(say_by_id(fd, "", ids[1], SCTP_ABORT) == 0 && associations(fd) == 0);
        CHECK(polls(fd, POLLIN, 5000) == POLLIN && changed(fd, CANT_STR_ASSOC) == 0);
        if (with_message) {
            CHECK(polls(fd, POLLIN, 5000) == POLLIN);
            struct heard h = hear(fd, 0);
            CHECK(h.flags == (MSG_NOTIFICATION | MSG_EOR) && *(uint16_t *)h.text == SEND_FAILED);
            CHECK(h.text[2] == 0 && memcmp(h.text + h.bytes - 6, "a word", 6) == 0);
        }
        CHECK(polls(fd, POLLIN, 0) == 0);
        CHECK(close(fd) == 0);
    }
    CHECK(close(deaf) == 0);
}

int main(void)
{
    begin();
    alarm(PATIENCE_S);
    without_its_first_message();
    aborted_before_it_is_up();
    implicitly();
    peeled_off();
    several_addresses();
    addresses_of_a_listener();
    elsewhere();
    between_parts(15, 0);
    between_parts(16, 1);
    one_that_does_not_read();
    one_that_has_shut_down();
    shut_down_and_peeled_off();
    crowd();
    return 0;
}
