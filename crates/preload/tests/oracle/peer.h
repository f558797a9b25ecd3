/*
 * A peer that is made of packets, in UDP to the port that SCTP_UDP_PORT names: it does what no socket does. It answers only what
 * its program makes it answer.
 */
#include "oracle.h"
#include <endian.h>

enum { DATA, INIT, INIT_ACK, SACK, ABORT = 6, SHUTDOWN, SHUTDOWN_ACK, COOKIE_ECHO = 10, COOKIE_ACK, SHUTDOWN_COMPLETE = 14 };
enum { IPV4_ADDRESS = 5, STATE_COOKIE = 7, PEER_PORT = 5555, OUR_TAG = 0x01020304, OUR_TSN = 100 };

struct peer {
    int udp, port;
    uint32_t tag, tsn, cumulative;
    uint16_t ssn;
};

/* A packet that is being built, or has come. */
struct packet {
    size_t bytes;
    unsigned char at[4000];
};

static inline uint32_t crc32c(const unsigned char *bytes, size_t count)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < count; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
    }
    return ~crc;
}

static inline void put16(struct packet *p, uint16_t number)
{
    number = htons(number);
    memcpy(p->at + p->bytes, &number, 2);
    p->bytes += 2;
}

static inline void put32(struct packet *p, uint32_t number)
{
    number = htonl(number);
    memcpy(p->at + p->bytes, &number, 4);
    p->bytes += 4;
}

static inline uint32_t number_at(const unsigned char *at, int bytes)
{
    uint32_t number = 0;
    while (bytes-- > 0)
        number = number << 8 | *at++;
    return number;
}

static inline struct packet begun(const struct peer *peer)
{
    struct packet p = {0};
    put16(&p, PEER_PORT);
    put16(&p, peer->port);
    put32(&p, peer->tag);
    put32(&p, 0);
    return p;
}

static inline void put_chunk(struct packet *p, int kind, int flags, int content_bytes)
{
    p->at[p->bytes++] = kind;
    p->at[p->bytes++] = flags;
    put16(p, 4 + content_bytes);
}

static inline void leaves(const struct peer *peer, struct packet p)
{
    uint32_t checksum = htole32(crc32c(p.at, p.bytes));
    memcpy(p.at + 8, &checksum, 4);
    NEEDED(send(peer->udp, p.at, p.bytes, 0) == (ssize_t)p.bytes);
}

/* Waits for a packet with a chunk of this kind, and says where in it that is. */
static inline size_t awaited(const struct peer *peer, int kind, struct packet *p)
{
    for (;;) {
        NEEDED(readable(peer->udp));
        ssize_t bytes = recv(peer->udp, p->at, sizeof p->at, 0);
        NEEDED(bytes >= 16);
        for (size_t at = 12; at + 4 <= (size_t)bytes; at += (number_at(p->at + at + 2, 2) + 3) & ~3u) {
            if (p->at[at] == kind)
                return at;
            NEEDED(number_at(p->at + at + 2, 2) >= 4);
        }
    }
}

/*
 * Sets an association up with a listener of this style, which is left; returns the socket that has it. The peer lists the address
 * `further`, if there is one.
 */
static inline int met(struct peer *peer, int style, const char *further)
{
    const char *udp_port = getenv("SCTP_UDP_PORT");
    *peer = (struct peer){.udp = socket(AF_INET, SOCK_DGRAM, 0), .port = next_port(), .tsn = OUR_TSN};
    int listener = listening(style, peer->port);
    struct sockaddr_in a = at("127.0.0.1", udp_port ? atoi(udp_port) : 9899);
    NEEDED(peer->udp >= 0 && connect(peer->udp, SA(a), sizeof a) == 0);
    struct packet p = begun(peer), answer;
    put_chunk(&p, INIT, 0, further ? 24 : 16);
    put32(&p, OUR_TAG);
    put32(&p, 65536);
    put16(&p, 10);
    put16(&p, 10);
    put32(&p, OUR_TSN);
    if (further) {
        put16(&p, IPV4_ADDRESS);
        put16(&p, 8);
        put32(&p, ntohl(inet_addr(further)));
    }
    leaves(peer, p);
    size_t found = awaited(peer, INIT_ACK, &answer), end = found + number_at(answer.at + found + 2, 2);
    peer->tag = number_at(answer.at + found + 4, 4);
    peer->cumulative = number_at(answer.at + found + 16, 4) - 1;
    for (found += 20; found + 4 <= end && number_at(answer.at + found, 2) != STATE_COOKIE;)
        found += (number_at(answer.at + found + 2, 2) + 3) & ~3u;
    size_t bytes = number_at(answer.at + found + 2, 2) - 4;
    p = begun(peer);
    put_chunk(&p, COOKIE_ECHO, 0, bytes);
    memcpy(p.at + p.bytes, answer.at + found + 4, bytes);
    p.bytes += (bytes + 3) & ~(size_t)3;
    leaves(peer, p);
    awaited(peer, COOKIE_ACK, &answer);
    if (style == SOCK_SEQPACKET)
        return listener;
    int fd = accept(listener, NULL, NULL);
    NEEDED(fd >= 0 && close(listener) == 0);
    return fd;
}

static inline void aborts(const struct peer *peer)
{
    struct packet p = begun(peer);
    put_chunk(&p, ABORT, 0, 0);
    leaves(peer, p);
}
