/* A daemon whose user has as many descriptors on their way as the kernel permits says so, and serves on once
 * some have arrived. */
#include "check.h"

enum { MESSAGES = 4, DESCRIPTORS = 250 };

int main(void)
{
    int ends[2], null = open("/dev/null", O_RDONLY), fd;
    char room[CMSG_SPACE(DESCRIPTORS * sizeof(int))] = {0}, word[1] = {0};
    struct iovec part = {word, sizeof word};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    begin();
    CHECK(null >= 0 && socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
    *c = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(DESCRIPTORS * sizeof(int))};
    for (int i = 0; i < DESCRIPTORS; i++)
        ((int *)CMSG_DATA(c))[i] = null;
    for (int i = 0; i < MESSAGES; i++)
        CHECK(sendmsg(ends[0], &m, 0) == 1);
    FAILS(socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP), ENFILE);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
    /* The kernel counts them until it has closed them, which a thread of its own may do. */
    while ((fd = socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP)) < 0)
        CHECK(errno == ENFILE && usleep(1000) == 0);
    CHECK(close(fd) == 0);
    return 0;
}
