/* Notifications: their order among each other and with data, and their content. */
#include "oracle.h"

static int style;

/* Subscribes to all events except those that come at any time, which have a part of their own, and those of addresses, which
 * differ between hosts. */
static void subscribe(int fd)
{
    struct sctp_event_subscribe all;
    memset(&all, 1, sizeof all);
    all.sctp_data_io_event = all.sctp_authentication_event = all.sctp_sender_dry_event = all.sctp_address_event = 0;
    NEEDED(setsockopt(fd, IPPROTO_SCTP, SCTP_EVENTS, &all, sizeof all) == 0);
}

/* An association as it is called here: by when it was first heard of. */
static int name_of(int id)
{
    static int known[64], count;
    for (int i = 0; i < count; i++)
        if (known[i] == id)
            return i;
    NEEDED(count < COUNT(known));
    known[count] = id;
    return count++;
}

static void address(const void *place)
{
    struct sockaddr_storage a;
    char text[64] = "?";
    memcpy(&a, place, sizeof a);
    if (a.ss_family == AF_INET)
        inet_ntop(AF_INET, &((struct sockaddr_in *)&a)->sin_addr, text, sizeof text);
    printf(" address %s", text);
}

static void info(const struct sctp_sndrcvinfo *i)
{
    printf(" stream %u flags %x ppid %u context %u", i->sinfo_stream, i->sinfo_flags, ntohl(i->sinfo_ppid), i->sinfo_context);
}

static void failed(const union sctp_notification *n)
{
    const struct sctp_send_failed *f = &n->sn_send_failed;
    const struct sctp_send_failed_event *e = &n->sn_send_failed_event;
    if (n->sn_header.sn_type == SCTP_SEND_FAILED) {
        printf("SEND_FAILED error %u", f->ssf_error);
        info(&f->ssf_info);
        printf(" data %zu '%.1s' association %c", f->ssf_length - sizeof *f, f->ssf_data, 'a' + name_of(f->ssf_assoc_id));
    } else {
        printf("SEND_FAILED_EVENT error %u stream %u flags %x ppid %u context %u data %zu '%.1s' association %c", e->ssf_error,
               e->ssfe_info.snd_sid, e->ssfe_info.snd_flags, ntohl(e->ssfe_info.snd_ppid), e->ssfe_info.snd_context,
               e->ssf_length - sizeof *e, e->ssf_data, 'a' + name_of(e->ssf_assoc_id));
    }
}

static void notification(const union sctp_notification *n)
{
    switch (n->sn_header.sn_type) {
    case SCTP_ASSOC_CHANGE:
        printf("ASSOC_CHANGE state %u error %u streams %u out %u in association %c", n->sn_assoc_change.sac_state,
               n->sn_assoc_change.sac_error, n->sn_assoc_change.sac_outbound_streams, n->sn_assoc_change.sac_inbound_streams,
               'a' + name_of(n->sn_assoc_change.sac_assoc_id));
        break;
    case SCTP_PEER_ADDR_CHANGE:
        printf("PEER_ADDR_CHANGE state %d error %d", n->sn_paddr_change.spc_state, n->sn_paddr_change.spc_error);
        address((const char *)n + offsetof(struct sctp_paddr_change, spc_aaddr));
        printf(" association %c", 'a' + name_of(n->sn_paddr_change.spc_assoc_id));
        break;
    case SCTP_SEND_FAILED:
    case SCTP_SEND_FAILED_EVENT: failed(n); break;
    case SCTP_REMOTE_ERROR:
        printf("REMOTE_ERROR error %u association %c", ntohs(n->sn_remote_error.sre_error),
               'a' + name_of(n->sn_remote_error.sre_assoc_id));
        break;
    case SCTP_SHUTDOWN_EVENT: printf("SHUTDOWN_EVENT association %c", 'a' + name_of(n->sn_shutdown_event.sse_assoc_id)); break;
    case SCTP_ADAPTATION_INDICATION:
        printf("ADAPTATION_INDICATION %u association %c", n->sn_adaptation_event.sai_adaptation_ind,
               'a' + name_of(n->sn_adaptation_event.sai_assoc_id));
        break;
    case SCTP_SENDER_DRY_EVENT:
        printf("SENDER_DRY_EVENT association %c", 'a' + name_of(n->sn_sender_dry_event.sender_dry_assoc_id));
        break;
    case SCTP_AUTHENTICATION_INDICATION:
        printf("AUTHENTICATION indication %u association %c", n->sn_authkey_event.auth_indication,
               'a' + name_of(n->sn_authkey_event.auth_assoc_id));
        break;
    default: printf("type %x", n->sn_header.sn_type);
    }
    printf(" flags %x length %u", n->sn_header.sn_flags, n->sn_header.sn_length);
}

