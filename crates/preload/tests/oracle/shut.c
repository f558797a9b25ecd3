/* Calls of a program that has shut down both directions of its association, and still has the descriptor. */
#include "oracle.h"

/* Blocks that the peer has no room for. */
enum { BLOCK_BYTES = 20000, BLOCKS = 3, SMALL_BUFFER = 8192 };

static char block[BLOCK_BYTES];

/* Options of SCTP, with the length of their structures. */
static const struct {
    const char *name;
    int number, bytes;
} options[] = {
    {"SCTP_RTOINFO", SCTP_RTOINFO, sizeof(struct sctp_rtoinfo)},
    {"SCTP_ASSOCINFO", SCTP_ASSOCINFO, sizeof(struct sctp_assocparams)},
    {"SCTP_INITMSG", SCTP_INITMSG, sizeof(struct sctp_initmsg)},
    {"SCTP_NODELAY", SCTP_NODELAY, sizeof(int)},
    {"SCTP_AUTOCLOSE", SCTP_AUTOCLOSE, sizeof(int)},
    {"SCTP_DISABLE_FRAGMENTS", SCTP_DISABLE_FRAGMENTS, sizeof(int)},
    {"SCTP_PEER_ADDR_PARAMS", SCTP_PEER_ADDR_PARAMS, sizeof(struct sctp_paddrparams)},
    {"SCTP_DEFAULT_SEND_PARAM", SCTP_DEFAULT_SEND_PARAM, sizeof(struct sctp_sndrcvinfo)},
    {"SCTP_EVENTS", SCTP_EVENTS, sizeof(struct sctp_event_subscribe)},
    {"SCTP_I_WANT_MAPPED_V4_ADDR", SCTP_I_WANT_MAPPED_V4_ADDR, sizeof(int)},
    {"SCTP_MAXSEG", SCTP_MAXSEG, sizeof(struct sctp_assoc_value)},
    {"SCTP_DELAYED_SACK", SCTP_DELAYED_SACK, sizeof(struct sctp_sack_info)},
    {"SCTP_CONTEXT", SCTP_CONTEXT, sizeof(struct sctp_assoc_value)},
    {"SCTP_FRAGMENT_INTERLEAVE", SCTP_FRAGMENT_INTERLEAVE, sizeof(int)},
    {"SCTP_PARTIAL_DELIVERY_POINT", SCTP_PARTIAL_DELIVERY_POINT, sizeof(int)},
    {"SCTP_MAX_BURST", SCTP_MAX_BURST, sizeof(struct sctp_assoc_value)},
    {"SCTP_RECVRCVINFO", SCTP_RECVRCVINFO, sizeof(int)},
    {"SCTP_DEFAULT_SNDINFO", SCTP_DEFAULT_SNDINFO, sizeof(struct sctp_sndinfo)},
    {"SCTP_STREAM_SCHEDULER", SCTP_STREAM_SCHEDULER, sizeof(struct sctp_assoc_value)},
};

/* Sets what it has got, and a linger time. */
static void ask_for_all(int fd)
{
    for (int i = 0; i < COUNT(options); i++) {
        char value[256] = {0};
        socklen_t bytes = options[i].bytes;
        SAY(getsockopt(fd, IPPROTO_SCTP, options[i].number, value, &bytes), "get %s", options[i].name);
        SAY(setsockopt(fd, IPPROTO_SCTP, options[i].number, value, bytes), "set %s", options[i].name);
    }
    struct sctp_status status = {0};
    socklen_t bytes = sizeof status;
    SAY(getsockopt(fd, IPPROTO_SCTP, SCTP_STATUS, &status, &bytes), "SCTP_STATUS");
    struct sctp_assoc_stats stats = {0};
    bytes = sizeof stats;
    SAY(getsockopt(fd, IPPROTO_SCTP, SCTP_GET_ASSOC_STATS, &stats, &bytes), "SCTP_GET_ASSOC_STATS");
    struct linger linger;
    bytes = sizeof linger;
    SAY(getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &bytes), "get SO_LINGER");
    SAY(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger), "set SO_LINGER");
    int number;
    bytes = sizeof number;
    SAY(getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &number, &bytes), "get SO_RCVBUF");
    SAY(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &number, sizeof number), "set SO_RCVBUF");
    SAY(getsockopt(fd, SOL_SOCKET, SO_ERROR, &number, &bytes), "get SO_ERROR");
    printf("then %d\n", number);
    char list[256] = {0};
    bytes = sizeof list;
    SAY(getsockopt(fd, IPPROTO_SCTP, SCTP_GET_LOCAL_ADDRS, list, &bytes), "SCTP_GET_LOCAL_ADDRS");
    bytes = sizeof list;
    SAY(getsockopt(fd, IPPROTO_SCTP, SCTP_GET_PEER_ADDRS, list, &bytes), "SCTP_GET_PEER_ADDRS");
}

