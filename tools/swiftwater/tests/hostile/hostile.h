/* Shared by the attackers of this folder: requests to the daemon, sent without the shim. Each attacker is a program of its
 * own, ends with 0 if the daemon has withstood it, and otherwise prints the answer. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* As in crates/channel-protocol: a frame begins with "swcr" and the version. */
enum { FRAME_BYTES_MAX = 4096, DESCRIPTORS_MAX = 253 };
/* Descriptors of a socket: the program's end of the pair, the status page and the sharers' page. */
enum { PAIR, STATUS_PAGE, SHARERS_PAGE, SOCKET_DESCRIPTORS };
enum { OPEN = 0, ATTACH = 1, BIND = 2, LISTEN = 3, CONNECT = 4, GET_OPTION = 8, PEEL_OFF = 12, AWAIT_END = 14, BARRIER = 15 };
/* Kinds of answers. */
enum { FAILED = 1, ASK_AGAIN = 6 };
enum { SKIPPED = 77 };

#define CHECK(holds)                                                                                                  \
    do {                                                                                                              \
        if (!(holds)) {                                                                                               \
            fprintf(stderr, "%s:%d: %s (errno %d, %s)\n", __FILE__, __LINE__, #holds, errno, strerror(errno));        \
            exit(1);                                                                                                  \
        }                                                                                                             \
    } while (0)

/* A test that hangs is ended, and fails. */
static inline void begin(void)
{
    struct rlimit files;
    alarm(60);
    signal(SIGPIPE, SIG_IGN);
    CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
    files.rlim_cur = files.rlim_max;
    CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
}

/* Makes a child end with its parent and by an alarm of its own. Called first, and after a change of the user. */
static inline void begin_child(void)
{
    alarm(60);
    CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
}

/* Says that the attack stands, and keeps it up until whoever has started it has seen enough. */
static inline void hold(void)
{
    char c;
    puts("ready");
    fflush(stdout);
    while (read(0, &c, 1) > 0)
        ;
}

static inline socklen_t abstract(struct sockaddr_un *a, const char *name)
{
    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX;
    CHECK(strlen(name) < sizeof a->sun_path);
    memcpy(a->sun_path + 1, name, strlen(name));
    return offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name);
}

/* A connection to the daemon that SWIFTWATER_DAEMON names. */
static inline int call(void)
{
    struct sockaddr_un a;
    const char *place = getenv("SWIFTWATER_DAEMON");
    CHECK(place && place[0] == '@');
    socklen_t bytes = abstract(&a, place + 1);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0);
    CHECK(connect(fd, (struct sockaddr *)&a, bytes) == 0);
    return fd;
}

static inline ssize_t send_with(int fd, const void *data, size_t bytes, const int *fds, int count)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(DESCRIPTORS_MAX * sizeof(int))];
    } control;
    struct iovec part = {(void *)data, bytes};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    if (count > 0) {
        memset(&control, 0, sizeof control);
        m.msg_control = &control;
        m.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(c), fds, count * sizeof(int));
    }
    return sendmsg(fd, &m, MSG_NOSIGNAL);
}

/* Sends a request of one kind over a connection, with descriptors. */
static inline void say(int connection, int kind, const void *body, size_t bytes, const int *fds, int count)
{
    unsigned char frame[FRAME_BYTES_MAX] = {'s', 'w', 'c', 'r', CHANNEL_VERSION, 0, kind};
    CHECK(7 + bytes <= sizeof frame);
    if (bytes)
        memcpy(frame + 7, body, bytes);
    CHECK(send_with(connection, frame, 7 + bytes, fds, count) == (ssize_t)(7 + bytes));
}

/* The answer to a request: 0, or its errno. ECONNRESET: there is none. ERESTART: the daemon wants to be asked again. `fds` gets
 * at most SOCKET_DESCRIPTORS descriptors. */
static inline int answer(int connection, int *fds)
{
    unsigned char frame[FRAME_BYTES_MAX];
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(SOCKET_DESCRIPTORS * sizeof(int))];
    } control;
    struct iovec part = {frame, sizeof frame};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t n = recvmsg(connection, &m, MSG_CMSG_CLOEXEC);
    if (n <= 0)
        return ECONNRESET;
    CHECK(n >= 5 && memcmp(frame, "swcr", 4) == 0);
    int got[SOCKET_DESCRIPTORS] = {-1, -1, -1};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (c)
        memcpy(got, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
    for (int i = 0; i < SOCKET_DESCRIPTORS; i++) {
        if (fds)
            fds[i] = got[i];
        else if (got[i] >= 0)
            close(got[i]);
    }
    int32_t error = 0;
    if (frame[4] == FAILED)
        memcpy(&error, frame + 5, sizeof error);
    else if (frame[4] == ASK_AGAIN)
        error = ERESTART;
    return error;
}

/* Asks over a connection of its own; returns 0 or an errno. */
static inline int ask(int kind, const void *body, size_t bytes, int about)
{
    int connection = call();
    say(connection, kind, body, bytes, &about, about >= 0);
    int error = answer(connection, NULL);
    close(connection);
    return error;
}

/* Opens an SCTP socket; returns the program's end of its pair, or -1 with the daemon's errno. */
static inline int open_sctp(int one_to_many)
{
    const char body[2] = {0, (char)one_to_many};
    int fds[SOCKET_DESCRIPTORS], connection = call();
    say(connection, OPEN, body, sizeof body, NULL, 0);
    errno = answer(connection, fds);
    close(connection);
    if (errno)
        return -1;
    close(fds[STATUS_PAGE]);
    close(fds[SHARERS_PAGE]);
    return fds[PAIR];
}

/* The names of pairs that /proc/net/unix shows to everybody. */
static inline int pair_names(char (*names)[108], int max)
{
    char line[512];
    int count = 0;
    FILE *f = fopen("/proc/net/unix", "r");
    CHECK(f);
    while (count < max && fgets(line, sizeof line, f)) {
        char *name = strstr(line, "@swiftwater:");
        if (!name)
            continue;
        name[strcspn(name, "\n")] = 0;
        snprintf(names[count++], sizeof *names, "%s", name + 1);
    }
    fclose(f);
    return count;
}

/* A pair whose first end has a peer of this name; the name -1 with errno if it is taken. */
static inline int pair_named(int kind, const char *name, int pair[2])
{
    struct sockaddr_un a;
    socklen_t bytes = abstract(&a, name);
    CHECK(socketpair(AF_UNIX, kind | SOCK_CLOEXEC, 0, pair) == 0);
    return bind(pair[1], (struct sockaddr *)&a, bytes);
}
