/* connect that does not wait and fails: what poll, epoll and select report, SO_ERROR, and the connect after it. */
#include "oracle.h"
#include <sys/epoll.h>
#include <sys/select.h>

static void events(const char *name, unsigned events)
{
    static const struct {
        unsigned bit;
        const char *name;
    } names[] = {{POLLIN, "IN"},   {POLLPRI, "PRI"}, {POLLOUT, "OUT"},     {POLLERR, "ERR"},
                 {POLLHUP, "HUP"}, {POLLNVAL, "NVAL"}, {POLLRDHUP, "RDHUP"}};
    printf("%s:%s", name, events ? "" : " nothing");
    for (int i = 0; i < COUNT(names); i++)
        if (events & names[i].bit)
            printf(" %s", names[i].name);
    putchar('\n');
}

static void polled(int fd, const char *when)
{
    char name[80];
    struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT | POLLRDHUP};
    NEEDED(poll(&p, 1, 0) >= 0);
    snprintf(name, sizeof name, "poll %s", when);
    events(name, p.revents);
    int epoll = epoll_create1(0);
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP};
    NEEDED(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) == 0);
    int ready = epoll_wait(epoll, &e, 1, 0);
    snprintf(name, sizeof name, "epoll %s", when);
    events(name, ready == 1 ? e.events : 0);
    close(epoll);
    fd_set in, out, error;
    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_ZERO(&error);
    FD_SET(fd, &in);
    FD_SET(fd, &out);
    FD_SET(fd, &error);
    struct timeval none = {0};
    NEEDED(select(fd + 1, &in, &out, &error, &none) >= 0);
    printf("select %s: %d %d %d\n", when, FD_ISSET(fd, &in) != 0, FD_ISSET(fd, &out) != 0, FD_ISSET(fd, &error) != 0);
}

static void error_of(int fd, const char *when)
{
    int error = -1;
    socklen_t bytes = sizeof error;
    NEEDED(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0);
    printf("SO_ERROR %s: %s\n", when, error ? strerrorname_np(error) : "0");
}

/* Waits for the outcome of a connect. */
static void outcome(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT};
    NEEDED(poll(&p, 1, 10000) == 1);
}

static void refused(void)
{
    char word[8];
    struct sockaddr_in a = at("127.0.0.1", next_port()), other = at("127.0.0.1", next_port());
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, IPPROTO_SCTP);
    NEEDED(fd >= 0);
    polled(fd, "before connect");
    SAY(connect(fd, SA(a), sizeof a), "connect");
    outcome(fd);
    polled(fd, "after the refusal");
    error_of(fd, "after the refusal");
    error_of(fd, "again");
    polled(fd, "after the error was read");
    SAY(send(fd, "word", 4, 0), "send");
    SAY(recv(fd, word, sizeof word, 0), "recv");
    SAY(connect(fd, SA(a), sizeof a), "second connect");
    outcome(fd);
    SAY(connect(fd, SA(a), sizeof a), "third connect, with the error unread");
    outcome(fd);
    error_of(fd, "after the third");
    int listener = listening(SOCK_STREAM, ntohs(other.sin_port));
    SAY(connect(fd, SA(other), sizeof other), "connect to a listener");
    outcome(fd);
    polled(fd, "when connected");
    error_of(fd, "when connected");
    SAY(send(fd, "word", 4, 0), "send when connected");
    int server = accept(listener, NULL, NULL);
    SAY(recv(server, word, sizeof word, 0), "recv of the server");
    close(fd);
    close(server);
    close(listener);
}

/* The error is read by a call in place of SO_ERROR. */
static void read_by_a_call(const char *name, ssize_t (*call)(int))
{
    struct sockaddr_in a = at("127.0.0.1", next_port());
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, IPPROTO_SCTP);
    NEEDED(connect(fd, SA(a), sizeof a) == -1 && errno == EINPROGRESS);
    outcome(fd);
    SAY(call(fd), "%s after the refusal", name);
    error_of(fd, "after that");
    close(fd);
}

static ssize_t receives(int fd)
{
    char word[8];
    return recv(fd, word, sizeof word, 0);
}

static ssize_t sends(int fd)
{
    return send(fd, "word", 4, 0);
}

int main(void)
{
    begin();
    refused();
    read_by_a_call("recv", receives);
    read_by_a_call("send", sends);
    return 0;
}
