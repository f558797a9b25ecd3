/* Programs that send on one socket, one of them through a ring and another by records, and what each finds. */
#include "check.h"
#include <linux/sctp.h>

enum { PORT = 5981, TURNS = 2000, BEFORE = 200, ROOM_BYTES = 64 * 1024, LONG_BYTES = 10000 };

static char self[4096], block[ROOM_BYTES];

static void read_whole(int fd, void *place, size_t bytes)
{
    CHECK(read(fd, place, bytes) == (ssize_t)bytes);
}

/* Executes this program with a socket and two ends of pipes. */
static pid_t executed(const char *what, int fd, int from, int to)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char words[3][16];
        int numbers[] = {fd, from, to};
        for (int i = 0; i < 3; i++)
            snprintf(words[i], sizeof words[i], "%d", numbers[i]);
        execl(self, self, what, words[0], words[1], words[2], (char *)NULL);
        CHECK(0);
    }
    return child;
}

static void await(pid_t child)
{
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Sends an odd number each time that its parent has sent an even one. */
static void answers(int fd, int from, int to)
{
    for (int n = 1; n < 2 * TURNS; n += 2) {
        char turn;
        read_whole(from, &turn, 1);
        CHECK(send(fd, &n, sizeof n, 0) == sizeof n);
        CHECK(write(to, &turn, 1) == 1);
    }
}

/* Two programs send in turn, each once the other's call has returned. */
static void messages_of_two_programs_keep_their_order(void)
{
    int client, server, down[2], up[2];
    joined(PORT, &client, &server);
    CHECK(pipe(down) == 0 && pipe(up) == 0);
    pid_t reader = fork();
    if (reader == 0) {
        for (int n = 0, got; n < 2 * TURNS; n++) {
            CHECK(recv(server, &got, sizeof got, 0) == sizeof got);
            CHECK(got == n);
        }
        _exit(0);
    }
    pid_t other = executed("answers", client, down[0], up[1]);
    for (int n = 0; n < 2 * TURNS; n += 2) {
        char turn = 0;
        CHECK(send(client, &n, sizeof n, 0) == sizeof n);
        CHECK(write(down[1], &turn, 1) == 1);
        read_whole(up[0], &turn, 1);
    }
    await(other);
    await(reader);
    close(client);
    close(server);
}

static void sends_a_longer_message(int fd, int from, int to)
{
    char turn;
    CHECK(send(fd, block, LONG_BYTES, MSG_DONTWAIT) == LONG_BYTES || errno == EAGAIN);
    CHECK(write(to, "x", 1) == 1);
    read_whole(from, &turn, 1);
    CHECK(send(fd, block, LONG_BYTES, 0) == LONG_BYTES);
}

/* A program whose ring is full changes no limit of another's messages. */
static void a_full_ring_refuses_no_message_of_another_program(void)
{
    int client, server, down[2], up[2];
    char turn;
    long sent = 0, got = 0;
    joined(PORT + 1, &client, &server);
    CHECK(pipe(down) == 0 && pipe(up) == 0 && fcntl(client, F_SETFL, O_NONBLOCK) == 0);
    for (ssize_t n; (n = send(client, block, 1000, 0)) > 0;)
        sent += n;
    CHECK(errno == EAGAIN && fcntl(client, F_SETFL, 0) == 0);
    pid_t other = executed("longer", client, down[0], up[1]);
    read_whole(up[0], &turn, 1);
    CHECK(write(down[1], "x", 1) == 1);
    while (got < sent + LONG_BYTES) {
        ssize_t n = recv(server, block, sizeof block, 0);
        CHECK(n > 0);
        got += n;
    }
    await(other);
    close(client);
    close(server);
}

/* A message has the defaults of the time at which it was sent. */
static void later_defaults_do_not_concern_a_message(void)
{
    int client, server, on = 1;
    char word[8];
    joined(PORT + 2, &client, &server);
    CHECK(setsockopt(server, IPPROTO_SCTP, SCTP_RECVRCVINFO, &on, sizeof on) == 0);
    for (int i = 0; i < 2 * BEFORE; i++) {
        struct sctp_sndinfo later = {.snd_sid = 1, .snd_ppid = htonl(77)};
        if (i == BEFORE)
            CHECK(setsockopt(client, IPPROTO_SCTP, SCTP_DEFAULT_SNDINFO, &later, sizeof later) == 0);
        CHECK(send(client, "x", 1, 0) == 1);
    }
    for (int i = 0, after = 0; i < 2 * BEFORE; i++) {
        struct iovec part = {word, sizeof word};
        char room[256];
        struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
        CHECK(recvmsg(server, &m, 0) == 1);
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        CHECK(c && c->cmsg_type == SCTP_RCVINFO);
        struct sctp_rcvinfo *info = (void *)CMSG_DATA(c);
        after += info->rcv_sid == 1;
        CHECK(info->rcv_ppid == (info->rcv_sid == 1 ? htonl(77) : 0));
        CHECK(i < 2 * BEFORE - 1 || after == BEFORE);
    }
    close(client);
    close(server);
}

/* Where poll says that the socket can be written to, a message of any length that a record holds finds room. */
static void a_socket_that_polls_writable_takes_a_message(void)
{
    int client, server;
    joined(PORT + 3, &client, &server);
    pid_t reader = fork();
    if (reader == 0) {
        close(client);
        while (recv(server, block, sizeof block, 0) > 0)
            ;
        _exit(0);
    }
    CHECK(fcntl(client, F_SETFL, O_NONBLOCK) == 0);
    for (int i = 0; i < 2000; i++) {
        size_t bytes = i % 4 == 3 ? sizeof block : 16384;
        CHECK(polls(client, POLLOUT, -1) == POLLOUT);
        CHECK(send(client, block, bytes, 0) == (ssize_t)bytes);
    }
    close(client);
    await(reader);
    close(server);
}

enum { ROUNDS = 60 };

static struct {
    int fd;
    struct sockaddr_in to;
    pthread_barrier_t both;
} meeting;

static void *sends_at_once(void *word)
{
    pthread_barrier_wait(&meeting.both);
    CHECK(sendto(meeting.fd, word, 1, 0, (struct sockaddr *)&meeting.to, sizeof meeting.to) == 1);
    return NULL;
}

/* Two threads send to a peer with which there is no association yet: both messages go to it. */
static void threads_that_begin_an_association_share_it(void)
{
    struct sockaddr_in a = loopback(PORT + 4);
    int server = socket(AF_INET, SOCK_SEQPACKET, IPPROTO_SCTP);
    CHECK(server >= 0 && bind(server, (struct sockaddr *)&a, sizeof a) == 0 && listen(server, 5) == 0);
    CHECK(pthread_barrier_init(&meeting.both, NULL, 2) == 0);
    meeting.to = a;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t other;
        char words[2];
        meeting.fd = socket(AF_INET, SOCK_SEQPACKET, IPPROTO_SCTP);
        CHECK(meeting.fd >= 0 && pthread_create(&other, NULL, sends_at_once, "a") == 0);
        sends_at_once("b");
        CHECK(pthread_join(other, NULL) == 0);
        for (int i = 0; i < 2; i++)
            CHECK(recv(server, &words[i], 1, 0) == 1);
        CHECK(words[0] != words[1]);
        close(meeting.fd);
    }
    close(server);
}

int main(int count, char **words)
{
    begin();
    CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    if (count == 5) {
        int fd = atoi(words[2]), from = atoi(words[3]), to = atoi(words[4]);
        (strcmp(words[1], "answers") == 0 ? answers : sends_a_longer_message)(fd, from, to);
        return 0;
    }
    messages_of_two_programs_keep_their_order();
    a_full_ring_refuses_no_message_of_another_program();
    later_defaults_do_not_concern_a_message();
    a_socket_that_polls_writable_takes_a_message();
    threads_that_begin_an_association_share_it();
    return 0;
}
