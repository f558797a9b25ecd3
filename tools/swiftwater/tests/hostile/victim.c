/* Under `swiftwater run`: a user with sockets of all kinds, whose associations go on working.
 *
 *   victim hold   keeps them open until its standard input ends, and uses them again then
 *   victim        opens, connects, talks and closes, several times */
#include "hostile.h"

enum { TURNS = 20 };

static int fresh(int kind)
{
    int fd = socket(AF_INET, kind, 132);
    CHECK(fd >= 0);
    return fd;
}

static struct sockaddr_in listening(int fd)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t bytes = sizeof a;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(bind(fd, (struct sockaddr *)&a, sizeof a) == 0);
    CHECK(listen(fd, 5) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&a, &bytes) == 0);
    return a;
}

static void talk(int from, int to)
{
    char word[16];
    CHECK(write(from, "hello", 5) == 5);
    CHECK(read(to, word, sizeof word) == 5 && memcmp(word, "hello", 5) == 0);
}

/* Both ends of an association, the second as a listener has accepted it. */
static void join(int listener, const struct sockaddr_in *at, int ends[2])
{
    ends[0] = fresh(SOCK_STREAM);
    CHECK(connect(ends[0], (const struct sockaddr *)at, sizeof *at) == 0);
    ends[1] = accept(listener, NULL, NULL);
    CHECK(ends[1] >= 0);
    talk(ends[0], ends[1]);
    talk(ends[1], ends[0]);
}

int main(int argc, char **argv)
{
    int ends[2], more[2];
    char word[16];
    begin();
    int listener = fresh(SOCK_STREAM), many = fresh(SOCK_SEQPACKET);
    struct sockaddr_in at = listening(listener), at_many = listening(many);
    if (argc > 1 && strcmp(argv[1], "hold") == 0) {
        join(listener, &at, ends);
        int client = fresh(SOCK_STREAM);
        CHECK(connect(client, (struct sockaddr *)&at_many, sizeof at_many) == 0);
        talk(client, many);
        hold();
        talk(ends[0], ends[1]);
        talk(client, many);
        join(listener, &at, more);
        return 0;
    }
    for (int i = 0; i < TURNS; i++) {
        join(listener, &at, ends);
        CHECK(close(ends[0]) == 0);
        CHECK(read(ends[1], word, sizeof word) == 0);
        CHECK(close(ends[1]) == 0);
    }
    return 0;
}
