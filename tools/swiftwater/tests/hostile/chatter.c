/* Sends malformed requests, each of which the daemon logs, until the lines exceed a pipe. */
#include "hostile.h"

enum { TURNS = 3000 };

int main(void)
{
    begin();
    for (int i = 0; i < TURNS; i++) {
        int connection = call();
        CHECK(send(connection, "nonsense", 8, MSG_NOSIGNAL) == 8);
        CHECK(answer(connection, NULL) == EPROTONOSUPPORT);
        close(connection);
    }
    return 0;
}
