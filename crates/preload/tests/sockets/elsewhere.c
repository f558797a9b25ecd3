/* A process in a network namespace of its own gets a socket from outside. With the argument "unreachable", the daemon has
 * an abstract address, which that namespace does not have: then the process must not take the content of the pair,
 * headers included, for data. */
#include "check.h"
#include <sched.h>

static void pass(int to, int fd)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.header = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    struct iovec byte = {"x", 1};
    struct msghdr message = {.msg_iov = &byte, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
    CHECK(sendmsg(to, &message, 0) == 1);
}

static int passed(int from)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    char byte;
    struct iovec place = {&byte, 1};
    struct msghdr message = {.msg_iov = &place, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    int fd;
    CHECK(recvmsg(from, &message, 0) == 1 && message.msg_controllen == sizeof control);
    memcpy(&fd, CMSG_DATA(&control.header), sizeof fd);
    return fd;
}

static void use(int fd, int works)
{
    char text[16];
    if (works) {
        CHECK(read(fd, text, sizeof text) == 5 && memcmp(text, "hello", 5) == 0);
        CHECK(write(fd, "answer", 6) == 6);
        return;
    }
    FAILS(read(fd, text, sizeof text), ENETDOWN);
    FAILS(recv(fd, text, sizeof text, MSG_DONTWAIT), ENETDOWN);
    FAILS(write(fd, "answer", 6), ENETDOWN);
    FILE *stream = fdopen(fd, "r");
    CHECK(stream && !fgets(text, sizeof text, stream) && errno == ENETDOWN);
}

int main(int count, char **arguments)
{
    int client, server, pair[2], works = count < 2;
    char text[16];
    begin();
    (void)arguments;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(unshare(CLONE_NEWNET) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0);
        use(passed(pair[1]), works);
        _exit(0);
    }
    joined(6404, &client, &server);
    CHECK(send(client, "hello", 5, 0) == 5 && polls(server, POLLIN, -1) == POLLIN);
    pass(pair[0], server);
    CHECK(ended_well(child));
    /* Nothing has happened to the socket here. */
    if (works)
        CHECK(recv(client, text, sizeof text, 0) == 6);
    else
        CHECK(recv(server, text, sizeof text, 0) == 5 && memcmp(text, "hello", 5) == 0);
    return 0;
}
