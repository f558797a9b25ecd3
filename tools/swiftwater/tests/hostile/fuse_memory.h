/* Memory that is not delivered before the attacker lets it be: a mapping of a FUSE file whose READ waits for an answer. A
 * system call that copies from it or to it sleeps, with the locks that it holds. */
#include "hostile.h"

#include <linux/fuse.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

enum { MEMORY_BYTES = 1 << 16, REQUEST_BYTES = 1 << 17 };

static int fuse_device;
static volatile int fuse_is_asked, fuse_is_released;

static void put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && close(fd) == 0);
}

static void fuse_reply(uint64_t unique, int error, const void *body, size_t bytes)
{
    static char out[1 << 16];
    struct fuse_out_header header = {sizeof header + bytes, -error, unique};
    CHECK(header.len <= sizeof out);
    memcpy(out, &header, sizeof header);
    if (bytes)
        memcpy(out + sizeof header, body, bytes);
    /* A request that was given up has nobody to answer. */
    if (write(fuse_device, out, header.len) < 0)
        CHECK(errno == ENOENT);
}

/* Serves a file system of one file. A thread of its own, which makes no system call on that file. */
static void *fuse_serve(void *unused)
{
    static char request[REQUEST_BYTES], content[4096];
    (void)unused;
    for (;;) {
        ssize_t n = read(fuse_device, request, sizeof request);
        if (n < 0 && errno == ENODEV)
            return NULL;
        if (n < (ssize_t)sizeof(struct fuse_in_header))
            continue;
        struct fuse_in_header *in = (struct fuse_in_header *)request;
        struct fuse_init_out init = {.major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = 4096};
        struct fuse_attr_out attr = {.attr = {.ino = 1, .nlink = 1, .mode = S_IFREG | 0666, .size = MEMORY_BYTES},
                                     .attr_valid = 1000};
        struct fuse_open_out opened = {.fh = 1};
        switch (in->opcode) {
        case FUSE_INIT: fuse_reply(in->unique, 0, &init, sizeof init); break;
        case FUSE_GETATTR: fuse_reply(in->unique, 0, &attr, sizeof attr); break;
        case FUSE_OPEN: fuse_reply(in->unique, 0, &opened, sizeof opened); break;
        case FUSE_READ:
            fuse_is_asked = 1;
            while (!fuse_is_released)
                usleep(1000);
            fuse_reply(in->unique, 0, content, sizeof content);
            break;
        case FUSE_FLUSH:
        case FUSE_RELEASE: fuse_reply(in->unique, 0, NULL, 0); break;
        case FUSE_FORGET:
        case FUSE_INTERRUPT:
        case FUSE_BATCH_FORGET: break;
        default: fuse_reply(in->unique, ENOSYS, NULL, 0);
        }
    }
}

/* Becomes the user, and returns such memory; NULL if that may not be done here. Begins as root, which makes a /dev/fuse
 * that everybody may open, as it is on most hosts. */
static char *fuse_memory(int user)
{
    char folder[] = "/tmp/hostile-XXXXXX", file[64], node[64], options[128], map[64];
    CHECK(mkdtemp(folder));
    snprintf(node, sizeof node, "%s/fuse", folder);
    snprintf(file, sizeof file, "%s/file", folder);
    umask(0);
    int place = open(file, O_CREAT | O_RDWR, 0666);
    CHECK(place >= 0 && close(place) == 0 && mknod(node, S_IFCHR | 0666, makedev(10, 229)) == 0);
    CHECK(chown(folder, user, user) == 0 && chown(file, user, user) == 0);
    CHECK(setresgid(user, user, user) == 0 && setresuid(user, user, user) == 0);
    /* So that /proc/self is this user's. */
    CHECK(prctl(PR_SET_DUMPABLE, 1) == 0);
    fuse_device = -1;
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0) {
        snprintf(map, sizeof map, "0 %d 1", user);
        put("/proc/self/setgroups", "deny");
        put("/proc/self/uid_map", map);
        put("/proc/self/gid_map", map);
        CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
        fuse_device = open(node, O_RDWR | O_CLOEXEC);
    }
    unlink(node);
    if (fuse_device < 0) {
        unlink(file);
        rmdir(folder);
        return NULL;
    }
    snprintf(options, sizeof options, "fd=%d,rootmode=100000,user_id=0,group_id=0", fuse_device);
    CHECK(mount("hostile", file, "fuse", 0, options) == 0);
    pthread_t server;
    CHECK(pthread_create(&server, NULL, fuse_serve, NULL) == 0);
    int fd = open(file, O_RDONLY);
    /* Only now the kernel asks how long the file is. */
    struct stat status;
    CHECK(fd >= 0 && fstat(fd, &status) == 0 && status.st_size == MEMORY_BYTES);
    char *memory = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    CHECK(memory != MAP_FAILED && close(fd) == 0);
    /* The mapping keeps the file system. */
    CHECK(umount2(file, MNT_DETACH) == 0 && unlink(file) == 0 && rmdir(folder) == 0);
    return memory;
}

/* Waits until a system call sleeps for this memory. */
static inline void fuse_await(void)
{
    while (!fuse_is_asked)
        usleep(1000);
}
