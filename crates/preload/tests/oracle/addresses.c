/* Addresses as programs name them and are told them. */
#include "oracle.h"

#ifndef SCTP_GET_PEER_ADDRS
#define SCTP_GET_PEER_ADDRS 108
#define SCTP_GET_LOCAL_ADDRS 109
#endif

static int style;
static int server_port;

/* Those of the loopback interface: what other interfaces there are is the host's own affair. */
static void listed(const char *what, int fd, int name, int id)
{
    struct {
        sctp_assoc_t id;
        __u32 count;
        char list[3000];
    } all = {.id = id};
    socklen_t bytes = sizeof all;
    char *at = all.list;
    if (getsockopt(fd, IPPROTO_SCTP, name, &all, &bytes) < 0) {
        printf(" | %s %s", what, strerrorname_np(errno));
        return;
    }
    printf(" | %s:", what);
    for (__u32 i = 0; i < all.count; i++) {
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        char text[INET6_ADDRSTRLEN] = "";
        memcpy(&v4, at, sizeof v4);
        if (v4.sin_family == AF_INET) {
            inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
            at += sizeof v4;
        } else {
            memcpy(&v6, at, sizeof v6);
            inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
            at += sizeof v6;
        }
        if (strstr(text, "127.0.0.") || strcmp(text, "::1") == 0)
            printf(" %s", text);
    }
}

static int one_of(int fd)
{
    struct sctp_status status = {0};
    socklen_t bytes = sizeof status;
    if (style == SOCK_SEQPACKET)
        return first_association(fd);
    return getsockopt(fd, IPPROTO_SCTP, SCTP_STATUS, &status, &bytes) == 0 ? status.sstat_assoc_id : 0;
}

static void bind_more(int fd, const char *host)
{
    struct sockaddr_in a = at(host, server_port);
    NEEDED(setsockopt(fd, IPPROTO_SCTP, SCTP_SOCKOPT_BINDX_ADD, &a, sizeof a) == 0);
}

static int server_at(const char *first, const char *second)
{
    int fd = fresh(style);
    struct sockaddr_in a;
    server_port = next_port();
    a = at(first, server_port);
    NEEDED(bind(fd, SA(a), sizeof a) == 0);
    if (second)
        bind_more(fd, second);
    NEEDED(listen(fd, 5) == 0);
    return fd;
}

struct control {
    char bytes[4096];
    size_t used;
};

static void add(struct control *control, int type, const void *data, size_t bytes)
{
    struct cmsghdr *entry = (struct cmsghdr *)(control->bytes + control->used);
    *entry = (struct cmsghdr){.cmsg_len = CMSG_LEN(bytes), .cmsg_level = IPPROTO_SCTP, .cmsg_type = type};
    memcpy(CMSG_DATA(entry), data, bytes);
    control->used += CMSG_SPACE(bytes);
}

static void add4(struct control *control, const char *host)
{
    struct in_addr a = {inet_addr(host)};
    add(control, SCTP_DSTADDRV4, &a, sizeof a);
}

static void add6(struct control *control, const char *host)
{
    struct in6_addr a;
    NEEDED(inet_pton(AF_INET6, host, &a) == 1);
    add(control, SCTP_DSTADDRV6, &a, sizeof a);
}

static ssize_t send_to(int fd, const void *to, socklen_t bytes, struct control *control)
{
    struct iovec part = {"message", 7};
    struct msghdr m = {.msg_name = (void *)to, .msg_namelen = bytes, .msg_iov = &part, .msg_iovlen = 1};
    if (control->used) {
        m.msg_control = control->bytes;
        m.msg_controllen = control->used;
    }
    errno = 0;
    return sendmsg(fd, &m, 0);
}

static ssize_t with_addresses(const char *text, int client, struct control *control)
{
    struct sockaddr_in a = at("127.0.0.1", server_port);
    struct sockaddr_in6 mapped = at6("::ffff:127.0.0.1", server_port);
    int family = 0;
    socklen_t bytes = sizeof family;
    NEEDED(getsockopt(client, SOL_SOCKET, SO_DOMAIN, &family, &bytes) == 0);
    ssize_t n = family == AF_INET ? send_to(client, &a, sizeof a, control) : send_to(client, &mapped, sizeof mapped, control);
    printf("%s: %zd%s%s", text, n, n < 0 ? " " : "", n < 0 ? strerrorname_np(errno) : "");
    return n;
}