/* The next message or notification, which must come. Says whether it was one, and which. */
static int next(const char *who, int fd)
{
    static union {
        union sctp_notification n;
        char bytes[70000];
    } place;
    struct iovec part = {&place, sizeof place};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    errno = 0;
    ssize_t n = readable(fd) ? recvmsg(fd, &m, 0) : -2;
    printf("  %s: ", who);
    if (n <= 0 || !(m.msg_flags & MSG_NOTIFICATION)) {
        printf("%zd %s flags %x\n", n, n < 0 ? strerrorname_np(errno) : n ? "bytes" : "end", m.msg_flags);
        return 0;
    }
    notification(&place.n);
    printf(" | %zd bytes, flags %x\n", n, m.msg_flags);
    return place.n.sn_header.sn_type;
}

static void nothing(const char *who, int fd)
{
    char word[8];
    printf("  %s: %s\n", who, recv(fd, word, sizeof word, MSG_DONTWAIT) == -1 ? strerrorname_np(errno) : "something more");
}

struct ends {
    int port, client, listener, server;
};

/* Both ends subscribed to everything, up, and what was said of that. */
static struct ends up(const char *what)
{
    struct ends e = {.port = next_port(), .client = fresh(style), .server = -1};
    struct sockaddr_in a = at("127.0.0.1", e.port);
    printf("%s\n", what);
    e.listener = listening(style, e.port);
    subscribe(e.listener);
    subscribe(e.client);
    NEEDED(connect(e.client, SA(a), sizeof a) == 0);
    next("client", e.client);
    if (style == SOCK_STREAM)
        NEEDED(readable(e.listener) && (e.server = accept(e.listener, NULL, NULL)) >= 0);
    else
        e.server = e.listener;
    next("server", e.server);
    return e;
}

static void down(struct ends *e)
{
    close(e->client);
    close(e->server);
    close(e->listener);
}

/* Sends over the first association of a one-to-many socket, or over a one-to-one socket's. */
static ssize_t say(int fd, const void *text, size_t bytes, unsigned flags)
{
    char control[CMSG_SPACE(sizeof(struct sctp_sndinfo))] = {0};
    struct iovec part = {(void *)text, bytes};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *entry = CMSG_FIRSTHDR(&m);
    struct sctp_sndinfo with = {.snd_sid = 1, .snd_ppid = htonl(5), .snd_context = 6, .snd_flags = flags,
                                .snd_assoc_id = style == SOCK_STREAM ? 0 : first_association(fd)};
    *entry = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof with), .cmsg_level = IPPROTO_SCTP, .cmsg_type = SCTP_SNDINFO};
    memcpy(CMSG_DATA(entry), &with, sizeof with);
    return sendmsg(fd, &m, MSG_DONTWAIT);
}

static void shutdowns(void)
{
    struct ends e = up("a message, then the client shuts down");
    NEEDED(say(e.client, "hello", 5, 0) == 5);
    next("server", e.server);
    if (style == SOCK_STREAM)
        NEEDED(shutdown(e.client, SHUT_WR) == 0);
    else
        NEEDED(say(e.client, "", 0, SCTP_EOF) == 0);
    next("server", e.server);
    next("server", e.server);
    next("client", e.client);
    if (style == SOCK_STREAM) {
        next("server", e.server);
        nothing("client", e.client);
    } else {
        nothing("server", e.server);
        nothing("client", e.client);
    }
    down(&e);
}

static void aborts(void)
{
    struct linger none = {1, 0};
    struct ends e = up("the client aborts");
    if (style == SOCK_STREAM) {
        NEEDED(setsockopt(e.client, SOL_SOCKET, SO_LINGER, &none, sizeof none) == 0);
        close(e.client);
        e.client = -1;
    } else {
        say(e.client, "reason", 6, SCTP_ABORT);
    }
    next("server", e.server);
    if (style == SOCK_STREAM) {
        next("server", e.server);
        nothing("server", e.server);
    } else {
        next("client", e.client);
        nothing("client", e.client);
        nothing("server", e.server);
    }
    down(&e);
}

