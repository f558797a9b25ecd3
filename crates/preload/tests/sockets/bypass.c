/* Calls that sockets are seldom used by: `sendfile`, `preadv2`, system calls by number, standard I/O, and what no shim
 * sees. Run as `service`, this is a service that has its connection as standard input and output. */
#include "check.h"
#include "past_shim.h"
#include <sys/sendfile.h>

/* No record of a pair is as long as much is. */
enum { FILE_BYTES = 50000, PIECE_BYTES = 16384, MUCH_BYTES = 200000, MORE_BYTES = 400000 };

static char content[FILE_BYTES], place[FILE_BYTES];

/* Checks the received bytes, whatever messages they come in. */
static void comes(int fd, const char *expected, size_t bytes)
{
    for (size_t got = 0; got < bytes;) {
        ssize_t n = recv(fd, place, sizeof place, 0);
        CHECK(n > 0 && got + n <= bytes && memcmp(place, expected + got, n) == 0);
        got += n;
    }
}

static void files(int client, int server)
{
    FILE *file = tmpfile();
    int ends[2], fd = fileno(file);
    off_t offset = 100;
    fill(content, FILE_BYTES, 1);
    CHECK(fwrite(content, 1, FILE_BYTES, file) == FILE_BYTES && fflush(file) == 0);
    CHECK(sendfile(client, fd, &offset, 1000) == 1000 && offset == 1100);
    comes(server, content + 100, 1000);
    CHECK(lseek(fd, 10, SEEK_SET) == 10 && sendfile(client, fd, NULL, FILE_BYTES) == FILE_BYTES - 10);
    CHECK(lseek(fd, 0, SEEK_CUR) == FILE_BYTES);
    int whole;
    CHECK(receive(server, place, sizeof place, 0, &whole) == PIECE_BYTES && whole && memcmp(place, content + 10, PIECE_BYTES) == 0);
    comes(server, content + 10 + PIECE_BYTES, FILE_BYTES - 10 - PIECE_BYTES);
    CHECK(sendfile(client, fd, NULL, 10) == 0);
    fclose(file);
    CHECK(pipe(ends) == 0 && write(ends[1], "pipe", 4) == 4);
    FAILS(sendfile(client, ends[0], NULL, 4), EINVAL);
    FAILS(splice(ends[0], NULL, client, NULL, 4, 0), EINVAL);
    FAILS(splice(client, NULL, ends[1], NULL, 4, 0), EINVAL);
    close(ends[0]);
    close(ends[1]);
}

static void positions(int client, int server)
{
    char word[8];
    struct iovec out = {"hello", 5}, in = {word, sizeof word};
    CHECK(pwritev2(client, &out, 1, -1, 0) == 5 && preadv2(server, &in, 1, -1, 0) == 5);
    FAILS(preadv2(server, &in, 1, -1, RWF_NOWAIT), EAGAIN);
    /* More than a write past the shim can hold. */
    static char more[MORE_BYTES];
    fill(more, sizeof more, 2);
    out = (struct iovec){more, sizeof more};
    CHECK(pwritev2(client, &out, 1, -1, 0) == sizeof more);
    comes(server, more, sizeof more);
    FAILS(pwritev2(client, &out, 1, 0, 0), ESPIPE);
    FAILS(preadv2(server, &in, 1, 0, 0), ESPIPE);
}

static void by_number(int client, int server)
{
    char word[8];
    int fd = syscall(SYS_socket, AF_INET, SOCK_STREAM, IPPROTO_SCTP), kind;
    socklen_t bytes = sizeof kind;
    CHECK(fd >= 0 && syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_PROTOCOL, &kind, &bytes) == 0 && kind == IPPROTO_SCTP);
    CHECK(syscall(SYS_close, fd) == 0);
    CHECK(syscall(SYS_write, client, "hello", 5) == 5 && syscall(SYS_read, server, word, sizeof word) == 5);
    CHECK(syscall(SYS_sendto, client, "hello", 5, 0, NULL, 0) == 5);
    CHECK(syscall(SYS_recvfrom, server, word, sizeof word, 0, NULL, NULL) == 5);
    CHECK(memcmp(word, "hello", 5) == 0 && syscall(SYS_gettid) == gettid());
}

/* Sets a ring up that the kernel refuses; returns what is said to standard error meanwhile. */
static ssize_t said_of_a_ring(char *said, size_t bytes)
{
    int ends[2], before = dup(2);
    CHECK(before >= 0 && pipe(ends) == 0 && fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0 && dup2(ends[1], 2) == 2);
    long ring = syscall(SYS_io_uring_setup, 0, NULL);
    CHECK(dup2(before, 2) == 2 && ring == -1);
    ssize_t n = read(ends[0], said, bytes);
    CHECK(close(before) == 0 && close(ends[0]) == 0 && close(ends[1]) == 0);
    return n;
}

/* The kernel performs what is submitted there, without the shim: that is said once. */
static void a_ring(void)
{
    char said[300] = "";
    CHECK(said_of_a_ring(said, sizeof said - 1) > 0 && strstr(said, "io_uring") && strchr(said, '\n') == strrchr(said, '\n'));
    CHECK(said_of_a_ring(said, sizeof said) == -1);
}

