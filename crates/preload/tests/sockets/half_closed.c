/* Two threads read a socket that the program has shut down for writing, while more returns of what it has sent than there is room
 * for. Neither is told the end before everything has come. */
#include "check.h"

enum { PORT = 6413, MESSAGE_BYTES = 20000, SMALL_BYTES = 65536, ROUNDS = 10 };
enum { SCTP_EVENTS = 11 };

static char text[MESSAGE_BYTES];
static volatile int ended;

static void *read_to_end(void *socket)
{
    char place[MESSAGE_BYTES + 1000];
    size_t returned = 0;
    for (;;) {
        int had_ended = ended;
        if (recv(*(int *)socket, place, sizeof place, 0) <= 0)
            break;
        CHECK(!had_ended);
        returned++;
    }
    CHECK(errno == ENOTCONN || errno == ECONNRESET);
    ended = 1;
    return (void *)returned;
}

static void half_closed(void)
{
    /* struct sctp_event_subscribe: `sctp_send_failure_event` is the fourth. */
    unsigned char events[8] = {[3] = 1};
    int listener = fresh(0), client = fresh(0), small = SMALL_BYTES, peer;
    size_t sent = 0, returned = 0;
    struct sockaddr_in a = loopback(PORT);
    CHECK(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
    CHECK(bind(listener, (struct sockaddr *)&a, sizeof a) == 0 && listen(listener, 1) == 0);
    CHECK(setsockopt(client, IPPROTO_SCTP, SCTP_EVENTS, events, sizeof events) == 0);
    CHECK(connect(client, (struct sockaddr *)&a, sizeof a) == 0);
    CHECK((peer = accept(listener, NULL, NULL)) >= 0 && close(listener) == 0);
    while (polls(client, POLLOUT, 50) == POLLOUT)
        sent += send(client, text, MESSAGE_BYTES, MSG_DONTWAIT) == MESSAGE_BYTES;
    CHECK(shutdown(client, SHUT_WR) == 0);
    /* With unread data: nothing of what waits arrives. */
    CHECK(close(peer) == 0 && polls(client, POLLIN, -1) & POLLIN);
    usleep(20000);
    pthread_t readers[2];
    ended = 0;
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&readers[i], NULL, read_to_end, &client) == 0);
    for (int i = 0; i < 2; i++) {
        void *messages;
        CHECK(pthread_join(readers[i], &messages) == 0);
        returned += (size_t)messages;
    }
    CHECK(returned > 0 && returned <= sent && close(client) == 0);
}

int main(void)
{
    begin();
    for (int i = 0; i < ROUNDS; i++)
        half_closed();
    return 0;
}
