/* The daemon that was started for a program is killed; its next socket starts another. */
#include "check.h"
#include <stddef.h>
#include <sys/un.h>

/* The process of the daemon, or 0 if there is none. */
static pid_t the_daemon(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = "\0swiftwater"};
    struct ucred who = {0};
    socklen_t size = sizeof who;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if (connect(fd, (struct sockaddr *)&a, offsetof(struct sockaddr_un, sun_path) + sizeof "swiftwater") == 0)
        CHECK(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0);
    close(fd);
    return who.pid;
}

int main(void)
{
    int client, server;
    char word[8];
    begin();
    for (int times = 0; times < 2; times++) {
        joined(5311, &client, &server);
        CHECK(send(client, "hello", 5, 0) == 5 && read(server, word, sizeof word) == 5);
        CHECK(close(client) == 0 && close(server) == 0);
        pid_t daemon = the_daemon();
        CHECK(daemon > 0 && kill(daemon, SIGKILL) == 0);
        while (the_daemon() == daemon)
            sched_yield();
    }
    return 0;
}
