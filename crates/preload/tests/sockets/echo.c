/* Messages of all sizes go there and back, with their boundaries, between two processes; then the end. */
#include "check.h"

enum { LONGEST = 300000 };
static char out[LONGEST], in[LONGEST];

static void serve(int listener)
{
    static char place[LONGEST];
    struct sockaddr_in peer;
    socklen_t bytes = sizeof peer;
    int fd = accept(listener, (struct sockaddr *)&peer, &bytes);
    CHECK(fd >= 0 && bytes == sizeof peer && peer.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    ssize_t n;
    while ((n = read(fd, place, sizeof place)) > 0)
        CHECK(write(fd, place, n) == n);
    CHECK(n == 0);
    CHECK(close(fd) == 0 && close(listener) == 0);
}

int main(void)
{
    begin();
    int listener = listening(7, 0);
    pid_t server = fork();
    CHECK(server >= 0);
    if (server == 0) {
        serve(listener);
        return 0;
    }
    CHECK(close(listener) == 0);
    int fd = connected(7), whole;
    size_t sizes[] = {1, 2, 100, 1452, 9000, 65535, 65536, 65537, 200000, LONGEST};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        fill(out, sizes[i], i);
        CHECK(send(fd, out, sizes[i], 0) == (ssize_t)sizes[i]);
        CHECK(receive(fd, in, sizeof in, 0, &whole) == (ssize_t)sizes[i] && whole);
        CHECK(memcmp(in, out, sizes[i]) == 0);
    }
    struct iovec parts[40];
    for (int i = 0; i < 40; i++)
        parts[i] = (struct iovec){out + i, 1};
    CHECK(writev(fd, parts, 40) == 40 && readv(fd, parts, 40) == 40);
    CHECK(shutdown(fd, SHUT_WR) == 0);
    /* Only the peer's shutdown is an end. */
    FAILS(read(fd, in, sizeof in), ENOTCONN);
    FAILS(send(fd, out, 1, MSG_NOSIGNAL), EPIPE);
    CHECK(close(fd) == 0);
    CHECK(ended_well(server));
    return 0;
}
