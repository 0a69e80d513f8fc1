/* arrears.c - permits that a fallback admitted and that Redis has not been charged for: see arrears.h. */
#include "core/outage/arrears.h"

#include "core/ground/arith.h"

#define PERMITS_BITS 31
#define OUTAGE_BITS 15
#define OTHER_BITS (PERMITS_BITS + OUTAGE_BITS)
#define PERMITS_MOST ((INT64_C(1) << PERMITS_BITS) - 1)

#define TRY_EVERY_US 100000
#define SPREAD_MOST 15 /* odd: no lease has such a spread but 1, which eases tests */

struct noted {
    uint32_t outage; /* outage->begun_answered, its lower bits */
    int64_t permits; /* in units, see unit_shift() */
};

static _Atomic uint64_t *slot_of(const struct weir *limiter, uint64_t hash)
{
    return &limiter->outage->arrears->slots[hash % ARREARS_SLOTS];
}

static struct noted noted_in(uint64_t word, uint64_t hash)
{
    if (word >> OTHER_BITS != hash >> OTHER_BITS)
        return (struct noted){ 0, 0 };
    return (struct noted){ (uint32_t)(word >> PERMITS_BITS) & ((1 << OUTAGE_BITS) - 1),
                           (int64_t)(word & PERMITS_MOST) };
}

static uint64_t word_of(struct noted noted, uint64_t hash)
{
    if (noted.permits == 0)
        return 0;
    return hash >> OTHER_BITS << OTHER_BITS | (uint64_t)noted.outage << PERMITS_BITS | (uint64_t)noted.permits;
}

static struct noted noted_read(const struct weir *limiter, uint64_t hash)
{
    return noted_in(atomic_load_explicit(slot_of(limiter, hash), memory_order_relaxed), hash);
}

/* Return the logarithm of the permits in a unit. A size has 29 of its bits in units, so twice a size fits. */
static unsigned unit_shift(const struct weir_backend_request *of)
{
    struct weir_plan plan;
    plan_cell_read(&of->limit->plan, &plan);
    const int64_t size = plan.size + plan.reserve;
    return (unsigned)max_of(0, 64 - (PERMITS_BITS - 1) - (size > 0 ? __builtin_clzll((uint64_t)size) : 64));
}

static uint32_t outage_now(const struct weir *limiter)
{
    return atomic_load_explicit(&limiter->outage->begun_answered, memory_order_relaxed) & ((1 << OUTAGE_BITS) - 1);
}

int64_t arrears_of(const struct weir *limiter, const struct weir_backend_request *request)
{
    if (!limiter->outage->arrears)
        return 0;
    const int64_t units = noted_read(limiter, request->hash).permits;
    return units > 0 ? units << unit_shift(request) : 0;
}

/* Change what is noted of a key. Permits that it already has keep their outage. */
static void arrears_add(struct weir *limiter, const struct weir_backend_request *of, int64_t permits)
{
    const uint64_t hash = of->hash;
    const unsigned shift = unit_shift(of);
    const int64_t units = permits < 0 ? -(-permits >> shift)
                                      : (permits >> shift) + ((permits >> shift) << shift < permits);
    _Atomic uint64_t *slot = slot_of(limiter, hash);
    uint64_t word = atomic_load_explicit(slot, memory_order_relaxed), changed;
    do {
        struct noted noted = noted_in(word, hash);
        if (noted.permits == 0 && units < 0)
            return;
        if (noted.permits == 0)
            noted.outage = outage_now(limiter);
        noted.permits = max_of(0, min_of(noted.permits + units, PERMITS_MOST));
        changed = word_of(noted, hash);
    } while (!atomic_compare_exchange_weak_explicit(slot, &word, changed, memory_order_relaxed, memory_order_relaxed));
}

void arrears_note(struct weir *limiter, const struct weir_backend_request *request, int64_t permits)
{
    if (!limiter->outage->arrears || atomic_load_explicit(&request->limit->in_flight, memory_order_relaxed))
        return;
    if (!atomic_load_explicit(&limiter->outage->arrears->is_used, memory_order_relaxed))
        atomic_store_explicit(&limiter->outage->arrears->is_used, true, memory_order_relaxed);
    arrears_add(limiter, request, permits);
}

/* Return the permits that a share makes in that time, rounded down. */
static int64_t made_in(const struct weir_plan *share, int64_t lasted_us)
{
    return mul_capped(lasted_us / share->tick_us, share->p) / share->q;
}

