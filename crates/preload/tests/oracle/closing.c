/* Calls that sleep on a socket while another thread closes its descriptor, or makes it another file. */
#include "oracle.h"
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { RECEIVERS = 2, SAMPLES = 20 };

/* How the main thread takes the descriptor away. */
enum way { CLOSES, REUSES, REPLACES, CLOSES_RANGE };
static const char *const ways[] = {"close", "close, and the number means a pipe", "dup2 of /dev/null", "close_range"};

/* A thread in a call. */
struct sleeper {
    pthread_t thread;
    int fd, id;
    long result;
    int error;
    /* Number of calls that have returned. */
    _Atomic int returned;
    char word[8];
};

/* Waits until a thread sleeps, and goes on sleeping. */
static void await_sleep(struct sleeper *s)
{
    for (int samples = 0; samples < SAMPLES; usleep(1000)) {
        char name[64], state = 0;
        snprintf(name, sizeof name, "/proc/self/task/%d/stat", __atomic_load_n(&s->id, __ATOMIC_SEQ_CST));
        FILE *file = fopen(name, "r");
        if (file) {
            NEEDED(fscanf(file, "%*d (%*[^)]) %c", &state) == 1);
            fclose(file);
        }
        samples = state == 'S' ? samples + 1 : 0;
    }
}

static void *receives(void *argument)
{
    struct sleeper *s = argument;
    __atomic_store_n(&s->id, syscall(SYS_gettid), __ATOMIC_SEQ_CST);
    errno = 0;
    s->result = recv(s->fd, s->word, sizeof s->word, 0);
    s->error = errno;
    s->returned++;
    return NULL;
}

static void *accepts(void *argument)
{
    struct sleeper *s = argument;
    __atomic_store_n(&s->id, syscall(SYS_gettid), __ATOMIC_SEQ_CST);
    errno = 0;
    s->result = accept(s->fd, NULL, NULL);
    s->error = errno;
    return NULL;
}

static void begins(struct sleeper *s, int fd, void *(*call)(void *))
{
    *s = (struct sleeper){.fd = fd};
    NEEDED(pthread_create(&s->thread, NULL, call, s) == 0);
    await_sleep(s);
}

static void ends(struct sleeper *s, const char *name)
{
    NEEDED(pthread_join(s->thread, NULL) == 0);
    errno = s->error;
    said(s->result, "%s", name);
    printf(" %.*s\n", s->result > 0 ? (int)s->result : 0, s->word);
}

static int descriptors(void)
{
    int count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) != -1;
    return count;
}

/* Takes the descriptor away; returns how to clean up. */
static void take_away(int fd, enum way way, int spare[2])
{
    spare[0] = spare[1] = -1;
    switch (way) {
    case CLOSES:
        NEEDED(close(fd) == 0);
        break;
    case REUSES:
        NEEDED(close(fd) == 0 && pipe(spare) == 0 && (spare[0] == fd || spare[1] == fd));
        break;
    case REPLACES:
        spare[0] = open("/dev/null", O_RDWR);
        NEEDED(dup2(spare[0], fd) == fd);
        spare[1] = fd;
        break;
    case CLOSES_RANGE:
        NEEDED(close_range(fd, fd, 0) == 0);
        break;
    }
}

static void closed_beside_receivers(enum way way)
{
    int before = descriptors(), spare[2];
    struct joined j = joined(SOCK_STREAM);
    struct sleeper s[RECEIVERS];
    char word[8];
    printf("-- %s\n", ways[way]);
    for (int i = 0; i < RECEIVERS; i++)
        begins(&s[i], j.server, receives);
    take_away(j.server, way, spare);
    for (int i = 0; i < RECEIVERS; i++)
        NEEDED(send(j.client, "word", 4, 0) == 4);
    for (int i = 0; i < RECEIVERS; i++)
        ends(&s[i], "recv");
    SAY(recv(j.client, word, sizeof word, 0), "recv of the peer");
    close(spare[0]);
    close(spare[1]);
    close(j.client);
    close(j.listener);
    printf("descriptors left: %d\n", descriptors() - before);
}

