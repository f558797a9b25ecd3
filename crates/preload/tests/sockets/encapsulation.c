/* SCTP_REMOTE_UDP_ENCAPS_PORT: a server whose daemon has another UDP port. "serve", and "client UDPPORT" under another daemon. */
#include "check.h"

enum { SCTP_PRIMARY_ADDR = 6, PORT = 6400, CLIENTS = 2 };

static void serve(void)
{
    int listener = listening(PORT, 0);
    for (int i = 0; i < CLIENTS; i++) {
        char text[16];
        int server = accept(listener, NULL, NULL);
        CHECK(server >= 0 && recv(server, text, sizeof text, 0) == 5 && send(server, text, 5, 0) == 5);
        CHECK(recv(server, text, sizeof text, 0) == 0);
        CHECK(close(server) == 0);
    }
}

static void set_port(int fd, int port)
{
    struct udpencaps e = {.port = htons(port)};
    CHECK(setsockopt(fd, IPPROTO_SCTP, SCTP_REMOTE_UDP_ENCAPS_PORT, &e, sizeof e) == 0);
}

static int port_of(int fd)
{
    struct udpencaps e = {0};
    socklen_t bytes = sizeof e;
    CHECK(getsockopt(fd, IPPROTO_SCTP, SCTP_REMOTE_UDP_ENCAPS_PORT, &e, &bytes) == 0);
    return ntohs(e.port);
}

static void is_answered(int fd, int style, int udp_port)
{
    struct sockaddr_in a = loopback(PORT);
    char text[16];
    set_port(fd, udp_port);
    CHECK(port_of(fd) == udp_port);
    if (style == SOCK_STREAM)
        CHECK(connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
    CHECK(sendto(fd, "there", 5, 0, (struct sockaddr *)&a, sizeof a) == 5);
    CHECK(recv(fd, text, sizeof text, 0) == 5 && memcmp(text, "there", 5) == 0);
    CHECK(close(fd) == 0);
}

int main(int count, char **words)
{
    begin();
    if (count == 2 && strcmp(words[1], "serve") == 0) {
        serve();
        return 0;
    }
    CHECK(count == 3);
    struct sockaddr_in a = loopback(PORT);
    int udp_port = atoi(words[2]), fd = fresh(0), many = socket(AF_INET, SOCK_SEQPACKET, IPPROTO_SCTP);
    CHECK(many >= 0 && port_of(fd) != udp_port);
    /* By default, and with port 0 (no UDP), packets go to the UDP port of the program's own daemon, where no socket listens. */
    FAILS(connect(fd, (struct sockaddr *)&a, sizeof a), ECONNREFUSED);
    set_port(fd, 0);
    FAILS(connect(fd, (struct sockaddr *)&a, sizeof a), ECONNREFUSED);
    is_answered(fd, SOCK_STREAM, udp_port);
    is_answered(many, SOCK_SEQPACKET, udp_port);
    return 0;
}
