/* Under `swiftwater run`: leaves a socket open that no process has: its descriptor lies in a queue that only the daemon reads.
 *
 *   in_flight idle PORT        bound to the port
 *   in_flight listening PORT
 *   in_flight connecting PORT  to a peer behind the UDP port of this number, which never answers
 *   in_flight mutual PORT      two sockets, each in the queue of the other
 *   in_flight nested PORT      in the queue of a pair, an end of which lies in the queue of the socket
 *   in_flight empty PORT       with a record of no bytes behind another record
 *   in_flight full PORT        both ends of an association that has no room
 *   in_flight shut PORT        the same, and both ends were shut down afterwards
 *   in_flight many PORT        one-to-many, which the daemon reads unless the user has no memory left
 *   in_flight answer PORT      in an answer that the program does not take
 *
 *   in_flight free PORT        checks that the port is free */
#include "hostile.h"
#include "../../../../crates/preload/tests/sockets/past_shim.h"
#include <sys/mman.h>

enum { CONTENT_BYTES = 8 << 10 };
enum { SCTP_REMOTE_UDP_ENCAPS_PORT = 132 };
enum { SCTP_SOL = 132, TURNS_FULL = 5, MORE_BYTES = 1 << 20 };

static int fresh(int kind)
{
    int fd = socket(AF_INET, kind, 132);
    CHECK(fd >= 0);
    return fd;
}

static struct sockaddr_in at(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return a;
}

static int bound(int kind, int port)
{
    struct sockaddr_in a = at(port);
    int fd = fresh(kind);
    CHECK(bind(fd, (struct sockaddr *)&a, sizeof a) == 0);
    return fd;
}

/* Sends a record past the shim, with a descriptor unless it is -1. Returns whether there was room. */
static int send_raw(int pair, const void *record, size_t bytes, int fd)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {.align = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
    struct iovec part = {(void *)record, bytes};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        m.msg_control = &control;
        m.msg_controllen = sizeof control;
        memcpy(CMSG_DATA(&control.align), &fd, sizeof fd);
    }
    long sent = past_shim(SYS_sendmsg, pair, (long)&m, MSG_NOSIGNAL | MSG_DONTWAIT, 0, 0, 0);
    CHECK(sent == (long)bytes || (sent == -1 && errno == EAGAIN));
    return sent == (long)bytes;
}

static void pass(int pair, int fd)
{
    int more = MORE_BYTES;
    /* A shim that has found the pair full has made the buffer small. */
    CHECK(past_shim(SYS_setsockopt, pair, SOL_SOCKET, SO_SNDBUF, (long)&more, sizeof more, 0) == 0);
    CHECK(send_raw(pair, "a word", 6, fd));
}

/* Both ends of an association. */
static void join(int listener, int port, int ends[2])
{
    struct sockaddr_in a = at(port);
    ends[0] = fresh(SOCK_STREAM);
    CHECK(connect(ends[0], (struct sockaddr *)&a, sizeof a) == 0);
    ends[1] = accept(listener, NULL, NULL);
    CHECK(ends[1] >= 0);
}

/* Sends until the association has had no room for a while. */
static void fill(int fd)
{
    static char text[CONTENT_BYTES];
    int full = 0;
    while (full < TURNS_FULL) {
        ssize_t sent = send(fd, text, sizeof text, MSG_DONTWAIT);
        CHECK(sent == sizeof text || errno == EAGAIN);
        full = sent == sizeof text ? 0 : full + 1;
        if (full)
            usleep(100000);
    }
}

static int listening(int port)
{
    int fd = bound(SOCK_STREAM, port);
    CHECK(listen(fd, 1) == 0);
    return fd;
}

static void connecting(int port)
{
    struct {
        int32_t association;
        struct sockaddr_storage address;
        uint16_t port;
    } silent = {.port = htons(port)};
    struct sockaddr_in peer = at(7);
    int fd = bound(SOCK_STREAM, port);
    CHECK(setsockopt(fd, SCTP_SOL, SCTP_REMOTE_UDP_ENCAPS_PORT, &silent, sizeof silent) == 0);
    CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    CHECK(connect(fd, (struct sockaddr *)&peer, sizeof peer) == -1 && errno == EINPROGRESS);
    pass(fd, fd);
}

static void answer_untaken(void)
{
    const char body[2] = {0, 0};
    int connection = call();
    say(connection, OPEN, body, sizeof body, NULL, 0);
    CHECK(poll(&(struct pollfd){.fd = connection, .events = POLLIN}, 1, -1) == 1);
    CHECK(send_with(connection, "more", 4, &connection, 1) == 4);
}

int main(int argc, char **argv)
{
    int ends[2];
    begin();
    CHECK(argc == 3);
    const char *way = argv[1];
    int port = atoi(argv[2]);
    if (strcmp(way, "free") == 0) {
        bound(SOCK_STREAM, port);
    } else if (strcmp(way, "idle") == 0) {
        int fd = bound(SOCK_STREAM, port), memfd = memfd_create("kept", 0);
        CHECK(memfd >= 0 && send_raw(fd, "a word", 6, memfd));
        pass(fd, fd);
    } else if (strcmp(way, "listening") == 0) {
        int fd = listening(port);
        pass(fd, fd);
    } else if (strcmp(way, "connecting") == 0) {
        connecting(port);
    } else if (strcmp(way, "mutual") == 0) {
        int fd = bound(SOCK_STREAM, port), other = fresh(SOCK_STREAM);
        pass(fd, other);
        pass(other, fd);
    } else if (strcmp(way, "nested") == 0) {
        int fd = bound(SOCK_STREAM, port);
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 && send_with(ends[0], "more", 4, &fd, 1) == 4);
        pass(fd, ends[1]);
    } else if (strcmp(way, "empty") == 0) {
        int fd = bound(SOCK_STREAM, port);
        CHECK(send_raw(fd, "a word", 6, -1) && send_raw(fd, "", 0, fd));
    } else if (strcmp(way, "full") == 0 || strcmp(way, "shut") == 0) {
        join(listening(port), port, ends);
        fill(ends[0]);
        fill(ends[1]);
        pass(ends[0], ends[0]);
        pass(ends[1], ends[1]);
        for (int i = 0; i < 2 && strcmp(way, "shut") == 0; i++)
            CHECK(shutdown(ends[i], SHUT_RDWR) == 0);
    } else if (strcmp(way, "many") == 0) {
        int fd = bound(SOCK_SEQPACKET, port);
        pass(fd, fd);
    } else {
        CHECK(strcmp(way, "answer") == 0);
        answer_untaken();
    }
    return 0;
}
