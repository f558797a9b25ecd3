/* Calls in the wrong state, or with arguments that are wrong. */
#include "oracle.h"
#include <sys/uio.h>

static int style;

static void sockets(void)
{
    static const struct {
        const char *text;
        int family, type, protocol;
    } kinds[] = {
        {"AF_INET, SOCK_STREAM, IPPROTO_SCTP", AF_INET, SOCK_STREAM, IPPROTO_SCTP},
        {"AF_INET6, SOCK_STREAM, IPPROTO_SCTP", AF_INET6, SOCK_STREAM, IPPROTO_SCTP},
        {"AF_INET, SOCK_SEQPACKET, IPPROTO_SCTP", AF_INET, SOCK_SEQPACKET, IPPROTO_SCTP},
        {"AF_INET6, SOCK_SEQPACKET, IPPROTO_SCTP", AF_INET6, SOCK_SEQPACKET, IPPROTO_SCTP},
        {"AF_INET, SOCK_SEQPACKET, 0", AF_INET, SOCK_SEQPACKET, 0},
        {"AF_INET6, SOCK_SEQPACKET, 0", AF_INET6, SOCK_SEQPACKET, 0},
        {"AF_INET, SOCK_SEQPACKET, IPPROTO_TCP", AF_INET, SOCK_SEQPACKET, IPPROTO_TCP},
        {"AF_INET, SOCK_DGRAM, IPPROTO_SCTP", AF_INET, SOCK_DGRAM, IPPROTO_SCTP},
        {"AF_INET, SOCK_RDM, IPPROTO_SCTP", AF_INET, SOCK_RDM, IPPROTO_SCTP},
        {"AF_UNIX, SOCK_STREAM, IPPROTO_SCTP", AF_UNIX, SOCK_STREAM, IPPROTO_SCTP},
        {"AF_INET, SOCK_STREAM | 0x1000, IPPROTO_SCTP", AF_INET, SOCK_STREAM | 0x1000, IPPROTO_SCTP},
        {"AF_INET, 77, IPPROTO_SCTP", AF_INET, 77, IPPROTO_SCTP},
        {"77, SOCK_STREAM, IPPROTO_SCTP", 77, SOCK_STREAM, IPPROTO_SCTP},
    };
    for (int i = 0; i < COUNT(kinds); i++) {
        int fd = socket(kinds[i].family, kinds[i].type, kinds[i].protocol);
        printf("socket %s: %s\n", kinds[i].text, fd == -1 ? strerrorname_np(errno) : "ok");
        close(fd);
    }
    int pair[2];
    SAY(socketpair(AF_INET, SOCK_STREAM, IPPROTO_SCTP, pair), "socketpair");
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_SCTP);
    printf("flags %d %d\n", (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0, fcntl(fd, F_GETFD));
    close(fd);
}

/* On a socket of its own each. */
static void bind_once(const char *text, int family, const void *address, socklen_t bytes)
{
    int fd = socket(family, style, IPPROTO_SCTP);
    SAY(bind(fd, address, bytes), "bind to %s", text);
    close(fd);
}

static void binds(void)
{
    int port = next_port();
    struct sockaddr_in a = at("127.0.0.1", port);
    struct sockaddr_in6 six = at6("::1", port), mapped = at6("::ffff:127.0.0.1", port);
    struct sockaddr_storage long_one = {0};
    struct sockaddr bare = {0};
    bind_once("nothing", AF_INET, NULL, sizeof a);
    bind_once("an address of no bytes", AF_INET, &a, 0);
    bind_once("an address of 2 bytes", AF_INET, &a, 2);
    bind_once("an address of 8 bytes", AF_INET, &a, 8);
    bind_once("an address of 15 bytes", AF_INET, &a, sizeof a - 1);
    memcpy(&long_one, &a, sizeof a);
    bind_once("an address of 128 bytes", AF_INET, &long_one, sizeof long_one);
    bind_once("an address of 129 bytes", AF_INET, &long_one, sizeof long_one + 1);
    bind_once("an address of -1 bytes", AF_INET, &a, -1);
    bind_once("AF_UNSPEC", AF_INET, &bare, sizeof bare);
    bare.sa_family = AF_UNIX;
    bind_once("AF_UNIX", AF_INET, &bare, sizeof bare);
    bind_once("IPv6 at an IPv4 socket", AF_INET, &six, sizeof six);
    bind_once("IPv6", AF_INET6, &six, sizeof six);
    bind_once("IPv6 of 24 bytes", AF_INET6, &six, 24);
    bind_once("IPv6 of 27 bytes", AF_INET6, &six, 27);
    bind_once("a mapped address", AF_INET6, &mapped, sizeof mapped);
    bind_once("IPv4 at an IPv6 socket", AF_INET6, &a, sizeof a);
    static const char *const foreign[] = {"192.0.2.1", "255.255.255.255", "224.0.0.1", "127.255.255.255", "127.0.0.2", "0.0.0.0"};
    for (int i = 0; i < COUNT(foreign); i++) {
        a = at(foreign[i], port);
        bind_once(foreign[i], AF_INET, &a, sizeof a);
    }
    six = at6("2001:db8::1", port);
    bind_once("2001:db8::1", AF_INET6, &six, sizeof six);
    six = at6("ff02::1", port);
    bind_once("ff02::1", AF_INET6, &six, sizeof six);
    six = at6("fe80::1", port);
    bind_once("a link-local address without an interface", AF_INET6, &six, sizeof six);
    six = at6("::", port);
    bind_once("::", AF_INET6, &six, sizeof six);
}