static void several(void)
{
    for (int i = 0; i < 16; i++) {
        static const char *const texts[] = {"one more", "two more", "the same", "one twice", "of IPv6", "any", "broadcast",
                                            "multicast", "too short", "too long", "where it is not", "17 more", "mapped, of an IPv6 socket",
                                            "IPv4, of an IPv6 socket", "mapped, of an IPv4 socket", "none, then one to the other"};
        struct control control = {.used = 0};
        int server = server_at("127.0.0.1", i == 10 ? NULL : "127.0.0.2");
        int client = i == 12 || i == 13 ? socket(AF_INET6, style, IPPROTO_SCTP) : fresh(style);
        int got, accepted = -1;
        char data[32];
        switch (i) {
        case 0: add4(&control, "127.0.0.2"); break;
        case 1: add4(&control, "127.0.0.2"); add4(&control, "127.0.0.3"); break;
        case 2: add4(&control, "127.0.0.1"); break;
        case 3: add4(&control, "127.0.0.2"); add4(&control, "127.0.0.2"); break;
        case 4: add6(&control, "::1"); break;
        case 5: add4(&control, "0.0.0.0"); break;
        case 6: add4(&control, "255.255.255.255"); break;
        case 7: add4(&control, "224.0.0.1"); break;
        case 8: add(&control, SCTP_DSTADDRV4, "\x7f\0", 3); break;
        case 9: add(&control, SCTP_DSTADDRV4, "\x7f\0\0\2\0\0\0\0", 8); break;
        case 10: add4(&control, "127.0.0.2"); break;
        case 11:
            for (int last = 2; last < 19; last++) {
                char host[16];
                snprintf(host, sizeof host, "127.0.0.%d", last);
                add4(&control, host);
            }
            break;
        case 12: add6(&control, "::ffff:127.0.0.2"); break;
        case 13: add4(&control, "127.0.0.2"); break;
        case 14: add6(&control, "::ffff:127.0.0.2"); break;
        }
        ssize_t n = with_addresses(texts[i], client, &control);
        if (n > 0 && style == SOCK_STREAM)
            NEEDED(readable(server) && (accepted = accept(server, NULL, NULL)) >= 0);
        got = accepted >= 0 ? accepted : server;
        if (n > 0)
            printf(" | arrives: %zd", readable(got) ? recv(got, data, sizeof data, 0) : -1);
        listed("peer", client, SCTP_GET_PEER_ADDRS, one_of(client));
        if (i == 15) {
            struct sockaddr_in a = at("127.0.0.2", server_port);
            add4(&control, "127.0.0.1");
            printf(" | %zd", send_to(client, &a, sizeof a, &control));
            printf(" | arrives: %zd", readable(got) ? recv(got, data, sizeof data, 0) : -1);
        }
        putchar('\n');
        close(client);
        close(accepted);
        close(server);
    }
}

/* Forms of an address that a program may get: IPv4 in one of its forms, or IPv6. */
static void address(const char *what, const void *place)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    char text[INET6_ADDRSTRLEN] = "";
    sa_family_t family;
    int port;
    memcpy(&family, place, sizeof family);
    if (family == AF_INET) {
        memcpy(&v4, place, sizeof v4);
        inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
        port = ntohs(v4.sin_port);
    } else if (family == AF_INET6) {
        memcpy(&v6, place, sizeof v6);
        inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
        port = ntohs(v6.sin6_port);
    } else {
        printf(" | %s family %d", what, family);
        return;
    }
    printf(" | %s %s%s", what, text, port == server_port ? "" : port ? " client" : " no port");
}

static void named(const char *what, int (*call)(int, struct sockaddr *, socklen_t *), int fd)
{
    struct sockaddr_storage a = {0};
    socklen_t bytes = sizeof a;
    if (call(fd, SA(a), &bytes) < 0) {
        printf(" | %s %s", what, strerrorname_np(errno));
        return;
    }
    address(what, &a);
    printf(" (%u)", bytes);
}

