/* Values of socket options: which are taken, which refused, and what is read afterwards. */
#include "oracle.h"

static int fd, id;
/* A socket for each value, or values upon values on one. */
static const char *what;

static void taken(int returned)
{
    printf(" | %s %s", what, returned == -1 ? strerrorname_np(errno) : "ok");
}

/* The association by its name. */
static void words(int name, const void *from, int bytes)
{
    const unsigned char *place = from;
    int association_at = name == SCTP_DEFAULT_SNDINFO ? 12 : name == SCTP_DEFAULT_SEND_PARAM ? 28 : 0;
    for (int i = 0; i < bytes; i += 4) {
        unsigned word = 0;
        memcpy(&word, place + i, bytes - i < 4 ? bytes - i : 4);
        /* Nobody fills the bytes after the flags. */
        if (name == SCTP_DEFAULT_SEND_PARAM && i == offsetof(struct sctp_sndrcvinfo, sinfo_flags))
            word &= 0xffff;
        if (id && (int)word == id && i == association_at)
            printf(" id");
        else
            printf(" %u", word);
    }
}

static void plain(const char *text, int level, int name, const int *values, int count)
{
    printf("%s", text);
    for (int i = 0; i < count; i++) {
        char number[16];
        int read = -1;
        socklen_t bytes = sizeof read;
        snprintf(number, sizeof number, "%d", values[i]);
        what = number;
        taken(setsockopt(fd, level, name, &values[i], sizeof values[i]));
        if (getsockopt(fd, level, name, &read, &bytes) == 0)
            printf(" then %d", read);
    }
    putchar('\n');
}

