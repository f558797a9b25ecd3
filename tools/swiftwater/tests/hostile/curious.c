/* Asks for the status again and again, and keeps every answer:
 *
 *   curious SOCKETS ANSWERS */
#include "hostile.h"
#include <sys/stat.h>

enum { STATUS = 13, ANSWERS_MAX = 1000 };

static long kept_blocks(const int *kept, int count)
{
    long blocks = 0;
    for (int i = 0; i < count; i++) {
        struct stat s;
        CHECK(fstat(kept[i], &s) == 0);
        blocks += s.st_blocks;
    }
    return blocks;
}

int main(int argc, char **argv)
{
    static int kept[ANSWERS_MAX];
    begin();
    CHECK(argc == 3);
    int sockets = atoi(argv[1]), answers = atoi(argv[2]);
    CHECK(answers > 0 && answers <= ANSWERS_MAX);
    for (int i = 0; i < sockets; i++)
        CHECK(open_sctp(0) >= 0);
    for (int i = 0; i < answers; i++) {
        int fds[SOCKET_DESCRIPTORS], connection = call();
        struct stat s;
        say(connection, STATUS, NULL, 0, NULL, 0);
        CHECK(answer(connection, fds) == 0 && fds[0] >= 0);
        kept[i] = fds[0];
        CHECK(fstat(kept[i], &s) == 0 && s.st_size > sockets);
        close(connection);
    }
    /* Messages that were read take no memory any more, even if a program keeps them. */
    while (kept_blocks(kept, answers) > 0)
        usleep(1000);
    return 0;
}
