/* A small receive buffer bounds what a peer gets rid of while nobody reads, and nothing is lost or hangs for that. */
#include "check.h"

enum { SCTP_EVENTS = 11, SCTP_PEELOFF = 102, SCTP_SNDRCV = 1 };
enum { MESSAGE = 1000, MORE = 500 };
/* More than any of the buffers and a pair hold, and less than a send buffer. */
enum { FLOOD = 500, LIFETIME_MS = 1000 };
/* Bytes beyond a closed window: its probes. */
enum { PROBES = 8 };

struct sndrcvinfo {
    uint16_t stream, ssn, flags;
    uint32_t ppid, context, timetolive, tsn, cumtsn;
    int32_t assoc_id;
};

struct pair {
    int client, server;
};

static void set_receive_buffer(int fd, int bytes)
{
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes) == 0);
}

static int receive_buffer(int fd)
{
    int bytes;
    socklen_t length = sizeof bytes;
    CHECK(getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, &length) == 0);
    return bytes;
}

/* The receive buffer is the server's. */
static struct pair joined_with(int port, int bytes)
{
    struct sockaddr_in a = loopback(port);
    int listener = fresh(0);
    set_receive_buffer(listener, bytes);
    CHECK(bind(listener, (struct sockaddr *)&a, sizeof a) == 0 && listen(listener, 1) == 0);
    struct pair p = {.client = connected(port)};
    CHECK((p.server = accept(listener, NULL, NULL)) >= 0 && close(listener) == 0);
    return p;
}

static void numbered(char *message, int number)
{
    fill(message, MESSAGE, number);
    memcpy(message, &number, sizeof number);
}

static ssize_t send_numbered(int fd, int number, int flags)
{
    char message[MESSAGE];
    numbered(message, number);
    return send(fd, message, MESSAGE, flags);
}

/* Sends from number 0 on until the socket takes no more for good; says how many it took. */
static int send_until_full(int fd)
{
    int sent = 0;
    do {
        while (send_numbered(fd, sent, MSG_DONTWAIT) == MESSAGE)
            sent++;
        CHECK(errno == EAGAIN);
    } while (polls(fd, POLLOUT, 300) == POLLOUT);
    return sent;
}

static int number_of(const char *message, ssize_t bytes)
{
    char expected[MESSAGE];
    int number;
    memcpy(&number, message, sizeof number);
    numbered(expected, number);
    CHECK(bytes == MESSAGE && memcmp(message, expected, MESSAGE) == 0);
    return number;
}

/* Reads from number `next` on to the end; says which number would have been the next, and why there is none in `errno`. */
static int read_to_end(int fd, int next)
{
    char message[MESSAGE + 1];
    ssize_t bytes;
    for (errno = 0; (bytes = recv(fd, message, sizeof message, 0)) > 0; next++)
        CHECK(number_of(message, bytes) == next);
    return next;
}

/* Sends more messages than the buffer has room for. Those whose lifetime ends before they leave do not arrive,
 * except the last. */
static void flood(int fd)
{
    struct sndrcvinfo info = {.timetolive = LIFETIME_MS};
    char message[MESSAGE], control[CMSG_SPACE(sizeof info)] __attribute__((aligned(8))) = {0};
    struct iovec part = {message, MESSAGE};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    *c = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof info), .cmsg_level = IPPROTO_SCTP, .cmsg_type = SCTP_SNDRCV};
    memcpy(CMSG_DATA(c), &info, sizeof info);
    for (int number = 0; number < FLOOD; number++) {
        numbered(message, number);
        CHECK(sendmsg(fd, &m, 0) == MESSAGE);
    }
    CHECK(send(fd, "last", 4, 0) == 4);
}

static void check_bound(int messages, int buffer)
{
    CHECK(messages * MESSAGE >= buffer / 2);
    CHECK(messages * MESSAGE <= buffer + PROBES * MESSAGE);
}

/* Reads what a flood has left: a probe of the window may have come after some that were too late. */
static void check_flooded(int fd)
{
    char message[MESSAGE + 1];
    ssize_t bytes;
    int arrived = 0, last = -1;
    for (; (bytes = recv(fd, message, sizeof message, 0)) == MESSAGE; arrived++) {
        int number = number_of(message, bytes);
        CHECK(number > last);
        last = number;
    }
    CHECK(bytes == 4 && memcmp(message, "last", 4) == 0);
    check_bound(arrived, receive_buffer(fd));
}

