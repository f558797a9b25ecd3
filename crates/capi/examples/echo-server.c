#include <netinet/in.h>
#include <netinet/sctp.h>
#include <stdio.h>
#include <unistd.h>

int main(void)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(5007)};
    struct sctp_sndrcvinfo info = {0};
    char message[65536];
    int size, fd, listener = socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP);
    if (listener < 0 || bind(listener, (struct sockaddr *)&here, sizeof here) || listen(listener, 5))
        return perror("cannot listen"), 1;
    write(1, "ready\n", 6);
    while ((fd = accept(listener, NULL, NULL)) >= 0) {
        while ((size = sctp_recvmsg(fd, message, sizeof message, NULL, NULL, &info, NULL)) > 0)
            sctp_send(fd, message, size, &info, 0);
        close(fd);
    }
    return 1;
}
