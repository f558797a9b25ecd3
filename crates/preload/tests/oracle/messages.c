/* Ancillary data of messages, sent and received, valid and invalid. */
#include "oracle.h"

static int style;
static struct joined pair;

static void start(void)
{
    pair = joined(style);
}

/* The server's side of the association, which is one-to-many at both ends or at none. */
static int server_id(void)
{
    return style == SOCK_STREAM ? pair.id : first_association(pair.server);
}

struct control {
    char bytes[512];
    size_t used;
};

static void add(struct control *control, int level, int type, const void *data, size_t bytes)
{
    struct cmsghdr *entry = (struct cmsghdr *)(control->bytes + control->used);
    *entry = (struct cmsghdr){.cmsg_len = CMSG_LEN(bytes), .cmsg_level = level, .cmsg_type = type};
    memcpy(CMSG_DATA(entry), data, bytes);
    control->used += CMSG_SPACE(bytes);
}

static ssize_t send_with(int fd, const char *text, size_t bytes, struct control *control, int named, int flags)
{
    struct sockaddr_in a = at("127.0.0.1", pair.port);
    struct iovec part = {(char *)text, bytes};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    if (named) {
        m.msg_name = &a;
        m.msg_namelen = sizeof a;
    }
    if (control->used) {
        m.msg_control = control->bytes;
        m.msg_controllen = control->used;
    }
    errno = 0;
    return sendmsg(fd, &m, flags);
}

/* Prints what the server received: the message and what goes with it. */
static void arrives(int fd, int id)
{
    char data[64] = {0}, control[512];
    struct iovec part = {data, sizeof data - 1};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    if (!readable(fd)) {
        printf(" | nothing comes");
        return;
    }
    ssize_t n = recvmsg(fd, &m, 0);
    printf(" | %zd%s", n, n < 0 ? strerrorname_np(errno) : "");
    if (n < 0)
        return;
    if (m.msg_flags & MSG_NOTIFICATION) {
        printf(" notification");
        return;
    }
    printf(" '%s' flags %x", data, m.msg_flags);
    for (struct cmsghdr *entry = CMSG_FIRSTHDR(&m); entry; entry = CMSG_NXTHDR(&m, entry)) {
        struct sctp_rcvinfo r;
        struct sctp_sndrcvinfo s;
        struct sctp_nxtinfo x;
        switch (entry->cmsg_type) {
        case SCTP_RCVINFO:
            memcpy(&r, CMSG_DATA(entry), sizeof r);
            printf(" rcvinfo %zu: sid %u ssn %u flags %x ppid %u context %u %s", entry->cmsg_len, r.rcv_sid, r.rcv_ssn,
                   r.rcv_flags, ntohl(r.rcv_ppid), r.rcv_context, r.rcv_assoc_id == id || style == SOCK_STREAM ? "id" : "another id");
            break;
        case SCTP_SNDRCV:
            memcpy(&s, CMSG_DATA(entry), sizeof s);
            printf(" sndrcv %zu: stream %u ssn %u flags %x ppid %u context %u ttl %u %s", entry->cmsg_len, s.sinfo_stream,
                   s.sinfo_ssn, s.sinfo_flags, ntohl(s.sinfo_ppid), s.sinfo_context, s.sinfo_timetolive,
                   s.sinfo_assoc_id == id || style == SOCK_STREAM ? "id" : "another id");
            break;
        case SCTP_NXTINFO:
            memcpy(&x, CMSG_DATA(entry), sizeof x);
            printf(" nxtinfo %zu: sid %u flags %x ppid %u length %u %s", entry->cmsg_len, x.nxt_sid, x.nxt_flags,
                   ntohl(x.nxt_ppid), x.nxt_length, x.nxt_assoc_id == id || style == SOCK_STREAM ? "id" : "another id");
            break;
        default:
            printf(" type %d", entry->cmsg_type);
        }
    }
}

