/* Listeners: their backlog, ports that several share, and options that programs set on any socket. */
#include "check.h"
#include <net/if.h>

enum { CLIENTS = 32, SO_MAX_PACING = 47 };

static int reusing(int port)
{
    struct sockaddr_in a = loopback(port);
    int fd = fresh(SOCK_NONBLOCK), on = 1;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) == 0);
    CHECK(bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(fd, CLIENTS) == 0);
    return fd;
}

static int accepted(int listener)
{
    int count = 0;
    for (int fd; (fd = accept(listener, NULL, NULL)) >= 0; count++)
        close(fd);
    CHECK(errno == EAGAIN);
    return count;
}

/* How many of these clients connect. */
static int connect_all(int port, int *clients)
{
    struct sockaddr_in a = loopback(port);
    int count = 0;
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = fresh(0);
        count += connect(clients[i], (struct sockaddr *)&a, sizeof a) == 0;
    }
    return count;
}

static void close_all(int *clients)
{
    for (int i = 0; i < CLIENTS; i++)
        close(clients[i]);
}

static void a_second_listen_changes_the_backlog(void)
{
    int clients[CLIENTS], listener = listening(5951, SOCK_NONBLOCK);
    CHECK(connect_all(5951, clients) < CLIENTS);
    close_all(clients);
    accepted(listener);
    CHECK(listen(listener, CLIENTS) == 0);
    CHECK(connect_all(5951, clients) == CLIENTS);
    close_all(clients);
    accepted(listener);
    CHECK(listen(listener, 1) == 0);
    CHECK(connect_all(5951, clients) < CLIENTS);
    close_all(clients);
    close(listener);
}

static void listeners_share_a_port(void)
{
    int clients[CLIENTS], one = reusing(5952), two = reusing(5952), alone = fresh(0);
    struct sockaddr_in a = loopback(5952);
    FAILS(bind(alone, (struct sockaddr *)&a, sizeof a), EADDRINUSE);
    CHECK(connect_all(5952, clients) == CLIENTS);
    int of_one = accepted(one), of_two = accepted(two);
    CHECK(of_one > 0 && of_two > 0 && of_one + of_two == CLIENTS);
    close_all(clients);
    /* The other goes on. */
    close(one);
    CHECK(connect_all(5952, clients) == CLIENTS && accepted(two) == CLIENTS);
    close_all(clients);
    close(two);
    close(alone);
}

/* Runs in a child that is no longer root. */
static void as_nobody(void (*run)(void))
{
    pid_t child = fork();
    if (child == 0) {
        CHECK(setgid(41005) == 0 && setuid(41005) == 0);
        run();
        _exit(0);
    }
    CHECK(ended_well(child));
}

/* Binds a fresh socket to a port; returns it, or -1. */
static int bound_to(int port, int reuses_address)
{
    struct sockaddr_in a = loopback(port);
    int fd = fresh(0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuses_address, sizeof reuses_address) == 0);
    if (bind(fd, (struct sockaddr *)&a, sizeof a) == 0)
        return fd;
    CHECK(errno == EADDRINUSE);
    close(fd);
    return -1;
}

static void another_user_gets_the_port_of_no_accepted_socket(void)
{
    CHECK(bound_to(5956, 0) == -1 && bound_to(5957, 1) == -1);
}

static void accepted_sockets_hold_the_port_of_their_listener(void)
{
    int listeners[2], clients[2], servers[2];
    char word[8];
    for (int reuses = 0; reuses < 2; reuses++) {
        listeners[reuses] = bound_to(5956 + reuses, reuses);
        CHECK(listeners[reuses] >= 0 && listen(listeners[reuses], 1) == 0);
        clients[reuses] = connected(5956 + reuses);
        servers[reuses] = accept(listeners[reuses], NULL, NULL);
        CHECK(servers[reuses] >= 0 && close(listeners[reuses]) == 0);
        CHECK(bound_to(5956 + reuses, 0) == -1);
    }
    if (geteuid() == 0)
        as_nobody(another_user_gets_the_port_of_no_accepted_socket);
    CHECK(bound_to(5956, 1) == -1);
    /* The next server of its user. */
    int next = bound_to(5957, 1);
    CHECK(next >= 0 && listen(next, 1) == 0);
    int client = connected(5957), server = accept(next, NULL, NULL);
    CHECK(server >= 0 && send(client, "next", 4, 0) == 4 && recv(server, word, sizeof word, 0) == 4);
    for (int reuses = 0; reuses < 2; reuses++)
        CHECK(send(clients[reuses], "word", 4, 0) == 4 && recv(servers[reuses], word, sizeof word, 0) == 4);
    close(client);
    close(server);
    close(next);
    for (int reuses = 0; reuses < 2; reuses++) {
        close(servers[reuses]);
        close(clients[reuses]);
        int again = bound_to(5956 + reuses, 0);
        CHECK(again >= 0 && close(again) == 0);
    }
}

static int option(int fd, int level, int name)
{
    int value = -1;
    socklen_t bytes = sizeof value;
    CHECK(getsockopt(fd, level, name, &value, &bytes) == 0);
    return value;
}

