/* Under `swiftwater run`: peers connect to a one-to-many socket until one is refused, and are kept.
 *
 *   peers COUNT        checks that so many were taken
 *   peers COUNT full   checks that the user can begin none of its own either */
#include "hostile.h"

enum { PEERS_MAX = 100 };

/* Whether a connection that was set up is not aborted. */
static int stays(int fd)
{
    char text[16];
    CHECK(send(fd, "hello", 5, 0) == 5 || errno == EPIPE || errno == ECONNRESET);
    return recv(fd, text, sizeof text, 0) == 5;
}

int main(int argc, char **argv)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t bytes = sizeof a;
    int count = 0;
    begin();
    CHECK(argc == 2 || (argc == 3 && strcmp(argv[2], "full") == 0));
    int many = socket(AF_INET, SOCK_SEQPACKET, 132);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(many >= 0 && bind(many, (struct sockaddr *)&a, sizeof a) == 0 && listen(many, 1) == 0);
    CHECK(getsockname(many, (struct sockaddr *)&a, &bytes) == 0);
    pid_t echo = fork();
    if (echo == 0) {
        begin_child();
        for (;;) {
            char text[16];
            struct sockaddr_in from;
            socklen_t from_bytes = sizeof from;
            ssize_t n = recvfrom(many, text, sizeof text, 0, (struct sockaddr *)&from, &from_bytes);
            if (n > 0)
                sendto(many, text, n, 0, (struct sockaddr *)&from, from_bytes);
        }
    }
    CHECK(echo > 0);
    for (; count < PEERS_MAX; count++) {
        int fd = socket(AF_INET, SOCK_STREAM, 132);
        CHECK(fd >= 0);
        if (connect(fd, (struct sockaddr *)&a, sizeof a) != 0) {
            CHECK(errno == ECONNREFUSED || errno == ECONNRESET || errno == ECONNABORTED);
            break;
        }
        if (!stays(fd))
            break;
    }
    CHECK(count == atoi(argv[1]));
    if (argc == 3) {
        int own = socket(AF_INET, SOCK_SEQPACKET, 132);
        CHECK(own >= 0);
        CHECK(sendto(own, "hello", 5, 0, (struct sockaddr *)&a, sizeof a) == -1 && errno == ENOBUFS);
    }
    hold();
    CHECK(kill(echo, SIGKILL) == 0);
    return 0;
}
