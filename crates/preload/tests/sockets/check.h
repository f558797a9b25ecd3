/* Helpers of the programs in this folder. Each program plays both ends and ends with 0, or prints the failed check. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef IPPROTO_SCTP
#define IPPROTO_SCTP 132
#endif

enum { SCTP_REMOTE_UDP_ENCAPS_PORT = 132 };

struct udpencaps {
    int32_t assoc_id;
    struct sockaddr_storage address __attribute__((aligned(8)));
    uint16_t port;
};

#define CHECK(holds)                                                                               \
    do {                                                                                           \
        if (!(holds)) {                                                                            \
            fprintf(stderr, "%s:%d: %s (errno %d, %s)\n", __FILE__, __LINE__, #holds, errno,       \
                    strerror(errno));                                                              \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define FAILS(call, error) CHECK((errno = 0, (call) == -1) && errno == (error))

/* A test that hangs is ended, and fails. */
static inline void begin(void)
{
    alarm(30);
    signal(SIGPIPE, SIG_IGN);
}

/* Waits until a process or thread has slept for a while, as it does in a call that blocks. */
static inline void await_sleep(pid_t sleeper)
{
    char name[64], line[256];
    snprintf(name, sizeof name, "/proc/%d/stat", sleeper);
    for (int asleep = 0; asleep < 20; usleep(5000)) {
        FILE *stat = fopen(name, "r");
        CHECK(stat && fgets(line, sizeof line, stat) && fclose(stat) == 0);
        char *after_name = strrchr(line, ')');
        asleep = after_name && after_name[2] == 'S' ? asleep + 1 : 0;
    }
}

static inline struct sockaddr_in loopback(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return a;
}

static inline int fresh(int flags)
{
    int fd = socket(AF_INET, SOCK_STREAM | flags, IPPROTO_SCTP);
    CHECK(fd >= 0);
    return fd;
}

static inline int listening(int port, int flags)
{
    struct sockaddr_in a = loopback(port);
    int fd = fresh(flags);
    CHECK(bind(fd, (struct sockaddr *)&a, sizeof a) == 0);
    CHECK(listen(fd, 5) == 0);
    return fd;
}

static inline int connected(int port)
{
    struct sockaddr_in a = loopback(port);
    int fd = fresh(0);
    CHECK(connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
    return fd;
}

/* Two ends of one association. */
static inline void joined(int port, int *client, int *server)
{
    int listener = listening(port, 0);
    *client = connected(port);
    *server = accept(listener, NULL, NULL);
    CHECK(*server >= 0);
    CHECK(close(listener) == 0);
}

static inline void fill(char *place, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++)
        place[i] = (char)((i * 7 + seed) ^ (i >> 8));
}

/* Whether the descriptor polls for one of these events now. */
static inline int polls(int fd, int events, int wait_ms)
{
    struct pollfd p = {.fd = fd, .events = events};
    int ready = poll(&p, 1, wait_ms);
    return ready < 0 ? -1 : p.revents & (events | POLLHUP | POLLERR);
}

static inline ssize_t receive(int fd, void *place, size_t bytes, int flags, int *whole)
{
    struct iovec part = {place, bytes};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t n = recvmsg(fd, &m, flags);
    *whole = (m.msg_flags & MSG_EOR) != 0;
    return n;
}

static inline int ended_well(pid_t child)
{
    int status;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
