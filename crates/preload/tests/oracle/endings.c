/* Calls of a program whose peer has shut down, closed or aborted, and the path MTU that a program sets. */
#include "oracle.h"

/* Blocks that the peer has no room for, and the client's buffer has. */
enum { BLOCK_BYTES = 20000, BLOCKS = 3, SMALL_BUFFER = 8192, FULL_TIMES = 5, PAUSE_US = 50000 };

static char block[BLOCK_BYTES];

/* Prints the state of an association, by the name of RFC 6458. */
static void state(int fd, int id, const char *when)
{
    static const char *const names[] = {"EMPTY", "CLOSED", "COOKIE_WAIT", "COOKIE_ECHOED", "ESTABLISHED", "SHUTDOWN_PENDING",
                                        "SHUTDOWN_SENT", "SHUTDOWN_RECEIVED", "SHUTDOWN_ACK_SENT"};
    struct sctp_status status = {.sstat_assoc_id = id};
    socklen_t bytes = sizeof status;
    errno = 0;
    if (said(getsockopt(fd, IPPROTO_SCTP, SCTP_STATUS, &status, &bytes), "SCTP_STATUS %s", when))
        printf(" %s", status.sstat_state >= 0 && status.sstat_state < COUNT(names) ? names[status.sstat_state] : "?");
    putchar('\n');
}

/* Waits until a condition holds; no event announces it. */
#define AWAITED(condition)                                                                         \
    do {                                                                                           \
        for (int turn = 0; !(condition); turn++) {                                                 \
            NEEDED(turn < 10000);                                                                  \
            usleep(1000);                                                                          \
        }                                                                                          \
    } while (0)

static int is_in(int fd, int id, int state)
{
    struct sctp_status status = {.sstat_assoc_id = id};
    socklen_t bytes = sizeof status;
    return getsockopt(fd, IPPROTO_SCTP, SCTP_STATUS, &status, &bytes) == 0 && status.sstat_state == state;
}

static int is_gone(int fd, int id)
{
    struct sctp_status status = {.sstat_assoc_id = id};
    socklen_t bytes = sizeof status;
    return getsockopt(fd, IPPROTO_SCTP, SCTP_STATUS, &status, &bytes) != 0;
}

/* Sends to one association, with flags of its own. */
static ssize_t send_to(int fd, int id, const void *content, size_t bytes, int sctp_flags, int flags)
{
    char room[CMSG_SPACE(sizeof(struct sctp_sndrcvinfo))] = {0};
    struct iovec part = {(void *)content, bytes};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    struct sctp_sndrcvinfo info = {.sinfo_flags = sctp_flags, .sinfo_assoc_id = id};
    c->cmsg_level = IPPROTO_SCTP;
    c->cmsg_type = SCTP_SNDRCV;
    c->cmsg_len = CMSG_LEN(sizeof info);
    memcpy(CMSG_DATA(c), &info, sizeof info);
    return sendmsg(fd, &m, flags);
}

static void small_buffer(int fd)
{
    int bytes = SMALL_BUFFER;
    NEEDED(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes) == 0);
}

/* An association whose server has little room. */
static struct joined narrow(int style)
{
    struct joined j = {.port = next_port(), .client = fresh(style), .listener = -1};
    struct sockaddr_in a = at("127.0.0.1", j.port);
    j.server = fresh(style);
    small_buffer(j.server);
    NEEDED(bind(j.server, SA(a), sizeof a) == 0 && listen(j.server, 5) == 0);
    NEEDED(connect(j.client, SA(a), sizeof a) == 0);
    if (style == SOCK_STREAM) {
        j.listener = j.server;
        NEEDED(readable(j.listener) && (j.server = accept(j.listener, NULL, NULL)) >= 0);
    } else {
        j.id = first_association(j.client);
    }
    return j;
}

/* Calls of the client of an ended association. */
static void afterwards(struct joined *j, int style)
{
    char word[8];
    struct sockaddr_in a, other = at("127.0.0.1", next_port());
    socklen_t bytes = sizeof a;
    state(j->client, j->id, "after the end");
    SAY(recv(j->client, word, sizeof word, MSG_DONTWAIT), "recv after the end");
    if (style == SOCK_STREAM) {
        SAY(send(j->client, "x", 1, 0), "send after the end");
        SAY(getpeername(j->client, SA(a), &bytes), "getpeername after the end");
        SAY(bind(j->client, SA(other), sizeof other), "bind after the end");
        SAY(listen(j->client, 5), "listen after the end");
    } else {
        SAY(send_to(j->client, j->id, "x", 1, 0, 0), "send to the association after the end");
    }
    SAY(recv(j->client, word, sizeof word, MSG_DONTWAIT), "recv after that");
}

