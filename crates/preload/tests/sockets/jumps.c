/* A handler that leaves a call by siglongjmp leaves no lock behind. The handlers here run while the call holds the read lock:
   messages that came together are copied under it, and this copy raises SIGSEGV where the program's memory is not writable. */
#include "check.h"
#include "past_shim.h"

#include <setjmp.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum { BURST = 40, BYTES = 16, HEADER_BYTES = 64, ROUNDS = 200, BUNDLE = 8 };

static sigjmp_buf out;
static char *nowhere;
static int client[2], server[2];
static unsigned sent[2], next[2];
/* The socket that the handler reads; -1: none. It reads into `place`. */
static volatile int inner = -1;
static char *volatile place;
static volatile int depth, nested_error;

static void burst(int n)
{
    for (int i = 0; i < BURST; i++) {
        char message[BYTES] = {0};
        memcpy(message, &sent[n], sizeof sent[n]);
        sent[n]++;
        CHECK(send(client[n], message, sizeof message, 0) == sizeof message);
    }
}

static void read_next(int n)
{
    char message[BYTES];
    unsigned number;
    CHECK(recv(server[n], message, sizeof message, 0) == sizeof message);
    memcpy(&number, message, sizeof number);
    CHECK(number == next[n]++);
}

static void read_all(int n)
{
    while (next[n] < sent[n])
        read_next(n);
}

static void leave(int signal)
{
    (void)signal;
    if (++depth == 1 && inner >= 0)
        nested_error = recv(inner, place, BYTES, MSG_DONTWAIT) == -1 ? errno : 0;
    siglongjmp(out, 1);
}

/* Waits until unread messages that came together are at the front. The shim does not see the look at the kernel's queue. */
static void come_together(int n)
{
    for (int i = 0; i < ROUNDS; i++) {
        read_all(n);
        burst(n);
        read_next(n);
        char header[HEADER_BYTES];
        uint16_t kind = 0;
        if (past_shim(SYS_recvfrom, server[n], (long)header, sizeof header, MSG_PEEK | MSG_DONTWAIT, 0, 0) > 0)
            memcpy(&kind, header + 4, sizeof kind);
        if (kind == BUNDLE)
            return;
    }
    CHECK(!"messages never came together");
}

/* Reads into memory that is not there, until the handler leaves the call. */
static void be_left(int n)
{
    depth = 0;
    if (sigsetjmp(out, 1) == 0) {
        recv(server[n], nowhere, BYTES, 0);
        CHECK(!"the read came back");
    }
}

static void leave_once(int n)
{
    come_together(n);
    be_left(n);
}

static __attribute__((noinline)) void read_deeper(int n)
{
    volatile char frames[8192];
    frames[0] = frames[8191] = 0;
    read_next(n);
}

static void *read_rest(void *unused)
{
    read_all(0);
    return unused;
}

static void in_turn(void)
{
    int left;
    pthread_t other;
    /* The handler's own call does not wait for the one that it interrupts. */
    inner = server[0];
    char inside[BYTES];
    place = inside;
    leave_once(0);
    CHECK(nested_error == EDEADLK);
    inner = -1;
    CHECK(ioctl(server[0], FIONREAD, &left) == 0 && left == BYTES);
    read_deeper(0);
    /* Jumps may follow each other. */
    leave_once(0);
    be_left(0);
    be_left(0);
    read_next(0);
    /* Other threads get the lock, too. */
    leave_once(0);
    CHECK(pthread_create(&other, NULL, read_rest, NULL) == 0 && pthread_join(other, NULL) == 0);
    CHECK(next[0] == sent[0]);
}

/* A handler reads another socket, and its handler leaves both calls. */
static void two_at_once(void)
{
    come_together(1);
    inner = server[1];
    place = nowhere;
    leave_once(0);
    inner = -1;
    CHECK(depth == 2);
    read_all(0);
    read_all(1);
}

static void *on_a_stack_of_its_own(void *memory)
{
    stack_t stack = {.ss_sp = memory, .ss_size = 1 << 16};
    CHECK(sigaltstack(&stack, NULL) == 0);
    in_turn();
    two_at_once();
    return NULL;
}

int main(void)
{
    begin();
    nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(nowhere != MAP_FAILED);
    struct sigaction action = {.sa_handler = leave, .sa_flags = SA_NODEFER};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    joined(6490, &client[0], &server[0]);
    joined(6491, &client[1], &server[1]);
    in_turn();
    two_at_once();
    action.sa_flags |= SA_ONSTACK;
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, on_a_stack_of_its_own, malloc(1 << 16)) == 0 && pthread_join(thread, NULL) == 0);
    return 0;
}
