/*
 * Shared by the programs of this folder. Each prints a line for each call: its name, its return value, the error, and the
 * parts of the results that are equal in every run. NAME.txt is the output on Linux 6.1 with its own SCTP.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sctp.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))
#define SA(address) ((struct sockaddr *)&(address))
/* An association that no socket has. */
#define NO_ASSOCIATION 4711

#define NEEDED(holds)                                                                              \
    do {                                                                                           \
        if (!(holds)) {                                                                            \
            printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #holds, strerrorname_np(errno));         \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* A test that hangs is ended, and fails. */
static inline void begin(void)
{
    alarm(60);
    signal(SIGPIPE, SIG_IGN);
    setvbuf(stdout, NULL, _IOLBF, 0);
}

/* "NAME: RESULT", and the error if it is -1. Says whether it is not. */
__attribute__((format(printf, 2, 3))) static inline int said(long result, const char *name, ...)
{
    const char *error = result == -1 ? strerrorname_np(errno) : NULL;
    va_list arguments;
    va_start(arguments, name);
    vprintf(name, arguments);
    va_end(arguments);
    printf(": %ld%s%s", result, error ? " " : "", error ? error : "");
    return result != -1;
}

#define SAY(call, ...)                                                                             \
    do {                                                                                           \
        errno = 0;                                                                                 \
        said(call, __VA_ARGS__);                                                                   \
        putchar('\n');                                                                             \
    } while (0)

static inline struct sockaddr_in at(const char *address, int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    a.sin_addr.s_addr = inet_addr(address);
    return a;
}

static inline struct sockaddr_in6 at6(const char *address, int port)
{
    struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    NEEDED(inet_pton(AF_INET6, address, &a.sin6_addr) == 1);
    return a;
}

/* A port of its own for each use. */
static inline int next_port(void)
{
    static int port = 7000;
    return port++;
}

static inline int fresh(int style)
{
    int fd = socket(AF_INET, style, IPPROTO_SCTP);
    NEEDED(fd >= 0);
    return fd;
}

static inline int listening(int style, int port)
{
    struct sockaddr_in a = at("127.0.0.1", port);
    int fd = fresh(style);
    NEEDED(bind(fd, SA(a), sizeof a) == 0 && listen(fd, 5) == 0);
    return fd;
}

static inline int readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 10000) == 1;
}

/* The first association of a one-to-many socket, or 0. */
static inline int first_association(int fd)
{
    struct {
        __u32 count;
        sctp_assoc_t id[8];
    } ids = {0};
    socklen_t bytes = sizeof ids;
    return getsockopt(fd, IPPROTO_SCTP, SCTP_GET_ASSOC_ID_LIST, &ids, &bytes) == 0 && ids.count ? ids.id[0] : 0;
}

/* An association and its two sockets. Of one-to-many sockets each has this one alone. */
struct joined {
    int port, client, server, listener, id;
};

static inline struct joined joined(int style)
{
    struct joined j = {.port = next_port(), .client = fresh(style), .listener = -1};
    struct sockaddr_in a = at("127.0.0.1", j.port);
    j.server = listening(style, j.port);
    NEEDED(connect(j.client, SA(a), sizeof a) == 0);
    if (style == SOCK_STREAM) {
        struct sctp_status status = {0};
        socklen_t bytes = sizeof status;
        j.listener = j.server;
        NEEDED(readable(j.listener) && (j.server = accept(j.listener, NULL, NULL)) >= 0);
        if (getsockopt(j.client, IPPROTO_SCTP, SCTP_STATUS, &status, &bytes) == 0)
            j.id = status.sstat_assoc_id;
    } else {
        j.id = first_association(j.client);
    }
    return j;
}

static inline void part(struct joined *j)
{
    close(j->client);
    close(j->server);
    close(j->listener);
}

static inline const char *style_name(int style)
{
    return style == SOCK_STREAM ? "one-to-one" : "one-to-many";
}
