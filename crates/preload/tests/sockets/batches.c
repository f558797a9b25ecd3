/* sendmmsg and recvmmsg. Messages of a call arrive in order, whatever their lengths are. A call that is interrupted in the middle
 * of its messages, by a signal handler or by the death of its process, has passed on what came before, and no lock is left. */
#include "check.h"

#include <setjmp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

enum { PORT = 6730, MANY = 200, BYTES_MAX = 70000, FEW = 8, BEFORE_THE_RING = 40, AT_ONCE = 3 };

static char out[MANY][BYTES_MAX], in[MANY][BYTES_MAX];
static int client, server;
/* A page that the program may not touch. */
static char *nowhere;
static sigjmp_buf back;
static volatile int nested;

struct batch {
    struct mmsghdr messages[MANY];
    struct iovec parts[MANY];
};

static struct mmsghdr *batch_of(struct batch *b, char (*places)[BYTES_MAX], int number, size_t bytes)
{
    memset(b, 0, sizeof *b);
    for (int i = 0; i < number; i++) {
        b->parts[i] = (struct iovec){places[i], bytes};
        b->messages[i].msg_hdr = (struct msghdr){.msg_iov = &b->parts[i], .msg_iovlen = 1};
    }
    return b->messages;
}

/* One message is too long for a ring that has no memory for such ones. */
static size_t length(int i)
{
    return i == MANY / 2 ? BYTES_MAX : 1 + (size_t)i * 37 % 3000;
}

static void all_arrive_in_order(void)
{
    static struct batch sent, received;
    batch_of(&sent, out, MANY, 0);
    for (int i = 0; i < MANY; i++) {
        sent.parts[i].iov_len = length(i);
        fill(out[i], length(i), i);
    }
    /* More than one send buffer has room for. */
    pid_t sender = fork();
    CHECK(sender >= 0);
    if (sender == 0) {
        for (int done = 0; done < MANY;) {
            int some = sendmmsg(client, sent.messages + done, MANY - done, 0);
            CHECK(some > 0);
            for (int i = done; i < done + some; i++)
                CHECK(sent.messages[i].msg_len == length(i));
            done += some;
        }
        _exit(0);
    }
    batch_of(&received, in, MANY, BYTES_MAX);
    for (int done = 0; done < MANY;) {
        int some = recvmmsg(server, received.messages + done, MANY - done, done % 2 ? MSG_WAITFORONE : 0, NULL);
        CHECK(some > 0);
        for (int i = done; i < done + some; i++) {
            CHECK(received.messages[i].msg_len == length(i) && memcmp(in[i], out[i], length(i)) == 0);
            CHECK(received.messages[i].msg_hdr.msg_flags & MSG_EOR);
        }
        done += some;
    }
    CHECK(ended_well(sender));
}

static void send_numbers(int first, int number)
{
    static struct batch b;
    batch_of(&b, out, number, 1);
    for (int i = 0; i < number; i++)
        out[i][0] = (char)(first + i);
    CHECK(sendmmsg(client, b.messages, number, 0) == number);
}

static void expect_numbers(int first, int number)
{
    for (int i = 0; i < number; i++) {
        char byte;
        CHECK(recv(server, &byte, 1, 0) == 1 && byte == (char)(first + i));
    }
}

static void *send_later(void *unused)
{
    usleep(300 * 1000);
    send_numbers(1, 1);
    return unused;
}

static void time_limits(void)
{
    struct batch b;
    struct timespec none = {0, 0}, little = {0, 10 * 1000 * 1000}, wrong = {0, 1000 * 1000 * 1000};
    pthread_t sender;
    batch_of(&b, in, FEW, 10);
    FAILS(recvmmsg(server, b.messages, FEW, 0, &wrong), EINVAL);
    FAILS(recvmmsg(server, b.messages, FEW, 0, (struct timespec *)8), EFAULT);
    send_numbers(0, 3);
    CHECK(recvmmsg(server, b.messages, FEW, 0, &none) == 1 && none.tv_sec == 0 && none.tv_nsec == 0);
    expect_numbers(1, 2);
    /* The time is looked at when a message has come: it ends no wait. */
    send_numbers(0, 1);
    CHECK(polls(server, POLLIN, 10000) == POLLIN);
    CHECK(pthread_create(&sender, NULL, send_later, NULL) == 0);
    int received = recvmmsg(server, b.messages, FEW, 0, &little);
    /* A loaded machine may take more than this time for the first message. */
    CHECK(received == 2 || received == 1);
    CHECK(pthread_join(sender, NULL) == 0 && little.tv_sec == 0 && little.tv_nsec == 0);
    expect_numbers(received, 2 - received);
    CHECK(pthread_create(&sender, NULL, send_later, NULL) == 0);
    CHECK(recvmmsg(server, b.messages, FEW, MSG_WAITFORONE, NULL) == 1 && in[0][0] == 1);
    CHECK(pthread_join(sender, NULL) == 0);
    FAILS(recvmmsg(server, b.messages, FEW, MSG_DONTWAIT, NULL), EAGAIN);
}

