/* Under `swiftwater run`: accepts all that come to a port of the loopback interface, and reads nothing.
 *
 *   unread PORT */
#include "hostile.h"

int main(int argc, char **argv)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    begin();
    CHECK(argc == 2);
    a.sin_port = htons(atoi(argv[1]));
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = socket(AF_INET, SOCK_STREAM, 132);
    CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&a, sizeof a) == 0 && listen(listener, 100) == 0);
    pid_t acceptor = fork();
    if (acceptor == 0) {
        begin_child();
        for (;;)
            accept(listener, NULL, NULL);
    }
    CHECK(acceptor > 0);
    hold();
    CHECK(kill(acceptor, SIGKILL) == 0);
    return 0;
}
