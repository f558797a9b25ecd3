/* Every socket option: read and set with lengths and associations, right and wrong. */
#include "oracle.h"

enum shape {
    PLAIN,
    /* The values depend on the machine: only their length is printed. */
    VARIES,
    /* It is a command, so its value cannot be set to the one that was read. */
    ONE_WAY,
};

struct option {
    const char *text;
    int level, name;
    int bytes;
    /* Where the association is; -1: nowhere. */
    int association_at;
    enum shape shape;
};

#define SCTP(name, type, field, shape) {#name, IPPROTO_SCTP, name, sizeof(type), offsetof(type, field), shape}
#define SCTP_WORD(name) {#name, IPPROTO_SCTP, name, sizeof(int), -1, PLAIN}
#define SOCKET(name, type, shape) {#name, SOL_SOCKET, name, sizeof(type), -1, shape}

static const struct option options[] = {
    SCTP(SCTP_RTOINFO, struct sctp_rtoinfo, srto_assoc_id, PLAIN),
    SCTP(SCTP_ASSOCINFO, struct sctp_assocparams, sasoc_assoc_id, VARIES),
    {"SCTP_INITMSG", IPPROTO_SCTP, SCTP_INITMSG, sizeof(struct sctp_initmsg), -1, PLAIN},
    SCTP_WORD(SCTP_NODELAY),
    SCTP_WORD(SCTP_AUTOCLOSE),
    SCTP(SCTP_SET_PEER_PRIMARY_ADDR, struct sctp_setpeerprim, sspp_assoc_id, ONE_WAY),
    SCTP(SCTP_PRIMARY_ADDR, struct sctp_prim, ssp_assoc_id, VARIES),
    SCTP_WORD(SCTP_ADAPTATION_LAYER),
    SCTP_WORD(SCTP_DISABLE_FRAGMENTS),
    SCTP(SCTP_PEER_ADDR_PARAMS, struct sctp_paddrparams, spp_assoc_id, VARIES),
    SCTP(SCTP_DEFAULT_SEND_PARAM, struct sctp_sndrcvinfo, sinfo_assoc_id, PLAIN),
    {"SCTP_EVENTS", IPPROTO_SCTP, SCTP_EVENTS, sizeof(struct sctp_event_subscribe), -1, PLAIN},
    SCTP_WORD(SCTP_I_WANT_MAPPED_V4_ADDR),
    SCTP(SCTP_MAXSEG, struct sctp_assoc_value, assoc_id, PLAIN),
    SCTP(SCTP_STATUS, struct sctp_status, sstat_assoc_id, VARIES),
    SCTP(SCTP_GET_PEER_ADDR_INFO, struct sctp_paddrinfo, spinfo_assoc_id, VARIES),
    SCTP(SCTP_DELAYED_SACK, struct sctp_sack_info, sack_assoc_id, PLAIN),
    SCTP(SCTP_CONTEXT, struct sctp_assoc_value, assoc_id, PLAIN),
    SCTP_WORD(SCTP_FRAGMENT_INTERLEAVE),
    SCTP_WORD(SCTP_PARTIAL_DELIVERY_POINT),
    SCTP(SCTP_MAX_BURST, struct sctp_assoc_value, assoc_id, PLAIN),
    {"SCTP_AUTH_CHUNK", IPPROTO_SCTP, SCTP_AUTH_CHUNK, sizeof(struct sctp_authchunk), -1, PLAIN},
    {"SCTP_HMAC_IDENT", IPPROTO_SCTP, SCTP_HMAC_IDENT, 8, -1, PLAIN},
    SCTP(SCTP_AUTH_KEY, struct sctp_authkey, sca_assoc_id, PLAIN),
    SCTP(SCTP_AUTH_ACTIVE_KEY, struct sctp_authkeyid, scact_assoc_id, PLAIN),
    SCTP(SCTP_AUTH_DELETE_KEY, struct sctp_authkeyid, scact_assoc_id, PLAIN),
    SCTP(SCTP_AUTH_DEACTIVATE_KEY, struct sctp_authkeyid, scact_assoc_id, PLAIN),
    SCTP(SCTP_PEER_AUTH_CHUNKS, struct sctp_authchunks, gauth_assoc_id, PLAIN),
    SCTP(SCTP_LOCAL_AUTH_CHUNKS, struct sctp_authchunks, gauth_assoc_id, PLAIN),
    {"SCTP_GET_ASSOC_NUMBER", IPPROTO_SCTP, SCTP_GET_ASSOC_NUMBER, sizeof(int), -1, PLAIN},
    {"SCTP_GET_ASSOC_ID_LIST", IPPROTO_SCTP, SCTP_GET_ASSOC_ID_LIST, 8, 4, PLAIN},
    SCTP_WORD(SCTP_AUTO_ASCONF),
    SCTP(SCTP_PEER_ADDR_THLDS, struct sctp_paddrthlds, spt_assoc_id, PLAIN),
    SCTP(SCTP_PEER_ADDR_THLDS_V2, struct sctp_paddrthlds_v2, spt_assoc_id, PLAIN),
    SCTP_WORD(SCTP_RECVRCVINFO),
    SCTP_WORD(SCTP_RECVNXTINFO),
    SCTP(SCTP_DEFAULT_SNDINFO, struct sctp_sndinfo, snd_assoc_id, PLAIN),
    SCTP_WORD(SCTP_REUSE_PORT),
    SCTP(SCTP_GET_ASSOC_STATS, struct sctp_assoc_stats, sas_assoc_id, VARIES),
    SCTP(SCTP_PR_SUPPORTED, struct sctp_assoc_value, assoc_id, PLAIN),
    SCTP(SCTP_DEFAULT_PRINFO, struct sctp_default_prinfo, pr_assoc_id, PLAIN),
    SCTP(SCTP_PR_ASSOC_STATUS, struct sctp_prstatus, sprstat_assoc_id, PLAIN),
    SCTP(SCTP_PR_STREAM_STATUS, struct sctp_prstatus, sprstat_assoc_id, PLAIN),
    SCTP(SCTP_RECONFIG_SUPPORTED, struct sctp_assoc_value, assoc_id, PLAIN),
    SCTP(SCTP_ENABLE_STREAM_RESET, struct sctp_assoc_value, assoc_id, PLAIN),
    SCTP(SCTP_RESET_STREAMS, struct sctp_reset_streams, srs_assoc_id, ONE_WAY),
    {"SCTP_RESET_ASSOC", IPPROTO_SCTP, SCTP_RESET_ASSOC, sizeof(sctp_assoc_t), 0, ONE_WAY},
    SCTP(SCTP_ADD_STREAMS, struct sctp_add_streams, sas_assoc_id, ONE_WAY),
    SCTP(SCTP_STREAM_SCHEDULER, struct sctp_assoc_value, assoc_id, PLAIN),
    SCTP(SCTP_STREAM_SCHEDULER_VALUE, struct sctp_stream_value, assoc_id, PLAIN),
    SCTP(SCTP_INTERLEAVING_SUPPORTED, struct sctp_assoc_value, assoc_id, PLAIN),
    {"SCTP_SENDMSG_CONNECT", IPPROTO_SCTP, SCTP_SENDMSG_CONNECT, 8, -1, PLAIN},
    SCTP(SCTP_EVENT, struct sctp_event, se_assoc_id, PLAIN),
    SCTP(SCTP_ASCONF_SUPPORTED, struct sctp_assoc_value, assoc_id, PLAIN),
    SCTP(SCTP_AUTH_SUPPORTED, struct sctp_assoc_value, assoc_id, PLAIN),
    SCTP(SCTP_ECN_SUPPORTED, struct sctp_assoc_value, assoc_id, PLAIN),
    SCTP(SCTP_EXPOSE_POTENTIALLY_FAILED_STATE, struct sctp_assoc_value, assoc_id, PLAIN),
    SCTP(SCTP_REMOTE_UDP_ENCAPS_PORT, struct sctp_udpencaps, sue_assoc_id, VARIES),
    SCTP(SCTP_PLPMTUD_PROBE_INTERVAL, struct sctp_probeinterval, spi_assoc_id, PLAIN),
    {"an unknown option", IPPROTO_SCTP, 9999, 8, -1, PLAIN},
    {"an option of TCP", IPPROTO_TCP, 1, 4, -1, PLAIN},
    {"an option of an unknown level", 77, 1, 4, -1, PLAIN},
    SOCKET(SO_TYPE, int, PLAIN),
    SOCKET(SO_DOMAIN, int, PLAIN),
    SOCKET(SO_PROTOCOL, int, PLAIN),
    SOCKET(SO_ERROR, int, PLAIN),
    SOCKET(SO_ACCEPTCONN, int, PLAIN),
    SOCKET(SO_LINGER, struct linger, PLAIN),
    SOCKET(SO_SNDBUF, int, VARIES),
    SOCKET(SO_RCVBUF, int, VARIES),
    SOCKET(SO_REUSEADDR, int, PLAIN),
    SOCKET(SO_REUSEPORT, int, PLAIN),
    SOCKET(SO_KEEPALIVE, int, PLAIN),
    SOCKET(SO_BROADCAST, int, PLAIN),
    SOCKET(SO_OOBINLINE, int, PLAIN),
    SOCKET(SO_RCVLOWAT, int, PLAIN),
    SOCKET(SO_SNDLOWAT, int, PLAIN),
    SOCKET(SO_PRIORITY, int, PLAIN),
    SOCKET(SO_RCVTIMEO, struct timeval, PLAIN),
    SOCKET(SO_SNDTIMEO, struct timeval, PLAIN),
    {"an unknown option of the socket", SOL_SOCKET, 9999, 4, -1, PLAIN},
    {"IP_TOS", IPPROTO_IP, IP_TOS, 4, -1, PLAIN},
    {"IP_TTL", IPPROTO_IP, IP_TTL, 4, -1, PLAIN},
    {"IP_FREEBIND", IPPROTO_IP, IP_FREEBIND, 4, -1, PLAIN},
    {"IPV6_V6ONLY", IPPROTO_IPV6, IPV6_V6ONLY, 4, -1, PLAIN},
};

