/* room.c - makes room: drops idle keys, and rules that no key names.
 *
 * A hand goes round a stripe's buckets. Each insertion moves it on a little, and one that finds no room moves it until
 * there is some, but not past ROOM_KEYS keys or ROOM_BUCKETS buckets. After a full round the stripe knows the time
 * before which none of its keys becomes idle, and nothing is examined until then. A refund may let a key become idle
 * earlier; a later round finds it. */
#include "backends/machine/visit.h"

#include "core/ground/arith.h"
#include "core/ground/clock.h"

#include <stdlib.h>

#define ROOM_KEYS 512
#define ROOM_BUCKETS 8192

struct sweep {
    struct visit visit; /* at a key */
    int64_t at_us;      /* keys fresh since then go */
    bool drop;
    unsigned keys, found;
};

/* Return when the key of a visit becomes idle. A key that is idle and may be dropped is held, and then read again: a
 * decision may have changed it before. *held: true if this call began to hold it. */
static int64_t sweep_fresh_at_us(struct sweep *sweep, bool *held, int *error)
{
    struct visit *visit = &sweep->visit;
    int64_t fresh_at_us = visit_fresh_at_us(visit, error);
    *held = false;
    if (*error || fresh_at_us > sweep->at_us || !sweep->drop)
        return fresh_at_us;
    *held = pair_hold(visit->stripe, pair_at(&visit->machine->shape, visit->first));
    return visit_fresh_at_us(visit, error);
}

/* Look at the keys of a bucket, and drop those that are idle. */
static int sweep_bucket(struct sweep *sweep, uint32_t bucket, int64_t *soonest_us)
{
    struct visit *visit = &sweep->visit;
    visit->bucket = bucket;
    visit->before = 0;
    uint32_t cell = bucket_first(visit->stripe, &visit->machine->shape, bucket);
    for (uint32_t steps = 0; cell != 0; steps++) {
        bool held = false;
        int error = visit_step(visit, &cell, steps);
        const int64_t fresh_at_us = error ? 0 : sweep_fresh_at_us(sweep, &held, &error);
        sweep->keys++;
        if (error)
            return error;
        if (fresh_at_us > sweep->at_us || !sweep->drop) {
            if (held)
                visit_leave(visit);
            sweep->found += fresh_at_us <= sweep->at_us;
            *soonest_us = min_of(*soonest_us, fresh_at_us);
            visit->before = visit->first;
            continue;
        }
        error = visit_remove(visit);
        if (error)
            return error;
        sweep->found++;
        atomic_fetch_add_explicit(&visit->stripe->evictions, 1, memory_order_relaxed);
    }
    return WEIR_OK;
}

/* Sweep the bucket at the hand, and move it on. */
static int sweep_next(struct sweep *sweep)
{
    struct machine_stripe *stripe = sweep->visit.stripe;
    const uint32_t buckets = sweep->visit.machine->shape.cells;
    uint64_t hand = atomic_load_explicit(&stripe->hand, memory_order_relaxed) % buckets;
    int64_t soonest_us = hand == 0 ? INT64_MAX : atomic_load_explicit(&stripe->soonest_us, memory_order_relaxed);
    const int error = sweep_bucket(sweep, (uint32_t)hand, &soonest_us);
    hand = (hand + 1) % buckets;
    atomic_store_explicit(&stripe->hand, hand, memory_order_relaxed);
    atomic_store_explicit(&stripe->soonest_us, soonest_us, memory_order_relaxed);
    if (hand == 0)
        atomic_store_explicit(&stripe->known_soonest_us, soonest_us, memory_order_relaxed);
    return error;
}

/* True if a key may be idle at that time, as far as the last round knows. */
static bool sweep_may_find(const struct machine_stripe *stripe, int64_t at_us)
{
    return atomic_load_explicit(&stripe->known_soonest_us, memory_order_relaxed) <= at_us;
}

