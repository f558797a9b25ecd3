/* Calls on a small stack: a thread with the smallest possible stack makes every common call, and a handler on a signal
 * stack sends and receives. */
#include "check.h"
#include <linux/sctp.h>
#include <sys/mman.h>

/* A debug build of the shim, which tests use, has larger frames than a release build. */
enum { PORT = 7600, STACK_BYTES = 16 * 1024, SIGNAL_STACK_BYTES = 16 * 1024 };

/* Returns a stack with a page below that nobody may touch. */
static char *guarded(size_t bytes)
{
    size_t page = sysconf(_SC_PAGESIZE);
    char *stack = mmap(NULL, page + bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(stack != MAP_FAILED && mprotect(stack + page, bytes, PROT_READ | PROT_WRITE) == 0);
    return stack + page;
}

static int pair[2];

static void on_signal(int number)
{
    char word[4];
    CHECK(number == SIGUSR1);
    CHECK(send(pair[0], "sig", 3, 0) == 3);
    CHECK(recv(pair[1], word, sizeof word, 0) == 3);
}

static void one_to_one(void)
{
    struct sockaddr_in a = loopback(PORT);
    socklen_t bytes = sizeof a;
    struct sctp_initmsg init = {.sinit_num_ostreams = 3};
    struct sctp_status status;
    char word[8];
    struct iovec part = {word, sizeof word};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    int listener, client, server, on = 1;
    CHECK((listener = socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP)) >= 0);
    CHECK(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
    CHECK(bind(listener, (struct sockaddr *)&a, sizeof a) == 0);
    CHECK(listen(listener, 5) == 0);
    CHECK((client = socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP)) >= 0);
    CHECK(setsockopt(client, IPPROTO_SCTP, SCTP_INITMSG, &init, sizeof init) == 0);
    CHECK(connect(client, (struct sockaddr *)&a, sizeof a) == 0);
    CHECK((server = accept(listener, (struct sockaddr *)&a, &bytes)) >= 0);
    bytes = sizeof a;
    CHECK(getsockname(client, (struct sockaddr *)&a, &bytes) == 0);
    CHECK(getpeername(client, (struct sockaddr *)&a, &bytes) == 0);
    bytes = sizeof status;
    CHECK(getsockopt(client, IPPROTO_SCTP, SCTP_STATUS, &status, &bytes) == 0 && bytes == sizeof status);
    CHECK(send(client, "word", 4, 0) == 4);
    struct pollfd p = {.fd = server, .events = POLLIN};
    CHECK(poll(&p, 1, -1) == 1);
    CHECK(recv(server, word, sizeof word, 0) == 4);
    part.iov_len = 4;
    CHECK(sendmsg(client, &m, 0) == 4);
    CHECK(recvmsg(server, &m, 0) == 4);
    CHECK(write(client, "word", 4) == 4);
    /* In two parts. */
    CHECK(read(server, word, 2) == 2);
    CHECK(read(server, word, 4) == 2);
    static char large[200000];
    CHECK(send(client, large, sizeof large, 0) == sizeof large);
    for (size_t got = 0; got < sizeof large;) {
        ssize_t n;
        n = recv(server, large, sizeof large, 0);
        CHECK(n > 0);
        got += n;
    }
    pair[0] = client;
    pair[1] = server;
    CHECK(raise(SIGUSR1) == 0);
    CHECK(shutdown(client, SHUT_WR) == 0);
    CHECK(recv(server, word, sizeof word, 0) == 0);
    CHECK(close(client) == 0);
    CHECK(close(server) == 0 && close(listener) == 0);
}

static void one_to_many(void)
{
    struct sockaddr_in a = loopback(PORT + 1);
    int server = socket(AF_INET, SOCK_SEQPACKET, IPPROTO_SCTP), client = socket(AF_INET, SOCK_SEQPACKET, IPPROTO_SCTP);
    char word[8];
    struct {
        unsigned count;
        sctp_assoc_t id[1];
    } ids;
    socklen_t bytes = sizeof ids;
    CHECK(server >= 0 && client >= 0 && bind(server, (struct sockaddr *)&a, sizeof a) == 0 && listen(server, 1) == 0);
    CHECK(sendto(client, "word", 4, 0, (struct sockaddr *)&a, sizeof a) == 4);
    CHECK(recvfrom(server, word, sizeof word, 0, NULL, NULL) == 4);
    CHECK(getsockopt(client, IPPROTO_SCTP, SCTP_GET_ASSOC_ID_LIST, &ids, &bytes) == 0 && ids.count == 1);
    sctp_peeloff_arg_t peel = {.associd = ids.id[0]};
    bytes = sizeof peel;
    CHECK(getsockopt(client, IPPROTO_SCTP, SCTP_SOCKOPT_PEELOFF, &peel, &bytes) >= 0);
    CHECK(close(peel.sd) == 0);
    CHECK(close(client) == 0 && close(server) == 0);
}

static void *run(void *unused)
{
    CHECK(unused == NULL);
    stack_t stack = {.ss_sp = guarded(SIGNAL_STACK_BYTES), .ss_size = SIGNAL_STACK_BYTES};
    CHECK(sigaltstack(&stack, NULL) == 0);
    one_to_one();
    one_to_many();
    return NULL;
}

int main(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    pthread_attr_t attributes;
    pthread_t thread;
    begin();
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstack(&attributes, guarded(STACK_BYTES), STACK_BYTES) == 0);
    CHECK(pthread_create(&thread, &attributes, run, NULL) == 0 && pthread_join(thread, NULL) == 0);
    return 0;
}
