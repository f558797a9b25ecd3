/* A receiver with little room takes many short messages. All that the peer may send is kept, so none is sent again
 * but by probes of a closed window: the first after a second, each after twice the time of the one before, for as
 * long as this program may run. */
#include "check.h"

enum { SCTP_GET_ASSOC_STATS = 112 };
enum { PORT = 6404, MESSAGES = 20000, PROBES = 5 };

struct assoc_stats {
    int32_t assoc_id;
    struct sockaddr_storage address;
    uint64_t rto_max, sacks_in, sacks_out, packets_out, packets_in, chunks_again, out_of_sequence, duplicates, gaps;
    uint64_t others[6];
};

static void with_room(int port, int bytes)
{
    struct sockaddr_in a = loopback(port);
    int listener = fresh(0);
    CHECK(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes) == 0);
    CHECK(bind(listener, (struct sockaddr *)&a, sizeof a) == 0 && listen(listener, 1) == 0);
    int client = connected(port), server = accept(listener, NULL, NULL);
    CHECK(server >= 0);
    pid_t sender = fork();
    if (sender == 0) {
        struct assoc_stats stats = {0};
        socklen_t length = sizeof stats;
        char done;
        for (int32_t n = 0; n < MESSAGES; n++)
            CHECK(send(client, &n, sizeof n, 0) == sizeof n);
        /* The other has read everything. */
        CHECK(recv(client, &done, 1, 0) == 1);
        CHECK(getsockopt(client, IPPROTO_SCTP, SCTP_GET_ASSOC_STATS, &stats, &length) == 0);
        CHECK(stats.packets_out > 0 && stats.chunks_again <= PROBES);
        _exit(0);
    }
    for (int32_t n = 0, number; n < MESSAGES; n++)
        CHECK(recv(server, &number, sizeof number, 0) == sizeof number && number == n);
    CHECK(send(server, "!", 1, 0) == 1 && ended_well(sender));
    CHECK(close(client) == 0 && close(server) == 0 && close(listener) == 0);
}

int main(void)
{
    begin();
    with_room(PORT, 1024);
    with_room(PORT + 1, 2304);
    return 0;
}
