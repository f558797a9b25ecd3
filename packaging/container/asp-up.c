/* asp-up [ADDRESS]: says to the signalling gateway there (M3UA, RFC 4666 section 3.5) that this application server is up,
 * and reads that it is heard. Without an address: to that of this host. */
#include <arpa/inet.h>
#include <netinet/sctp.h>
#include <stdio.h>
#include <string.h>

enum { M3UA = 3, PORT = 2905, CLASS_ASPSM = 3, ASP_UP = 1, ASP_UP_ACK = 4 };

int main(int count, char **words)
{
    const unsigned char up[8] = {1, 0, CLASS_ASPSM, ASP_UP, 0, 0, 0, 8};
    struct sockaddr_in gateway = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    struct sctp_event_subscribe events = {.sctp_data_io_event = 1};
    struct sctp_sndrcvinfo info = {0};
    unsigned char answer[256];
    int fd = socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP);
    if (inet_pton(AF_INET, count > 1 ? words[1] : "127.0.0.1", &gateway.sin_addr) != 1)
        return fprintf(stderr, "asp-up: '%s' is no IPv4 address\n", words[1]), 2;
    if (connect(fd, (struct sockaddr *)&gateway, sizeof gateway))
        return perror("connect"), 1;
    if (setsockopt(fd, IPPROTO_SCTP, SCTP_EVENTS, &events, sizeof events))
        return perror("SCTP_EVENTS"), 1;
    if (sctp_sendmsg(fd, up, sizeof up, NULL, 0, htonl(M3UA), 0, 0, 0, 0) != sizeof up)
        return perror("sctp_sendmsg"), 1;
    /* A notification that it is not yet active may follow. */
    int size = sctp_recvmsg(fd, answer, sizeof answer, NULL, NULL, &info, NULL);
    if (size < 8 || answer[2] != CLASS_ASPSM || answer[3] != ASP_UP_ACK || ntohl(info.sinfo_ppid) != M3UA)
        return fprintf(stderr, "no ASP Up Ack, but %d bytes\n", size), 1;
    return puts("ASP Up Ack") < 0;
}
