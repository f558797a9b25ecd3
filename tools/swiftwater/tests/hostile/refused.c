/* Asks the daemon of another user for a socket, and gets no answer. */
#include "hostile.h"

int main(void)
{
    unsigned char open[] = {'s', 'w', 'c', 'r', CHANNEL_VERSION, 0, OPEN, 0};
    begin();
    int connection = call();
    /* The daemon may have closed the connection already. */
    ssize_t sent = send_with(connection, open, sizeof open, NULL, 0);
    CHECK(sent == (ssize_t)sizeof open || (sent < 0 && (errno == EPIPE || errno == ECONNRESET)));
    CHECK(answer(connection, NULL) == ECONNRESET);
    return 0;
}
