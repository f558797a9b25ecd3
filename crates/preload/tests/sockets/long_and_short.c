/* A sender that waits for room sends long messages among short ones: all of them arrive, in order. */
#include "check.h"

enum { ROUNDS = 200, LONG = 100000, SHORTS = 7 };

static int length(int message, int short_length)
{
    return message % (SHORTS + 1) == 0 ? LONG : short_length;
}

static void messages_arrive(int port, int short_length)
{
    static char content[LONG + 1];
    int client, server;
    joined(port, &client, &server);
    pid_t sender = fork();
    CHECK(sender >= 0);
    if (sender == 0) {
        begin();
        for (int n = 0; n < ROUNDS * (SHORTS + 1); n++) {
            memset(content, n, length(n, short_length));
            CHECK(send(client, content, length(n, short_length), 0) == length(n, short_length));
        }
        _exit(0);
    }
    for (int n = 0; n < ROUNDS * (SHORTS + 1); n++) {
        int bytes = length(n, short_length), got = 0;
        while (got < bytes) {
            ssize_t part = recv(server, content + got, sizeof content - got, 0);
            CHECK(part > 0);
            got += part;
        }
        CHECK(got == bytes && content[0] == (char)n && content[bytes - 1] == (char)n);
    }
    CHECK(ended_well(sender) && close(client) == 0 && close(server) == 0);
}

int main(void)
{
    begin();
    messages_arrive(6405, 1000);
    messages_arrive(6406, 10);
    messages_arrive(6407, 30000);
    return 0;
}
