/* Ends. The peer is a test that speaks SCTP itself.
 * `hold`: the daemon is stopped while an association is open.
 * `leave`: the program sends what there is room for, says how many messages that were, and ends.
 * `late`: the peer shuts down before it has received all messages of the program.
 * `refused`: the same, and the program says how many messages it has sent and how many came back.
 * `unread`: something is there to read when the program is killed.
 * `inherit`: a child has the descriptor, too; the program is killed before the child.
 * `restart`: the daemon is stopped, and another takes its place. */
#include "check.h"

enum { PORT = 6500, MESSAGE_BYTES = 50000, SCTP_EVENTS = 11, MSG_NOTIFICATION = 0x8000 };

static int taken(void)
{
    int listener = listening(PORT, 0), fd = accept(listener, NULL, NULL);
    CHECK(fd >= 0 && close(listener) == 0);
    return fd;
}

static void say(const char *word)
{
    puts(word);
    fflush(stdout);
}

static void hold(void)
{
    char text[16];
    int fd = taken();
    CHECK(read(fd, text, sizeof text) == 5 && write(fd, text, 5) == 5);
    FAILS(read(fd, text, sizeof text), ECONNRESET);
    FAILS(send(fd, text, 5, MSG_NOSIGNAL), EPIPE);
    FAILS(socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP), EPROTONOSUPPORT);
}

static void leave(void)
{
    static char block[MESSAGE_BYTES];
    int fd = taken(), count = 0;
    while (send(fd, block, sizeof block, MSG_DONTWAIT) == sizeof block)
        count++;
    CHECK(errno == EAGAIN && count > 0);
    printf("%d\n", count);
}

static void late(void)
{
    static char block[MESSAGE_BYTES];
    int fd = taken();
    while (send(fd, block, sizeof block, MSG_DONTWAIT) == sizeof block)
        ;
    CHECK(errno == EAGAIN);
    FAILS(recv(fd, block, sizeof block, MSG_DONTWAIT), EAGAIN);
    say("full");
    CHECK(polls(fd, POLLIN, 10000) & POLLIN);
    CHECK(read(fd, block, sizeof block) == 0);
    FAILS(send(fd, block, 1, MSG_NOSIGNAL), ESHUTDOWN);
    CHECK(recv(fd, block, sizeof block, MSG_DONTWAIT) == 0);
}

static void full(void)
{
    static char block[MESSAGE_BYTES + 1000];
    /* struct sctp_event_subscribe: `sctp_send_failure_event` is the fourth. */
    unsigned char events[8] = {[3] = 1};
    struct iovec to = {block, sizeof block};
    int fd = taken(), sent = 0, returned = 0;
    CHECK(setsockopt(fd, IPPROTO_SCTP, SCTP_EVENTS, events, sizeof events) == 0);
    /* Until the association takes no more: the rest waits in the daemon when the peer's SHUTDOWN comes. */
    while (polls(fd, POLLOUT, 500) & POLLOUT)
        while (send(fd, block, MESSAGE_BYTES, MSG_DONTWAIT) == MESSAGE_BYTES)
            sent++;
    say("full");
    for (;;) {
        struct msghdr message = {.msg_iov = &to, .msg_iovlen = 1};
        CHECK(polls(fd, POLLIN, 10000) & POLLIN);
        if (recvmsg(fd, &message, 0) == 0)
            break;
        CHECK(message.msg_flags & MSG_NOTIFICATION);
        returned += !!(message.msg_flags & MSG_EOR);
    }
    printf("%d %d\n", sent, returned);
}

static void unread(void)
{
    int fd = taken();
    CHECK(polls(fd, POLLIN, 10000) & POLLIN);
    say("ready");
    pause();
}

static void inherit(void)
{
    char text[16];
    int fd = taken();
    if (fork() == 0) {
        begin();
        for (;;) {
            ssize_t bytes = read(fd, text, sizeof text);
            if (bytes == 3 && memcmp(text, "die", 3) == 0)
                raise(SIGKILL);
            CHECK(bytes > 0 && write(fd, text, bytes) == bytes);
        }
    }
    pause();
}

static void restart(void)
{
    char text[16];
    int client, server, old;
    struct sockaddr_in a = loopback(PORT);
    old = fresh(0);
    joined(PORT, &client, &server);
    say("ready");
    FAILS(read(client, text, sizeof text), ECONNRESET);
    FAILS(read(server, text, sizeof text), ECONNRESET);
    /* The service manager keeps the daemon's socket: this waits for the next daemon, which does not know the old socket. */
    CHECK(bind(old, (struct sockaddr *)&a, sizeof a) == -1);
    CHECK(close(old) == 0 && close(client) == 0 && close(server) == 0);
    joined(PORT, &client, &server);
    CHECK(write(client, "again", 5) == 5 && read(server, text, sizeof text) == 5);
}

int main(int count, char **words)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } all[] = {{"hold", hold}, {"leave", leave}, {"late", late}, {"full", full}, {"unread", unread}, {"inherit", inherit}, {"restart", restart}};
    begin();
    CHECK(count == 2);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(words[1], all[i].name) == 0) {
            all[i].run();
            return 0;
        }
    }
    return 2;
}
