/* The daemon has no descriptors left for more sockets. Calls that need one fail, and no call waits for ever. */
#include "check.h"

enum { PORT = 6405, MOST = 1000 };

int main(void)
{
    begin();
    struct sockaddr_in a = loopback(PORT);
    int listener = listening(PORT, 0), opened[MOST], count = 0, fd;
    while (count < MOST && (fd = socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP)) >= 0)
        opened[count++] = fd;
    CHECK(count > 0 && count < MOST && errno == ENFILE);
    /* The listener has no descriptor for its end: each of these is refused, or ended. */
    for (int i = 0; i < count; i++) {
        char one;
        if (connect(opened[i], (struct sockaddr *)&a, sizeof a) == 0)
            CHECK(recv(opened[i], &one, 1, 0) <= 0);
    }
    CHECK(fcntl(listener, F_SETFL, O_NONBLOCK) == 0);
    FAILS(accept(listener, NULL, NULL), EAGAIN);
    /* Once some are closed others take their place. */
    for (int i = 0; i < count; i++)
        CHECK(close(opened[i]) == 0);
    int client = connected(PORT), server;
    CHECK(polls(listener, POLLIN, -1) == POLLIN && (server = accept(listener, NULL, NULL)) >= 0);
    CHECK(send(client, "hello", 5, 0) == 5 && close(client) == 0 && close(server) == 0);
    return 0;
}
