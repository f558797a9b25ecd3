/* Calls that block end when their thread is cancelled, and leave everything as it was: the descriptors of the process, what is
 * mapped, the lock for reading, and the sockets. */
#include "check.h"
#include <dirent.h>

enum { LONG_BYTES = 200000, PARTS = 40, MESSAGES = 100 };

struct call {
    int fd;
    ssize_t (*blocks)(int fd);
    volatile pid_t thread;
};

static char content[LONG_BYTES];

static ssize_t reads(int fd) { char c[8]; return read(fd, c, sizeof c); }
static ssize_t receives(int fd) { char c[8]; return recv(fd, c, sizeof c, 0); }
static ssize_t receives_from(int fd) { char c[8]; return recvfrom(fd, c, sizeof c, 0, NULL, NULL); }
static ssize_t accepts(int fd) { return accept(fd, NULL, NULL); }
static ssize_t accepts_4(int fd) { return accept4(fd, NULL, NULL, SOCK_CLOEXEC); }

static ssize_t reads_into_parts(int fd)
{
    char c[8];
    struct iovec parts[2] = {{c, 4}, {c + 4, 4}};
    return readv(fd, parts, 2);
}

static ssize_t receives_message(int fd)
{
    int whole;
    char c[8];
    return receive(fd, c, sizeof c, 0, &whole);
}

static ssize_t receives_messages(int fd)
{
    char c[8];
    struct iovec part = {c, sizeof c};
    struct mmsghdr m = {.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}};
    return recvmmsg(fd, &m, 1, 0, NULL);
}

static ssize_t connects(int fd)
{
    struct sockaddr_in a = loopback(7);
    return connect(fd, (struct sockaddr *)&a, sizeof a);
}

/* Until there is no room. */
static ssize_t sends(int fd)
{
    while (send(fd, content, 1000, 0) == 1000) {}
    return -1;
}

static ssize_t writes_long_messages(int fd)
{
    while (write(fd, content, LONG_BYTES) == LONG_BYTES) {}
    return -1;
}

static ssize_t sends_many_parts(int fd)
{
    struct iovec parts[PARTS];
    for (int i = 0; i < PARTS; i++)
        parts[i] = (struct iovec){content, 25};
    struct msghdr m = {.msg_iov = parts, .msg_iovlen = PARTS};
    while (sendmsg(fd, &m, 0) == PARTS * 25) {}
    return -1;
}

static ssize_t sends_to_one_of_many(int fd)
{
    struct sockaddr_in a = loopback(5904);
    while (sendto(fd, content, 1000, 0, (struct sockaddr *)&a, sizeof a) == 1000) {}
    return -1;
}

static int open_descriptors(void)
{
    int count = 0;
    DIR *all = opendir("/proc/self/fd");
    while (readdir(all))
        count++;
    closedir(all);
    return count;
}

static int mapped_pages(void)
{
    int count = 0;
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps))
        count += strstr(line, "memfd:swiftwater") != NULL;
    fclose(maps);
    return count;
}

/* Whether a thread sleeps in the kernel. */
static int sleeps(pid_t thread)
{
    char name[64], line[256] = "";
    snprintf(name, sizeof name, "/proc/self/task/%d/stat", thread);
    FILE *stat = fopen(name, "r");
    if (!stat)
        return 0;
    char *read_line = fgets(line, sizeof line, stat);
    fclose(stat);
    char *after_name = strrchr(line, ')');
    return read_line && after_name && after_name[2] == 'S';
}

static void *thread(void *given)
{
    struct call *call = given;
    call->thread = gettid();
    call->blocks(call->fd);
    return NULL;
}

/* Lets a call block, and cancels it. */
static void cancelled(int fd, ssize_t (*blocks)(int))
{
    struct call call = {fd, blocks, 0};
    pthread_t id;
    void *ended;
    int before = open_descriptors();
    CHECK(pthread_create(&id, NULL, thread, &call) == 0);
    /* It may sleep for a moment while it asks the daemon: it is given the time to go on. */
    for (int asleep = 0; asleep < 20; usleep(5000))
        asleep = call.thread && sleeps(call.thread) ? asleep + 1 : 0;
    CHECK(pthread_cancel(id) == 0);
    CHECK(pthread_join(id, &ended) == 0 && ended == PTHREAD_CANCELED);
    CHECK(open_descriptors() == before);
}

/* A socket whose peers get their packets at a UDP port that swallows them. */
static int in_vain(void)
{
    struct sockaddr_in a = loopback(0);
    int udp = socket(AF_INET, SOCK_DGRAM, 0), fd = fresh(0);
    CHECK(udp >= 0 && bind(udp, (struct sockaddr *)&a, sizeof a) == 0);
    CHECK(getsockname(udp, (struct sockaddr *)&a, &(socklen_t){sizeof a}) == 0);
    struct udpencaps encaps = {.port = a.sin_port};
    CHECK(setsockopt(fd, IPPROTO_SCTP, SCTP_REMOTE_UDP_ENCAPS_PORT, &encaps, sizeof encaps) == 0);
    return fd;
}

