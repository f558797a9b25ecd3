/* A program that clears its environment once it has begun, as nginx does: its sockets stay those of its daemon, and what TCP is
   stays. */
#include "check.h"
#include <netinet/tcp.h>

extern char **environ;

static void clear_environment(void)
{
    for (char **variable = environ; *variable != NULL; variable++)
        memset(*variable, 0, strlen(*variable));
    CHECK(clearenv() == 0 && getenv("SWIFTWATER_DAEMON") == NULL);
}

static int protocol_of(int fd)
{
    int protocol = 0;
    socklen_t bytes = sizeof protocol;
    CHECK(getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &bytes) == 0);
    return protocol;
}

int main(void)
{
    begin();
    clear_environment();
    int fd = socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP);
    CHECK(fd >= 0 && protocol_of(fd) == IPPROTO_SCTP && close(fd) == 0);
    fd = socket(AF_INET, SOCK_STREAM, IPPROTO_TCP);
    CHECK(fd >= 0 && protocol_of(fd) == IPPROTO_SCTP);
    int on = 1;
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
    return close(fd);
}
