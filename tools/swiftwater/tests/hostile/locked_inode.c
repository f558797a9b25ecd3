/* Holds the inode locks of two sharers' pages: write calls to them sleep, since their content comes from memory that is not
 * delivered. Then it has the daemon change the state of one socket, and leaves the other. No status page can be written here. */
#include "fuse_memory.h"

static char *memory;

static void *write_page(void *page)
{
    CHECK(pwrite(*(int *)page, memory, 64, 4000) == 64);
    return NULL;
}

int main(int argc, char **argv)
{
    const char body[2] = {0, 0};
    const int32_t backlog = 5;
    int used[SOCKET_DESCRIPTORS], left[SOCKET_DESCRIPTORS];
    begin();
    CHECK(argc == 2);
    memory = fuse_memory(atoi(argv[1]));
    if (!memory)
        return SKIPPED;
    int connection = call();
    say(connection, OPEN, body, sizeof body, NULL, 0);
    CHECK(answer(connection, used) == 0 && close(connection) == 0);
    connection = call();
    say(connection, OPEN, body, sizeof body, NULL, 0);
    CHECK(answer(connection, left) == 0 && close(connection) == 0);
    pthread_t writers[2];
    CHECK(pwrite(used[STATUS_PAGE], "", 1, 0) < 0 && errno == EBADF);
    CHECK(pthread_create(&writers[0], NULL, write_page, &used[SHARERS_PAGE]) == 0);
    CHECK(pthread_create(&writers[1], NULL, write_page, &left[SHARERS_PAGE]) == 0);
    fuse_await();
    /* The second write call sleeps for the same page of the memory. */
    usleep(100000);
    CHECK(ask(LISTEN, &backlog, sizeof backlog, used[0]) == 0);
    CHECK(close(left[0]) == 0);
    CHECK(ask(LISTEN, &backlog, sizeof backlog, used[0]) == 0);
    hold();
    fuse_is_released = 1;
    CHECK(pthread_join(writers[0], NULL) == 0 && pthread_join(writers[1], NULL) == 0);
    return 0;
}
