/* A message that is read in parts, by two processes: it ends once, and until then there is something to read. A message that half
 * of the receive buffer holds comes whole if the program has chosen the buffer. */
#include "check.h"

static void parts_of(int to, int from, size_t bytes)
{
    char *out = malloc(bytes), *in = malloc(bytes);
    int whole, there, pipe_ends[2];
    CHECK(out != NULL && in != NULL && pipe(pipe_ends) == 0);
    fill(out, bytes, 3);
    CHECK(send(to, out, bytes, 0) == (ssize_t)bytes && send(to, "next", 4, 0) == 4);
    size_t step = bytes / 5 + 1, at = 0;
    CHECK(polls(from, POLLIN, 10000) == POLLIN);
    CHECK(ioctl(from, FIONREAD, &there) == 0 && there == (int)bytes);
    CHECK(receive(from, in, step, MSG_PEEK, &whole) == (ssize_t)step && !whole);
    for (; at < 2 * step; at += step)
        CHECK(receive(from, in + at, step, 0, &whole) == (ssize_t)step && !whole);
    CHECK(polls(from, POLLIN, 0) == POLLIN);
    CHECK(ioctl(from, FIONREAD, &there) == 0 && there == (int)(bytes - at));
    /* A child goes on, and then its parent. */
    pid_t child = fork();
    if (child == 0) {
        CHECK(receive(from, in, step, MSG_PEEK, &whole) == (ssize_t)step && !whole);
        CHECK(receive(from, in, step, 0, &whole) == (ssize_t)step && !whole);
        exit(memcmp(in, out + at, step) != 0);
    }
    CHECK(ended_well(child));
    CHECK(memcmp(in, out, at) == 0);
    at += step;
    CHECK(read(from, in + at, 1) == 1);
    CHECK(receive(from, in + at + 1, bytes, 0, &whole) == (ssize_t)(bytes - at - 1) && whole);
    CHECK(memcmp(in + at, out + at, bytes - at) == 0);
    CHECK(receive(from, in, bytes, MSG_PEEK, &whole) == 4 && whole);
    CHECK(receive(from, in, bytes, 0, &whole) == 4 && whole && memcmp(in, "next", 4) == 0);
    FAILS(recv(from, in, bytes, MSG_DONTWAIT), EAGAIN);
    free(in);
    free(out);
}

static void whole_in_chosen_buffer(int port, int buffer_bytes, size_t bytes)
{
    int listener = listening(port, 0), client, server, whole;
    char *out = malloc(bytes), *in = malloc(bytes);
    CHECK(out != NULL && in != NULL);
    CHECK(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof buffer_bytes) == 0);
    client = connected(port);
    CHECK((server = accept(listener, NULL, NULL)) >= 0);
    fill(out, bytes, 5);
    CHECK(send(client, out, bytes, 0) == (ssize_t)bytes);
    CHECK(receive(server, in, bytes, 0, &whole) == (ssize_t)bytes && whole);
    CHECK(memcmp(in, out, bytes) == 0);
    CHECK(close(client) == 0 && close(server) == 0 && close(listener) == 0);
    free(in);
    free(out);
}

int main(void)
{
    begin();
    whole_in_chosen_buffer(6520, 8 << 20, 2 << 20);
    int client, server;
    joined(7, &client, &server);
    parts_of(client, server, 100);
    parts_of(server, client, 60000);
    parts_of(client, server, 250000);
    parts_of(client, server, 1000);
    return 0;
}
