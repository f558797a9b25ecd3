/* Takes the names that would come next if pairs were numbered, and keeps them. */
#include "hostile.h"

enum { TAKEN = 900 };

/* The name whose last digits are one more. */
static void count_up(char *name)
{
    for (char *digit = name + strlen(name) - 1; isxdigit((unsigned char)*digit); digit--) {
        *digit = *digit == '9' ? 'a' : *digit == 'f' ? '0' : *digit + 1;
        if (*digit != '0')
            return;
    }
}

int main(void)
{
    struct sockaddr_un daemons_end = {0};
    socklen_t bytes = sizeof daemons_end;
    int taken = 0;
    begin();
    int own = open_sctp(0);
    CHECK(own >= 0);
    CHECK(getpeername(own, (struct sockaddr *)&daemons_end, &bytes) == 0);
    char *name = daemons_end.sun_path + 1;
    CHECK(strncmp(name, "swiftwater:", strlen("swiftwater:")) == 0);
    for (int n = 0; n < TAKEN; n++) {
        int pair[2];
        count_up(name);
        taken += pair_named(SOCK_SEQPACKET, name, pair) == 0;
        close(pair[0]);
    }
    CHECK(taken == TAKEN);
    hold();
    return 0;
}