struct rest {
    int fd, from, to;
};

/* Sends what is left, and no more. */
static void *send_rest(void *argument)
{
    struct rest *rest = argument;
    for (int number = rest->from; number < rest->to; number++)
        CHECK(send_numbered(rest->fd, number, 0) == MESSAGE);
    CHECK(shutdown(rest->fd, SHUT_WR) == 0);
    return NULL;
}

static void all_arrives_in_order(int client, int server, int first, int sent)
{
    struct rest rest = {client, sent, sent + MORE};
    pthread_t sender;
    CHECK(pthread_create(&sender, NULL, send_rest, &rest) == 0);
    CHECK(read_to_end(server, first) == sent + MORE);
    CHECK(pthread_join(sender, NULL) == 0);
}

static void reading_opens_the_window(int port, int bytes)
{
    struct pair p = joined_with(port, bytes);
    all_arrives_in_order(p.client, p.server, 0, send_until_full(p.client));
    CHECK(errno == 0 && close(p.client) == 0 && close(p.server) == 0);
}

/* A message that is longer than the buffer is read in parts, each of which makes room for the next. */
static void a_message_may_be_longer_than_the_buffer(int port)
{
    enum { LONG = 200000 };
    static char sent[LONG], got[LONG];
    struct pair p = joined_with(port, 4096);
    fill(sent, LONG, 1);
    CHECK(send(p.client, sent, LONG, 0) == LONG);
    int whole = 0;
    size_t all = 0;
    while (!whole) {
        ssize_t bytes = receive(p.server, got + all, LONG - all, 0, &whole);
        CHECK(bytes > 0);
        all += bytes;
    }
    CHECK(all == LONG && memcmp(sent, got, LONG) == 0);
    CHECK(close(p.client) == 0 && close(p.server) == 0);
}

static void *send_for_ever(void *fd)
{
    while (send_numbered(*(int *)fd, 0, 0) == MESSAGE)
        ;
    CHECK(errno == ECONNRESET || errno == EPIPE || errno == ESHUTDOWN);
    return NULL;
}

/* A sender that waits for room learns that nobody reads any more, whether anything was read by then or not. */
static void a_reader_that_leaves_lets_the_sender_go(int port, int messages)
{
    struct pair p = joined_with(port, 4096);
    char message[MESSAGE];
    pthread_t sender;
    send_until_full(p.client);
    CHECK(pthread_create(&sender, NULL, send_for_ever, &p.client) == 0);
    for (; messages > 0; messages--)
        CHECK(recv(p.server, message, sizeof message, 0) == MESSAGE);
    CHECK(close(p.server) == 0);
    CHECK(pthread_join(sender, NULL) == 0 && close(p.client) == 0);
}

/* A side that sends no more still reads its messages. */
static void a_reader_may_have_shut_down(int port)
{
    struct pair p = joined_with(port, 4096);
    send_until_full(p.client);
    CHECK(shutdown(p.server, SHUT_WR) == 0);
    int arrived = read_to_end(p.server, 0);
    CHECK((errno == 0 || errno == ENOTCONN) && arrived * MESSAGE > receive_buffer(p.server));
    CHECK(close(p.client) == 0 && close(p.server) == 0);
}

static int one_to_many(int port, int bytes)
{
    struct sockaddr_in a = loopback(port);
    char events[] = {1, 0, 0, 0, 0, 0, 0, 0};
    int fd = socket(AF_INET, SOCK_SEQPACKET, IPPROTO_SCTP);
    CHECK(fd >= 0 && setsockopt(fd, IPPROTO_SCTP, SCTP_EVENTS, events, sizeof events) == 0);
    set_receive_buffer(fd, bytes);
    CHECK(bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(fd, 5) == 0);
    return fd;
}

/* The next message, and its association. */
static ssize_t hear(int fd, char *place, size_t bytes, int32_t *association)
{
    struct sndrcvinfo info;
    char control[CMSG_SPACE(sizeof info)] __attribute__((aligned(8)));
    struct iovec part = {place, bytes};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t n = recvmsg(fd, &m, 0);
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    CHECK(n > 0 && c != NULL && c->cmsg_type == SCTP_SNDRCV);
    memcpy(&info, CMSG_DATA(c), sizeof info);
    *association = info.assoc_id;
    return n;
}

