/* Holds the inode locks of two sharers' pages: write calls to them sleep, since their content comes from memory that is not
 * delivered. Then it has the daemon change the state of one socket, and leaves the other. No status page can be written here. */
#include "fuse_memory.h"

static char *memory;

struct writer {
    int page;
    _Atomic pid_t thread;
    pthread_t id;
};

static void *write_page(void *argument)
{
    struct writer *writer = argument;
    writer->thread = gettid();
    CHECK(pwrite(writer->page, memory, 64, 4000) == 64);
    return NULL;
}

/* Waits until a writer has slept for a while: its call waits for the content. */
static void await_writer(struct writer *writer)
{
    char name[64], line[256];
    for (int asleep = 0; asleep < 20; usleep(5000)) {
        if (writer->thread == 0)
            continue;
        snprintf(name, sizeof name, "/proc/self/task/%d/stat", writer->thread);
        FILE *stat = fopen(name, "r");
        CHECK(stat && fgets(line, sizeof line, stat) && fclose(stat) == 0);
        char *after_name = strrchr(line, ')');
        asleep = after_name && strchr("SD", after_name[2]) ? asleep + 1 : 0;
    }
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
    struct writer writers[2] = {{.page = used[SHARERS_PAGE]}, {.page = left[SHARERS_PAGE]}};
    CHECK(pwrite(used[STATUS_PAGE], "", 1, 0) < 0 && errno == EBADF);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&writers[i].id, NULL, write_page, &writers[i]) == 0);
    fuse_await();
    /* Both write calls sleep for the same page of the memory. */
    for (int i = 0; i < 2; i++)
        await_writer(&writers[i]);
    CHECK(ask(LISTEN, &backlog, sizeof backlog, used[0]) == 0);
    CHECK(close(left[0]) == 0);
    CHECK(ask(LISTEN, &backlog, sizeof backlog, used[0]) == 0);
    hold();
    fuse_is_released = 1;
    CHECK(pthread_join(writers[0].id, NULL) == 0 && pthread_join(writers[1].id, NULL) == 0);
    return 0;
}