bool arrears_forbid(const struct weir *limiter, const struct weir_backend_request *request)
{
    struct weir_plan plan;
    if (!limiter->outage->arrears)
        return false;
    const struct noted noted = noted_read(limiter, request->hash);
    if (noted.permits == 0 || noted.outage == outage_now(limiter))
        return false;
    plan_cell_read(&request->limit->local_plan, &plan);
    const int64_t lasted_us = max_of(0, request->now_us - request->cold_since_us);
    return (noted.permits << unit_shift(request)) + request->cost > made_in(&plan, lasted_us);
}

void arrears_pay(struct weir *limiter, const struct weir_backend_request *of, int64_t permits)
{
    if (limiter->outage->arrears && permits > 0)
        arrears_add(limiter, of, -permits);
}

/* ---- Time for which the key lay idle in the backend ---- */

static _Atomic int64_t *counted_of(const struct weir *limiter, uint64_t hash)
{
    return &limiter->outage->arrears->counted_us[hash % ARREARS_SLOTS];
}

bool arrears_must_ask(const struct weir *limiter, const struct weir_backend_request *of, int64_t owed)
{
    struct outage_id outage;
    if (of->now_us != WEIR_OWN_CLOCK || arrears_of(limiter, of) <= owed)
        return false;
    const int64_t counted_us = atomic_load_explicit(counted_of(limiter, of->hash), memory_order_relaxed);
    const int64_t ended_us = atomic_load_explicit(&limiter->outage->ended_us, memory_order_relaxed);
    return counted_us < ended_us || outage_read(limiter, &outage);
}

bool arrears_ask(const struct weir *limiter, struct weir_backend_request *charge, int64_t owed)
{
    if (!arrears_must_ask(limiter, charge, owed))
        return false;
    const int64_t counted_us = atomic_load_explicit(counted_of(limiter, charge->hash), memory_order_relaxed);
    const int64_t first_us = atomic_load_explicit(&limiter->outage->first_us, memory_order_relaxed);
    charge->cold_left = max_of(1, clock_monotonic_us() - max_of(first_us, counted_us));
    return true;
}

/* Let A be what is noted, D what is owed of it, and I the time for which the key lay idle. Permits that were admitted
 * since any moment of the outage have drained by what the share made while the key lay idle after it. Idle time that
 * ended before the outage did is none for the permits of the rest, of which D may be all. So max(A - made(I), D +
 * made(rest)) stay. */
void arrears_forgive(struct weir *limiter, const struct weir_backend_request *charge, int64_t owed,
                     const struct weir_decision *decision)
{
    struct weir_plan share;
    struct outage_id outage;
    const int64_t now_us = clock_monotonic_us(), noted = arrears_of(limiter, charge);
    const int64_t ended_us = outage_read(limiter, &outage)
                                 ? now_us
                                 : atomic_load_explicit(&limiter->outage->ended_us, memory_order_relaxed);
    plan_cell_read(&charge->limit->local_plan, &share);
    const int64_t rest_us = max_of(0, decision->retry_after_us - (now_us - ended_us));
    const int64_t rest = rest_us > 0 ? made_in(&share, rest_us) + 1 : 0;
    const int64_t stays = max_of(noted - made_in(&share, decision->age_us), owed + rest);
    if (stays < noted)
        arrears_add(limiter, charge, stays - noted);
    atomic_store_explicit(counted_of(limiter, charge->hash), now_us, memory_order_relaxed);
}

/* ---- All of it ---- */

void arrears_clear(struct weir *limiter)
{
    struct arrears *arrears = limiter->outage->arrears;
    for (size_t i = 0; arrears && i < ARREARS_SLOTS; i++)
        atomic_store_explicit(&arrears->slots[i], 0, memory_order_relaxed);
}

bool arrears_charge(struct weir *limiter, struct weir_backend_request *charge)
{
    struct weir_plan plan;
    const int64_t permits = arrears_of(limiter, charge);
    plan_cell_read(&charge->limit->plan, &plan);
    if (permits == 0 || plan.size < 2) /* a burst of one has nothing to spare */
        return false;
    _Atomic int64_t *tried_us = &limiter->outage->arrears->tried_us[charge->hash / ARREARS_SLOTS % ARREARS_TRIES];
    int64_t last_us = atomic_load_explicit(tried_us, memory_order_relaxed);
    const int64_t now_us = clock_monotonic_us();
    if ((last_us > 0 && now_us - last_us < TRY_EVERY_US) ||
        !atomic_compare_exchange_strong_explicit(tried_us, &last_us, now_us, memory_order_relaxed,
                                                 memory_order_relaxed))
        return false;
    charge->ahead = min_of(permits, plan.size);
    charge->spread = (uint16_t)(plan.size == 2 ? 2 : min_of(SPREAD_MOST, (plan.size - 1) | 1));
    return true;
}
