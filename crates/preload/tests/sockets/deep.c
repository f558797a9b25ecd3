/* A library that is loaded with RTLD_DEEPBIND gets SCTP sockets, too, and the run path of the program that loads it still
   counts. Compiled as that library with -DLIBRARY. */
#include "check.h"

#ifdef LIBRARY

int socket_of_library(void);
int socket_of_library(void) { return socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP); }

#else

#include <dlfcn.h>

static void opens_a_socket(void *library)
{
    if (library == NULL)
        fprintf(stderr, "%s\n", dlerror());
    CHECK(library != NULL);
    int (*open_one)(void) = (int (*)(void))dlsym(library, "socket_of_library");
    CHECK(open_one != NULL);
    int fd = open_one();
    CHECK(fd >= 0 && close(fd) == 0);
}

int main(void)
{
    begin();
    /* The name has no path. */
    void *library = dlopen("libsockets-deep.so", RTLD_NOW | RTLD_DEEPBIND);
    opens_a_socket(library);
    CHECK(dlclose(library) == 0);
    library = dlmopen(LM_ID_BASE, "libsockets-deep.so", RTLD_LAZY | RTLD_LOCAL | RTLD_DEEPBIND);
    opens_a_socket(library);
    /* The other flags stay. */
    CHECK(dlsym(RTLD_DEFAULT, "socket_of_library") == NULL);
    CHECK(dlclose(library) == 0);
    CHECK(dlopen("libsockets-deep.so", RTLD_NOW | RTLD_DEEPBIND | RTLD_GLOBAL) != NULL);
    CHECK(dlsym(RTLD_DEFAULT, "socket_of_library") != NULL);
    CHECK(dlopen("no-such-library.so", RTLD_NOW | RTLD_DEEPBIND) == NULL && dlerror() != NULL);
    return 0;
}

#endif
