/* The local address of a client: getsockname gives the address that the server sees, however the client was bound and has
 * connected. */
#include "check.h"

enum { SCTP_BINDX_ADD = 100, SCTP_CONNECTX = 110, PORT = 7000 };

static struct sockaddr_in at(const char *ip)
{
    struct sockaddr_in a = loopback(0);
    CHECK(inet_pton(AF_INET, ip, &a.sin_addr) == 1);
    return a;
}

static void by_connect(int fd, struct sockaddr_in *server)
{
    CHECK(connect(fd, (struct sockaddr *)server, sizeof *server) == 0);
}

static void by_connect_that_does_not_wait(int fd, struct sockaddr_in *server)
{
    CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    FAILS(connect(fd, (struct sockaddr *)server, sizeof *server), EINPROGRESS);
}

static void by_connectx(int fd, struct sockaddr_in *server)
{
    CHECK(setsockopt(fd, IPPROTO_SCTP, SCTP_CONNECTX, server, sizeof *server) >= 0);
}

static void by_a_message(int fd, struct sockaddr_in *server)
{
    CHECK(sendto(fd, "word", 4, 0, (struct sockaddr *)server, sizeof *server) == 4);
}

static void (*const ways[])(int, struct sockaddr_in *) = {
    by_connect,
    by_connect_that_does_not_wait,
    by_connectx,
    by_a_message,
};

/* Checks the address of this end, as it is told: by getsockname, or by accept to the peer. */
static void is_at(const struct sockaddr_in *told, const char *ip)
{
    char text[INET_ADDRSTRLEN];
    CHECK(inet_ntop(AF_INET, &told->sin_addr, text, sizeof text) != NULL);
    if (strcmp(text, ip) != 0)
        fprintf(stderr, "%s instead of %s\n", text, ip);
    CHECK(strcmp(text, ip) == 0 && told->sin_port != 0);
}

/* Connects a client in each way. It is bound to one or two addresses, or, without the first, not bound. */
static void connects_from(const char *first, const char *second, const char *source)
{
    struct sockaddr_in server = loopback(PORT), own, seen;
    int listener = listening(PORT, 0);
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        int client = fresh(0);
        struct sockaddr_in bound[] = {at(first ? first : source), at(second ? second : source)};
        socklen_t own_bytes = sizeof own, seen_bytes = sizeof seen;
        if (second)
            CHECK(setsockopt(client, IPPROTO_SCTP, SCTP_BINDX_ADD, bound, sizeof bound) == 0);
        else if (first)
            CHECK(bind(client, (struct sockaddr *)bound, sizeof *bound) == 0);
        ways[way](client, &server);
        CHECK(getsockname(client, (struct sockaddr *)&own, &own_bytes) == 0);
        is_at(&own, source);
        int accepted = accept(listener, (struct sockaddr *)&seen, &seen_bytes);
        CHECK(accepted >= 0);
        is_at(&seen, source);
        CHECK(own.sin_port == seen.sin_port);
        CHECK(getsockname(client, (struct sockaddr *)&own, &own_bytes) == 0);
        is_at(&own, source);
        CHECK(close(client) == 0 && close(accepted) == 0);
    }
    CHECK(close(listener) == 0);
}

int main(void)
{
    begin();
    connects_from(NULL, NULL, "127.0.0.1");
    connects_from("0.0.0.0", NULL, "127.0.0.1");
    connects_from("127.0.0.2", NULL, "127.0.0.2");
    connects_from("127.0.0.2", "127.0.0.3", "127.0.0.2");
    /* The source address of the route to the server. */
    connects_from("127.0.0.2", "127.0.0.1", "127.0.0.1");
    return 0;
}