static void wants(int fd, int rcvinfo, int nxtinfo, int sndrcv)
{
    struct sctp_event_subscribe events = {.sctp_data_io_event = sndrcv};
    NEEDED(setsockopt(fd, IPPROTO_SCTP, SCTP_RECVRCVINFO, &rcvinfo, sizeof rcvinfo) == 0);
    NEEDED(setsockopt(fd, IPPROTO_SCTP, SCTP_RECVNXTINFO, &nxtinfo, sizeof nxtinfo) == 0);
    NEEDED(setsockopt(fd, IPPROTO_SCTP, SCTP_EVENTS, &events, sizeof events) == 0);
}

/* Sends with one control message over an association of its own and prints what arrives. */
static void with(const char *text, int level, int type, const void *data, size_t bytes)
{
    struct control control = {.used = 0};
    add(&control, level, type, data, bytes);
    wants(pair.server, 1, 0, 0);
    ssize_t n = send_with(pair.client, "message", 7, &control, 0, 0);
    int error = errno;
    printf("%s: %zd%s%s", text, n, n < 0 ? " " : "", n < 0 ? strerrorname_np(error) : "");
    if (n > 0)
        arrives(pair.server, server_id());
    putchar('\n');
}

#define SNDINFO(text, ...)                                                                         \
    with("SNDINFO " text, IPPROTO_SCTP, SCTP_SNDINFO, &(struct sctp_sndinfo){__VA_ARGS__}, sizeof(struct sctp_sndinfo))
#define SNDRCV(text, ...)                                                                          \
    with("SNDRCV " text, IPPROTO_SCTP, SCTP_SNDRCV, &(struct sctp_sndrcvinfo){__VA_ARGS__}, sizeof(struct sctp_sndrcvinfo))
/* The association matters to one-to-many sockets only. */
#define ID .snd_assoc_id = pair.id
#define OLD_ID .sinfo_assoc_id = pair.id

static void sending(void)
{
    start();
    SNDINFO("plain", ID);
    SNDINFO("stream 3, ppid 7", .snd_sid = 3, .snd_ppid = htonl(7), ID);
    SNDINFO("unordered", .snd_flags = SCTP_UNORDERED, ID);
    SNDINFO("SACK immediately", .snd_flags = SCTP_SACK_IMMEDIATELY, ID);
    SNDINFO("stream 9", .snd_sid = 9, ID);
    SNDINFO("stream 10", .snd_sid = 10, ID);
    SNDINFO("stream 65535", .snd_sid = 65535, ID);
    SNDINFO("flag 0x40, all associations", .snd_flags = SCTP_SENDALL, ID);
    SNDINFO("flag 0x80", .snd_flags = 0x80, ID);
    SNDINFO("flag 0x400", .snd_flags = 0x400, ID);
    SNDINFO("flag 0x800", .snd_flags = 0x800, ID);
    SNDINFO("flag 0x8000", .snd_flags = 0x8000, ID);
    SNDINFO("ADDR_OVER without an address", .snd_flags = SCTP_ADDR_OVER, ID);
    SNDINFO("context 5", .snd_context = 5, ID);
    SNDINFO("of no association", .snd_assoc_id = 0);
    SNDINFO("of current associations", .snd_assoc_id = SCTP_CURRENT_ASSOC);
    SNDINFO("of an unknown association", .snd_assoc_id = NO_ASSOCIATION);
    SNDINFO("of a negative association", .snd_assoc_id = -1);
    SNDRCV("plain", OLD_ID);
    SNDRCV("stream 3, ppid 7", .sinfo_stream = 3, .sinfo_ppid = htonl(7), OLD_ID);
    SNDRCV("unordered", .sinfo_flags = SCTP_UNORDERED, OLD_ID);
    SNDRCV("with a time to live", .sinfo_timetolive = 10000, OLD_ID);
    SNDRCV("stream 10", .sinfo_stream = 10, OLD_ID);
    SNDRCV("flag 0x40", .sinfo_flags = SCTP_SENDALL, OLD_ID);
    SNDRCV("flag 0x800", .sinfo_flags = 0x800, OLD_ID);
    SNDRCV("of an unknown association", .sinfo_assoc_id = NO_ASSOCIATION);
    SNDRCV("what a receiver fills", .sinfo_ssn = 5, .sinfo_tsn = 6, .sinfo_cumtsn = 7, OLD_ID);
    part(&pair);
}