#define PLAIN(name, ...)                                                                           \
    do {                                                                                           \
        static const int values[] = {__VA_ARGS__};                                                 \
        plain(#name, IPPROTO_SCTP, name, values, COUNT(values));                                   \
    } while (0)
#define PLAIN_OF_SOCKET(name, ...)                                                                 \
    do {                                                                                           \
        static const int values[] = {__VA_ARGS__};                                                 \
        plain(#name, SOL_SOCKET, name, values, COUNT(values));                                     \
    } while (0)

/* Sets a structure and prints what is read back. */
static void structure(const char *text, int name, const void *value, int bytes)
{
    unsigned char place[256] = {0};
    socklen_t length = bytes;
    printf("%s", text);
    what = "set";
    taken(setsockopt(fd, IPPROTO_SCTP, name, value, bytes));
    memcpy(place, value, bytes);
    if (getsockopt(fd, IPPROTO_SCTP, name, place, &length) == 0) {
        printf(" then");
        words(name, place, length);
    }
    putchar('\n');
}

#define STRUCT(name, type, ...) structure(#name " " #__VA_ARGS__, name, &(struct type){__VA_ARGS__}, sizeof(struct type))

static void assoc_value(const char *text, int name, const unsigned *values, int count)
{
    printf("%s", text);
    for (int i = 0; i < count; i++) {
        struct sctp_assoc_value v = {id, values[i]};
        socklen_t bytes = sizeof v;
        char number[16];
        snprintf(number, sizeof number, "%u", values[i]);
        what = number;
        taken(setsockopt(fd, IPPROTO_SCTP, name, &v, sizeof v));
        v.assoc_value = 99;
        if (getsockopt(fd, IPPROTO_SCTP, name, &v, &bytes) == 0)
            printf(name == SCTP_MAXSEG && v.assoc_value > 1400 ? " then much" : " then %u", v.assoc_value);
    }
    putchar('\n');
}

#define ASSOC_VALUE(name, ...)                                                                     \
    do {                                                                                           \
        static const unsigned values[] = {__VA_ARGS__};                                            \
        assoc_value(#name, name, values, COUNT(values));                                           \
    } while (0)

static void timers(void)
{
    STRUCT(SCTP_RTOINFO, sctp_rtoinfo, id, 2000, 0, 0);
    STRUCT(SCTP_RTOINFO, sctp_rtoinfo, id, 0, 30000, 0);
    STRUCT(SCTP_RTOINFO, sctp_rtoinfo, id, 0, 0, 500);
    STRUCT(SCTP_RTOINFO, sctp_rtoinfo, id, 100, 50, 200);
    STRUCT(SCTP_RTOINFO, sctp_rtoinfo, id, 40000, 0, 0);
    STRUCT(SCTP_RTOINFO, sctp_rtoinfo, id, 10, 0, 0);
    STRUCT(SCTP_RTOINFO, sctp_rtoinfo, id, 0, 100, 0);
    STRUCT(SCTP_RTOINFO, sctp_rtoinfo, id, 0, 0, 70000);
    STRUCT(SCTP_DELAYED_SACK, sctp_sack_info, id, 100, 0);
    STRUCT(SCTP_DELAYED_SACK, sctp_sack_info, id, 0, 3);
    STRUCT(SCTP_DELAYED_SACK, sctp_sack_info, id, 0, 0);
    STRUCT(SCTP_DELAYED_SACK, sctp_sack_info, id, 501, 2);
    STRUCT(SCTP_DELAYED_SACK, sctp_sack_info, id, 500, 1);
    struct sctp_assoc_value old = {id, 150};
    SAY(setsockopt(fd, IPPROTO_SCTP, SCTP_DELAYED_ACK_TIME, &old, sizeof old), "SCTP_DELAYED_ACK_TIME, the short form");
    socklen_t bytes = sizeof old;
    SAY(getsockopt(fd, IPPROTO_SCTP, SCTP_DELAYED_ACK_TIME, &old, &bytes), "SCTP_DELAYED_ACK_TIME, the short form, read");
    printf("then %u, %u bytes\n", old.assoc_value, bytes);
    PLAIN(SCTP_AUTOCLOSE, 5, 0, -1, 2000000000);
}

static void setup(void)
{
    STRUCT(SCTP_INITMSG, sctp_initmsg, 5, 0, 0, 0);
    STRUCT(SCTP_INITMSG, sctp_initmsg, 0, 6, 0, 0);
    STRUCT(SCTP_INITMSG, sctp_initmsg, 0, 0, 7, 0);
    STRUCT(SCTP_INITMSG, sctp_initmsg, 0, 0, 0, 800);
    STRUCT(SCTP_INITMSG, sctp_initmsg, 65535, 65535, 65535, 65535);
    struct sctp_assocparams a = {.sasoc_assoc_id = id};
    socklen_t bytes = sizeof a;
    NEEDED(getsockopt(fd, IPPROTO_SCTP, SCTP_ASSOCINFO, &a, &bytes) == 0);
    printf("SCTP_ASSOCINFO | asocmaxrxt %u peers %u cookie life %u\n", a.sasoc_asocmaxrxt,
           a.sasoc_number_peer_destinations, a.sasoc_cookie_life);
    static const int limits[] = {0, 3, 5, 6, 10, 60000};
    for (int i = 0; i < COUNT(limits); i++) {
        a = (struct sctp_assocparams){.sasoc_assoc_id = id, .sasoc_asocmaxrxt = limits[i]};
        errno = 0;
        said(setsockopt(fd, IPPROTO_SCTP, SCTP_ASSOCINFO, &a, sizeof a), "SCTP_ASSOCINFO, asocmaxrxt %d", limits[i]);
        NEEDED(getsockopt(fd, IPPROTO_SCTP, SCTP_ASSOCINFO, &a, &bytes) == 0);
        printf(" then %u\n", a.sasoc_asocmaxrxt);
    }
    a = (struct sctp_assocparams){.sasoc_assoc_id = id, .sasoc_cookie_life = 5000, .sasoc_local_rwnd = 77};
    SAY(setsockopt(fd, IPPROTO_SCTP, SCTP_ASSOCINFO, &a, sizeof a), "SCTP_ASSOCINFO, cookie life and rwnd");
    NEEDED(getsockopt(fd, IPPROTO_SCTP, SCTP_ASSOCINFO, &a, &bytes) == 0);
    printf("then %u\n", a.sasoc_cookie_life);
    PLAIN(SCTP_ADAPTATION_LAYER, 1, -1, 0);
}

/* Its structure ends with bytes that nobody fills. */
static void default_policy(unsigned value, int policy)
{
    struct sctp_default_prinfo p = {id, value, policy};
    socklen_t bytes = sizeof p;
    errno = 0;
    said(setsockopt(fd, IPPROTO_SCTP, SCTP_DEFAULT_PRINFO, &p, sizeof p), "SCTP_DEFAULT_PRINFO %u of policy %x", value, policy);
    NEEDED(getsockopt(fd, IPPROTO_SCTP, SCTP_DEFAULT_PRINFO, &p, &bytes) == 0);
    printf(" then %u of %x\n", p.pr_value, p.pr_policy);
}

static void messages(void)
{
    PLAIN(SCTP_NODELAY, 1, 0, 2, -1);
    PLAIN(SCTP_DISABLE_FRAGMENTS, 1, 0, 2, -1);
    PLAIN(SCTP_FRAGMENT_INTERLEAVE, 1, 2, 0, 3, -1);
    PLAIN(SCTP_PARTIAL_DELIVERY_POINT, 1, 100, 4000, 0, 100000000, -1);
    PLAIN(SCTP_I_WANT_MAPPED_V4_ADDR, 0, 1, 2, -1);
    PLAIN(SCTP_RECVRCVINFO, 1, 0, 2, -1);
    PLAIN(SCTP_RECVNXTINFO, 1, 0, 2, -1);
    PLAIN(SCTP_AUTO_ASCONF, 1, 0);
    PLAIN(SCTP_REUSE_PORT, 1, 0, 2);
    ASSOC_VALUE(SCTP_MAXSEG, 1, 7, 8, 100, 500, 512, 1000, 1400, 9000, 65515, 65516, 70000, 0);
    ASSOC_VALUE(SCTP_MAX_BURST, 0, 1, 4, 100, 4000000000);
    ASSOC_VALUE(SCTP_CONTEXT, 1, 0, 4000000000);
    ASSOC_VALUE(SCTP_PR_SUPPORTED, 0, 1, 2);
    ASSOC_VALUE(SCTP_RECONFIG_SUPPORTED, 0, 1, 2);
    ASSOC_VALUE(SCTP_ENABLE_STREAM_RESET, 0, 1, 7, 8);
    ASSOC_VALUE(SCTP_STREAM_SCHEDULER, 0, 1, 2, 3, 100);
    ASSOC_VALUE(SCTP_INTERLEAVING_SUPPORTED, 0, 1, 2);
    ASSOC_VALUE(SCTP_ASCONF_SUPPORTED, 0, 1);
    ASSOC_VALUE(SCTP_AUTH_SUPPORTED, 0, 1);
    ASSOC_VALUE(SCTP_ECN_SUPPORTED, 0, 1, 2);
    ASSOC_VALUE(SCTP_EXPOSE_POTENTIALLY_FAILED_STATE, 0, 1, 2, 3);
    STRUCT(SCTP_DEFAULT_SNDINFO, sctp_sndinfo, 3, SCTP_UNORDERED, 4, 5, id);
    STRUCT(SCTP_DEFAULT_SNDINFO, sctp_sndinfo, 9999, 0, 0, 0, id);
    STRUCT(SCTP_DEFAULT_SNDINFO, sctp_sndinfo, 0, SCTP_ADDR_OVER | SCTP_ABORT | SCTP_EOF, 0, 0, id);
    STRUCT(SCTP_DEFAULT_SNDINFO, sctp_sndinfo, 0, SCTP_SENDALL, 0, 0, id);
    STRUCT(SCTP_DEFAULT_SNDINFO, sctp_sndinfo, 0, 0x800, 0, 0, id);
    STRUCT(SCTP_DEFAULT_SNDINFO, sctp_sndinfo, 0, SCTP_SACK_IMMEDIATELY, 0, 0, id);
    STRUCT(SCTP_DEFAULT_SEND_PARAM, sctp_sndrcvinfo, 3, 2, SCTP_UNORDERED, 4, 5, 6, 7, 8, id);
    STRUCT(SCTP_DEFAULT_SEND_PARAM, sctp_sndrcvinfo, 0, 0, 0x800, 0, 0, 0, 0, 0, id);
    STRUCT(SCTP_DEFAULT_SEND_PARAM, sctp_sndrcvinfo, 0, 0, SCTP_SENDALL, 0, 0, 0, 0, 0, id);
    default_policy(100, SCTP_PR_SCTP_TTL);
    default_policy(5, SCTP_PR_SCTP_RTX);
    default_policy(5, SCTP_PR_SCTP_NONE);
    default_policy(5, 0x40);
    STRUCT(SCTP_STREAM_SCHEDULER_VALUE, sctp_stream_value, id, 0, 3);
    STRUCT(SCTP_STREAM_SCHEDULER_VALUE, sctp_stream_value, id, 9999, 3);
    STRUCT(SCTP_PR_STREAM_STATUS, sctp_prstatus, id, 0, SCTP_PR_SCTP_ALL, 0, 0);
    STRUCT(SCTP_PR_STREAM_STATUS, sctp_prstatus, id, 9999, SCTP_PR_SCTP_TTL, 0, 0);
    STRUCT(SCTP_PR_ASSOC_STATUS, sctp_prstatus, id, 0, SCTP_PR_SCTP_TTL, 0, 0);
    STRUCT(SCTP_PR_ASSOC_STATUS, sctp_prstatus, id, 0, 0, 0, 0);
}

static void subscriptions(void)
{
    unsigned char all[16];
    memset(all, 1, sizeof all);
    for (int bytes = 1; bytes <= 15; bytes++) {
        unsigned char read[16] = {0};
        socklen_t length = 14;
        int returned = setsockopt(fd, IPPROTO_SCTP, SCTP_EVENTS, all, bytes);
        printf("SCTP_EVENTS, %d bytes | %s |", bytes, returned == -1 ? strerrorname_np(errno) : "ok");
        NEEDED(getsockopt(fd, IPPROTO_SCTP, SCTP_EVENTS, read, &length) == 0);
        for (int i = 0; i < 14; i++)
            printf(" %d", read[i]);
        putchar('\n');
        NEEDED(setsockopt(fd, IPPROTO_SCTP, SCTP_EVENTS, (char[14]){0}, 14) == 0);
    }
    all[1] = 5;
    SAY(setsockopt(fd, IPPROTO_SCTP, SCTP_EVENTS, all, 2), "SCTP_EVENTS, neither 0 nor 1");
    for (int type = SCTP_DATA_IO_EVENT - 1; type <= SCTP_SN_TYPE_MAX + 1; type++) {
        struct sctp_event e = {id, type, 1};
        socklen_t bytes = sizeof e;
        printf("SCTP_EVENT %d", type - SCTP_SN_TYPE_BASE);
        what = "on";
        taken(setsockopt(fd, IPPROTO_SCTP, SCTP_EVENT, &e, sizeof e));
        e.se_on = 0;
        what = "read";
        taken(getsockopt(fd, IPPROTO_SCTP, SCTP_EVENT, &e, &bytes));
        printf(" then %d", e.se_on);
        e.se_on = 2;
        what = "2";
        taken(setsockopt(fd, IPPROTO_SCTP, SCTP_EVENT, &e, sizeof e));
        putchar('\n');
    }
}

static const struct {
    const char *text, *address;
    int port;
} places[] = {{"no address", NULL, 0}, {"the peer's", "127.0.0.1", 0}, {"the peer's and a wrong port", "127.0.0.1", 1},
              {"another", "127.0.0.9", 0}, {"all addresses", "0.0.0.0", 0}};

/* An address; the peer's with its port unless another is wanted. */
static void place(void *to, int i, int port)
{
    memset(to, 0, sizeof(struct sockaddr_storage));
    if (places[i].address) {
        struct sockaddr_in a = at(places[i].address, places[i].port ? places[i].port : port);
        memcpy(to, &a, sizeof a);
    }
}

static void paths_of(int port)
{
    for (int i = 0; i < COUNT(places); i++) {
        struct sctp_paddrparams p = {.spp_assoc_id = id};
        socklen_t bytes = sizeof p;
        place(&p.spp_address, i, port);
        errno = 0;
        if (said(getsockopt(fd, IPPROTO_SCTP, SCTP_PEER_ADDR_PARAMS, &p, &bytes), "SCTP_PEER_ADDR_PARAMS, %s", places[i].text))
            printf(" interval %u pathmaxrxt %u sackdelay %u flags %x", p.spp_hbinterval, p.spp_pathmaxrxt, p.spp_sackdelay,
                   p.spp_flags);
        putchar('\n');
        struct sctp_paddrinfo info = {.spinfo_assoc_id = id};
        bytes = sizeof info;
        place(&info.spinfo_address, i, port);
        errno = 0;
        if (said(getsockopt(fd, IPPROTO_SCTP, SCTP_GET_PEER_ADDR_INFO, &info, &bytes), "SCTP_GET_PEER_ADDR_INFO, %s",
                 places[i].text))
            printf(" state %d", info.spinfo_state);
        putchar('\n');
        struct sctp_prim prim = {.ssp_assoc_id = id};
        place(&prim.ssp_addr, i, port);
        SAY(setsockopt(fd, IPPROTO_SCTP, SCTP_PRIMARY_ADDR, &prim, sizeof prim), "SCTP_PRIMARY_ADDR, %s", places[i].text);
        struct sctp_setpeerprim theirs = {.sspp_assoc_id = id};
        place(&theirs.sspp_addr, i, port);
        SAY(setsockopt(fd, IPPROTO_SCTP, SCTP_SET_PEER_PRIMARY_ADDR, &theirs, sizeof theirs),
            "SCTP_SET_PEER_PRIMARY_ADDR, %s", places[i].text);
        struct sctp_paddrthlds_v2 t = {.spt_assoc_id = id, .spt_pathmaxrxt = 3, .spt_pathpfthld = 2, .spt_pathcpthld = 4};
        place(&t.spt_address, i, port);
        SAY(setsockopt(fd, IPPROTO_SCTP, SCTP_PEER_ADDR_THLDS_V2, &t, sizeof t), "SCTP_PEER_ADDR_THLDS_V2, %s", places[i].text);
        SAY(setsockopt(fd, IPPROTO_SCTP, SCTP_PEER_ADDR_THLDS, &t, sizeof(struct sctp_paddrthlds)), "SCTP_PEER_ADDR_THLDS, %s",
            places[i].text);
        struct sctp_udpencaps u = {.sue_assoc_id = id, .sue_port = htons(9899)};
        place(&u.sue_address, i, port);
        SAY(setsockopt(fd, IPPROTO_SCTP, SCTP_REMOTE_UDP_ENCAPS_PORT, &u, sizeof u), "SCTP_REMOTE_UDP_ENCAPS_PORT, %s",
            places[i].text);
        struct sctp_probeinterval probe = {.spi_assoc_id = id, .spi_interval = 5000};
        place(&probe.spi_address, i, port);
        SAY(setsockopt(fd, IPPROTO_SCTP, SCTP_PLPMTUD_PROBE_INTERVAL, &probe, sizeof probe), "SCTP_PLPMTUD_PROBE_INTERVAL, %s",
            places[i].text);
    }
}

static void path_values(void)
{
    static const struct sctp_paddrparams tries[] = {
        {.spp_hbinterval = 1000, .spp_flags = SPP_HB_ENABLE},
        {.spp_flags = SPP_HB_DISABLE},
        {.spp_flags = SPP_HB_ENABLE | SPP_HB_DISABLE},
        {.spp_hbinterval = 1000000000, .spp_flags = SPP_HB_ENABLE},
        {.spp_hbinterval = 500, .spp_flags = SPP_HB_ENABLE},
        {.spp_flags = SPP_HB_TIME_IS_ZERO | SPP_HB_ENABLE},
        {.spp_flags = SPP_HB_DEMAND},
        {.spp_flags = SPP_PMTUD_DISABLE, .spp_pathmtu = 1400},
        {.spp_flags = SPP_PMTUD_DISABLE, .spp_pathmtu = 100},
        {.spp_flags = SPP_PMTUD_DISABLE},
        {.spp_flags = SPP_PMTUD_ENABLE, .spp_pathmtu = 1300},
        {.spp_flags = SPP_PMTUD_ENABLE | SPP_PMTUD_DISABLE},
        {.spp_flags = SPP_SACKDELAY_ENABLE, .spp_sackdelay = 100},
        {.spp_flags = SPP_SACKDELAY_ENABLE, .spp_sackdelay = 501},
        {.spp_flags = SPP_SACKDELAY_DISABLE},
        {.spp_flags = SPP_SACKDELAY_ENABLE | SPP_SACKDELAY_DISABLE},
        {.spp_pathmaxrxt = 7},
        {.spp_flags = SPP_DSCP, .spp_dscp = 0x28},
        {.spp_flags = SPP_IPV6_FLOWLABEL, .spp_ipv6_flowlabel = 5},
        {.spp_flags = 0x10000},
    };
    for (int i = 0; i < COUNT(tries); i++) {
        struct sctp_paddrparams p = tries[i];
        socklen_t bytes = sizeof p;
        p.spp_assoc_id = id;
        errno = 0;
        said(setsockopt(fd, IPPROTO_SCTP, SCTP_PEER_ADDR_PARAMS, &p, sizeof p),
             "SCTP_PEER_ADDR_PARAMS flags %x interval %u pathmtu %u sackdelay %u pathmaxrxt %u", p.spp_flags, p.spp_hbinterval,
             p.spp_pathmtu, p.spp_sackdelay, p.spp_pathmaxrxt);
        p = (struct sctp_paddrparams){.spp_assoc_id = id};
        NEEDED(getsockopt(fd, IPPROTO_SCTP, SCTP_PEER_ADDR_PARAMS, &p, &bytes) == 0);
        printf(" then interval %u pathmaxrxt %u sackdelay %u flags %x dscp %x label %u\n", p.spp_hbinterval, p.spp_pathmaxrxt,
               p.spp_sackdelay, p.spp_flags, p.spp_dscp, p.spp_ipv6_flowlabel);
    }
}

static void status(void)
{
    struct sctp_status s = {.sstat_assoc_id = id};
    socklen_t bytes = sizeof s;
    errno = 0;
    if (said(getsockopt(fd, IPPROTO_SCTP, SCTP_STATUS, &s, &bytes), "SCTP_STATUS"))
        printf(" state %d unacked %u pending %u instrms %u outstrms %u primary %s state %d", s.sstat_state, s.sstat_unackdata,
               s.sstat_penddata, s.sstat_instrms, s.sstat_outstrms,
               inet_ntoa(((struct sockaddr_in *)&s.sstat_primary.spinfo_address)->sin_addr), s.sstat_primary.spinfo_state);
    putchar('\n');
}

static void of_the_socket(void)
{
    static const struct linger lingers[] = {{1, 0}, {1, 5}, {0, 7}, {2, 3}};
    PLAIN_OF_SOCKET(SO_REUSEADDR, 1, 0, 2, -1);
    PLAIN_OF_SOCKET(SO_REUSEPORT, 1, 0);
    PLAIN_OF_SOCKET(SO_KEEPALIVE, 1, 0);
    PLAIN_OF_SOCKET(SO_BROADCAST, 1, 0);
    PLAIN_OF_SOCKET(SO_RCVLOWAT, 1, 100, 0, -1);
    PLAIN_OF_SOCKET(SO_PRIORITY, 1, 6, 0);
    PLAIN_OF_SOCKET(SO_SNDBUF, 10000, 200000);
    PLAIN_OF_SOCKET(SO_RCVBUF, 10000, 200000);
    PLAIN_OF_SOCKET(SO_TYPE, 1);
    PLAIN_OF_SOCKET(SO_ERROR, 1);
    for (int i = 0; i < COUNT(lingers); i++) {
        struct linger l = lingers[i];
        socklen_t bytes = sizeof l;
        errno = 0;
        said(setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof l), "SO_LINGER %d %d", l.l_onoff, l.l_linger);
        NEEDED(getsockopt(fd, SOL_SOCKET, SO_LINGER, &l, &bytes) == 0);
        printf(" then %d %d\n", l.l_onoff, l.l_linger);
    }
}

/* Traffic classes. Of IPv6 a program may name all of them or the default, of IPv4 any number is one. */
static void classes(int type)
{
    static const int asked[] = {-2, -1, 0, 1, 3, 0x20, 0xb8, 0xba, 0xff, 256, 1000};
    int six = socket(AF_INET6, type, IPPROTO_SCTP), four = fresh(type);
    const struct {
        const char *text;
        int fd, level, name;
    } options[] = {{"IP_TOS", four, IPPROTO_IP, IP_TOS},
                   {"IP_TOS of IPv6", six, IPPROTO_IP, IP_TOS},
                   {"IPV6_TCLASS", six, IPPROTO_IPV6, IPV6_TCLASS}};
    NEEDED(six >= 0);
    for (int n = 0; n < COUNT(options); n++)
        for (int i = 0; i < COUNT(asked); i++) {
            int now = -7;
            socklen_t bytes = sizeof now;
            errno = 0;
            int done = setsockopt(options[n].fd, options[n].level, options[n].name, &asked[i], sizeof asked[i]);
            printf("%s %d: %d%s%s", options[n].text, asked[i], done, done ? " " : "", done ? strerrorname_np(errno) : "");
            NEEDED(getsockopt(options[n].fd, options[n].level, options[n].name, &now, &bytes) == 0);
            printf(" | is %d\n", now);
        }
    SAY(setsockopt(six, IPPROTO_IPV6, IPV6_TCLASS, &asked[2], 3), "IPV6_TCLASS of three bytes");
    close(six);
    close(four);
}

/* The codepoint of a path, and of all. */
static void codepoints(struct joined *j)
{
    static const struct {
        const char *text;
        int has_address, dscp;
    } sets[] = {{"nothing", 1, -1}, {"the path", 1, 0x28}, {"all", 0, 0x4b}, {"all to 0", 0, 0}};
    struct sockaddr_in a = at("127.0.0.1", j->port);
    for (int i = 0; i < COUNT(sets); i++) {
        struct sctp_paddrparams p = {.spp_assoc_id = j->id, .spp_flags = SPP_DSCP, .spp_dscp = sets[i].dscp};
        if (sets[i].has_address)
            memcpy(&p.spp_address, &a, sizeof a);
        printf("spp_dscp of %s", sets[i].text);
        if (sets[i].dscp >= 0)
            NEEDED(setsockopt(j->client, IPPROTO_SCTP, SCTP_PEER_ADDR_PARAMS, &p, sizeof p) == 0);
        for (int all = 0; all < 2; all++) {
            struct sctp_paddrparams now = {.spp_assoc_id = j->id};
            socklen_t bytes = sizeof now;
            if (!all)
                memcpy(&now.spp_address, &a, sizeof a);
            NEEDED(getsockopt(j->client, IPPROTO_SCTP, SCTP_PEER_ADDR_PARAMS, &now, &bytes) == 0);
            printf(" | %s %x flag %x", all ? "all" : "path", now.spp_dscp, now.spp_flags & SPP_DSCP);
        }
        putchar('\n');
    }
}

int main(void)
{
    begin();
    for (int style = 0; style < 2; style++)
        for (int connected = 0; connected < 2; connected++) {
            int type = style ? SOCK_SEQPACKET : SOCK_STREAM;
            struct joined j = {.client = -1, .server = -1, .listener = -1, .port = 7};
            if (connected)
                j = joined(type);
            else
                j.client = fresh(type);
            printf("\n# %s, %s an association\n", style_name(type), connected ? "with" : "without");
            fd = j.client;
            id = j.id;
            status();
            timers();
            setup();
            messages();
            subscriptions();
            paths_of(j.port);
            path_values();
            of_the_socket();
            if (connected) {
                struct joined fresh = joined(type);
                codepoints(&fresh);
                part(&fresh);
            } else {
                classes(type);
            }
            part(&j);
        }
    return 0;
}
