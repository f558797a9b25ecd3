/* Ends. The peer is a test that speaks SCTP itself.
 * `hold`: the daemon is stopped while an association is open.
 * `leave`: the program sends what there is room for, says how many messages that were, and ends.
 * `unread`: something is there to read when the program is killed.
 * `inherit`: a child has the descriptor, too; the program is killed before the child.
 * `restart`: the daemon is stopped, and another takes its place. */
#include "check.h"

enum { PORT = 6500, MESSAGE_BYTES = 50000 };

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
    /* The service manager has the door: this waits for the next daemon, which knows nothing of the old socket. */
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
    } all[] = {{"hold", hold}, {"leave", leave}, {"unread", unread}, {"inherit", inherit}, {"restart", restart}};
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
