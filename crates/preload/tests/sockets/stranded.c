/* A process that gets a socket and cannot reach its daemon, as in another network namespace: every call fails, and no data is
   mistaken. */
#include "check.h"

/* The process without the daemon. */
static int without_daemon(int fd)
{
    char content[256];
    struct iovec part = {content, sizeof content};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    struct sockaddr_in a;
    socklen_t bytes = sizeof a;
    volatile size_t length = sizeof content;
    begin();
    for (int i = 0; i < 2; i++) {
        FAILS(read(fd, content, length), ENETDOWN);
        FAILS(recv(fd, content, length, MSG_DONTWAIT), ENETDOWN);
        FAILS(recvmsg(fd, &message, MSG_DONTWAIT), ENETDOWN);
        FAILS(write(fd, "word", 4), ENETDOWN);
        FAILS(send(fd, "word", 4, 0), ENETDOWN);
        FAILS(getsockname(fd, (struct sockaddr *)&a, &bytes), ENETDOWN);
    }
    int copy = dup(fd);
    FAILS(read(copy, content, length), ENETDOWN);
    FILE *stream = fdopen(copy, "r");
    CHECK(stream && fgets(content, sizeof content, stream) == NULL && ferror(stream) && fclose(stream) == 0);
    CHECK(close(fd) == 0);
    FAILS(read(fd, content, length), EBADF);
    /* A file with the same number is a file. */
    CHECK(open("/dev/zero", O_RDONLY) == fd && read(fd, content, length) == sizeof content);
    return 0;
}

int main(int count, char **words)
{
    if (count > 1)
        return without_daemon(atoi(words[1]));
    begin();
    char number[16], word[8];
    int status, listener = listening(40, 0), client = fresh(0);
    struct sockaddr_in a = loopback(40);
    CHECK(connect(client, (struct sockaddr *)&a, sizeof a) == 0);
    int server = accept(listener, NULL, NULL);
    CHECK(send(client, "hello", 5, 0) == 5 && polls(server, POLLIN, 10000) == POLLIN);
    snprintf(number, sizeof number, "%d", server);
    pid_t child = fork();
    if (child == 0) {
        setenv("SWIFTWATER_DAEMON", "@swiftwater-test-nobody", 1);
        execl("/proc/self/exe", words[0], number, NULL);
        _exit(1);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(recv(server, word, sizeof word, 0) == 5 && memcmp(word, "hello", 5) == 0);
    CHECK(close(server) == 0 && close(client) == 0 && close(listener) == 0);
    return 0;
}