static void closed_beside_a_receiver_that_finds_the_end(void)
{
    struct joined j = joined(SOCK_STREAM);
    struct sleeper s;
    begins(&s, j.server, receives);
    NEEDED(close(j.server) == 0 && close(j.client) == 0);
    ends(&s, "recv after the peer has closed");
    close(j.listener);
}

static void closed_beside_a_receiver_that_is_cancelled(void)
{
    int before = descriptors();
    struct joined j = joined(SOCK_STREAM);
    struct sleeper s;
    char word[8];
    begins(&s, j.server, receives);
    NEEDED(close(j.server) == 0 && pthread_cancel(s.thread) == 0 && pthread_join(s.thread, NULL) == 0);
    SAY(recv(j.client, word, sizeof word, 0), "recv of the peer of a cancelled one");
    close(j.client);
    close(j.listener);
    printf("descriptors left: %d\n", descriptors() - before);
}

/* Receives two messages. */
static void *receives_again(void *argument)
{
    struct sleeper *s = argument;
    receives(s);
    return receives(s);
}

static void closed_beside_a_receiver_that_has_waited_before(void)
{
    int before = descriptors();
    struct joined j = joined(SOCK_STREAM);
    struct sleeper s;
    begins(&s, j.server, receives_again);
    NEEDED(send(j.client, "one", 3, 0) == 3);
    while (s.returned == 0)
        usleep(1000);
    await_sleep(&s);
    NEEDED(close(j.server) == 0 && send(j.client, "two", 3, 0) == 3);
    ends(&s, "second recv");
    close(j.client);
    close(j.listener);
    printf("descriptors left: %d\n", descriptors() - before);
}

/* A child has none of the threads that sleep. */
static void closed_in_a_child(void)
{
    int before = descriptors();
    struct joined j = joined(SOCK_STREAM);
    struct sleeper s, other;
    int copy = dup(j.server);
    begins(&s, j.server, receives);
    begins(&other, copy, receives);
    NEEDED(close(copy) == 0);
    pid_t child = fork();
    if (child == 0) {
        NEEDED(close(j.server) == 0 && close(j.client) == 0 && close(j.listener) == 0);
        printf("descriptors left in a child: %d\n", descriptors() - before);
        exit(0);
    }
    NEEDED(waitpid(child, NULL, 0) == child);
    for (int i = 0; i < 2; i++)
        NEEDED(send(j.client, "word", 4, 0) == 4);
    ends(&s, "recv of the parent");
    ends(&other, "recv of the parent");
    part(&j);
}

static void one_of_two_numbers_is_closed(void)
{
    struct joined j = joined(SOCK_STREAM);
    struct sleeper s;
    int other = dup(j.server);
    char word[8];
    begins(&s, j.server, receives);
    NEEDED(close(j.server) == 0 && send(j.client, "word", 4, 0) == 4);
    ends(&s, "recv");
    NEEDED(send(j.client, "more", 4, 0) == 4);
    SAY(recv(other, word, sizeof word, 0), "recv by the other number");
    close(other);
    SAY(recv(j.client, word, sizeof word, 0), "recv of the peer");
    close(j.client);
    close(j.listener);
}

static void closed_beside_accept(void)
{
    int port = next_port(), listener = listening(SOCK_STREAM, port), client = fresh(SOCK_STREAM);
    struct sockaddr_in a = at("127.0.0.1", port);
    struct sleeper s;
    begins(&s, listener, accepts);
    NEEDED(close(listener) == 0);
    SAY(connect(client, SA(a), sizeof a), "connect to a listener that is closed");
    NEEDED(pthread_join(s.thread, NULL) == 0);
    printf("accept: %s\n", s.result >= 0 ? "ok" : strerrorname_np(s.error));
    close(client);
    close(s.result);
}

int main(void)
{
    begin();
    for (enum way way = CLOSES; way <= CLOSES_RANGE; way++)
        closed_beside_receivers(way);
    closed_beside_a_receiver_that_finds_the_end();
    closed_beside_a_receiver_that_is_cancelled();
    closed_beside_a_receiver_that_has_waited_before();
    closed_in_a_child();
    one_of_two_numbers_is_closed();
    closed_beside_accept();
    return 0;
}
