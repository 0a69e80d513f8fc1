/* lease_load.c - counts the permits requested in a turn. */
#include "core/algorithm/lease_load.h"

#include "core/ground/arith.h"

#define TURN_MAX_US WEIR_MINUTE      /* a lease need not last longer: one call a minute is cheap */
#define TURN_MAX_LEAKY_US 50000      /* slots pass: those ordered for a later time would be lost */
#define COUNT_MAX (INT64_C(1) << 46) /* above every cost, and its products with times are below 2^63 */

int64_t load_turn_len_us(const struct weir_plan *plan, int64_t life_us)
{
    const int64_t most_us = plan->algorithm == WEIR_LEAKY_BUCKET ? TURN_MAX_LEAKY_US : TURN_MAX_US;
    return life_us > 0 ? min_of(life_us / LOAD_TURNS_IN_LIFE, most_us) : most_us;
}

void load_turn_over(struct lease *lease, int64_t now_us)
{
    const int64_t len_us = lease->turn_len_us;
    if (lease->turn_us == 0 || now_us < lease->turn_us - len_us) { /* new, or the caller's clock has stepped back */
        lease->count = 0;
        lease->turn_us = now_us + len_us;
        return;
    }
    int64_t turns = 1 + (now_us - lease->turn_us) / len_us;
    lease->turn_us += turns * len_us;
    for (; turns > 0 && (lease->count > 0 || lease->average > 0); turns--) {
        const int64_t seen = lease->count * LOAD_AVERAGE_ONE;
        lease->average += (seen - lease->average) / LOAD_AVERAGE_TURNS;
        if (seen == 0 && lease->average < LOAD_AVERAGE_TURNS)
            lease->average = 0;
        lease->count = 0;
    }
}

void lease_count(struct lease *lease, int64_t now_us, int64_t cost)
{
    load_turn(lease, now_us);
    lease->count = min_of(lease->count + cost, COUNT_MAX);
    lease->used_us = now_us;
}
