/* Under `swiftwater run`: sends messages without waiting to addresses where nobody answers, and keeps its socket.
 *
 *   hoarder COUNT BYTES   each message, of so many bytes, to an address of its own */
#include "hostile.h"

enum { REMOTE_UDP_ENCAPS_PORT = 132 };

struct udpencaps {
    int32_t assoc_id;
    struct sockaddr_storage address __attribute__((aligned(8)));
    uint16_t port;
};

/* A UDP port from which nobody reads: peers behind it are silent. */
static int silent_port(uint16_t *port)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t bytes = sizeof a;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof a) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&a, &bytes) == 0);
    *port = a.sin_port;
    return fd;
}

int main(int argc, char **argv)
{
    begin();
    CHECK(argc == 3);
    struct udpencaps encapsulation = {0};
    silent_port(&encapsulation.port);
    int many = socket(AF_INET, SOCK_SEQPACKET, 132), count = atoi(argv[1]), taken = 0;
    CHECK(many >= 0);
    CHECK(setsockopt(many, 132, REMOTE_UDP_ENCAPS_PORT, &encapsulation, sizeof encapsulation) == 0);
    const ssize_t bytes = atoi(argv[2]);
    char *message = calloc(1, bytes);
    CHECK(message);
    for (int i = 0; i < count; i++) {
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(10000 + i)};
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        ssize_t sent = sendto(many, message, bytes, MSG_DONTWAIT, (struct sockaddr *)&to, sizeof to);
        CHECK(sent == bytes || (sent < 0 && (errno == EAGAIN || errno == ENOBUFS)));
        taken += sent > 0;
    }
    /* The messages that fit were taken. */
    CHECK(taken > 0);
    hold();
    return 0;
}
