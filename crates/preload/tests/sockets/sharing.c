/* Descriptors are the kernel's: they are accepted in children, copied, moved, and known to another program after exec. */
#include "check.h"
#include <sys/syscall.h>

static void serve_one(int listener)
{
    char word[16];
    int fd = accept(listener, NULL, NULL);
    CHECK(fd >= 0);
    ssize_t n = read(fd, word, sizeof word);
    CHECK(n > 0 && write(fd, word, n) == n);
    CHECK(read(fd, word, sizeof word) == 0);
}

static void accepted_in_children(char *self)
{
    int listener = listening(7, 0);
    pid_t children[2];
    for (int i = 0; i < 2; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            serve_one(listener);
            exit(0);
        }
    }
    CHECK(close(listener) == 0);
    int fds[2] = {connected(7), connected(7)};
    for (int i = 0; i < 2; i++) {
        char word[16];
        CHECK(write(fds[i], "hello", 5) == 5 && read(fds[i], word, sizeof word) == 5);
        CHECK(close(fds[i]) == 0);
    }
    CHECK(ended_well(children[0]) && ended_well(children[1]));
    (void)self;
}

/* As ncat -e does: a child makes the socket its standard input and output, and becomes another program. */
static void handed_to_a_program(char *self)
{
    int client, server;
    joined(8, &client, &server);
    pid_t child = fork();
    if (child == 0) {
        CHECK(dup2(server, 0) == 0 && dup2(server, 1) == 1);
        closefrom(3);
        execl(self, self, "copy", (char *)NULL);
        exit(1);
    }
    CHECK(close(server) == 0);
    char word[16];
    CHECK(write(client, "over exec", 9) == 9 && read(client, word, sizeof word) == 9);
    CHECK(memcmp(word, "over exec", 9) == 0);
    CHECK(shutdown(client, SHUT_WR) == 0);
    FAILS(read(client, word, sizeof word), ENOTCONN);
    CHECK(ended_well(child));
}

static int copy(void)
{
    char word[16];
    ssize_t n;
    begin();
    while ((n = read(0, word, sizeof word)) > 0)
        CHECK(write(1, word, n) == n);
    return n != 0;
}

static void copied_and_moved(void)
{
    int client, server, type = 0;
    socklen_t bytes = sizeof type;
    char word[16];
    joined(9, &client, &server);
    int copies[] = {dup(client), fcntl(client, F_DUPFD, 50), dup2(client, 60), dup3(client, 61, O_CLOEXEC)};
    CHECK(copies[1] >= 50 && copies[2] == 60 && copies[3] == 61);
    CHECK(close(client) == 0);
    for (int i = 0; i < 4; i++) {
        CHECK(write(copies[i], "x", 1) == 1 && read(server, word, sizeof word) == 1);
        CHECK(getsockopt(copies[i], SOL_SOCKET, SO_PROTOCOL, &type, &bytes) == 0 && type == IPPROTO_SCTP);
    }
    /* A descriptor that replaces a copy keeps its own meaning. */
    int other[2];
    CHECK(pipe(other) == 0 && dup2(other[1], 60) == 60 && write(60, "pipe", 4) == 4);
    CHECK(read(other[0], word, sizeof word) == 4);
    FAILS(getsockopt(60, SOL_SOCKET, SO_PROTOCOL, &type, &bytes), ENOTSOCK);
    CHECK(close(copies[0]) == 0 && close(copies[1]) == 0);
    CHECK(polls(server, POLLIN, 50) == 0);
    CHECK(close_range(61, 61, 0) == 0);
    CHECK(read(server, word, sizeof word) == 0);
}

static void handed_over_a_socket(void)
{
    int client, server, pair[2];
    char word[16], control[CMSG_SPACE(sizeof(int))] = {0};
    joined(10, &client, &server);
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
    struct iovec part = {word, 1};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    *c = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(c), &client, sizeof client);
    CHECK(sendmsg(pair[0], &m, 0) == 1 && close(client) == 0 && recvmsg(pair[1], &m, 0) == 1);
    memcpy(&client, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof client);
    CHECK(write(client, "handed", 6) == 6 && read(server, word, sizeof word) == 6);
}

/* A child of vfork runs in its parent's memory: what it closes and moves is its own. */
static void closed_in_a_vfork(void)
{
    int client, server, other[2];
    char word[16];
    joined(11, &client, &server);
    CHECK(pipe(other) == 0);
    pid_t child = vfork();
    if (child == 0) {
        close(client);
        dup2(other[1], server);
        dup2(server, client);
        _exit(0);
    }
    CHECK(ended_well(child));
    CHECK(write(client, "mine", 4) == 4 && read(server, word, sizeof word) == 4);
    CHECK(write(other[1], "a pipe", 6) == 6 && read(other[0], word, sizeof word) == 6);
    CHECK(close(client) == 0 && close(server) == 0 && close(other[0]) == 0 && close(other[1]) == 0);
}

/* Makes a child with a copy of the memory, past the handlers of pthread_atfork unless `way` is 0. */
static pid_t child_by(int way)
{
    switch (way) {
    case 0:
        return fork();
#if __GLIBC_PREREQ(2, 34)
    case 1:
        return _Fork();
#endif
    default:
        return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    }
}

/* A number that a child closes and gets again is another socket there, or no socket, and stays what it was in the parent. */
static void reused_in_a_child(int way)
{
    int client, server, others, other[2];
    char word[16];
    joined(12, &client, &server);
    others = listening(13, 0);
    CHECK(pipe(other) == 0);
    CHECK(write(client, "before", 6) == 6 && read(server, word, sizeof word) == 6);
    pid_t child = child_by(way);
    if (child == 0) {
        struct sockaddr_in to = loopback(13);
        CHECK(close(client) == 0);
        CHECK(socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP) == client);
        CHECK(connect(client, (struct sockaddr *)&to, sizeof to) == 0 && write(client, "new", 3) == 3);
        CHECK(dup2(other[1], server) == server && write(server, "a pipe", 6) == 6);
        _exit(0);
    }
    int accepted = accept(others, NULL, NULL);
    CHECK(accepted >= 0 && read(accepted, word, sizeof word) == 3 && memcmp(word, "new", 3) == 0);
    CHECK(read(other[0], word, sizeof word) == 6);
    CHECK(ended_well(child));
    CHECK(write(client, "mine", 4) == 4 && read(server, word, sizeof word) == 4 && memcmp(word, "mine", 4) == 0);
    CHECK(close(client) == 0 && close(server) == 0 && close(accepted) == 0 && close(others) == 0);
    CHECK(close(other[0]) == 0 && close(other[1]) == 0);
}

/* A new socket has the lowest number that is free; iperf3 counts on it. */
static void lowest_number(void)
{
    int hole = dup(0);
    CHECK(close(hole) == 0);
    int fd = fresh(0);
    CHECK(fd == hole);
    CHECK(close(fd) == 0);
}

int main(int count, char **words)
{
    if (count > 1)
        return copy();
    begin();
    lowest_number();
    accepted_in_children(words[0]);
    handed_to_a_program(words[0]);
    copied_and_moved();
    handed_over_a_socket();
    closed_in_a_vfork();
    for (int way = 0; way < 3; way++)
        reused_in_a_child(way);
    return 0;
}
