/* The peer shuts down while the pair of a program holds records that the daemon has not read: a wake record, and a filler that
 * keeps the descriptor from polling writable. The program reads the end of file, and not ECONNRESET, which the kernel reports
 * if the daemon closed its end with unread records. The same holds for records that come after the end. */
#include "check.h"
#include "past_shim.h"
#include <sys/prctl.h>

enum { PORT = 6745, SMALL_BYTES = 65536, BEFORE_THE_RING = 40, MESSAGE_BYTES = 1000 };
enum { HEADER_BYTES = 64, FILLER = 3, WAKE = 6 };

static char text[MESSAGE_BYTES];
static int client, server;

/* Puts a record of the shim into the pair: crates/channel-protocol/src/record.rs. */
static void put(uint16_t kind)
{
    char header[HEADER_BYTES] = "swrd";
    memcpy(header + 4, &kind, sizeof kind);
    long flags = MSG_DONTWAIT | MSG_NOSIGNAL;
    CHECK(past_shim(SYS_sendto, client, (long)header, sizeof header, flags, 0, 0) == sizeof header);
}

/* Whether the daemon has not read all records. The kernel counts their memory. */
static int has_unread(void)
{
    int bytes = 0;
    CHECK(past_shim(SYS_ioctl, client, TIOCOUTQ, (long)&bytes, 0, 0, 0) == 0);
    return bytes > 0;
}

static void expect_end(void)
{
    CHECK(polls(client, POLLRDHUP, 10000) & POLLRDHUP);
    for (int i = 0; i < 2; i++)
        CHECK(recv(client, text, sizeof text, 0) == 0);
}

int main(void)
{
    int listener = fresh(0), small = SMALL_BYTES, sent = 0;
    struct sockaddr_in a = loopback(PORT);
    begin();
    CHECK(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
    CHECK(bind(listener, (struct sockaddr *)&a, sizeof a) == 0 && listen(listener, 1) == 0);
    client = connected(PORT);
    CHECK((server = accept(listener, NULL, NULL)) >= 0);
    for (; sent < BEFORE_THE_RING; sent++)
        CHECK(send(client, text, sizeof text, 0) == sizeof text && recv(server, text, sizeof text, 0) == sizeof text);
    /* Once the association has no room, the daemon reads neither ring nor pair: the wake record stays in front of the filler. */
    for (; send(client, text, sizeof text, MSG_DONTWAIT) == sizeof text; sent++)
        if (!has_unread())
            put(WAKE);
    CHECK(errno == EAGAIN && polls(client, POLLOUT, 0) == 0 && has_unread());
    pid_t peer = fork();
    CHECK(peer >= 0);
    if (peer == 0) {
        CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && shutdown(server, SHUT_WR) == 0);
        for (int received = BEFORE_THE_RING; received < sent; received++)
            CHECK(recv(server, text, sizeof text, 0) == sizeof text);
        _exit(0);
    }
    CHECK(close(server) == 0 && ended_well(peer));
    expect_end();
    put(WAKE);
    put(FILLER);
    expect_end();
    return 0;
}
