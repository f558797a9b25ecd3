/* How signals and time limits end the wait for a peer that never answers: one of whose UDP port nothing is ever read. */
#include "check.h"
#include <sys/time.h>

static volatile sig_atomic_t caught[NSIG];

static void catches(int signal)
{
    caught[signal]++;
}

static void handles(int signal, int flags)
{
    struct sigaction action = {.sa_handler = catches, .sa_flags = flags};
    CHECK(sigaction(signal, &action, NULL) == 0);
}

/* Sends this process one signal and then another, each while a call blocks. */
static pid_t signals(int first, int second)
{
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        await_sleep(parent);
        kill(parent, first);
        await_sleep(parent);
        kill(parent, second);
        _exit(0);
    }
    return child;
}

/* A socket whose peers get their packets at a UDP port that swallows them. */
static int in_vain(int kind)
{
    struct sockaddr_in a = loopback(0);
    int udp = socket(AF_INET, SOCK_DGRAM, 0), fd = socket(AF_INET, kind, IPPROTO_SCTP);
    CHECK(udp >= 0 && fd >= 0);
    CHECK(bind(udp, (struct sockaddr *)&a, sizeof a) == 0);
    CHECK(getsockname(udp, (struct sockaddr *)&a, &(socklen_t){sizeof a}) == 0);
    struct udpencaps encaps = {.port = a.sin_port};
    CHECK(setsockopt(fd, IPPROTO_SCTP, SCTP_REMOTE_UDP_ENCAPS_PORT, &encaps, sizeof encaps) == 0);
    return fd;
}

static void signals_end_connect(int kind)
{
    struct sockaddr_in a = loopback(7);
    int fd = in_vain(kind);
    handles(SIGUSR1, SA_RESTART);
    handles(SIGUSR2, 0);
    pid_t child = signals(SIGUSR1, SIGUSR2);
    caught[SIGUSR1] = caught[SIGUSR2] = 0;
    FAILS(connect(fd, (struct sockaddr *)&a, sizeof a), EINTR);
    CHECK(caught[SIGUSR1] == 1 && caught[SIGUSR2] == 1);
    FAILS(connect(fd, (struct sockaddr *)&a, sizeof a), EALREADY);
    CHECK(ended_well(child));
    close(fd);
}

static void a_time_limit_ends_connect(int kind)
{
    struct sockaddr_in a = loopback(7);
    struct timeval limit = {.tv_usec = 200000};
    int fd = in_vain(kind);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0);
    FAILS(connect(fd, (struct sockaddr *)&a, sizeof a), EINPROGRESS);
    FAILS(connect(fd, (struct sockaddr *)&a, sizeof a), EALREADY);
    close(fd);
}

/* A child ends while its parent connects: the handler of most programs lets calls go on. */
static void a_child_ends(void)
{
    struct sockaddr_in a = loopback(8);
    handles(SIGCHLD, SA_RESTART);
    int fd = fresh(0), server = listening(8, 0);
    for (int i = 0; i < 50; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        CHECK(connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
        CHECK(ended_well(child));
        close(fd);
        close(accept(server, NULL, NULL));
        fd = fresh(0);
    }
}

int main(void)
{
    static const int KINDS[] = {SOCK_STREAM, SOCK_SEQPACKET};
    begin();
    for (int i = 0; i < 2; i++) {
        signals_end_connect(KINDS[i]);
        a_time_limit_ends_connect(KINDS[i]);
    }
    a_child_ends();
    return 0;
}
