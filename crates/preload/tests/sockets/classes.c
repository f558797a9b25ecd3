/* Traffic classes of packets: IP_TOS, IPV6_TCLASS, spp_dscp. Here is the UDP port that they are sent to. */
#include "check.h"

enum { SCTP_PEER_ADDR_PARAMS = 9, SPP_DSCP = 1 << 9, EXPEDITED = 46 << 2, LOW = 8 << 2 };

struct paddrparams {
    int32_t assoc_id;
    struct sockaddr_storage address;
    uint32_t hbinterval;
    uint16_t pathmaxrxt;
    uint32_t pathmtu, sackdelay, flags, ipv6_flowlabel;
    uint8_t dscp;
} __attribute__((packed, aligned(4)));

static int family;
static struct sockaddr_storage peer;

static int receiver(void)
{
    int fd = socket(family, SOCK_DGRAM, 0), on = 1;
    socklen_t bytes = sizeof peer;
    memset(&peer, 0, sizeof peer);
    peer.ss_family = family;
    if (family == AF_INET)
        ((struct sockaddr_in *)&peer)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    else
        ((struct sockaddr_in6 *)&peer)->sin6_addr = in6addr_loopback;
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&peer, sizeof peer) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&peer, &bytes) == 0);
    if (family == AF_INET)
        CHECK(setsockopt(fd, IPPROTO_IP, IP_RECVTOS, &on, sizeof on) == 0);
    else
        CHECK(setsockopt(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, &on, sizeof on) == 0);
    return fd;
}

/* The traffic class of the next packet, without the bits of ECN. */
static int class_of_next(int fd)
{
    char data[2048], control[64] __attribute__((aligned(8)));
    struct iovec part = {data, sizeof data};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    CHECK(polls(fd, POLLIN, 10000) > 0 && recvmsg(fd, &m, 0) > 0);
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    CHECK(c != NULL);
    return *CMSG_DATA(c) & ~3;
}

static int sctp(void)
{
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK, IPPROTO_SCTP);
    struct udpencaps e = {.port = ((struct sockaddr_in *)&peer)->sin_port};
    CHECK(fd >= 0 && setsockopt(fd, IPPROTO_SCTP, SCTP_REMOTE_UDP_ENCAPS_PORT, &e, sizeof e) == 0);
    return fd;
}

static void set_class(int fd, int class)
{
    int name = family == AF_INET ? IP_TOS : IPV6_TCLASS;
    CHECK(setsockopt(fd, family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6, name, &class, sizeof class) == 0);
}

static void set_dscp(int fd, int class)
{
    struct paddrparams p = {.flags = SPP_DSCP, .dscp = class};
    CHECK(setsockopt(fd, IPPROTO_SCTP, SCTP_PEER_ADDR_PARAMS, &p, sizeof p) == 0);
}

static void begins(int fd)
{
    FAILS(connect(fd, (struct sockaddr *)&peer, sizeof peer), EINPROGRESS);
}

static void of_a_family(int which)
{
    family = which;
    int udp = receiver(), plain = sctp(), classed = sctp(), parameters = sctp();
    begins(plain);
    CHECK(class_of_next(udp) == 0);
    set_class(classed, EXPEDITED | 1);
    begins(classed);
    CHECK(class_of_next(udp) == EXPEDITED);
    set_class(parameters, EXPEDITED);
    set_dscp(parameters, LOW);
    begins(parameters);
    CHECK(class_of_next(udp) == LOW);
    CHECK(close(plain) == 0 && close(classed) == 0 && close(parameters) == 0 && close(udp) == 0);
}

int main(void)
{
    begin();
    of_a_family(AF_INET);
    of_a_family(AF_INET6);
    return 0;
}