static void kinds(void)
{
    unsigned char zeros[64] = {0};
    start();
    struct sctp_sndinfo info = {.snd_assoc_id = pair.id};
    struct sctp_sndrcvinfo old = {.sinfo_assoc_id = pair.id};
    with("SNDINFO one byte short", IPPROTO_SCTP, SCTP_SNDINFO, &info, sizeof info - 1);
    with("SNDINFO four bytes long", IPPROTO_SCTP, SCTP_SNDINFO, zeros, sizeof info + 4);
    with("SNDINFO of no bytes", IPPROTO_SCTP, SCTP_SNDINFO, zeros, 0);
    with("SNDRCV one byte short", IPPROTO_SCTP, SCTP_SNDRCV, &old, sizeof old - 1);
    with("SNDRCV of no bytes", IPPROTO_SCTP, SCTP_SNDRCV, zeros, 0);
    with("RCVINFO", IPPROTO_SCTP, SCTP_RCVINFO, zeros, sizeof(struct sctp_rcvinfo));
    with("NXTINFO", IPPROTO_SCTP, SCTP_NXTINFO, zeros, sizeof(struct sctp_nxtinfo));
    with("type 77", IPPROTO_SCTP, 77, zeros, 16);
    with("PRINFO one byte short", IPPROTO_SCTP, SCTP_PRINFO, zeros, sizeof(struct sctp_prinfo) - 1);
    with("AUTHINFO one byte short", IPPROTO_SCTP, SCTP_AUTHINFO, zeros, sizeof(struct sctp_authinfo) - 1);
    with("DSTADDRV4 one byte short", IPPROTO_SCTP, SCTP_DSTADDRV4, zeros, sizeof(struct in_addr) - 1);
    with("DSTADDRV6 one byte short", IPPROTO_SCTP, SCTP_DSTADDRV6, zeros, sizeof(struct in6_addr) - 1);
    with("INIT one byte short", IPPROTO_SCTP, SCTP_INIT, zeros, sizeof(struct sctp_initmsg) - 1);
    if (style == SOCK_STREAM) {
        with("an entry of another level", SOL_SOCKET, 77, zeros, 4);
        with("INIT when connected", IPPROTO_SCTP, SCTP_INIT, zeros, sizeof(struct sctp_initmsg));
        with("PRINFO without a policy", IPPROTO_SCTP, SCTP_PRINFO, zeros, sizeof(struct sctp_prinfo));
        with("PRINFO, time to live", IPPROTO_SCTP, SCTP_PRINFO, &(struct sctp_prinfo){SCTP_PR_SCTP_TTL, 10000},
             sizeof(struct sctp_prinfo));
        with("PRINFO, retransmissions", IPPROTO_SCTP, SCTP_PRINFO, &(struct sctp_prinfo){SCTP_PR_SCTP_RTX, 1},
             sizeof(struct sctp_prinfo));
        with("PRINFO, an unknown policy", IPPROTO_SCTP, SCTP_PRINFO, &(struct sctp_prinfo){0x40, 1}, sizeof(struct sctp_prinfo));
        with("AUTHINFO", IPPROTO_SCTP, SCTP_AUTHINFO, zeros, sizeof(struct sctp_authinfo));
    }
    struct control control = {.used = 0};
    add(&control, IPPROTO_SCTP, SCTP_SNDINFO, &info, sizeof info);
    ((struct cmsghdr *)control.bytes)->cmsg_len = 4;
    SAY(send_with(pair.client, "message", 7, &control, 0, 0), "an entry shorter than its header");
    ((struct cmsghdr *)control.bytes)->cmsg_len = 400;
    SAY(send_with(pair.client, "message", 7, &control, 0, 0), "an entry longer than all");
    control.used = 8;
    printf("less than a header: %zd", send_with(pair.client, "message", 7, &control, style == SOCK_SEQPACKET, 0));
    arrives(pair.server, server_id());
    putchar('\n');
    control.used = 0;
    add(&control, IPPROTO_SCTP, SCTP_SNDINFO, &info, sizeof info);
    add(&control, IPPROTO_SCTP, SCTP_SNDRCV, &old, sizeof old);
    printf("SNDINFO and SNDRCV: %zd", send_with(pair.client, "message", 7, &control, 0, 0));
    arrives(pair.server, server_id());
    putchar('\n');
    part(&pair);
}

