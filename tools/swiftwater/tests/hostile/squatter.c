/* Takes the names that would come next if carriers were numbered, and keeps them. */
#include "hostile.h"

enum { NAMES = 64, TAKEN = 900 };

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
    static char names[NAMES][108];
    begin();
    int own = open_sctp(0);
    CHECK(own >= 0);
    int count = carrier_names(names, NAMES), taken = 0;
    CHECK(count > 0);
    for (int i = 0; i < count; i++) {
        for (int n = 0; n < TAKEN; n++) {
            int pair[2];
            count_up(names[i]);
            taken += pair_named(SOCK_SEQPACKET, names[i], pair) == 0;
            close(pair[0]);
        }
    }
    CHECK(taken >= TAKEN);
    hold();
    return 0;
}
