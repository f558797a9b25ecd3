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
    /* Where the listener has no descriptor for its end, an association is refused, or ended. For a few it has some, which the
     * daemon had not closed yet when the last socket was refused. */
    int server, accepted[MOST], accepted_count = 0;
    CHECK(fcntl(listener, F_SETFL, O_NONBLOCK) == 0);
    for (int i = 0; i < count; i++) {
        char one;
        if (connect(opened[i], (struct sockaddr *)&a, sizeof a) != 0)
            continue;
        struct pollfd either[2] = {{opened[i], POLLIN, 0}, {listener, POLLIN, 0}};
        CHECK(poll(either, 2, -1) > 0);
        if (either[0].revents)
            CHECK(recv(opened[i], &one, 1, 0) <= 0);
        else
            CHECK((accepted[accepted_count++] = accept(listener, NULL, NULL)) >= 0);
    }
    CHECK(accepted_count < count);
    FAILS(accept(listener, NULL, NULL), EAGAIN);
    /* Once some are closed others take their place. */
    for (int i = 0; i < count; i++)
        CHECK(close(opened[i]) == 0);
    for (int i = 0; i < accepted_count; i++)
        CHECK(close(accepted[i]) == 0);
    int client = connected(PORT);
    CHECK(polls(listener, POLLIN, -1) == POLLIN && (server = accept(listener, NULL, NULL)) >= 0);
    CHECK(send(client, "hello", 5, 0) == 5 && close(client) == 0 && close(server) == 0);
    return 0;
}
