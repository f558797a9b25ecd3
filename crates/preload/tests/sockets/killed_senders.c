/* A sender that announces a ring for long messages is killed at each of its system calls, before it and after it, while another
 * program has a ring of its own. What either was told was sent arrives whole and in order, nothing comes twice, and the other
 * program goes on. */
#include "check.h"
#include "traced.h"
#include <sys/mman.h>

enum { LONG = 70000, LONGEST = 1 << 20, SHORT = 500, ROUNDS_MAX = 2000 };
/* Messages of the sender in a round: the third long one has a ring announced, and the last ones lie there. */
enum { SENT = 8 };
/* Messages of the other program in a round: so many have a ring announced if it has none, and the last ones follow the death. */
enum { BEFORE = 20, AFTER = 4 };
enum { SENDER, OTHER };

struct heading {
    unsigned who, round, number;
};

static struct {
    /* Number of messages that the sender of each round was told were sent. */
    unsigned told[ROUNDS_MAX];
} * shared;

static char out[LONGEST], in[LONGEST], expected[LONGEST];

static size_t bytes_of(struct heading h)
{
    if (h.who == SENDER)
        return h.number == SENT - 2 ? LONGEST : h.number == SENT - 1 ? SHORT : LONG + h.number;
    return h.number == BEFORE + 1 && h.round % 2 ? LONG : SHORT + h.number;
}

static size_t written(char *place, struct heading h)
{
    size_t bytes = bytes_of(h);
    fill(place, bytes, h.who * 31 + h.round * 7 + h.number);
    memcpy(place, &h, sizeof h);
    return bytes;
}

static void send_one(int to, struct heading h)
{
    size_t bytes = written(out, h);
    CHECK(send(to, out, bytes, 0) == (ssize_t)bytes);
}

static struct heading next_one(int from)
{
    struct heading h;
    size_t at = 0;
    for (int whole = 0; !whole;) {
        ssize_t part = receive(from, in + at, sizeof in - at, 0, &whole);
        CHECK(part > 0);
        at += part;
    }
    memcpy(&h, in, sizeof h);
    CHECK(written(expected, h) == at && memcmp(in, expected, at) == 0);
    return h;
}

/* Sends as long as it is told to: a round's first messages, and then its last ones. */
static void be_other(int to, int orders)
{
    char order;
    for (unsigned round = 0, number = 0; read(orders, &order, 1) == 1;) {
        unsigned end = number == 0 ? BEFORE : BEFORE + AFTER;
        for (; number < end; number++)
            send_one(to, (struct heading){OTHER, round, number});
        if (number == BEFORE + AFTER)
            number = 0, round++;
    }
    _exit(0);
}

/* Receives, and reports the last message of each of the other program's turns. */
static void be_receiver(int from, int reports)
{
    static unsigned next[ROUNDS_MAX];
    unsigned rounds = 0, number = 0;
    for (;;) {
        struct heading h = next_one(from);
        CHECK(h.round < ROUNDS_MAX);
        if (h.who == SENDER) {
            /* A message of which a dead sender was not told may come late. */
            CHECK(h.number == next[h.round]++);
            CHECK(h.round == rounds || h.number == shared->told[h.round]);
            continue;
        }
        CHECK(h.who == OTHER && h.round == rounds && h.number == number++);
        if (number > BEFORE)
            CHECK(next[rounds] >= shared->told[rounds]);
        if (number == BEFORE || number == BEFORE + AFTER)
            CHECK(write(reports, "", 1) == 1);
        if (number == BEFORE + AFTER)
            number = 0, rounds++;
    }
}

static pid_t traced_sender(int to, unsigned round)
{
    pid_t sender = forked_to_be_traced();
    if (sender > 0)
        return sender;
    for (unsigned number = 0; number < SENT; number++) {
        send_one(to, (struct heading){SENDER, round, number});
        __atomic_store_n(&shared->told[round], number + 1, __ATOMIC_SEQ_CST);
    }
    _exit(0);
}

static void order(int orders)
{
    CHECK(write(orders, "", 1) == 1);
}

static void await_report(int reports)
{
    char report;
    CHECK(read(reports, &report, 1) == 1);
}

int main(void)
{
    int client, server, orders[2], reports[2], is_there = 1;
    begin();
    alarm(120);
    joined(6720, &client, &server);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED && pipe(orders) == 0 && pipe(reports) == 0);
    pid_t other = forked();
    if (other == 0) {
        close(orders[1]);
        close(reports[0]);
        close(reports[1]);
        be_other(client, orders[0]);
    }
    pid_t receiver = forked();
    if (receiver == 0) {
        close(reports[0]);
        close(orders[1]);
        be_receiver(server, reports[1]);
    }
    /* A receiver that fails ends the wait for its report. */
    close(reports[1]);
    unsigned round = 0;
    for (; is_there; round++) {
        CHECK(round < ROUNDS_MAX);
        order(orders[1]);
        await_report(reports[0]);
        pid_t sender = traced_sender(client, round);
        is_there = stops_after(sender, round);
        /* In this order: the other program may wait for the lock of the sender. */
        order(orders[1]);
        if (is_there)
            kill_traced(sender);
        await_report(reports[0]);
    }
    CHECK(round > 40 && close(orders[1]) == 0 && ended_well(other));
    CHECK(kill(receiver, SIGKILL) == 0);
    return 0;
}