static void in_options(int fd, int id)
{
    struct sctp_status status = {.sstat_assoc_id = id};
    struct sctp_prim primary = {.ssp_assoc_id = id};
    struct sctp_paddrinfo info = {.spinfo_assoc_id = id};
    socklen_t bytes = sizeof status;
    if (getsockopt(fd, IPPROTO_SCTP, SCTP_STATUS, &status, &bytes) == 0)
        address("SCTP_STATUS", &status.sstat_primary.spinfo_address);
    bytes = sizeof primary;
    if (getsockopt(fd, IPPROTO_SCTP, SCTP_PRIMARY_ADDR, &primary, &bytes) == 0)
        address("SCTP_PRIMARY_ADDR", &primary.ssp_addr);
    for (int i = 0; i < 2; i++) {
        struct sockaddr_in v4 = at("127.0.0.1", server_port);
        struct sockaddr_in6 v6 = at6("::ffff:127.0.0.1", server_port);
        memset(&info.spinfo_address, 0, sizeof info.spinfo_address);
        if (i)
            memcpy(&info.spinfo_address, &v6, sizeof v6);
        else
            memcpy(&info.spinfo_address, &v4, sizeof v4);
        bytes = sizeof info;
        if (getsockopt(fd, IPPROTO_SCTP, SCTP_GET_PEER_ADDR_INFO, &info, &bytes) == 0)
            address("SCTP_GET_PEER_ADDR_INFO", &info.spinfo_address);
        else
            printf(" | SCTP_GET_PEER_ADDR_INFO %s", strerrorname_np(errno));
    }
}

/* The next message or notification, and where it is said to come from. */
static void heard(int fd)
{
    char data[512];
    struct sockaddr_storage from = {0};
    struct iovec part = {data, sizeof data};
    struct msghdr m = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &part, .msg_iovlen = 1};
    if (!readable(fd)) {
        printf(" | nothing comes");
        return;
    }
    ssize_t n = recvmsg(fd, &m, 0);
    if (n < 0) {
        printf(" | recvmsg %s", strerrorname_np(errno));
        return;
    }
    union sctp_notification *news = (void *)data;
    if (m.msg_flags & MSG_NOTIFICATION) {
        printf(" | notification %x", news->sn_header.sn_type);
        if (news->sn_header.sn_type == SCTP_PEER_ADDR_CHANGE) {
            printf(" state %d", news->sn_paddr_change.spc_state);
            address("of", &news->sn_paddr_change.spc_aaddr);
        }
    } else {
        printf(" | %zd bytes", n);
    }
    address("from", &from);
    printf(" (%u)", m.msg_namelen);
}

static void set_mapped(int fd, int on)
{
    NEEDED(setsockopt(fd, IPPROTO_SCTP, SCTP_I_WANT_MAPPED_V4_ADDR, &on, sizeof on) == 0);
}

static int fresh6(int port, const char *bound, int mapped)
{
    int fd = socket(AF_INET6, style, IPPROTO_SCTP);
    struct sockaddr_in6 a = at6(bound, port);
    NEEDED(fd >= 0);
    set_mapped(fd, mapped);
    NEEDED(bind(fd, SA(a), sizeof a) == 0);
    return fd;
}

/* Where one that has a peer is bound. Others may be told where their last one is. */
static void own(int fd, const char *bound)
{
    if (style == SOCK_STREAM || strcmp(bound, "::") != 0)
        named("getsockname", getsockname, fd);
}

