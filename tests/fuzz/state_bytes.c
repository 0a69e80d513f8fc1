/* state_bytes.c - writes states as the scripts store them, independently of the library: see state_bytes.h. */
#include "state_bytes.h"

#include "core/algorithm/algorithm.h"
#include "core/algorithm/sliding_window.h"

static size_t put(unsigned char *out, size_t at, int bytes, int64_t value)
{
    for (int i = 0; i < bytes; i++)
        out[at++] = (unsigned char)(value >> (8 * i));
    return at;
}

size_t state_bytes(const struct weir_plan *plan, const int64_t *state, unsigned char out[REDIS_STATE_MAX])
{
    size_t at = redis_stamp_write(plan, out);
    if (plan->algorithm != WEIR_SLIDING_WINDOW)
        return put(out, put(out, at, 7, state[0]), 7, state[1]);
    int64_t n = plan->blocks + 1;
    while (n > 1 && sliding_count(plan, state, n - 1) == 0)
        n--;
    at = put(out, put(out, at, 7, state[0]), 2, n);
    for (int64_t i = 0; i < n; i++)
        at = put(out, at, plan->size > UINT32_MAX ? 7 : 4, sliding_count(plan, state, i));
    return at;
}