/* The peer shuts down while nothing waits for it, or before it has received all messages. */
static void peer_shuts_down(int style, int waits)
{
    char word[8];
    struct joined j = waits ? narrow(style) : joined(style);
    printf("-- %s: the peer shuts down%s\n", style_name(style), waits ? " while data waits" : "");
    int server_id = style == SOCK_STREAM ? 0 : first_association(j.server);
    for (int n = 0; waits && n < BLOCKS; n++)
        NEEDED(send_to(j.client, j.id, block, sizeof block, 0, 0) == sizeof block);
    if (style == SOCK_STREAM)
        NEEDED(shutdown(j.server, SHUT_WR) == 0);
    else
        NEEDED(send_to(j.server, server_id, NULL, 0, SCTP_EOF, 0) == 0);
    if (waits) {
        AWAITED(is_in(j.client, j.id, SCTP_SHUTDOWN_RECEIVED));
        state(j.client, j.id, "while data waits");
        SAY(recv(j.client, word, sizeof word, MSG_DONTWAIT), "recv while data waits");
        SAY(send_to(j.client, j.id, "x", 1, 0, MSG_DONTWAIT), "send while data waits");
        SAY(send_to(j.client, j.id, "x", 1, SCTP_UNORDERED, MSG_DONTWAIT), "send unordered while data waits");
        SAY(send_to(j.client, j.id, block, sizeof block, 0, MSG_DONTWAIT), "send of much while data waits");
        if (style == SOCK_SEQPACKET)
            SAY(send_to(j.client, 0, "x", 1, SCTP_SENDALL, MSG_DONTWAIT), "send to all while data waits");
        SAY(send_to(j.client, j.id, NULL, 0, SCTP_EOF, MSG_DONTWAIT), "SCTP_EOF while data waits");
        SAY(recv(j.client, word, sizeof word, MSG_DONTWAIT), "recv after that");
        if (style == SOCK_STREAM)
            SAY(shutdown(j.client, SHUT_WR), "shutdown while data waits");
        static char place[BLOCK_BYTES];
        struct iovec part = {place, sizeof place};
        struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
        long whole = 0, bytes = 0;
        while (bytes < (long)BLOCKS * BLOCK_BYTES && readable(j.server)) {
            ssize_t n = recvmsg(j.server, &m, 0);
            if (n <= 0)
                break;
            bytes += n;
            whole += (m.msg_flags & MSG_EOR) != 0;
        }
        printf("messages that the peer has read: %s\n", whole == BLOCKS ? "all" : "some");
    }
    AWAITED(is_gone(j.client, j.id));
    afterwards(&j, style);
    part(&j);
}

/* Data that a program has sent before the peer shuts down arrives, however much of it waits. */
static void peer_shuts_down_while_much_waits(int style)
{
    static char place[BLOCK_BYTES];
    struct iovec piece = {place, sizeof place};
    struct msghdr m = {.msg_iov = &piece, .msg_iovlen = 1};
    struct joined j = narrow(style);
    int server_id = style == SOCK_STREAM ? 0 : first_association(j.server);
    long sent = 0, whole = 0, bytes = 0;
    printf("-- %s: the peer shuts down while much waits\n", style_name(style));
    /* There may be room again once the messages have moved on. */
    for (int times = 0; times < FULL_TIMES; times++) {
        for (; send_to(j.client, j.id, block, sizeof block, 0, MSG_DONTWAIT) == sizeof block; times = 0)
            sent++;
        usleep(PAUSE_US);
    }
    if (style == SOCK_STREAM)
        NEEDED(shutdown(j.server, SHUT_WR) == 0);
    else
        NEEDED(send_to(j.server, server_id, NULL, 0, SCTP_EOF, 0) == 0);
    AWAITED(is_in(j.client, j.id, SCTP_SHUTDOWN_RECEIVED));
    while (bytes < sent * BLOCK_BYTES && readable(j.server)) {
        ssize_t n = recvmsg(j.server, &m, 0);
        if (n <= 0)
            break;
        bytes += n;
        whole += (m.msg_flags & MSG_EOR) != 0;
    }
    printf("messages that the peer has read: %s\n", sent > BLOCKS && whole == sent ? "all" : "some");
    AWAITED(is_gone(j.client, j.id));
    part(&j);
}