/* Bytes that are no record are a message. */
static void unseen(int client, int server)
{
    char zeros[64] = {1, 0, 1, 0};
    CHECK(past_shim(SYS_write, client, (long)"unseen", 6, 0, 0, 0) == 6);
    comes(server, "unseen", 6);
    CHECK(past_shim(SYS_write, client, (long)zeros, sizeof zeros, 0, 0, 0) == sizeof zeros);
    comes(server, zeros, sizeof zeros);
    /* However long it is, it is one. */
    static char much[MUCH_BYTES], came[MUCH_BYTES];
    int whole;
    fill(much, sizeof much, 3);
    CHECK(past_shim(SYS_write, client, (long)much, sizeof much, 0, 0, 0) == sizeof much);
    CHECK(receive(server, came, sizeof came, 0, &whole) == sizeof came && whole && memcmp(came, much, sizeof much) == 0);
    /* Longer than any message and than the buffer: nothing is sent. */
    static char too_much[(16 << 20) + 1];
    FAILS(past_shim(SYS_write, client, (long)too_much, sizeof too_much, 0, 0, 0), EMSGSIZE);
    CHECK(dprintf(client, "%s %d %.1f\n", "number", 7, 0.5) == 13);
    comes(server, "number 7 0.5\n", 13);
    /* The association is as it was. */
    CHECK(send(client, "hello", 5, 0) == 5);
    comes(server, "hello", 5);
}

/* Messages that no association accepts are returned. */
static void refused(void)
{
    enum { SCTP_EVENTS = 11, SCTP_DEFAULT_SNDINFO = 34, MSG_NOTIFICATION = 0x8000, SEND_FAILED = 0x8003, STREAM = 60000 };
    struct {
        uint16_t stream, flags;
        uint32_t ppid, context;
        int32_t assoc_id;
    } info = {.stream = STREAM};
    char failures[] = {0, 0, 0, 1, 0, 0, 0, 0}, text[100];
    int listener = listening(5963, 0), client = fresh(0);
    struct sockaddr_in a = loopback(5963);
    struct iovec part = {text, sizeof text};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    CHECK(setsockopt(client, IPPROTO_SCTP, SCTP_EVENTS, failures, sizeof failures) == 0);
    CHECK(setsockopt(client, IPPROTO_SCTP, SCTP_DEFAULT_SNDINFO, &info, sizeof info) == 0);
    CHECK(connect(client, (struct sockaddr *)&a, sizeof a) == 0);
    CHECK(past_shim(SYS_write, client, (long)"refused", 7, 0, 0, 0) == 7);
    CHECK(recvmsg(client, &m, 0) > 7 && m.msg_flags & MSG_NOTIFICATION && *(uint16_t *)text == SEND_FAILED);
    close(client);
    close(listener);
}

/* A stream that goes on with a file: what it has buffered is sent, and what follows, by its number, too, is written there. */
static void reopened(int client, int server)
{
    char path[] = "/tmp/bypass-XXXXXX", text[32] = "";
    int file = mkstemp(path);
    FILE *stream = fdopen(dup(client), "w");
    CHECK(file >= 0 && stream && fprintf(stream, "buffered") == 8);
    int number = fileno(stream);
    CHECK(freopen(path, "w", stream) == stream && fileno(stream) == number);
    comes(server, "buffered", 8);
    CHECK(write(number, "one ", 4) == 4 && fprintf(stream, "two") == 3 && fclose(stream) == 0);
    CHECK(read(file, text, sizeof text) == 7 && strcmp(text, "one two") == 0);
    /* So does a stream of the C library whose number became a socket. */
    stream = fopen("/dev/null", "w");
    number = fileno(stream);
    CHECK(dup2(client, number) == number && write(number, "socket", 6) == 6);
    comes(server, "socket", 6);
    CHECK(freopen(path, "a", stream) == stream && write(fileno(stream), " three", 6) == 6 && fclose(stream) == 0);
    CHECK(read(file, text, sizeof text) == 6 && memcmp(text, " three", 6) == 0);
    CHECK(close(file) == 0 && unlink(path) == 0);
}

static void streams(int client, int server)
{
    char line[64];
    FILE *one = fdopen(dup(client), "r+"), *other = fdopen(dup(server), "r");
    CHECK(one && other && fileno(one) > 2 && fileno(other) > 2);
    CHECK(fprintf(one, "first %d\nsecond\n", 1) == 15 && fflush(one) == 0);
    CHECK(fgets(line, sizeof line, other) && strcmp(line, "first 1\n") == 0);
    CHECK(fgets(line, sizeof line, other) && strcmp(line, "second\n") == 0);
    CHECK(send(server, "back\n", 5, 0) == 5 && fgets(line, sizeof line, one) && strcmp(line, "back\n") == 0);
    reopened(client, server);
    int fd = fileno(one);
    CHECK(fclose(one) == 0 && fcntl(fd, F_GETFD) < 0 && fclose(other) == 0);
}

/* As inetd starts it. */
static void standard_input_and_output(const char *self)
{
    int client, server;
    joined(5962, &client, &server);
    pid_t child = fork();
    if (child == 0) {
        dup2(server, 0);
        dup2(server, 1);
        close(client);
        close(server);
        execl(self, self, "service", NULL);
        _exit(1);
    }
    close(server);
    CHECK(send(client, "one\ntwo\n", 8, 0) == 8);
    comes(client, "1 one\n2 two\n", 12);
    CHECK(shutdown(client, SHUT_WR) == 0);
    CHECK(ended_well(child));
    close(client);
}

static int service(void)
{
    char line[64];
    for (int n = 1; fgets(line, sizeof line, stdin); n++) {
        printf("%d %s", n, line);
        if (n == 2)
            fflush(stdout);
    }
    return 0;
}

int main(int count, char **words)
{
    int client, server;
    if (count > 1)
        return service();
    begin();
    CHECK(said_of_a_ring(&(char){0}, 1) == -1);
    joined(5961, &client, &server);
    a_ring();
    files(client, server);
    positions(client, server);
    by_number(client, server);
    unseen(client, server);
    refused();
    streams(client, server);
    close(client);
    close(server);
    standard_input_and_output(words[0]);
    return 0;
}
