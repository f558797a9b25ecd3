/* Several threads or processes sleep in calls on one socket. Messages that come together wake as many of them as there are
 * messages. */
#include "check.h"
#include <sys/mman.h>
#include <sys/syscall.h>

enum { READERS = 4, ROUNDS = 10 };

static int client, server;

static void *read_one(void *reader)
{
    char letter;
    *(_Atomic pid_t *)reader = syscall(SYS_gettid);
    CHECK(recv(server, &letter, 1, 0) == 1);
    return NULL;
}

static void await(_Atomic pid_t *reader)
{
    while (*reader == 0)
        usleep(100);
    await_sleep(*reader);
}

/* A message for each reader. They come together, after one that makes the sender's end busy. */
static void send_to_all(void)
{
    struct iovec part = {"x", 1};
    struct mmsghdr messages[READERS] = {0};
    for (int i = 0; i < READERS; i++)
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &part, .msg_iovlen = 1};
    CHECK(sendmmsg(client, messages, READERS, 0) == READERS);
}

/* Each of several threads that sleep in a call gets a message. */
static void wake_all(void)
{
    pthread_t threads[READERS];
    _Atomic pid_t readers[READERS] = {0};
    for (int i = 0; i < READERS; i++)
        CHECK(pthread_create(&threads[i], NULL, read_one, (void *)&readers[i]) == 0);
    for (int i = 0; i < READERS; i++)
        await(&readers[i]);
    send_to_all();
    for (int i = 0; i < READERS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

static void threads(void)
{
    joined(7, &client, &server);
    for (int round = 0; round < ROUNDS; round++)
        wake_all();
    CHECK(close(client) == 0 && close(server) == 0);
}

/* Workers that were forked with a one-to-many socket. */
static void processes(void)
{
    struct sockaddr_in a = loopback(8);
    server = socket(AF_INET, SOCK_SEQPACKET, IPPROTO_SCTP);
    CHECK(bind(server, (struct sockaddr *)&a, sizeof a) == 0 && listen(server, 5) == 0);
    client = connected(8);
    for (int round = 0; round < ROUNDS; round++) {
        pid_t workers[READERS];
        for (int i = 0; i < READERS; i++) {
            workers[i] = fork();
            if (workers[i] == 0) {
                _Atomic pid_t reader;
                alarm(30);
                read_one((void *)&reader);
                _exit(0);
            }
        }
        for (int i = 0; i < READERS; i++)
            await_sleep(workers[i]);
        send_to_all();
        for (int i = 0; i < READERS; i++)
            CHECK(ended_well(workers[i]));
    }
    CHECK(close(client) == 0 && close(server) == 0);
}

static void ignore(int signal) { (void)signal; }

static void *read_until_interrupted(void *reader)
{
    char letter;
    *(_Atomic pid_t *)reader = syscall(SYS_gettid);
    FAILS(recv(server, &letter, 1, 0), EINTR);
    return NULL;
}

/* Handlers interrupt or restart each of the calls, as with the kernel, and each has its time limit. */
static void signals_and_time_limits(void)
{
    pthread_t threads[2];
    struct sigaction action = {.sa_handler = ignore, .sa_flags = SA_RESTART};
    struct timeval limit = {0, 50000};
    joined(9, &client, &server);
    for (int restarts = 1; restarts >= 0; restarts--, action.sa_flags = 0) {
        _Atomic pid_t readers[2] = {0};
        CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
        for (int i = 0; i < 2; i++) {
            CHECK(pthread_create(&threads[i], NULL, restarts ? read_one : read_until_interrupted, (void *)&readers[i]) == 0);
            await(&readers[i]);
        }
        for (int i = 0; i < 2; i++) {
            CHECK(pthread_kill(threads[i], SIGUSR1) == 0);
            if (restarts)
                await(&readers[i]);
        }
        for (int i = 0; restarts && i < 2; i++)
            CHECK(send(client, "x", 1, 0) == 1);
        for (int i = 0; i < 2; i++)
            CHECK(pthread_join(threads[i], NULL) == 0);
    }
    _Atomic pid_t reader = 0;
    char letter;
    CHECK(pthread_create(&threads[0], NULL, read_one, (void *)&reader) == 0);
    await(&reader);
    CHECK(setsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    FAILS(recv(server, &letter, 1, 0), EAGAIN);
    FAILS(recv(server, &letter, 1, MSG_DONTWAIT), EAGAIN);
    CHECK(send(client, "x", 1, 0) == 1 && pthread_join(threads[0], NULL) == 0);
    CHECK(close(client) == 0 && close(server) == 0);
}

/* A reader that is killed in its sleep leaves the others as they are. */
static void killed(void)
{
    joined(10, &client, &server);
    pid_t worker = fork();
    if (worker == 0) {
        _Atomic pid_t reader;
        read_one((void *)&reader);
        _exit(0);
    }
    await_sleep(worker);
    CHECK(kill(worker, SIGKILL) == 0 && waitpid(worker, NULL, 0) == worker);
    wake_all();
}

/* A child that is forked while threads sleep on a socket does not keep the socket open. */
static void forked_beside(void)
{
    int go[2];
    char letter;
    pthread_t threads[2];
    _Atomic pid_t readers[2] = {0};
    joined(11, &client, &server);
    CHECK(pipe(go) == 0);
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_create(&threads[i], NULL, read_one, (void *)&readers[i]) == 0);
        await(&readers[i]);
    }
    pid_t child = fork();
    if (child == 0) {
        close(server);
        close(go[1]);
        _exit(read(go[0], &letter, 1) != 0);
    }
    for (int i = 0; i < 2; i++)
        CHECK(send(client, "x", 1, 0) == 1);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(close(server) == 0 && polls(client, POLLIN, 5000) == POLLIN && recv(client, &letter, 1, 0) == 0);
    CHECK(close(go[1]) == 0 && ended_well(child) && close(client) == 0);
}

enum { RIVALS = 8, RIVAL_MESSAGES = 300 };

static _Atomic int is_over;

/* Receives until its time limit ends a call, although messages come all the time. */
static void *reads_until_it_gives_up(void *none)
{
    char word;
    while (!is_over && recv(server, &word, 1, 0) == 1)
        ;
    if (!is_over)
        CHECK(errno == EAGAIN);
    is_over = 1;
    return none;
}

/* A time limit is that of the call, and does not begin anew with each message that another thread takes. */
static void messages_of_others_prolong_no_time_limit(void)
{
    pthread_t rivals[RIVALS];
    const struct timeval limit = {.tv_usec = 200000};
    joined(5979, &client, &server);
    CHECK(setsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    for (int i = 0; i < RIVALS; i++)
        CHECK(pthread_create(&rivals[i], NULL, reads_until_it_gives_up, NULL) == 0);
    for (int i = 0; i < RIVAL_MESSAGES && !is_over; i++) {
        CHECK(send(client, "x", 1, 0) == 1);
        usleep(40000);
    }
    CHECK(is_over);
    for (int i = 0; i < RIVALS; i++)
        CHECK(pthread_join(rivals[i], NULL) == 0);
    close(client);
    close(server);
}

int main(void)
{
    begin();
    alarm(60);
    forked_beside();
    threads();
    processes();
    signals_and_time_limits();
    killed();
    messages_of_others_prolong_no_time_limit();
    return 0;
}