static void bound(void)
{
    int port = next_port(), fd = fresh(style), second = fresh(style), on = 1;
    struct sockaddr_in a = at("127.0.0.1", port), other = at("127.0.0.1", next_port()), all = at("0.0.0.0", port), name;
    socklen_t bytes = sizeof name;
    SAY(getsockname(fd, SA(name), &bytes), "getsockname before bind");
    printf("then %s port %d, %u bytes\n", inet_ntoa(name.sin_addr), ntohs(name.sin_port), bytes);
    SAY(bind(fd, SA(a), sizeof a), "bind");
    SAY(bind(fd, SA(a), sizeof a), "bind again");
    SAY(bind(fd, SA(other), sizeof other), "bind to another");
    SAY(bind(second, SA(a), sizeof a), "bind where another is");
    SAY(bind(second, SA(all), sizeof all), "bind everywhere where another is");
    NEEDED(setsockopt(second, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
    SAY(bind(second, SA(a), sizeof a), "bind where another is, SO_REUSEADDR in one");
    close(fd);
    fd = fresh(style);
    NEEDED(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
    SAY(bind(fd, SA(a), sizeof a), "bind, SO_REUSEADDR");
    close(second);
    second = fresh(style);
    NEEDED(setsockopt(second, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
    SAY(bind(second, SA(a), sizeof a), "bind where another is, SO_REUSEADDR in both");
    SAY(listen(fd, 1), "listen, two there");
    SAY(listen(second, 1), "listen, the other");
    close(fd);
    close(second);
    fd = fresh(style);
    a = at("0.0.0.0", 0);
    SAY(bind(fd, SA(a), sizeof a), "bind to port 0");
    bytes = sizeof name;
    NEEDED(getsockname(fd, SA(name), &bytes) == 0);
    printf("then %s port %s\n", inet_ntoa(name.sin_addr), ntohs(name.sin_port) >= 1024 ? "of the upper ones" : "of the lower ones");
    bytes = 4;
    SAY(getsockname(fd, SA(name), &bytes), "getsockname with 4 bytes");
    printf("then %u bytes\n", bytes);
    bytes = -1;
    SAY(getsockname(fd, SA(name), &bytes), "getsockname with -1 bytes");
    bytes = 0;
    SAY(getsockname(fd, SA(name), &bytes), "getsockname with no bytes");
    bytes = sizeof name;
    SAY(getsockname(fd, NULL, &bytes), "getsockname to nowhere");
    SAY(getsockname(fd, SA(name), NULL), "getsockname without length");
    close(fd);
}

static void listens(void)
{
    int fd = fresh(style);
    struct sockaddr_in a;
    socklen_t bytes = sizeof a;
    SAY(listen(fd, 0), "listen unbound, backlog 0");
    SAY(getsockname(fd, SA(a), &bytes), "getsockname then");
    printf("then port %s\n", a.sin_port ? "of its own" : "0");
    SAY(listen(fd, 1), "listen unbound");
    bytes = sizeof a;
    SAY(getsockname(fd, SA(a), &bytes), "getsockname then");
    printf("then port %s\n", a.sin_port ? "of its own" : "0");
    SAY(listen(fd, 5), "listen again");
    SAY(listen(fd, -1), "listen, backlog -1");
    SAY(bind(fd, SA(a), sizeof a), "bind while listening");
    bytes = sizeof a;
    SAY(getpeername(fd, SA(a), &bytes), "getpeername while listening");
    a = at("127.0.0.1", next_port());
    SAY(connect(fd, SA(a), sizeof a), "connect while listening");
    SAY(shutdown(fd, SHUT_WR), "shutdown while listening");
    SAY(send(fd, "x", 1, 0), "send while listening");
    SAY(recv(fd, &a, sizeof a, MSG_DONTWAIT), "recv while listening");
    SAY(accept4(fd, NULL, NULL, 0x10000), "accept4 with flags that there are not");
    NEEDED(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    SAY(accept(fd, NULL, NULL), "accept with nobody there");
    SAY(listen(fd, 0), "listen with backlog 0 while listening");
    SAY(accept(fd, NULL, NULL), "accept after that");
    close(fd);
    fd = fresh(style);
    NEEDED(listen(fd, 1) == 0);
    SAY(shutdown(fd, SHUT_RD), "shutdown of receiving while listening");
    SAY(shutdown(fd, SHUT_RDWR), "shutdown of both while listening");
    close(fd);
}

static void nothing(void)
{
    struct joined j = joined(style);
    struct iovec empty[2] = {{"", 0}, {"", 0}};
    SAY(write(j.client, "", 0), "write of nothing");
    SAY(writev(j.client, empty, 0), "writev of no parts");
    SAY(writev(j.client, empty, 2), "writev of empty parts");
    SAY(pwritev2(j.client, empty, 2, -1, 0), "pwritev2 of empty parts");
    SAY(readv(j.client, empty, 0), "readv of no parts");
    SAY(readv(j.client, empty, 2), "readv of empty parts");
    SAY(preadv2(j.client, empty, 2, -1, 0), "preadv2 of empty parts");
    part(&j);
}

/* Sends four bytes to the server. */
static int send_word(struct joined *j)
{
    struct sockaddr_in a = at("127.0.0.1", j->port);
    return sendto(j->client, "word", 4, 0, SA(a), sizeof a) == 4;
}

/* Receives without room while nothing is there, and while a message is. */
static void no_room(void)
{
    struct joined j = joined(style);
    char word[8];
    struct msghdr none = {0};
    SAY(recv(j.server, word, 0, MSG_DONTWAIT), "recv of no bytes while nothing is there");
    SAY(recvmsg(j.server, &none, MSG_DONTWAIT), "recvmsg without parts while nothing is there");
    NEEDED(send_word(&j) && readable(j.server));
    SAY(recv(j.server, word, 0, MSG_DONTWAIT), "recv of no bytes of a message");
    SAY(recvmsg(j.server, &none, MSG_DONTWAIT), "recvmsg without parts of a message");
    printf("flags: %x\n", none.msg_flags);
    SAY(recv(j.server, word, 2, MSG_DONTWAIT), "recv of the first half");
    SAY(recv(j.server, word, 0, MSG_DONTWAIT), "recv of no bytes of the rest");
    SAY(recvmsg(j.server, &none, MSG_DONTWAIT), "recvmsg without parts of the rest");
    printf("flags: %x\n", none.msg_flags);
    SAY(recv(j.server, word, sizeof word, MSG_DONTWAIT), "recv of the rest");
    SAY(recv(j.server, word, 0, MSG_DONTWAIT), "recv of no bytes after that");
    part(&j);
}

/* Calls that must not wait. */
static void no_wait(void)
{
    struct joined j = joined(style);
    char word[8];
    struct iovec part_of_word = {word, 4};
    SAY(preadv2(j.server, &part_of_word, 1, -1, RWF_NOWAIT), "preadv2 that does not wait");
    if (style == SOCK_STREAM)
        SAY(pwritev2(j.client, &part_of_word, 1, -1, RWF_NOWAIT), "pwritev2 that does not wait");
    part(&j);
}

/* Messages that are longer than the send buffer. */
static void too_long(void)
{
    static char message[20001];
    struct joined j = joined(style);
    struct sockaddr_in a = at("127.0.0.1", j.port);
    int bytes = sizeof message / 2;
    socklen_t length = sizeof bytes;
    SAY(setsockopt(j.client, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes), "SO_SNDBUF");
    NEEDED(getsockopt(j.client, SOL_SOCKET, SO_SNDBUF, &bytes, &length) == 0);
    printf("SO_SNDBUF is %d\n", bytes);
    SAY(sendto(j.client, message, bytes, 0, SA(a), sizeof a), "send of as much");
    SAY(sendto(j.client, message, bytes + 1, 0, SA(a), sizeof a), "send of a byte more");
    part(&j);
}

static void accepts(void)
{
    struct joined j = joined(style);
    struct sockaddr_in a = at("127.0.0.1", j.port);
    socklen_t bytes;
    int fd = fresh(style), null = open("/dev/null", O_RDWR), peer;
    SAY(accept(fd, NULL, NULL), "accept without listen");
    SAY(accept(j.client, NULL, NULL), "accept when connected");
    SAY(accept(-1, NULL, NULL), "accept of no descriptor");
    SAY(accept(null, NULL, NULL), "accept of what is no socket");
    if (style == SOCK_STREAM) {
        static const struct {
            const char *text;
            int bytes;
        } lengths[] = {{"0 bytes", 0}, {"4 bytes", 4}, {"-1 bytes", -1}};
        for (int i = 0; i < COUNT(lengths); i++) {
            close(fd);
            fd = fresh(style);
            NEEDED(connect(fd, SA(a), sizeof a) == 0 && readable(j.listener));
            bytes = lengths[i].bytes;
            errno = 0;
            peer = accept(j.listener, SA(a), &bytes);
            printf("accept with %s: %s, then %d\n", lengths[i].text, peer == -1 ? strerrorname_np(errno) : "ok", (int)bytes);
            close(peer);
            a = at("127.0.0.1", j.port);
        }
    }
    close(null);
    close(fd);
    part(&j);
}

static void connect_once(const char *text, const void *address, socklen_t bytes)
{
    int fd = fresh(style);
    SAY(connect(fd, address, bytes), "connect to %s", text);
    close(fd);
}

static void connects(void)
{
    int port = next_port(), fd = fresh(style), server = listening(style, port);
    struct sockaddr_in a = at("127.0.0.1", port);
    struct sockaddr_in6 six = at6("::1", port);
    struct sockaddr_storage long_one = {0};
    struct sockaddr bare = {0};
    socklen_t bytes;
    connect_once("nothing", NULL, sizeof a);
    connect_once("an address of no bytes", &a, 0);
    connect_once("an address of 2 bytes", &a, 2);
    connect_once("an address of 15 bytes", &a, sizeof a - 1);
    memcpy(&long_one, &a, sizeof a);
    connect_once("an address of 128 bytes", &long_one, sizeof long_one);
    connect_once("an address of 129 bytes", &long_one, sizeof long_one + 1);
    connect_once("AF_UNSPEC", &bare, sizeof bare);
    bare.sa_family = AF_UNIX;
    connect_once("AF_UNIX", &bare, sizeof bare);
    connect_once("IPv6 at an IPv4 socket", &six, sizeof six);
    static const char *const places[] = {"0.0.0.0", "255.255.255.255", "224.0.0.1"};
    for (int i = 0; i < COUNT(places); i++) {
        a = at(places[i], port);
        connect_once(places[i], &a, sizeof a);
    }
    a = at("127.0.0.1", 0);
    connect_once("port 0", &a, sizeof a);
    a = at("127.0.0.1", next_port());
    connect_once("a port where nobody listens", &a, sizeof a);
    SAY(connect(fd, SA(a), sizeof a), "connect to a port where nobody listens, once more");
    SAY(send(fd, "x", 1, 0), "send after that");
    SAY(recv(fd, &a, sizeof a, MSG_DONTWAIT), "recv after that");
    a = at("127.0.0.1", port);
    SAY(connect(fd, SA(a), sizeof a), "connect after that");
    SAY(connect(fd, SA(a), sizeof a), "connect again");
    bare.sa_family = AF_UNSPEC;
    SAY(connect(fd, &bare, sizeof bare), "connect to AF_UNSPEC when connected");
    SAY(bind(fd, SA(a), sizeof a), "bind when connected");
    SAY(listen(fd, 1), "listen when connected");
    bytes = sizeof a;
    SAY(getpeername(fd, SA(a), &bytes), "getpeername");
    close(fd);
    fd = fresh(style);
    a = at("127.0.0.1", next_port());
    NEEDED(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    SAY(connect(fd, SA(a), sizeof a), "connect without waiting, nobody listens");
    if (style == SOCK_STREAM) {
        int error = -1;
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        NEEDED(poll(&p, 1, 10000) == 1);
        bytes = sizeof error;
        NEEDED(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0);
        printf("then %s", strerrorname_np(error));
        NEEDED(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0);
        printf(", then %d\n", error);
    }
    close(fd);
    close(server);
}

static void before_connecting(void)
{
    char word[8];
    struct sockaddr_in a = at("127.0.0.1", next_port());
    socklen_t bytes = sizeof a;
    int fd = fresh(style), number = -1;
    SAY(getpeername(fd, SA(a), &bytes), "getpeername unconnected");
    SAY(send(fd, "x", 1, 0), "send unconnected");
    SAY(send(fd, "x", 0, 0), "send of nothing unconnected");
    SAY(write(fd, "x", 1), "write unconnected");
    SAY(recv(fd, word, sizeof word, 0), "recv unconnected");
    SAY(recv(fd, word, sizeof word, MSG_DONTWAIT), "recv unconnected, without waiting");
    SAY(recv(fd, word, sizeof word, MSG_PEEK | MSG_DONTWAIT), "recv unconnected, peeking");
    SAY(read(fd, word, 0), "read of nothing unconnected");
    SAY(shutdown(fd, SHUT_RD), "shutdown SHUT_RD unconnected");
    SAY(shutdown(fd, SHUT_WR), "shutdown SHUT_WR unconnected");
    SAY(shutdown(fd, SHUT_RDWR), "shutdown SHUT_RDWR unconnected");
    SAY(shutdown(fd, 3), "shutdown 3 unconnected");
    SAY(shutdown(fd, -1), "shutdown -1 unconnected");
    SAY(ioctl(fd, FIONREAD, &number), "FIONREAD unconnected");
    SAY(ioctl(fd, TIOCOUTQ, &number), "TIOCOUTQ unconnected");
    SAY(lseek(fd, 0, SEEK_SET), "lseek");
    close(fd);
    fd = fresh(style);
    SAY(sendto(fd, "x", 1, 0, SA(a), 4), "sendto an address of 4 bytes");
    SAY(sendto(fd, "x", 1, 0, NULL, sizeof a), "sendto nowhere");
    SAY(sendto(fd, "x", 1, 0, SA(a), 0), "sendto an address of no bytes");
    a.sin_family = AF_UNIX;
    SAY(sendto(fd, "x", 1, 0, SA(a), sizeof a), "sendto AF_UNIX");
    a.sin_family = AF_UNSPEC;
    SAY(sendto(fd, "x", 1, 0, SA(a), sizeof a), "sendto AF_UNSPEC");
    a = at("127.0.0.1", 0);
    SAY(sendto(fd, "x", 1, 0, SA(a), sizeof a), "sendto port 0");
    struct sockaddr_in6 six = at6("::1", next_port());
    SAY(sendto(fd, "x", 1, 0, SA(six), sizeof six), "sendto IPv6 from IPv4");
    close(fd);
    fd = fresh(style);
    a = at("127.0.0.1", next_port());
    SAY(sendto(fd, "x", 0, 0, SA(a), sizeof a), "sendto of nothing");
    close(fd);
}

/* Waits for what ends an association. */
static long next(int fd, char *word)
{
    return readable(fd) ? recv(fd, word, 8, 0) : 99;
}

static void after_connecting(void)
{
    char word[8];
    struct joined j = joined(style);
    struct sockaddr_in a = at("127.0.0.1", next_port()), peer = at("127.0.0.1", j.port);
    socklen_t bytes = sizeof a;
    int number = -1, on = 1;
    /* The messages that arrive must not depend on the acknowledgements. */
    NEEDED(setsockopt(j.client, IPPROTO_SCTP, SCTP_NODELAY, &on, sizeof on) == 0);
    SAY(recv(j.client, word, sizeof word, MSG_DONTWAIT), "recv of what is not there");
    SAY(recv(j.client, word, sizeof word, MSG_DONTWAIT | MSG_OOB), "recv out of band");
    SAY(recv(j.client, word, sizeof word, MSG_ERRQUEUE | MSG_DONTWAIT), "recv from the error queue");
    if (style == SOCK_STREAM) {
        SAY(send(j.client, "x", 0, 0), "send of nothing");
        SAY(send(j.client, NULL, 4, 0), "send from nowhere");
        SAY(send(j.client, "x", 1, MSG_OOB), "send out of band");
        SAY(send(j.client, "x", 1, MSG_DONTROUTE), "send with MSG_DONTROUTE");
        SAY(next(j.server, word), "recv of that");
        SAY(sendto(j.client, "x", 1, 0, SA(a), sizeof a), "sendto another port");
        SAY(sendto(j.client, "x", 1, 0, SA(peer), sizeof peer), "sendto the peer");
        SAY(next(j.server, word), "recv of that");
        SAY(sendto(j.client, "x", 1, 0, SA(peer), 4), "sendto with 4 bytes of an address");
        SAY(next(j.server, word), "recv of that");
    } else {
        SAY(send(j.client, "x", 1, 0), "send without an address");
        SAY(write(j.client, "x", 1), "write");
        SAY(sendto(j.client, "x", 0, 0, SA(peer), sizeof peer), "sendto of nothing");
        SAY(sendto(j.client, NULL, 4, 0, SA(peer), sizeof peer), "sendto from nowhere");
        SAY(sendto(j.client, "x", 1, 0, SA(peer), sizeof peer), "sendto the peer");
        SAY(next(j.server, word), "recv of that");
        SAY(connect(j.client, SA(peer), sizeof peer), "connect to the same");
    }
    bytes = sizeof a;
    SAY(getpeername(j.client, SA(a), &bytes), "getpeername of the client");
    bytes = 3;
    SAY(getpeername(j.client, SA(a), &bytes), "getpeername with 3 bytes");
    bytes = -1;
    SAY(getpeername(j.client, SA(a), &bytes), "getpeername with -1 bytes");
    SAY(getpeername(j.client, NULL, &bytes), "getpeername to nowhere");
    NEEDED(sendto(j.server, "twelve bytes", 12, 0, NULL, 0) == 12 || style == SOCK_SEQPACKET);
    if (style == SOCK_STREAM) {
        NEEDED(readable(j.client));
        SAY(ioctl(j.client, FIONREAD, &number), "FIONREAD");
        printf("then %d\n", number);
        SAY(recv(j.client, word, 0, 0), "recv of no bytes");
        SAY(recv(j.client, word, 5, MSG_PEEK), "recv of 5 bytes, peeking");
        SAY(recv(j.client, word, 5, 0), "recv of 5 bytes");
        SAY(ioctl(j.client, FIONREAD, &number), "FIONREAD");
        printf("then %d\n", number);
        SAY(recv(j.client, NULL, 5, 0), "recv to nowhere");
        SAY(recv(j.client, word, 8, MSG_DONTWAIT), "recv of the rest after that");
        SAY(recv(j.client, word, 5, MSG_DONTWAIT), "recv of what is not there");
    }
    SAY(shutdown(j.client, 3), "shutdown 3");
    SAY(shutdown(j.client, SHUT_RD), "shutdown SHUT_RD");
    SAY(shutdown(j.client, SHUT_WR), "shutdown SHUT_WR");
    if (style == SOCK_STREAM) {
        SAY(next(j.server, word), "recv of the peer after shutdown");
        SAY(next(j.client, word), "recv after shutdown");
        SAY(shutdown(j.client, SHUT_WR), "shutdown again");
        SAY(getpeername(j.client, SA(a), &bytes), "getpeername after shutdown");
        SAY(connect(j.client, SA(peer), sizeof peer), "connect after shutdown");
    }
    part(&j);
}

/* One end aborts; what the other sees. */
static void aborted(void)
{
    struct linger none = {1, 0};
    char word[8];
    if (style != SOCK_STREAM)
        return;
    struct joined j = joined(style);
    struct sockaddr_in a;
    socklen_t bytes = sizeof a;
    NEEDED(setsockopt(j.server, SOL_SOCKET, SO_LINGER, &none, sizeof none) == 0);
    close(j.server);
    SAY(next(j.client, word), "recv after the peer's abort");
    SAY(recv(j.client, word, 8, 0), "recv again");
    SAY(send(j.client, "x", 1, 0), "send after the peer's abort");
    SAY(getpeername(j.client, SA(a), &bytes), "getpeername after the peer's abort");
    SAY(shutdown(j.client, SHUT_WR), "shutdown after the peer's abort");
    j.server = -1;
    part(&j);
}

/* The private options behind sctp_bindx. */
static void bindx_once(const char *text, int fd, int option, const void *addresses, int bytes)
{
    SAY(setsockopt(fd, IPPROTO_SCTP, option, addresses, bytes), "bindx%s %s", option == SCTP_SOCKOPT_BINDX_REM ? " remove" : "",
        text);
}

/* The addresses that a fresh socket has after a refused sctp_bindx. */
static void bindx_refused(int port)
{
    static const struct {
        const char *text;
        const char *hosts[4];
    } lists[] = {
        {"one and a foreign one", {"127.0.0.1", "192.0.2.1"}},
        {"two and a foreign one", {"127.0.0.1", "127.0.0.2", "192.0.2.1"}},
        {"two, a foreign one and one", {"127.0.0.1", "127.0.0.2", "192.0.2.1", "127.0.0.3"}},
        {"two and the first again", {"127.0.0.1", "127.0.0.2", "127.0.0.1"}},
        {"one and one that is taken", {"127.0.0.1", "127.0.0.9"}},
        {"two and one that is taken", {"127.0.0.1", "127.0.0.2", "127.0.0.9"}},
        {"one that is taken and one", {"127.0.0.9", "127.0.0.1"}},
        {"one and all", {"127.0.0.1", "0.0.0.0"}},
        {"all and one", {"0.0.0.0", "127.0.0.1"}},
    };
    int other = fresh(style);
    struct sockaddr_in taken = at("127.0.0.9", port);
    NEEDED(bind(other, SA(taken), sizeof taken) == 0);
    for (int i = 0; i < COUNT(lists); i++) {
        struct sockaddr_in list[4];
        int count = 0, fd = fresh(style);
        for (; count < 4 && lists[i].hosts[count]; count++)
            list[count] = at(lists[i].hosts[count], port);
        bindx_once(lists[i].text, fd, SCTP_SOCKOPT_BINDX_ADD, list, count * sizeof *list);
        for (int n = 0; n < count; n++) {
            int again = fresh(style);
            SAY(bind(again, SA(list[n]), sizeof *list), "then bind of another to %s", lists[i].hosts[n]);
            close(again);
        }
        struct sockaddr_in own;
        socklen_t bytes = sizeof own;
        NEEDED(getsockname(fd, SA(own), &bytes) == 0);
        printf("then port %s\n", own.sin_port == htons(port) ? "of the list" : "0");
        close(fd);
    }
    close(other);
}

static void bindx(void)
{
    int port = next_port(), fd = fresh(style);
    struct sockaddr_in list[2] = {at("127.0.0.1", port), at("127.0.0.2", port)}, wrong = at("192.0.2.1", port);
    struct sockaddr_in6 six = at6("::1", port);
    bindx_once("nothing", fd, SCTP_SOCKOPT_BINDX_ADD, NULL, 16);
    bindx_once("no bytes", fd, SCTP_SOCKOPT_BINDX_ADD, list, 0);
    bindx_once("4 bytes", fd, SCTP_SOCKOPT_BINDX_ADD, list, 4);
    bindx_once("a foreign address", fd, SCTP_SOCKOPT_BINDX_ADD, &wrong, sizeof wrong);
    bindx_once("IPv6 at IPv4", fd, SCTP_SOCKOPT_BINDX_ADD, &six, sizeof six);
    bindx_once("two addresses", fd, SCTP_SOCKOPT_BINDX_ADD, list, sizeof list);
    bindx_once("the same again", fd, SCTP_SOCKOPT_BINDX_ADD, list, sizeof list);
    list[0] = at("127.0.0.3", port + 1);
    bindx_once("another port", fd, SCTP_SOCKOPT_BINDX_ADD, list, sizeof *list);
    list[0] = at("127.0.0.3", 0);
    bindx_once("port 0", fd, SCTP_SOCKOPT_BINDX_ADD, list, sizeof *list);
    list[0] = at("127.0.0.4", port);
    bindx_once("one that is not there", fd, SCTP_SOCKOPT_BINDX_REM, list, sizeof *list);
    list[0] = at("127.0.0.3", port + 1);
    bindx_once("with a wrong port", fd, SCTP_SOCKOPT_BINDX_REM, list, sizeof *list);
    list[0] = at("127.0.0.2", port);
    bindx_once("one", fd, SCTP_SOCKOPT_BINDX_REM, list, sizeof *list);
    list[0] = at("127.0.0.3", port);
    bindx_once("another", fd, SCTP_SOCKOPT_BINDX_REM, list, sizeof *list);
    list[0] = at("127.0.0.1", port);
    bindx_once("the last", fd, SCTP_SOCKOPT_BINDX_REM, list, sizeof *list);
    close(fd);
    fd = fresh(style);
    bindx_once("of an unbound socket", fd, SCTP_SOCKOPT_BINDX_REM, list, sizeof *list);
    list[0] = at("0.0.0.0", port);
    list[1] = at("127.0.0.1", port);
    bindx_once("all and one", fd, SCTP_SOCKOPT_BINDX_ADD, list, sizeof list);
    close(fd);
    bindx_refused(port);
    struct joined j = joined(style);
    list[0] = at("127.0.0.5", 0);
    bindx_once("when connected", j.client, SCTP_SOCKOPT_BINDX_ADD, list, sizeof *list);
    bindx_once("when connected", j.client, SCTP_SOCKOPT_BINDX_REM, list, sizeof *list);
    part(&j);
}

static void connectx_once(const char *text, const void *addresses, int bytes)
{
    static const struct {
        const char *text;
        int option;
    } ways[] = {{"old", SCTP_SOCKOPT_CONNECTX_OLD}, {"new", SCTP_SOCKOPT_CONNECTX}};
    for (int i = 0; i < COUNT(ways); i++) {
        int fd = fresh(style);
        errno = 0;
        int returned = setsockopt(fd, IPPROTO_SCTP, ways[i].option, addresses, bytes);
        printf("connectx, %s, to %s: %s\n", ways[i].text, text,
               returned == -1 ? strerrorname_np(errno) : returned ? "an association" : "0");
        close(fd);
    }
    struct sctp_getaddrs_old ask = {.addr_num = bytes, .addrs = (struct sockaddr *)addresses};
    socklen_t length = sizeof ask;
    int fd = fresh(style);
    errno = 0;
    int returned = getsockopt(fd, IPPROTO_SCTP, SCTP_SOCKOPT_CONNECTX3, &ask, &length);
    printf("connectx, newest, to %s: %s\n", text, returned == -1 ? strerrorname_np(errno) : ask.assoc_id ? "an association" : "0");
    close(fd);
}

static void connectx(void)
{
    int port = next_port(), server = listening(style, port);
    struct sockaddr_in list[2] = {at("127.0.0.1", port), at("127.0.0.1", port)};
    struct sockaddr_in6 six = at6("::1", port);
    connectx_once("nothing", NULL, 16);
    connectx_once("no bytes", list, 0);
    connectx_once("4 bytes", list, 4);
    connectx_once("15 bytes", list, 15);
    connectx_once("IPv6 from IPv4", &six, sizeof six);
    connectx_once("the same twice", list, sizeof list);
    list[1] = at("127.0.0.1", port + 1);
    connectx_once("two ports", list, sizeof list);
    list[0] = at("127.0.0.1", 0);
    connectx_once("port 0", list, sizeof *list);
    list[0] = at("127.0.0.1", next_port());
    connectx_once("a port where nobody listens", list, sizeof *list);
    list[0].sin_family = AF_UNIX;
    connectx_once("AF_UNIX", list, sizeof *list);
    list[0].sin_family = AF_UNSPEC;
    connectx_once("AF_UNSPEC", list, sizeof *list);
    close(server);
    struct joined j = joined(style);
    list[0] = at("127.0.0.1", j.port);
    SAY(setsockopt(j.client, IPPROTO_SCTP, SCTP_SOCKOPT_CONNECTX_OLD, list, sizeof *list), "connectx again");
    part(&j);
}

static void peel_once(const char *text, int fd, int option, int id, socklen_t bytes)
{
    sctp_peeloff_flags_arg_t peel = {.p_arg = {.associd = id}};
    errno = 0;
    int peeled = getsockopt(fd, IPPROTO_SCTP, option, &peel, &bytes);
    printf("%s of %s: %s\n", option == SCTP_SOCKOPT_PEELOFF ? "peeloff" : "peeloff with flags", text,
           peeled == -1 ? strerrorname_np(errno) : peeled ? "a descriptor" : "0");
    if (peeled > 0)
        close(peeled);
}

static void peeloff(void)
{
    struct joined j = joined(style);
    for (int option = SCTP_SOCKOPT_PEELOFF;; option = SCTP_SOCKOPT_PEELOFF_FLAGS) {
        int bytes = option == SCTP_SOCKOPT_PEELOFF ? sizeof(sctp_peeloff_arg_t) : sizeof(sctp_peeloff_flags_arg_t);
        peel_once("future associations", j.client, option, SCTP_FUTURE_ASSOC, bytes);
        peel_once("current ones", j.client, option, SCTP_CURRENT_ASSOC, bytes);
        peel_once("all", j.client, option, SCTP_ALL_ASSOC, bytes);
        peel_once("an unknown one", j.client, option, NO_ASSOCIATION, bytes);
        peel_once("a negative one", j.client, option, -1, bytes);
        peel_once("one, too short", j.client, option, j.id, bytes - 1);
        if (option == SCTP_SOCKOPT_PEELOFF_FLAGS)
            break;
    }
    peel_once("its association", j.client, SCTP_SOCKOPT_PEELOFF, j.id, sizeof(sctp_peeloff_arg_t));
    peel_once("its association again", j.client, SCTP_SOCKOPT_PEELOFF, j.id, sizeof(sctp_peeloff_arg_t));
    part(&j);
}

static void addresses_once(const char *text, int fd, int option, int id, socklen_t bytes)
{
    char place[256] = {0};
    struct sctp_getaddrs *ask = (struct sctp_getaddrs *)place;
    struct sockaddr_in *first = (struct sockaddr_in *)ask->addrs;
    ask->assoc_id = id;
    errno = 0;
    if (said(getsockopt(fd, IPPROTO_SCTP, option, place, &bytes), "%s addresses of %s",
             option == SCTP_GET_PEER_ADDRS ? "the peer's" : "our", text))
        printf(" %u addresses, %u bytes, the first %s", ask->addr_num, bytes, inet_ntoa(first->sin_addr));
    putchar('\n');
}

static void addresses(void)
{
    struct joined j = joined(style);
    int fd = fresh(style), room = sizeof(struct sctp_getaddrs);
    for (int option = SCTP_GET_PEER_ADDRS; option <= SCTP_GET_LOCAL_ADDRS; option++) {
        /* The server is bound to one address; what the client has depends on the host. */
        int end = option == SCTP_GET_PEER_ADDRS ? j.client : j.server;
        int id = style == SOCK_STREAM ? j.id : first_association(end);
        addresses_once("the association", end, option, id, 256);
        addresses_once("no association", end, option, 0, 256);
        addresses_once("an unknown one", end, option, NO_ASSOCIATION, 256);
        addresses_once("a negative one", end, option, -1, 256);
        addresses_once("the association with no room", end, option, id, room);
        addresses_once("the association with too little room", end, option, id, room + 8);
        addresses_once("the association with room for one", end, option, id, room + 16);
        addresses_once("the association in 4 bytes", end, option, id, 4);
        addresses_once("an unbound socket", fd, option, 0, 256);
        addresses_once("an unknown one of an unbound socket", fd, option, NO_ASSOCIATION, 256);
    }
    close(fd);
    part(&j);
}

/* The name that comes with the end of the data. */
static void name_of_the_end(void)
{
    struct joined j = joined(SOCK_STREAM);
    struct sockaddr_in name;
    char place[8];
    struct iovec part = {place, sizeof place};
    struct msghdr m = {.msg_name = &name, .msg_namelen = sizeof name, .msg_iov = &part, .msg_iovlen = 1};
    socklen_t bytes = sizeof name;
    NEEDED(send(j.server, "a", 1, 0) == 1 && close(j.server) == 0 && readable(j.client));
    said(recvfrom(j.client, place, sizeof place, 0, SA(name), &bytes), "recvfrom of a message");
    printf(", a name of %u bytes\n", bytes);
    NEEDED(readable(j.client));
    bytes = sizeof name;
    said(recvfrom(j.client, place, sizeof place, 0, SA(name), &bytes), "recvfrom of the end");
    printf(", a name of %u bytes\n", bytes);
    said(recvmsg(j.client, &m, 0), "recvmsg of the end");
    printf(", a name of %u bytes\n", m.msg_namelen);
    m.msg_name = NULL;
    m.msg_namelen = 5;
    said(recvmsg(j.client, &m, 0), "recvmsg of the end without place for a name");
    printf(", a name of %u bytes\n", m.msg_namelen);
    close(j.client);
    close(j.listener);
}

/* Options that other sockets have, and subscriptions of a length that nobody needs. */
static void options_of_others(void)
{
    static const struct {
        const char *text;
        int level, name;
    } options[] = {
        {"SO_PEERCRED", SOL_SOCKET, SO_PEERCRED}, {"SO_PEEK_OFF", SOL_SOCKET, SO_PEEK_OFF},
        {"SO_BUSY_POLL", SOL_SOCKET, SO_BUSY_POLL}, {"IP_RECVOPTS", IPPROTO_IP, IP_RECVOPTS},
        {"IP_RETOPTS", IPPROTO_IP, IP_RETOPTS}, {"IP_RECVTTL", IPPROTO_IP, IP_RECVTTL},
        {"IP_RECVTOS", IPPROTO_IP, IP_RECVTOS}, {"IP_RECVORIGDSTADDR", IPPROTO_IP, IP_RECVORIGDSTADDR},
    };
    struct joined j = joined(SOCK_STREAM);
    struct sctp_event event[2] = {{.se_type = SCTP_SHUTDOWN_EVENT, .se_on = 1}};
    for (int i = 0; i < COUNT(options); i++) {
        int value[4] = {5, 5, 5, 5}, none = 0;
        socklen_t bytes = sizeof value;
        said(getsockopt(j.client, options[i].level, options[i].name, value, &bytes), "%s", options[i].text);
        printf(", %u bytes: %d %d %d\n", bytes, value[0], value[1], value[2]);
        SAY(setsockopt(j.client, options[i].level, options[i].name, &none, sizeof none), "%s to 0", options[i].text);
    }
    for (int bytes = 7; bytes < 17; bytes += 3)
        SAY(setsockopt(j.client, IPPROTO_SCTP, SCTP_EVENT, event, bytes), "SCTP_EVENT of %d bytes", bytes);
    close(j.server);
    close(j.client);
    close(j.listener);
}

int main(void)
{
    static void (*const parts[])(void) = {binds, bound, listens, nothing, no_room, no_wait, too_long, accepts, connects, before_connecting, after_connecting,
                                          aborted, bindx, connectx, peeloff, addresses};
    begin();
    sockets();
    for (int i = 0; i < 2; i++) {
        style = i ? SOCK_SEQPACKET : SOCK_STREAM;
        printf("\n# %s\n", style_name(style));
        for (int n = 0; n < COUNT(parts); n++)
            parts[n]();
    }
    name_of_the_end();
    options_of_others();
    return 0;
}
