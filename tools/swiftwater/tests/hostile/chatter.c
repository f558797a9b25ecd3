/* Sends so many malformed requests. The daemon logs the first ones. */
#include "hostile.h"

int main(int count, char **words)
{
    int turns = count > 1 ? atoi(words[1]) : 1;
    begin();
    for (int i = 0; i < turns; i++) {
        int connection = call();
        CHECK(send(connection, "nonsense", 8, MSG_NOSIGNAL) == 8);
        CHECK(answer(connection, NULL) == EPROTONOSUPPORT);
        close(connection);
    }
    return 0;
}
