/* close with SO_LINGER and a time, while the peer has no room for what was sent: which closes wait, and for what. */
#include "oracle.h"
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

/* Blocks that the peer has no room for, and the send buffer has. */
enum { BLOCK_BYTES = 20000, BLOCKS = 3, SMALL_BUFFER = 8192 };
enum { SHORT = 1, LONGER_THAN_THE_TEST = 1000, SOON_US = 300000 };

static char block[BLOCK_BYTES];

static void linger(int fd, int seconds)
{
    struct linger l = {.l_onoff = 1, .l_linger = seconds};
    NEEDED(setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof l) == 0);
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

/* Sends more than the peer has room for. */
static void fill(int fd)
{
    for (int i = 0; i < BLOCKS; i++)
        NEEDED(send(fd, block, sizeof block, 0) == sizeof block);
}

/* An association whose client has sent more than its server has room for, and lingers. */
static struct joined filled(int seconds)
{
    struct joined j = narrow(SOCK_STREAM);
    linger(j.client, seconds);
    fill(j.client);
    return j;
}

/* Reads the rest of what the client has sent; returns whether its end was an orderly one. */
static int reads_all(int fd)
{
    ssize_t bytes;
    while ((bytes = recv(fd, block, sizeof block, 0)) > 0)
        ;
    return bytes == 0;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

/* A call that closes, and whether it has taken the short time. */
#define CLOSES(call, ...)                                                                          \
    do {                                                                                           \
        double before = now();                                                                     \
        errno = 0;                                                                                 \
        said(call, __VA_ARGS__);                                                                   \
        printf("%s\n", now() - before > SHORT * 0.9 ? ", waited" : "");                            \
    } while (0)

static void ends(struct joined *j)
{
    printf("the peer reads %s\n", reads_all(j->server) ? "all, and the end" : "an error");
    close(j->server);
    close(j->listener);
}

static void waits_for_the_time(void)
{
    struct joined j = filled(SHORT);
    CLOSES(close(j.client), "close");
    ends(&j);
    j = filled(SHORT);
    NEEDED(fcntl(j.client, F_SETFL, O_NONBLOCK) == 0);
    CLOSES(close(j.client), "close of a socket that does not wait");
    ends(&j);
    j = filled(SHORT);
    NEEDED(shutdown(j.client, SHUT_WR) == 0);
    CLOSES(close(j.client), "close after shutdown");
    ends(&j);
    j = filled(SHORT);
    int file = open("/dev/null", O_RDWR);
    CLOSES(dup2(file, j.client) == j.client ? 0 : -1, "dup2 onto it");
    close(j.client);
    ends(&j);
    j = filled(SHORT);
    CLOSES(dup3(file, j.client, O_CLOEXEC) == j.client ? 0 : -1, "dup3 onto it");
    close(j.client);
    ends(&j);
    j = filled(SHORT);
    CLOSES(syscall(SYS_close, j.client), "close by its number");
    ends(&j);
    j = filled(SHORT);
    FILE *stream = fdopen(j.client, "r");
    CLOSES(fclose(stream), "fclose");
    ends(&j);
    close(file);
}

static void accepted_sockets_inherit_it(void)
{
    struct joined j = {.port = next_port(), .client = fresh(SOCK_STREAM)};
    small_buffer(j.client);
    struct sockaddr_in a = at("127.0.0.1", j.port);
    j.listener = listening(SOCK_STREAM, j.port);
    linger(j.listener, SHORT);
    NEEDED(connect(j.client, SA(a), sizeof a) == 0 && (j.server = accept(j.listener, NULL, NULL)) >= 0);
    fill(j.server);
    CLOSES(close(j.server), "close of an accepted socket");
    printf("the peer reads %s\n", reads_all(j.client) ? "all, and the end" : "an error");
    close(j.client);
    CLOSES(close(j.listener), "close of the listener");
}

/* Page that a child and its parent share. */
static int *shared(void)
{
    int *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    NEEDED(page != MAP_FAILED);
    return page;
}

static void set(int *flag)
{
    __atomic_store_n(flag, 1, __ATOMIC_SEQ_CST);
}

static void await(int *flag)
{
    while (!__atomic_load_n(flag, __ATOMIC_SEQ_CST))
        usleep(1000);
}

/* A child that does not have the client's descriptor; the parent's close is the last one. */
static pid_t child_without(int client)
{
    int *closed = shared();
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        close(client);
        set(closed);
    } else {
        await(closed);
    }
    return child;
}

