/* The first SCTP socket of a program starts a daemon where there is none. The program sees nothing of it. */
#include "../../../preload/tests/sockets/check.h"

static volatile sig_atomic_t children;

static void count(int signal)
{
    (void)signal;
    children++;
}

int main(void)
{
    int pipes[2], client, server;
    char word[8];
    begin();
    CHECK(signal(SIGCHLD, count) != SIG_ERR);
    CHECK(pipe(pipes) == 0);
    joined(5007, &client, &server);
    CHECK(send(client, "hello", 5, 0) == 5 && read(server, word, sizeof word) == 5);
    CHECK(children == 0);
    FAILS(waitpid(-1, NULL, WNOHANG), ECHILD);
    /* The daemon has none of the program's descriptors. */
    close(pipes[1]);
    CHECK(read(pipes[0], word, 1) == 0);
    return 0;
}
