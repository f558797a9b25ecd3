/* Opens so many connections to the daemon and keeps them:
 *
 *   crowd silent N    that say nothing
 *   crowd waiting N   that wait for an answer that never comes; some are too many */
#include "hostile.h"

enum { CONNECTIONS_MAX = 4096 };

int main(int argc, char **argv)
{
    begin();
    CHECK(argc == 3);
    int waits = strcmp(argv[1], "waiting") == 0, count = atoi(argv[2]);
    int pair = waits ? open_sctp(0) : -1;
    CHECK(!waits || pair >= 0);
    static struct pollfd connections[CONNECTIONS_MAX];
    CHECK(count > 0 && count <= CONNECTIONS_MAX);
    for (int i = 0; i < count; i++) {
        connections[i] = (struct pollfd){.fd = call(), .events = POLLIN};
        if (waits)
            say(connections[i].fd, AWAIT_END, NULL, 0, &pair, 1);
    }
    for (int refused = 0; waits && !refused;) {
        CHECK(poll(connections, count, -1) > 0);
        for (int i = 0; i < count; i++) {
            if (!connections[i].revents)
                continue;
            /* With few descriptors others are put off before they have a place. */
            int error = answer(connections[i].fd, NULL);
            CHECK(error == ENOBUFS || error == ERESTART || error == ECONNRESET);
            refused = 1;
            connections[i].fd = -1;
        }
    }
    hold();
    return 0;
}
