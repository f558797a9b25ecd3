/* A program that writes records to its pair itself: one whose bytes are in a memfd arrives only if nobody can change them. */
#include "check.h"
#include "past_shim.h"
#include <sys/mman.h>
#include <sys/syscall.h>

enum { HEADER_BYTES = 64, MESSAGE_BYTES = 100000, PORT = 6600 };
enum { FINAL = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW };

static int memfd_of(size_t bytes, int seals)
{
    int memfd = memfd_create("message", MFD_ALLOW_SEALING);
    CHECK(memfd >= 0 && ftruncate(memfd, bytes) == 0 && fcntl(memfd, F_ADD_SEALS, seals) == 0);
    return memfd;
}

/* Past the shim. */
static void send_record(int fd, int memfd)
{
    char header[HEADER_BYTES] = {'s', 'w', 'r', 'd', 1, 0, 5, 0};
    uint32_t bytes = MESSAGE_BYTES;
    memcpy(header + 36, &bytes, sizeof bytes);
    char control[CMSG_SPACE(sizeof memfd)] __attribute__((aligned(8)));
    struct iovec part = {header, sizeof header};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *first = CMSG_FIRSTHDR(&m);
    *first = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof memfd)};
    memcpy(CMSG_DATA(first), &memfd, sizeof memfd);
    CHECK(past_shim(SYS_sendmsg, fd, (long)&m, 0, 0, 0, 0) == HEADER_BYTES && close(memfd) == 0);
}

static void is_refused(size_t bytes, int seals)
{
    char text[16];
    int client, server;
    joined(PORT, &client, &server);
    send_record(client, memfd_of(bytes, seals));
    FAILS(recv(server, text, sizeof text, 0), ECONNRESET);
    CHECK(close(client) == 0 && close(server) == 0);
}

int main(void)
{
    static char text[MESSAGE_BYTES];
    int client, server;
    begin();
    joined(PORT, &client, &server);
    send_record(client, memfd_of(MESSAGE_BYTES, FINAL));
    CHECK(recv(server, text, sizeof text, 0) == MESSAGE_BYTES);
    CHECK(close(client) == 0 && close(server) == 0);
    for (int seal = F_SEAL_SHRINK; seal <= F_SEAL_WRITE; seal *= 2)
        is_refused(MESSAGE_BYTES, FINAL & ~seal);
    is_refused(MESSAGE_BYTES - 1, FINAL);
    return 0;
}
