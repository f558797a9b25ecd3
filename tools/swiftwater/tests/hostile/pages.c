/* Opens sockets until the daemon has no memory left for their pages, and keeps the pages when the sockets are closed:
 *
 *   pages ONE MANY   checks that so many one-to-one sockets were opened at a time, and so many one-to-many sockets */
#include "hostile.h"

#include <sys/mman.h>
#include <sys/stat.h>

/* The daemon keeps what at most so many pages of closed sockets say. */
enum { KEPT_MAX = 1024, SOCKETS_MAX = 4096, PAGE_BYTES = 4096, TRIES = 20000 };

static int pairs[SOCKETS_MAX], pages[SOCKETS_MAX];

/* Opens sockets until that fails, and returns their number; the errno stays. */
static int open_all(int one_to_many)
{
    const char body[2] = {0, (char)one_to_many};
    for (int count = 0;; count++) {
        int fds[SOCKET_DESCRIPTORS], connection = call();
        CHECK(count < SOCKETS_MAX);
        say(connection, OPEN, body, sizeof body, NULL, 0);
        int error = answer(connection, fds);
        close(connection);
        if (error) {
            errno = error;
            return count;
        }
        pairs[count] = fds[PAIR];
        pages[count] = fds[STATUS_PAGE];
        close(fds[SHARERS_PAGE]);
    }
}

/* Closes sockets, and waits until their pages, which are still open here, take no memory. */
static void close_all(int count)
{
    for (int i = 0; i < count; i++)
        CHECK(close(pairs[i]) == 0);
    for (int i = 0; i < count; i++) {
        struct stat page;
        CHECK(fstat(pages[i], &page) == 0);
        for (int tries = 0; page.st_blocks > 0; tries++) {
            CHECK(tries < TRIES);
            usleep(1000);
            CHECK(fstat(pages[i], &page) == 0);
        }
    }
}

/* Opens sockets whose sharers' pages say anything, also that their programs have shut them down both ways, and closes them. */
static void leave(int count, int first)
{
    for (int i = first; i < first + count; i++) {
        const char body[2] = {0, 0};
        int fds[SOCKET_DESCRIPTORS], error = ENOBUFS;
        for (int tries = 0; error == ENOBUFS && tries < TRIES; tries++) {
            int connection = call();
            say(connection, OPEN, body, sizeof body, NULL, 0);
            error = answer(connection, fds);
            close(connection);
        }
        CHECK(error == 0);
        void *page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fds[SHARERS_PAGE], 0);
        CHECK(page != MAP_FAILED);
        memset(page, 0xff, PAGE_BYTES);
        CHECK(munmap(page, PAGE_BYTES) == 0 && close(fds[SHARERS_PAGE]) == 0 && close(fds[PAIR]) == 0);
        pages[i] = fds[STATUS_PAGE];
    }
}

/* The number of pages that take memory. */
static int filled(int count)
{
    int filled = 0;
    for (int i = 0; i < count; i++) {
        struct stat page;
        CHECK(fstat(pages[i], &page) == 0);
        filled += page.st_blocks > 0;
    }
    return filled;
}

int main(int argc, char **argv)
{
    begin();
    CHECK(argc == 3);
    int one = atoi(argv[1]), many = atoi(argv[2]);
    CHECK(open_all(0) == one && errno == ENOBUFS);
    hold();
    close_all(one);
    /* The memory is there for others of this user, though the first pages are kept. */
    CHECK(open_all(1) == many && errno == ENOBUFS);
    close_all(many);
    leave(SOCKETS_MAX / 2, 0);
    for (int tries = 0; filled(SOCKETS_MAX / 2) > KEPT_MAX; tries++) {
        CHECK(tries < TRIES);
        usleep(1000);
    }
    return 0;
}
