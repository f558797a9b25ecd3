/* Messages that are longer than a record between a program and the daemon: each arrives whole and in its place, whoever sends it,
 * however it is read, and whatever ends its sender. */
#include "check.h"
#include <sys/time.h>

enum { SHORT_MAX = 65536, LONG_MAX_BYTES = 1 << 20, MESSAGE_MAX = 16 << 20 };

static char out[MESSAGE_MAX], in[MESSAGE_MAX], expected[MESSAGE_MAX];

/* Reads one message in steps. */
static size_t read_whole(int from, size_t step)
{
    size_t at = 0;
    for (int whole = 0; !whole;) {
        ssize_t count = receive(from, in + at, step < sizeof in - at ? step : sizeof in - at, 0, &whole);
        CHECK(count > 0);
        at += count;
    }
    return at;
}

static void arrives(int from, size_t bytes, unsigned seed, size_t step)
{
    fill(expected, bytes, seed);
    CHECK(read_whole(from, step) == bytes && memcmp(in, expected, bytes) == 0);
}

/* Lengths on both sides of each limit. */
static void each_length(int from, int to)
{
    static const size_t limits[] = {1, SHORT_MAX, 131200, 512 << 10, LONG_MAX_BYTES, 4 << 20, MESSAGE_MAX};
    pid_t sender = fork();
    CHECK(sender >= 0);
    for (unsigned i = 0; i < sizeof limits / sizeof *limits; i++)
        for (size_t bytes = limits[i] < 3 ? 1 : limits[i] - 2; bytes <= limits[i] + 2 && bytes <= MESSAGE_MAX; bytes++) {
            if (sender == 0) {
                fill(out, bytes, bytes);
                CHECK(send(to, out, bytes, 0) == (ssize_t)bytes);
            } else {
                arrives(from, bytes, bytes, bytes % 2 ? sizeof in : 300000);
            }
        }
    if (sender == 0)
        _exit(0);
    CHECK(ended_well(sender));
}

/* A send that must not wait takes all of a message or nothing, and takes it soon after the descriptor polls writable. */
static void without_waiting(int from, int to)
{
    enum { MESSAGES = 40 };
    pid_t sender = fork();
    CHECK(sender >= 0);
    if (sender == 0) {
        int refused = 0;
        for (unsigned i = 0; i < MESSAGES;) {
            size_t bytes = i % 4 == 3 ? 1000 : LONG_MAX_BYTES;
            fill(out, bytes, i);
            ssize_t sent = send(to, out, bytes, MSG_DONTWAIT);
            if (sent < 0) {
                CHECK(errno == EAGAIN);
                refused = 1;
                /* It may be refused again while the first ring is announced. */
                for (int attempt = 0; sent < 0 && attempt < 20; attempt++) {
                    CHECK(polls(to, POLLOUT, 20000) == POLLOUT);
                    sent = send(to, out, bytes, MSG_DONTWAIT);
                }
            }
            CHECK(sent == (ssize_t)bytes);
            i++;
        }
        CHECK(refused);
        _exit(0);
    }
    CHECK(polls(from, POLLIN, 20000) == POLLIN);
    for (unsigned i = 0; i < MESSAGES; i++)
        arrives(from, i % 4 == 3 ? 1000 : LONG_MAX_BYTES, i, sizeof in);
    CHECK(ended_well(sender));
}

static void is_peeked_at(int from, int to)
{
    int whole, there;
    for (unsigned round = 0; round < 4; round++) {
        /* The first comes by itself, and the others find the ring with memory. */
        size_t bytes = 150000 - round, part = 100000 + round;
        fill(out, bytes, round);
        pid_t sender = fork();
        if (sender == 0) {
            CHECK(send(to, out, bytes, 0) == (ssize_t)bytes && send(to, "end", 3, 0) == 3);
            _exit(0);
        }
        CHECK(receive(from, in, sizeof in, MSG_PEEK, &whole) == (ssize_t)bytes && whole);
        CHECK(memcmp(in, out, bytes) == 0);
        CHECK(receive(from, in, part, MSG_PEEK, &whole) == (ssize_t)part && !whole);
        CHECK(receive(from, in, part, 0, &whole) == (ssize_t)part && !whole);
        CHECK(receive(from, in + part, sizeof in - part, MSG_PEEK, &whole) == (ssize_t)(bytes - part) && whole);
        CHECK(ioctl(from, FIONREAD, &there) == 0 && there == (int)(bytes - part));
        memset(in + part, 0, bytes - part);
        CHECK(receive(from, in + part, sizeof in - part, 0, &whole) == (ssize_t)(bytes - part) && whole);
        CHECK(memcmp(in, out, bytes) == 0);
        CHECK(recv(from, in, 3, 0) == 3 && memcmp(in, "end", 3) == 0);
        CHECK(ended_well(sender));
    }
}

