/* Under `swiftwater run`: sends records without pause, past the shim, for which there is nobody. Each costs the daemon a
 * copy of a long message and the sender next to nothing, so that there is always another one.
 *
 *   endless many   into a one-to-many socket without associations, about which it asks meanwhile
 *   endless gone   into an association that is gone */
#include "hostile.h"
#include "../../../../crates/preload/tests/sockets/past_shim.h"
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum { HEADER_BYTES = 64, DATA = 1, END = 1, IN_MEMFD = 4, ASSOCIATION_AT = 32, LENGTH_AT = 36 };
/* A record takes the daemon a millisecond, so that those that wait last until a sender runs again. */
enum { MESSAGE_BYTES = 2 << 20, SENDERS = 2, QUESTIONS = 3 };

static int long_message(void)
{
    int memfd = memfd_create("endless", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(memfd >= 0 && ftruncate(memfd, MESSAGE_BYTES) == 0);
    CHECK(fcntl(memfd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    return memfd;
}

static void *send_without_pause(void *pair)
{
    unsigned char record[HEADER_BYTES] = {'s', 'w', 'r', 'd', DATA, 0, END | IN_MEMFD, 0, [ASSOCIATION_AT] = 77};
    const uint32_t bytes = MESSAGE_BYTES;
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {.align = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
    struct iovec part = {record, sizeof record};
    struct msghdr m = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    int memfd = long_message();
    memcpy(record + LENGTH_AT, &bytes, sizeof bytes);
    memcpy(CMSG_DATA(&control.align), &memfd, sizeof memfd);
    while (past_shim(SYS_sendmsg, *(int *)pair, (long)&m, MSG_NOSIGNAL, 0, 0, 0) == sizeof record)
        ;
    return NULL;
}

static int gone(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t bytes = sizeof a;
    struct linger at_once = {.l_onoff = 1};
    char text[16];
    int listener = socket(AF_INET, SOCK_STREAM, 132), client = socket(AF_INET, SOCK_STREAM, 132);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&a, sizeof a) == 0 && listen(listener, 1) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&a, &bytes) == 0);
    CHECK(client >= 0 && connect(client, (struct sockaddr *)&a, sizeof a) == 0);
    int server = accept(listener, NULL, NULL);
    CHECK(server >= 0 && setsockopt(server, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
    CHECK(close(server) == 0);
    /* It was aborted. */
    CHECK(read(client, text, sizeof text) < 0 && errno == ECONNRESET);
    return client;
}

int main(int argc, char **argv)
{
    pthread_t senders[SENDERS];
    begin();
    CHECK(argc == 2);
    int asks = strcmp(argv[1], "many") == 0, fd = asks ? open_sctp(1) : gone();
    CHECK(fd >= 0);
    for (int i = 0; i < SENDERS; i++)
        CHECK(pthread_create(&senders[i], NULL, send_without_pause, &fd) == 0);
    for (int i = 0; asks && i < QUESTIONS; i++)
        CHECK(ask(ATTACH, NULL, 0, fd) == 0);
    hold();
    /* They have gone on all the time. */
    for (int i = 0; i < SENDERS; i++)
        CHECK(pthread_tryjoin_np(senders[i], NULL) == EBUSY);
    return 0;
}
