/* Listeners that listen again or share a port, what is asked of a listener, and options that any socket of IP has. */
#include "oracle.h"
#include <net/if.h>

enum { CLIENTS = 16, SO_MAX_PACING = 47 };

/* Says how many associations are there to be accepted. */
static int accepted(int listener)
{
    int count = 0;
    for (int fd; (fd = accept(listener, NULL, NULL)) >= 0; count++)
        close(fd);
    return count;
}

/* Connects one after the other; says how many of them were taken. */
static int connect_some(int port, int count)
{
    struct sockaddr_in a = at("127.0.0.1", port);
    int taken = 0;
    for (int i = 0; i < count; i++) {
        int fd = fresh(SOCK_STREAM);
        taken += connect(fd, SA(a), sizeof a) == 0;
        close(fd);
    }
    return taken;
}

static int reusing(int port)
{
    struct sockaddr_in a = at("127.0.0.1", port);
    int on = 1, fd = fresh(SOCK_STREAM);
    NEEDED(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    SAY(setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on), "SO_REUSEPORT");
    SAY(bind(fd, SA(a), sizeof a), "bind");
    SAY(listen(fd, CLIENTS), "listen");
    return fd;
}

static void listens_again(void)
{
    int port = next_port(), fd = fresh(SOCK_STREAM), number = 77;
    struct sockaddr_in a = at("127.0.0.1", port);
    NEEDED(bind(fd, SA(a), sizeof a) == 0 && fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    SAY(listen(fd, 1), "listen");
    SAY(listen(fd, CLIENTS), "listen again, for more");
    SAY(connect_some(port, CLIENTS), "clients");
    SAY(accepted(fd), "accepted");
    SAY(ioctl(fd, FIONREAD, &number), "FIONREAD of a listener");
    printf("then %d\n", number);
    close(fd);
}

static void shares(void)
{
    int port = next_port(), one = reusing(port), two = reusing(port), alone = fresh(SOCK_STREAM), on = 1;
    struct sockaddr_in a = at("127.0.0.1", port);
    SAY(bind(alone, SA(a), sizeof a), "bind without SO_REUSEPORT");
    SAY(connect_some(port, CLIENTS), "clients of two listeners");
    SAY(accepted(one) + accepted(two), "accepted by both");
    close(one);
    SAY(connect_some(port, CLIENTS), "clients of the one that is left");
    SAY(accepted(two), "accepted by it");
    SAY(setsockopt(two, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on), "SO_REUSEPORT while listening");
    close(two);
    close(alone);
}

static void after_the_shutdown(void)
{
    char word[8];
    struct joined j = joined(SOCK_STREAM);
    NEEDED(send(j.server, "last", 4, 0) == 4 && shutdown(j.server, SHUT_WR) == 0);
    NEEDED(readable(j.client));
    SAY(recv(j.client, word, sizeof word, 0), "recv before the peer's shutdown");
    NEEDED(readable(j.client));
    SAY(recv(j.client, word, sizeof word, 0), "recv after the peer's shutdown");
    SAY(recv(j.client, word, sizeof word, MSG_DONTWAIT), "recv again");
    part(&j);
}

static void option(int fd, int level, int name, const char *what, int wanted)
{
    int value = -1;
    socklen_t bytes = sizeof value;
    SAY(setsockopt(fd, level, name, &wanted, sizeof wanted), "%s %d", what, wanted);
    said(getsockopt(fd, level, name, &value, &bytes), "%s", what);
    printf(", %d in %u bytes\n", value, bytes);
}

static void options(void)
{
    int fd = fresh(SOCK_STREAM), again = dup(fd), number;
    unsigned long long cookie = 0, same = 0;
    socklen_t bytes = sizeof cookie;
    SAY(getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &bytes), "SO_COOKIE");
    NEEDED(getsockopt(again, SOL_SOCKET, SO_COOKIE, &same, &bytes) == 0);
    printf("then %u bytes, %s, %s\n", bytes, cookie ? "a number" : "none", cookie == same ? "one of the socket" : "one of the descriptor");
    bytes = 4;
    SAY(getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &bytes), "SO_COOKIE with 4 bytes");
    SAY(setsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, sizeof cookie), "SO_COOKIE set");
    option(fd, SOL_SOCKET, SO_TIMESTAMP, "SO_TIMESTAMP", 1);
    option(fd, SOL_SOCKET, SO_TIMESTAMPNS, "SO_TIMESTAMPNS", 1);
    option(fd, SOL_SOCKET, SO_MAX_PACING, "SO_MAX_PACING_RATE", 1000000);
    option(fd, SOL_SOCKET, SO_MARK, "SO_MARK", 0);
    option(fd, IPPROTO_IP, IP_MTU_DISCOVER, "IP_MTU_DISCOVER", IP_PMTUDISC_DO);
    option(fd, IPPROTO_IP, IP_MTU_DISCOVER, "IP_MTU_DISCOVER", 6);
    option(fd, IPPROTO_IP, IP_RECVERR, "IP_RECVERR", 1);
    option(fd, IPPROTO_IP, IP_PKTINFO, "IP_PKTINFO", 0);
    option(fd, IPPROTO_IP, IP_TRANSPARENT, "IP_TRANSPARENT", 0);
    option(fd, IPPROTO_IP, IP_MTU, "IP_MTU", 1000);
    SAY(setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "", 1), "SO_BINDTODEVICE to none");
    bytes = sizeof number;
    SAY(getsockopt(fd, SOL_SOCKET, SO_INCOMING_CPU, &number, &bytes), "SO_INCOMING_CPU");
    struct ifreq request = {.ifr_name = "lo"};
    SAY(ioctl(fd, SIOCGIFADDR, &request), "SIOCGIFADDR");
    printf("then %s\n", inet_ntoa(((struct sockaddr_in *)&request.ifr_addr)->sin_addr));
    strcpy(request.ifr_name, "nowhere");
    SAY(ioctl(fd, SIOCGIFADDR, &request), "SIOCGIFADDR of no interface");
    close(again);
    close(fd);
}

int main(void)
{
    begin();
    listens_again();
    shares();
    after_the_shutdown();
    options();
    return 0;
}