/* A program with notifications that are still to come finds the end where the data ends, too. */
static void peer_shuts_down_and_it_is_told(void)
{
    char word[8];
    struct joined j = narrow(SOCK_STREAM);
    struct sctp_event_subscribe events = {.sctp_association_event = 1};
    printf("-- one-to-one: the peer shuts down while data waits, with notifications\n");
    NEEDED(setsockopt(j.client, IPPROTO_SCTP, SCTP_EVENTS, &events, sizeof events) == 0);
    for (int n = 0; n < BLOCKS; n++)
        NEEDED(send(j.client, block, sizeof block, 0) == sizeof block);
    NEEDED(shutdown(j.server, SHUT_WR) == 0);
    AWAITED(is_in(j.client, j.id, SCTP_SHUTDOWN_RECEIVED));
    SAY(recv(j.client, word, sizeof word, MSG_DONTWAIT), "recv while data waits");
    SAY(recv(j.client, word, sizeof word, 0), "recv that may wait");
    part(&j);
}

static void peer_closes(int style)
{
    struct joined j = joined(style);
    printf("-- %s: the peer closes\n", style_name(style));
    close(j.server);
    AWAITED(is_gone(j.client, j.id));
    afterwards(&j, style);
    j.server = -1;
    part(&j);
}

static void peer_aborts(int style)
{
    struct joined j = joined(style);
    struct linger at_once = {.l_onoff = 1};
    printf("-- %s: the peer aborts\n", style_name(style));
    if (style == SOCK_STREAM) {
        NEEDED(setsockopt(j.server, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0 && close(j.server) == 0);
        j.server = -1;
    } else {
        int id = first_association(j.server);
        NEEDED(send_to(j.server, id, NULL, 0, SCTP_ABORT, 0) == 0);
        state(j.server, id, "of the one that has aborted");
    }
    AWAITED(is_gone(j.client, j.id));
    afterwards(&j, style);
    part(&j);
}

static void shuts_down_itself(void)
{
    struct joined j = joined(SOCK_STREAM);
    printf("-- one-to-one: it shuts down itself\n");
    NEEDED(shutdown(j.client, SHUT_WR) == 0);
    AWAITED(is_gone(j.client, j.id));
    afterwards(&j, SOCK_STREAM);
    part(&j);
}

/* Returns how many DATA chunks the client has sent. */
static unsigned long long chunks_sent(int client)
{
    struct sctp_assoc_stats stats = {0};
    socklen_t bytes = sizeof stats;
    NEEDED(getsockopt(client, IPPROTO_SCTP, SCTP_GET_ASSOC_STATS, &stats, &bytes) == 0);
    return stats.sas_oodchunks;
}

/* Sends a message that two packets of this size hold with the headers of IPv4, and three with those of IPv6. */
static void fills_packets(int client, int server, int packet)
{
    size_t length = 2 * packet - 130;
    unsigned long long before = chunks_sent(client);
    NEEDED(send(client, block, length, 0) == (ssize_t)length);
    for (size_t got = 0; got < length;) {
        static char place[BLOCK_BYTES];
        ssize_t bytes = recv(server, place, sizeof place, 0);
        NEEDED(bytes > 0);
        got += bytes;
    }
    printf("packets for %zu bytes: %llu\n", length, chunks_sent(client) - before);
}

/* A path MTU that a program sets bounds packets with all their headers. */
static void path_mtu(int family, int mtu)
{
    int port = next_port(), server = socket(family, SOCK_STREAM, IPPROTO_SCTP), client = socket(family, SOCK_STREAM, IPPROTO_SCTP);
    struct sockaddr_in a = at("127.0.0.1", port);
    struct sockaddr_in6 a6 = at6("::1", port);
    struct sockaddr *address = family == AF_INET ? SA(a) : SA(a6);
    socklen_t bytes = family == AF_INET ? sizeof a : sizeof a6;
    printf("-- path MTU %d of IPv%d\n", mtu, family == AF_INET ? 4 : 6);
    NEEDED(server >= 0 && client >= 0 && bind(server, address, bytes) == 0 && listen(server, 1) == 0);
    struct sctp_paddrparams p = {.spp_flags = SPP_PMTUD_DISABLE, .spp_pathmtu = mtu};
    SAY(setsockopt(client, IPPROTO_SCTP, SCTP_PEER_ADDR_PARAMS, &p, sizeof p), "spp_pathmtu before connect");
    NEEDED(connect(client, address, bytes) == 0);
    int accepted = accept(server, NULL, NULL);
    NEEDED(accepted >= 0);
    fills_packets(client, accepted, mtu);
    struct sctp_status s = {0};
    bytes = sizeof s;
    said(getsockopt(client, IPPROTO_SCTP, SCTP_STATUS, &s, &bytes), "SCTP_STATUS");
    printf(" primary mtu %u\n", s.sstat_primary.spinfo_mtu);
    p = (struct sctp_paddrparams){.spp_flags = SPP_PMTUD_DISABLE, .spp_pathmtu = mtu - 100};
    memcpy(&p.spp_address, address, family == AF_INET ? sizeof a : sizeof a6);
    SAY(setsockopt(client, IPPROTO_SCTP, SCTP_PEER_ADDR_PARAMS, &p, sizeof p), "spp_pathmtu of the path");
    bytes = sizeof p;
    said(getsockopt(client, IPPROTO_SCTP, SCTP_PEER_ADDR_PARAMS, &p, &bytes), "SCTP_PEER_ADDR_PARAMS");
    printf(" pathmtu %u flags %x\n", p.spp_pathmtu, p.spp_flags & (SPP_PMTUD_ENABLE | SPP_PMTUD_DISABLE));
    bytes = sizeof s;
    said(getsockopt(client, IPPROTO_SCTP, SCTP_STATUS, &s, &bytes), "SCTP_STATUS");
    printf(" primary mtu %u\n", s.sstat_primary.spinfo_mtu);
    fills_packets(client, accepted, mtu - 100);
    close(accepted);
    close(client);
    close(server);
}

/* A program that has ended an association with SCTP_EOF sends no more, while earlier messages are on their way. */
static void sends_after_its_end(void)
{
    static char place[BLOCK_BYTES];
    struct iovec piece = {place, sizeof place};
    struct msghdr m = {.msg_iov = &piece, .msg_iovlen = 1};
    struct joined j = narrow(SOCK_SEQPACKET);
    long whole = 0, bytes = 0;
    printf("-- one-to-many: it sends after SCTP_EOF while data waits\n");
    for (int n = 0; n < BLOCKS; n++)
        NEEDED(send_to(j.client, j.id, block, sizeof block, 0, 0) == sizeof block);
    SAY(send_to(j.client, j.id, NULL, 0, SCTP_EOF, 0), "SCTP_EOF");
    SAY(send_to(j.client, j.id, "x", 1, 0, 0), "send");
    SAY(send_to(j.client, j.id, "x", 1, SCTP_UNORDERED, MSG_DONTWAIT), "send unordered");
    SAY(send_to(j.client, 0, "x", 1, SCTP_SENDALL, MSG_DONTWAIT), "send to all");
    SAY(send_to(j.client, j.id, NULL, 0, SCTP_EOF, MSG_DONTWAIT), "SCTP_EOF again");
    while (bytes < (long)BLOCKS * BLOCK_BYTES && readable(j.server)) {
        ssize_t n = recvmsg(j.server, &m, 0);
        if (n <= 0)
            break;
        bytes += n;
        whole += (m.msg_flags & MSG_EOR) != 0;
    }
    printf("messages that the peer has read: %s\n", whole == BLOCKS ? "all" : "some");
    AWAITED(is_gone(j.client, j.id));
    afterwards(&j, SOCK_SEQPACKET);
    part(&j);
}

int main(void)
{
    static const int styles[] = {SOCK_STREAM, SOCK_SEQPACKET}, mtus[] = {1400, 1500};
    begin();
    for (int i = 0; i < COUNT(styles); i++) {
        peer_shuts_down(styles[i], 0);
        peer_shuts_down(styles[i], 1);
        peer_shuts_down_while_much_waits(styles[i]);
        peer_closes(styles[i]);
        peer_aborts(styles[i]);
    }
    peer_shuts_down_and_it_is_told();
    shuts_down_itself();
    sends_after_its_end();
    for (int i = 0; i < COUNT(mtus); i++) {
        path_mtu(AF_INET, mtus[i]);
        path_mtu(AF_INET6, mtus[i]);
    }
    return 0;
}