static void refused(void)
{
    struct sockaddr_in a = at("127.0.0.1", next_port());
    int fd = fresh(style);
    printf("nobody listens\n");
    subscribe(fd);
    SAY(connect(fd, SA(a), sizeof a), "  connect");
    next("client", fd);
    nothing("client", fd);
    if (style == SOCK_SEQPACKET) {
        SAY(sendto(fd, "x", 1, 0, SA(a), sizeof a), "  sendto");
        for (int i = 0; i < 3; i++)
            next("client", fd);
        nothing("client", fd);
    }
    close(fd);
}

/* Reads what comes back, each message in both forms. How many there are, and how much of them was sent, depends on buffers. */
static void come_back(int fd)
{
    static union {
        union sctp_notification n;
        char bytes[70000];
    } place;
    struct iovec part = {&place, sizeof place};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    int failed[2] = {0}, other = 0;
    ssize_t n = 0;
    while (readable(fd) && (n = recvmsg(fd, &m, MSG_DONTWAIT)) > 0) {
        switch (place.n.sn_header.sn_type) {
        case SCTP_SEND_FAILED: failed[0] += n == 30000 + sizeof(struct sctp_send_failed); break;
        case SCTP_SEND_FAILED_EVENT: failed[1] += n == 30000 + sizeof(struct sctp_send_failed_event); break;
        default: other++;
        }
        if (style == SOCK_SEQPACKET && failed[1])
            break;
    }
    printf("  client: %s, then %s\n", failed[0] && failed[1] && !other ? "both forms of what failed" : "something else",
           style == SOCK_STREAM && n < 0 ? strerrorname_np(errno) : "more");
}

/* Unacknowledged messages come back when the peer aborts. */
static void unsent(void)
{
    static char block[30000];
    struct linger none = {1, 0};
    struct ends e = up("the server aborts while much waits for it");
    memset(block, 'b', sizeof block);
    while (say(e.client, block, sizeof block, SCTP_UNORDERED) > 0)
        ;
    printf("  send: %s\n", strerrorname_np(errno));
    if (style == SOCK_STREAM) {
        NEEDED(setsockopt(e.server, SOL_SOCKET, SO_LINGER, &none, sizeof none) == 0);
        close(e.server);
        e.server = -1;
    } else {
        say(e.server, "", 0, SCTP_ABORT);
    }
    next("client", e.client);
    come_back(e.client);
    down(&e);
}

static void dry(void)
{
    struct joined j = joined(style);
    struct sctp_event dry = {style == SOCK_STREAM ? 0 : j.id, SCTP_SENDER_DRY_EVENT, 1};
    printf("a dry sender\n");
    SAY(setsockopt(j.client, IPPROTO_SCTP, SCTP_EVENT, &dry, sizeof dry), "  subscribed when all is quiet");
    next("client", j.client);
    nothing("client", j.client);
    SAY(setsockopt(j.client, IPPROTO_SCTP, SCTP_EVENT, &dry, sizeof dry), "  subscribed again");
    next("client", j.client);
    nothing("client", j.client);
    NEEDED(say(j.client, "hello", 5, 0) == 5);
    next("server", j.server);
    next("client", j.client);
    nothing("client", j.client);
    part(&j);
}

/* Authentication is off. */
static void authentication(void)
{
    struct sctp_event_subscribe events = {.sctp_association_event = 1, .sctp_authentication_event = 1};
    struct joined j = {.port = next_port(), .client = fresh(style), .server = -1, .listener = -1};
    struct sockaddr_in a = at("127.0.0.1", j.port);
    printf("a peer that does not authenticate\n");
    NEEDED(setsockopt(j.client, IPPROTO_SCTP, SCTP_EVENTS, &events, sizeof events) == 0);
    j.listener = listening(style, j.port);
    NEEDED(connect(j.client, SA(a), sizeof a) == 0);
    next("client", j.client);
    next("client", j.client);
    nothing("client", j.client);
    part(&j);
}

/* Subscribed when it is too late. */
static void late(void)
{
    struct joined j = joined(style);
    printf("subscribed late\n");
    subscribe(j.client);
    nothing("client", j.client);
    part(&j);
}

static void adaptation(void)
{
    struct ends e = {.port = next_port(), .client = fresh(style), .server = -1};
    struct sockaddr_in a = at("127.0.0.1", e.port);
    printf("adaptation layers\n");
    e.listener = listening(style, e.port);
    NEEDED(setsockopt(e.client, IPPROTO_SCTP, SCTP_ADAPTATION_LAYER, &(int){11}, sizeof(int)) == 0);
    NEEDED(setsockopt(e.listener, IPPROTO_SCTP, SCTP_ADAPTATION_LAYER, &(int){22}, sizeof(int)) == 0);
    subscribe(e.listener);
    subscribe(e.client);
    NEEDED(connect(e.client, SA(a), sizeof a) == 0);
    if (style == SOCK_STREAM)
        NEEDED(readable(e.listener) && (e.server = accept(e.listener, NULL, NULL)) >= 0);
    else
        e.server = e.listener;
    for (int i = 0; i < 2; i++)
        next("client", e.client);
    for (int i = 0; i < 2; i++)
        next("server", e.server);
    down(&e);
}