/* Bytes as words, the association by its name. */
static void value(const struct option *option, const unsigned char *bytes, int count, int id)
{
    if (option->shape == VARIES || count < 0)
        return;
    printf(" =");
    for (int i = 0; i < count; i += 4) {
        unsigned word = 0;
        int n = count - i < 4 ? count - i : 4;
        memcpy(&word, bytes + i, n);
        if (i == option->association_at && id && (int)word == id)
            printf(" id");
        else
            printf(" %x", word);
    }
}

/* One result of several in a line. */
static int result(int returned, const char *how)
{
    printf(" | %s%s%s", how, *how ? " " : "", returned == -1 ? strerrorname_np(errno) : "ok");
    return returned != -1;
}

static int set(int fd, const struct option *option, const void *from, int bytes)
{
    return setsockopt(fd, option->level, option->name, from, bytes);
}

static int get(int fd, const struct option *option, void *to, socklen_t *bytes)
{
    return getsockopt(fd, option->level, option->name, to, bytes);
}

static void reads(int fd, const struct option *option, const char *how, int bytes, int association, int id)
{
    unsigned char place[1024] = {0};
    socklen_t length = bytes;
    if (option->association_at >= 0)
        memcpy(place + option->association_at, &association, 4);
    if (result(get(fd, option, place, &length), how)) {
        if (length != (socklen_t)bytes)
            printf(" length %d", (int)length);
        value(option, place, (int)length < bytes ? (int)length : bytes, id);
    }
}

