/* Under `swiftwater run`: an ordinary AF_UNIX server whose clients have names of the form that pairs have, some of them even
 * those of pairs that there are. It keeps reading what they send. */
#include "hostile.h"

enum { NAMES = 64 };

static void converse(int kind, const char *name)
{
    int pair[2];
    char word[16];
    CHECK(pair_named(kind, name, pair) == 0);
    CHECK(write(pair[1], "hello", 5) == 5);
    CHECK(read(pair[0], word, sizeof word) == 5 && memcmp(word, "hello", 5) == 0);
    CHECK(send(pair[0], "world", 5, 0) == 5);
    CHECK(recv(pair[1], word, sizeof word, 0) == 5 && memcmp(word, "world", 5) == 0);
    CHECK(close(pair[1]) == 0);
    CHECK(kind == SOCK_DGRAM || recv(pair[0], word, sizeof word, 0) == 0);
    CHECK(close(pair[0]) == 0);
}

static void serve(const char *name)
{
    struct sockaddr_un a;
    char word[16], service[64];
    snprintf(service, sizeof service, "hostile-server-%d", (int)getpid());
    int listener = socket(AF_UNIX, SOCK_SEQPACKET, 0), client = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    socklen_t bytes = abstract(&a, service);
    CHECK(bind(listener, (struct sockaddr *)&a, bytes) == 0 && listen(listener, 5) == 0);
    bytes = abstract(&a, name);
    CHECK(bind(client, (struct sockaddr *)&a, bytes) == 0);
    bytes = abstract(&a, service);
    CHECK(connect(client, (struct sockaddr *)&a, bytes) == 0);
    int fd = accept(listener, NULL, NULL);
    CHECK(fd >= 0);
    CHECK(write(client, "hello", 5) == 5);
    CHECK(read(fd, word, sizeof word) == 5 && memcmp(word, "hello", 5) == 0);
    CHECK(write(fd, "world", 5) == 5);
    CHECK(read(client, word, sizeof word) == 5 && memcmp(word, "world", 5) == 0);
    CHECK(close(fd) == 0 && close(client) == 0 && close(listener) == 0);
}

int main(void)
{
    static char names[NAMES][108];
    const char *forged = "swiftwater:0123456789abcdef0123456789abcdef";
    begin();
    int sctp = socket(AF_INET, SOCK_STREAM, 132);
    CHECK(sctp >= 0);
    int count = pair_names(names, NAMES);
    CHECK(count > 0);
    for (int i = 0; i < count; i++) {
        converse(SOCK_STREAM, names[i]);
        converse(SOCK_DGRAM, names[i]);
    }
    converse(SOCK_STREAM, forged);
    converse(SOCK_SEQPACKET, forged);
    serve(forged);
    /* Ours is still ours. */
    struct sockaddr_in any = {.sin_family = AF_INET};
    CHECK(bind(sctp, (struct sockaddr *)&any, sizeof any) == 0 && listen(sctp, 1) == 0);
    return 0;
}
