/* Ancillary data of messages (RFC 6458 sections 5.3 and 8), as C structures. */
#include "check.h"

enum { SCTP_INITMSG = 2, SCTP_EVENTS = 11, SCTP_RECVRCVINFO = 32, SCTP_RECVNXTINFO = 33 };
enum { SCTP_SNDRCV = 1, SCTP_SNDINFO = 2, SCTP_RCVINFO = 3, SCTP_NXTINFO = 4, MSG_NOTIFICATION = 0x8000 };
enum { SCTP_UNORDERED = 1, SCTP_ABORT = 4, SCTP_EOF = 0x200 };

struct sndrcvinfo {
    uint16_t stream, ssn, flags;
    uint32_t ppid, context, timetolive, tsn, cumtsn;
    int32_t assoc_id;
};
struct sndinfo {
    uint16_t stream, flags;
    uint32_t ppid, context;
    int32_t assoc_id;
};
struct rcvinfo {
    uint16_t stream, ssn, flags;
    uint32_t ppid, tsn, cumtsn, context;
    int32_t assoc_id;
};

struct nxtinfo {
    uint16_t stream, flags;
    uint32_t ppid, length;
    int32_t assoc_id;
};

static ssize_t say(int fd, const char *text, int type, const void *info, size_t bytes)
{
    char control[CMSG_SPACE(64)] = {0};
    struct iovec part = {(void *)text, strlen(text)};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control};
    m.msg_controllen = CMSG_SPACE(bytes);
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    *c = (struct cmsghdr){.cmsg_len = CMSG_LEN(bytes), .cmsg_level = IPPROTO_SCTP, .cmsg_type = type};
    memcpy(CMSG_DATA(c), info, bytes);
    return sendmsg(fd, &m, MSG_NOSIGNAL);
}

/* Receives a message with room for this much ancillary data; returns its flags. */
static int hear(int fd, char *text, void *control, size_t *bytes)
{
    struct iovec part = {text, 100};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = *bytes};
    ssize_t n = recvmsg(fd, &m, 0);
    CHECK(n >= 0);
    text[n] = 0;
    *bytes = m.msg_controllen;
    return m.msg_flags;
}

static void *find(char *control, size_t bytes, int type)
{
    struct msghdr m = {.msg_control = control, .msg_controllen = bytes};
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c != NULL; c = CMSG_NXTHDR(&m, c))
        if (c->cmsg_level == IPPROTO_SCTP && c->cmsg_type == type)
            return CMSG_DATA(c);
    return NULL;
}

/* The information about what follows comes with notifications, too, and with nothing else that was asked for. */
static void what_follows(void)
{
    static const struct {
        int flags;
        const char *text;
        struct nxtinfo next;
    } expected[] = {
        {MSG_NOTIFICATION, NULL, {.stream = 3, .ppid = 77, .length = 2}},
        {0, "hi", {.stream = 3, .flags = SCTP_UNORDERED, .ppid = 77, .length = 5}},
        {0, "hello", {.flags = MSG_NOTIFICATION, .length = 12}},
        {MSG_NOTIFICATION, NULL, {.flags = MSG_NOTIFICATION, .length = 20}},
        {MSG_NOTIFICATION, NULL, {.length = 0}},
    };
    int on = 1, client, server, listener = listening(8, 0);
    /* struct sctp_event_subscribe: changes of associations, and the shutdown of the peer. */
    char events[8] = {[1] = 1, [5] = 1}, text[101], control[200] __attribute__((aligned(8)));
    CHECK(setsockopt(listener, IPPROTO_SCTP, SCTP_EVENTS, events, sizeof events) == 0);
    CHECK(setsockopt(listener, IPPROTO_SCTP, SCTP_RECVNXTINFO, &on, sizeof on) == 0);
    CHECK(setsockopt(listener, IPPROTO_SCTP, SCTP_RECVRCVINFO, &on, sizeof on) == 0);
    client = connected(8);
    CHECK((server = accept(listener, NULL, NULL)) >= 0 && close(listener) == 0);
    struct sndinfo info = {.stream = 3, .ppid = htonl(77)};
    CHECK(say(client, "hi", SCTP_SNDINFO, &info, sizeof info) == 2);
    info.flags = SCTP_UNORDERED;
    CHECK(say(client, "hello", SCTP_SNDINFO, &info, sizeof info) == 5 && close(client) == 0);
    /* Then everything has come. */
    CHECK(polls(server, POLLRDHUP, 10000) & POLLRDHUP);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        size_t bytes = sizeof control;
        int is_notification = expected[i].flags & MSG_NOTIFICATION;
        CHECK(hear(server, text, control, &bytes) == (MSG_EOR | expected[i].flags));
        CHECK(is_notification || strcmp(text, expected[i].text) == 0);
        CHECK((find(control, bytes, SCTP_RCVINFO) == NULL) == is_notification / MSG_NOTIFICATION);
        struct nxtinfo *next = find(control, bytes, SCTP_NXTINFO), want = expected[i].next;
        CHECK((next != NULL) == (want.length > 0));
        if (next == NULL)
            continue;
        CHECK(next->stream == want.stream && next->flags == want.flags && next->length == want.length);
        CHECK(next->ppid == htonl(want.ppid));
    }
    CHECK(close(server) == 0);
}