static void lengths_of_get(int fd, const struct option *option, int id)
{
    socklen_t length = option->bytes;
    printf("%s, %d bytes, read", option->text, option->bytes);
    reads(fd, option, "", option->bytes, id, id);
    reads(fd, option, "longer", option->bytes + 4, id, id);
    if (option->bytes > 1)
        reads(fd, option, "shorter", option->bytes - 1, id, id);
    reads(fd, option, "one byte", 1, id, id);
    reads(fd, option, "no byte", 0, id, id);
    reads(fd, option, "negative length", -1, id, id);
    result(get(fd, option, NULL, &length), "nowhere");
    result(get(fd, option, &length, NULL), "no length");
    putchar('\n');
}

/* The value as it is, for an association. */
static void current(int fd, const struct option *option, unsigned char *place, int id)
{
    socklen_t length = option->bytes;
    if (option->association_at >= 0)
        memcpy(place + option->association_at, &id, 4);
    get(fd, option, place, &length);
    if (option->association_at >= 0)
        memcpy(place + option->association_at, &id, 4);
}

static void lengths_of_set(int fd, const struct option *option, int id)
{
    unsigned char place[1024] = {0};
    current(fd, option, place, id);
    printf("%s set", option->text);
    result(set(fd, option, place, option->bytes), "");
    result(set(fd, option, place, option->bytes + 4), "longer");
    if (option->bytes > 1)
        result(set(fd, option, place, option->bytes - 1), "shorter");
    result(set(fd, option, place, 1), "one byte");
    result(set(fd, option, place, 0), "no byte");
    result(set(fd, option, place, -1), "negative length");
    result(set(fd, option, NULL, option->bytes), "from nowhere");
    result(set(fd, option, NULL, 0), "nothing from nowhere");
    putchar('\n');
}

static void associations(int fd, const struct option *option, int id)
{
    static const struct {
        const char *text;
        int id;
    } kinds[] = {
        {"future", SCTP_FUTURE_ASSOC}, {"current", SCTP_CURRENT_ASSOC}, {"all", SCTP_ALL_ASSOC},
        {"unknown", NO_ASSOCIATION}, {"negative", -1},
    };
    unsigned char place[1024] = {0};
    printf("%s read of", option->text);
    for (int i = 0; i < COUNT(kinds); i++)
        reads(fd, option, kinds[i].text, option->bytes, kinds[i].id, id);
    current(fd, option, place, id);
    printf("\n%s set of", option->text);
    for (int i = 0; i < COUNT(kinds); i++) {
        memcpy(place + option->association_at, &kinds[i].id, 4);
        result(set(fd, option, place, option->bytes), kinds[i].text);
    }
    putchar('\n');
}

static void with(const struct option *option, int style, int connected)
{
    struct joined j = {.client = -1, .server = -1, .listener = -1};
    if (connected)
        j = joined(style);
    else
        j.client = fresh(style);
    lengths_of_get(j.client, option, j.id);
    lengths_of_set(j.client, option, j.id);
    if (option->association_at >= 0)
        associations(j.client, option, j.id);
    part(&j);
}

int main(void)
{
    begin();
    for (int style = 0; style < 2; style++)
        for (int connected = 0; connected < 2; connected++) {
            int type = style ? SOCK_SEQPACKET : SOCK_STREAM;
            printf("\n# %s, %s an association\n", style_name(type), connected ? "with" : "without");
            for (int i = 0; i < COUNT(options); i++)
                with(&options[i], type, connected);
        }
    return 0;
}
