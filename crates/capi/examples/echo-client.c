#include <netinet/in.h>
#include <netinet/sctp.h>
#include <stdio.h>

int main(void)
{
    struct sockaddr_in server = {.sin_family = AF_INET, .sin_port = htons(5007), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    char answer[64];
    int fd = socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP);
    if (fd < 0 || connect(fd, (struct sockaddr *)&server, sizeof server))
        return perror("cannot connect"), 1;
    if (sctp_sendmsg(fd, "hello", 5, NULL, 0, htonl(39), 0, 0, 0, 0) < 0)
        return perror("cannot send"), 1;
    int size = sctp_recvmsg(fd, answer, sizeof answer, NULL, NULL, NULL, NULL);
    if (size < 0)
        return perror("no answer"), 1;
    printf("%.*s\n", size, answer);
    return 0;
}