static void waits_for_the_peer(void)
{
    int *read = shared();
    struct joined j = filled(LONGER_THAN_THE_TEST);
    pid_t child = child_without(j.client);
    if (child == 0) {
        usleep(SOON_US);
        set(read);
        reads_all(j.server);
        _exit(0);
    }
    SAY(close(j.client), "close, and the peer reads soon");
    printf("the peer had begun to read: %d\n", __atomic_load_n(read, __ATOMIC_SEQ_CST));
    NEEDED(waitpid(child, NULL, 0) == child);
    close(j.server);
    close(j.listener);
}

static void does_not_wait(void)
{
    struct joined j = filled(LONGER_THAN_THE_TEST);
    int copy = dup(j.client);
    SAY(close(j.client), "close of one of two descriptors");
    linger(copy, SHORT);
    CLOSES(close(copy), "close of the other one");
    ends(&j);
    j = filled(LONGER_THAN_THE_TEST);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        pause();
    }
    SAY(close(j.client), "close of a descriptor that a child has");
    NEEDED(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    ends(&j);
    j = narrow(SOCK_STREAM);
    int *closed = shared();
    child = fork();
    if (child == 0) {
        await(closed);
        linger(j.client, LONGER_THAN_THE_TEST);
        fill(j.client);
        exit(0);
    }
    SAY(close(j.client), "close beside a child");
    set(closed);
    NEEDED(waitpid(child, NULL, 0) == child);
    puts("a child has ended");
    ends(&j);
    j = filled(LONGER_THAN_THE_TEST);
    NEEDED(send(j.server, "unread", 6, 0) == 6 && readable(j.client));
    SAY(close(j.client), "close with unread data");
    ends(&j);
    j = joined(SOCK_STREAM);
    linger(j.client, LONGER_THAN_THE_TEST);
    close(j.server);
    NEEDED(readable(j.client));
    SAY(close(j.client), "close after the peer's");
    close(j.listener);
    j = joined(SOCK_STREAM);
    linger(j.client, LONGER_THAN_THE_TEST);
    NEEDED(send(j.client, "word", 4, 0) == 4);
    SAY(close(j.client), "close with a peer that has room");
    ends(&j);
    j.client = fresh(SOCK_STREAM);
    linger(j.client, LONGER_THAN_THE_TEST);
    SAY(close(j.client), "close of a socket without association");
}

/* Sockets of the other style do not wait, nor do those that were peeled off. */
static void one_to_many(void)
{
    struct joined j = narrow(SOCK_SEQPACKET);
    struct sockaddr_in a = at("127.0.0.1", j.port);
    linger(j.client, LONGER_THAN_THE_TEST);
    for (int i = 0; i < BLOCKS; i++)
        NEEDED(sendto(j.client, block, sizeof block, 0, SA(a), sizeof a) == sizeof block);
    SAY(close(j.client), "close of a one-to-many socket");
    close(j.server);
    j = narrow(SOCK_SEQPACKET);
    linger(j.client, LONGER_THAN_THE_TEST);
    sctp_peeloff_arg_t argument = {.associd = j.id};
    socklen_t bytes = sizeof argument;
    NEEDED(getsockopt(j.client, IPPROTO_SCTP, SCTP_SOCKOPT_PEELOFF, &argument, &bytes) >= 0);
    struct linger l;
    bytes = sizeof l;
    NEEDED(getsockopt(argument.sd, SOL_SOCKET, SO_LINGER, &l, &bytes) == 0);
    printf("SO_LINGER of a socket that was peeled off: %d, %d\n", l.l_onoff, l.l_linger);
    linger(argument.sd, LONGER_THAN_THE_TEST);
    fill(argument.sd);
    SAY(close(argument.sd), "close of a socket that was peeled off");
    close(j.client);
    close(j.server);
}

static void on_signal(int number)
{
    (void)number;
}

static void signal_ends_it(int flags)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};
    struct joined j = filled(LONGER_THAN_THE_TEST);
    NEEDED(sigaction(SIGUSR1, &action, NULL) == 0);
    pid_t parent = getpid(), child = child_without(j.client);
    if (child == 0) {
        /* The parent may not wait yet. */
        for (;;) {
            usleep(SOON_US);
            kill(parent, SIGUSR1);
        }
    }
    SAY(close(j.client), "close, and a signal comes%s", flags ? ", with SA_RESTART" : "");
    NEEDED(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    ends(&j);
}

int main(void)
{
    begin();
    waits_for_the_time();
    accepted_sockets_inherit_it();
    waits_for_the_peer();
    does_not_wait();
    one_to_many();
    signal_ends_it(0);
    signal_ends_it(SA_RESTART);
    return 0;
}
