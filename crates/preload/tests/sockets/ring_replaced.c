/* A sender of long messages needs a longer ring than it has. If it cannot announce one because the pair is full, the ring that
 * it has stays in use. */
#include "check.h"

enum { SHORT = 1000, LONG = 100000, MESSAGES_MAX = 100000, REFUSALS = 20 };

static char content[LONG], expected[LONG];
static int lengths[MESSAGES_MAX], sent, received;

/* Sends the next message. Returns false if there is no room. */
static int send_next(int to, int bytes)
{
    CHECK(sent < MESSAGES_MAX);
    fill(content, bytes, sent);
    if (send(to, content, bytes, MSG_DONTWAIT) < 0) {
        CHECK(errno == EAGAIN);
        return 0;
    }
    lengths[sent++] = bytes;
    return 1;
}

static void receive_all(int from)
{
    for (; received < sent; received++) {
        int bytes = lengths[received];
        for (int got = 0; got < bytes;) {
            ssize_t part = recv(from, content + got, sizeof content - got, 0);
            CHECK(part > 0);
            got += part;
            CHECK(got <= bytes);
        }
        fill(expected, bytes, received);
        CHECK(memcmp(content, expected, bytes) == 0);
    }
}

int main(void)
{
    int client, server;
    begin();
    joined(6710, &client, &server);
    for (int i = 0; i < 40; i++) {
        CHECK(send_next(client, SHORT));
        receive_all(server);
    }
    /* Each message that is refused counts as one that a longer ring would have taken. */
    for (int refused = 0; refused < REFUSALS;) {
        while (send_next(client, SHORT))
            ;
        refused += !send_next(client, LONG);
    }
    receive_all(server);
    for (int i = 0; i < 40; i++) {
        CHECK(polls(client, POLLOUT, 20000) == POLLOUT && send_next(client, i % 2 ? SHORT : LONG));
        receive_all(server);
    }
    CHECK(close(client) == 0 && close(server) == 0);
    return 0;
}