/* Other calls of the socket; `port` is free. */
static void call_all(int fd, int port)
{
    char word[8];
    struct sockaddr_in a, other = at("127.0.0.1", port);
    socklen_t bytes = sizeof a;
    struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT | POLLRDHUP};
    SAY(poll(&p, 1, 0), "poll");
    printf("then%s%s%s%s%s\n", p.revents & POLLIN ? " in" : "", p.revents & POLLOUT ? " out" : "",
           p.revents & POLLRDHUP ? " rdhup" : "", p.revents & POLLHUP ? " hup" : "", p.revents & POLLERR ? " err" : "");
    int number = -1;
    SAY(ioctl(fd, FIONREAD, &number), "FIONREAD");
    SAY(recv(fd, word, sizeof word, 0), "recv");
    SAY(send(fd, "x", 1, 0), "send");
    SAY(getsockname(fd, SA(a), &bytes), "getsockname");
    bytes = sizeof a;
    SAY(getpeername(fd, SA(a), &bytes), "getpeername");
    SAY(bind(fd, SA(other), sizeof other), "bind");
    SAY(shutdown(fd, SHUT_RDWR), "shutdown of both");
    SAY(shutdown(fd, SHUT_WR), "shutdown of writing");
}

static int is_gone(int fd)
{
    struct sctp_status status = {0};
    socklen_t bytes = sizeof status;
    return getsockopt(fd, IPPROTO_SCTP, SCTP_STATUS, &status, &bytes) != 0 || status.sstat_state == SCTP_CLOSED;
}

static void wait_until_gone(int fd)
{
    for (int turn = 0; !is_gone(fd); turn++) {
        NEEDED(turn < 10000);
        usleep(1000);
    }
}

/* Returns the error of a bind to this port, 0 for none. */
static int error_of_bind(int port)
{
    struct sockaddr_in a = at("127.0.0.1", port);
    int fd = fresh(SOCK_STREAM);
    int error = bind(fd, SA(a), sizeof a) == 0 ? 0 : errno;
    close(fd);
    return error;
}

/* An association whose client is bound to a port of its own, and whose server has little room. */
static struct joined bound(int *port)
{
    int room = SMALL_BUFFER;
    struct joined j = {.port = next_port(), .client = fresh(SOCK_STREAM)};
    struct sockaddr_in a = at("127.0.0.1", j.port), own = at("127.0.0.1", *port = next_port());
    j.listener = fresh(SOCK_STREAM);
    NEEDED(setsockopt(j.listener, SOL_SOCKET, SO_RCVBUF, &room, sizeof room) == 0);
    NEEDED(bind(j.listener, SA(a), sizeof a) == 0 && listen(j.listener, 5) == 0);
    NEEDED(bind(j.client, SA(own), sizeof own) == 0 && connect(j.client, SA(a), sizeof a) == 0);
    NEEDED(readable(j.listener) && (j.server = accept(j.listener, NULL, NULL)) >= 0);
    return j;
}

enum how { BOTH_AT_ONCE, ONE_AFTER_THE_OTHER, WRITING, WRITING_AFTER_THE_END };

