/* A sender that must not wait is held back while its peer reads nothing, however long its messages are. */
#include "check.h"

enum { MANY = 16 << 20 };

static void held_back(int port, size_t length, int earlier)
{
    int client, server, sent = 0;
    char *content = malloc(length);
    CHECK(content);
    joined(port, &client, &server);
    /* Long messages go with and without a ring, which begins after some messages. */
    for (int i = 0; i < earlier; i++)
        CHECK(send(client, "short", 5, 0) == 5);
    CHECK(fcntl(client, F_SETFL, O_NONBLOCK) == 0);
    /* The daemon takes what the association has room for. */
    for (int full = 0; full < 3; full = polls(client, POLLOUT, 200) == POLLOUT ? 0 : full + 1) {
        memset(content, sent, length);
        for (; send(client, content, length, 0) == (ssize_t)length; memset(content, ++sent, length))
            CHECK(sent * length <= MANY);
        CHECK(errno == EAGAIN);
    }
    CHECK(sent > 0);
    for (int i = 0; i < earlier; i++)
        CHECK(recv(server, content, length, 0) == 5);
    for (int n = 0; n < sent; n++) {
        for (size_t got = 0; got < length;) {
            ssize_t part = recv(server, content + got, length - got, 0);
            CHECK(part > 0);
            got += part;
        }
        CHECK(content[0] == (char)n && content[length - 1] == (char)n);
    }
    CHECK(polls(client, POLLOUT, 10000) == POLLOUT);
    CHECK(close(client) == 0 && close(server) == 0);
    free(content);
}

int main(void)
{
    begin();
    for (int earlier = 0; earlier <= 20; earlier += 20) {
        held_back(6420 + earlier, 100000, earlier);
        held_back(6421 + earlier, 1 << 20, earlier);
    }
    return 0;
}
