/* `shown`: has a socket of each kind, says so, and waits until nobody writes to its input any more. `full`: opens sockets until
 * the daemon has no more for this user. */
#include "check.h"

enum { SOCKETS_MAX = 1000 };

static void shown(void)
{
    int client, server, gone, left, listener = listening(5301, 0), many = socket(AF_INET, SOCK_SEQPACKET, IPPROTO_SCTP);
    struct sockaddr_in a = loopback(5303);
    char word[8];
    joined(5302, &client, &server);
    CHECK(many >= 0 && bind(many, (struct sockaddr *)&a, sizeof a) == 0 && listen(many, 1) == 0);
    CHECK(connect(fresh(0), (struct sockaddr *)&a, sizeof a) == 0);
    CHECK(send(client, "hello", 5, 0) == 5 && recv(server, word, sizeof word, 0) == 5);
    /* A socket whose peer is gone. */
    joined(5304, &gone, &left);
    CHECK(close(gone) == 0 && recv(left, word, sizeof word, 0) == 0);
    puts("ready");
    fflush(stdout);
    CHECK(read(0, word, 1) == 0);
    (void)listener;
}

static void full(void)
{
    int fds[SOCKETS_MAX], count = 0;
    while ((fds[count] = socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP)) >= 0)
        CHECK(++count < SOCKETS_MAX);
    CHECK(errno == ENFILE && count > 1);
    close(fds[0]);
    /* The daemon hears of it when the kernel tells it. */
    do
        fds[0] = socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP);
    while (fds[0] < 0 && errno == ENFILE);
    CHECK(fds[0] >= 0);
    puts("full");
    fflush(stdout);
    char word;
    CHECK(read(0, &word, 1) == 0);
}

int main(int count, char **words)
{
    begin();
    CHECK(count == 2);
    if (strcmp(words[1], "shown") == 0)
        shown();
    else
        full();
    return 0;
}
