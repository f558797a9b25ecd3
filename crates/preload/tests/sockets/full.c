/* A process whose descriptor table is full goes on using the sockets that it has. */
#include "check.h"
#include <linux/sctp.h>

enum { TABLE = 64, PORT = 5971, LONG_BYTES = 300000, BUFFER_BYTES = 50000 };

static char content[LONG_BYTES], place[LONG_BYTES];
static int filler;

static void fill_table(void)
{
    for (int fd; (fd = open("/dev/null", O_RDONLY)) >= 0;)
        filler = fd;
    CHECK(errno == EMFILE);
}

static void *reads(void *server)
{
    size_t got = 0;
    for (int i = 0; i < 3; i++)
        for (int whole = 0; !whole;) {
            ssize_t n = receive(*(int *)server, place, sizeof place, 0, &whole);
            /* The reader needs one, too. */
            CHECK(n > 0 || errno == EMFILE);
            got += n > 0 ? n : 0;
        }
    CHECK(got == 3 * LONG_BYTES && memcmp(place, content, LONG_BYTES) == 0);
    return NULL;
}

int main(void)
{
    const struct rlimit limit = {TABLE, TABLE};
    struct sockaddr_in a = loopback(PORT + 1), to = loopback(PORT + 2);
    int client, server, bytes = BUFFER_BYTES, listener = fresh(0), another = fresh(0), server_ends[2];
    socklen_t length = sizeof a;
    begin();
    joined(PORT, &client, &server);
    int first = listening(PORT + 2, 0);
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0 && pipe(server_ends) == 0);
    fill(content, LONG_BYTES, 3);
    fill_table();
    CHECK(setsockopt(client, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes) == 0);
    CHECK(getsockopt(client, SOL_SOCKET, SO_SNDBUF, &bytes, &(socklen_t){sizeof bytes}) == 0 && bytes == 2 * BUFFER_BYTES);
    /* A value that is longer than the other answers. */
    struct sctp_status status = {0};
    length = sizeof status;
    CHECK(getsockopt(client, IPPROTO_SCTP, SCTP_STATUS, &status, &length) == 0 && length == sizeof status);
    CHECK(status.sstat_state == SCTP_ESTABLISHED && status.sstat_primary.spinfo_mtu > 0);
    length = sizeof a;
    CHECK(bind(listener, (struct sockaddr *)&a, sizeof a) == 0 && listen(listener, 5) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&a, &length) == 0 && ntohs(a.sin_port) == PORT + 1);
    CHECK(connect(another, (struct sockaddr *)&to, sizeof to) == 0);
    FAILS(setsockopt(client, IPPROTO_SCTP, 12345, &bytes, sizeof bytes), ENOPROTOOPT);
    FAILS(socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP), EMFILE);
    CHECK(send(client, content, LONG_BYTES, 0) == LONG_BYTES);
    /* Room for the reader, which takes it again and again; the sender finds none, or waits. */
    close(filler);
    pthread_t reader;
    CHECK(pthread_create(&reader, NULL, reads, &server) == 0);
    CHECK(send(client, content, LONG_BYTES, 0) == LONG_BYTES && send(client, content, LONG_BYTES, 0) == LONG_BYTES);
    CHECK(pthread_join(reader, NULL) == 0);
    /* The child has closed nothing here. */
    for (int fd = 0; fd < filler; fd++)
        CHECK(fcntl(fd, F_GETFD) >= 0);
    close(first);
    return 0;
}