static void many_in_a_call(int from, int to)
{
    enum { MESSAGES = 5 };
    struct iovec parts[MESSAGES][2];
    struct mmsghdr messages[MESSAGES] = {0};
    fill(out, 2 * LONG_MAX_BYTES, 9);
    for (unsigned i = 0; i < MESSAGES; i++) {
        size_t bytes = i % 2 ? 10 : 300000 * (i + 1) / 2;
        parts[i][0] = (struct iovec){out + i, bytes / 3};
        parts[i][1] = (struct iovec){out + i + bytes / 3, bytes - bytes / 3};
        messages[i].msg_hdr.msg_iov = parts[i];
        messages[i].msg_hdr.msg_iovlen = 2;
    }
    pid_t sender = fork();
    if (sender == 0) {
        CHECK(sendmmsg(to, messages, MESSAGES, 0) == MESSAGES);
        for (unsigned i = 0; i < MESSAGES; i++)
            CHECK(messages[i].msg_len == parts[i][0].iov_len + parts[i][1].iov_len);
        _exit(0);
    }
    for (unsigned i = 0; i < MESSAGES; i++) {
        size_t bytes = parts[i][0].iov_len + parts[i][1].iov_len;
        CHECK(read_whole(from, sizeof in) == bytes && memcmp(in, out + i, bytes) == 0);
    }
    CHECK(ended_well(sender));
}

enum { HANDLER = 3, HANDLER_BYTES = 70000 };

/* Each message begins with its sender and its number. */
static size_t numbered_bytes(unsigned sender, unsigned number)
{
    if (sender == HANDLER)
        return HANDLER_BYTES;
    return 8 + (number % 3 == 2 ? number % 1000 : 66000 + (sender * 7919 + number * 104729) % 900000);
}

static size_t numbered(char *place, unsigned sender, unsigned number)
{
    size_t bytes = numbered_bytes(sender, number);
    fill(place, bytes, sender * 31 + number);
    memcpy(place, &sender, 4);
    memcpy(place + 4, &number, 4);
    return bytes;
}

/* Receives a message; returns its sender. Its number is the next one. */
static unsigned next_numbered(int from, unsigned *next)
{
    unsigned sender, number;
    size_t bytes = read_whole(from, sizeof in);
    memcpy(&sender, in, 4);
    memcpy(&number, in + 4, 4);
    CHECK(sender < 4 && number == next[sender]++);
    CHECK(numbered(expected, sender, number) == bytes && memcmp(in, expected, bytes) == 0);
    return sender;
}

static void several_senders(int from, int to)
{
    enum { SENDERS = 3, EACH = 20 };
    pid_t senders[SENDERS];
    unsigned next[4] = {0};
    for (unsigned sender = 0; sender < SENDERS; sender++)
        if ((senders[sender] = fork()) == 0) {
            begin();
            for (unsigned number = 0; number < EACH; number++) {
                size_t bytes = numbered(out, sender, number);
                CHECK(send(to, out, bytes, 0) == (ssize_t)bytes);
            }
            _exit(0);
        }
    for (unsigned i = 0; i < SENDERS * EACH; i++)
        next_numbered(from, next);
    for (unsigned sender = 0; sender < SENDERS; sender++)
        CHECK(ended_well(senders[sender]));
}

/* A signal handler sends, too, also while the send that it interrupts holds the lock. */
static int handler_sends_to;
static volatile unsigned handled;

static void on_alarm(int signal)
{
    static char text[HANDLER_BYTES];
    int before = errno;
    (void)signal;
    numbered(text, HANDLER, handled);
    if (send(handler_sends_to, text, sizeof text, MSG_DONTWAIT) == sizeof text)
        handled++;
    errno = before;
}

static void handlers_send(int from, int to)
{
    enum { MESSAGES = 40 };
    int counts[2];
    unsigned next[4] = {0}, sent;
    CHECK(pipe(counts) == 0);
    pid_t sender = fork();
    if (sender == 0) {
        struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
        struct itimerval often = {{0, 1500}, {0, 1500}}, never = {{0, 0}, {0, 0}};
        handler_sends_to = to;
        CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
        for (unsigned number = 0; number < MESSAGES; number++) {
            size_t bytes = numbered(out, 0, number);
            CHECK(send(to, out, bytes, 0) == (ssize_t)bytes);
        }
        CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
        sent = handled;
        CHECK(write(counts[1], &sent, sizeof sent) == sizeof sent && send(to, "end", 3, 0) == 3);
        _exit(0);
    }
    for (;;) {
        int whole;
        CHECK(receive(from, in, 3, MSG_PEEK, &whole) == 3);
        if (whole)
            break;
        next_numbered(from, next);
    }
    CHECK(recv(from, in, 3, 0) == 3 && memcmp(in, "end", 3) == 0);
    CHECK(read(counts[0], &sent, sizeof sent) == sizeof sent);
    CHECK(next[0] == MESSAGES && next[HANDLER] == sent && ended_well(sender));
    close(counts[0]);
    close(counts[1]);
}

