/* Opens so many connections to the daemon and keeps them:
 *
 *   crowd silent N    that say nothing
 *   crowd waiting N   that wait for an answer that never comes; some are too many
 *   crowd crowded N   the same beside others: with few descriptors some are told to ask again before they wait */
#include "hostile.h"

enum { CONNECTIONS_MAX = 4096 };

int main(int argc, char **argv)
{
    begin();
    CHECK(argc == 3);
    int is_crowded = strcmp(argv[1], "crowded") == 0, count = atoi(argv[2]);
    int waits = is_crowded || strcmp(argv[1], "waiting") == 0;
    int pair = waits ? open_sctp(0) : -1;
    CHECK(!waits || pair >= 0);
    static struct pollfd connections[CONNECTIONS_MAX];
    CHECK(count > 0 && count <= CONNECTIONS_MAX);
    for (int i = 0; i < count; i++) {
        connections[i] = (struct pollfd){.fd = call(), .events = POLLIN};
        if (waits)
            say(connections[i].fd, AWAIT_END, NULL, 0, &pair, 1);
    }
    if (waits) {
        int i = 0;
        CHECK(poll(connections, count, -1) > 0);
        while (!connections[i].revents)
            i++;
        int error = answer(connections[i].fd, NULL);
        CHECK(error == ENOBUFS || (is_crowded && (error == ERESTART || error == ECONNRESET)));
    }
    hold();
    return 0;
}