static void in_place_of_connect(void)
{
    struct sctp_initmsg init = {.sinit_num_ostreams = 4, .sinit_max_instreams = 3};
    struct in_addr local = {htonl(INADDR_LOOPBACK)};
    for (int i = 0; i < 4; i++) {
        static const char *const texts[] = {"INIT", "DSTADDRV4", "SNDINFO stream 3", "SNDINFO stream 30"};
        struct control control = {.used = 0};
        struct sctp_status status = {0};
        socklen_t bytes = sizeof status;
        int port = next_port(), server = listening(style, port), client = fresh(style), accepted = -1;
        pair.port = port;
        switch (i) {
        case 0: add(&control, IPPROTO_SCTP, SCTP_INIT, &init, sizeof init); break;
        case 1: add(&control, IPPROTO_SCTP, SCTP_DSTADDRV4, &local, sizeof local); break;
        case 2: add(&control, IPPROTO_SCTP, SCTP_SNDINFO, &(struct sctp_sndinfo){.snd_sid = 3}, sizeof(struct sctp_sndinfo)); break;
        default: add(&control, IPPROTO_SCTP, SCTP_SNDINFO, &(struct sctp_sndinfo){.snd_sid = 30}, sizeof(struct sctp_sndinfo));
        }
        ssize_t n = send_with(client, "message", 7, &control, 1, 0);
        printf("sendmsg that connects, %s: %zd%s%s", texts[i], n, n < 0 ? " " : "", n < 0 ? strerrorname_np(errno) : "");
        if (n > 0) {
            if (style == SOCK_STREAM)
                NEEDED(readable(server) && (accepted = accept(server, NULL, NULL)) >= 0);
            wants(accepted >= 0 ? accepted : server, 1, 0, 0);
            arrives(accepted >= 0 ? accepted : server, first_association(server));
            status.sstat_assoc_id = style == SOCK_STREAM ? 0 : first_association(client);
            if (getsockopt(client, IPPROTO_SCTP, SCTP_STATUS, &status, &bytes) == 0)
                printf(" | %u streams out, %u in", status.sstat_outstrms, status.sstat_instrms);
        }
        putchar('\n');
        close(client);
        close(accepted);
        close(server);
    }
}

/* SCTP_EOF and SCTP_ABORT in what goes with a message. */
static void endings(void)
{
    static const struct {
        const char *text;
        unsigned flags;
        int bytes;
    } ways[] = {{"EOF", SCTP_EOF, 0}, {"EOF with data", SCTP_EOF, 7}, {"ABORT", SCTP_ABORT, 0}, {"ABORT with a reason", SCTP_ABORT, 7},
                {"EOF and ABORT", SCTP_EOF | SCTP_ABORT, 0}, {"EOF unordered", SCTP_EOF | SCTP_UNORDERED, 0}};
    for (int i = 0; i < COUNT(ways); i++) {
        char word[8];
        struct control control = {.used = 0};
        start();
        struct sctp_sndinfo info = {.snd_flags = ways[i].flags, .snd_assoc_id = pair.id};
        add(&control, IPPROTO_SCTP, SCTP_SNDINFO, &info, sizeof info);
        ssize_t n = send_with(pair.client, "message", ways[i].bytes, &control, 0, 0);
        printf("SNDINFO %s: %zd%s%s", ways[i].text, n, n < 0 ? " " : "", n < 0 ? strerrorname_np(errno) : "");
        if (style == SOCK_STREAM && n >= 0) {
            NEEDED(readable(pair.server));
            n = recv(pair.server, word, sizeof word, 0);
            printf(" | the peer reads %zd%s%s", n, n < 0 ? " " : "", n < 0 ? strerrorname_np(errno) : "");
            if (n > 0) {
                n = recv(pair.server, word, sizeof word, 0);
                printf(", %zd%s%s", n, n < 0 ? " " : "", n < 0 ? strerrorname_np(errno) : "");
            }
            errno = 0;
            n = send(pair.client, "x", 1, 0);
            printf(" | send then %zd%s%s", n, n < 0 ? " " : "", n < 0 ? strerrorname_np(errno) : "");
        } else if (n >= 0) {
            n = send_with(pair.client, "message", 7, &control, 0, 0);
            printf(" | once more %zd%s%s", n, n < 0 ? " " : "", n < 0 ? strerrorname_np(errno) : "");
        }
        putchar('\n');
        part(&pair);
    }
    for (int i = 0; i < 2; i++) {
        start();
        struct sockaddr_in a = at("127.0.0.1", pair.port);
        errno = 0;
        ssize_t n = sendto(pair.client, "message", i * 7, MSG_FIN, SA(a), style == SOCK_STREAM ? 0 : sizeof a);
        printf("MSG_EOF with %d bytes: %zd%s%s\n", i * 7, n, n < 0 ? " " : "", n < 0 ? strerrorname_np(errno) : "");
        part(&pair);
    }
}

