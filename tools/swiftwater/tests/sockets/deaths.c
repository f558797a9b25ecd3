/* Deaths. `sender`: a program is killed; what it was told was sent arrives. `daemon`: the daemon is killed by whoever runs
 * this; every call on its sockets fails at once. */
#include "check.h"

enum { MESSAGES = 2000 };

static void sender_is_killed(void)
{
    int listener = listening(7, 0);
    pid_t child = fork();
    if (child == 0) {
        int fd = connected(7);
        for (unsigned i = 0; i < MESSAGES; i++)
            CHECK(send(fd, &i, sizeof i, 0) == sizeof i);
        raise(SIGKILL);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    int fd = accept(listener, NULL, NULL);
    CHECK(fd >= 0);
    unsigned got;
    for (unsigned i = 0; i < MESSAGES; i++)
        CHECK(read(fd, &got, sizeof got) == sizeof got && got == i);
    CHECK(read(fd, &got, sizeof got) == 0);
}

static void *accepts(void *listener)
{
    errno = 0;
    CHECK(accept(*(int *)listener, NULL, NULL) == -1 && errno == EINVAL);
    return NULL;
}

static void *fills(void *fd)
{
    static char block[60000];
    while (send(*(int *)fd, block, sizeof block, MSG_NOSIGNAL) > 0)
        ;
    CHECK(errno == EPIPE || errno == ECONNRESET);
    return NULL;
}

static void daemon_is_killed(void)
{
    pthread_t threads[2];
    char word[8];
    struct sockaddr_in a = loopback(10);
    int client, server, other, quiet, listener = listening(8, 0);
    joined(7, &client, &server);
    joined(9, &other, &quiet);
    int fd = fresh(0), error = 0;
    CHECK(pthread_create(&threads[0], NULL, accepts, &listener) == 0);
    CHECK(pthread_create(&threads[1], NULL, fills, &client) == 0);
    puts("ready");
    fflush(stdout);
    FAILS(read(other, word, sizeof word), ECONNRESET);
    /* It lets go of one descriptor after the other. */
    CHECK(polls(quiet, 0, 10000) & POLLHUP && polls(fd, 0, 10000) & POLLHUP);
    FAILS(send(quiet, "x", 1, MSG_NOSIGNAL), EPIPE);
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &(socklen_t){sizeof error}) == 0);
    CHECK(error == ECONNRESET);
    FAILS(bind(fd, (struct sockaddr *)&a, sizeof a), ENETDOWN);
    FAILS(socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP), EPROTONOSUPPORT);
    CHECK(pthread_join(threads[0], NULL) == 0 && pthread_join(threads[1], NULL) == 0);
    (void)server;
}

int main(int count, char **words)
{
    begin();
    CHECK(count == 2);
    if (strcmp(words[1], "sender") == 0)
        sender_is_killed();
    else
        daemon_is_killed();
    return 0;
}
