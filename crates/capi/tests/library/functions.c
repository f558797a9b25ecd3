/* The functions of RFC 6458 section 9 on one-to-one sockets, in a program that links with the library. */
#include "../../../preload/tests/sockets/check.h"
#include <netinet/sctp.h>

static void messages_carry_what_is_said_of_them(int client, int server)
{
    struct sctp_event_subscribe events = {.sctp_data_io_event = 1};
    struct sctp_sndrcvinfo info = {.sinfo_stream = 3, .sinfo_ppid = htonl(39), .sinfo_flags = SCTP_UNORDERED};
    char text[16];
    int flags = 0;
    CHECK(setsockopt(server, IPPROTO_SCTP, SCTP_EVENTS, &events, sizeof events) == 0);
    CHECK(sctp_sendmsg(client, "one", 3, NULL, 0, htonl(38), 0, 2, 0, 0) == 3);
    CHECK(sctp_send(client, "three", 5, &info, 0) == 5);

    CHECK(sctp_recvmsg(server, text, 2, NULL, NULL, &info, &flags) == 2 && !(flags & MSG_EOR));
    flags = 0;
    CHECK(sctp_recvmsg(server, text, sizeof text, NULL, NULL, &info, &flags) == 1 && flags & MSG_EOR);
    CHECK(info.sinfo_stream == 2 && ntohl(info.sinfo_ppid) == 38 && info.sinfo_flags == 0);
    CHECK(sctp_recvmsg(server, text, sizeof text, NULL, NULL, &info, NULL) == 5);
    CHECK(info.sinfo_stream == 3 && ntohl(info.sinfo_ppid) == 39 && info.sinfo_flags == SCTP_UNORDERED);

    flags = MSG_DONTWAIT;
    FAILS(sctp_recvmsg(server, text, sizeof text, NULL, NULL, NULL, &flags), EAGAIN);
    FAILS(sctp_sendmsg(client, "x", 1, NULL, 0, 0, 0x10000, 0, 0, 0), EINVAL);
    events.sctp_data_io_event = 0;
    CHECK(setsockopt(server, IPPROTO_SCTP, SCTP_EVENTS, &events, sizeof events) == 0);
}

static void messages_come_from_and_go_to_several_places(int client, int server)
{
    struct sctp_sendv_spa spa = {.sendv_flags = SCTP_SEND_SNDINFO_VALID, .sendv_sndinfo = {.snd_sid = 4}};
    struct sctp_rcvinfo info;
    struct iovec parts[2] = {{"ab", 2}, {"cde", 3}};
    socklen_t size = sizeof info;
    unsigned int kind = 7;
    char text[16];
    int on = 1, flags = 0;
    FAILS(sctp_sendv(client, parts, 2, NULL, 0, &spa, 8, SCTP_SENDV_SPA, 0), EINVAL);
    FAILS(sctp_sendv(client, parts, 2, NULL, 0, &spa, sizeof spa, 5, 0), EINVAL);
    CHECK(sctp_sendv(client, parts, 2, NULL, 0, NULL, 0, SCTP_SENDV_NOINFO, 0) == 5);
    parts[0] = (struct iovec){text, sizeof text};
    CHECK(sctp_recvv(server, parts, 1, NULL, NULL, &info, &size, &kind, &flags) == 5);
    CHECK(kind == SCTP_RECVV_NOINFO && size == sizeof info && flags & MSG_EOR && memcmp(text, "abcde", 5) == 0);

    CHECK(setsockopt(server, IPPROTO_SCTP, SCTP_RECVRCVINFO, &on, sizeof on) == 0);
    CHECK(sctp_sendv(client, parts, 1, NULL, 0, &spa, sizeof spa, SCTP_SENDV_SPA, 0) == sizeof text);
    CHECK(sctp_sendv(client, parts, 1, NULL, 0, &spa.sendv_sndinfo, sizeof spa.sendv_sndinfo, SCTP_SENDV_SNDINFO, 0) ==
          sizeof text);
    for (int n = 0; n < 2; n++) {
        flags = 0;
        CHECK(sctp_recvv(server, parts, 1, NULL, NULL, &info, &size, &kind, &flags) == sizeof text);
        CHECK(kind == SCTP_RECVV_RCVINFO && size == sizeof info && info.rcv_sid == 4 && info.rcv_ssn == n);
    }
}

static void options_name_their_association(int client)
{
    struct sctp_initmsg wishes = {0};
    socklen_t size = sizeof wishes;
    FAILS(sctp_opt_info(client, 0, SCTP_INITMSG, NULL, &size), EINVAL);
    CHECK(sctp_opt_info(client, 7, SCTP_INITMSG, &wishes, &size) == 0);
    CHECK(size == sizeof wishes && wishes.sinit_num_ostreams == 10);
}

static void lists_are_looked_at_first(int client)
{
    struct sockaddr_in a = loopback(9);
    struct sockaddr *list = NULL;
    CHECK(sctp_getaddrlen(AF_INET) == sizeof(struct sockaddr_in));
    CHECK(sctp_getaddrlen(AF_INET6) == sizeof(struct sockaddr_in6) && sctp_getaddrlen(AF_UNIX) == 0);
    FAILS(sctp_bindx(client, (struct sockaddr *)&a, 1, 3), EINVAL);
    FAILS(sctp_bindx(client, (struct sockaddr *)&a, 0, SCTP_BINDX_ADD_ADDR), EINVAL);
    FAILS(sctp_connectx(client, (struct sockaddr *)&a, -1, NULL), EINVAL);
    a.sin_family = AF_UNIX;
    FAILS(sctp_bindx(client, (struct sockaddr *)&a, 1, SCTP_BINDX_ADD_ADDR), EINVAL);
    FAILS(sctp_connectx(client, (struct sockaddr *)&a, 1, NULL), EINVAL);
    FAILS(sctp_getpaddrs(client, 0, NULL), EFAULT);
    FAILS(sctp_getpaddrs(1000, 0, &list), EBADF);
    CHECK(sctp_freepaddrs(list) == 0);
}

int main(void)
{
    int client, server;
    begin();
    joined(5007, &client, &server);
    messages_carry_what_is_said_of_them(client, server);
    messages_come_from_and_go_to_several_places(client, server);
    options_name_their_association(client);
    lists_are_looked_at_first(client);
    return 0;
}
