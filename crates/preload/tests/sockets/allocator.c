/* A program with an allocator that makes system calls while it holds its lock, as jemalloc and tcmalloc do, from the first call
 * on. The shim must not allocate in these calls. */
#include "check.h"
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum { CHUNK_BYTES = 1 << 20, LOOKS = 1000 };

static atomic_flag lock = ATOMIC_FLAG_INIT;
static _Thread_local int holds;
static int looks;
static char *next, *end;

static void dies(const char *why)
{
    ssize_t said = write(2, why, strlen(why));
    _exit(said < 0 ? 2 : 1);
}

/* Reads a setting of the kernel by the calls of the C library, by name and by number. */
static void look(void)
{
    static const char *const setting = "/proc/sys/vm/overcommit_memory";
    char by_name = 0, by_number = 1;
    int fd = open(setting, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, &by_name, 1) != 1 || fcntl(fd, F_GETFD) != FD_CLOEXEC || close(fd) != 0)
        dies("the allocator cannot read a file\n");
    fd = syscall(SYS_openat, AT_FDCWD, setting, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || syscall(SYS_read, fd, &by_number, 1) != 1 || syscall(SYS_close, fd) != 0)
        dies("the allocator cannot read a file by number\n");
    if (by_name != by_number)
        dies("both ways do not read the same\n");
}

static void *take(size_t bytes)
{
    if (holds)
        dies("memory was wanted while the allocator held its lock\n");
    while (atomic_flag_test_and_set(&lock))
        ;
    holds = 1;
    if (looks++ < LOOKS)
        look();
    bytes = (bytes + 31) / 16 * 16;
    if (end - next < (ptrdiff_t)bytes) {
        size_t chunk = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
        long fresh = syscall(SYS_mmap, NULL, chunk, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (fresh == -1)
            dies("the allocator gets no memory\n");
        next = (char *)fresh;
        end = next + chunk;
    }
    size_t *place = (size_t *)next;
    next += bytes;
    place[1] = bytes - 16;
    holds = 0;
    atomic_flag_clear(&lock);
    return place + 2;
}

void *malloc(size_t bytes) { return take(bytes); }

/* Fresh memory of the kernel is zero, and none is used twice. */
void *calloc(size_t count, size_t bytes) { return take(count * bytes); }

void *realloc(void *old, size_t bytes)
{
    void *fresh = take(bytes);
    size_t had = old ? ((size_t *)old)[-1] : 0;
    return memcpy(fresh, old ? old : fresh, had < bytes ? had : bytes);
}

void *memalign(size_t alignment, size_t bytes)
{
    size_t place = (size_t)take(bytes + alignment);
    return (void *)((place + alignment - 1) / alignment * alignment);
}

void *aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }

int posix_memalign(void **place, size_t alignment, size_t bytes)
{
    *place = memalign(alignment, bytes);
    return 0;
}

void free(void *place) { (void)place; }

static void *talk(void *port)
{
    int client, server;
    char word[6];
    joined(*(int *)port, &client, &server);
    for (int i = 0; i < 10; i++) {
        char *copy = strdup("hello");
        CHECK(send(client, copy, 6, 0) == 6 && recv(server, word, sizeof word, 0) == 6 && strcmp(word, copy) == 0);
        free(copy);
    }
    close(client);
    close(server);
    return NULL;
}

int main(void)
{
    static int ports[] = {6441, 6442};
    pthread_t thread;
    begin();
    talk(&ports[0]);
    CHECK(pthread_create(&thread, NULL, talk, &ports[1]) == 0 && pthread_join(thread, NULL) == 0);
    return 0;
}
