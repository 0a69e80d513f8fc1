/* outage.c - the word that says which outage lasts, and the backend's own view of it.
 *
 * Every request that fails or succeeds reads the word without a lock. Beginnings and ends are written under
 * settle.mutex, together with their consequences (outage_span.c):
 *
 *     63 .. 17   when the outage began, in units of 64 us, rounded up: rounding never adds a permit
 *     16 ..  2   the outage's number. It wraps after 32,768 outages. A state that is so old continues as the meter that
 *                it is, which adds no burst
 *           1    the outage has been logged. One that begins within OUTAGE_LOG_US of the last logged one is not
 *           0    the outage lasts
 */
#include "core/outage/outage.h"

#include "core/ground/arith.h"
#include "core/limiter/own_ops.h"

#define OUTAGE_NUMBER_BIT 2
#define OUTAGE_NUMBER_BITS 15
#define OUTAGE_SINCE_BIT (OUTAGE_NUMBER_BIT + OUTAGE_NUMBER_BITS)
#define OUTAGE_SINCE_BITS 47
#define OUTAGE_UNIT_US 64
#define OUTAGE_GAP_US WEIR_SECOND
#define PART_GAP_US (WEIR_SECOND / 2) /* parts that fail within this are in one outage */

_Static_assert(WEIR_MAX_LIMITS <= 1 << OUTAGE_TAG_BIT && OUTAGE_TAG_BIT + OUTAGE_NUMBER_BITS <= 32,
               "a limit's id and an outage's number share 32 bits");

uint64_t outage_word(uint64_t number, int64_t since_us)
{
    const int64_t most = (INT64_C(1) << OUTAGE_SINCE_BITS) - 1;
    uint64_t since = (uint64_t)min_of(div_up(since_us, OUTAGE_UNIT_US), most);
    number &= (UINT64_C(1) << OUTAGE_NUMBER_BITS) - 1;
    return since << OUTAGE_SINCE_BIT | number << OUTAGE_NUMBER_BIT | OUTAGE_LASTS;
}

uint32_t outage_number(uint64_t word)
{
    return (uint32_t)(word >> OUTAGE_NUMBER_BIT & ((UINT64_C(1) << OUTAGE_NUMBER_BITS) - 1));
}

int64_t outage_since_us(uint64_t word)
{
    return (int64_t)(word >> OUTAGE_SINCE_BIT) * OUTAGE_UNIT_US;
}

bool outage_read(const struct weir *limiter, struct outage_id *out)
{
    const uint64_t word = atomic_load(&limiter->outage->word);
    *out = (struct outage_id){ outage_number(word), outage_since_us(word) };
    return word & OUTAGE_LASTS;
}

int64_t outage_time(const struct weir *limiter, int64_t request_us)
{
    if (request_us != WEIR_OWN_CLOCK)
        return request_us;
    return max_of(0, min_of(clock_now_us(&limiter->clock), WEIR_MAX_TIME_US));
}

/* ---- What is left ---- */

void outage_note_left(struct weir *limiter, const struct weir_backend_request *requests, size_t n, uint32_t asked,
                      const struct weir_decision *decisions)
{
    const struct own_ops *own = own_ops(limiter->backend);
    for (size_t i = 0; limiter->outage->known && i < n; i++) {
        const uint8_t source = decisions[i].source;
        if (requests[i].verb == WEIR_REFUND || requests[i].verb == WEIR_RESET || source == WEIR_BY_LEASE ||
            source == WEIR_BY_DENIAL || source == WEIR_BY_NOBODY)
            continue;
        const int64_t leased = own && own->leased ? own->leased(limiter->backend, &requests[i]) : 0;
        known_note(limiter->outage->known, requests[i].hash, decisions[i].remaining - leased, asked);
    }
}

int64_t outage_left(const struct weir *limiter, const struct weir_backend_request *request)
{
    struct weir_plan whole, local;
    const struct outage *outage = limiter->outage;
    if (!outage->known || atomic_load(&outage->is_split))
        return 0;
    const int64_t left = known_left(outage->known, request->hash);
    if (left == 0)
        return 0;
    plan_cell_read(&request->limit->plan, &whole);
    plan_cell_read(&request->limit->local_plan, &local);
    const int64_t size = whole.size + whole.reserve;
    return (int64_t)((arith_wide)min_of(left, size) * (arith_wide)local.size / (arith_wide)size);
}

/* ---- What the backend says ---- */

/* Return when the key's part of the backend was last well; with NULL, the part that has been ill longest. -1: unknown.
 */
static int64_t well_us(const struct weir *limiter, const struct weir_key *key)
{
    struct weir_backend *backend = limiter->backend;
    const struct own_ops *own = own_ops(backend);
    const int64_t well_us = own && own->well_us ? own->well_us(backend, key) : -1;
    return well_us < 0 ? backend_reachable_us(backend, key) : well_us;
}

bool outage_is_in_reach(const struct weir *limiter, const struct weir_key *key)
{
    return backend_is_in_reach(limiter->backend, key);
}

bool outage_is_well(const struct weir *limiter)
{
    const int64_t now_us = clock_monotonic_us(), seen_us = well_us(limiter, NULL);
    return seen_us < 0 || seen_us >= now_us;
}

bool outage_was_well_since(const struct weir *limiter, const struct weir_key *key)
{
    const int64_t seen_us = well_us(limiter, key);
    if (seen_us - atomic_load_explicit(&limiter->outage->failed_us, memory_order_relaxed) > OUTAGE_GAP_US)
        return true;
    return seen_us - atomic_load_explicit(&limiter->outage->begun_us, memory_order_relaxed) > PART_GAP_US &&
           seen_us - well_us(limiter, NULL) > PART_GAP_US;
}