/* Waits until the peer has acknowledged everything, and then for the second message to lie in the receiver's socket: an
   acknowledgement can overtake it on its way from the daemon. Linux has it there by then, and counts only the first message. */
static void until_second_has_come(int first_bytes)
{
    struct sctp_status status;
    do {
        socklen_t bytes = sizeof status;
        status.sstat_assoc_id = pair.id;
        NEEDED(getsockopt(pair.client, IPPROTO_SCTP, SCTP_STATUS, &status, &bytes) == 0);
    } while (status.sstat_unackdata || status.sstat_penddata);
    int waiting = 0;
    for (int i = 0; i < 200 && waiting <= first_bytes; i++) {
        usleep(1000);
        NEEDED(ioctl(pair.server, FIONREAD, &waiting) == 0);
    }
}

/* Subscriptions of a receiver, and room for the data. */
static void receiving(void)
{
    struct sctp_sndinfo info = {.snd_sid = 2, .snd_ppid = htonl(9)};
    struct control control = {.used = 0};
    start();
    info.snd_assoc_id = pair.id;
    add(&control, IPPROTO_SCTP, SCTP_SNDINFO, &info, sizeof info);
    static const struct {
        const char *text;
        int rcvinfo, nxtinfo, sndrcv;
    } asked[] = {{"nothing", 0, 0, 0}, {"RCVINFO", 1, 0, 0}, {"NXTINFO", 0, 1, 0}, {"SNDRCV", 0, 0, 1}, {"all", 1, 1, 1}};
    for (int i = 0; i < COUNT(asked); i++) {
        wants(pair.server, asked[i].rcvinfo, asked[i].nxtinfo, asked[i].sndrcv);
        NEEDED(send_with(pair.client, "first", 5, &control, 0, 0) == 5 && readable(pair.server));
        NEEDED(send_with(pair.client, "second one", 10, &control, 0, 0) == 10);
        if (asked[i].nxtinfo)
            until_second_has_come(5);
        printf("asked for %s", asked[i].text);
        arrives(pair.server, server_id());
        arrives(pair.server, server_id());
        putchar('\n');
    }
    wants(pair.server, 1, 0, 1);
    static const int rooms[] = {0, 8, 16, 24, 40, 44, 47, 48, 60, 80, 95, 96};
    for (int i = 0; i < COUNT(rooms); i++) {
        char data[4], place[256];
        struct sockaddr_in from;
        struct iovec part = {data, sizeof data};
        struct msghdr m = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &part, .msg_iovlen = 1, .msg_control = place,
                           .msg_controllen = rooms[i]};
        NEEDED(send_with(pair.client, "six by", 6, &control, 0, 0) == 6 && readable(pair.server));
        ssize_t n = recvmsg(pair.server, &m, 0);
        printf("room for %d bytes of control: %zd flags %x control %zu name %u", rooms[i], n, m.msg_flags, m.msg_controllen,
               m.msg_namelen);
        m.msg_controllen = rooms[i];
        m.msg_namelen = 4;
        n = recvmsg(pair.server, &m, MSG_PEEK);
        printf(" | %zd flags %x control %zu name %u", n, m.msg_flags, m.msg_controllen, m.msg_namelen);
        m.msg_controllen = rooms[i];
        m.msg_name = NULL;
        n = recvmsg(pair.server, &m, MSG_TRUNC);
        printf(" | %zd flags %x control %zu name %u\n", n, m.msg_flags, m.msg_controllen, m.msg_namelen);
    }
    struct sctp_assoc_value context = {style == SOCK_STREAM ? 0 : server_id(), 77};
    SAY(setsockopt(pair.server, IPPROTO_SCTP, SCTP_CONTEXT, &context, sizeof context), "SCTP_CONTEXT");
    NEEDED(send_with(pair.client, "context", 7, &control, 0, 0) == 7);
    printf("a context of the receiver's");
    arrives(pair.server, server_id());
    putchar('\n');
    part(&pair);
}

