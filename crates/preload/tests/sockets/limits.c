/* A process whose limits leave no room for files or descriptors goes on using the sockets that it has. */
#include "check.h"

enum { PORT = 6496, LONG_BYTES = 300000 };

static char content[LONG_BYTES], place[LONG_BYTES];

static void arrives(int server)
{
    size_t got = 0;
    memset(place, 0, sizeof place);
    for (int whole = 0; !whole;) {
        ssize_t n = receive(server, place + got, sizeof place - got, 0, &whole);
        CHECK(n > 0);
        got += n;
    }
    CHECK(got == LONG_BYTES && memcmp(place, content, LONG_BYTES) == 0);
}

static void short_goes(int client, int server)
{
    char word[8];
    CHECK(send(client, "short", 5, 0) == 5 && recv(server, word, sizeof word, 0) == 5 && memcmp(word, "short", 5) == 0);
}

/* No descriptor may be opened: what needs one is done elsewhere. */
static void without_descriptors(int client, int server)
{
    struct rlimit before, none;
    struct sockaddr_in a = loopback(PORT + 1);
    socklen_t length = sizeof a;
    int on = 1, bytes = 50000, listener = fresh(0);
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    none = (struct rlimit){0, before.rlim_max};
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    FAILS(socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP), EMFILE);
    CHECK(bind(listener, (struct sockaddr *)&a, sizeof a) == 0 && listen(listener, 5) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&a, &length) == 0 && ntohs(a.sin_port) == PORT + 1);
    CHECK(setsockopt(client, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes) == 0);
    CHECK(setsockopt(client, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on) == 0);
    short_goes(client, server);
    CHECK(send(client, content, LONG_BYTES, 0) == LONG_BYTES);
    CHECK(getrlimit(RLIMIT_NOFILE, &none) == 0 && none.rlim_cur == 0);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    arrives(server);
    CHECK(close(listener) == 0);
}

/* SIGXFSZ would end the program. */
static void without_files(int client, int server)
{
    struct rlimit limit = {1000, RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK(send(client, content, LONG_BYTES, 0) == LONG_BYTES);
    arrives(server);
    CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur == 1000);
    limit.rlim_max = 1000;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    FAILS(send(client, content, LONG_BYTES, 0), EFBIG);
    short_goes(client, server);
}

int main(int count, char **words)
{
    int client, server;
    begin();
    fill(content, LONG_BYTES, 9);
    joined(PORT, &client, &server);
    CHECK(count == 2);
    (strcmp(words[1], "files") == 0 ? without_files : without_descriptors)(client, server);
    return 0;
}