/* The fourth message of a call, which cannot be read or written. */
static struct mmsghdr *batch_with_hole(struct batch *b, char (*places)[BYTES_MAX])
{
    batch_of(b, places, FEW, 1);
    for (int i = 0; i < FEW; i++)
        places[i][0] = (char)i;
    b->parts[AT_ONCE].iov_base = nowhere;
    return b->messages;
}

static void send_and_mend(int signal)
{
    (void)signal;
    char inner = 100;
    nested = send(client, &inner, 1, 0) == 1;
    CHECK(mprotect(nowhere, 4096, PROT_READ | PROT_WRITE) == 0);
    *nowhere = AT_ONCE;
}

static void leave(int signal)
{
    (void)signal;
    char inner;
    nested = recv(server, &inner, 1, MSG_DONTWAIT) == -1 ? errno : 0;
    siglongjmp(back, 1);
}

static void on_fault(void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_NODEFER};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    CHECK(mprotect(nowhere, 4096, PROT_NONE) == 0);
}

static void a_handler_sends(void)
{
    struct batch b;
    int seen = 0, is_seen = 0;
    on_fault(send_and_mend);
    CHECK(sendmmsg(client, batch_with_hole(&b, out), FEW, 0) == FEW && nested == 1);
    /* What was sent before the handler ran comes before its message. */
    for (int i = 0; i < FEW + 1; i++) {
        char byte;
        CHECK(recv(server, &byte, 1, 0) == 1);
        if (byte == 100)
            CHECK(seen >= AT_ONCE && !is_seen++);
        else
            CHECK(byte == seen++);
    }
}

static void a_handler_jumps(void)
{
    struct batch b;
    on_fault(leave);
    if (sigsetjmp(back, 1) == 0) {
        sendmmsg(client, batch_with_hole(&b, out), FEW, 0);
        CHECK(!"the call came back");
    }
    send_numbers(AT_ONCE, 1);
    /* The first message may have come before the handler looked, which has then read it. */
    int taken = nested == 0;
    expect_numbers(taken, AT_ONCE + 1 - taken);
}

/* A handler leaves a call that reads: what the call has received before that is gone, and the other messages are still there. */
static void a_handler_leaves_a_reader(void)
{
    struct batch b;
    send_numbers(0, FEW);
    /* Together, so that one look finds them. */
    usleep(100 * 1000);
    on_fault(leave);
    if (sigsetjmp(back, 1) == 0) {
        int received = recvmmsg(server, batch_with_hole(&b, in), FEW, 0, NULL);
        /* They did not come together, so the kernel has written them, and has found the hole. */
        CHECK(received == AT_ONCE);
    } else {
        CHECK(nested == EDEADLK);
    }
    expect_numbers(AT_ONCE, FEW - AT_ONCE);
}

/* The process that was sending is killed while it holds the lock. */
static void a_sender_dies(void)
{
    struct batch b;
    int status;
    CHECK(signal(SIGSEGV, SIG_DFL) != SIG_ERR && mprotect(nowhere, 4096, PROT_NONE) == 0);
    pid_t sender = fork();
    if (sender == 0) {
        CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
        sendmmsg(client, batch_with_hole(&b, out), FEW, 0);
        _exit(0);
    }
    CHECK(waitpid(sender, &status, 0) == sender && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    send_numbers(AT_ONCE, FEW);
    expect_numbers(0, AT_ONCE + FEW);
}

static void a_reader_dies(void)
{
    struct batch b;
    int status;
    send_numbers(0, FEW);
    usleep(100 * 1000);
    pid_t reader = fork();
    if (reader == 0) {
        CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
        _exit(recvmmsg(server, batch_with_hole(&b, in), FEW, 0, NULL) == AT_ONCE ? 0 : 1);
    }
    CHECK(waitpid(reader, &status, 0) == reader);
    CHECK(WIFSIGNALED(status) ? WTERMSIG(status) == SIGSEGV : WIFEXITED(status) && WEXITSTATUS(status) == 0);
    expect_numbers(AT_ONCE, FEW - AT_ONCE);
}

int main(void)
{
    begin();
    joined(PORT, &client, &server);
    nowhere = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(nowhere != MAP_FAILED);
    all_arrive_in_order();
    time_limits();
    /* From here on, this process sends through its ring. */
    for (int i = 0; i < BEFORE_THE_RING; i++) {
        send_numbers(i, 1);
        expect_numbers(i, 1);
    }
    a_handler_sends();
    a_handler_jumps();
    a_handler_leaves_a_reader();
    a_sender_dies();
    a_reader_dies();
    return 0;
}