/* The defaults of a socket, and what is given with a message in their place. */
static void defaults(void)
{
    struct control none = {.used = 0};
    start();
    struct sctp_sndinfo info = {.snd_sid = 4, .snd_ppid = htonl(44), .snd_flags = SCTP_UNORDERED, .snd_assoc_id = pair.id};
    SAY(setsockopt(pair.client, IPPROTO_SCTP, SCTP_DEFAULT_SNDINFO, &info, sizeof info), "SCTP_DEFAULT_SNDINFO");
    wants(pair.server, 1, 0, 0);
    printf("without control: %zd", send_with(pair.client, "default", 7, &none, style == SOCK_SEQPACKET, 0));
    arrives(pair.server, server_id());
    putchar('\n');
    SNDINFO("stream 1", .snd_sid = 1, ID);
    info.snd_sid = 40;
    SAY(setsockopt(pair.client, IPPROTO_SCTP, SCTP_DEFAULT_SNDINFO, &info, sizeof info), "a default stream that is not there");
    SAY(send_with(pair.client, "default", 7, &none, style == SOCK_SEQPACKET, 0), "sendmsg then");
    part(&pair);
}

static void lengths(void)
{
    struct sctp_assoc_value segment = {0, 500};
    static char text[4000];
    int on = 1;
    struct iovec parts[2] = {{text, 3}, {text, 4}};
    struct msghdr m = {.msg_iov = parts, .msg_iovlen = 2};
    struct sockaddr_in a;
    start();
    a = at("127.0.0.1", pair.port);
    if (style == SOCK_SEQPACKET) {
        m.msg_name = &a;
        m.msg_namelen = sizeof a;
    }
    SAY(sendmsg(pair.client, &m, 0), "sendmsg of two parts");
    parts[0].iov_len = parts[1].iov_len = 0;
    SAY(sendmsg(pair.client, &m, 0), "sendmsg of two empty parts");
    m.msg_iovlen = 0;
    SAY(sendmsg(pair.client, &m, 0), "sendmsg of no part");
    m.msg_iovlen = 2000;
    SAY(sendmsg(pair.client, &m, 0), "sendmsg of 2000 parts");
    SAY(sendmsg(pair.client, NULL, 0), "sendmsg of nowhere");
    SAY(recvmsg(pair.client, NULL, MSG_DONTWAIT), "recvmsg to nowhere");
    segment.assoc_id = pair.id;
    NEEDED(setsockopt(pair.client, IPPROTO_SCTP, SCTP_DISABLE_FRAGMENTS, &on, sizeof on) == 0);
    NEEDED(setsockopt(pair.client, IPPROTO_SCTP, SCTP_MAXSEG, &segment, sizeof segment) == 0);
    SAY(sendto(pair.client, text, 500, 0, m.msg_name, m.msg_namelen), "500 bytes, fragments of 500 disabled");
    SAY(sendto(pair.client, text, 501, 0, m.msg_name, m.msg_namelen), "501 bytes, fragments of 500 disabled");
    part(&pair);
}

int main(void)
{
    static void (*const parts[])(void) = {sending, kinds, in_place_of_connect, endings, receiving, defaults, lengths};
    begin();
    for (int i = 0; i < 2; i++) {
        style = i ? SOCK_SEQPACKET : SOCK_STREAM;
        printf("%s# %s\n", i ? "\n" : "", style_name(style));
        for (int n = 0; n < COUNT(parts); n++)
            parts[n]();
    }
    return 0;
}