/* An association over this address. The server changes its mind when a message waits. */
static void over(const char *host, const char *bound, int mapped)
{
    static const char events[] = {0, 1};
    char data[8];
    struct sockaddr_storage from = {0};
    socklen_t room = 8;
    server_port = next_port();
    struct sockaddr_in6 a = at6(host, server_port);
    int listener = fresh6(server_port, bound, mapped), client = fresh6(0, host, mapped), server = listener;
    struct sockaddr *name = style == SOCK_STREAM ? NULL : SA(a);
    socklen_t name_bytes = name ? sizeof a : 0;
    NEEDED(setsockopt(listener, IPPROTO_SCTP, SCTP_EVENTS, events, sizeof events) == 0);
    NEEDED(listen(listener, 5) == 0);
    printf("%s, bound to %s, mapped %d: listener", host, bound, mapped);
    named("getsockname", getsockname, listener);
    printf("\n connect %d", connect(client, SA(a), sizeof a));
    if (style == SOCK_STREAM) {
        socklen_t bytes = sizeof from;
        NEEDED(readable(listener) && (server = accept(listener, SA(from), &bytes)) >= 0);
        address("accept", &from);
        printf(" (%u)", bytes);
    }
    printf("\n client");
    own(client, host);
    named("getpeername", getpeername, client);
    if (strcmp(bound, "::") != 0)
        listed("peer", client, SCTP_GET_PEER_ADDRS, one_of(client));
    in_options(client, one_of(client));
    printf("\n server");
    own(server, bound);
    named("getpeername", getpeername, server);
    listed("peer", server, SCTP_GET_PEER_ADDRS, one_of(server));
    printf("\n messages");
    for (int i = 0; i < 2; i++)
        NEEDED(sendto(client, "message", 7, 0, name, name_bytes) == 7);
    heard(server);
    heard(server);
    set_mapped(server, !mapped);
    heard(server);
    own(server, bound);
    named("getpeername", getpeername, server);
    listed("peer", server, SCTP_GET_PEER_ADDRS, one_of(server));
    NEEDED(sendto(client, "message", 7, 0, name, name_bytes) == 7);
    NEEDED(readable(server) && recvfrom(server, data, sizeof data, 0, SA(from), &room) == 7);
    printf(" | a name of %u in room for 8\n", room);
    if (style == SOCK_SEQPACKET) {
        sctp_peeloff_arg_t arg = {.associd = first_association(server)};
        socklen_t bytes = sizeof arg;
        int peeled_off = getsockopt(server, IPPROTO_SCTP, SCTP_SOCKOPT_PEELOFF, &arg, &bytes);
        NEEDED(peeled_off >= 0);
        printf(" peeled off");
        named("getpeername", getpeername, peeled_off);
        listed("own", peeled_off, SCTP_GET_LOCAL_ADDRS, 0);
        listed("peer", peeled_off, SCTP_GET_PEER_ADDRS, 0);
        putchar('\n');
        close(peeled_off);
    }
    close(client);
    if (server != listener)
        close(server);
    close(listener);
}

/* The second address of a peer answers. */
static void confirmed(int mapped)
{
    static const char events[] = {0, 1, 1};
    server_port = next_port();
    struct sockaddr_in6 a = at6("::ffff:127.0.0.1", server_port), more = at6("::ffff:127.0.0.2", server_port);
    int server = fresh6(server_port, "::ffff:127.0.0.1", 1), client = fresh6(0, "::ffff:127.0.0.1", mapped);
    NEEDED(setsockopt(server, IPPROTO_SCTP, SCTP_SOCKOPT_BINDX_ADD, &more, sizeof more) == 0);
    NEEDED(listen(server, 5) == 0);
    NEEDED(setsockopt(client, IPPROTO_SCTP, SCTP_EVENTS, events, sizeof events) == 0);
    NEEDED(connect(client, SA(a), sizeof a) == 0);
    printf("mapped %d", mapped);
    heard(client);
    heard(client);
    putchar('\n');
    close(client);
    close(server);
}

static void forms(void)
{
    over("::ffff:127.0.0.1", "::", 1);
    over("::ffff:127.0.0.1", "::", 0);
    over("::ffff:127.0.0.1", "::ffff:127.0.0.1", 1);
    over("::ffff:127.0.0.1", "::ffff:127.0.0.1", 0);
    over("::1", "::1", 0);
    confirmed(1);
    confirmed(0);
}

/* The addresses of sockets that came from others. */
static void inherited(void)
{
    static const char *const bound[][2] = {{"127.0.0.1"}, {"127.0.0.1", "127.0.0.2"}, {"127.0.0.2", "127.0.0.1"}, {"0.0.0.0"}};
    for (int i = 0; i < COUNT(bound); i++) {
        int listener = server_at(bound[i][0], bound[i][1]), client = fresh(style), server = listener;
        struct sockaddr_in a = at(bound[i][1] && i == 2 ? "127.0.0.2" : "127.0.0.1", server_port);
        NEEDED(connect(client, SA(a), sizeof a) == 0);
        if (style == SOCK_STREAM) {
            NEEDED(readable(listener) && (server = accept(listener, NULL, NULL)) >= 0);
        } else {
            sctp_peeloff_arg_t arg = {.associd = first_association(listener)};
            socklen_t bytes = sizeof arg;
            NEEDED((server = getsockopt(listener, IPPROTO_SCTP, SCTP_SOCKOPT_PEELOFF, &arg, &bytes)) >= 0);
        }
        printf("bound to %s%s%s", bound[i][0], bound[i][1] ? " and " : "", bound[i][1] ? bound[i][1] : "");
        listed("own", listener, SCTP_GET_LOCAL_ADDRS, 0);
        listed("of one from it", server, SCTP_GET_LOCAL_ADDRS, 0);
        listed("of its association", server, SCTP_GET_LOCAL_ADDRS, one_of(server));
        close(listener);
        listed("when that is closed", server, SCTP_GET_LOCAL_ADDRS, 0);
        listed("of the client", client, SCTP_GET_LOCAL_ADDRS, 0);
        listed("its peer's", client, SCTP_GET_PEER_ADDRS, one_of(client));
        putchar('\n');
        close(client);
        close(server);
    }
}