static void readers(void)
{
    ssize_t (*const CALLS[])(int) = {reads, receives, receives_from, reads_into_parts, receives_message, receives_messages};
    int client, server;
    char word[8];
    joined(5901, &client, &server);
    for (size_t i = 0; i < sizeof CALLS / sizeof *CALLS; i++) {
        cancelled(server, CALLS[i]);
        CHECK(send(client, "hello", 5, 0) == 5 && recv(server, word, sizeof word, 0) == 5);
    }
    close(client);
    close(server);
}

/* Unread messages fill a socket. All that was sent arrives, and nothing else. */
static void senders(ssize_t (*blocks)(int), int bytes)
{
    static char place[LONG_BYTES];
    int client, server, whole, count = 0;
    joined(5902, &client, &server);
    cancelled(client, blocks);
    cancelled(client, blocks);
    CHECK(shutdown(client, SHUT_WR) == 0);
    /* After its own shutdown a side waits in another way. */
    cancelled(client, receives);
    for (ssize_t n; (n = receive(server, place, sizeof place, 0, &whole)) != 0; count++)
        CHECK(n == bytes && whole);
    CHECK(count > 1);
    close(client);
    close(server);
}

static void one_of_many(void)
{
    static char place[LONG_BYTES];
    struct sockaddr_in a = loopback(5904);
    int server = socket(AF_INET, SOCK_SEQPACKET, IPPROTO_SCTP), client = socket(AF_INET, SOCK_SEQPACKET, IPPROTO_SCTP);
    CHECK(server >= 0 && client >= 0);
    CHECK(bind(server, (struct sockaddr *)&a, sizeof a) == 0 && listen(server, 1) == 0);
    cancelled(server, receives);
    cancelled(client, sends_to_one_of_many);
    cancelled(client, sends_to_one_of_many);
    pid_t child = fork();
    if (child == 0) {
        CHECK(sendto(client, "end", 3, 0, (struct sockaddr *)&a, sizeof a) == 3);
        _exit(0);
    }
    for (ssize_t n; (n = recv(server, place, sizeof place, 0)) != 3;)
        CHECK(n == 1000);
    CHECK(ended_well(child));
    close(client);
    close(server);
}

static void listeners_and_clients(void)
{
    int listener = listening(5903, 0), client;
    cancelled(listener, accepts);
    cancelled(listener, accepts_4);
    client = connected(5903);
    CHECK(close(accept(listener, NULL, NULL)) == 0);
    close(client);
    close(listener);
    client = in_vain();
    cancelled(client, connects);
    FAILS(connects(client), EALREADY);
    close(client);
}

/* A call that need not wait. */
struct ready {
    int fd;
    ssize_t (*call)(int fd);
    /* Messages that are received before, so that the shim does not expect to wait. */
    int received;
};

static ssize_t sends_one(int fd) { return send(fd, "never", 5, 0); }

static void *calls_when_asked_to_end(void *given)
{
    struct ready *ready = given;
    char word[8];
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL) == 0);
    CHECK(pthread_cancel(pthread_self()) == 0);
    for (int n = 0; n < ready->received; n++)
        CHECK(recv(ready->fd, word, sizeof word, 0) == 4);
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL) == 0);
    ready->call(ready->fd);
    return NULL;
}

static void asked_to_end(int fd, ssize_t (*call)(int), int received)
{
    struct ready ready = {fd, call, received};
    pthread_t id;
    void *ended;
    CHECK(pthread_create(&id, NULL, calls_when_asked_to_end, &ready) == 0);
    CHECK(pthread_join(id, &ended) == 0 && ended == PTHREAD_CANCELED);
}

/* A call that need not wait ends its thread, too, and does nothing. */
static void asked_before(void)
{
    int listener = listening(5905, 0), client = connected(5905), server;
    char word[8];
    struct pollfd waits = {listener, POLLIN, 0};
    CHECK(poll(&waits, 1, -1) == 1);
    asked_to_end(listener, accepts, 0);
    CHECK((server = accept(listener, NULL, NULL)) >= 0);
    for (int n = 0; n < MESSAGES; n++)
        CHECK(send(client, "much", 4, 0) == 4);
    CHECK(send(client, "hello", 5, 0) == 5);
    asked_to_end(server, receives, MESSAGES);
    CHECK(recv(server, word, sizeof word, 0) == 5 && memcmp(word, "hello", 5) == 0);
    asked_to_end(client, sends_one, 0);
    CHECK(send(client, "last", 4, 0) == 4 && recv(server, word, sizeof word, 0) == 4 && memcmp(word, "last", 4) == 0);
    close(client);
    close(server);
    close(listener);
}

int main(void)
{
    int pipe_ends[2];
    begin();
    CHECK(mapped_pages() == 0 && pipe(pipe_ends) == 0);
    /* Calls on foreign descriptors are cancelled, too. */
    cancelled(pipe_ends[0], reads);
    readers();
    senders(sends, 1000);
    senders(sends_many_parts, PARTS * 25);
    senders(writes_long_messages, LONG_BYTES);
    one_of_many();
    listeners_and_clients();
    asked_before();
    /* Nobody holds a socket that was closed. */
    CHECK(mapped_pages() == 0);
    return 0;
}
