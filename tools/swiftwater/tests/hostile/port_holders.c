/* Under `swiftwater run`: sockets with many addresses at one port, which share it.
 *
 *   port_holders hold N    opens N and keeps them
 *   port_holders N         opens N at other addresses without sharing, one after the other */
#include "hostile.h"

/* The most addresses that a socket may have. */
enum { ADDRESSES = 32 };
enum { PORT = 7303, BINDX_ADD = 100 };

static int bound(unsigned char net, int shares)
{
    struct sockaddr_in list[ADDRESSES] = {{0}};
    int fd = socket(AF_INET, SOCK_STREAM, 132);
    CHECK(fd >= 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &shares, sizeof shares) == 0);
    for (int i = 0; i < ADDRESSES; i++) {
        list[i].sin_family = AF_INET;
        list[i].sin_port = htons(PORT);
        list[i].sin_addr.s_addr = htonl(INADDR_LOOPBACK | net << 16 | i << 8);
    }
    CHECK(setsockopt(fd, 132, BINDX_ADD, list, sizeof list) == 0);
    return fd;
}

int main(int argc, char **argv)
{
    begin();
    CHECK(argc == 2 || argc == 3);
    int count = atoi(argv[argc - 1]);
    CHECK(count > 0);
    for (int i = 0; i < count; i++) {
        if (argc == 3)
            bound(1, 1);
        else
            CHECK(close(bound(2, 0)) == 0);
    }
    if (argc == 3)
        hold();
    return 0;
}