/* Begin a sweep of a visit's stripe. */
static struct sweep sweep_begin(const struct visit *visit, int64_t at_us, bool drop)
{
    return (struct sweep){ .visit = { .machine = visit->machine, .stripe = visit->stripe, .now_us = at_us },
                           .at_us = at_us,
                           .drop = drop };
}

int stripe_sweep(const struct visit *visit, int64_t at_us, unsigned steps)
{
    struct sweep sweep = sweep_begin(visit, at_us, true);
    int error = WEIR_OK;
    for (unsigned i = 0; i < steps && !error && sweep_may_find(visit->stripe, at_us); i++)
        error = sweep_next(&sweep);
    return error;
}

void stripe_note(struct machine_stripe *stripe, int64_t fresh_at_us)
{
    if (fresh_at_us < atomic_load_explicit(&stripe->known_soonest_us, memory_order_relaxed))
        atomic_store_explicit(&stripe->known_soonest_us, fresh_at_us, memory_order_relaxed);
    if (fresh_at_us < atomic_load_explicit(&stripe->soonest_us, memory_order_relaxed))
        atomic_store_explicit(&stripe->soonest_us, fresh_at_us, memory_order_relaxed);
}

int stripe_make_room(struct visit *visit, uint32_t cells, bool drop, bool *has_room, int64_t *soonest_us)
{
    const struct machine *machine = visit->machine;
    struct machine_stripe *stripe = visit->stripe;
    struct sweep sweep = sweep_begin(visit, visit->now_us, drop);
    if (machine->on_full == WEIR_FULL_SHARE && !visit->is_overflow)
        cells += machine->shape.cells / MACHINE_SHARED_PART;
    int error = WEIR_OK;
    for (unsigned i = 0; !error && i < ROOM_BUCKETS && sweep.keys < ROOM_KEYS; i++) {
        *has_room = cells_free(stripe) >= cells || (!drop && sweep.found > 0);
        if (*has_room || !sweep_may_find(stripe, visit->now_us))
            break;
        error = sweep_next(&sweep);
    }
    *has_room = cells_free(stripe) >= cells || (!drop && sweep.found > 0);
    const int64_t known_us = atomic_load_explicit(&stripe->known_soonest_us, memory_order_relaxed);
    *soonest_us = known_us > visit->now_us ? known_us : visit->now_us + 1;
    return error;
}

/* ---- Rules ---- */

#define FORGET_AGAIN_US 1000000 /* after an attempt that found nothing */

/* Mark the rules that keys of a stripe name. */
static void forget_mark(const struct machine *machine, const struct machine_stripe *stripe, uint8_t *marks)
{
    for (uint32_t cell = 1; cell <= machine->shape.cells; cell++) {
        const uint64_t what = stripe_load(stripe, cell_at(&machine->shape, cell) + 1);
        if (cell_kind(what) == CELL_KEY && cell_rule(what) - 1 < MACHINE_MAX_RULES)
            marks[cell_rule(what) - 1] = 1;
    }
}

bool machine_forget_rules(struct machine *machine)
{
    const int64_t now_us = clock_monotonic_us();
    const int64_t last_us = atomic_load_explicit(&machine->collected_us, memory_order_relaxed);
    uint8_t *marks = last_us == 0 || now_us - last_us > FORGET_AGAIN_US ? calloc(MACHINE_MAX_RULES, 1) : NULL;
    uint64_t forgotten = 0, n = 0;
    int64_t patience_us = machine->patience_us;
    if (!marks)
        return false;
    while (n < machine->file.facts.stripes &&
           stripe_enter_within(machine, machine_stripe(machine, n), &patience_us) == WEIR_OK)
        forget_mark(machine, machine_stripe(machine, n++), marks);
    if (n == machine->file.facts.stripes)
        forgotten = book_forget(&machine->book, marks, &patience_us);
    while (n > 0)
        stripe_leave(machine_stripe(machine, --n));
    free(marks);
    atomic_store_explicit(&machine->collected_us, forgotten > 0 ? 0 : now_us, memory_order_relaxed);
    return forgotten > 0;
}