/* What a sender was told was sent arrives, nothing comes in part, and the next sender goes on. A message that a sender was not
 * told of, because it died first, may come after one of the next sender. */
static void senders_die(int from, int to)
{
    enum { SENDERS = 12, OTHER = 1 };
    unsigned next[4] = {0};
    for (unsigned round = 0; round < SENDERS; round++) {
        unsigned dies = round % 2 * 2, told = 0;
        int counts[2], status;
        next[dies] = next[OTHER] = 0;
        CHECK(pipe(counts) == 0);
        pid_t sender = fork();
        if (sender == 0) {
            for (unsigned number = 0;; number++) {
                size_t bytes = numbered(out, dies, number);
                CHECK(send(to, out, bytes, 0) == (ssize_t)bytes);
                CHECK(write(counts[1], &number, sizeof number) == sizeof number);
            }
        }
        close(counts[1]);
        for (unsigned i = 0; i < round % 4; i++)
            next_numbered(from, next);
        usleep(round * 700);
        CHECK(kill(sender, SIGKILL) == 0 && waitpid(sender, &status, 0) == sender);
        for (unsigned number; read(counts[0], &number, sizeof number) == sizeof number;)
            told = number + 1;
        close(counts[0]);
        pid_t other = fork();
        if (other == 0) {
            size_t bytes = numbered(out, OTHER, 0);
            CHECK(send(to, out, bytes, 0) == (ssize_t)bytes);
            _exit(0);
        }
        while (next_numbered(from, next) != OTHER) {
        }
        CHECK(next[dies] >= told && ended_well(other));
    }
}

static void left_unread(int port)
{
    int client, server;
    joined(port, &client, &server);
    for (unsigned i = 0; i < 3; i++) {
        fill(out, 300000, i);
        CHECK(send(client, out, 300000, 0) == 300000);
        if (i < 2)
            arrives(server, 300000, i, sizeof in);
    }
    CHECK(polls(server, POLLIN, 20000) == POLLIN && close(server) == 0);
    FAILS(recv(client, in, sizeof in, 0), ECONNRESET);
    CHECK(close(client) == 0);
}

static void sent_before_the_end(int port)
{
    int client, server, status;
    joined(port, &client, &server);
    pid_t sender = fork();
    if (sender == 0) {
        for (unsigned i = 0; i < 6; i++) {
            fill(out, LONG_MAX_BYTES - i, i);
            CHECK(send(client, out, LONG_MAX_BYTES - i, 0) == (ssize_t)(LONG_MAX_BYTES - i));
        }
        raise(SIGKILL);
    }
    CHECK(close(client) == 0);
    for (unsigned i = 0; i < 6; i++)
        arrives(server, LONG_MAX_BYTES - i, i, sizeof in);
    CHECK(recv(server, in, sizeof in, 0) == 0 && close(server) == 0);
    CHECK(waitpid(sender, &status, 0) == sender && WIFSIGNALED(status));
}

/* Of a one-to-many socket, each association has its own messages. */
static void to_many(int port)
{
    enum { PEERS = 2, EACH = 6 };
    int sender = socket(AF_INET, SOCK_SEQPACKET, IPPROTO_SCTP), server[PEERS], listener[PEERS];
    CHECK(sender >= 0);
    for (unsigned peer = 0; peer < PEERS; peer++)
        listener[peer] = listening(port + peer, 0);
    pid_t child = fork();
    if (child == 0) {
        for (unsigned number = 0; number < EACH; number++)
            for (unsigned peer = 0; peer < PEERS; peer++) {
                struct sockaddr_in to = loopback(port + peer);
                size_t bytes = numbered(out, peer, number);
                CHECK(sendto(sender, out, bytes, 0, (struct sockaddr *)&to, sizeof to) == (ssize_t)bytes);
            }
        _exit(0);
    }
    for (unsigned peer = 0; peer < PEERS; peer++)
        CHECK((server[peer] = accept(listener[peer], NULL, NULL)) >= 0);
    for (unsigned number = 0; number < EACH; number++)
        for (unsigned peer = 0; peer < PEERS; peer++) {
            unsigned next[4] = {0};
            next[peer] = number;
            CHECK(next_numbered(server[peer], next) == peer);
        }
    CHECK(ended_well(child) && close(sender) == 0);
    for (unsigned peer = 0; peer < PEERS; peer++)
        CHECK(close(server[peer]) == 0 && close(listener[peer]) == 0);
}

int main(void)
{
    begin();
    alarm(120);
    int client, server;
    joined(6700, &client, &server);
    each_length(server, client);
    each_length(client, server);
    without_waiting(server, client);
    is_peeked_at(server, client);
    many_in_a_call(server, client);
    several_senders(server, client);
    handlers_send(server, client);
    senders_die(server, client);
    CHECK(close(client) == 0 && close(server) == 0);
    left_unread(6701);
    sent_before_the_end(6702);
    to_many(6703);
    return 0;
}
