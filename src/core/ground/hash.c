/* hash.c - draws the secret of a keyed hash. */
#include "core/ground/hash.h"

#include <errno.h>
#include <sys/random.h>

int hash_secret_draw(struct hash_secret *out)
{
    struct hash_secret secret;
    ssize_t got;
    do
        got = getrandom(&secret, sizeof secret, 0);
    while (got < 0 && errno == EINTR);
    if (got != (ssize_t)sizeof secret)
        return -1;
    *out = secret;
    return 0;
}
