/* Under `swiftwater run`, as root: a sharer of one socket, of another user, has it watched by so many entries of epoll
 * that the kernel takes long for each record that the daemon puts into its pair. Then that socket rests, and another
 * one of the same user goes on. */
#include "hostile.h"
#include <sys/epoll.h>
#include <sys/syscall.h>

enum { INSTANCES = 20, COPIES_MAX = 10000, EXCHANGES = 20 };

/* Watches the program's end of a pair, past the shim. */
static void watch(int pair)
{
    struct rlimit files;
    int instances[INSTANCES];
    CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
    int copies = files.rlim_cur > 2 * COPIES_MAX ? COPIES_MAX : files.rlim_cur / 2;
    for (int i = 0; i < INSTANCES; i++)
        CHECK((instances[i] = syscall(SYS_epoll_create1, EPOLL_CLOEXEC)) >= 0);
    for (int i = 0; i < copies; i++) {
        int copy = syscall(SYS_dup, pair);
        CHECK(copy >= 0);
        for (int j = 0; j < INSTANCES; j++) {
            struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET};
            CHECK(syscall(SYS_epoll_ctl, instances[j], EPOLL_CTL_ADD, copy, &event) == 0);
        }
    }
}

static void join(int ends[2])
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t bytes = sizeof a;
    int listener = socket(AF_INET, SOCK_STREAM, 132);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&a, sizeof a) == 0 && listen(listener, 1) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&a, &bytes) == 0);
    ends[0] = socket(AF_INET, SOCK_STREAM, 132);
    CHECK(ends[0] >= 0 && connect(ends[0], (struct sockaddr *)&a, sizeof a) == 0);
    ends[1] = accept(listener, NULL, NULL);
    CHECK(ends[1] >= 0 && close(listener) == 0);
}

static void say_hello(int from, int to)
{
    char text[16];
    CHECK(write(from, "hello", 5) == 5 && read(to, text, sizeof text) == 5);
}

int main(int argc, char **argv)
{
    int shared[2], own[2], watched[2], ended[2];
    char text[16];
    begin();
    CHECK(argc == 2 && pipe(watched) == 0 && pipe(ended) == 0);
    join(shared);
    join(own);
    say_hello(shared[0], shared[1]);
    pid_t attacker = fork();
    if (attacker == 0) {
        CHECK(close(ended[1]) == 0);
        CHECK(setgid(atoi(argv[1])) == 0 && setuid(atoi(argv[1])) == 0);
        begin_child();
        watch(shared[1]);
        CHECK(write(watched[1], "1", 1) == 1);
        CHECK(read(ended[0], text, 1) == 0);
        _exit(0);
    }
    CHECK(attacker > 0 && close(watched[1]) == 0 && read(watched[0], text, 1) == 1);
    say_hello(shared[0], shared[1]);
    /* The daemon has this message, and puts it into the pair when the socket has rested. */
    CHECK(write(shared[0], "later", 5) == 5);
    for (int i = 0; i < EXCHANGES; i++) {
        say_hello(own[0], own[1]);
        say_hello(own[1], own[0]);
    }
    struct pollfd resting = {.fd = shared[1], .events = POLLIN};
    CHECK(poll(&resting, 1, 0) == 0);
    CHECK(read(shared[1], text, sizeof text) == 5 && memcmp(text, "later", 5) == 0);
    CHECK(close(ended[1]) == 0);
    int status;
    CHECK(waitpid(attacker, &status, 0) == attacker && status == 0);
    return 0;
}
