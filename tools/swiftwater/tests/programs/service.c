/* A service that never heard of SCTP sends every line back. */
#include <stdio.h>

int main(void)
{
    char line[1000];
    while (fgets(line, sizeof line, stdin)) {
        fputs(line, stdout);
        fflush(stdout);
    }
    return 0;
}