int main(void)
{
    begin();
    what_follows();
    int on = 1, client, server;
    char text[101], control[200] __attribute__((aligned(8)));
    uint16_t init[4] = {5, 6, 0, 0};
    socklen_t size = sizeof init;

    int listener = listening(7, 0);
    struct sockaddr_in a = loopback(7);
    client = fresh(0);
    CHECK(setsockopt(client, IPPROTO_SCTP, SCTP_INITMSG, init, sizeof init) == 0);
    CHECK(getsockopt(client, IPPROTO_SCTP, SCTP_INITMSG, init, &size) == 0 && size == sizeof init);
    CHECK(init[0] == 5 && init[1] == 6 && init[2] > 0 && init[3] > 0);
    CHECK(connect(client, (struct sockaddr *)&a, sizeof a) == 0);
    server = accept(listener, NULL, NULL);

    /* None is wanted, none comes. */
    size_t bytes = sizeof control;
    struct sndinfo info = {.stream = 3, .ppid = htonl(77)};
    CHECK(say(client, "plain", SCTP_SNDINFO, &info, sizeof info) == 5);
    CHECK(hear(server, text, control, &bytes) == MSG_EOR && strcmp(text, "plain") == 0 && bytes == 0);

    CHECK(setsockopt(server, IPPROTO_SCTP, SCTP_RECVRCVINFO, &on, sizeof on) == 0);
    char events[] = {1, 0, 0, 0, 0, 0, 0, 0};
    CHECK(setsockopt(server, IPPROTO_SCTP, SCTP_EVENTS, events, sizeof events) == 0);
    info.flags = SCTP_UNORDERED;
    CHECK(say(client, "first", SCTP_SNDINFO, &info, sizeof info) == 5);
    bytes = sizeof control;
    CHECK(hear(server, text, control, &bytes) == MSG_EOR);
    struct rcvinfo *received = find(control, bytes, SCTP_RCVINFO);
    CHECK(received != NULL && received->stream == 3 && received->ppid == htonl(77));
    CHECK(received->flags == SCTP_UNORDERED && received->tsn != 0);
    struct sndrcvinfo *old = find(control, bytes, SCTP_SNDRCV);
    CHECK(old != NULL && old->stream == 3 && old->ppid == htonl(77) && old->tsn == received->tsn);

    /* With too little room some of it is left out, and that is said. */
    CHECK(say(client, "second", SCTP_SNDINFO, &info, sizeof info) == 6);
    bytes = CMSG_SPACE(sizeof(struct rcvinfo));
    CHECK(hear(server, text, control, &bytes) == (MSG_EOR | MSG_CTRUNC));
    CHECK(find(control, bytes, SCTP_RCVINFO) != NULL && find(control, bytes, SCTP_SNDRCV) == NULL);

    info.stream = 5;
    FAILS(say(client, "no such stream", SCTP_SNDINFO, &info, sizeof info), EINVAL);
    info = (struct sndinfo){.flags = 1 << 15};
    FAILS(say(client, "no such flag", SCTP_SNDINFO, &info, sizeof info), EINVAL);

    /* On a one-to-one socket these are said with shutdown and SO_LINGER. */
    struct sndrcvinfo last = {.stream = 1, .flags = SCTP_EOF};
    FAILS(say(client, "", SCTP_SNDRCV, &last, sizeof last), EINVAL);
    last.flags = SCTP_ABORT;
    FAILS(say(client, "", SCTP_SNDRCV, &last, sizeof last), EINVAL);
    CHECK(close(client) == 0);
    bytes = sizeof control;
    CHECK(hear(server, text, control, &bytes) == 0 && text[0] == 0 && bytes == 0);
    return 0;
}
