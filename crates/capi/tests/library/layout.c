/* Prints the numbers and the layouts of the header that it is compiled with: HEADER. */
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <netinet/in.h>
#include HEADER

#define NUMBER(name) printf("%s %ld\n", #name, (long)(name));
#define SIZE(type) printf("%s %zu\n", #type, sizeof(type));
#define FIELD(type, field) printf("%s.%s %zu\n", #type, #field, offsetof(type, field));

int main(void)
{
#include "layout.list"
    return 0;
}
