/* The functions of RFC 6458 section 9 on one-to-many sockets, in a program that links with the library. */
#include "../../../preload/tests/sockets/check.h"
#include <netinet/sctp.h>

enum { PORT = 5310 };

/* Both addresses of the server, one behind the other. */
static struct sockaddr_in both[2];

static int fresh_many(void)
{
    struct sctp_event_subscribe events = {.sctp_data_io_event = 1};
    int fd = socket(AF_INET, SOCK_SEQPACKET, IPPROTO_SCTP);
    CHECK(fd >= 0 && setsockopt(fd, IPPROTO_SCTP, SCTP_EVENTS, &events, sizeof events) == 0);
    return fd;
}

static int serving(void)
{
    int fd = fresh_many();
    CHECK(sctp_bindx(fd, (struct sockaddr *)both, 2, SCTP_BINDX_ADD_ADDR) == 0);
    CHECK(listen(fd, 1) == 0);
    return fd;
}

/* Checks the next message; returns its association. */
static sctp_assoc_t heard(int fd, const char *text)
{
    struct sctp_sndrcvinfo info = {0};
    struct sockaddr_in from;
    socklen_t size = sizeof from;
    char place[64];
    int flags = 0, bytes = sctp_recvmsg(fd, place, sizeof place, (struct sockaddr *)&from, &size, &info, &flags);
    CHECK(bytes == (int)strlen(text) && memcmp(place, text, bytes) == 0 && flags & MSG_EOR);
    CHECK(size == sizeof from && from.sin_family == AF_INET && from.sin_port != 0 && info.sinfo_assoc_id > 0);
    return info.sinfo_assoc_id;
}

static void both_are_in(struct sockaddr_in *list, int count)
{
    for (int n = 0; n < 2; n++) {
        int found = 0;
        for (int i = 0; i < count; i++)
            found |= list[i].sin_addr.s_addr == both[n].sin_addr.s_addr && list[i].sin_port == both[n].sin_port;
        CHECK(found);
    }
}

static void a_peer_has_several_addresses(int server)
{
    int client = fresh_many();
    struct sctp_status status = {0};
    socklen_t size = sizeof status;
    struct sockaddr *list = NULL;
    sctp_assoc_t id = 0;
    CHECK(sctp_connectx(client, (struct sockaddr *)both, 2, &id) == 0 && id > SCTP_ALL_ASSOC);
    CHECK(sctp_getpaddrs(client, id, &list) == 2);
    both_are_in((struct sockaddr_in *)list, 2);
    CHECK(sctp_freepaddrs(list) == 0);
    CHECK(sctp_getladdrs(server, 0, &list) == 2);
    both_are_in((struct sockaddr_in *)list, 2);
    CHECK(sctp_freeladdrs(list) == 0);
    FAILS(sctp_getpaddrs(client, id + 1000, &list), EINVAL);

    CHECK(sctp_opt_info(client, id, SCTP_STATUS, &status, &size) == 0 && status.sstat_assoc_id == id);
    CHECK(status.sstat_state == SCTP_ESTABLISHED && status.sstat_outstrms == 10);
    FAILS(sctp_opt_info(client, id + 1000, SCTP_STATUS, &status, &size), EINVAL);

    struct sctp_sndrcvinfo info = {.sinfo_assoc_id = id, .sinfo_stream = 3};
    CHECK(sctp_send(client, "by number", 9, &info, 0) == 9);
    heard(server, "by number");
    FAILS(sctp_connectx(client, (struct sockaddr *)both, 2, NULL), EISCONN);
    CHECK(close(client) == 0);
}

static void what_is_sent_sets_up_an_association(int server)
{
    struct sctp_sndinfo info = {.snd_sid = 1};
    struct iovec part = {"sendv", 5};
    int first = fresh_many(), second = fresh_many(), third = fresh_many();
    CHECK(sctp_sendmsg(first, "sendmsg", 7, (struct sockaddr *)both, sizeof both[0], 0, 0, 0, 0, 0) == 7);
    CHECK(heard(server, "sendmsg") > SCTP_ALL_ASSOC);
    CHECK(sctp_sendx(second, "sendx", 5, (struct sockaddr *)both, 2, NULL, 0) == 5);
    sctp_assoc_t once = heard(server, "sendx");
    CHECK(sctp_sendx(second, "again", 5, (struct sockaddr *)both, 2, NULL, 0) == 5);
    CHECK(heard(server, "again") == once);
    CHECK(sctp_sendv(third, &part, 1, (struct sockaddr *)both, 2, &info, sizeof info, SCTP_SENDV_SNDINFO, 0) == 5);
    CHECK(heard(server, "sendv") != once);
    CHECK(close(first) == 0 && close(second) == 0 && close(third) == 0);
}

static void an_association_is_peeled_off(int server)
{
    int client = fresh_many(), another = fresh_many();
    char place[8];
    CHECK(sctp_sendmsg(client, "one", 3, (struct sockaddr *)both, sizeof both[0], 0, 0, 0, 0, 0) == 3);
    int own = sctp_peeloff_flags(server, heard(server, "one"), SOCK_CLOEXEC | SOCK_NONBLOCK);
    CHECK(own >= 0 && fcntl(own, F_GETFD) == FD_CLOEXEC);
    FAILS(recv(own, place, sizeof place, 0), EAGAIN);
    CHECK(sctp_sendmsg(another, "two", 3, (struct sockaddr *)both, sizeof both[0], 0, 0, 0, 0, 0) == 3);
    int other = sctp_peeloff(server, heard(server, "two"));
    CHECK(other >= 0 && fcntl(other, F_GETFD) == 0);
    CHECK(sctp_sendmsg(another, "more", 4, (struct sockaddr *)both, sizeof both[0], 0, 0, 0, 0, 0) == 4);
    CHECK(recv(other, place, sizeof place, 0) == 4);
    FAILS(sctp_peeloff(server, 1000000), EINVAL);
    FAILS(sctp_peeloff(other, 1000000), EINVAL);
    CHECK(close(own) == 0 && close(other) == 0 && close(client) == 0 && close(another) == 0);
}

int main(void)
{
    begin();
    both[0] = both[1] = loopback(PORT);
    both[1].sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
    int server = serving();
    a_peer_has_several_addresses(server);
    what_is_sent_sets_up_an_association(server);
    an_association_is_peeled_off(server);
    return 0;
}
