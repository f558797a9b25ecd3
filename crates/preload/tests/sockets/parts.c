/* A message may lie in 1,024 parts, as many as the kernel allows. Invalid lists of parts fail as they do in the kernel. */
#include "check.h"

#include <limits.h>

enum { MOST = 1024, LONG_BYTES = 60000 };

static int client, server;
static char out[LONG_BYTES], in[LONG_BYTES];
static struct iovec parts[MOST + 1];
/* The compiler would refuse the constants. */
static struct iovec *volatile nowhere = NULL;
static volatile int negative = -1, smallest = INT_MIN;

/* Divides `bytes` bytes of memory into `count` parts of which some are empty and the last takes the rest. */
static void divide(char *memory, size_t bytes, int count, size_t each)
{
    size_t at = 0;
    for (int i = 0; i < count; i++) {
        size_t length = i == count - 1 ? bytes - at : each + i % 2;
        parts[i] = (struct iovec){memory + at, length};
        at += length;
    }
    CHECK(at == bytes);
}

static void there(size_t bytes, int count, size_t each, int by_message)
{
    struct msghdr m = {.msg_iov = parts, .msg_iovlen = count};
    fill(out, bytes, count + bytes);
    divide(out, bytes, count, each);
    CHECK((by_message ? sendmsg(client, &m, 0) : writev(client, parts, count)) == (ssize_t)bytes);
    memset(in, 0, sizeof in);
}

static void and_back(size_t bytes, int count, size_t each, int by_message)
{
    struct msghdr m = {.msg_iov = parts, .msg_iovlen = count};
    divide(in, bytes, count, each);
    CHECK((by_message ? recvmsg(server, &m, 0) : readv(server, parts, count)) == (ssize_t)bytes);
    CHECK(!by_message || (m.msg_flags & MSG_EOR));
    CHECK(memcmp(in, out, bytes) == 0);
}

static void whole(void)
{
    static const struct { size_t bytes, each; } shapes[] = {{2000, 1}, {1024 + 512, 1}, {LONG_BYTES, 58}, {600, 0}, {LONG_BYTES, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (int by_message = 0; by_message < 2; by_message++) {
            for (int count = MOST - 1; count <= MOST; count++) {
                there(shapes[i].bytes, count, shapes[i].each, by_message);
                and_back(shapes[i].bytes, count, shapes[i].each, !by_message);
            }
        }
    }
    /* Into more room than the message takes, no byte behind it is touched. */
    for (size_t bytes = 1; bytes < 3000; bytes += 311) {
        there(bytes, 1, 0, 0);
        memset(in, 'u', sizeof in);
        divide(in, 4000, MOST, 3);
        CHECK(readv(server, parts, MOST) == (ssize_t)bytes && memcmp(in, out, bytes) == 0);
        for (size_t i = bytes; i < 4000; i++)
            CHECK(in[i] == 'u');
    }
    /* A message that nobody expects to be as long, in two reads. */
    there(LONG_BYTES, 1, 0, 0);
    divide(in, 2000, MOST, 1);
    CHECK(readv(server, parts, MOST) == 2000);
    CHECK(recv(server, in + 2000, sizeof in - 2000, 0) == LONG_BYTES - 2000 && memcmp(in, out, LONG_BYTES) == 0);
    /* A look leaves the message. */
    there(2000, 1, 0, 0);
    divide(in, 2000, MOST, 1);
    struct msghdr m = {.msg_iov = parts, .msg_iovlen = MOST};
    CHECK(recvmsg(server, &m, MSG_PEEK) == 2000 && memcmp(in, out, 2000) == 0);
    and_back(2000, MOST, 1, 0);
}

static void invalid(void)
{
    struct msghdr m = {.msg_iov = parts, .msg_iovlen = MOST + 1};
    divide(out, 3000, MOST + 1, 1);
    FAILS(sendmsg(client, &m, 0), EMSGSIZE);
    FAILS(recvmsg(server, &m, MSG_DONTWAIT), EMSGSIZE);
    FAILS(writev(client, parts, MOST + 1), EINVAL);
    FAILS(readv(server, parts, MOST + 1), EINVAL);
    FAILS(writev(client, parts, negative), EINVAL);
    FAILS(readv(server, parts, smallest), EINVAL);
    FAILS(pwritev2(client, parts, MOST + 1, -1, 0), EINVAL);
    FAILS(preadv2(server, parts, MOST + 1, -1, 0), EINVAL);
    m.msg_iov = NULL;
    m.msg_iovlen = 1;
    FAILS(sendmsg(client, &m, 0), EFAULT);
    FAILS(recvmsg(server, &m, MSG_DONTWAIT), EFAULT);
    FAILS(writev(client, nowhere, 1), EFAULT);
    FAILS(readv(server, nowhere, 1), EFAULT);
    parts[0] = (struct iovec){out, 1};
    parts[1] = (struct iovec){out, (size_t)-1};
    m.msg_iov = parts;
    m.msg_iovlen = 2;
    FAILS(sendmsg(client, &m, 0), EINVAL);
    FAILS(recvmsg(server, &m, MSG_DONTWAIT), EINVAL);
    FAILS(writev(client, parts, 2), EINVAL);
    FAILS(readv(server, parts, 2), EINVAL);
    parts[1] = (struct iovec){NULL, 5};
    FAILS(sendmsg(client, &m, 0), EFAULT);
    FAILS(writev(client, parts, 2), EFAULT);
}

/* The error queue is empty, whatever waits to be read. */
static void errors(void)
{
    struct msghdr m = {.msg_iov = parts, .msg_iovlen = 1};
    there(10, 1, 0, 0);
    CHECK(polls(server, POLLIN, -1) == POLLIN);
    divide(in, 10, 1, 0);
    FAILS(recvmsg(server, &m, MSG_ERRQUEUE), EAGAIN);
    FAILS(recv(server, in, sizeof in, MSG_ERRQUEUE | MSG_PEEK), EAGAIN);
    and_back(10, 1, 0, 0);
}

int main(void)
{
    begin();
    joined(6494, &client, &server);
    errors();
    invalid();
    whole();
    return 0;
}
