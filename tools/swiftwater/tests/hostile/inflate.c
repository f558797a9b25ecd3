/* Under `swiftwater run`: sends messages that the module `compress` makes short over associations of its own, and reads nothing
 * until its standard input ends. Then it reads all of them.
 *
 *   inflate ASSOCIATIONS MESSAGES */
#include "hostile.h"

enum { ASSOCIATIONS_MAX = 1000, MESSAGE_BYTES = 60000, QUIET_TURNS = 40 };

static char message[MESSAGE_BYTES], read_bytes[MESSAGE_BYTES + 1];
static int ends[ASSOCIATIONS_MAX][2], sent[ASSOCIATIONS_MAX], received[ASSOCIATIONS_MAX];

static void talk(int from, int to)
{
    char word[16];
    CHECK(write(from, "hello", 5) == 5);
    CHECK(read(to, word, sizeof word) == 5 && memcmp(word, "hello", 5) == 0);
}

static int send_more(int associations, int messages)
{
    int progress = 0;
    for (int i = 0; i < associations; i++)
        while (sent[i] < messages && send(ends[i][0], message, sizeof message, MSG_DONTWAIT) == sizeof message) {
            sent[i]++;
            progress = 1;
        }
    return progress;
}

static int read_more(int associations)
{
    int progress = 0;
    for (int i = 0; i < associations; i++)
        for (;;) {
            ssize_t bytes = recv(ends[i][1], read_bytes, sizeof read_bytes, MSG_DONTWAIT);
            CHECK(bytes == sizeof message || (bytes < 0 && errno == EAGAIN));
            if (bytes < 0)
                break;
            CHECK(memcmp(read_bytes, message, sizeof message) == 0);
            received[i]++;
            progress = 1;
        }
    return progress;
}

static int is_done(int associations, int messages)
{
    for (int i = 0; i < associations; i++)
        if (received[i] < messages)
            return 0;
    return 1;
}

int main(int argc, char **argv)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t bytes = sizeof a;
    begin();
    alarm(300);
    CHECK(argc == 3);
    int associations = atoi(argv[1]), messages = atoi(argv[2]);
    CHECK(associations <= ASSOCIATIONS_MAX);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = socket(AF_INET, SOCK_STREAM, 132);
    CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&a, sizeof a) == 0 && listen(listener, 5) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&a, &bytes) == 0);
    for (int i = 0; i < associations; i++) {
        ends[i][0] = socket(AF_INET, SOCK_STREAM, 132);
        CHECK(ends[i][0] >= 0 && connect(ends[i][0], (struct sockaddr *)&a, sizeof a) == 0);
        ends[i][1] = accept(listener, NULL, NULL);
        CHECK(ends[i][1] >= 0);
        /* The modules learn of each other. */
        for (int turn = 0; turn < 2; turn++) {
            talk(ends[i][0], ends[i][1]);
            talk(ends[i][1], ends[i][0]);
        }
    }
    for (int quiet = 0; quiet < QUIET_TURNS; quiet++) {
        if (send_more(associations, messages))
            quiet = 0;
        usleep(50000);
    }
    hold();
    while (!is_done(associations, messages)) {
        send_more(associations, messages);
        if (!read_more(associations))
            usleep(1000);
    }
    return 0;
}