static void shuts_down(enum how how)
{
    static const char *const names[] = {"both at once", "one after the other", "writing", "writing after the peer"};
    char word[8];
    int port;
    struct joined j = bound(&port);
    printf("-- it shuts down %s\n", names[how]);
    switch (how) {
    case BOTH_AT_ONCE: NEEDED(shutdown(j.client, SHUT_RDWR) == 0); break;
    case ONE_AFTER_THE_OTHER: NEEDED(shutdown(j.client, SHUT_RD) == 0 && shutdown(j.client, SHUT_WR) == 0); break;
    case WRITING: NEEDED(shutdown(j.client, SHUT_WR) == 0); break;
    case WRITING_AFTER_THE_END:
        NEEDED(shutdown(j.server, SHUT_WR) == 0 && recv(j.client, word, sizeof word, 0) == 0);
        SAY(shutdown(j.client, SHUT_WR), "shutdown of writing");
        break;
    }
    wait_until_gone(j.client);
    ask_for_all(j.client);
    call_all(j.client, next_port());
    printf("bind of another: %s\n", strerrorname_np(error_of_bind(port)));
    close(j.client);
    printf("bind of another after close: %s\n", strerrorname_np(error_of_bind(port)));
    close(j.server);
    close(j.listener);
}

/* Data still waits, in both directions. */
static void shuts_down_before_the_end(void)
{
    static char place[BLOCK_BYTES];
    struct iovec space = {place, sizeof place};
    struct msghdr m = {.msg_iov = &space, .msg_iovlen = 1};
    int port;
    struct joined j = bound(&port);
    printf("-- it shuts down both while data waits\n");
    NEEDED(send(j.server, "unread", 6, 0) == 6 && readable(j.client));
    for (int n = 0; n < BLOCKS; n++)
        NEEDED(send(j.client, block, sizeof block, 0) == sizeof block);
    NEEDED(shutdown(j.client, SHUT_RDWR) == 0);
    SAY(recv(j.client, place, sizeof place, 0), "recv of what has come");
    ask_for_all(j.client);
    call_all(j.client, next_port());
    printf("bind of another: %s\n", strerrorname_np(error_of_bind(port)));
    long whole = 0, bytes = 0;
    while (readable(j.server)) {
        ssize_t n = recvmsg(j.server, &m, 0);
        if (n <= 0)
            break;
        bytes += n;
        whole += (m.msg_flags & MSG_EOR) != 0;
    }
    printf("the peer has read %ld bytes, %ld messages\n", bytes, whole);
    wait_until_gone(j.client);
    part(&j);
}

/* The copy of another process keeps the socket, too. */
static void shares(void)
{
    int port, left;
    struct joined j = bound(&port);
    printf("-- a copy of the descriptor stays\n");
    NEEDED(shutdown(j.client, SHUT_RDWR) == 0);
    wait_until_gone(j.client);
    NEEDED((left = dup(j.client)) >= 0);
    close(j.client);
    struct sctp_rtoinfo rto = {0};
    socklen_t bytes = sizeof rto;
    SAY(getsockopt(left, IPPROTO_SCTP, SCTP_RTOINFO, &rto, &bytes), "get SCTP_RTOINFO");
    printf("bind of another: %s\n", strerrorname_np(error_of_bind(port)));
    close(left);
    printf("bind of another after close: %s\n", strerrorname_np(error_of_bind(port)));
    close(j.server);
    close(j.listener);
}

/* The last close ends what still waits. */
static void closes_with_unread_data(void)
{
    char word[8];
    int port;
    struct joined j = bound(&port);
    printf("-- it closes with unread data after it has shut down both\n");
    NEEDED(send(j.server, "unread", 6, 0) == 6 && readable(j.client));
    for (int n = 0; n < BLOCKS; n++)
        NEEDED(send(j.client, block, sizeof block, 0) == sizeof block);
    NEEDED(shutdown(j.client, SHUT_RDWR) == 0);
    close(j.client);
    ssize_t bytes;
    errno = 0;
    while ((bytes = recv(j.server, word, sizeof word, 0)) > 0)
        ;
    said(bytes, "recv of the peer, at last");
    putchar('\n');
    close(j.server);
    close(j.listener);
}

int main(void)
{
    begin();
    for (enum how how = BOTH_AT_ONCE; how <= WRITING_AFTER_THE_END; how++)
        shuts_down(how);
    shuts_down_before_the_end();
    shares();
    closes_with_unread_data();
    return 0;
}
