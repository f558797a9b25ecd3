#include <netinet/in.h>
#include <netinet/sctp.h>
#include <stdio.h>
#include <unistd.h>

int main(void)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(5007)};
    struct sctp_event_subscribe events = {.sctp_data_io_event = 1}; /* each message comes with its `info` */
    struct sctp_sndrcvinfo info = {0};
    char message[65536];
    int size, fd, listener = socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP);
    if (listener < 0 || setsockopt(listener, IPPROTO_SCTP, SCTP_EVENTS, &events, sizeof events) ||
        bind(listener, (struct sockaddr *)&here, sizeof here) || listen(listener, 5))
        return perror("cannot listen"), 1;
    puts("ready");
    fflush(stdout);
    while ((fd = accept(listener, NULL, NULL)) >= 0) {
        /* The parts of a message of more than 64 KiB return as messages. */
        while ((size = sctp_recvmsg(fd, message, sizeof message, NULL, NULL, &info, NULL)) > 0)
            if (sctp_send(fd, message, size, &info, 0) < 0)
                break;
        close(fd);
    }
    return perror("cannot accept"), 1;
}
