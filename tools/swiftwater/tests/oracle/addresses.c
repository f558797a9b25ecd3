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

int main(void)
{
    static void (*const parts[])(void) = {several};
    begin();
    for (int i = 0; i < 2; i++) {
        style = i ? SOCK_SEQPACKET : SOCK_STREAM;
        printf("%s# %s\n", i ? "\n" : "", style_name(style));
        for (int n = 0; n < COUNT(parts); n++)
            parts[n]();
    }
    return 0;
}
