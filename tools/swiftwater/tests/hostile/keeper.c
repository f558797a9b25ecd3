/* Asks again and again for descriptors of a socket of its own, and receives none of the answers. */
#include "hostile.h"

/* More than the places of a daemon with 4,096 descriptors. */
enum { REQUESTS = 1000 };

int main(void)
{
    static int kept[REQUESTS];
    int own, answered = 0, error = 0;
    begin();
    CHECK((own = open_sctp(0)) >= 0);
    for (int i = 0; i < REQUESTS; i++) {
        struct pollfd p = {.fd = kept[i] = call(), .events = POLLIN};
        say(kept[i], ATTACH, NULL, 0, &own, 1);
        CHECK(poll(&p, 1, -1) == 1);
        /* A shutdown is no receipt. */
        if (i % 2)
            CHECK(shutdown(kept[i], SHUT_RDWR) == 0);
    }
    hold();
    /* Half of them get no descriptors: the daemon wants to be asked again. */
    for (int i = 0; i < REQUESTS; i++) {
        error = answer(kept[i], NULL);
        CHECK(error == 0 || error == ERESTART);
        answered += error == 0;
    }
    fprintf(stderr, "%d answers with descriptors\n", answered);
    CHECK(answered > 0 && answered < REQUESTS / 2);
    /* Those that were received leave their places. */
    for (int tries = 0; (error = ask(ATTACH, NULL, 0, own)) == ERESTART && tries < 1000; tries++)
        usleep(10000);
    CHECK(error == 0);
    return 0;
}
