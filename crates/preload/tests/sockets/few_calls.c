/* A stream of short messages passes through shared memory: neither end makes a system call for each message. The program prints
 * the numbers of calls. With "at-once", each call sends or receives 32 messages. With "dialogue", each message is answered, and
 * costs each end a wake record, a wait, and the receipt of the record. */
#include "check.h"
#include "traced.h"

enum { PORT = 6740, MESSAGES = 10000, BYTES = 64, AT_ONCE = 32, CALLS_MAX = MESSAGES / 2 };
/* Every 17th receive of a dialogue looks before it waits. */
enum { EXCHANGES = 200, DIALOGUE_CALLS_MAX = EXCHANGES * 7 / 2 };
enum { SENDER, RECEIVER, ENDS };

static int client, server;

static struct mmsghdr *batch(void)
{
    static char content[AT_ONCE][BYTES];
    static struct iovec parts[AT_ONCE];
    static struct mmsghdr messages[AT_ONCE];
    for (int i = 0; i < AT_ONCE; i++) {
        parts[i] = (struct iovec){content[i], BYTES};
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &parts[i], .msg_iovlen = 1};
    }
    return messages;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

static void send_all(int at_once)
{
    char message[BYTES] = {0};
    for (int sent = 0; sent < MESSAGES;) {
        int some = at_once ? sendmmsg(client, batch(), least(AT_ONCE, MESSAGES - sent), 0) : 1;
        CHECK(some > 0 && (at_once || send(client, message, BYTES, 0) == BYTES));
        sent += some;
    }
}

static void receive_all(int at_once)
{
    char message[BYTES];
    for (int received = 0; received < MESSAGES;) {
        int some = at_once ? recvmmsg(server, batch(), AT_ONCE, MSG_WAITFORONE, NULL) : 1;
        CHECK(some > 0 && (at_once || recv(server, message, BYTES, 0) == BYTES));
        received += some;
    }
}

static void talk(int end)
{
    int fd = end == SENDER ? client : server;
    char message[BYTES] = {0};
    if (end == SENDER)
        CHECK(send(fd, message, BYTES, 0) == BYTES);
    for (int i = 0; i < EXCHANGES; i++) {
        CHECK(recv(fd, message, BYTES, 0) == BYTES);
        if (end == RECEIVER || i + 1 < EXCHANGES)
            CHECK(send(fd, message, BYTES, 0) == BYTES);
    }
}

/* Counts the system calls of the children until both have ended: each stops when it enters one and when it leaves it. */
static void count_calls(const pid_t children[ENDS], unsigned calls[ENDS])
{
    unsigned stops[ENDS] = {0, 0};
    int status, left = ENDS;
    for (int end = 0; end < ENDS; end++)
        CHECK(ptrace(PTRACE_SYSCALL, children[end], 0, 0) == 0);
    while (left > 0) {
        pid_t child = waitpid(-1, &status, 0);
        CHECK(child == children[SENDER] || child == children[RECEIVER]);
        if (WIFSTOPPED(status)) {
            CHECK(WSTOPSIG(status) == (SIGTRAP | 0x80));
            stops[child == children[RECEIVER]]++;
            CHECK(ptrace(PTRACE_SYSCALL, child, 0, 0) == 0);
        } else {
            CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
            left--;
        }
    }
    for (int end = 0; end < ENDS; end++)
        calls[end] = stops[end] / 2;
}

int main(int argc, char **argv)
{
    pid_t children[ENDS];
    unsigned calls[ENDS];
    int dialogue = argc > 1 && strcmp(argv[1], "dialogue") == 0;
    unsigned calls_max = dialogue ? DIALOGUE_CALLS_MAX : CALLS_MAX;
    begin();
    joined(PORT, &client, &server);
    for (int end = 0; end < ENDS; end++) {
        children[end] = forked_to_be_traced();
        if (children[end] == 0) {
            if (dialogue)
                talk(end);
            else
                end == SENDER ? send_all(argc > 1) : receive_all(argc > 1);
            _exit(0);
        }
    }
    count_calls(children, calls);
    printf("%d %s: %u calls of the sender, %u of the receiver\n", dialogue ? EXCHANGES : MESSAGES,
           dialogue ? "exchanges" : "messages", calls[SENDER], calls[RECEIVER]);
    CHECK(calls[SENDER] < calls_max && calls[RECEIVER] < calls_max);
    return 0;
}
