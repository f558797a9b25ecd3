/* A sender and a receiver of numbered messages on one association. Says "flows" when the first has come, and ends when told to,
 * once all have come: each once, whole and in order. With an argument it pauses after each message for so many microseconds. */
#include "check.h"

enum { PORT = 6510, LONGEST = 3000 };

static int client;
static volatile int told_to_end;
static useconds_t pause_us;

static size_t length(uint32_t number)
{
    return sizeof number + number * 7919 % (LONGEST - sizeof number);
}

static void *send_all(void *unused)
{
    char text[LONGEST];
    for (uint32_t number = 0; !told_to_end; number++) {
        memset(text, (char)number, sizeof text);
        memcpy(text, &number, sizeof number);
        CHECK(send(client, text, length(number), 0) == (ssize_t)length(number));
        if (pause_us)
            usleep(pause_us);
    }
    CHECK(shutdown(client, SHUT_WR) == 0);
    return unused;
}

static void *receive_all(void *listener)
{
    char text[LONGEST], expected[LONGEST];
    int server = accept(*(int *)listener, NULL, NULL);
    CHECK(server >= 0);
    for (uint32_t number = 0;; number++) {
        ssize_t bytes = recv(server, text, sizeof text, 0);
        if (bytes == 0) {
            CHECK(told_to_end && number > 0);
            printf("%u messages\n", number);
            return NULL;
        }
        memset(expected, (char)number, sizeof expected);
        memcpy(expected, &number, sizeof number);
        CHECK(bytes == (ssize_t)length(number) && memcmp(text, expected, bytes) == 0);
        if (number == 0) {
            puts("flows");
            fflush(stdout);
        }
    }
}

int main(int argc, char **argv)
{
    pthread_t sender, receiver;
    char end;
    int listener = listening(PORT, 0);
    begin();
    alarm(120);
    if (argc > 1)
        pause_us = atoi(argv[1]);
    CHECK(pthread_create(&receiver, NULL, receive_all, &listener) == 0);
    client = connected(PORT);
    CHECK(pthread_create(&sender, NULL, send_all, NULL) == 0);
    CHECK(read(0, &end, 1) == 0);
    told_to_end = 1;
    CHECK(pthread_join(sender, NULL) == 0 && pthread_join(receiver, NULL) == 0);
    return 0;
}