/* Each association of a one-to-many socket has the room. */
static void check_many_flooded(int fd)
{
    char message[MESSAGE + 1];
    int32_t ids[2] = {0, 0}, id;
    int arrived[2] = {0, 0};
    for (int ended = 0; ended < 2;) {
        ssize_t bytes = hear(fd, message, sizeof message, &id);
        int of = ids[0] == 0 || ids[0] == id ? 0 : 1;
        ids[of] = id;
        ended += bytes == 4;
        arrived[of] += bytes == MESSAGE;
    }
    check_bound(arrived[0], receive_buffer(fd));
    check_bound(arrived[1], receive_buffer(fd));
}

static void no_more_arrives_than_there_is_room_for(const int *sizes, int count)
{
    struct pair pairs[count];
    int servers[count], clients[2 * count];
    for (int i = 0; i < count; i++) {
        pairs[i] = joined_with(10 + i, sizes[i]);
        flood(pairs[i].client);
        servers[i] = one_to_many(20 + i, sizes[i]);
        for (int k = 2 * i; k < 2 * i + 2; k++)
            flood(clients[k] = connected(20 + i));
    }
    poll(NULL, 0, LIFETIME_MS + 200);
    for (int i = 0; i < count; i++) {
        check_flooded(pairs[i].server);
        check_many_flooded(servers[i]);
        CHECK(close(pairs[i].server) == 0 && close(pairs[i].client) == 0 && close(servers[i]) == 0);
        CHECK(close(clients[2 * i]) == 0 && close(clients[2 * i + 1]) == 0);
    }
}

/* Messages unread at peeling off keep the window closed, and are read on the new socket. */
static void a_closed_window_is_peeled_off(int port)
{
    int server = one_to_many(port, 4096), client = connected(port), other = connected(port);
    struct {
        int32_t assoc_id;
        int fd;
    } peeled = {0, -1};
    socklen_t length = sizeof peeled;
    char message[MESSAGE + 1];
    int32_t id;
    CHECK(send_numbered(other, 0, 0) == MESSAGE);
    hear(server, message, sizeof message, &id);
    send_until_full(other);
    int sent = send_until_full(client);
    do
        CHECK(hear(server, message, sizeof message, &peeled.assoc_id) == MESSAGE);
    while (peeled.assoc_id == id);
    CHECK(number_of(message, MESSAGE) == 0);
    CHECK(getsockopt(server, IPPROTO_SCTP, SCTP_PEELOFF, &peeled, &length) >= 0 && peeled.fd >= 0);
    all_arrives_in_order(client, peeled.fd, 1, sent);
    CHECK(close(client) == 0 && close(other) == 0 && close(peeled.fd) == 0 && close(server) == 0);
}

/* Long messages keep the window closed, too, whatever the size of the buffer: none comes before those that lie there are read. */
static void long_messages_wait_for_their_reader(int port)
{
    /* Fewer than these hold the sender back. */
    enum { LONG = 256 << 10, COUNT = 40, SCTP_STATUS = 14 };
    static char message[LONG];
    struct {
        int32_t id, state;
        uint32_t peer_window;
        char more[256];
    } status;
    int client, server, sent = 0;
    joined(port, &client, &server);
    while (sent < COUNT && polls(client, POLLOUT, 300) == POLLOUT)
        if (send(client, message, LONG, MSG_DONTWAIT) == LONG)
            sent++;
    CHECK(sent > 0 && sent < COUNT);
    socklen_t length = sizeof status;
    CHECK(getsockopt(client, IPPROTO_SCTP, SCTP_STATUS, &status, &length) == 0);
    CHECK(status.peer_window < LONG);
    CHECK(shutdown(client, SHUT_WR) == 0);
    long bytes = 0;
    for (ssize_t n; (n = recv(server, message, LONG, 0)) > 0;)
        bytes += n;
    CHECK(bytes == (long)sent * LONG);
    CHECK(close(client) == 0 && close(server) == 0);
}

int main(void)
{
    begin();
    int sizes[] = {4 << 10, 16 << 10, 60 << 10}, count = sizeof sizes / sizeof *sizes;
    no_more_arrives_than_there_is_room_for(sizes, count);
    for (int i = 0; i < count; i++)
        reading_opens_the_window(30 + i, sizes[i]);
    a_message_may_be_longer_than_the_buffer(40);
    a_reader_that_leaves_lets_the_sender_go(41, 0);
    a_reader_that_leaves_lets_the_sender_go(42, MORE);
    a_reader_may_have_shut_down(43);
    a_closed_window_is_peeled_off(44);
    long_messages_wait_for_their_reader(45);
    return 0;
}
