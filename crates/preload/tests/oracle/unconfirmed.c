/* Options of an address that the peer has listed and not confirmed: the peer answers no HEARTBEAT. */
#include "peer.h"

#define LISTED "127.0.0.3"
#define FOREIGN "127.0.0.4"

/* Writes an address into a structure whose address is not aligned. */
static void name(void *place, const char *address)
{
    struct sockaddr_in a = at(address, PEER_PORT);
    memcpy(place, &a, sizeof a);
}

static void info(int fd, int id, const char *address)
{
    struct sctp_paddrinfo info = {.spinfo_assoc_id = id};
    socklen_t bytes = sizeof info;
    name(&info.spinfo_address, address);
    errno = 0;
    if (said(getsockopt(fd, IPPROTO_SCTP, SCTP_GET_PEER_ADDR_INFO, &info, &bytes), "SCTP_GET_PEER_ADDR_INFO"))
        printf(" state %d", info.spinfo_state);
    putchar('\n');
}

static void parameters(int fd, int id, const char *address)
{
    struct sctp_paddrparams params = {.spp_assoc_id = id, .spp_hbinterval = 7000, .spp_pathmaxrxt = 3, .spp_flags = SPP_HB_ENABLE};
    socklen_t bytes = sizeof params;
    name(&params.spp_address, address);
    SAY(setsockopt(fd, IPPROTO_SCTP, SCTP_PEER_ADDR_PARAMS, &params, sizeof params), "set SCTP_PEER_ADDR_PARAMS");
    params.spp_hbinterval = params.spp_pathmaxrxt = 0;
    errno = 0;
    if (said(getsockopt(fd, IPPROTO_SCTP, SCTP_PEER_ADDR_PARAMS, &params, &bytes), "get SCTP_PEER_ADDR_PARAMS"))
        printf(" interval %u, limit %u", params.spp_hbinterval, params.spp_pathmaxrxt);
    putchar('\n');
}

static void thresholds(int fd, int id, const char *address)
{
    struct sctp_paddrthlds limits = {.spt_assoc_id = id, .spt_pathmaxrxt = 4, .spt_pathpfthld = 2};
    socklen_t bytes = sizeof limits;
    name(&limits.spt_address, address);
    SAY(setsockopt(fd, IPPROTO_SCTP, SCTP_PEER_ADDR_THLDS, &limits, sizeof limits), "set SCTP_PEER_ADDR_THLDS");
    limits.spt_pathmaxrxt = limits.spt_pathpfthld = 0;
    errno = 0;
    if (said(getsockopt(fd, IPPROTO_SCTP, SCTP_PEER_ADDR_THLDS, &limits, &bytes), "get SCTP_PEER_ADDR_THLDS"))
        printf(" limits %u and %u", limits.spt_pathmaxrxt, limits.spt_pathpfthld);
    putchar('\n');
}

static void primary(int fd, int id, const char *address)
{
    struct sctp_prim prim = {.ssp_assoc_id = id};
    name(&prim.ssp_addr, address);
    SAY(setsockopt(fd, IPPROTO_SCTP, SCTP_PRIMARY_ADDR, &prim, sizeof prim), "set SCTP_PRIMARY_ADDR");
}

/* Ends the association, so that its port is free. */
static void ends(int fd, const struct peer *peer)
{
    aborts(peer);
    close(fd);
    close(peer->udp);
}

static void options(int fd, int id, const char *address, const char *how)
{
    printf("-- %s: %s\n", how, address);
    info(fd, id, address);
    parameters(fd, id, address);
    thresholds(fd, id, address);
    primary(fd, id, address);
}

int main(void)
{
    struct peer peer;
    begin();
    int fd = met(&peer, SOCK_STREAM, LISTED);
    options(fd, 0, LISTED, "one-to-one");
    options(fd, 0, FOREIGN, "one-to-one");
    ends(fd, &peer);
    fd = met(&peer, SOCK_SEQPACKET, LISTED);
    int id = first_association(fd);
    NEEDED(id != 0);
    options(fd, id, LISTED, "one-to-many, with the association");
    options(fd, id, FOREIGN, "one-to-many, with the association");
    options(fd, 0, LISTED, "one-to-many, by the address");
    ends(fd, &peer);
    return 0;
}
