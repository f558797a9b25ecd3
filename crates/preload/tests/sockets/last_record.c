/* A sender waits for room when its association ends. Its call fails, and each message whose call has succeeded arrives or
 * returns.
 * The sender waits in its first messages, which go without a ring, and is stopped there until the peer has shut the association
 * down and has received everything; then in later ones, while more returns than the program has room for before it reads, alone
 * and behind messages of the peer. */
#include "check.h"
#include <sys/prctl.h>

enum { PORT = 6504, MESSAGE_BYTES = 60000, SMALL_BYTES = 65536, LARGE_BYTES = 1 << 20, BEFORE_THE_RING = 16, STOPS = 4 };
enum { SCTP_EVENTS = 11, MSG_NOTIFICATION = 0x8000, SEND_FAILED = 0x8003 };

static char text[MESSAGE_BYTES + 1000];

struct counts {
    int sent, returned, error;
};

struct sender {
    pid_t process;
    int socket, peer, said;
};

static volatile sig_atomic_t pipe_signals;

static void on_pipe(int signal)
{
    (void)signal;
    pipe_signals++;
}

/* Sends until a call fails, and then reads what returns. */
static struct counts send_all(int fd)
{
    struct counts counts = {0, 0, 0};
    struct sigaction action = {.sa_handler = on_pipe};
    CHECK(sigaction(SIGPIPE, &action, NULL) == 0);
    while (send(fd, text, MESSAGE_BYTES, 0) == MESSAGE_BYTES)
        counts.sent++;
    counts.error = errno;
    CHECK(counts.error == ESHUTDOWN || counts.error == EPIPE || counts.error == ECONNRESET);
    CHECK(pipe_signals == (counts.error == EPIPE));
    for (;;) {
        struct iovec to = {text, sizeof text};
        struct msghdr message = {.msg_iov = &to, .msg_iovlen = 1};
        CHECK(polls(fd, POLLIN, 10000) & POLLIN);
        if (recvmsg(fd, &message, 0) <= 0)
            return counts;
        counts.returned += message.msg_flags & MSG_NOTIFICATION && *(uint16_t *)text == SEND_FAILED;
    }
}

/* Starts a process that sends until it waits: the peer has little room. With `peer_sends`, it has not read what the peer has
 * sent, which is more than its pair has room for. */
static struct sender waiting(int send_buffer, int peer_sends)
{
    /* struct sctp_event_subscribe: `sctp_send_failure_event` is the fourth. */
    unsigned char events[8] = {[3] = 1};
    int listener = fresh(0), client = fresh(0), small = SMALL_BYTES, said[2];
    struct sockaddr_in a = loopback(PORT);
    struct sender sender;
    CHECK(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
    CHECK(bind(listener, (struct sockaddr *)&a, sizeof a) == 0 && listen(listener, 1) == 0);
    CHECK(setsockopt(client, SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof send_buffer) == 0);
    CHECK(setsockopt(client, IPPROTO_SCTP, SCTP_EVENTS, events, sizeof events) == 0);
    CHECK(connect(client, (struct sockaddr *)&a, sizeof a) == 0);
    CHECK((sender.peer = accept(listener, NULL, NULL)) >= 0 && close(listener) == 0 && pipe(said) == 0);
    while (peer_sends && polls(sender.peer, POLLOUT, 200) == POLLOUT)
        send(sender.peer, text, MESSAGE_BYTES, MSG_DONTWAIT);
    sender.process = fork();
    if (sender.process == 0) {
        begin();
        /* A test that fails leaves no process that is stopped. */
        CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && close(sender.peer) == 0);
        struct counts counts = send_all(client);
        CHECK(write(said[1], &counts, sizeof counts) == sizeof counts);
        exit(0);
    }
    CHECK(close(said[1]) == 0);
    sender.socket = client;
    sender.said = said[0];
    await_sleep(sender.process);
    return sender;
}

static void stop(struct sender sender)
{
    CHECK(kill(sender.process, SIGSTOP) == 0 && waitpid(sender.process, NULL, WUNTRACED) == sender.process);
}

static struct counts counts_of(struct sender sender)
{
    struct counts counts;
    CHECK(read(sender.said, &counts, sizeof counts) == sizeof counts && ended_well(sender.process));
    CHECK(close(sender.said) == 0 && close(sender.socket) == 0);
    return counts;
}

static void stopped_until_all_is_received(void)
{
    struct sender sender = waiting(SMALL_BYTES, 0);
    int received = 0;
    ssize_t bytes;
    /* The kernel wakes a sender only once there is much room; one that a signal has woken takes any. */
    for (int stops = 0; stops < STOPS; stops++) {
        stop(sender);
        CHECK(kill(sender.process, SIGCONT) == 0);
        await_sleep(sender.process);
    }
    stop(sender);
    CHECK(shutdown(sender.peer, SHUT_WR) == 0);
    while ((bytes = recv(sender.peer, text, sizeof text, 0)) > 0)
        received += bytes;
    CHECK(received % MESSAGE_BYTES == 0 && close(sender.peer) == 0);
    /* The end of the association is the first thing to be read. */
    CHECK(polls(sender.socket, POLLIN, 10000) & POLLIN);
    CHECK(kill(sender.process, SIGCONT) == 0);
    struct counts counts = counts_of(sender);
    CHECK(counts.sent > 0 && counts.sent <= BEFORE_THE_RING);
    CHECK(counts.sent == received / MESSAGE_BYTES + counts.returned);
}

/* The peer closes with unread data: nothing of what waits arrives. */
static void more_returns_than_there_is_room_for(int peer_sends)
{
    struct sender sender = waiting(LARGE_BYTES, peer_sends);
    CHECK(close(sender.peer) == 0);
    struct counts counts = counts_of(sender);
    CHECK(counts.error == EPIPE || counts.error == ECONNRESET);
    CHECK(counts.sent > BEFORE_THE_RING && counts.returned > BEFORE_THE_RING && counts.returned <= counts.sent);
}

int main(void)
{
    begin();
    stopped_until_all_is_received();
    more_returns_than_there_is_room_for(0);
    more_returns_than_there_is_room_for(1);
    return 0;
}
