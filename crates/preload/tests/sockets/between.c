/* Two clients, and a proxy that copies between their associations. Carries out a command for each character that it reads: `e`
   exchanges messages both ways in order, `l` sends many one way, of which each must come once, in any order, and `c` closes one
   client, whose end the proxy passes on. Says after each how many messages the proxy has copied meanwhile. */
#include "check.h"

enum { PORT = 6511, EXCHANGED = 200, LOAD = 20000, BYTES = 600 };

struct way {
    int from, to;
};

static volatile int copied;
static int clients[2];

static void *copy(void *direction)
{
    struct way *way = direction;
    char text[BYTES];
    ssize_t bytes;
    while ((bytes = recv(way->from, text, sizeof text, 0)) > 0) {
        __sync_fetch_and_add(&copied, 1); /* Before the receiver of this message reads the count. */
        CHECK(send(way->to, text, bytes, 0) == bytes);
    }
    CHECK(bytes == 0);
    shutdown(way->to, SHUT_WR);
    return NULL;
}

static void put(int client, uint32_t number)
{
    char text[BYTES];
    memset(text, (char)number, sizeof text);
    memcpy(text, &number, sizeof number);
    CHECK(send(client, text, sizeof text, 0) == sizeof text);
}

static uint32_t get(int client)
{
    char text[BYTES], expected[BYTES];
    uint32_t number;
    CHECK(recv(client, text, sizeof text, 0) == sizeof text);
    memcpy(&number, text, sizeof number);
    memset(expected, (char)number, sizeof expected);
    memcpy(expected, &number, sizeof number);
    CHECK(memcmp(text, expected, sizeof text) == 0);
    return number;
}

static void exchange(void)
{
    for (uint32_t number = 0; number < EXCHANGED; number++) {
        put(clients[0], number);
        CHECK(get(clients[1]) == number);
        put(clients[1], number);
        CHECK(get(clients[0]) == number);
    }
}

static void *send_load(void *unused)
{
    for (uint32_t number = 0; number < LOAD; number++)
        put(clients[0], number);
    return unused;
}

static void load(void)
{
    static char came[LOAD];
    pthread_t sender;
    memset(came, 0, sizeof came);
    CHECK(pthread_create(&sender, NULL, send_load, NULL) == 0);
    for (int i = 0; i < LOAD; i++) {
        uint32_t number = get(clients[1]);
        CHECK(number < LOAD && !came[number]);
        came[number] = 1;
    }
    CHECK(pthread_join(sender, NULL) == 0);
}

static void close_one(void)
{
    char byte;
    CHECK(close(clients[0]) == 0);
    CHECK(recv(clients[1], &byte, 1, 0) == 0);
}

int main(void)
{
    int listener = listening(PORT, 0), servers[2], command;
    struct way ways[2];
    pthread_t thread;
    begin();
    alarm(120);
    for (int i = 0; i < 2; i++) {
        clients[i] = connected(PORT);
        servers[i] = accept(listener, NULL, NULL);
        CHECK(servers[i] >= 0);
    }
    for (int i = 0; i < 2; i++) {
        ways[i] = (struct way){servers[i], servers[!i]};
        CHECK(pthread_create(&thread, NULL, copy, &ways[i]) == 0);
    }
    exchange();
    puts("flows");
    fflush(stdout);
    while ((command = getchar()) != EOF) {
        copied = 0;
        switch (command) {
        case 'e': exchange(); break;
        case 'l': load(); break;
        case 'c': close_one(); break;
        default: continue;
        }
        printf("copied %d\n", copied);
        fflush(stdout);
    }
    return 0;
}
