/* Sends the daemon a file of a file system of its own (FUSE), which answers to no close. Begins as root, which makes a
 * /dev/fuse that everybody may open, as it is on most hosts, and goes on as the user that is named. */
#include "hostile.h"

#include <linux/fuse.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

enum { DESCRIBE = 9, TRIES = 2000, REQUEST_BYTES = 1 << 16, FILE_NODE = 2 };

static void put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && close(fd) == 0);
}

/* A namespace of users where this one may mount. 0: not here. */
static int enter(int user)
{
    char map[64];
    snprintf(map, sizeof map, "0 %d 1", user);
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
        return 0;
    put("/proc/self/setgroups", "deny");
    put("/proc/self/uid_map", map);
    put("/proc/self/gid_map", map);
    CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    return 1;
}

static void reply(int device, uint64_t unique, int error, const void *body, size_t bytes)
{
    char out[1024];
    struct fuse_out_header header = {sizeof header + bytes, -error, unique};
    memcpy(out, &header, sizeof header);
    if (bytes)
        memcpy(out + sizeof header, body, bytes);
    /* A request that was given up has nobody to answer. */
    if (write(device, out, header.len) < 0)
        CHECK(errno == ENOENT);
}

static struct fuse_attr attributes(uint64_t node)
{
    return (struct fuse_attr){.ino = node, .nlink = 1, .mode = node == FILE_NODE ? S_IFREG | 0666 : S_IFDIR | 0777};
}

/* Serves the file system; closes are not answered before something comes from `go_on`. */
static void serve(int device, int go_on)
{
    static char request[REQUEST_BYTES];
    static uint64_t closes[1024];
    int waiting = 0, released = 0;
    for (;;) {
        struct pollfd p[2] = {{.fd = device, .events = POLLIN}, {.fd = released ? -1 : go_on, .events = POLLIN}};
        CHECK(poll(p, 2, -1) > 0);
        if (p[1].revents) {
            released = 1;
            while (waiting > 0)
                reply(device, closes[--waiting], 0, NULL, 0);
        }
        if (!(p[0].revents & POLLIN)) {
            if (p[0].revents)
                return;
            continue;
        }
        ssize_t n = read(device, request, sizeof request);
        if (n < (ssize_t)sizeof(struct fuse_in_header))
            continue;
        struct fuse_in_header *in = (struct fuse_in_header *)request;
        struct fuse_init_out init = {.major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = 4096};
        struct fuse_entry_out entry = {.nodeid = FILE_NODE, .attr = attributes(FILE_NODE)};
        struct fuse_attr_out attr = {.attr = attributes(in->nodeid)};
        struct fuse_open_out opened = {.fh = 1};
        switch (in->opcode) {
        case FUSE_INIT: reply(device, in->unique, 0, &init, sizeof init); break;
        case FUSE_LOOKUP: reply(device, in->unique, 0, &entry, sizeof entry); break;
        case FUSE_GETATTR: reply(device, in->unique, 0, &attr, sizeof attr); break;
        case FUSE_OPEN: reply(device, in->unique, 0, &opened, sizeof opened); break;
        case FUSE_FLUSH:
            if (released || waiting == 1024)
                reply(device, in->unique, 0, NULL, 0);
            else
                closes[waiting++] = in->unique;
            break;
        case FUSE_FORGET:
        case FUSE_BATCH_FORGET: break;
        default: reply(device, in->unique, ENOSYS, NULL, 0);
        }
    }
}

static void await(int error)
{
    int got = -1;
    for (int i = 0; i < TRIES && got != error; i++) {
        got = ask(DESCRIBE, NULL, 0, -1);
        usleep(10000);
    }
    CHECK(got == error);
}

int main(int argc, char **argv)
{
    char folder[] = "/tmp/hostile-XXXXXX", mounted[64], node[64], options[128], path[80];
    int go_on[2];
    begin();
    CHECK(argc == 2);
    int user = atoi(argv[1]);
    CHECK(mkdtemp(folder) && pipe(go_on) == 0);
    snprintf(node, sizeof node, "%s/fuse", folder);
    snprintf(mounted, sizeof mounted, "%s/mounted", folder);
    umask(0);
    CHECK(mkdir(mounted, 0777) == 0 && mknod(node, S_IFCHR | 0666, makedev(10, 229)) == 0);
    CHECK(chown(folder, user, user) == 0 && chown(mounted, user, user) == 0);
    CHECK(setresgid(user, user, user) == 0 && setresuid(user, user, user) == 0);
    /* So that /proc/self is this user's. */
    CHECK(prctl(PR_SET_DUMPABLE, 1) == 0);
    /* The device must be opened where it is mounted. */
    int device = enter(user) ? open(node, O_RDWR | O_CLOEXEC) : -1;
    unlink(node);
    if (device < 0) {
        rmdir(mounted);
        rmdir(folder);
        return SKIPPED;
    }
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
    CHECK(mount("hostile", mounted, "fuse", 0, options) == 0);
    pid_t server = fork();
    if (server == 0) {
        begin_child();
        close(go_on[1]);
        serve(device, go_on[0]);
        return 0;
    }
    close(device);
    snprintf(path, sizeof path, "%s/file", mounted);
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0);
    int connection = call(), pair = open_sctp(1);
    CHECK(pair >= 0);
    say(connection, ATTACH, NULL, 0, &fd, 1);
    CHECK(answer(connection, NULL) == ENOTSOCK);
    CHECK(send_with(pair, "no record", 9, &fd, 1) == 9);
    await(EBUSY);
    hold();
    CHECK(write(go_on[1], "", 1) == 1);
    await(0);
    kill(server, SIGKILL);
    CHECK(waitpid(server, NULL, 0) == server);
    CHECK(umount2(mounted, MNT_DETACH) == 0 && rmdir(mounted) == 0 && rmdir(folder) == 0);
    return 0;
}
