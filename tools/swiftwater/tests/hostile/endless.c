/* Under `swiftwater run`: sends records without pause, past the shim, for which there is nobody.
 *
 *   endless many   into a one-to-many socket without associations, about which it asks meanwhile
 *   endless gone   into an association that is gone */
#include "hostile.h"
#include <pthread.h>
#include <sys/syscall.h>

enum { HEADER_BYTES = 64, DATA = 1, END = 1, ASSOCIATION_AT = 28, QUESTIONS = 100 };

static void *send_without_pause(void *fd)
{
    unsigned char record[HEADER_BYTES] = {DATA, 0, END, 0, [ASSOCIATION_AT] = 77};
    while (syscall(SYS_sendto, *(int *)fd, record, sizeof record, MSG_NOSIGNAL, NULL, 0) == sizeof record)
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
    pthread_t sender;
    begin();
    CHECK(argc == 2);
    int asks = strcmp(argv[1], "many") == 0, fd = asks ? open_sctp(1) : gone();
    CHECK(fd >= 0 && pthread_create(&sender, NULL, send_without_pause, &fd) == 0);
    for (int i = 0; asks && i < QUESTIONS; i++)
        CHECK(ask(ATTACH, NULL, 0, fd) == 0);
    hold();
    /* It has gone on all the time. */
    CHECK(pthread_tryjoin_np(sender, NULL) == EBUSY);
    return 0;
}