/* A message to one of the addresses of its peer. */
static void over_address(void)
{
    static const struct {
        const char *text, *to;
        int flags, wrong_port;
    } ways[] = {{"its first", "127.0.0.1", SCTP_ADDR_OVER},
                {"its second", "127.0.0.2", SCTP_ADDR_OVER},
                {"none of its own", "127.0.0.3", SCTP_ADDR_OVER},
                {"its second, wrong port", "127.0.0.2", SCTP_ADDR_OVER, 1},
                {"its second, unordered", "127.0.0.2", SCTP_ADDR_OVER | SCTP_UNORDERED},
                {"its second, no flag", "127.0.0.2"},
                {"none of its own, no flag", "127.0.0.3"}};
    for (int i = 0; i < COUNT(ways); i++) {
        struct control control = {.used = 0};
        /* There it is for another association. */
        if (style == SOCK_SEQPACKET && (ways[i].wrong_port || strcmp(ways[i].to, "127.0.0.3") == 0))
            continue;
        int listener = server_at("127.0.0.1", "127.0.0.2"), client = fresh(style), server = listener;
        struct sockaddr_in a = at("127.0.0.1", server_port), to = at(ways[i].to, server_port + ways[i].wrong_port);
        char data[32];
        NEEDED(connect(client, SA(a), sizeof a) == 0);
        if (style == SOCK_STREAM)
            NEEDED(readable(listener) && (server = accept(listener, NULL, NULL)) >= 0);
        struct sctp_sndinfo info = {.snd_flags = ways[i].flags, .snd_assoc_id = one_of(client)};
        add(&control, SCTP_SNDINFO, &info, sizeof info);
        ssize_t n = send_to(client, &to, sizeof to, &control);
        printf("to %s: %zd%s%s", ways[i].text, n, n < 0 ? " " : "", n < 0 ? strerrorname_np(errno) : "");
        if (n > 0)
            printf(" | arrives: %zd", readable(server) ? recv(server, data, sizeof data, 0) : -1);
        listed("peer", client, SCTP_GET_PEER_ADDRS, one_of(client));
        putchar('\n');
        close(client);
        if (server != listener)
            close(server);
        close(listener);
    }
}

static void interleaving(void)
{
    static const int levels[] = {0, 1, 2, 3, -1};
    int fd = fresh(style);
    for (int i = 0; i < COUNT(levels); i++) {
        struct sctp_assoc_value value = {0, 1};
        int level = levels[i], now = -2;
        socklen_t bytes = sizeof now;
        printf("SCTP_FRAGMENT_INTERLEAVE %d: %d", level, setsockopt(fd, IPPROTO_SCTP, SCTP_FRAGMENT_INTERLEAVE, &level, sizeof level));
        NEEDED(getsockopt(fd, IPPROTO_SCTP, SCTP_FRAGMENT_INTERLEAVE, &now, &bytes) == 0);
        errno = 0;
        int done = setsockopt(fd, IPPROTO_SCTP, SCTP_INTERLEAVING_SUPPORTED, &value, sizeof value);
        printf(" | is %d | SCTP_INTERLEAVING_SUPPORTED %d %s\n", now, done, done ? strerrorname_np(errno) : "");
    }
    close(fd);
}

int main(void)
{
    static void (*const parts[])(void) = {several, forms, inherited, over_address, interleaving};
    begin();
    for (int i = 0; i < 2; i++) {
        style = i ? SOCK_SEQPACKET : SOCK_STREAM;
        printf("%s# %s\n", i ? "\n" : "", style_name(style));
        for (int n = 0; n < COUNT(parts); n++)
            parts[n]();
    }
    return 0;
}
