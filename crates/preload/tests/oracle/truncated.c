/* A peer that ends the association while its message is incomplete. No socket does that. */
#include "peer.h"

enum { BEGINNING = 2, ENDING = 1, FRAGMENT_BYTES = 568 };

/* Sends a part of a message, and waits until that is acknowledged. */
static void sends(struct peer *peer, int flags)
{
    struct packet p = begun(peer), answer;
    put_chunk(&p, DATA, flags, 12 + FRAGMENT_BYTES);
    put32(&p, peer->tsn);
    put16(&p, 0);
    put16(&p, peer->ssn);
    put32(&p, 0);
    memset(p.at + p.bytes, 'm', FRAGMENT_BYTES);
    p.bytes += FRAGMENT_BYTES;
    leaves(peer, p);
    while (number_at(answer.at + awaited(peer, SACK, &answer) + 4, 4) != peer->tsn)
        ;
    peer->tsn++;
    peer->ssn += flags & ENDING;
}

static void shuts_down(const struct peer *peer)
{
    struct packet p = begun(peer), answer;
    put_chunk(&p, SHUTDOWN, 0, 4);
    put32(&p, peer->cumulative);
    leaves(peer, p);
    awaited(peer, SHUTDOWN_ACK, &answer);
    p = begun(peer);
    put_chunk(&p, SHUTDOWN_COMPLETE, 0, 0);
    leaves(peer, p);
}

/* Prints all that the socket brings up to the end. */
static void reads(int fd)
{
    char place[4000];
    struct iovec part = {place, sizeof place};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t bytes;
    do {
        NEEDED(readable(fd));
        m.msg_flags = 0;
        errno = 0;
        bytes = recvmsg(fd, &m, 0);
        said(bytes, "recvmsg");
        puts(bytes > 0 && !(m.msg_flags & MSG_EOR) ? ", a part" : "");
    } while (bytes > 0);
}

static void ends(const char *name, void (*end)(const struct peer *), const int *parts, int count)
{
    struct peer peer;
    int fd = met(&peer, SOCK_STREAM, NULL);
    printf("-- %s\n", name);
    for (int i = 0; i < count; i++)
        sends(&peer, parts[i]);
    end(&peer);
    reads(fd);
    close(fd);
    close(peer.udp);
}

int main(void)
{
    static const int begins[] = {BEGINNING, 0}, whole_first[] = {BEGINNING | ENDING, BEGINNING}, whole[] = {BEGINNING, ENDING};
    begin();
    ends("ABORT after the beginning of a message", aborts, begins, 2);
    ends("SHUTDOWN after the beginning of a message", shuts_down, begins, 2);
    ends("ABORT after a message and the beginning of another", aborts, whole_first, 2);
    ends("SHUTDOWN after a message and the beginning of another", shuts_down, whole_first, 2);
    ends("ABORT after a message of two parts", aborts, whole, 2);
    ends("SHUTDOWN after a message of two parts", shuts_down, whole, 2);
    return 0;
}