/* One that is kept. */
static void keeps(int fd, int level, int name, int value)
{
    CHECK(setsockopt(fd, level, name, &value, sizeof value) == 0);
    CHECK(option(fd, level, name) == value);
}

static void refuses(int fd, int level, int name, int value, int error)
{
    FAILS(setsockopt(fd, level, name, &value, sizeof value), error);
}

static void sizes_need_root(void)
{
    int fd = fresh(0);
    refuses(fd, SOL_SOCKET, SO_SNDBUFFORCE, 100000, EPERM);
    refuses(fd, SOL_SOCKET, SO_RCVBUFFORCE, 100000, EPERM);
    close(fd);
}

static void options_of_any_socket(void)
{
    int client, server, fd = fresh(0), again = dup(fd), is_root = geteuid() == 0, bytes = 100000, device_bytes = 16;
    char device[16];
    uint64_t cookie = 0, same = 0;
    socklen_t cookie_bytes = sizeof cookie;
    CHECK(getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &cookie_bytes) == 0 && cookie != 0);
    CHECK(getsockopt(again, SOL_SOCKET, SO_COOKIE, &same, &cookie_bytes) == 0 && cookie == same);
    keeps(fd, SOL_SOCKET, SO_TIMESTAMPNS, 1);
    keeps(fd, SOL_SOCKET, SO_MAX_PACING, 1000000);
    option(fd, SOL_SOCKET, SO_INCOMING_CPU);
    if (is_root) {
        CHECK(setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes) == 0);
        CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes) == 0);
        CHECK(option(fd, SOL_SOCKET, SO_SNDBUF) == 2 * bytes && option(fd, SOL_SOCKET, SO_RCVBUF) == 2 * bytes);
        as_nobody(sizes_need_root);
    } else {
        sizes_need_root();
    }
    refuses(fd, SOL_SOCKET, SO_MARK, 1, EPERM);
    FAILS(setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3), ENOPROTOOPT);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "", 1) == 0);
    CHECK(getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, device, (socklen_t *)&device_bytes) == 0 && device_bytes == 0);
    CHECK(option(fd, IPPROTO_IP, IP_MTU_DISCOVER) == IP_PMTUDISC_WANT);
    keeps(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
    refuses(fd, IPPROTO_IP, IP_MTU_DISCOVER, 6, EINVAL);
    keeps(fd, IPPROTO_IP, IP_RECVERR, 1);
    refuses(fd, IPPROTO_IP, IP_PKTINFO, 1, ENOPROTOOPT);
    refuses(fd, IPPROTO_IP, IP_TRANSPARENT, 1, EPERM);
    FAILS(getsockopt(fd, IPPROTO_IP, IP_MTU, &bytes, &(socklen_t){sizeof bytes}), ENOTCONN);
    joined(5953, &client, &server);
    CHECK(option(client, IPPROTO_IP, IP_MTU) > 500);
    close(client);
    close(server);
    close(again);
    close(fd);
}

static void controls(void)
{
    int available, fd = fresh(0), listener = listening(5954, 0);
    struct ifreq request = {.ifr_name = "lo"};
    CHECK(ioctl(fd, SIOCGIFADDR, &request) == 0);
    CHECK(((struct sockaddr_in *)&request.ifr_addr)->sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    strcpy(request.ifr_name, "nowhere");
    FAILS(ioctl(fd, SIOCGIFADDR, &request), ENODEV);
    CHECK(ioctl(fd, FIONREAD, &available) == 0 && available == 0);
    FAILS(ioctl(listener, FIONREAD, &available), EINVAL);
    close(fd);
    close(listener);
}

/* Whether a socket is in the kernel's list under such a name. */
static int is_listed(const char *name)
{
    char line[512];
    int found = 0;
    FILE *list = fopen("/proc/net/unix", "r");
    while (fgets(line, sizeof line, list))
        found |= strstr(line, name) != NULL;
    fclose(list);
    return found;
}

static void sockets_have_names_that_people_see(void)
{
    char name[64];
    int listener = listening(5955, 0), client = connected(5955), server = accept(listener, NULL, NULL);
    struct sockaddr_in a;
    CHECK(server >= 0 && getsockname(client, (struct sockaddr *)&a, &(socklen_t){sizeof a}) == 0);
    CHECK(is_listed("@sctp:127.0.0.1:5955#"));
    snprintf(name, sizeof name, "@sctp:127.0.0.1:%d>127.0.0.1:5955#", ntohs(a.sin_port));
    CHECK(is_listed(name));
    snprintf(name, sizeof name, "@sctp:127.0.0.1:5955>127.0.0.1:%d#", ntohs(a.sin_port));
    CHECK(is_listed(name));
    close(client);
    close(server);
    close(listener);
}

int main(int count, char **words)
{
    (void)words;
    begin();
    if (count > 1) {
        CHECK(fresh(0) >= 0);
        return 0;
    }
    sockets_have_names_that_people_see();
    a_second_listen_changes_the_backlog();
    listeners_share_a_port();
    accepted_sockets_hold_the_port_of_their_listener();
    options_of_any_socket();
    controls();
    return 0;
}