/* A notification is a message: it is peeked at and read in parts. */
static void parts(void)
{
    char place[64], control[128];
    struct ends e = {.port = next_port(), .client = fresh(style), .server = -1};
    struct sockaddr_in a = at("127.0.0.1", e.port), from = {0};
    struct iovec part = {place, 6};
    struct msghdr m = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
                       .msg_controllen = sizeof control};
    e.listener = listening(style, e.port);
    subscribe(e.client);
    NEEDED(setsockopt(e.client, IPPROTO_SCTP, SCTP_RECVRCVINFO, &(int){1}, sizeof(int)) == 0);
    NEEDED(connect(e.client, SA(a), sizeof a) == 0 && readable(e.client));
    printf("a notification in parts\n");
    for (int i = 0; i < 5; i++) {
        m.msg_controllen = sizeof control;
        m.msg_namelen = sizeof from;
        ssize_t n = recvmsg(e.client, &m, i == 0 ? MSG_PEEK : 0);
        printf("  %zd bytes, flags %x, control %zu, name %u\n", n, m.msg_flags, m.msg_controllen, m.msg_namelen);
    }
    nothing("client", e.client);
    down(&e);
}

/* One that is peeled off takes what waits with it. */
static void peeled(void)
{
    if (style == SOCK_STREAM)
        return;
    struct ends e = up("peeled off");
    NEEDED(say(e.client, "waits", 5, 0) == 5 && readable(e.server));
    sctp_peeloff_arg_t peel = {.associd = first_association(e.server)};
    socklen_t bytes = sizeof peel;
    int fd = getsockopt(e.server, IPPROTO_SCTP, SCTP_SOCKOPT_PEELOFF, &peel, &bytes);
    NEEDED(fd >= 0);
    nothing("server", e.server);
    next("peeled", fd);
    NEEDED(send(fd, "back", 4, 0) == 4);
    next("client", e.client);
    NEEDED(say(e.client, "", 0, SCTP_EOF) == 0);
    next("peeled", fd);
    next("peeled", fd);
    nothing("peeled", fd);
    next("client", e.client);
    nothing("server", e.server);
    close(fd);
    down(&e);
}

/* One that is peeled off is aborted by its own program, which has the socket until it closes it. */
static void peeled_aborts(void)
{
    if (style == SOCK_STREAM)
        return;
    for (int subscribed = 1; subscribed >= 0; subscribed--) {
        char word[8];
        struct ends e = up(subscribed ? "peeled off, and aborted by its program" : "the same without notifications");
        sctp_peeloff_arg_t peel = {.associd = first_association(e.server)};
        socklen_t bytes = sizeof peel;
        int fd = getsockopt(e.server, IPPROTO_SCTP, SCTP_SOCKOPT_PEELOFF, &peel, &bytes);
        NEEDED(fd >= 0);
        struct sctp_event_subscribe none = {0};
        NEEDED(subscribed || setsockopt(fd, IPPROTO_SCTP, SCTP_EVENTS, &none, sizeof none) == 0);
        SAY(say(fd, "reason", 6, SCTP_ABORT), "  send with SCTP_ABORT");
        next("client", e.client);
        if (subscribed)
            next("peeled", fd);
        NEEDED(readable(fd));
        nothing("peeled", fd);
        SAY(recv(fd, word, sizeof word, MSG_DONTWAIT), "  recv after that");
        SAY(send(fd, "x", 1, 0), "  send after that");
        nothing("client", e.client);
        nothing("server", e.server);
        close(fd);
        down(&e);
    }
}

int main(void)
{
    static void (*const all[])(void) = {shutdowns, aborts, refused, unsent, dry, authentication, late, adaptation, parts, peeled,
                                    peeled_aborts};
    begin();
    for (int i = 0; i < 2; i++) {
        style = i ? SOCK_SEQPACKET : SOCK_STREAM;
        printf("%s# %s\n", i ? "\n" : "", style_name(style));
        for (int n = 0; n < COUNT(all); n++)
            all[n]();
    }
    return 0;
}
