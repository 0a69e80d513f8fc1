/* pace.c - pauses between requests to Consul: see consul/pace.h. */
#include "backends/consul/pace.h"

#include "core/ground/clock.h"

#define AT_ONCE_US 1000000 /* a faster answer was not held by the agent */
#define EMPTIES_MOST 10
#define ANSWER_US 100000 /* ten answers a second ... */
#define ANSWERS_AT_ONCE 10

void consul_pace_init(struct consul_pace *pace, bool is_urgent)
{
    *pace = (struct consul_pace){ .is_urgent = is_urgent };
    if (hash_secret_draw(&pace->chance) != 0)
        pace->chance = (struct hash_secret){ (uint64_t)clock_monotonic_us(), (uint64_t)(uintptr_t)pace };
}

/* Return the next gap. `rounds` counts from 0: 1 s, 2 s, 4 s, ... plus up to as much again at random. An urgent
 * gap is 1 s plus up to half a second at random. */
static int64_t gap_us(struct consul_pace *pace, unsigned rounds)
{
    int64_t gap_us = CONSUL_GAP_US;
    while (!pace->is_urgent && rounds-- > 0 && gap_us < CONSUL_GAP_MOST_US)
        gap_us *= 2;
    if (gap_us > CONSUL_GAP_MOST_US)
        gap_us = CONSUL_GAP_MOST_US;
    const int64_t by_chance_us = pace->is_urgent ? CONSUL_GAP_URGENT_MOST_US - CONSUL_GAP_US : gap_us;
    pace->drawn++;
    return gap_us + (int64_t)(siphash13(&pace->chance, &pace->drawn, sizeof pace->drawn) % (uint64_t)by_chance_us);
}

int64_t consul_pace_failed(struct consul_pace *pace, int64_t now_us)
{
    return now_us + gap_us(pace, pace->failures++);
}

int64_t consul_pace_answered(struct consul_pace *pace, int64_t asked_us, int64_t now_us, bool is_new)
{
    pace->failures = 0;
    if (is_new || now_us - asked_us >= AT_ONCE_US)
        pace->empties = 0;
    else if (++pace->empties > EMPTIES_MOST)
        return now_us + gap_us(pace, 0); /* not longer: the agent works, and changes must be seen */
    pace->full_us = (pace->full_us > now_us ? pace->full_us : now_us) + ANSWER_US;
    int64_t due_us = pace->full_us - (int64_t)ANSWERS_AT_ONCE * ANSWER_US;
    return due_us > now_us ? due_us : now_us;
}
