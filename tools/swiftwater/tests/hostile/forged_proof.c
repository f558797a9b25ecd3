/* Claims other users' sockets with descriptors that have only the names of their pairs. */
#include "hostile.h"

enum { NAMES = 64, CONNECTIONS = 4 };

/* Asks over a connection that was made before, about a forged descriptor. */
static int claim(int connection, int kind, const void *body, size_t bytes, int forged)
{
    say(connection, kind, body, bytes, &forged, 1);
    int error = answer(connection, NULL);
    close(connection);
    return error;
}

/* Tries all that a thief would want. The namespace may be another than that of the connections. */
static void claim_all(int (*connections)[CONNECTIONS], char (*names)[108], int count, int kind)
{
    const int32_t no_backlog = 0;
    for (int i = 0; i < count; i++) {
        int pair[2];
        CHECK(pair_named(kind, names[i], pair) == 0);
        CHECK(claim(connections[i][0], ATTACH, NULL, 0, pair[0]) == ENOTSOCK);
        CHECK(claim(connections[i][1], LISTEN, &no_backlog, sizeof no_backlog, pair[0]) == ENOTSOCK);
        /* Associations are numbered from 3 on. */
        for (int id = 3; id < 5; id++) {
            unsigned char body[9] = {id};
            CHECK(claim(connections[i][id - 1], PEEL_OFF, body, sizeof body, pair[0]) == ENOTSOCK);
        }
    }
}

static void connect_all(int (*connections)[CONNECTIONS], int count)
{
    for (int i = 0; i < count; i++)
        for (int j = 0; j < CONNECTIONS; j++)
            connections[i][j] = call();
}

int main(void)
{
    static char names[NAMES][108];
    static int connections[NAMES][CONNECTIONS];
    begin();
    int count = pair_names(names, NAMES);
    CHECK(count >= 3);
    connect_all(connections, count);
    claim_all(connections, names, count, SOCK_STREAM);
    connect_all(connections, count);
    claim_all(connections, names, count, SOCK_DGRAM);
    /* Names are free again in a network namespace of one's own. */
    connect_all(connections, count);
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
        return errno == EPERM || errno == ENOSPC ? SKIPPED : 1;
    claim_all(connections, names, count, SOCK_SEQPACKET);
    return 0;
}
