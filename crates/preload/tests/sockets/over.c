/* SCTP_ADDR_OVER: messages to the second address of a peer, one by one. Says "ready" when all have been answered, and stays. */
#include "check.h"

enum { SCTP_BINDX_ADD = 100, SCTP_SNDINFO = 2, SCTP_ADDR_OVER = 2, PORT = 6500, MESSAGES = 200 };
enum { SCTP_GET_PEER_ADDR_INFO = 15, SCTP_ACTIVE = 2 };

struct sndinfo {
    uint16_t stream, flags;
    uint32_t ppid, context;
    int32_t assoc_id;
};

struct paddrinfo {
    int32_t assoc_id;
    struct sockaddr_storage address;
    int32_t state;
    uint32_t cwnd, srtt, rto, mtu;
} __attribute__((packed, aligned(4)));

/* Before that nothing is sent there. */
static void until_it_answers(int fd, struct sockaddr_in *address)
{
    struct paddrinfo info = {0};
    socklen_t bytes = sizeof info;
    memcpy(&info.address, address, sizeof *address);
    do
        CHECK(getsockopt(fd, IPPROTO_SCTP, SCTP_GET_PEER_ADDR_INFO, &info, &bytes) == 0);
    while (info.state != SCTP_ACTIVE);
}

/* By the flag, or of one-to-one by the address alone. */
static void say(int fd, struct sockaddr_in *to, int flags)
{
    char control[CMSG_SPACE(sizeof(struct sndinfo))] __attribute__((aligned(8))) = {0};
    struct iovec part = {"over", 4};
    struct msghdr m = {to, sizeof *to, &part, 1, control, sizeof control, 0};
    struct sndinfo info = {.flags = flags};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    *c = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof info), .cmsg_level = IPPROTO_SCTP, .cmsg_type = SCTP_SNDINFO};
    memcpy(CMSG_DATA(c), &info, sizeof info);
    CHECK(sendmsg(fd, &m, 0) == 4);
}

int main(void)
{
    char text[8];
    struct sockaddr_in first = loopback(PORT), second = loopback(PORT);
    int listener = fresh(0), client, server;
    begin();
    second.sin_addr.s_addr = inet_addr("127.0.0.2");
    CHECK(bind(listener, (struct sockaddr *)&first, sizeof first) == 0);
    CHECK(setsockopt(listener, IPPROTO_SCTP, SCTP_BINDX_ADD, &second, sizeof second) == 0);
    CHECK(listen(listener, 1) == 0);
    client = connected(PORT);
    CHECK((server = accept(listener, NULL, NULL)) >= 0);
    until_it_answers(client, &second);
    for (int i = 0; i < MESSAGES; i++) {
        say(client, &second, i & 1 ? SCTP_ADDR_OVER : 0);
        CHECK(recv(server, text, sizeof text, 0) == 4 && memcmp(text, "over", 4) == 0);
    }
    puts("ready");
    fflush(stdout);
    CHECK(read(0, text, 1) == 0);
    return 0;
}
